"""One self-contained page of a recording: what happened, and plots of joints, base, shuttle and supply against time."""

import base64
import html
import io
from typing import Any

import numpy as np

from sim.resim import Resim
from sim.robot import Robot
from sim.rollout_reader import Rollout, describe

Array = np.ndarray
POINTS = 3000  # of a curve: more cannot be seen, and would make the page heavy


def write_report(rollout: Rollout, robot: Robot, title: str, resim: Resim | None = None) -> str:
    """The page as text; plots are inside as PNG."""
    import matplotlib

    matplotlib.use("agg")
    facts = describe(rollout)
    meta = facts["metadata"]
    rows = [("length", f"{facts['seconds']:.1f} s, {facts['samples']} samples"), ("robot", meta.get("robot", robot.name)),
            ("commit", meta.get("commit", "unknown")), ("seed", meta.get("seed", "unknown")),
            ("events", ", ".join(f"{n} {kind}" for kind, n in facts["events"].items()) or "none"),
            ("complete", "yes" if facts["complete"] else "no: the file was cut off"), *(("note", n) for n in facts["notes"])]
    parts = [f"<h1>{html.escape(title)}</h1>", _table(rows), "<h2>Swings</h2>", _swings(rollout)]
    for heading, figure in _figures(rollout, robot):
        parts += [f"<h2>{heading}</h2>", _picture(figure)]
    if resim is not None:
        parts += ["<h2>The same commands in the simulator</h2>", _resim_table(resim), _picture(_resim_figure(resim))]
    style = ("body{font:15px/1.45 system-ui,sans-serif;max-width:1080px;margin:2em auto;padding:0 1em;color:#222}img{max-width:100%}"
             "td,th{padding:.15em .8em .15em 0;text-align:left;vertical-align:top}th{font-weight:600}table{border-collapse:collapse}tr+tr td{border-top:1px solid #eee}")
    return f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{html.escape(title)}</title><style>{style}</style></head><body>{''.join(parts)}</body></html>"


