"""Where thousands of flights come down through a height, without covariance: what a batch of robots in training is told.

`interception.py` does the same for one flight with its covariance; a test holds the two together.
"""

import numpy as np
from numba import njit, prange

from perception.flight import rk4_step

Array = np.ndarray

STEP = 1 / 40  # [s] between looks: a fourth-order step of so much is off by under 1 mm at 15 m/s, and a shuttle cannot pass twice in it
_NEWTON = 3  # corrections inside the last step; the error is below a micrometre after two


def come_down(state: Array, height: Array, wanted: Array, horizon: float = 2.5) -> tuple[Array, Array, Array]:
    """Seconds until each flight comes down through its height, place and velocity there.

    state (N, 8) of `filter.py`; height (N,) [m]; wanted (N,) bool: the others are left out. Returns seconds (N,), nan where it does
    not come down through it within horizon [s], place (N, 3) [m] and velocity (N, 3) [m/s], of no meaning there.
    """
    state = np.ascontiguousarray(state, float)
    gone, place, velocity = np.full(len(state), np.nan), state[:, :3].copy(), state[:, 3:6].copy()
    _come_down(state, np.asarray(height, float), np.asarray(wanted, bool), horizon, gone, place, velocity)
    return gone, place, velocity


@njit(cache=True, parallel=True)
def _come_down(state, height, wanted, horizon, gone, place, velocity):
    for i in prange(len(state)):
        if not (wanted[i] and np.isfinite(state[i]).all()):
            continue
        p, v, k, s = place[i], velocity[i], state[i, 6], state[i, 7]
        passed = 0.0
        while passed < horizon and not (p[2] < height[i] and v[2] < 0.0 and passed == 0.0):
            x, y, z, vx, vy, vz = p[0], p[1], p[2], v[0], v[1], v[2]
            rk4_step(p, v, k, s, STEP)
            if z >= height[i] and p[2] < height[i]:
                part = STEP * (z - height[i]) / (z - p[2])
                for _ in range(_NEWTON):
                    p[0], p[1], p[2], v[0], v[1], v[2] = x, y, z, vx, vy, vz
                    rk4_step(p, v, k, s, part)
                    part += (p[2] - height[i]) / max(-v[2], 1e-3)
                    part = min(max(part, 0.0), STEP)
                p[0], p[1], p[2], v[0], v[1], v[2] = x, y, z, vx, vy, vz
                rk4_step(p, v, k, s, part)
                gone[i] = passed + part
                break
            passed += STEP
