"""Where could the shuttle be in one image of a moving camera? Candidates with sub-pixel place, size, streak and score.

What gives a shuttle away at 4 to 40 pixels is that it moves against the hall and stands out in colour. So: earlier images are turned to
where the camera looks now (homography K R K^-1), spread by as much as the camera's own way between them can have shifted the hall, and a
candidate is what is brighter *in the shuttle's colour* than every one of them, by more than noise explains. Two ways to look:
the whole image at half resolution when nothing is known, a window at full resolution where a track says the shuttle will be.
In a window the earlier image is chosen so that the shuttle has left its own place: head-on it may need 100 ms for its own width.

Images are (height, width, 3 or 4) uint8, blue green red first. Needs numpy, numba and OpenCV only.
"""

from collections import deque
from dataclasses import dataclass, field

import cv2
import numpy as np
from numba import njit

from perception.camera import Camera, Pose
from perception.errors import UserError
from perception.triangulation import SHUTTLE_SIZE

Array = np.ndarray

COLOURS = ("white", "orange")


@dataclass(frozen=True)
class DetectorCfg:
    """What counts as a candidate.

    colour: of the shuttle's skirt. White is seen in twice the darkest channel less the brightest: brightness, less saturation, so that
    skin and wood are dark; orange in red less blue, where white, grey and green are dark.
    threshold: [grey levels] above the earlier images; 5 sigma of a noisy sensor whose channels are added up, and a little for edges.
    ages: [s] of the earlier images for a whole image; at 12 m/s across a shuttle leaves its own place in 5 ms, at 2 m/s in 33.
    memory: [s] of images kept, for a shuttle that comes head-on.
    nearest: [m] to what stands still in front of the camera, but for the floor: the net from the robot's home. Nearer things leave edges.
    sizes: [m] smallest and largest extent that a shuttle's blob may have: half a tip circle, since threshold and shade eat at it, and
    twice a shuttle's length, for a streak.
    depth_range: [m] where a whole image is searched: nearer than 0.5 m it has been hit or missed, beyond 14 m is another court.
    most: candidates given out per image, the best first; trades time in clutter against the shuttle being left out.
    """

    colour: str = "white"
    threshold: float = 20.0
    ages: tuple[float, float] = (0.03, 0.06)
    memory: float = 0.14
    nearest: float = 3.0
    sizes: tuple[float, float] = (0.03, 0.18)
    depth_range: tuple[float, float] = (0.5, 14.0)
    most: int = 12

    def __post_init__(self) -> None:
        if self.colour not in COLOURS:
            raise UserError(f"a shuttle's colour is one of {', '.join(COLOURS)}; got {self.colour}")
        if not (self.threshold > 0 and 0 < self.ages[0] < self.ages[1] < self.memory):
            raise UserError(f"threshold must be positive and 0 < ages < memory; got {self.threshold}, {self.ages}, {self.memory}")


@dataclass(frozen=True, eq=False)
class Candidates:
    """M candidates of one image, the best first. pixels (M, 2) centre; sizes (M,) diameter of a disc of the same area; streaks (M, 2)
    longest extent beyond the shortest, as a vector, from blur or shape; scores (M,) mean contrast [grey levels]. All [px]."""

    pixels: Array
    sizes: Array
    streaks: Array
    scores: Array

    def __len__(self) -> int:
        return len(self.scores)

    @staticmethod
    def none() -> "Candidates":
        """No candidate."""
        return Candidates(np.empty((0, 2)), np.empty(0), np.empty((0, 2)), np.empty(0))


@dataclass(frozen=True)
class Window:
    """Where to look: centre [px], half width [px], depth [m] expected there, and how much that may be wrong as a factor."""

    u: float
    v: float
    half: float
    depth: float
    slack: float = 1.5


@dataclass
class _Frame:
    time: float
    pose: Pose
    image: Array
    small: Array | None = None  # the shuttle's colour at half resolution, made when first needed
    seen: tuple[float, float] | None = None  # where the track's shuttle was in this image [px]
    turns: dict[float, tuple[Array, Array]] = field(default_factory=dict)  # by an earlier image's time: to here and back


