"""From contrast to candidates: connected parts of what moved, with their moments, and which of them could be a shuttle.

Everything here is compiled or vectorised: a cluttered image has hundreds of parts, and a loop over them in Python would cost more than
looking at the image.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit

Array = np.ndarray


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

    def __getitem__(self, keep: Array) -> "Candidates":
        """Those of a mask (M,) or of indices (K,)."""
        return Candidates(self.pixels[keep], self.sizes[keep], self.streaks[keep], self.scores[keep])


def parts(contrast: Array, threshold: float) -> Array:
    """Parts (M, 12) of contrast (h, w) uint8 above the threshold, joined over edges and corners, in the order of their first pixels:
    weight, mean x, mean y, variances xx, xy, yy about it, pixels, the largest contrast, and the first and last column and row.

    Few pixels of an image are above it: filling from each takes a tenth of the time of labelling the whole image."""
    limit = int(threshold)  # whole numbers compare eight times as fast
    out: Array = _filled(contrast, limit, np.flatnonzero(contrast > limit))
    return out


@njit(cache=True)
def _filled(contrast, limit, seeds):
    h, w = contrast.shape
    out = np.empty((len(seeds), 12))
    free = np.ones((h, w), np.bool_)
    ys, xs = np.empty(len(seeds), np.int32), np.empty(len(seeds), np.int32)
    count = 0
    for seed in seeds:
        y0, x0 = seed // w, seed % w
        if not free[y0, x0]:
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
                    if free[j, i] and contrast[j, i] > limit:
                        free[j, i], ys[left], xs[left] = False, j, i
                        left += 1
        total = max(m[0], 1e-9)
        m[1], m[2] = m[1] / total, m[2] / total
        m[3], m[4], m[5] = m[3] / total - m[1] * m[1], m[4] / total - m[1] * m[2], m[5] / total - m[2] * m[2]
        count += 1
    return out[:count]


@njit(cache=True)
def _rows(m, width, height, smallest, largest):
    """Rows (K, 6) of parts (M, 12) that may be a shuttle: centre, diameter, streak and mean contrast."""
    out, count = np.empty((len(m), 6)), 0
    for i in range(len(m)):
        extent = max(m[i, 9] - m[i, 8], m[i, 11] - m[i, 10]) + 1
        diameter = np.sqrt(4 / np.pi * m[i, 6])
        if extent > largest or diameter < smallest:
            continue
        if m[i, 8] <= 0 or m[i, 10] <= 0 or m[i, 9] + 1 >= width or m[i, 11] + 1 >= height:  # what is cut off has its middle elsewhere
            continue
        middle, half = 0.5 * (m[i, 3] + m[i, 5]), np.hypot(0.5 * (m[i, 3] - m[i, 5]), m[i, 4])
        long, short = middle + half, max(middle - half, 1 / 12)
        if long >= 20 * short:  # a line is no shuttle, not even a smeared one
            continue
        angle = 0.5 * np.arctan2(2 * m[i, 4], m[i, 3] - m[i, 5])
        length = np.sqrt(12 * max(long - short, 0.0))  # of a line of that spread
        out[count, 0], out[count, 1], out[count, 2] = m[i, 1], m[i, 2], diameter
        out[count, 3], out[count, 4], out[count, 5] = length * np.cos(angle), length * np.sin(angle), m[i, 0] / m[i, 6]
        count += 1
    return out[:count]


def blobs(contrast: Array, threshold: float, smallest: float, largest: float) -> Candidates:
    """Connected parts of contrast (h, w) uint8 above the threshold with an extent between smallest and largest [px], none of them cut
    off by the border; in the order of their first pixels."""
    rows = _rows(parts(contrast, threshold), contrast.shape[1], contrast.shape[0], smallest, largest)
    return Candidates(rows[:, :2], rows[:, 2], rows[:, 3:5], rows[:, 5])


@njit(cache=True)
def alone(contrast, centres, diameters, threshold):
    """(M,) whether nothing else of a blob's size moves beside it: arms, rackets and shoes come in pieces and in pairs, a shuttle flies
    alone."""
    h, w = contrast.shape
    out = np.empty(len(centres), np.bool_)
    for n in range(len(centres)):
        reach, moving = 2 * diameters[n] + 4, 0
        for y in range(max(int(centres[n, 1] - reach), 0), min(int(centres[n, 1] + reach + 1), h)):
            for x in range(max(int(centres[n, 0] - reach), 0), min(int(centres[n, 0] + reach + 1), w)):
                if contrast[y, x] > threshold:
                    moving += 1
        out[n] = moving < 1.6 * np.pi / 4 * diameters[n] ** 2
    return out


def best(found: list[Candidates], most: int) -> Candidates:
    """The best of several lists as one, without what lies on a better one."""
    if not found:
        return Candidates.none()
    every = Candidates(*(np.concatenate([getattr(c, n) for c in found]) for n in ("pixels", "sizes", "streaks", "scores")))
    kept: list[int] = []
    for n in np.argsort(-every.scores * np.minimum(every.sizes, 8.0), kind="stable"):
        if all(np.abs(every.pixels[n] - every.pixels[k]).max() > 2.0 for k in kept):
            kept.append(int(n))
            if len(kept) == most:
                break
    return every[np.array(kept, int)]
