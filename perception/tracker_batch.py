"""The tracker for thousands of robots in training: one shuttle and one camera pair each, one measurement a tick, compiled.

The same filter as `tracker.py` (`filter.py`; followed flights by `filter_lanes.py`, many with one instruction) and the same rules in their simplest form, since a simulated camera hands over
its best candidate: a start from three of the last four pairs that one flight explains, a chi-square gate, and at a hit a new
start from the candidates that the old flight does not explain, while it coasts. The newer flight takes over when its three
pairs fit; the older one had rejected all of them.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numba import njit, prange

from perception.filter import STATES, correct, innovation, predict, see, whitened, workspace
from perception.filter_lanes import (
    ACCELERATION,
    COVARIANCE,
    DT,
    FOLLOWED,
    LANES,
    MEASUREMENT,
    NIS,
    ROTATION,
    ROWS,
    SEEN,
    TRANSLATION,
    correct_lanes,
    predict_lanes,
)
from perception.flight import DRAG_MEAN, STEP_MAX

if TYPE_CHECKING:
    from perception.camera import StereoRig

Array = np.ndarray

WINDOW = 4  # pairs of which three must agree
_SCRATCH = ((4, 3), (4, 4), (4, STATES), (4, STATES), (STATES, STATES), (3, STATES), (4,), (4,), (4,), (2,), (2, 3))  # of `_measure`; each
# its own array, since slices of a larger one would hide from the compiler that they lie in one piece: a third slower
_CHUNKS = 16  # of blocks per parallel loop, each with its own scratch: enough to share out evenly over a few cores


@dataclass(frozen=True)
class TrackerBatchCfg:
    """Priors as in `TrackerCfg`; noise of one measurement, and gates.

    pixel_sigma, disparity_sigma [px]: of u and v, and of the disparity. gate: chi-square, 16.3 is passed by 99.9 % of three
    freedoms; start_gate: of the pairs of a start together, 99.9 % of nine; coast [s] without a measurement.
    """

    drag_prior: tuple[float, float] = (DRAG_MEAN, 0.012)
    drift_prior: tuple[float, float] = (0.7, 0.25)
    drift_speed: float = 28.0
    acceleration_noise: float = 0.16
    flip_noise: float = 5.0
    flip_time: float = 0.1
    drift_noise: float = 0.1
    pixel_sigma: float = 1.0
    disparity_sigma: float = 0.7
    gate: float = 16.3
    start_gate: float = 27.9
    coast: float = 0.3
    span: float = 0.09
    speed_range: tuple[float, float] = (2.0, 60.0)
    position_sigma: float = 5.0
    velocity_sigma: float = 15.0


class TrackerBatch:
    """N filters side by side.

    state (N, 8), covariance (N, 8, 8), time (N,) [s] of both; valid (N,): a flight is being tracked; born (N,) [s]. Where valid
    is False, state and covariance are those of the last flight. Measurements are (u, v, disparity) of a parallel pair (N, 3) or
    (uL, vL, uR, vR) (N, 4), undistorted [px].
    """

    def __init__(self, count: int, rig: "StereoRig", cfg: TrackerBatchCfg = TrackerBatchCfg()) -> None:
        self.cfg, self.count = cfg, count
        self.state = np.zeros((count, STATES))
        self.covariance = np.tile(np.eye(STATES), (count, 1, 1))
        self.time, self.born, self.last_seen = np.zeros(count), np.zeros(count), np.full(count, -np.inf)
        self.valid = np.zeros(count, bool)
        self._window_time = np.full((count, WINDOW), -np.inf)
        self._window = np.zeros((count, WINDOW, 4))
        self._window_eyes = np.zeros((count, WINDOW, 2, 16))
        self._relative = np.concatenate([np.asarray(rig.right_from_left_rotation, float).ravel(), np.asarray(rig.right_from_left_translation, float)])
        self._lenses = np.array([[c.fx, c.fy, c.cx, c.cy] for c in (rig.left, rig.right)], float).ravel()
        self._home = (np.asarray(rig.left_from_world_rotation, float), np.asarray(rig.left_from_world_translation, float))
        self._scratch = [np.stack([workspace() for _ in range(_CHUNKS)]), tuple(np.zeros((_CHUNKS, *shape)) for shape in _SCRATCH),
                         np.zeros((_CHUNKS, ROWS * LANES))]
        self._numbers = np.array([*cfg.drag_prior, *cfg.drift_prior, cfg.drift_speed, cfg.acceleration_noise, cfg.flip_noise, cfg.flip_time,
                                  cfg.drift_noise, cfg.gate, cfg.start_gate, cfg.coast, cfg.span, *cfg.speed_range, cfg.position_sigma,
                                  cfg.velocity_sigma])

    def reset(self, which: Array) -> None:
        """Forget the flights of the filters `which` (N,) bool, or indices."""
        self.valid[which] = False
        self.last_seen[which] = -np.inf
        self._window_time[which] = -np.inf

    def step(self, time: float | Array, measurement: Array, seen: Array, rotation: Array | None = None, translation: Array | None = None) -> None:
        """Take in one exposure.

        time [s] of exposure, one or (N,), not before the last; measurement (N, 3) or (N, 4) [px]; seen (N,) bool; rotation
        (N, 3, 3), translation (N, 3) left_from_world at that time, the rig's own where left out. Rows that are not finite count
        as not seen. Raises ValueError for wrong shapes.
        """
        measurement = np.ascontiguousarray(measurement, float)
        if measurement.shape not in ((self.count, 3), (self.count, 4)):
            raise ValueError(f"measurement has shape {measurement.shape}; it must be ({self.count}, 3) or ({self.count}, 4)")
        size = measurement.shape[1]
        pixel, disparity = self.cfg.pixel_sigma**2, self.cfg.disparity_sigma**2
        noise = np.diag([pixel, pixel, disparity] if size == 3 else [pixel] * 4)
        times = np.broadcast_to(np.asarray(time, float), (self.count,)).copy()
        turn, shift = (np.ascontiguousarray(np.broadcast_to(home if one is None else one, (self.count, *home.shape)), float)
                       for one, home in zip((rotation, translation), self._home, strict=True))
        _tick(self.state, self.covariance, self.time, self.born, self.last_seen, self.valid, self._window_time, self._window, self._window_eyes,
              times, measurement, np.ascontiguousarray(seen, bool), turn, shift, self._relative, self._lenses, noise, size, self._numbers, *self._scratch)


@njit(cache=True)
def _place(eyes, rotation, translation, relative, lenses):
    """Both eyes (2, 16) of one rig whose left camera is there."""
    for r in range(3):
        for c in range(3):
            eyes[0, 3 * r + c] = rotation[r, c]
            total = 0.0
            for n in range(3):
                total += relative[3 * r + n] * rotation[n, c]
            eyes[1, 3 * r + c] = total
        eyes[0, 9 + r] = translation[r]
        total = relative[9 + r]
        for n in range(3):
            total += relative[3 * r + n] * translation[n]
        eyes[1, 9 + r] = total
    for n in range(4):
        eyes[0, 12 + n], eyes[1, 12 + n] = lenses[n], lenses[4 + n]


@njit(cache=True)
def _expect(eyes, x, size, pixel, slope, two, pair):
    """Expected measurement and its slope (size, 3); False where one of the cameras cannot see the point."""
    for side in range(2):
        if not see(eyes[side], x, 1.0, pixel, two):
            return False
        for a in range(2):
            pair[2 * side + a] = pixel[a]
            for c in range(3):
                slope[2 * side + a, c] = two[a, c]
    if size == 3:
        pair[2] = pair[0] - pair[2]
        for c in range(3):
            slope[2, c] = slope[0, c] - slope[2, c]
    return True


@njit(cache=True)
def _point(eyes, z, size, out):
    """Middle of the rays of one measurement; False where they are parallel or meet behind the cameras."""
    ray, centre = np.empty((2, 3)), np.empty((2, 3))
    for side in range(2):
        eye = eyes[side]
        u, v = z[0], z[1]
        if side == 1:
            u, v = (z[0] - z[2], z[1]) if size == 3 else (z[2], z[3])
        fx, fy = (u - eye[14]) / eye[12], (v - eye[15]) / eye[13]
        length = np.sqrt(fx * fx + fy * fy + 1.0)
        for c in range(3):
            ray[side, c] = (fx * eye[c] + fy * eye[3 + c] + eye[6 + c]) / length
            centre[side, c] = -(eye[c] * eye[9] + eye[3 + c] * eye[10] + eye[6 + c] * eye[11])
    cosine = b0 = b1 = 0.0
    for c in range(3):
        cosine += ray[0, c] * ray[1, c]
        b0 += ray[0, c] * (centre[1, c] - centre[0, c])
        b1 += ray[1, c] * (centre[1, c] - centre[0, c])
    sine2 = 1.0 - cosine * cosine
    if sine2 < 1e-10:
        return False
    first, second = (b0 - cosine * b1) / sine2, (cosine * b0 - b1) / sine2
    if not (first > 0.0 and second > 0.0):
        return False
    for c in range(3):
        out[c] = 0.5 * (centre[0, c] + first * ray[0, c] + centre[1, c] + second * ray[1, c])
    return True


@njit(cache=True)
def _measure(x, cov, eyes, z, noise, size, gate, small):
    """Gated Joseph update with one measurement; returns NIS, or -1 where the shuttle has no image. Nothing changes above the gate."""
    slope, chol, pht, gain, rest, left, pair, residual, white, pixel, two = small
    if not _expect(eyes, x, size, pixel, slope, two, pair):
        return -1.0
    for m in range(size):
        residual[m] = z[m] - pair[m]
    logdet = innovation(cov, slope, noise, size, chol, pht)
    if not logdet == logdet:
        return np.inf
    nis = whitened(chol, residual, size, white)
    if nis <= gate:
        correct(x, cov, slope, noise, size, chol, pht, white, gain, rest, left)
    return nis


@njit(cache=True)
def _restart(times, window, eyes, size, noise, now, numbers, x, cov, work, small):
    """Start from the window's pairs (3 of 4, the newest among them) by the filter itself from wide priors; False if no flight."""
    order, used = np.empty(WINDOW, np.int64), 0
    for _ in range(WINDOW):  # oldest first, within the span
        best = -1
        for n in range(WINDOW):
            if now - times[n] <= numbers[12] and (used == 0 or times[n] > times[order[used - 1]]) and (best < 0 or times[n] < times[best]):
                best = n
        if best < 0:
            break
        order[used] = best
        used += 1
    if used < 3 or times[order[used - 1]] < now:
        return False
    for skip in range(-1, used):  # all of them first, then each left out in turn, never to fewer than three
        if skip >= 0 and used < 4:
            return False
        if skip == used - 1:
            return False
        first, last = (1 if skip == 0 else 0), used - 1
        a, b = np.empty(3), np.empty(3)
        if not (_point(eyes[order[first]], window[order[first]], size, a) and _point(eyes[order[last]], window[order[last]], size, b)):
            continue
        span = times[order[last]] - times[order[first]]
        speed = 0.0
        for c in range(3):
            x[c], x[3 + c] = a[c], (b[c] - a[c]) / span
            speed += x[3 + c] * x[3 + c]
        speed = np.sqrt(speed)
        if speed > 2.0 * numbers[14]:  # far too fast even for poor depth
            continue
        x[6], x[7] = numbers[0], numbers[2] * min(1.0, speed / numbers[4])
        cov[:] = 0.0
        for c in range(3):
            cov[c, c], cov[3 + c, 3 + c] = numbers[15] ** 2, numbers[16] ** 2
        cov[6, 6], cov[7, 7] = numbers[1] ** 2, numbers[3] ** 2
        total, good = 0.0, True
        for n in range(first, used):
            if n == skip:
                continue
            if n > first:
                before = n - 1 if n - 1 != skip else n - 2
                predict(x, cov, times[order[n]] - times[order[before]], numbers[6], numbers[8], work)
            nis = _measure(x, cov, eyes[order[n]], window[order[n]], noise, size, np.inf, small)
            total += nis
            if nis < 0.0:
                good = False
                break
        speed = np.sqrt(x[3] ** 2 + x[4] ** 2 + x[5] ** 2)
        if good and total <= numbers[10] and numbers[13] <= speed <= numbers[14]:
            return True
    return False


