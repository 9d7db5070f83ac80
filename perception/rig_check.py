"""Does a rig fit what its cameras record? Labels of a moving shuttle tell: its two rays must meet, at one and the same time.

Cameras that run freely see the shuttle at different moments. At 15 px a frame, half a frame is 7 px, as much as a bad
calibration; so the time offset of each recording is found together with the misfit that is left. A rig that fits leaves 1 to
2 px; a wrong one leaves more at *every* offset. What this cannot see: a rig whose lengths are all off by one factor.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perception.camera import StereoRig
from perception.errors import UserError

Array = np.ndarray

OFFSET_RANGE = 150.0  # [frames] searched to both sides, over a second at 120 /s; our choice, it trades time
RIG_LIMIT = 3.0  # [px] median epipolar distance of a rig that passes; one that fits has 1 to 2, half a degree of knock adds 3
OUTLIER = 6.0  # [px] beyond it a pair counts as no pair while an offset is looked for; four times the scatter of labels
HUBER = 2.0  # [px] beyond it a residual counts linearly: the scatter of labels and of a good rig's local errors together
LEAST_SHARE = 0.5  # of the pairs that must come within OUTLIER at the offset; a rally that was cut in the middle stays below 0.2
COARSE_FRAMES = 250  # looked at in the coarse search, our choice: it takes a tenth of a second, and the fine one looks at all
LEAST_PAIRS = 40  # a third of a second at 120 /s; fewer cannot tell an offset
LARGEST_SIGMA = 0.1  # [frames] of an offset; at 15 px a frame it is as good as the labels
SMOOTH = 12.0  # [px] that a label may be off its neighbours' quadratic; 30 m/s^2 at 5 m bends the track by 0.5 px a frame


@dataclass(frozen=True)
class OffsetFit:
    """frames: right camera's frame less the left's of the same moment; error_px: median distance from the epipolar line at it;
    share: of the pairs that come within OUTLIER; sigma_frames of the offset; pairs: frames both saw."""

    frames: float
    error_px: float
    share: float
    sigma_frames: float
    pairs: int

    @property
    def problem(self) -> str:
        """Why this is no offset, or "" where it is one."""
        if self.pairs < LEAST_PAIRS:
            return f"only {self.pairs} frames are labelled in both cameras, {LEAST_PAIRS} are needed"
        if self.share < LEAST_SHARE:
            return (f"no offset within {OFFSET_RANGE:g} frames fits: at the best one {self.share:.0%} of the pairs meet, "
                    f"{self.error_px:.0f} px median")
        if self.sigma_frames > LARGEST_SIGMA:
            return ("the shuttle moves along the epipolar lines, or hardly: "
                    f"the offset is known to {self.sigma_frames:.1f} frames only")
        return ""


def epipolar_distance(rig: StereoRig, left: Array, right: Array) -> Array:
    """(N,) signed distance [px] of pairs of normalised image coordinates (N, 2) from meeting: what one camera would be off, to
    first order, if both were off alike (the Sampson distance times the square root of two)."""
    essential = rig.essential()
    a, b = (np.column_stack([x, np.ones(len(x))]) for x in (left, right))
    line_right, line_left = a @ essential.T, b @ essential
    slope = (np.sum((line_right[:, :2] / [rig.right.fx, rig.right.fy]) ** 2, axis=1)
             + np.sum((line_left[:, :2] / [rig.left.fx, rig.left.fy]) ** 2, axis=1))
    return np.sum(b * line_right, axis=1) / np.sqrt(0.5 * np.maximum(slope, 1e-30))


def _dense(track: Array, camera: Any, first: int, count: int) -> Array:
    """(count, 2) normalised coordinates by frame, nan where there is no label, or none that goes with its neighbours'."""
    out = np.full((count, 2), np.nan)
    rows = np.asarray(track, float).reshape(-1, 3)
    rows = rows[np.isfinite(rows).all(axis=1)]
    out[rows[:, 0].astype(int) - first] = camera.undistort(rows[:, 1:])
    before, after = np.full((2, count, 2), np.nan), np.full((2, count, 2), np.nan)
    for n in (1, 2):
        before[n - 1, n:], after[n - 1, :-n] = out[:-n], out[n:]
    guesses = np.stack([0.5 * (before[0] + after[0]), 2 * before[0] - before[1], 2 * after[0] - after[1]])
    off = np.linalg.norm(guesses - out, axis=2)
    out[~(np.where(np.isnan(off), np.inf, off).min(axis=0) < SMOOTH / camera.fx)] = np.nan
    return out


