"""`birdie eval`'s score card: numbers with counts and 95 % intervals, and one page that shows them.

Everything is drawn from fixed seeds, so the same policy gives the same bytes on the same kind of processor. Beside a figure stands the
paper's, where it gives one; the two are not the same test.
"""

import base64
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from policy.drill import Drill, drill
from policy.inference import OnnxPolicy
from policy.play import PlayCfg, play
from policy.rewards import HIT_RADIUS
from policy.swings import SwingRange
from sim.court import HALF_LENGTH, HALF_WIDTH_DOUBLES, HALF_WIDTH_SINGLES, SHORT_SERVICE
from sim.randomize import RandomizeCfg
from sim.robot import load_robot

Array = np.ndarray
REGION = (1.0, 1.5)  # [m] fore-aft and sideways: half sizes of the region of targets, the service area of the paper's figure 3
REGION_TIME = 80  # [control steps] given there: 1.6 s, the paper's
FAR = 2.0  # [m] sideways
SPEEDS = (4.0, 6.0, 8.0, 10.0, 12.0, 15.0, 19.0)  # [m/s] commanded, to the paper's highest
PAPER = {"hit": "negligible failures (figure 3)", "speed": "follows to about 10 m/s; 12.06 at most, at 19 commanded", "current": "never over 8 A",
         "far": "0.8 s reachable at 2.0 m"}


@dataclass(frozen=True)
class CardCfg:
    """swings: of each of the two levels, the other drills take shares of it; seed: of everything; threads: for physics, 0 for all."""

    swings: int = 1000
    seed: int = 7
    threads: int = 0


def wilson(hits: int, count: int) -> tuple[float, float]:
    """95 % interval of a rate: Wilson 1927 (doi 10.1080/01621459.1927.10502953), which stays inside 0 to 1."""
    if count == 0:
        return 0.0, 1.0
    z, p = 1.959964, hits / count
    middle, half = p + z * z / (2 * count), z * np.sqrt(p * (1 - p) / count + z * z / (4 * count * count))
    return float((middle - half) / (1 + z * z / count)), float((middle + half) / (1 + z * z / count))


def rate(good: Array) -> dict[str, Any]:
    """A share with its count and 95 % interval."""
    low, high = wilson(int(np.sum(good)), len(good))
    return {"rate": float(np.mean(good)) if len(good) else None, "count": len(good), "low": low, "high": high}


def median(values: Array, rng_seed: int = 0) -> dict[str, Any]:
    """A median with its count and 95 % interval by order statistics."""
    good = np.sort(values[np.isfinite(values)])
    n = len(good)
    if n == 0:
        return {"median": None, "count": 0, "low": None, "high": None}
    half = 1.959964 * np.sqrt(n) / 2
    return {"median": float(np.median(good)), "count": n, "low": float(good[max(int(n / 2 - half), 0)]), "high": float(good[min(int(n / 2 + half), n - 1)])}


