"""What moved against the hall: the shuttle's colour in an image, less that of earlier images turned to where the camera looks now.

Earlier images are turned by the homography K R K^-1 and spread by as much as the camera's own way between them can have shifted the
hall. Images are (height, width, 3) uint8, blue green red first; everything stays uint8. Full resolution is read in small cut-outs only.
"""

from dataclasses import dataclass, field

import cv2
import numpy as np
from numba import njit

from perception.camera import Camera, Pose

Array = np.ndarray

HALVING = np.array([[0.5, 0, -0.25], [0, 0.5, -0.25], [0, 0, 1.0]])  # full pixels to half-resolution pixels
_DOUBLING = np.linalg.inv(HALVING)
_SQUARES = [np.ones((n, n), np.uint8) for n in range(12)]
_AROUND = np.ones((11, 11), np.uint8)  # larger than a shuttle 2.5 m away, at half resolution


@dataclass
class Frame:
    """An image as it is kept: time [s], pose of its camera, image; centre (3,) [m] of the camera; the rest is made when first needed."""

    time: float
    pose: Pose
    image: Array
    centre: Array
    small: Array | None = None  # the shuttle's colour at half resolution
    seen: tuple[float, float] | None = None  # where the track's shuttle was in this image [px]
    turns: dict[float, tuple[Array, Array]] = field(default_factory=dict)  # by an earlier image's time: to here and back


