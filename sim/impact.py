"""Shuttle against racket, and its inverse. Needs numpy and numba only: the strike planner on the robot uses it.

The racket is heavy beside a 5 g shuttle, so it keeps its velocity. Against the strings the normal part of the relative
velocity turns round, scaled by a restitution coefficient that falls off from the middle of the face; the tangential part is
slowed by friction, as much as sliding allows and at most by a share GRIP that a rolling cork would lose. Around the
strings lies the frame, which is hard: little restitution, the same friction. Energy in the racket's frame never grows.

None of the coefficients has been measured on a badminton racket by us or in a source we could read; each is marked, and
training should not rely on any of them.
"""

import numpy as np
from numba import njit

RESTITUTION, RESTITUTION_SPREAD = 0.75, 0.1  # normal, mid-face; working values, unconfirmed
EDGE_LOSS = 0.3  # share of it lost at the rim of the strings, growing with the square of the distance; guess
FRAME_RESTITUTION = 0.35  # guess
FRICTION = 0.3  # of cork on strings; guess
GRIP = 0.28  # 2/7: the share of its sliding speed that a solid ball loses when friction sets it rolling; a cork is no ball
HEAD_LONG, HEAD_WIDE = 0.14, 0.11  # [m] half axes of the strings: BWF law 4 allows 0.28 x 0.22 m
FRAME_WIDTH = 0.01  # [m] outside the strings; BWF law 4: head at most 0.29 x 0.23 m, and the cork has a radius
CORK_RADIUS = 0.013  # [m] BWF law 2: 25 to 28 mm across

MISSED, FRAME, STRINGS = 0, 1, 2  # what a point of the racket's plane is
Array = np.ndarray


@njit(cache=True)
def face_at(along, wide):
    """What lies at (along, wide) [m] from the middle of the face, along its long and wide axes, and its restitution."""
    square = (along / HEAD_LONG) ** 2 + (wide / HEAD_WIDE) ** 2
    if square <= 1.0:
        return STRINGS, RESTITUTION * (1.0 - EDGE_LOSS * square)
    if (along / (HEAD_LONG + FRAME_WIDTH)) ** 2 + (wide / (HEAD_WIDE + FRAME_WIDTH)) ** 2 <= 1.0:
        return FRAME, FRAME_RESTITUTION
    return MISSED, 0.0


@njit(cache=True)
def bounce(v, vr, n, restitution, out):
    """Velocity out of one shuttle after impact, all (3,) [m/s]: v before, vr of the racket, n unit normal of either sign."""
    u0, u1, u2 = v[0] - vr[0], v[1] - vr[1], v[2] - vr[2]
    along = u0 * n[0] + u1 * n[1] + u2 * n[2]
    t0, t1, t2 = u0 - along * n[0], u1 - along * n[1], u2 - along * n[2]
    slide = np.sqrt(t0 * t0 + t1 * t1 + t2 * t2)
    loss = GRIP if slide < 1e-9 else min(GRIP, FRICTION * (1 + restitution) * abs(along) / slide)
    push = (1 + restitution) * along
    out[0] = v[0] - push * n[0] - loss * t0
    out[1] = v[1] - push * n[1] - loss * t1
    out[2] = v[2] - push * n[2] - loss * t2


@njit(cache=True)
def _bounce_all(v, vr, n, restitution, out):
    for i in range(v.shape[0]):
        bounce(v[i], vr[i], n[i], restitution[i], out[i])


def impact(velocity: Array, racket_velocity: Array, normal: Array, restitution: float | Array = RESTITUTION) -> Array:
    """Shuttle velocities (N, 3) after impact, from shuttle and racket velocities (N, 3) [m/s] and unit normals (N, 3)."""
    out = np.empty(velocity.shape)
    _bounce_all(np.asarray(velocity, float), np.asarray(racket_velocity, float), np.asarray(normal, float),
                np.broadcast_to(np.asarray(restitution, float), len(velocity)), out)
    return out


def racket_for(velocity_in: Array, velocity_out: Array, restitution: float = RESTITUTION) -> tuple[Array, Array, Array]:
    """Inverse of `impact` for a racket that moves along its own normal.

    velocity_in, velocity_out (N, 3) [m/s]. Returns unit normal (N, 3), speed along it (N,) [m/s] and solved (N,): False where
    the two velocities are equal or no racket does it to 1 mm/s.

    Without friction the change of velocity is along the normal. With it, the tangential loss of the last guess is taken out
    of the change and the normal read off again; the loss is under a third, so this settles in a few turns.
    """
    change = velocity_out - velocity_in
    loss = np.zeros_like(change)
    with np.errstate(invalid="ignore", divide="ignore"):
        for _ in range(40):
            push = change - loss
            size = np.linalg.norm(push, axis=-1, keepdims=True)
            normal = push / size
            sliding = velocity_in - np.sum(velocity_in * normal, axis=-1, keepdims=True) * normal
            slide = np.linalg.norm(sliding, axis=-1, keepdims=True)
            loss = -np.minimum(GRIP, FRICTION * size / np.maximum(slide, 1e-12)) * sliding
        speed = np.sum(velocity_in * normal, axis=-1) + size[..., 0] / (1 + restitution)
        error = np.linalg.norm(impact(velocity_in, normal * speed[..., None], normal, restitution) - velocity_out, axis=-1)
    return normal, speed, error < 1e-3