@njit(cache=True)
def _half(image, orange, out):
    """The shuttle's colour, mean of 2 x 2 pixels, as uint8 (h // 2, w // 2)."""
    for y in range(out.shape[0]):
        for x in range(out.shape[1]):
            b = g = r = 0
            for j in range(2):
                for i in range(2):
                    b += image[2 * y + j, 2 * x + i, 0]
                    g += image[2 * y + j, 2 * x + i, 1]
                    r += image[2 * y + j, 2 * x + i, 2]
            value = r - b if orange else 2 * min(b, min(g, r)) - max(b, max(g, r))
            out[y, x] = max(value, 0) >> 2


@njit(cache=True)
def _full(image, orange, out):
    """The shuttle's colour pixel by pixel, as uint8."""
    for y in range(out.shape[0]):
        for x in range(out.shape[1]):
            b, g, r = int(image[y, x, 0]), int(image[y, x, 1]), int(image[y, x, 2])
            out[y, x] = max(r - b if orange else 2 * min(b, min(g, r)) - max(b, max(g, r)), 0)


@njit(cache=True)
def _parts(contrast, threshold):
    """Parts (M, 12) of contrast (h, w) above the threshold, joined over edges and corners, in the order of their first pixels:
    weight, mean x, mean y, variances xx, xy, yy about it, pixels, the largest contrast, and the first and last column and row.

    Few pixels of an image are above it: filling from each takes a tenth of the time of labelling the whole image."""
    h, w = contrast.shape
    out = np.empty(((h + 1) // 2 * ((w + 1) // 2), 12))  # no more parts fit; memory that is not touched costs nothing
    free = np.ones((h, w), np.bool_)
    ys, xs = np.empty(h * w, np.int32), np.empty(h * w, np.int32)
    count = 0
    for y0 in range(h):
        for x0 in range(w):
            if contrast[y0, x0] <= threshold or not free[y0, x0]:
                continue
            m = out[count]
            m[:] = 0.0
            m[8], m[9], m[10], m[11] = x0, x0, y0, y0
            free[y0, x0], ys[0], xs[0], left = False, y0, x0, 1
            while left > 0:
                left -= 1
                y, x = ys[left], xs[left]
                weight = float(contrast[y, x])
                m[0] += weight
                m[1] += weight * x
                m[2] += weight * y
                m[3] += weight * x * x
                m[4] += weight * x * y
                m[5] += weight * y * y
                m[6] += 1.0
                m[7] = max(m[7], weight)
                m[8], m[9], m[11] = min(m[8], x), max(m[9], x), max(m[11], y)
                for j in range(max(y - 1, 0), min(y + 2, h)):
                    for i in range(max(x - 1, 0), min(x + 2, w)):
                        if free[j, i] and contrast[j, i] > threshold:
                            free[j, i], ys[left], xs[left] = False, j, i
                            left += 1
            total = max(m[0], 1e-9)
            m[1], m[2] = m[1] / total, m[2] / total
            m[3], m[4], m[5] = m[3] / total - m[1] * m[1], m[4] / total - m[1] * m[2], m[5] / total - m[2] * m[2]
            count += 1
    return out[:count].copy()


def _blobs(contrast: Array, threshold: float, smallest: float, largest: float) -> tuple[Array, Array, Array, Array]:
    """Connected parts of contrast (h, w) uint8 above the threshold with an extent between smallest and largest [px].

    Returns centres (M, 2), disc diameters (M,), streaks (M, 2) and mean contrasts (M,).
    """
    m = _parts(contrast, threshold)
    if not len(m):
        return np.empty((0, 2)), np.empty(0), np.empty((0, 2)), np.empty(0)
    first, last = m[:, 8::2], m[:, 9::2] + 1
    extent = (last - first).max(axis=1)
    diameter = np.sqrt(4 / np.pi * m[:, 6])
    middle, half = 0.5 * (m[:, 3] + m[:, 5]), np.hypot(0.5 * (m[:, 3] - m[:, 5]), m[:, 4])
    long, short = middle + half, np.maximum(middle - half, 1 / 12)
    keep = (extent <= largest) & (diameter >= smallest) & (long < 20 * short)  # a line is no shuttle, not even a smeared one
    keep &= (first > 0).all(axis=1) & (last < contrast.shape[::-1]).all(axis=1)  # what is cut off has its middle elsewhere
    angle = 0.5 * np.arctan2(2 * m[:, 4], m[:, 3] - m[:, 5])
    length = np.sqrt(12 * np.maximum(long - short, 0))  # of a line of that spread
    streak = np.stack([length * np.cos(angle), length * np.sin(angle)], axis=1)
    return m[keep, 1:3], diameter[keep], streak[keep], m[keep, 0] / m[keep, 6]


@dataclass
class Detector:
    """One eye. Give it every image with `look`; it remembers the last cfg.memory seconds."""

    camera: Camera
    cfg: DetectorCfg = DetectorCfg()
    repeats: int = 0  # images left out because they showed the image before to the last bit: a frozen camera
    _past: deque[_Frame] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._orange = self.cfg.colour == "orange"
        self._matrix = self.camera.matrix
        self._inverse = np.linalg.inv(self._matrix)
        self._all = np.ones((self.camera.height, self.camera.width), np.uint8)
        self._halving = np.array([[0.5, 0, -0.25], [0, 0.5, -0.25], [0, 0, 1.0]])  # full pixels to half-resolution pixels

    def look(self, time: float, image: Array, pose: Pose, windows: list[Window] | None = None) -> Candidates:
        """Candidates in an image taken at time [s] with this camera at pose.

        windows: where to look; None: in the whole image. Raises UserError for what is no image of this camera. An image that equals the
        one before to the last bit gives nothing, and one taken before it is left out.
        """
        check_image(image, self.camera)
        past = self._past
        if past and time <= past[-1].time:
            return Candidates.none()
        if past and np.array_equal(image[::16], past[-1].image[::16]):  # noise sees to it that no two true images are equal in any row
            self.repeats += 1
            return Candidates.none()
        now = _Frame(time, pose, np.array(image[..., :3]))
        while past and past[0].time < time - self.cfg.memory:
            past.popleft()
        found = self._whole(now) if windows is None else self._windows(now, windows)
        past.append(now)
        return found

    def note(self, time: float, u: float, v: float) -> None:
        """Tell where the track's shuttle was in the image of time [s]: windows then choose images in which it was elsewhere."""
        for frame in reversed(self._past):
            if frame.time == time:
                frame.seen = (u, v)
                return

    def _turn(self, old: _Frame, now: _Frame) -> Array:
        """Homography (3, 3) from pixels of `old` to pixels of `now`."""
        return self._turns(old, now)[0]

    def _turns(self, old: _Frame, now: _Frame) -> tuple[Array, Array]:
        """Homographies from `old` to `now` and back; every candidate of an image needs them."""
        if old.time not in now.turns:
            there = now.pose.rotation @ old.pose.rotation.T
            now.turns[old.time] = (self._matrix @ there @ self._inverse, self._matrix @ there.T @ self._inverse)
        return now.turns[old.time]

    def _spread(self, old: _Frame, now: _Frame, scale: float) -> Array:
        """Square (n, n) of ones over which `old` is spread, at `scale` pixels a pixel: one, and what the camera's way shifts the hall by."""
        way = float(np.linalg.norm(now.pose.centre - old.pose.centre))
        return np.ones((2 * int(min(1 + scale * self.camera.fx * way / self.cfg.nearest, 5)) + 1,) * 2, np.uint8)

    def _small(self, frame: _Frame) -> Array:
        if frame.small is None:
            h, w = frame.image.shape[:2]
            frame.small = np.empty((h // 2, w // 2), np.uint8)
            _half(frame.image, self._orange, frame.small)
        return frame.small

    def _whole(self, now: _Frame) -> Candidates:
        cfg = self.cfg
        here = self._small(now)
        before = [next((f for f in reversed(self._past) if now.time - f.time >= 0.9 * age), None) for age in cfg.ages]
        old = [f for n, f in enumerate(before) if f is not None and f not in before[:n]]
        if not old:
            return Candidates.none()
        back = np.linalg.inv(self._halving)
        calm = cv2.morphologyEx(here, cv2.MORPH_OPEN, _AROUND)  # stands in where an earlier image did not reach
        background = np.zeros_like(here)
        for frame in old:
            wide = cv2.dilate(self._small(frame), self._spread(frame, now, 0.5))
            turned = calm.copy()
            cv2.warpPerspective(wide, self._halving @ self._turn(frame, now) @ back, here.shape[::-1], turned, cv2.INTER_NEAREST, cv2.BORDER_TRANSPARENT)
            background = cv2.max(background, turned)
        contrast = cv2.subtract(here, background)
        smallest, largest = (0.5 * s * self.camera.fx / d for s, d in zip(cfg.sizes, reversed(cfg.depth_range), strict=True))
        centres, diameters, _, scores = _blobs(contrast, cfg.threshold, max(smallest, 1.0), largest)
        alone = [_alone(contrast, c, d, cfg.threshold) for c, d in zip(centres, diameters, strict=True)]
        centres, diameters, scores = centres[alone], diameters[alone], scores[alone]
        best = np.argsort(-scores * np.minimum(diameters, 4.0), kind="stable")[:2 * cfg.most]
        parts = [self._near(now, old[0], 2 * centres[b] + 0.5, 2 * diameters[b]) for b in best]
        return _best([p for p in parts if p is not None], cfg.most)

    def _near(self, now: _Frame, old: _Frame, centre: Array, diameter: float) -> Candidates | None:
        """The candidate at a place found at half resolution, measured at full resolution; None where there is none."""
        found = self._cut(now, old, centre, 1.5 * diameter + 6, 0.5 * diameter, 2.5 * diameter + 4)
        if not len(found):
            return None
        nearest = int(np.argmin(np.linalg.norm(found.pixels - centre, axis=1)))
        if np.linalg.norm(found.pixels[nearest] - centre) > 0.6 * diameter + 2:
            return None
        return Candidates(*(v[nearest:nearest + 1] for v in (found.pixels, found.sizes, found.streaks, found.scores)))

    def _windows(self, now: _Frame, windows: list[Window]) -> Candidates:
        parts = []
        for w in windows:
            size = SHUTTLE_SIZE * self.camera.fx / max(w.depth, 0.1)
            parts.append(self._cut(now, self._without(now, w, size), np.array([w.u, w.v]), w.half, 0.4 * size / w.slack, 3.0 * size * w.slack + 2))
        return _best(parts, self.cfg.most)

    def _without(self, now: _Frame, window: Window, size: float) -> _Frame | None:
        """The newest image in which the track's shuttle was clear of the place where it is now; None where there is none."""
        for frame in reversed(self._past):
            if frame.seen is None:
                continue
            u, v = _mapped(self._turn(frame, now), frame.seen)
            if np.hypot(u - window.u, v - window.v) > 1.5 * size + 3:
                return frame
        return None

    def _cut(self, now: _Frame, old: _Frame | None, centre: Array, half: float, smallest: float, largest: float) -> Candidates:
        """Candidates in a square of the full image about centre [px]."""
        h, w = now.image.shape[:2]
        low = np.maximum(np.floor(centre - half), 0).astype(int)
        high = np.minimum(np.ceil(centre + half) + 1, (w, h)).astype(int)
        if (high - low < 5).any():
            return Candidates.none()
        here = self._colour(now.image[low[1]:high[1], low[0]:high[0]])
        if old is None:
            contrast = _outstanding(here, largest, half)
        else:
            turn = np.array([[1.0, 0, -low[0]], [0, 1.0, -low[1]], [0, 0, 1.0]]) @ self._turn(old, now)
            turned = self._colour(cv2.warpPerspective(old.image, turn, here.shape[::-1], borderMode=cv2.BORDER_REPLICATE))
            spread = self._spread(old, now, 1.0)
            # before a lamp the shuttle is what is darker
            moved = cv2.max(cv2.subtract(here, cv2.dilate(turned, spread)), cv2.subtract(cv2.erode(turned, spread), here))
            if old.seen is not None:  # the place it came from changed as well, and would be a second shuttle on the same flight
                u, v = _mapped(turn, old.seen)
                cv2.circle(moved, (round(u), round(v)), int(0.25 * largest) + 1, (0,), -1)
            if self._covers(old, now, low, high):
                contrast = moved
            else:
                covered = cv2.warpPerspective(self._all, turn, here.shape[::-1])
                contrast = np.where(covered > 0, moved, _outstanding(here, largest, half))
        pixels, sizes, streaks, scores = _blobs(contrast, self.cfg.threshold, max(smallest, 1.5), largest)
        return Candidates(pixels + low, sizes, streaks, scores)

    def _covers(self, old: _Frame, now: _Frame, low: Array, high: Array) -> bool:
        """Whether all of a cut-out of `now` was in the image `old`."""
        corners = np.array([[low[0], high[0], low[0], high[0]], [low[1], low[1], high[1], high[1]], [1, 1, 1, 1]], float)
        x = self._turns(old, now)[1] @ corners
        return bool((x[2] > 0).all() and self.camera.inside((x[:2] / x[2]).T).all())

    def _colour(self, image: Array) -> Array:
        out = np.empty(image.shape[:2], np.uint8)
        _full(image, self._orange, out)
        return out


_AROUND = np.ones((11, 11), np.uint8)  # larger than a shuttle 2.5 m away, at half resolution


def _mapped(homography: Array, pixel: tuple[float, float]) -> tuple[float, float]:
    """A pixel under a homography; far outside any image where it is behind the camera."""
    x = homography @ np.array([*pixel, 1.0])
    if x[2] < 1e-3:
        return -1e4, -1e4
    return float(np.clip(x[0] / x[2], -1e4, 1e4)), float(np.clip(x[1] / x[2], -1e4, 1e4))


def _outstanding(here: Array, largest: float, half: float) -> Array:
    """What stands out from its surroundings: the shuttle where there is no earlier image to compare with."""
    reach = int(0.7 * min(largest, half)) | 1
    return cv2.morphologyEx(here, cv2.MORPH_TOPHAT, np.ones((reach, reach), np.uint8))


def _alone(contrast: Array, centre: Array, diameter: float, threshold: float) -> bool:
    """Whether nothing else of a blob's size moves beside it: arms, rackets and shoes come in pieces and in pairs, a shuttle flies alone."""
    reach = 2 * diameter + 4
    low, high = np.maximum(centre - reach, 0).astype(int), (centre + reach + 1).astype(int)
    moving = np.count_nonzero(contrast[low[1]:high[1], low[0]:high[0]] > threshold)
    return bool(moving < 1.6 * np.pi / 4 * diameter**2)


def _best(parts: list[Candidates], most: int) -> Candidates:
    """The best of several lists as one, without what lies on a better one."""
    if not parts:
        return Candidates.none()
    pixels, sizes, streaks, scores = (np.concatenate([getattr(p, n) for p in parts]) for n in ("pixels", "sizes", "streaks", "scores"))
    kept: list[int] = []
    for n in np.argsort(-scores * np.minimum(sizes, 8.0), kind="stable"):
        if all(np.abs(pixels[n] - pixels[k]).max() > 2.0 for k in kept):
            kept.append(int(n))
            if len(kept) == most:
                break
    return Candidates(pixels[kept], sizes[kept], streaks[kept], scores[kept])


def check_image(image: Array, camera: Camera) -> None:
    """Raise UserError, saying what it is and what is wanted, for anything but an 8-bit colour image of this camera."""
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] not in (3, 4):
        what = f"{image.dtype} {'x'.join(map(str, image.shape))}" if isinstance(image, np.ndarray) else type(image).__name__
        raise UserError(f"an image must be uint8 of height x width x 3 (blue green red) or 4; got {what}")
    if image.shape[:2] != (camera.height, camera.width):
        raise UserError(f"the image is {image.shape[1]} x {image.shape[0]}, the rig's camera {camera.width} x {camera.height}: another mode or rig")