def run(policy: OnnxPolicy, cfg: CardCfg = CardCfg(), robot_name: str = "", told: Any = lambda what: None) -> dict[str, Any]:
    """All drills and the human shots; figures by the keys of the score card, and `raw`, the drills themselves, for the page."""
    robot = load_robot(robot_name or policy.contract.robot)
    scale = robot.scale
    box = replace(SwingRange.box(scale), wait_share=1.0, wait=(20, 60))
    x, y = REGION
    wide = replace(box, x=(-x, x), y=(-y, y), time=(REGION_TIME, REGION_TIME + 1))
    sides = replace(wide, x=(-0.2, 0.2), y=(FAR - 0.01, FAR + 0.01))
    common: dict[str, Any] = {"threads": cfg.threads, "robot_name": robot_name}
    few = max(cfg.swings // 5, 6)
    told("level I, true interception")
    one = drill(policy, wide, cfg.swings, cfg.seed, **common)
    told("level II, by its own cameras")
    two = drill(policy, replace(wide, seen_share=1.0, planned_share=1.0), cfg.swings, cfg.seed, seen=True, randomize=RandomizeCfg(), **common)
    told("far targets")
    far = {"1.6": drill(policy, sides, few, cfg.seed + 1, **common), "0.8": drill(policy, replace(sides, time=(40, 41)), few, cfg.seed + 2, **common)}
    times = drill(policy, replace(wide, time=(30, REGION_TIME + 1)), cfg.swings, cfg.seed + 3, **common)
    speeds = {}
    for speed in SPEEDS:
        told(f"racket at {speed:g} m/s")
        span = replace(box, x=(-0.3, 0.3), y=(-0.5, 0.5), speed=(speed - 0.05, speed + 0.05))
        speeds[speed] = drill(policy, span, few, cfg.seed + 4, **common)
    told("human shots")
    figures, outcome = play(policy, PlayCfg(repeats=max(1, cfg.swings // 200), seed=cfg.seed), cfg.threads, None, robot_name)
    reach = outcome.in_reach()
    landed = outcome.landing[outcome.returned]
    aim = np.linalg.norm(landed - np.array([2.2, 0.0]), axis=1)
    out: dict[str, Any] = {
        "level1": _level(one), "level2": _level(two), "by_time": _by_time(times),
        "returned_in_rate": float(outcome.returned[reach].mean()), "returned": rate(outcome.returned[reach]), "touched": rate(outcome.touched[reach]),
        "median_landing_error_m": float(np.median(aim)) if len(aim) else None, "landing_error": median(aim),
        "racket_speed": {f"{s:g}": {"commanded_mps": s, "executed_mean_mps": float(np.nanmean(d.reached)), "position_error": median(d.error),
                                    "position_error_mean_m": float(np.mean(d.error[np.isfinite(d.error)])), "hit": rate(d.hit)} for s, d in speeds.items()},
        "max_racket_speed_mps": float(max(np.nanmax(d.reached) for d in speeds.values())),
        "over_current_swings": int(one.over.sum()), "over_current": rate(one.over), "current_peak_a": median(one.peak), "arm_current_limit_a": robot.arm_current_limit,
        "fall_rate": (one.falls + two.falls) / (one.episodes + two.episodes), "falls": one.falls + two.falls, "episodes": one.episodes + two.episodes,
        "home_rate": float(np.mean(one.home[np.isfinite(one.home)] < 0.4)), "home": rate(one.home[np.isfinite(one.home)] < 0.4),
        "foot_slip_mps": one.slip, "footwork": _footwork(one), "sight": _sight(two),
        "region_m": {"fore_aft": x, "sideways": y, "time_s": REGION_TIME * 0.02}, "hit_radius_m": HIT_RADIUS, "seed": cfg.seed, "swings": len(one.error),
        "training": {k: policy.training.get(k) for k in ("steps", "commit")}, "robot": robot.name, "sees": policy.contract.sees,
    }
    for level, name in ((out["level1"], "1.6"), (out["level1"], "0.8")):
        level[f"hit_rate_2m_{name}s"] = float(far[name].hit.mean())
        level[f"hit_2m_{name}s"] = rate(far[name].hit)
    out["raw"] = {"one": one, "two": two, "times": times, "speeds": speeds, "outcome": outcome, "play": figures}
    return out


def _level(d: Drill) -> dict[str, Any]:
    return {"hit_rate": float(d.hit.mean()), "hit": rate(d.hit), "median_position_error_m": median(d.error)["median"], "position_error": median(d.error),
            "velocity_error": median(d.speed_error), "face_error_deg": median(np.rad2deg(d.angle)), "falls": d.falls, "episodes": d.episodes}


def _by_time(d: Drill) -> list[dict[str, Any]]:
    rows = []
    for low in np.arange(0.6, 1.6, 0.2):
        inside = (d.time >= low - 1e-9) & (d.time < low + 0.2 - 1e-9)
        if inside.any():
            rows.append({"from_s": round(float(low), 1), "to_s": round(float(low) + 0.2, 1), "hit": rate(d.hit[inside])})
    return rows


def _footwork(d: Drill) -> list[dict[str, Any]]:
    distance = np.linalg.norm(d.place, axis=1)
    rows = []
    for low, high in ((0.0, 0.5), (0.5, 1.0), (1.0, 1.5), (1.5, 2.0)):
        inside = (distance >= low) & (distance < high)
        if inside.any():
            rows.append({"from_m": low, "to_m": high, "swings": int(inside.sum()), "steps_mean": float(d.steps[inside].mean()),
                         "travelled_mean_m": float(np.nanmean(d.travelled[inside]))})
    return rows


def _sight(d: Drill) -> list[dict[str, Any]]:
    rows = []
    for low, high in ((0.0, 0.1), (0.1, 0.2), (0.2, 0.4), (0.4, 0.6), (0.6, 0.8), (0.8, 1.0), (1.0, 1.5)):
        inside = (d.sight[:, 0] >= low) & (d.sight[:, 0] < high)
        if inside.any():
            known = inside & (d.sight[:, 1] > 0)
            rows.append({"from_s": low, "to_s": high, "known": float(d.sight[inside, 1].mean()), "error": median(d.sight[known, 2])})
    return rows


def public(card: dict[str, Any]) -> dict[str, Any]:
    """The card without the drills themselves: what is written as JSON."""
    return {k: v for k, v in card.items() if k != "raw"}


# -- the page -----------------------------------------------------------------------------------------------------------------------------
def page(card: dict[str, Any], title: str) -> str:
    """One self-contained page with the plots inside."""
    import matplotlib

    matplotlib.use("agg")
    raw = card["raw"]
    parts = [f"<h1>{html.escape(title)}</h1>", f"<p>Robot {html.escape(card['robot'])}, {card['training'].get('steps') or 0:,} steps of training, commit "
             f"{html.escape(str(card['training'].get('commit')))}, seed {card['seed']}. Intervals hold 95 %.</p>", table(rows(card), ("", "this policy", "the paper"))]
    for heading, figure in (("Where targets are hit", _maps(raw)), ("Racket speed", _speed_plot(raw)), ("Returns of human shots", _court_plot(raw["outcome"])),
                            ("Footwork, current, sight", _costs(card, raw))):
        parts += [f"<h2>{heading}</h2>", _picture(figure)]
    style = ("body{font:15px/1.45 system-ui,sans-serif;max-width:1080px;margin:2em auto;padding:0 1em;color:#222}img{max-width:100%}"
             "td,th{padding:.2em 1em .2em 0;text-align:left;vertical-align:top}th{font-weight:600}table{border-collapse:collapse}tr+tr td{border-top:1px solid #eee}")
    return f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{html.escape(title)}</title><style>{style}</style></head><body>{''.join(parts)}</body></html>"


def shown(value: dict[str, Any], unit: float = 1.0, digits: int = 1, name: str = "") -> str:
    """A rate or a median as text, with its interval and count."""
    if "rate" in value:
        return "none" if value["rate"] is None else f"{value['rate']:.1%} ({value['low']:.1%} to {value['high']:.1%}, n {value['count']})"
    if value["median"] is None:
        return "none"
    return f"{value['median'] * unit:.{digits}f} {name} ({value['low'] * unit:.{digits}f} to {value['high'] * unit:.{digits}f}, n {value['count']})"


def rows(card: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The card as lines: what, this policy, the paper."""
    one, two, region = card["level1"], card["level2"], card["region_m"]
    limit = card["arm_current_limit_a"]
    area = f"+-{region['fore_aft']:g} m fore-aft, +-{region['sideways']:g} m sideways, {region['time_s']:g} s"
    fast = card["racket_speed"]
    return [
        (f"level I, true interception, {area}: hit", shown(one["hit"]), PAPER["hit"]),
        ("racket off by, median", shown(one["position_error"], 100, 1, "cm"), ""),
        ("racket velocity off by, median", shown(one["velocity_error"], 1, 2, "m/s"), ""),
        ("racket face off by, median", shown(one["face_error_deg"], 1, 1, "deg"), ""),
        ("2.0 m sideways in 1.6 s", shown(one["hit_2m_1.6s"]), ""),
        ("2.0 m sideways in 0.8 s", shown(one["hit_2m_0.8s"]), PAPER["far"]),
        ("level II, by its own cameras, robots that differ: hit", shown(two["hit"]), "figure 3, no number"),
        ("racket off by, median", shown(two["position_error"], 100, 1, "cm"), ""),
        ("human shots in reach: touched", shown(card["touched"]), ""),
        ("returned into the court", shown(card["returned"]), ""),
        ("landing from the aim, median", shown(card["landing_error"], 1, 2, "m"), ""),
        ("racket at 10, 12, 19 m/s commanded: executed, mean", ", ".join(f"{fast[s]['executed_mean_mps']:.1f}" for s in ("10", "12", "19")) + " m/s", PAPER["speed"]),
        ("racket off by then, mean", ", ".join(f"{fast[s]['position_error_mean_m'] * 100:.1f}" for s in ("10", "12", "19")) + " cm", "11.7 cm at 12 m/s"),
        ("highest racket speed executed", f"{card['max_racket_speed_mps']:.1f} m/s", "12.06 m/s"),
        (f"swings with the arm over {limit:g} A", shown(card["over_current"]), PAPER["current"]),
        ("peak of the arm's current in a swing, median", shown(card["current_peak_a"], 1, 1, "A"), ""),
        ("falls", f"{card['falls']} in {card['episodes']} episodes", ""),
        ("within 0.4 m of home before the next shot", shown(card["home"]), "emergent"),
        ("feet that carry slide at, mean", f"{card['foot_slip_mps']:.2f} m/s", ""),
    ]


def table(lines: Sequence[tuple[str, ...]], head: tuple[str, ...]) -> str:
    """An HTML table."""
    top = "".join(f"<th>{html.escape(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in line) + "</tr>" for line in lines)
    return f"<table><tr>{top}</tr>{body}</table>"


def _maps(raw: dict[str, Any]) -> Any:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(13, 4.3), layout="constrained")
    for axis, (d, title) in zip(axes[:2], ((raw["one"], "level I"), (raw["two"], "level II")), strict=True):
        x, y, hit = d.place[:, 0], d.place[:, 1], d.hit
        good = np.isfinite(x)
        edges = np.linspace(-REGION[1], REGION[1], 7), np.linspace(-REGION[0], REGION[0], 5)
        total, _, _ = np.histogram2d(y[good], x[good], bins=edges)
        hits, _, _ = np.histogram2d(y[good & hit], x[good & hit], bins=edges)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(total > 0, hits / total, np.nan)
        image = axis.imshow(share.T, origin="lower", extent=(-REGION[1], REGION[1], -REGION[0], REGION[0]), vmin=0, vmax=1, cmap="viridis", aspect="equal")
        for i in range(share.shape[0]):
            for j in range(share.shape[1]):
                if total[i, j]:
                    axis.text(0.5 * (edges[0][i] + edges[0][i + 1]), 0.5 * (edges[1][j] + edges[1][j + 1]), f"{share[i, j]:.0%}\n{int(total[i, j])}", ha="center",
                              va="center", fontsize=7, color="white" if share[i, j] < 0.7 else "black")
        axis.invert_xaxis()
        axis.set(title=f"{title}: hit rate by place (swings)", xlabel="left - right of home [m]", ylabel="towards the net [m]")
    figure.colorbar(image, ax=axes[:2].tolist(), shrink=0.7)
    d = raw["times"]
    side = np.linalg.norm(d.place, axis=1)
    t_edges, s_edges = np.array([0.6, 0.8, 1.0, 1.2, 1.4, 1.62]), np.array([0.0, 0.5, 1.0, 1.5, 1.85])
    good = np.isfinite(side)
    total, _, _ = np.histogram2d(d.time[good], side[good], bins=(t_edges, s_edges))
    hits, _, _ = np.histogram2d(d.time[good & d.hit], side[good & d.hit], bins=(t_edges, s_edges))
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(total > 0, hits / total, np.nan)
    axes[2].pcolormesh(t_edges, s_edges, share.T, vmin=0, vmax=1, cmap="viridis")
    for i in range(len(t_edges) - 1):
        for j in range(len(s_edges) - 1):
            if total[i, j]:
                axes[2].text(0.5 * (t_edges[i] + t_edges[i + 1]), 0.5 * (s_edges[j] + s_edges[j + 1]), f"{share[i, j]:.0%}\n{int(total[i, j])}", ha="center", va="center",
                             fontsize=7, color="white" if share[i, j] < 0.7 else "black")
    axes[2].set(title="level I: by time and distance", xlabel="time given [s]", ylabel="from home [m]")
    return figure


def _speed_plot(raw: dict[str, Any]) -> Any:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
    speeds = raw["speeds"]
    x = np.array(list(speeds))
    for axis, key, unit, label in ((axes[0], "reached", 1.0, "executed [m/s]"), (axes[1], "error", 100.0, "racket off by [cm]"), (axes[2], "angle", 57.2958, "face off by [deg]")):
        values = [getattr(d, key)[np.isfinite(getattr(d, key))] * unit for d in speeds.values()]
        axis.boxplot(values, positions=x, widths=0.8, showfliers=False, manage_ticks=False)
        axis.set(xlabel="commanded [m/s]", ylabel=label, xlim=(2, 21))
    axes[0].plot([3, 20], [3, 20], color="0.7", linewidth=0.8)
    axes[0].axhline(12.06, color="tab:red", linewidth=0.8)
    axes[0].text(3, 12.2, "the paper's highest", fontsize=8, color="tab:red")
    axes[1].axhline(100 * HIT_RADIUS, color="0.7", linewidth=0.8)
    return figure


def _court_plot(outcome: Any) -> Any:
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(9, 4.6), layout="constrained")
    for x in (0.0, SHORT_SERVICE, HALF_LENGTH):
        axis.plot([x, x], [-HALF_WIDTH_DOUBLES, HALF_WIDTH_DOUBLES], color="0.6", linewidth=2.5 if x == 0 else 0.8)
    for y in (-HALF_WIDTH_DOUBLES, -HALF_WIDTH_SINGLES, HALF_WIDTH_SINGLES, HALF_WIDTH_DOUBLES):
        axis.plot([0, HALF_LENGTH], [y, y], color="0.6", linewidth=0.8)
    good, bad = outcome.returned, outcome.touched & ~outcome.returned
    axis.plot(outcome.landing[good, 0], outcome.landing[good, 1], ".", color="tab:green", label=f"in: {int(good.sum())}")
    axis.plot(outcome.landing[bad, 0], outcome.landing[bad, 1], ".", color="tab:red", label=f"out or in the net: {int(bad.sum())}")
    axis.plot(2.2, 0.0, "x", color="black", label="aim")
    axis.set(xlim=(-1.5, HALF_LENGTH + 0.7), aspect="equal", xlabel="from the net [m]", ylabel="[m]", title=f"where returns land; {int((~outcome.touched).sum())} not touched")
    axis.legend(fontsize=8)
    return figure


def _costs(card: dict[str, Any], raw: dict[str, Any]) -> Any:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 4, figsize=(13, 3.3), layout="constrained")
    feet = card["footwork"]
    axes[0].bar([f"{r['from_m']:g}-{r['to_m']:g}" for r in feet], [r["steps_mean"] for r in feet], color="tab:blue")
    axes[0].set(xlabel="target from home [m]", ylabel="steps per swing")
    axes[1].bar([f"{r['from_m']:g}-{r['to_m']:g}" for r in feet], [r["travelled_mean_m"] for r in feet], color="tab:blue")
    axes[1].set(xlabel="target from home [m]", ylabel="base travels [m]")
    peak = raw["one"].peak[np.isfinite(raw["one"].peak)]
    axes[2].hist(peak, bins=30, color="tab:gray")
    axes[2].axvline(card["arm_current_limit_a"], color="tab:red")
    axes[2].set(xlabel="peak arm current of a swing [A]", ylabel="swings")
    sight = card["sight"]
    axes[3].plot([r["from_s"] for r in sight], [100 * (r["error"]["median"] or np.nan) for r in sight], "o-", label="median error [cm]")
    axes[3].plot([r["from_s"] for r in sight], [100 * r["known"] for r in sight], "s--", color="0.6", label="known [%]")
    axes[3].set(xlabel="time to hit [s]", ylim=(0, 105))
    axes[3].legend(fontsize=8)
    return figure


def _picture(figure: Any) -> str:
    from matplotlib import pyplot

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=85, metadata={"Software": None})
    pyplot.close(figure)
    return f"<img alt='plot' src='data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}'>"
