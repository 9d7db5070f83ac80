"""Recorded flights, smoothed: labels of both cameras against the flight model, and how much of an error such a fit swallows.

What a smoother leaves is not what the camera did: eight parameters a flight have taken their part of it. So each flight keeps
the slope of its fit, and `SmoothFlight.smoothed` says what the fit would have left of any errors.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numba import njit
from scipy.optimize import least_squares

from perception.camera import Camera, StereoRig
from perception.errors import UserError
from perception.flight import DRAG_MEAN, STEP_MAX, rk4_step
from perception.tracker import Track
from perception.tracking import Recording, read_folder, track_recording, with_offset
from perception.triangulation import SHUTTLE_SIZE

Array = np.ndarray

PRIOR_SIGMA = (0.012, 0.25)  # of k [1/m] and s [m/s^2], as in `flight_fit.py`
DRIFT_MEAN = 0.65  # [m/s^2]
LABEL_SIGMA, SOFT = 1.5, 3.0  # [px] of a label about a smooth flight, and beyond which residuals count linearly
FALSE_ERROR = 15.0  # [px] a label so far off, between neighbours that are not, is something else
LEAST_TIME = 0.35  # [s] of a flight; a shorter one follows its own noise
AFTER_HIT, BEFORE_END = 0.08, 0.02  # [s] left out: the shuttle turns over, and the racket may be in the picture
LEAST_FLIGHTS = 5


@dataclass(frozen=True, eq=False)
class SmoothFlight:
    """One flight through one fit. Rows are the frames of both cameras in which it should be seen: time (M,) [s], side (M,),
    pixels (M, 2) (nan where not labelled), expected (M, 2), streak (M, 2) [px in a frame's time], size (M,) [px]; lever
    (M, 2, 8): slope of the expected pixels by the fitted parameters; weight (M,) that the fit gave each row."""

    label: str
    time: Array
    side: Array
    pixels: Array
    expected: Array
    streak: Array
    size: Array
    lever: Array
    weight: Array

    @property
    def residual(self) -> Array:
        """(M, 2) label less expected pixel; nan where there is no label, or one of something else."""
        off = self.pixels - self.expected
        return np.where(self.false[:, None], np.nan, off)

    @property
    def false(self) -> Array:
        """(M,) labels of something else."""
        far = np.linalg.norm(self.pixels - self.expected, axis=1) > FALSE_ERROR
        out = np.zeros(len(far), bool)
        for side in (0, 1):
            rows = np.flatnonzero(self.side == side)
            lonely = far[rows]
            lonely[1:-1] &= ~(far[rows][:-2] & far[rows][2:])
            out[rows] = lonely
        return out

    def smoothed(self, errors: Array) -> Array:
        """What the fit would leave of errors (M, 2) [px]: they, less the part that its parameters swallow."""
        weight = self.weight / LABEL_SIGMA**2
        information = np.einsum("mai,m,maj->ij", self.lever, weight, self.lever)
        information[6, 6] += 1 / PRIOR_SIGMA[0] ** 2
        information[7, 7] += 1 / PRIOR_SIGMA[1] ** 2
        push = np.einsum("mai,m,ma->i", self.lever, weight, errors)
        return errors - self.lever @ np.linalg.solve(information, push)


@njit(cache=True)
def _states(x, times):
    p, v = x[:3].copy(), x[3:6].copy()
    out = np.empty((len(times), 6))
    now = 0.0
    for i in range(len(times)):
        parts = max(1, int(np.ceil((times[i] - now) / STEP_MAX - 1e-9)))
        for _ in range(parts):
            rk4_step(p, v, x[6], x[7], (times[i] - now) / parts)
        now = times[i]
        out[i, :3] = p
        out[i, 3:] = v
    return out


def _project(rig: StereoRig, points: Array, side: Array) -> tuple[Array, Array]:
    """Pixels (M, 2) and depth (M,) of points (M, 3) in the camera that `side` (M,) names."""
    left = rig.pose.apply(points)
    right = left @ rig.right_from_left_rotation.T + rig.right_from_left_translation
    pixels = np.where(side[:, None] == 0, rig.left.project(left), rig.right.project(right))
    return pixels, np.where(side == 0, left[:, 2], right[:, 2])


def _inside(camera: Camera, pixels: Array) -> Array:
    return camera.inside(pixels, 5.0)


def smooth_flight(rig: StereoRig, recording: Recording, track: Track) -> SmoothFlight | None:
    """Fit one tracked flight to the labels of both cameras, in pixels; None where it is too short to tell, or the fit fails."""
    begin, end = track.born, track.last_seen
    if end - begin < LEAST_TIME + AFTER_HIT + BEFORE_END:
        return None
    rows = []
    for eye, labels in enumerate((recording.left, recording.right)):
        times = (labels.frames - (recording.offset or 0.0) * eye) / rig.fps
        for t, candidates in zip(times, labels.pixels, strict=True):
            if begin + AFTER_HIT <= t <= end - BEFORE_END:
                rows.append((t, eye, *(candidates[0] if len(candidates) == 1 else (np.nan, np.nan))))
    table = np.array(sorted(rows)).reshape(-1, 4)
    time, side, pixels = table[:, 0], table[:, 1].astype(int), table[:, 2:]
    labelled = np.isfinite(pixels).all(axis=1)
    if labelled.sum() < 40:
        return None
    typical = np.array([1, 1, 1, 10, 10, 10, 0.05, 0.5])

    def expected(x: Array) -> Array:
        return _project(rig, _states(x, time - begin)[:, :3], side)[0]

    def off(x: Array) -> Array:
        error = (pixels - expected(x))[labelled]
        error = np.where(np.isfinite(error), error, 1e3) / LABEL_SIGMA
        size = np.maximum(np.linalg.norm(error, axis=1, keepdims=True), 1e-9)
        soft = SOFT / LABEL_SIGMA
        error = error * np.where(size > soft, np.sqrt(np.maximum(2 * soft * size - soft**2, 0)) / size, 1.0)
        return np.concatenate([error.ravel(), [(x[6] - DRAG_MEAN) / PRIOR_SIGMA[0], (x[7] - DRIFT_MEAN) / PRIOR_SIGMA[1]]])

    x = least_squares(off, track.start_state, x_scale=typical, max_nfev=40).x
    steps = 1e-4 * typical
    lever = np.stack([(expected(x + d) - expected(x - d)) / (2 * d.sum()) for d in np.diag(steps)], axis=2)
    states = _states(x, time - begin)
    mean, depth = _project(rig, states[:, :3], side)
    ahead, _ = _project(rig, states[:, :3] + 1e-3 * states[:, 3:], side)
    keep = np.where(side == 0, _inside(rig.left, mean), _inside(rig.right, mean)) & np.isfinite(lever).all(axis=(1, 2))
    error = np.linalg.norm(pixels - mean, axis=1)
    if np.nanmedian(error) > FALSE_ERROR / 2:
        return None
    weight = np.where(labelled, np.minimum(1.0, SOFT / np.maximum(np.nan_to_num(error), 1e-9)), 0.0)
    focal = np.where(side == 0, rig.left.fx, rig.right.fx)
    streak = (ahead - mean) / (1e-3 * rig.fps)
    return SmoothFlight(recording.name, time[keep], side[keep], pixels[keep], mean[keep], streak[keep],
                        (focal * SHUTTLE_SIZE / depth)[keep], lever[keep], weight[keep])


def smooth_folder(folder: Path, rig: StereoRig) -> tuple[list[SmoothFlight], list[str]]:
    """All flights of a folder of label files, and notes on recordings left out. The time offsets are found from the labels."""
    if rig.fps <= 0:
        raise UserError(f"rig {rig.name} says no fps; without it labels have no time")
    flights, notes = [], []
    for recording in read_folder(folder):
        try:
            recording = with_offset(rig, replace(recording, offset=None))
            log = track_recording(rig, recording)
        except UserError as error:
            notes.append(str(error))
            continue
        flights += [f for f in (smooth_flight(rig, recording, track) for track in log.flights) if f is not None]
    if len(flights) < LEAST_FLIGHTS:
        raise UserError(f"{len(flights)} flights of {LEAST_TIME:g} s or more in {folder}; the noise model needs {LEAST_FLIGHTS}"
                        + "".join(f"; {n}" for n in notes))
    return flights, notes
