"""Strike planner: from an incoming shuttle to the racket that sends it over the net to a chosen place.

Batch first and free of MuJoCo: the same code plans in training, in play and on the robot.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit

from perception.flight import FLIP_DRAG, flip_factor, rk4_step
from sim.court import net_height
from sim.impact import RESTITUTION, racket_for

Array = np.ndarray
NET_CLEARANCE = 0.30  # [m] above the tape; our choice: forgives a shot 5 degrees too flat, keeps rallies low
ELEVATION = 0.55  # [rad] where the search for the outgoing shot starts; our choice: 1.4 m over the tape at racket speeds of 4 to 7 m/s
SPEED_LIMITS = (2.0, 30.0)  # [m/s] of the outgoing shuttle that the search may use
_STEP = 0.012  # [s] flight step of the search
_FLIP = 0.5 * (FLIP_DRAG[0] + FLIP_DRAG[1])  # the planner counts on a shuttle that turns over as the average one


@dataclass(frozen=True)
class Strike:
    """What the racket has to do. position, normal, velocity: (N, 3) world [m, -, m/s]; the velocity is along the normal.
    feasible: (N,) False where no outgoing speed reaches the place over the net, or no racket gives it."""

    position: Array
    normal: Array
    velocity: Array
    feasible: Array


@njit(cache=True)
def _landing(p, v, k, s, out):
    """Fly to the floor; out = x, y of landing and height above the tape at the net plane (-1 if never crossed)."""
    pos, vel = p.copy(), v.copy()
    clearance = -1.0
    for step in range(500):
        x0, y0, z0 = pos[0], pos[1], pos[2]
        rk4_step(pos, vel, k * flip_factor(_FLIP, (step + 0.5) * _STEP), s, _STEP)
        if x0 < 0.0 <= pos[0]:
            f = -x0 / (pos[0] - x0)
            clearance = z0 + f * (pos[2] - z0) - net_height(y0 + f * (pos[1] - y0))
        if pos[2] <= 0.0:
            f = z0 / (z0 - pos[2])
            out[0], out[1], out[2] = x0 + f * (pos[0] - x0), y0 + f * (pos[1] - y0), clearance
            return
    out[0], out[1], out[2] = pos[0], pos[1], clearance


@njit(cache=True)
def _aim(position, place, k, s, elevation, velocity, clearance, feasible):
    """Speed by bisection on the range, heading by turning towards the place; elevation raised until the net is cleared."""
    land = np.empty(3)
    v = np.empty(3)
    for i in range(position.shape[0]):
        rise = elevation[i]
        for _ in range(8):
            heading = np.arctan2(place[i, 1] - position[i, 1], place[i, 0] - position[i, 0])
            wanted = heading
            distance = np.hypot(place[i, 0] - position[i, 0], place[i, 1] - position[i, 1])
            speed = 0.0
            for _turn in range(2):
                low, high = SPEED_LIMITS
                for _halve in range(18):
                    speed = 0.5 * (low + high)
                    v[0] = speed * np.cos(rise) * np.cos(heading)
                    v[1] = speed * np.cos(rise) * np.sin(heading)
                    v[2] = speed * np.sin(rise)
                    _landing(position[i], v, k[i], s[i], land)
                    if np.hypot(land[0] - position[i, 0], land[1] - position[i, 1]) < distance:
                        low = speed
                    else:
                        high = speed
                heading += wanted - np.arctan2(land[1] - position[i, 1], land[0] - position[i, 0])
            velocity[i] = v
            clearance[i] = land[2]
            feasible[i] = land[2] >= NET_CLEARANCE and speed < SPEED_LIMITS[1] - 0.01
            if land[2] >= NET_CLEARANCE:
                break
            rise += 0.12


def aim(position: Array, place: Array, drag: Array, drift: Array, elevation: float = ELEVATION) -> tuple[Array, Array, Array]:
    """Outgoing shuttle velocity from position (N, 3) that lands at place (N, 2) on the far side, over the net.

    drag, drift (N,) [1/m, m/s^2]; elevation [rad] is where the search starts, steeper where the net asks for it.
    Returns velocity (N, 3) [m/s], clearance above the tape (N,) [m] and feasible (N,).
    """
    n = len(position)
    velocity, clearance, feasible = np.empty((n, 3)), np.empty(n), np.zeros(n, bool)
    _aim(np.ascontiguousarray(position, float), np.ascontiguousarray(place, float), np.asarray(drag, float),
         np.asarray(drift, float), np.full(n, elevation, float), velocity, clearance, feasible)
    return velocity, clearance, feasible


def plan_strike(position: Array, velocity_in: Array, place: Array, drag: Array, drift: Array,
                elevation: float = ELEVATION, restitution: float = RESTITUTION) -> Strike:
    """Racket place, normal and velocity that return shuttles meeting it at position (N, 3) with velocity_in (N, 3).

    place (N, 2): where the return should land [m, world]. See `aim` for the rest.
    """
    velocity_out, _, feasible = aim(position, place, drag, drift, elevation)
    normal, speed, solved = racket_for(velocity_in, velocity_out, restitution)
    return Strike(np.asarray(position, float), normal, normal * speed[:, None], feasible & solved)
