"""The flight filter on measured points, such as motion capture: is the flight model, with its noises, consistent with them?

`birdie track DIR` on a folder of `t_s, x_m, y_m, z_m` files, one flight each.
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from perception.errors import UserError
from perception.filter import STATES, correct, innovation, predict, whitened, workspace

Array = np.ndarray


@dataclass(frozen=True)
class PointsCfg:
    """Noises for points. The white noise of each coordinate is measured on the points themselves, see `white_sigma`, and is
    at least sigma_floor [m]. drag_prior: wide, since markers change the shuttle (the recorded tosses fly with 0.15 /m).
    acceleration_noise, drift_noise as in `TrackerCfg`; a hand toss tumbles and swings more than a hit shuttle, hence more of
    it. settle: points before residuals count. mocap_rate [1/s]: files at least this fast are motion capture.
    """

    sigma_floor: float = 0.0001
    drag_prior: tuple[float, float] = (0.2, 0.06)
    drift_prior: tuple[float, float] = (0.0, 0.5)
    acceleration_noise: float = 0.85
    drift_noise: float = 0.1
    settle: int = 6
    mocap_rate: float = 200.0


@njit(cache=True)
def _filter(times, points, x, cov, sigma, quiet, drift, work, residuals, nis, states):
    slope, noise = np.eye(3), np.diag(sigma * sigma)
    chol, pht, white = np.zeros((3, 3)), np.zeros((3, STATES)), np.zeros(3)
    gain, rest, left = np.zeros((3, STATES)), np.zeros((STATES, STATES)), np.zeros((3, STATES))
    for n in range(len(times)):
        if n > 0:
            predict(x, cov, times[n] - times[n - 1], quiet, drift, work)
        for a in range(3):
            residuals[n, a] = points[n, a] - x[a]
        innovation(cov, slope, noise, 3, chol, pht)
        nis[n] = whitened(chol, residuals[n], 3, white)
        correct(x, cov, slope, noise, 3, chol, pht, white, gain, rest, left)
        states[n] = x


def white_sigma(points: Array) -> Array:
    """Sigma (3,) [m] of the white noise of points (T, 3) evenly spaced in time, from their third differences.

    A flight is a cubic over four points to well below a millimetre at 100 Hz and more; white noise has twenty times its
    variance left in a third difference.
    """
    return np.asarray(np.sqrt(np.mean(np.diff(points, 3, axis=0) ** 2, axis=0) / 20))


def filter_points(time: Array, points: Array, cfg: PointsCfg = PointsCfg()) -> tuple[Array, Array, Array]:
    """Filter points (T, 3) [m] at ascending times (T,) [s].

    Returns what each point was off its own forecast (T, 3) [m], NIS (T,) with three freedoms, and states (T, 8) after each point.
    """
    steps = min(5, len(time) - 1)
    v = (points[steps] - points[0]) / (time[steps] - time[0])
    x = np.array([*points[0], *v, cfg.drag_prior[0], cfg.drift_prior[0]])
    cov = np.diag(np.array([1.0, 1, 1, 10, 10, 10, cfg.drag_prior[1], cfg.drift_prior[1]]) ** 2)
    residuals, nis, states = np.empty((len(time), 3)), np.empty(len(time)), np.empty((len(time), STATES))
    _filter(np.asarray(time, float), np.ascontiguousarray(points, float), x, cov, np.maximum(white_sigma(points), cfg.sigma_floor), cfg.acceleration_noise,
            cfg.drift_noise, workspace(), residuals, nis, states)
    return residuals, nis, states


def chi2_bounds(freedoms: int) -> tuple[float, float]:
    """95 % bounds of chi-square over its freedoms, by Wilson and Hilferty's cube-root approximation (1931)."""
    spread = 2 / (9 * freedoms)
    low, high = ((1 - spread + z * np.sqrt(spread)) ** 3 for z in (-1.96, 1.96))
    return float(low), float(high)


def is_points(path: Path) -> bool:
    """Whether a file begins with the columns of measured points."""
    try:
        with path.open() as file:
            return {"t_s", "x_m", "y_m", "z_m"} <= set(file.readline().strip().split(",")) and "_xyz" not in path.stem
    except (OSError, UnicodeDecodeError):
        return False


def read_points(path: Path) -> tuple[Array, Array]:
    """Times (T,) [s] and points (T, 3) [m] of a file with t_s, x_m, y_m, z_m; rows with visibility 0 are left out.

    Raises UserError for rows that are no numbers and for time that does not go forward.
    """
    rows = []
    with path.open() as file:
        for number, row in enumerate(csv.DictReader(file), start=2):
            if row.get("visibility") == "0":
                continue
            try:
                values = [float(row[c]) for c in ("t_s", "x_m", "y_m", "z_m")]
            except (TypeError, ValueError, KeyError) as error:
                raise UserError(f"{path}, line {number}: no numbers in t_s, x_m, y_m, z_m ({error})") from error
            if np.isfinite(values).all():
                rows.append(values)
    table = np.array(rows, float).reshape(-1, 4)
    if np.any(np.diff(table[:, 0]) <= 0):
        raise UserError(f"{path}: time does not go forward; points must be in the order they were measured")
    return table[:, 0], table[:, 1:]


def score_points(folder: Path, cfg: PointsCfg = PointsCfg()) -> dict[str, Any]:
    """Filter every file of a folder. By flight, and over all that are motion capture: rms [m] of each point off its own forecast
    (length of the 3-D residual), and mean NIS with its 95 % bounds (three freedoms a point). Raises UserError where there is
    no flight."""
    out: dict[str, Any] = {"flights": {}}
    residuals, every = [], []
    for path in sorted(p for p in folder.glob("*.csv") if is_points(p)):
        time, points = read_points(path)
        if len(time) < 3 * cfg.settle:
            continue
        off, nis, states = filter_points(time, points, cfg)
        off, nis = off[cfg.settle:], nis[cfg.settle:]
        rate = 1 / float(np.median(np.diff(time)))
        out["flights"][path.stem] = {"points": len(time), "rate_hz": rate, **_consistency(off, nis), "drag": float(states[-1, 6]),
                                     "drift": float(states[-1, 7])}
        if rate >= cfg.mocap_rate:
            residuals.append(off)
            every.append(nis)
    if not out["flights"]:
        raise UserError(f"{folder} holds no flight of at least {3 * cfg.settle} points")
    if residuals:
        out |= _consistency(np.concatenate(residuals), np.concatenate(every))
    return out


def _consistency(residuals: Array, nis: Array) -> dict[str, Any]:
    low, high = chi2_bounds(3 * len(nis))
    return {"residual_rms_m": float(np.sqrt(np.mean(np.sum(residuals**2, axis=1)))), "nis_mean": float(nis.mean()),
            "nis_bounds": [3 * low, 3 * high], "consistent": bool(3 * low <= nis.mean() <= 3 * high)}
