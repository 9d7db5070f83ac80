"""Fit of the noise model where the truth is known: rendered images, or motion capture of the shuttle and of a robot that moves.

Label recordings leave much at its prior (`noise_fit.py`). With the truth beside each report everything but the latency can be
told: misses by range, streak and body rate, the correlation of the eyes, a slow error of this rig alone.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import nnls

from perception.camera import StereoRig
from perception.errors import UserError
from perception.noise import CLEAR_SIZE, NoiseCfg, pixel_errors
from perception.triangulation import SHUTTLE_SIZE

Array = np.ndarray

FALSE_ERROR = 15.0  # [px] off in any of u, v, disparity: something else
LEAST_REPORTS, LEAST_FLIGHTS = 500, 5
FITTED = ("pixel_sigma", "tail_share", "eye_correlation", "bias_sigma", "bias_flat", "bias_growth", "bias_correlation", "bias_time_s", "miss_base", "miss_small", "miss_blur", "miss_turn",
          "false_rate")
GROWTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
NEAR_LAG, FAR_LAG = 1, 5  # [frames at 60 a second] between which the slow error's memory is read
MEMORY_MOST = 2.0  # [s] longer than any flight: constant within one
SLOW_STREAK = 1.0  # [px] below it a report tells of pixel noise alone


@dataclass(frozen=True, eq=False)
class Reports:
    """What a parallel pair reported, and the truth, row by row: flight (N,) number, points_l (N, 3) [m] and velocity_c (N, 3)
    [m/s] as in `noise.sample`, body_rate (N,) [rad/s], measurement (N, 3) u, v, disparity [px], seen (N,)."""

    flight: Array
    points_l: Array
    velocity_c: Array
    body_rate: Array
    measurement: Array
    seen: Array


def _truth(rig: StereoRig, reports: Reports) -> tuple[Array, Array, Array, Array]:
    """True image (N, 3) u, v, disparity; flow (N, 2) [px/s]; size (N,) [px]; in_view (N,)."""
    camera, z = rig.left, np.maximum(reports.points_l[:, 2], 1e-3)
    flat, focal = reports.points_l[:, :2] / z[:, None], np.array([camera.fx, camera.fy])
    image = np.column_stack([flat * focal + [camera.cx, camera.cy], camera.fx * rig.baseline / z])
    right = image[:, :2] - np.column_stack([image[:, 2], np.zeros(len(z))])
    flow = (reports.velocity_c[:, :2] - flat * reports.velocity_c[:, 2:]) / z[:, None] * focal
    in_view = (reports.points_l[:, 2] > 1e-3) & camera.inside(image[:, :2]) & camera.inside(right)
    return image, flow, camera.fx * SHUTTLE_SIZE / z, in_view


def fit_with_truth(rig: StereoRig, reports: Reports, prior: NoiseCfg = NoiseCfg()) -> tuple[NoiseCfg, dict[str, str]]:
    """Noise model of these reports, and where each number is from. prior: exposure_s must be that of the images.

    Raises UserError for too few reports, or shapes that do not match.
    """
    rows = {len(getattr(reports, key)) for key in ("flight", "points_l", "velocity_c", "body_rate", "measurement", "seen")}
    if len(rows) != 1:
        raise UserError(f"the columns of the reports differ in length: {sorted(rows)}")
    if not rig.is_parallel:
        raise UserError(f"rig {rig.name} is not parallel; rectify it first")
    image, flow, size, in_view = _truth(rig, reports)
    error = reports.measurement - image
    false = reports.seen & ~(np.abs(error).max(axis=1) <= FALSE_ERROR)
    good = reports.seen & ~false
    flights = [f for f in np.unique(reports.flight) if np.sum(good & (reports.flight == f)) >= 10]
    if good.sum() < LEAST_REPORTS or len(flights) < LEAST_FLIGHTS:
        raise UserError(f"{good.sum()} reports of {len(flights)} flights; "
                        f"the noise model needs {LEAST_REPORTS} of {LEAST_FLIGHTS}")
    count = f"{good.sum()} reports of {len(flights)} flights with their truth"
    streak = flow * prior.exposure_s
    length = np.linalg.norm(streak, axis=1)
    growth = min(GROWTHS, key=lambda g: _apart(error, reports.flight, flights, good, size, g)[3])
    slow, white, spread, _ = _apart(error, reports.flight, flights, good, size, growth)
    kept = _memory(white, reports.flight, flights)
    shake = rig.left.fx * prior.timing_sigma_s * reports.body_rate
    steady = np.isfinite(white[:, 0]) & (shake < 0.1 * prior.pixel_sigma)
    if steady.sum() < LEAST_REPORTS // 5:
        steady = np.isfinite(white[:, 0])
    # across the streak there is pixel noise alone, however fast the shuttle; along the rows of the eyes only as far as they are across it
    way = streak / np.maximum(length, 1e-9)[:, None]
    across = (white[:, 1] * way[:, 0] - white[:, 0] * way[:, 1])[steady]
    sigma, tail = _white(across)
    upright = steady & ((length < SLOW_STREAK) | (np.abs(way[:, 0]) < 0.3))
    upright = upright if upright.sum() >= LEAST_REPORTS // 5 else steady
    correlation = 1 - 0.5 * (_middle(white[upright, 2]) / _middle(across)) ** 2
    sources = {key: f"fitted to {count}" for key in FITTED}
    blurred = np.isfinite(white[:, 0]) & (length > 2 * SLOW_STREAK)
    blur = prior.blur_share
    if blurred.sum() >= LEAST_REPORTS // 5:
        along = np.sum(white[blurred, :2] * streak[blurred], axis=1) / length[blurred]
        own = _middle(across) / sigma
        low, high = 0.0, 1.0
        for _ in range(30):
            blur = 0.5 * (low + high)
            wide = _middle(along / np.sqrt(sigma**2 + (blur * length[blurred]) ** 2)) > own
            low, high = (blur, high) if wide else (low, blur)
        sources["blur_share"] = f"fitted to {count}, exposure {prior.exposure_s * 1000:g} ms as told"
    else:
        sources["blur_share"] = f"prior; {blurred.sum()} reports with a streak are too few"
    # what white noise alone leaves in a flight's median is taken off the slow error
    noise = (np.nanstd(white[:, :2]) ** 2) * float(np.mean(spread)) * np.pi / 2
    over, bias = (max(float(np.mean(slow[:, a] ** 2) - noise), 0.0) ** 0.5 for a in (0, 1))
    flat = over / bias if bias > 0.05 else 1.0  # [px] below that there is nothing to compare
    apart = max(float(np.mean(slow[:, 2] ** 2)) - float(np.nanstd(white[:, 2])) ** 2 * float(np.mean(spread)) * np.pi / 2, 0.0)
    alike = 1 - 0.5 * apart / over**2 if over > 0 else 0.0
    smear = length + rig.left.fx * prior.exposure_s * reports.body_rate
    causes = np.column_stack([np.ones(len(size)), np.maximum(CLEAR_SIZE / size - 1, 0), smear / size, reports.body_rate])
    counted = in_view & ~false
    miss = [float(m) for m in nnls(causes[counted], (~reports.seen[counted]).astype(float))[0]]
    for key in ("exposure_s", "latency_s", "latency_sigma_s"):
        sources[key] = "as told; reports do not say it"
    sources["timing_sigma_s"] = "prior; it shows as pixel noise when the body turns"
    sources["drop_rate"] = "0; lost frames count as misses here"
    found = replace(
        prior, pixel_sigma=round(sigma, 4), tail_share=round(tail, 4),
        eye_correlation=round(float(np.clip(correlation, 0.0, 0.99)), 4),
        blur_share=round(blur, 4), bias_sigma=round(bias, 4),
        bias_flat=round(flat, 3), bias_growth=growth, bias_time_s=kept, bias_correlation=round(float(np.clip(alike, 0.0, 0.99)), 4), miss_base=round(min(miss[0], 1.0), 5), miss_small=round(miss[1], 4),
        miss_blur=round(miss[2], 4), miss_turn=round(miss[3], 4), false_rate=round(float(false.mean()), 5), drop_rate=0.0)
    return found, sources


def _apart(error: Array, flight: Array, flights: list[Any], good: Array, size: Array, growth: float) -> tuple[Array, Array, Array, float]:
    """Slow errors (F, 3) of flights and what they leave (N, 3) of every error, nan elsewhere; 1 / reports (F,); and how large the rest is."""
    grown = 1 + growth * (size / CLEAR_SIZE - 1)
    slow, white, spread = np.zeros((len(flights), 3)), np.full(error.shape, np.nan), np.zeros(len(flights))
    for n, number in enumerate(flights):
        own = good & (flight == number)
        slow[n] = np.median(error[own] / grown[own, None], axis=0)
        white[own] = error[own] - slow[n] * grown[own, None]
        spread[n] = 1 / own.sum()
    return slow, white, spread, float(np.nanmean(np.abs(white[:, :2])))


def _memory(white: Array, flight: Array, flights: list[Any]) -> float:
    """Time [s] in which the slow error forgets itself, from how alike what is left of errors is from frame to frame; rows of a flight are frames in a
    row. MEMORY_MOST where it does not forget within a flight."""
    near, far, power = [], [], []
    for number in flights:
        rows = white[flight == number, :2]
        rows = np.clip(rows[np.isfinite(rows[:, 0])], -2, 2)
        if len(rows) > FAR_LAG + 5:
            near.append((rows[NEAR_LAG:] * rows[:-NEAR_LAG]).mean())
            far.append((rows[FAR_LAG:] * rows[:-FAR_LAG]).mean())
            power.append((rows**2).mean())
    if not power or np.mean(near) < 0.05 * np.mean(power):  # white: nothing wanders
        return MEMORY_MOST
    ratio = float(np.clip(np.mean(far) / np.mean(near), 0.05, 0.999))
    return round(float(min(-(FAR_LAG - NEAR_LAG) / 60 / np.log(ratio), MEMORY_MOST)), 3)


def _middle(values: Array) -> float:
    return float(np.median(np.abs(values)))


def _white(values: Array) -> tuple[float, float]:
    """pixel_sigma and tail_share with the middle and the 98 % quantile of these errors [px]."""
    ratio = float(np.percentile(np.abs(values), 98)) / _middle(values)
    best = (np.inf, 0.0, 1.0)
    for share in np.linspace(0, 0.4, 41):
        trial = NoiseCfg(pixel_sigma=1.0, tail_share=float(share))
        draw = pixel_errors(trial, np.zeros((40000, 2)), np.random.default_rng(1))[:, 0, 0]
        best = min(best, (abs(float(np.percentile(np.abs(draw), 98)) / _middle(draw) - ratio), float(share), _middle(draw)))
    return _middle(values) / best[2], best[1]
