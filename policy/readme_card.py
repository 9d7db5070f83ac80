"""The README's score card, generated: `python -m policy.readme_card` measures the shipped policy and writes it there.

Figures go to `policy/checkpoints/scores.json`, tables between the README's two markers; `--text` only writes the tables again. What a
run cannot tell of itself (how the shipped run was made) stands in scores.json under "how" and is kept.
"""

import json
import sys
from pathlib import Path
from typing import Any

from policy import SHIPPED
from policy.score_card import rows

README = Path(__file__).parent.parent / "README.md"
SCORES = SHIPPED.parent / "scores.json"
BEGIN, END = "<!-- score card: python -m policy.readme_card -->", "<!-- end of score card -->"


def measure() -> dict[str, Any]:
    """All figures of the shipped policy, with what was known of its run before."""
    from policy.evaluation import EvalCfg, evaluate
    from policy.inference import OnnxPolicy
    from policy.play import PlayCfg, play
    from policy.rally import play_rallies
    from policy.score_card import CardCfg, public, run
    from sim.randomize import RandomizeCfg

    policy, before = OnnxPolicy(), json.loads(SCORES.read_text())

    def shots(cfg: PlayCfg) -> dict[str, Any]:
        figures, _ = play(policy, cfg)
        return {**{k: v for k, v in figures.items() if k != "out_of_reach"}, "out_of_reach_count": len(figures["out_of_reach"])}

    kept = {k: before[k] for k in ("command", "seed", "commit", "steps", "minutes", "machine", "how")}
    return {**kept, "eval_command": "birdie eval", "eval": evaluate(policy, EvalCfg()), "eval_randomized_command": "birdie eval --randomize",
            "eval_randomized": evaluate(policy, EvalCfg(randomize=RandomizeCfg())), "play_command": "birdie play", "play": shots(PlayCfg()),
            "as_hit_command": "birdie play --as-hit", "as_hit": shots(PlayCfg(as_hit=True)), "rallies_command": "birdie play --shots opponent",
            "rallies": play_rallies(policy), "card": public(run(policy, CardCfg()))}


def tables(f: dict[str, Any]) -> str:
    """The README's tables for the figures of `measure`."""
    drill, mixed, moved, as_hit, rallies = f["eval"], f["eval_randomized"], f["play"], f["as_hit"], f["rallies"]

    def line(what: str, *cells: str) -> str:
        return "| " + " | ".join((what, *cells)) + " |"

    def both(key: str, text: str, unit: float = 1.0) -> list[str]:
        return [text.format(d[key] * unit) for d in (drill, mixed)]

    def of(d: dict[str, Any], key: str) -> str:
        return f"{d[key]:.1%} ({d[key + '_in_reach']:.1%})"

    ends = ", ".join(f"{n} {why}" for why, n in rallies["ends"].items())
    out = [
        f"The shipped policy: {f['how']}; {f['minutes']} minutes on two cores. Figures by the commands named, on their default seeds; all of them are in "
        "[`policy/checkpoints/scores.json`](policy/checkpoints/scores.json).", "",
        line("`birdie eval`: 1,000 drilled swings, +-0.6 m fore-aft, +-1.0 m sideways, 1.5 to 2 s apart, 2 to 8 m/s", "nominal robot", "`--randomize`"), "|---|---|---|",
        line("racket centre within 0.10 m of the commanded point at the commanded time", *both("hit_rate", "{:.1%}")),
        line("racket position error, median", *both("median_position_error_m", "{:.1f} cm", 100)),
        line("racket velocity error, median", *both("median_velocity_error_mps", "{:.2f} m/s")),
        line("racket face error, median", *both("median_normal_error_deg", "{:.1f} deg")),
        line("falls, share of episodes", *both("fall_rate", "{:.2%}")),
        line("control steps with any drive over its speed limit", *both("over_speed_rate", "{:.3%}")), "",
        "With `--randomize` every episode has another robot: masses, friction, drives, delays, encoders, racket, pushes.", "",
        line("`birdie play`: 37 human shots, ten times each", "moved around home", "`--as-hit`"), "|---|---|---|",
        line("in reach", *(f"{d['in_reach']} of {d['shots']}" for d in (moved, as_hit))),
        line("touched, of all (of those in reach)", of(moved, "touched_rate"), of(as_hit, "touched_rate")),
        line("returned over the net and in, of all (of those in reach)", of(moved, "returned_rate"), of(as_hit, "returned_rate")),
        line("falls", str(moved["falls"]), str(as_hit["falls"])), "",
        f"`birdie play --shots opponent`, {rallies['rallies']} rallies with a model of a friendly amateur: median {rallies['median_returns']:g} good returns in a rally, best "
        f"{rallies['best_returns']} (called off at 100); how they ended: {ends}.", "",
        "The score card that `birdie eval` writes, harder throughout: 95 % intervals in brackets, on the right what the paper gives, of another simulator and other "
        "targets.", "",
        line("", "birdie", "ETH, Science Robotics 2025"), "|---|---|---|", *(line(*row) for row in rows(f["card"])),
        line("control rate", "50 Hz", "100 Hz"), line("training", f"{f['minutes']} minutes on two busy CPU cores", "4.8 h on an RTX 2080 Ti to near the top, days for deployment"),
        line("rallies with people", "none", "up to 10 hits"), line("code", "all of it", "none"),
    ]
    return "\n".join(out)


def updated(readme: str, f: dict[str, Any]) -> str:
    """The README with its tables for these figures."""
    begin, end = readme.index(BEGIN) + len(BEGIN), readme.index(END)
    return f"{readme[:begin]}\n{tables(f)}\n{readme[end:]}"


def main() -> None:
    """Measure, unless --text; write scores.json and the README."""
    figures = json.loads(SCORES.read_text()) if "--text" in sys.argv else measure()
    SCORES.write_text(json.dumps(figures, indent=1) + "\n")
    README.write_text(updated(README.read_text(), figures))


if __name__ == "__main__":
    main()
