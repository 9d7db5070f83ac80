"""Is the noise model like what the pipeline makes of rendered images? A fit to one half of the serves, drawn for the other half.

The yardstick is the images themselves: how far apart the two halves of the rendered serves are from each other. A model that is
no farther from a half it has not seen than the other half is cannot be told from the images with so many serves.
"""

from dataclasses import asdict, replace
from typing import Any

import numpy as np

from perception.camera import StereoRig
from perception.errors import UserError
from perception.noise import NoiseCfg, draw_bias, sample, step_bias
from perception.noise_fit import distance
from perception.noise_truth import FITTED, Reports, fit_with_truth

Array = np.ndarray

ERRORS = ("u", "v", "disparity")
DRAWS = 20  # of the model for the same serves: its own luck must not decide
RANGES = (0.0, 4.0, 6.0, 8.0, 12.0)  # [m] bins in which the share of missed frames is compared


def two_sample(rig: StereoRig, reports: Reports, exposure_s: float, seed: int = 0) -> dict[str, Any] | None:
    """Figures of the test, or None where the reports are too few for two fits.

    `distance` is the largest difference of the distribution functions of the errors about each flight's own median, model against
    images it was not fitted to; `halves` the same of the two halves of the images; `missed` by range bin, images and model.
    """
    prior = NoiseCfg(exposure_s=exposure_s, timing_sigma_s=0.0, drop_rate=0.0)
    halves = [_some(reports, reports.flight % 2 == side) for side in (0, 1)]
    try:
        fits = [fit_with_truth(rig, half, prior)[0] for half in halves]
        whole, sources = fit_with_truth(rig, reports, prior)
    except UserError:
        return None
    rng = np.random.default_rng(seed)
    drawn = [[_drawn(rig, halves[1 - side], cfg, rng) for _ in range(DRAWS)] for side, cfg in enumerate(fits)]
    seen = [_errors(rig, half, half.measurement, half.seen) for half in halves]
    apart: dict[str, float] = {}
    between: dict[str, float] = {}
    for n, name in enumerate(ERRORS):
        apart[name] = max(distance(seen[1 - side][:, n], np.concatenate([_errors(rig, halves[1 - side], m, s)[:, n] for m, s in drawn[side]]))
                          for side in (0, 1))
        between[name] = distance(seen[0][:, n], seen[1][:, n])
    bins = np.digitize(reports.points_l[:, 2], RANGES) - 1
    missed = {}
    again = [_drawn(rig, reports, whole, rng)[1] for _ in range(DRAWS)]
    for n in range(len(RANGES) - 1):
        own = bins == n
        if own.any():
            missed[f"{RANGES[n]:g}-{RANGES[n + 1]:g} m"] = {"frames": int(own.sum()), "images": float(1 - reports.seen[own].mean()),
                                                             "model": float(1 - np.mean([s[own].mean() for s in again]))}
    return {"reports": int(reports.seen.sum()), "flights": len(np.unique(reports.flight)), "distance": apart, "halves": between, "missed": missed,
            "noise": asdict(whole), "sources": {k: sources[k] for k in (*FITTED, "blur_share")}}


def _some(reports: Reports, rows: Array) -> Reports:
    return replace(reports, **{key: getattr(reports, key)[rows] for key in ("flight", "points_l", "velocity_c", "body_rate", "measurement", "seen")})


def _drawn(rig: StereoRig, reports: Reports, cfg: NoiseCfg, rng: np.random.Generator) -> tuple[Array, Array]:
    """What the model reports of the same shuttles: measurement, seen."""
    number = np.unique(reports.flight, return_inverse=True)[1]
    now = draw_bias(cfg, int(number.max()) + 1, rng)
    bias = np.empty((len(number), 3))
    turn = np.arange(len(number)) - np.searchsorted(np.maximum.accumulate(number), number)  # how many reports of the flight came before
    for k in range(int(turn.max()) + 1):
        rows = turn == k
        bias[rows] = now[number[rows]]
        now = step_bias(cfg, now, 1 / rig.fps, rng)
    return sample(cfg, rig, reports.points_l, reports.velocity_c, reports.body_rate, bias, rng)


def _errors(rig: StereoRig, reports: Reports, measurement: Array, seen: Array) -> Array:
    """(M, 3) [px] errors of what was reported, about each flight's own median; false reports left out."""
    z = reports.points_l[:, 2]
    flat = reports.points_l[:, :2] / z[:, None]
    image = np.column_stack([flat * [rig.left.fx, rig.left.fy] + [rig.left.cx, rig.left.cy], rig.left.fx * rig.baseline / z])
    error = np.where(seen[:, None], measurement - image, np.nan)
    error[np.abs(error).max(axis=1) > 15.0] = np.nan
    out = []
    for flight in np.unique(reports.flight):
        own = error[(reports.flight == flight) & np.isfinite(error[:, 0])]
        if len(own) >= 10:
            out.append(own - np.median(own, axis=0))
    return np.concatenate(out) if out else np.empty((0, 3))
