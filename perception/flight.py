"""Shuttle in the air: a = -k |v| v - g z + s cos(elevation) r, with r horizontal, to the right of flight.

One model for one shuttle and for thousands, in simulation, tracker and strike planner. k and s are measured on 55 flights
by people: k = 0.248 +- 0.012 /m (terminal speed 6.3 m/s), s about 0.67 m/s^2. Leaving s out doubles the error of a
prediction. Frame: z up; everything else is up to the caller. Integration: classic fourth-order Runge-Kutta.
"""

import numpy as np
from numba import njit

GRAVITY = 9.81  # [m/s^2]
DRAG_MEAN, DRAG_STD = 0.248, 0.012  # k [1/m]: fitted on 55 flights, 9 to 48 m/s; the spread is mostly length scale
DRAG_RANGE = (0.21, 0.29)  # [1/m] clip of sampled k, the spread of real shuttles of one kind
DRIFT_MEAN, DRIFT_STD = 0.6, 0.25  # s [m/s^2]: median 0.67, 10 to 90 % 0.22 to 0.83 on the same flights
FLIP_DRAG, FLIP_TIME = (0.0, 0.8), 0.04  # extra drag just after a hit, k (1 + A exp(-t / 0.04 s)) with A in this range: the shuttle
# turns over in about 20 ms and swings for 80 ms (Cohen et al. 2015, NJP 17 063001); A is a working range, not measured
WIND_MAX = 0.3  # [m/s] of moving air in a hall, each way; a working range, not measured
STEP_MAX = 0.012  # [s] longest Runge-Kutta step; at 45 m/s its error over a flight is below 1 mm
_SPEED_FLOOR = 1e-9  # [m/s] below it the direction of flight, and so the drift, is undefined and left out

Array = np.ndarray


@njit(cache=True)
def _acceleration(vx, vy, vz, k, s):
    speed = np.sqrt(vx * vx + vy * vy + vz * vz)
    flat = np.sqrt(vx * vx + vy * vy)
    ax = -k * speed * vx
    ay = -k * speed * vy
    az = -k * speed * vz - GRAVITY
    if flat > _SPEED_FLOOR:  # cos(elevation) * r = (flat / speed) * (vy, -vx, 0) / flat
        ax += s * vy / speed
        ay -= s * vx / speed
    return ax, ay, az


@njit(cache=True)
def rk4_step(p, v, k, s, dt):
    """One Runge-Kutta step of one shuttle, in place: p, v (3,) [m, m/s], k [1/m], s [m/s^2], dt [s]."""
    v0, v1, v2 = v[0], v[1], v[2]
    h = 0.5 * dt
    a0, a1, a2 = _acceleration(v0, v1, v2, k, s)
    w0, w1, w2 = v0 + h * a0, v1 + h * a1, v2 + h * a2
    b0, b1, b2 = _acceleration(w0, w1, w2, k, s)
    x0, x1, x2 = v0 + h * b0, v1 + h * b1, v2 + h * b2
    c0, c1, c2 = _acceleration(x0, x1, x2, k, s)
    y0, y1, y2 = v0 + dt * c0, v1 + dt * c1, v2 + dt * c2
    d0, d1, d2 = _acceleration(y0, y1, y2, k, s)
    sixth = dt / 6
    p[0] += sixth * (v0 + 2 * w0 + 2 * x0 + y0)
    p[1] += sixth * (v1 + 2 * w1 + 2 * x1 + y1)
    p[2] += sixth * (v2 + 2 * w2 + 2 * x2 + y2)
    v[0] = v0 + sixth * (a0 + 2 * b0 + 2 * c0 + d0)
    v[1] = v1 + sixth * (a1 + 2 * b1 + 2 * c1 + d1)
    v[2] = v2 + sixth * (a2 + 2 * b2 + 2 * c2 + d2)


@njit(cache=True)
def _fly(p, v, k, s, dt, steps, out):
    for i in range(p.shape[0]):
        for t in range(steps):
            for axis in range(3):
                out[i, t, axis] = p[i, axis]
                out[i, t, 3 + axis] = v[i, axis]
            rk4_step(p[i], v[i], k[i], s[i], dt)


@njit(cache=True)
def flip_factor(flip, since_hit):
    """Factor on the drag at a time [s] after a hit, for a flip of strength A."""
    return 1.0 + flip * np.exp(-since_hit / FLIP_TIME)


def acceleration(velocity: Array, drag: Array | float, drift: Array | float) -> Array:
    """Acceleration (..., 3) [m/s^2] of shuttles with velocity (..., 3) [m/s], drag k [1/m] and drift s [m/s^2].

    The numpy twin of the compiled model, for callers that want whole arrays; a test holds the two together.
    """
    velocity = np.asarray(velocity, float)
    speed = np.linalg.norm(velocity, axis=-1, keepdims=True)
    k, s = np.asarray(drag, float)[..., None], np.asarray(drift, float)[..., None]
    right = np.stack([velocity[..., 1], -velocity[..., 0], np.zeros(velocity.shape[:-1])], axis=-1)
    out = -k * speed * velocity + s * right / np.maximum(speed, _SPEED_FLOOR)
    out[..., 2] -= GRAVITY
    return out


def fly(position: Array, velocity: Array, drag: Array, drift: Array, dt: float, steps: int) -> Array:
    """Trajectories (N, steps, 6) of position and velocity every dt [s], the start included.

    position, velocity (N, 3) [m, m/s]; drag, drift (N,) [1/m, m/s^2]. dt above STEP_MAX is split into equal steps.
    """
    parts = int(np.ceil(dt / STEP_MAX - 1e-9))
    p, v = np.array(position, float), np.array(velocity, float)
    fine = np.empty((len(p), (steps - 1) * parts + 1, 6))
    _fly(p, v, np.asarray(drag, float), np.asarray(drift, float), dt / parts, fine.shape[1], fine)
    return fine[:, ::parts]


def sample_coefficients(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
    """Drag k (count,) [1/m] and drift s (count,) [m/s^2] of feather shuttles, as measured."""
    drag = np.clip(rng.normal(DRAG_MEAN, DRAG_STD, count), *DRAG_RANGE)
    drift = np.clip(rng.normal(DRIFT_MEAN, DRIFT_STD, count), 0.0, 1.2)
    return drag, drift