@njit(cache=True)
def _follow(first, count, state, covariance, clock, born, last_seen, valid, times, measurement, seen, rotation, translation, relative, lenses,
            noise, size, numbers, block):
    """Predict the flights of up to LANES filters from `first` on, and take in what they explain; NIS stays in the block."""
    longest, any_seen = 0.0, False
    for lane in range(count):
        i = first + lane
        if valid[i]:
            longest = max(longest, times[i] - clock[i])
    variance = np.ones(4)
    for m in range(size):
        variance[m] = noise[m, m]
    for lane in range(LANES):
        i = min(first + lane, first + count - 1)
        usable = seen[i]
        for m in range(size):
            usable = usable and np.isfinite(measurement[i, m])
        block[FOLLOWED * LANES + lane] = 1.0 if valid[i] and lane < count else 0.0
        block[SEEN * LANES + lane] = 1.0 if usable else 0.0
        any_seen = any_seen or (usable and valid[i])
        block[DT * LANES + lane] = max(times[i] - clock[i], 0.0) if valid[i] else 0.0
        block[ACCELERATION * LANES + lane] = numbers[6] if clock[i] - born[i] < numbers[7] else numbers[5]
        for m in range(size):
            block[(MEASUREMENT + m) * LANES + lane] = measurement[i, m] if usable else 0.0
        for r in range(STATES):
            block[r * LANES + lane] = state[i, r]
            for c in range(r + 1):
                block[(COVARIANCE + r * (r + 1) // 2 + c) * LANES + lane] = covariance[i, r, c]
        for r in range(3):
            block[(TRANSLATION + r) * LANES + lane] = translation[i, r]
            for c in range(3):
                block[(ROTATION + 3 * r + c) * LANES + lane] = rotation[i, r, c]
    parts = max(1, int(np.ceil(longest / STEP_MAX - 1e-9)))
    if longest > 0.0:
        for _ in range(parts):
            predict_lanes(block, 1.0 / parts, numbers[8])
    if any_seen:
        correct_lanes(block, relative, lenses, size == 4, variance, numbers[9])
    for lane in range(count):
        i = first + lane
        if valid[i]:
            clock[i] = max(clock[i], times[i])
            for r in range(STATES):
                state[i, r] = block[r * LANES + lane]
                for c in range(r + 1):
                    covariance[i, r, c] = covariance[i, c, r] = block[(COVARIANCE + r * (r + 1) // 2 + c) * LANES + lane]
            explained = block[SEEN * LANES + lane] != 0.0 and 0.0 <= block[NIS * LANES + lane] <= numbers[9]
            if explained:
                last_seen[i] = times[i]
                block[SEEN * LANES + lane] = 0.0  # not for a new start
            if times[i] - last_seen[i] > numbers[11] or not np.isfinite(state[i, 0]):
                valid[i] = False


@njit(cache=True, parallel=True)
def _tick(state, covariance, clock, born, last_seen, valid, window_time, window, window_eyes, times, measurement, seen, rotation, translation,
          relative, lenses, noise, size, numbers, works, smalls, blocks):
    groups = (len(state) + LANES - 1) // LANES
    for chunk in prange(_CHUNKS):
        work, block = works[chunk], blocks[chunk]
        small = (smalls[0][chunk], smalls[1][chunk], smalls[2][chunk], smalls[3][chunk], smalls[4][chunk], smalls[5][chunk], smalls[6][chunk],
                 smalls[7][chunk], smalls[8][chunk], smalls[9][chunk], smalls[10][chunk])
        for group in range(chunk * groups // _CHUNKS, (chunk + 1) * groups // _CHUNKS):
            first = group * LANES
            count = min(LANES, len(state) - first)
            _follow(first, count, state, covariance, clock, born, last_seen, valid, times, measurement, seen, rotation, translation, relative,
                    lenses, noise, size, numbers, block)
            for lane in range(count):
                if block[SEEN * LANES + lane] == 0.0:
                    continue
                i = first + lane
                now = times[i]
                oldest = 0
                for n in range(1, WINDOW):
                    if window_time[i, n] < window_time[i, oldest]:
                        oldest = n
                window_time[i, oldest] = now
                for m in range(size):
                    window[i, oldest, m] = measurement[i, m]
                _place(window_eyes[i, oldest], rotation[i], translation[i], relative, lenses)
                x = np.empty(STATES)
                cov = np.empty((STATES, STATES))
                if _restart(window_time[i], window[i], window_eyes[i], size, noise, now, numbers, x, cov, work, small):
                    earliest = now
                    for n in range(WINDOW):
                        if now - window_time[i, n] <= numbers[12]:
                            earliest = min(earliest, window_time[i, n])
                        window_time[i, n] = -np.inf
                    for r in range(STATES):
                        state[i, r] = x[r]
                        for c in range(STATES):
                            covariance[i, r, c] = cov[r, c]
                    clock[i], born[i], last_seen[i], valid[i] = now, earliest, now, True