def _between(track: Array, where: Array) -> Array:
    """A track (F, 2) at frames (K,) of any fraction: cubic where four neighbours are labelled, linear where two are, else nan."""
    whole = np.floor(where).astype(int)
    share = (where - whole)[:, None]

    def at(n: int) -> Array:
        index = whole + n
        return np.where(((index >= 0) & (index < len(track)))[:, None], track[np.clip(index, 0, len(track) - 1)], np.nan)

    p0, p1, p2, p3 = at(-1), at(0), at(1), at(2)
    cubic = p1 + 0.5 * share * (p2 - p0 + share * (2 * p0 - 5 * p1 + 4 * p2 - p3 + share * (3 * (p1 - p2) + p3 - p0)))
    return np.where(np.isfinite(cubic), cubic, (1 - share) * p1 + share * p2)


def fit_offset(rig: StereoRig, left_track: Array, right_track: Array) -> OffsetFit:
    """Best time offset of two tracks (M, 3) frame, u, v [px], one label a frame. Says what fits best, good or not: see `problem`.

    A coarse search over all offsets by truncated squares, then Gauss-Newton steps on Huber's loss.
    """
    tracks = [np.asarray(t, float).reshape(-1, 3) for t in (left_track, right_track)]
    if min(len(t) for t in tracks) < LEAST_PAIRS:
        return OffsetFit(np.nan, np.nan, 0.0, np.inf, min(len(t) for t in tracks))
    first = int(min(t[:, 0].min() for t in tracks))
    count = int(max(t[:, 0].max() for t in tracks)) - first + 3
    left, right = (_dense(t, c, first, count) for t, c in zip(tracks, (rig.left, rig.right), strict=True))

    frames = np.flatnonzero(np.isfinite(left).all(axis=1))
    most = int(min(len(frames), np.isfinite(right).all(axis=1).sum()))

    def misfit(shift: float, frames: Array) -> Array:
        other = _between(right, frames + shift)
        out = np.full(len(frames), np.nan)
        both = np.isfinite(other).all(axis=1)
        out[both] = epipolar_distance(rig, left[frames[both]], other[both])
        return out

    thinned = frames[::max(1, len(frames) // COARSE_FRAMES)]

    def cost(shift: float) -> float:
        off = misfit(shift, thinned)
        pairs = int(np.isfinite(off).sum())
        # an offset at which hardly anything overlaps must not win by the few pairs that are left
        if not pairs or 2 * pairs * len(frames) < most * len(thinned):
            return np.inf
        return float(np.nanmean(np.minimum(off**2, OUTLIER**2)))

    coarse = np.arange(-OFFSET_RANGE, OFFSET_RANGE + 1)
    costs = np.array([cost(s) for s in coarse])
    if not np.isfinite(costs).any():
        return OffsetFit(np.nan, np.nan, 0.0, np.inf, most)
    shift, sigma = float(coarse[np.argmin(costs)]), np.inf
    for _ in range(12):
        off = misfit(shift, frames)
        rate = (misfit(shift + 0.2, frames) - misfit(shift - 0.2, frames)) / 0.4
        good = np.isfinite(off) & np.isfinite(rate) & (np.abs(off) < 5 * OUTLIER)
        if good.sum() < LEAST_PAIRS:
            break
        weight = 1 / np.maximum(1.0, np.abs(off[good]) / HUBER)
        power = np.sum(weight * rate[good] ** 2)
        step = -np.sum(weight * rate[good] * off[good]) / max(power, 1e-12)
        sigma = HUBER / np.sqrt(max(power, 1e-12))
        shift += float(np.clip(step, -0.5, 0.5))
        if abs(step) < 1e-4:
            break
    off = misfit(shift, frames)
    off = np.abs(off[np.isfinite(off)])
    if not len(off):
        return OffsetFit(shift, np.nan, 0.0, np.inf, 0)
    return OffsetFit(shift, float(np.median(off)), float(np.mean(off < OUTLIER)), float(sigma), len(off))


def time_offset(rig: StereoRig, left_tracks: Array, right_tracks: Array) -> tuple[float, float]:
    """Offset [frames], right camera's frame less the left's of one moment, and median epipolar distance [px] that is left.

    left_tracks, right_tracks (M, 3): frame, u, v [px], at most one label a frame; stray labels are put up with. Raises
    UserError where no offset fits: wrong rig, cut recording, too few labels, no motion.
    """
    fit = fit_offset(rig, left_tracks, right_tracks)
    if fit.problem:
        raise UserError(fit.problem)
    return fit.frames, fit.error_px


def read_tracks(folder: Path) -> dict[str, tuple[Array, Array]]:
    """Label tracks (M, 3) frame, u, v of both cameras by recording; frames with several labels are left out as ambiguous."""
    from perception.tracking import read_labels

    if not folder.is_dir():
        raise UserError(f"{folder} is no folder; --check takes one with label files NAME_camera1.csv and NAME_camera2.csv")
    out = {}
    for path in sorted(folder.glob("*_camera1.csv")):
        name = path.name.removesuffix("_camera1.csv")
        other = folder / f"{name}_camera2.csv"
        if not other.is_file():
            raise UserError(f"{path} has no {other.name} beside it; a rig is judged by what both cameras saw")
        tracks = []
        for labels in map(read_labels, (path, other)):
            single = [(f, *p[0]) for f, p in zip(labels.frames, labels.pixels, strict=True) if len(p) == 1]
            tracks.append(np.array(single, float).reshape(-1, 3))
        out[name] = (tracks[0], tracks[1])
    if not out:
        raise UserError(f"{folder} holds no label files: they are called NAME_camera1.csv and NAME_camera2.csv")
    return out


def check_rig(rig: StereoRig, tracks: dict[str, tuple[Array, Array]]) -> dict[str, Any]:
    """Verdict on a rig from recordings: rig_ok, epipolar_error_px (median over the recordings that fit; over all where none
    does), time_offset_frames by recording (None where none fits), problems by recording.

    A recording that fits no offset does not fail the rig while most others fit: recordings get cut. Where most do not, it does.
    """
    fits = {name: fit_offset(rig, *pair) for name, pair in tracks.items()}
    judged = {n: f for n, f in fits.items() if f.pairs >= LEAST_PAIRS and np.isfinite(f.error_px)}
    if not judged:
        raise UserError("no recording has enough frames labelled in both cameras; the rig cannot be judged")
    meet = {n: f for n, f in judged.items() if f.share >= LEAST_SHARE}
    error = float(np.median([f.error_px for f in (meet or judged).values()]))
    return {
        "rig_ok": bool(2 * len(meet) > len(judged) and error < RIG_LIMIT),
        "epipolar_error_px": error,
        "time_offset_frames": {n: None if f.problem else f.frames for n, f in fits.items()},
        "recordings": {n: {"error_px": f.error_px, "share_that_meets": f.share, "offset_sigma_frames": f.sigma_frames,
                           "pairs": f.pairs, "problem": f.problem} for n, f in fits.items()},
    }
