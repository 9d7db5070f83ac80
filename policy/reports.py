"""Score cards for the terminal."""

from collections import Counter
from typing import Any

from rich.console import Console
from rich.table import Table


def _table(title: str, rows: list[tuple[str, str]]) -> Table:
    table = Table(title=title, show_header=False, title_justify="left", box=None, pad_edge=False)
    for name, value in rows:
        table.add_row(name, value)
    return table


def print_play(console: Console, f: dict[str, Any], seconds: float) -> None:
    """Score card of `birdie play`."""
    where = "as they were hit" if f["as_hit"] else "moved around home"
    rows = [
        ("shots", f"{f['shots']} ({f['source']}, {where}), {f['in_reach']} in reach"),
        ("touched", f"{f['touched_rate']:.1%} (of those in reach {f['touched_rate_in_reach']:.1%})"),
        ("over the net", f"{f['over_net_rate']:.1%}"),
        ("returned into court", f"{f['returned_rate']:.1%} (of those in reach {f['returned_rate_in_reach']:.1%})"),
        ("racket to plan, median", f"{f['median_position_error_m'] * 100:.1f} cm; within 10 cm {f['hit_rate']:.1%}"),
        ("falls", str(f["falls"])),
        ("not reached", ", ".join(f"{n} {why}" for why, n in Counter(o["why"] for o in f["out_of_reach"]).most_common()) or "none"),
        ("played in", f"{seconds:.1f} s"),
    ]
    console.print(_table("birdie play", rows))
    if f["as_hit"]:
        for name, n in Counter((o["shot"], o["x_m"], o["y_m"], o["time_s"], o["why"]) for o in f["out_of_reach"]).items():
            console.print(f"  {name[0]:>14}  comes down {name[1]:+.1f}, {name[2]:+.1f} m from home after {name[3]:.2f} s: {name[4]} ({n}x)")


def print_rallies(console: Console, f: dict[str, Any], seconds: float) -> None:
    """Score card of `birdie play --shots opponent`."""
    rows = [
        ("rallies", f"{f['rallies']} with a model of a person"),
        ("good returns in a rally", f"median {f['median_returns']:g}, mean {f['mean_returns']:.1f}, best {f['best_returns']}"),
        ("of all shots played at it", f"{f['returns'] / max(f['shots'], 1):.1%} returned"),
        ("rallies ended", ", ".join(f"{n} {why}" for why, n in f["ends"].items())),
        ("played in", f"{seconds:.1f} s"),
    ]
    console.print(_table("birdie play", rows))


def print_evaluation(console: Console, f: dict[str, Any]) -> None:
    """Score card of `birdie eval`."""
    rows = [
        ("swings", f"{f['swings']} in {f['episodes']} episodes, seed {f['seed']}"),
        (f"hit (within {f['hit_radius_m']:.2f} m, on time)", f"{f['hit_rate']:.1%}"),
        ("racket position error", f"median {f['median_position_error_m'] * 100:.1f} cm, 90 % {f['p90_position_error_m'] * 100:.1f} cm"),
        ("racket velocity error", f"median {f['median_velocity_error_mps']:.2f} m/s, 90 % {f['p90_velocity_error_mps']:.2f} m/s"),
        ("racket face error", f"median {f['median_normal_error_deg']:.1f} deg"),
        ("falls", f"{f['fall_rate']:.2%} of episodes"),
        ("drive over its speed limit", f"{f['over_speed_rate']:.3%} of steps, any joint"),
        (f"arm supply over {f['arm_current_limit_a']:.0f} A (not limited yet)",
         f"{f['arm_over_current_rate']:.2%} of steps, 99 % {f['arm_current_p99_a']:.1f} A, peak {f['arm_current_peak_a']:.1f} A"),
        ("blown-up simulations", str(f["blown_up"])),
    ]
    console.print(_table("birdie eval", rows))
    for title, key, unit in (("by distance of the target from home", "by_distance_m", "m"), ("by commanded speed", "by_speed_mps", "m/s")):
        console.print(title)
        for r in f[key]:
            console.print(f"  {r['from']:4.1f} to {r['to']:4.1f} {unit:3}  {r['swings']:5d} swings  hit {r['hit_rate']:6.1%}  "
                          f"error {r['median_position_error_m'] * 100:4.1f} cm, {r['median_velocity_error_mps']:.2f} m/s")
    console.print("drive speed: share of steps over the limit, and peak")
    for name, rate in f["over_speed_rate_by_joint"].items():
        console.print(f"  {name:8} {rate:8.3%}  {f['peak_speed_by_joint_radps'][name]:5.1f} rad/s")
