"""Fit of the flight model to measured points, and how well it foretells the rest of a flight.

`birdie bench flight` replays recorded flights: what is known up to some time before the end, where would the end be?
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from perception.flight import DRAG_MEAN, STEP_MAX, rk4_step

Array = np.ndarray

POINT_SIGMA = 0.03  # [m] of a measured point: label noise and rig error of the court-corner cameras together
SOFT = 2.5  # residuals beyond so many sigma count linearly: recordings hold stray points
DRAG_PRIOR = 0.012  # [1/m] about DRAG_MEAN
DRIFT_PRIOR = (0.65, 0.25)  # [m/s^2] mean and sigma; median 0.67, 10 to 90 % 0.22 to 0.83, of 55 fitted flights
REPROJECTION_LIMIT = 8.0  # [px] rows of *_xyz.csv above it are mismatches, as the data's README says
SCALE_PRIOR = 0.03  # of a rig's vertical scale about 1: what court-corner calibrations are good to
HORIZONS = (0.2, 0.4, 0.6, 1.0)  # [s] before the end
LEAST_POINTS = 8  # known points without which a flight is not fitted


@dataclass(frozen=True)
class Flight:
    """One measured flight: time (T,) [s], position (T, 3) [m], z up. label: where it came from."""

    time: Array
    position: Array
    label: str


@dataclass(frozen=True)
class FlightFit:
    """Start state at the first point: position, velocity (3,) [m, m/s]; drag [1/m], drift [m/s^2]; rms of the residuals [m];
    height_scale: true heights over measured ones, 1 unless it was fitted."""

    position: Array
    velocity: Array
    drag: float
    drift: float
    rms: float
    height_scale: float = 1.0


def states_at(position: Array, velocity: Array, drag: float, drift: float, times: Array) -> Array:
    """(T, 6) position and velocity at times (T,) after the start, ascending [s]."""
    p, v = np.array(position, float), np.array(velocity, float)
    out = np.empty((len(times), 6))
    now = 0.0
    for i, t in enumerate(times):
        parts = max(1, int(np.ceil((t - now) / STEP_MAX - 1e-9)))
        for _ in range(parts):
            rk4_step(p, v, drag, drift, (t - now) / parts)
        now = t
        out[i, :3], out[i, 3:] = p, v
    return out


def fit_flight(time: Array, position: Array, with_drift: bool = True, with_scale: bool = False) -> FlightFit:
    """Maximum a posteriori start state, drag and drift of one flight: Huber loss on the points, Gaussian priors on k and s.

    time (T,) ascending [s], position (T, 3) [m]; at least LEAST_POINTS of them. with_drift False holds s at zero. with_scale
    also fits the vertical scale of the rig, which gravity shows.
    """
    t = time - time[0]
    # a parabola with the gravity and drag of the first guess taken out would be circular; a short quadratic is enough to start
    early = t <= max(0.15, t[min(LEAST_POINTS, len(t)) - 1])
    v0 = np.polyfit(t[early], position[early], 2)[1]
    start = np.concatenate([position[0], v0, [DRAG_MEAN], [DRIFT_PRIOR[0]] if with_drift else [], [1.0] if with_scale else []])

    def unpack(x: Array) -> tuple[float, float, Array]:
        scale = np.array([1.0, 1.0, x[-1] if with_scale else 1.0])
        return float(np.clip(x[6], 0.05, 0.6)), float(x[7]) if with_drift else 0.0, scale

    def residuals(x: Array) -> Array:
        k, s, scale = unpack(x)
        off = (states_at(x[:3], x[3:6], k, s, t)[:, :3] - position * scale) / POINT_SIGMA
        size = np.linalg.norm(off, axis=1, keepdims=True)
        scale = np.where(size > SOFT, np.sqrt(np.maximum(2 * SOFT * size - SOFT**2, 0)) / np.maximum(size, 1e-12), 1.0)
        prior = [(x[6] - DRAG_MEAN) / DRAG_PRIOR] + ([(x[7] - DRIFT_PRIOR[0]) / DRIFT_PRIOR[1]] if with_drift else [])
        prior += [(x[-1] - 1) / SCALE_PRIOR] if with_scale else []
        return np.concatenate([(off * scale).ravel(), prior])

    typical = [1, 1, 1, 10, 10, 10, 0.05] + [0.5] * with_drift + [0.03] * with_scale
    best = least_squares(residuals, start, x_scale=typical, max_nfev=60).x
    k, s, scale = unpack(best)
    off = states_at(best[:3], best[3:6], k, s, t)[:, :3] - position * scale
    return FlightFit(best[:3], best[3:6], k, s, float(np.sqrt(np.mean(np.sum(off**2, axis=1)))), float(scale[2]))


def height_scales(flights: list[Flight]) -> Array:
    """(N,) vertical scale of the rig for each flight, from all the *other* flights of the recording: the median of their fits.

    A rig calibrated on court corners is good to about 3 % in scale; its flights then fall at 9.5 or 10.1 m/s^2.
    """
    own = np.array([fit_flight(f.time, f.position, with_scale=True).height_scale if len(f.time) >= LEAST_POINTS else 1.0 for f in flights])
    if len(own) < 4:  # too few to tell a rig's scale from one flight's noise
        return np.ones(len(own))
    return np.array([np.median(np.delete(own, i)) for i in range(len(own))])


def read_flights(folder: Path) -> list[Flight]:
    """All flights of a folder with `*_xyz.csv` and `shots.csv`, or of plain `t_s, x_m, y_m, z_m` files, one flight each.

    Columns are those of the recordings' README. Raises ValueError when the folder holds neither.
    """
    flights: list[Flight] = []
    cuts = folder / "shots.csv"
    if cuts.is_file():
        rallies: dict[str, Array] = {}
        for row in csv.DictReader(cuts.open()):
            name = row["rally"]
            if name not in rallies:
                path = folder / f"{name}_xyz.csv"
                if not path.is_file():
                    raise ValueError(f"{cuts} names rally {name}, but {path.name} is not there")
                rallies[name] = np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2)
            table = rallies[name]
            chosen = table[table[:, 0] >= int(row["first_frame"])][: int(row["samples"])]
            chosen = chosen[chosen[:, 5] < REPROJECTION_LIMIT]
            if len(chosen):
                flights.append(Flight(chosen[:, 1], chosen[:, 2:5], f"{name}/{row['first_frame']}"))
    else:
        for path in sorted(folder.glob("*.csv")):
            rows = list(csv.DictReader(path.open()))
            if rows and {"t_s", "x_m", "y_m", "z_m"} <= rows[0].keys():
                table = np.array([[float(r[c]) for c in ("t_s", "x_m", "y_m", "z_m")] for r in rows if r.get("visibility", "1") == "1"])
                if len(table):
                    flights.append(Flight(table[:, 0], table[:, 1:], path.stem))
    if not flights:
        raise ValueError(f"no flights in {folder}: it needs shots.csv with *_xyz.csv, or files with t_s, x_m, y_m, z_m")
    return flights


def end_error(flight: Flight, horizon: float, with_drift: bool) -> float | None:
    """Distance [m] between the foretold and the measured last point, from what was known up to horizon [s] before it.

    None where fewer than LEAST_POINTS points lie before.
    """
    known = flight.time <= flight.time[-1] - horizon
    if known.sum() < LEAST_POINTS:
        return None
    fit = fit_flight(flight.time[known], flight.position[known], with_drift)
    end = states_at(fit.position, fit.velocity, fit.drag, fit.drift, np.array([flight.time[-1] - flight.time[0]]))
    return float(np.linalg.norm(end[0, :3] - flight.position[-1]))


def bench_flights(flights: list[Flight]) -> dict[str, Any]:
    """Median and 90 % errors by horizon, with drift and with drag alone, and the errors themselves.

    Heights are first put to scale, see `height_scales`; no flight has a say in its own scale.
    """
    scales = height_scales(flights)
    flights = [Flight(f.time, f.position * [1, 1, s], f.label) for f, s in zip(flights, scales, strict=True)]
    out: dict[str, Any] = {"flights": len(flights), "height_scale": float(np.median(scales))}
    for name, with_drift in (("drag_and_drift", True), ("drag_only", False)):
        median, p90, counts, errors = {}, {}, {}, {}
        for horizon in HORIZONS:
            known = [e for e in (end_error(f, horizon, with_drift) for f in flights) if e is not None]
            if known:
                key = f"{horizon:.1f}"
                median[key], p90[key] = float(np.median(known)), float(np.percentile(known, 90))
                counts[key], errors[key] = len(known), known
        out[name] = {"median_m": median, "p90_m": p90, "flights": counts, "errors_m": errors}
    return out




def plot_errors(figures: dict[str, Any], path: Path) -> None:
    """Errors of every flight by horizon, both models side by side, as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for shift, name, colour in ((-0.18, "drag_only", "tab:gray"), (0.18, "drag_and_drift", "tab:orange")):
        errors = figures[name]["errors_m"]
        places = np.arange(len(errors)) + shift
        boxes = axes.boxplot([np.array(e) * 100 for e in errors.values()], positions=places, widths=0.3, patch_artist=True, showfliers=False)
        for box in boxes["boxes"]:
            box.set_facecolor(colour)
        for place, e in zip(places, errors.values(), strict=True):
            axes.plot(np.full(len(e), place), np.array(e) * 100, ".", color="black", markersize=2, alpha=0.5)
        axes.plot([], [], color=colour, linewidth=6, label=name.replace("_", " "))
    axes.set_xticks(np.arange(len(errors)), [f"{h} s" for h in errors])
    axes.set(xlabel="time before the end at which the flight is foretold", ylabel="error at the end [cm]", ylim=(0, None))
    axes.set_title(f"{figures['flights']} measured flights")
    axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