def _table(rows: list[tuple[str, Any]], head: tuple[str, ...] = ()) -> str:
    top = "".join(f"<th>{html.escape(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table>{f'<tr>{top}</tr>' if head else ''}{body}</table>"


def _swings(rollout: Rollout) -> str:
    touches = rollout.of("touch")
    rows: list[Any] = []
    for n, (t, e) in enumerate((t, e) for t, e in rollout.events if e.get("event") == "strike"):
        touched = bool(len(touches) and np.min(np.abs(touches - t)) < 0.3)
        error, speed = e.get("position_error_m"), e.get("velocity_error_mps")
        rows.append((n + 1, f"{t - rollout.time[0]:.2f}", "" if error is None else f"{100 * error:.1f}", "" if speed is None else f"{speed:.2f}",
                     "yes" if touched else "no"))
    return _table(rows, ("swing", "at [s]", "racket off [cm]", "velocity off [m/s]", "touched")) if rows else "<p>none</p>"


def _thin(*columns: Array) -> tuple[Array, ...]:
    step = max(1, len(columns[0]) // POINTS)
    return tuple(c[::step] for c in columns)


def _figures(rollout: Rollout, robot: Robot) -> list[tuple[str, Any]]:
    from matplotlib import pyplot

    out = []
    time = rollout.time - rollout.time[0]
    strikes = rollout.of("strike") - rollout.time[0]
    groups = [[n for n in rollout.joint_names if n in robot.joint_names and robot.joint_names.index(n) not in set(robot.arm_index.tolist())],
              [n for n in rollout.joint_names if n in robot.joint_names and robot.joint_names.index(n) in set(robot.arm_index.tolist())],
              [n for n in rollout.joint_names if n not in robot.joint_names]]
    for heading, names in zip(("Leg joints", "Arm joints", f"Joints that {robot.name} does not have"), groups, strict=True):
        if not names:
            continue
        figure, axes = pyplot.subplots(-(-len(names) // 3), 3, figsize=(13, 1.9 * -(-len(names) // 3)), sharex=True, layout="constrained", squeeze=False)
        for axis, name in zip(axes.flat, names, strict=False):
            j = rollout.joint_names.index(name)
            t, q, target = _thin(time, rollout.q[:, j], rollout.target[:, j])
            axis.plot(t, target, color="tab:orange", linewidth=0.7, label="asked for")
            axis.plot(t, q, color="tab:blue", linewidth=0.9, label="is")
            axis.set_title(name, fontsize=9)
            for s in strikes:
                axis.axvline(s, color="0.8", linewidth=0.6, zorder=0)
        axes.flat[0].legend(fontsize=7)
        axes[-1, 0].set_xlabel("s")
        axes[0, 0].set_ylabel("rad")
        out.append((heading, figure))
    panels: list[tuple[str, Array, tuple[str, ...]]] = [("base height [m]", rollout.base[:, 2:3], ()), ("base on the court [m]", rollout.base[:, :2], ("x", "y")),
              ("shuttle [m]", rollout.shuttle, ("x", "y", "z"))]
    supply, rewards = rollout.series.get("/arm/supply"), rollout.series.get("/rewards")
    if supply is not None:
        panels.append(("arm supply [A]", supply.at(rollout.time)[:, 1:2], ()))
    figure, axes = pyplot.subplots(len(panels), 1, figsize=(13, 2.1 * len(panels)), sharex=True, layout="constrained", squeeze=False)
    for axis, (label, values, columns) in zip(axes.flat, panels, strict=True):
        for c in range(values.shape[1]):
            axis.plot(*_thin(time, values[:, c]), linewidth=0.9, label=columns[c] if columns else None)
        axis.set_ylabel(label, fontsize=9)
        if columns:
            axis.legend(fontsize=7)
        for s in strikes:
            axis.axvline(s, color="0.8", linewidth=0.6, zorder=0)
    if supply is not None:
        axes[-1, 0].axhline(robot.arm_current_limit, color="tab:red", linewidth=0.8)
    axes[-1, 0].set_xlabel("s")
    out.append(("Base, shuttle, supply", figure))
    if rewards is not None and rewards.names:
        figure, axis = pyplot.subplots(figsize=(13, 3.2), layout="constrained")
        total = np.sum(np.abs(rewards.values), axis=0)[: len(rewards.names)]
        for c in np.argsort(total)[::-1][:8]:
            axis.plot(*_thin(rewards.time - rollout.time[0], rewards.values[:, c]), linewidth=0.8, label=rewards.names[c])
        axis.legend(fontsize=7, ncols=2)
        axis.set(xlabel="s", ylabel="weighted reward")
        axis.set_yscale("symlog", linthresh=0.1)
        out.append(("The eight largest rewards", figure))
    return out


def _resim_table(resim: Resim) -> str:
    figures = resim.figures()["horizons"]
    head = ("after", "starts", "all joints [rad]", "base [cm]", "the three worst joints [rad]")
    rows: list[Any] = []
    for h, f in figures.items():
        worst = sorted(f["joints_rad"].items(), key=lambda item: -item[1])[:3]
        rows.append((f"{h} s", f["starts"], f"{f['all_joints_rad']:.4f}", f"{100 * f['base_m']:.1f}", ", ".join(f"{n} {v:.3f}" for n, v in worst)))
    return _table(rows, head)


def _resim_figure(resim: Resim) -> Any:
    from matplotlib import pyplot

    count = len(resim.joint_names)
    figure, axes = pyplot.subplots(-(-count // 3), 3, figsize=(13, 1.7 * -(-count // 3)), sharex=True, layout="constrained", squeeze=False)
    for j, (axis, name) in enumerate(zip(axes.flat, resim.joint_names, strict=False)):
        axis.plot(*_thin(resim.time, resim.recorded[:, j]), color="tab:blue", linewidth=0.8, label="recorded")
        axis.plot(*_thin(resim.time, resim.simulated[:, j]), color="tab:green", linewidth=0.8, label="simulated")
        axis.set_title(name, fontsize=9)
    axes.flat[0].legend(fontsize=7)
    return figure


def _picture(figure: Any) -> str:
    from matplotlib import pyplot

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=80)
    pyplot.close(figure)
    return f"<img alt='plot' src='data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}'>"