@dataclass(frozen=True)
class Motion:
    """Of one camera. orange: which colour, see `DetectorCfg`; nearest [m] to what stands still in front of the camera."""

    camera: Camera
    orange: bool
    nearest: float

    def turns(self, old: Frame, now: Frame) -> tuple[Array, Array]:
        """Homographies (3, 3) from pixels of `old` to pixels of `now` and back; every cut-out of an image needs them."""
        if old.time not in now.turns:
            matrix, inverse = self.camera.matrix, np.linalg.inv(self.camera.matrix)
            there = now.pose.rotation @ old.pose.rotation.T
            now.turns[old.time] = (matrix @ there @ inverse, matrix @ there.T @ inverse)
        return now.turns[old.time]

    def small(self, frame: Frame) -> Array:
        """(height // 2, width // 2) the shuttle's colour at half resolution."""
        if frame.small is None:
            h, w = frame.image.shape[:2]
            frame.small = np.empty((h // 2, w // 2), np.uint8)
            _half(frame.image.reshape(h, 3 * w), self.orange, frame.small)
        return frame.small

    def of_image(self, now: Frame, before: list[Frame]) -> Array:
        """(height // 2, width // 2) by how much `now` is brighter in the shuttle's colour than every image of `before`."""
        here = self.small(now)
        calm = cv2.morphologyEx(here, cv2.MORPH_OPEN, _AROUND)  # stands in where an earlier image did not reach
        background = np.zeros_like(here)
        for frame in before:
            wide = cv2.dilate(self.small(frame), self._spread(frame, now, 0.5))
            turned = calm.copy()
            turn = HALVING @ self.turns(frame, now)[0] @ _DOUBLING
            cv2.warpPerspective(wide, turn, here.shape[::-1], turned, cv2.INTER_NEAREST, cv2.BORDER_TRANSPARENT)
            cv2.max(background, turned, background)
        return cv2.subtract(here, background)

    def of_cut(self, now: Frame, old: Frame | None, low: Array, high: Array, largest: float) -> Array:
        """(high - low) by how much a cut-out of `now` differs from `old`, and where that does not reach, or is None, from its surroundings.

        low, high (2,) first and last column and row, the last ones exclusive; largest [px] extent of what is looked for."""
        here = np.empty((high[1] - low[1], high[0] - low[0]), np.uint8)
        _full(now.image, low[0], low[1], self.orange, here)
        reach = 0.5 * max(here.shape)
        if old is None:
            return _outstanding(here, largest, reach)
        turned, covered = np.empty_like(here), np.empty(here.shape, np.bool_)
        there, back = self.turns(old, now)
        all_covered = _turned(old.image, back, low[0], low[1], self.orange, turned, covered)
        spread = self._spread(old, now, 1.0)
        # before a lamp the shuttle is what is darker
        moved = cv2.max(cv2.subtract(here, cv2.dilate(turned, spread)), cv2.subtract(cv2.erode(turned, spread), here))
        if old.seen is not None:  # the place it came from changed as well, and would be a second shuttle on the same flight
            u, v = mapped(there, old.seen)
            cv2.circle(moved, (round(u) - int(low[0]), round(v) - int(low[1])), int(0.25 * largest) + 1, (0,), -1)
        return moved if all_covered else np.where(covered, moved, _outstanding(here, largest, reach))

    def _spread(self, old: Frame, now: Frame, scale: float) -> Array:
        """Square (n, n) of ones over which `old` is spread, at `scale` pixels a pixel: one, and what the camera's way shifts the hall by."""
        way = float(np.linalg.norm(now.centre - old.centre))
        return _SQUARES[2 * int(min(1 + scale * self.camera.fx * way / self.nearest, 5)) + 1]


def mapped(homography: Array, pixel: tuple[float, float]) -> tuple[float, float]:
    """A pixel under a homography; far outside any image where it is behind the camera."""
    x, y, z = (float(row[0] * pixel[0] + row[1] * pixel[1] + row[2]) for row in homography)
    if z < 1e-3:
        return -1e4, -1e4
    return min(max(x / z, -1e4), 1e4), min(max(y / z, -1e4), 1e4)


def _outstanding(here: Array, largest: float, half: float) -> Array:
    """What stands out from its surroundings: the shuttle where there is no earlier image to compare with."""
    reach = int(0.7 * min(largest, half)) | 1
    return cv2.morphologyEx(here, cv2.MORPH_TOPHAT, np.ones((reach, reach), np.uint8))


@njit(cache=True)
def _half(flat, orange, out):
    """The shuttle's colour, mean of 2 x 2 pixels, as uint8 (h // 2, w // 2), of an image with its rows flat (h, 3 w).

    Two rows are added first, in 16 bits: the compiler does that many numbers at once, a third of the time altogether."""
    h, w = out.shape
    both = np.empty(6 * w, np.uint16)
    for y in range(h):
        first, second, line = flat[2 * y], flat[2 * y + 1], out[y]
        for i in range(6 * w):
            both[i] = np.uint16(first[i]) + np.uint16(second[i])
        for x in range(w):
            i = 6 * x
            b, g, r = np.int16(both[i] + both[i + 3]), np.int16(both[i + 1] + both[i + 4]), np.int16(both[i + 2] + both[i + 5])
            value = r - b if orange else 2 * min(b, g, r) - max(b, g, r)
            line[x] = value >> 2 if value > 0 else 0


@njit(cache=True)
def _full(image, left, top, orange, out):
    """The shuttle's colour pixel by pixel, as uint8, of the cut-out of an image that begins at column left and row top."""
    for y in range(out.shape[0]):
        for x in range(out.shape[1]):
            pixel = image[top + y, left + x]
            b, g, r = np.int32(pixel[0]), np.int32(pixel[1]), np.int32(pixel[2])  # signed: int() of an unsigned number is unsigned here
            out[y, x] = max(r - b if orange else 2 * min(b, g, r) - max(b, g, r), 0)


@njit(cache=True)
def _turned(image, back, left, top, orange, out, covered):
    """The shuttle's colour of an earlier image, turned by the homography `back` from now to then and interpolated between pixels, in the
    cut-out that begins at column left and row top. Marks what it covered; returns whether that is all."""
    h, w = image.shape[:2]
    everything = True
    for y in range(out.shape[0]):
        for x in range(out.shape[1]):
            u, v = float(left + x), float(top + y)
            z = back[2, 0] * u + back[2, 1] * v + back[2, 2]
            s = t = -1.0
            if z > 1e-6:
                s, t = (back[0, 0] * u + back[0, 1] * v + back[0, 2]) / z, (back[1, 0] * u + back[1, 1] * v + back[1, 2]) / z
            reached = s >= 0.0 and t >= 0.0 and s <= w - 1 and t <= h - 1
            covered[y, x] = reached
            if not reached:
                everything = False
                out[y, x] = 0
                continue
            i, j = min(int(s), w - 2), min(int(t), h - 2)
            a, d = np.float32(s - i), np.float32(t - j)
            p, q = image[j, i], image[j, i + 1]
            m, n = image[j + 1, i], image[j + 1, i + 1]
            upper, lower = np.float32(1) - d, d
            b = int((p[0] + a * (q[0] - np.float32(p[0]))) * upper + (m[0] + a * (n[0] - np.float32(m[0]))) * lower + np.float32(0.5))
            g = int((p[1] + a * (q[1] - np.float32(p[1]))) * upper + (m[1] + a * (n[1] - np.float32(m[1]))) * lower + np.float32(0.5))
            r = int((p[2] + a * (q[2] - np.float32(p[2]))) * upper + (m[2] + a * (n[2] - np.float32(m[2]))) * lower + np.float32(0.5))
            out[y, x] = max(r - b if orange else 2 * min(b, g, r) - max(b, g, r), 0)
    return everything
