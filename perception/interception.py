"""Where and when a flight can be hit: first crossing of a height, a sphere or a plane, with covariance of place and time.

Mean and first-order covariance are integrated together with the flight model. At the crossing the covariance at a fixed time
is turned into one of place and time by the delta method: a displacement dp moves the crossing by dt = -(n.dp) / (n.v), n being
the normal of the surface. Source of the idea: first-order uncertainty propagation, e.g. JCGM 100:2008, 5.1.2.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit

from perception.filter import STATES, predict, workspace
from perception.flight import GRAVITY, acceleration

Array = np.ndarray

STEP = 1 / 120  # [s] between looks for a crossing: a shuttle bends less than 1 mm off the chord in it
ACCURACY = 1e-6  # [s] to which a crossing is found
_FLAT = -1.0  # in place of the radius: a plane
GRAZING = 0.5  # [m/s] slower than this through a surface, a crossing has no time worth the name


@dataclass(frozen=True, eq=False)
class FlightNoise:
    """What a flight does on the way that the model does not know: white acceleration [m/s^2/sqrt(Hz)] and random walk of s
    [m/s^2/sqrt(s)], the tracker's by default; gravity: sigma of its share, for rigs whose heights are not metric
    (`height_scale.py`), 0 for those that are."""

    acceleration: float = 0.16
    drift: float = 0.1
    gravity: float = 0.0

    def add_gravity(self, covariance: Array, span: float) -> None:
        """Add to covariance (8, 8), in place, what unsure gravity adds over span [s]; drag on the difference is left out."""
        fall = np.zeros(STATES)
        fall[2], fall[5] = 0.5 * GRAVITY * span**2, GRAVITY * span
        covariance += self.gravity**2 * np.outer(fall, fall)


@dataclass(frozen=True, eq=False)
class Interception:
    """First crossing: time [s]; place (3,) [m]; velocity (3,) [m/s]; and their first-order errors.

    covariance (7, 7) of (place, velocity, time), place and velocity being those *at the crossing*: rank is lost along the
    normal, since the crossing lies on the surface. state_covariance (8, 8): at the fixed time `time`.
    """

    time: float
    place: Array
    velocity: Array
    covariance: Array
    state: Array
    state_covariance: Array

    @property
    def time_sigma(self) -> float:
        """[s]"""
        return float(np.sqrt(max(self.covariance[6, 6], 0.0)))


def forecast(time: float, state: Array, covariance: Array, later: float, noise: FlightNoise = FlightNoise()) -> tuple[Array, Array]:
    """State (8,) and covariance (8, 8) at `later` [s], not before `time`, of a flight known at `time`."""
    x, cov = np.array(state, float), np.array(covariance, float)
    predict(x, cov, later - time, noise.acceleration, noise.drift, workspace())
    noise.add_gravity(cov, max(later - time, 0.0))
    return x, cov


def at_height(time: float, state: Array, covariance: Array, height: float, horizon: float = 2.0,
              noise: FlightNoise = FlightNoise()) -> Interception | None:
    """Where the flight comes down through `height` [m], within horizon [s]; None if it does not.

    Upward crossings do not count: a player waits for the shuttle to come down.
    """
    return _first(time, state, covariance, np.array([0.0, 0.0, -1.0, -height, _FLAT]), horizon, noise)


def at_sphere(time: float, state: Array, covariance: Array, centre: Array, radius: float, horizon: float = 2.0,
              noise: FlightNoise = FlightNoise()) -> Interception | None:
    """Where the flight enters the sphere about centre (3,) [m] of radius [m]; None if it misses it, or is inside already."""
    return _first(time, state, covariance, np.array([*centre, 0.0, radius], float), horizon, noise)


def at_plane(time: float, state: Array, covariance: Array, point: Array, normal: Array, horizon: float = 2.0,
             noise: FlightNoise = FlightNoise()) -> Interception | None:
    """Where the flight goes through the plane at point (3,) [m] in the direction of its normal (3,); None if it does not."""
    point, normal = np.asarray(point, float), np.asarray(normal, float) / np.linalg.norm(normal)
    return _first(time, state, covariance, np.array([*normal, normal @ point, _FLAT]), horizon, noise)


@njit(cache=True)
def _depth(surface, x):
    """How deep [m] a point is behind a surface (5,): normal, offset along it and `_FLAT` of a plane; centre, 0 and radius of a sphere."""
    if surface[4] == _FLAT:
        return surface[0] * x[0] + surface[1] * x[1] + surface[2] * x[2] - surface[3]
    return surface[4] - np.sqrt((x[0] - surface[0]) ** 2 + (x[1] - surface[1]) ** 2 + (x[2] - surface[2]) ** 2)


@njit(cache=True)
def _reach(x, cov, surface, horizon, noise, drift_noise, work):
    """Move x (8,) and cov (8, 8), in place, to where they first cross the surface; seconds until then, or -1 if they do not."""
    old_x, old_cov = np.empty_like(x), np.empty_like(cov)
    gone, before = 0.0, _depth(surface, x)
    while gone < horizon:
        old_x[:], old_cov[:] = x, cov
        predict(x, cov, STEP, noise, drift_noise, work)
        after = _depth(surface, x)
        if before < 0.0 <= after:
            low, high = 0.0, STEP  # bisection, since the signed depth changes sign once in 8 ms
            while high - low > ACCURACY:
                middle = 0.5 * (low + high)
                x[:], cov[:] = old_x, old_cov
                predict(x, cov, middle, noise, drift_noise, work)
                if _depth(surface, x) >= 0.0:
                    high = middle
                else:
                    low = middle
            x[:], cov[:] = old_x, old_cov
            predict(x, cov, high, noise, drift_noise, work)
            return gone + high
        gone, before = gone + STEP, after
    return -1.0


def _first(time: float, state: Array, covariance: Array, surface: Array, horizon: float, noise: FlightNoise) -> Interception | None:
    x, cov = np.array(state, float), np.array(covariance, float)
    if not (np.isfinite(x).all() and np.isfinite(cov).all()):
        return None
    gone = float(_reach(x, cov, surface, horizon, noise.acceleration, noise.drift, workspace()))
    if gone < 0.0:
        return None
    noise.add_gravity(cov, gone)
    normal = surface[:3]
    if surface[4] != _FLAT:
        inward = surface[:3] - x[:3]
        normal = inward / max(float(np.linalg.norm(inward)), 1e-9)
    through = float(normal @ x[3:6])
    if through < GRAZING:
        return None
    return Interception(time + gone, x[:3].copy(), x[3:6].copy(), crossing_covariance(x, cov, normal), x, cov)


def crossing_covariance(state: Array, covariance: Array, normal: Array) -> Array:
    """(7, 7) covariance of (place, velocity, time) where a flight crosses a surface of normal (3,), by the delta method.

    state (8,) and covariance (8, 8) at the mean time of crossing.
    """
    v = state[3:6]
    rate = np.concatenate([v, acceleration(v, float(state[6]), float(state[7]))])
    shift = np.zeros(STATES)
    shift[:3] = -normal / (normal @ v)
    jacobian = np.zeros((7, STATES))
    jacobian[:6, :6] = np.eye(6)
    jacobian[:6] += rate[:, None] * shift
    jacobian[6] = shift
    out = jacobian @ covariance @ jacobian.T
    return 0.5 * (out + out.T)
