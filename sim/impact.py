"""Shuttle against string bed, and its inverse. Needs numpy and numba only: the strike planner on the robot uses it.

Model: the racket is heavy beside a 5 g shuttle and its face is smooth, so the normal component of the relative velocity
turns round, scaled by a restitution coefficient, and the tangential one stays. Friction of the strings, off-centre loss
and frame hits are not modelled yet.
"""

import numpy as np
from numba import njit

RESTITUTION = 0.75  # normal, of the string bed; 0.75 +- 0.1 is an unconfirmed working value, to be identified on hardware
HEAD_LONG, HEAD_WIDE = 0.14, 0.11  # [m] half axes of the strings: BWF law 4 allows 0.28 x 0.22 m
CORK_RADIUS = 0.013  # [m] BWF law 2: 25 to 28 mm across

Array = np.ndarray


@njit(cache=True)
def reflect(v, vr, n, restitution, out):
    """Velocity of one shuttle after impact: out = v - (1 + e) ((v - vr) . n) n. All (3,) [m/s]; n unit, either sign."""
    along = (v[0] - vr[0]) * n[0] + (v[1] - vr[1]) * n[1] + (v[2] - vr[2]) * n[2]
    for i in range(3):
        out[i] = v[i] - (1 + restitution) * along * n[i]


def impact(velocity: Array, racket_velocity: Array, normal: Array, restitution: float = RESTITUTION) -> Array:
    """Shuttle velocities (N, 3) after impact, from shuttle and racket velocities (N, 3) [m/s] and unit normals (N, 3)."""
    along = np.sum((velocity - racket_velocity) * normal, axis=-1, keepdims=True)
    return velocity - (1 + restitution) * along * normal


def racket_for(velocity_in: Array, velocity_out: Array, restitution: float = RESTITUTION) -> tuple[Array, Array]:
    """Inverse of `impact`: unit normal (N, 3) and racket speed along it (N,) [m/s] that turn velocity_in into velocity_out.

    The velocity change is along the normal, which fixes both. Undefined (NaN) where the two velocities are equal.
    """
    change = velocity_out - velocity_in
    size = np.linalg.norm(change, axis=-1, keepdims=True)
    normal = change / size
    along_in = np.sum(velocity_in * normal, axis=-1)
    return normal, along_in + size[..., 0] / (1 + restitution)
