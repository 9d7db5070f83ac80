"""Chains of stereo pairs that could be the beginning of a flight: three of four in a row that one motion explains."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from perception.flight import DRAG_MEAN, acceleration
from perception.triangulation import Pairs

Array = np.ndarray


@dataclass(frozen=True)
class StartCfg:
    """How a flight may begin.

    speed_range: [m/s] slower is held, carried or lying; faster than 60 is no shuttle a robot would see twice (people serve
    and clear at 10 to 48).
    pair_time: [s] at most between the exposures of a pair; span: [s] at most between first and last of four pairs, 25 ms at
    120 fps and 50 ms at 60, with one dropped frame.
    position_sigma, velocity_sigma: [m, m/s] of the prior about the first guess; wide, our choice: the pairs decide.
    tolerance: sigmas that a pair in between may be off; sag: [m] added to it for what the guessed motion leaves out.
    most_pairs: per frame, most_chains: per frame; trades time in clutter against late starts.
    """

    speed_range: tuple[float, float] = (2.0, 60.0)
    pair_time: float = 0.009
    span: float = 0.09
    position_sigma: float = 5.0
    velocity_sigma: float = 15.0
    tolerance: float = 4.0
    sag: float = 0.03
    most_pairs: int = 60
    most_chains: int = 12


def _trace(pairs: Pairs) -> Array:
    return np.asarray(np.trace(pairs.covariance, axis1=1, axis2=2))


def chains(frames: list[Any], cfg: StartCfg = StartCfg()) -> list[list[tuple[int, int]]]:
    """Chains [(frame, pair), ...] of three or four pairs that end in the newest frame, the best first.

    frames: [(time [s], left sight, right sight, `Pairs`), ...] in time order; the last four count.
    """
    base = max(0, len(frames) - 4)
    recent = frames[base:]
    newest = len(recent) - 1
    found: list[tuple[float, list[tuple[int, int]]]] = []
    for first in range(newest - 1):
        t0, _, _, begin = recent[first]
        t1, _, _, end = recent[newest]
        if not len(begin.points) or not len(end.points) or t1 <= t0:
            continue
        velocity = (end.points[None] - begin.points[:, None]) / (t1 - t0)
        speed = np.linalg.norm(velocity, axis=2)
        # depth of a short baseline is poor: a pair of points is slow or fast only beyond its own error
        slack = 3 * np.sqrt(_trace(begin)[:, None] + _trace(end)[None]) / (t1 - t0)
        i, j = np.nonzero((speed + slack >= cfg.speed_range[0]) & (speed - slack <= cfg.speed_range[1]))
        if not len(i):
            continue
        v = velocity[i, j]
        bend = acceleration(v, DRAG_MEAN, 0.0)
        cost = 0.05 * (begin.misfit[i] + end.misfit[j])
        picks = {}
        for n in range(first + 1, newest):
            t, _, _, middle = recent[n]
            if not len(middle.points):
                continue
            share = (t - t0) / (t1 - t0)
            guess = begin.points[i] + v * (t - t0) - 0.5 * bend * (t - t0) * (t1 - t)
            off = middle.points[None] - guess[:, None]
            # no ellipsoid reaches further than the root of its trace: most pairs of a cluttered frame are out by that alone
            reach2 = (_trace(middle)[None] + (1 - share) ** 2 * _trace(begin)[i][:, None] + share**2 * _trace(end)[j][:, None] + 3 * cfg.sag**2)
            distance = np.full(off.shape[:2], np.inf)
            c, m = np.nonzero(np.einsum("cma,cma->cm", off, off) <= cfg.tolerance**2 * reach2)
            spread = (middle.covariance[m] + (1 - share) ** 2 * begin.covariance[i[c]] + share**2 * end.covariance[j[c]] + np.eye(3) * cfg.sag**2)
            distance[c, m] = np.einsum("na,na->n", off[c, m], np.linalg.solve(spread, off[c, m][..., None])[..., 0])
            nearest = np.argmin(distance, axis=1)
            near = distance[np.arange(len(i)), nearest]
            picks[n] = np.where(near <= cfg.tolerance**2, nearest, -1)
            cost = cost + np.where(near <= cfg.tolerance**2, near, cfg.tolerance**2)
        hits = np.zeros(len(i), int)
        for p in picks.values():
            hits += p >= 0
        good = np.flatnonzero(hits >= 1)
        for c in good[np.argsort(cost[good] - 20.0 * hits[good], kind="stable")[:cfg.most_chains]]:
            chain = [(base + first, int(i[c])), *((base + n, int(p[c])) for n, p in picks.items() if p[c] >= 0), (base + newest, int(j[c]))]
            found.append((float(cost[c] - 20.0 * hits[c]), chain))
    found.sort(key=lambda f: f[0])
    return [chain for _, chain in found[:cfg.most_chains]]
