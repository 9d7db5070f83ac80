"""N shuttles through one control step: flight, racket contact in time, net, floor, and what became of each.

The racket is swept: between the two ends of a control step its centre follows the cubic Hermite curve through both
places and velocities, its face turns evenly, and the shuttle is tested against it every 5 ms with the crossing found by
linear interpolation. A racket at 12 m/s moves 6 cm in that time, so it cannot pass through a shuttle unseen.
"""

from dataclasses import dataclass, field

import numpy as np
from numba import njit

from perception.flight import FLIP_DRAG, flip_factor, rk4_step
from sim.court import HALF_WIDTH_DOUBLES, net_height
from sim.impact import CORK_RADIUS, FRAME, MISSED, RESTITUTION, bounce, face_at

IDLE, INCOMING, STRUCK, DOWN = 0, 1, 2, 3  # phase of a shuttle
SUBSTEPS = 4  # flight and contact steps per control step of 20 ms
SCATTER = 0.02  # [rad] standard deviation of the direction after a hit, each way: the flip seen from outside; a guess
NET_DROP = 0.05  # [m/s] what is left of the horizontal speed of a shuttle caught by the net

Array = np.ndarray


@dataclass
class RacketSweep:
    """Racket faces at one instant: position, velocity, normal, long_axis, each (N, 3), world frame."""

    position: Array
    velocity: Array
    normal: Array
    long_axis: Array


@dataclass
class Shuttles:
    """State of N shuttles, world frame. phase (N,) is IDLE, INCOMING, STRUCK or DOWN; the rest is explained by its name.

    contact_offset (N, 2): where the cork met the racket, along the long and the wide axis [m]; framed: it was the frame. flip,
    scatter, since_hit: drag and direction transient of the next hit, and time since it (negative: none yet). landing (N, 2): x, y on
    the floor [m]. wind (N, 3) [m/s] of the air it flies in; restitution (N,) of the racket that meets it. crossed: went over the tape after a strike; netted: caught by the net; tag: the caller's number of the shot.
    """

    count: int
    position: Array = field(init=False)
    velocity: Array = field(init=False)
    drag: Array = field(init=False)
    drift: Array = field(init=False)
    phase: Array = field(init=False)
    touched: Array = field(init=False)
    crossed: Array = field(init=False)
    netted: Array = field(init=False)
    contact_offset: Array = field(init=False)
    landing: Array = field(init=False)
    tag: Array = field(init=False)
    framed: Array = field(init=False)
    flip: Array = field(init=False)
    scatter: Array = field(init=False)
    since_hit: Array = field(init=False)
    wind: Array = field(init=False)
    restitution: Array = field(init=False)

    def __post_init__(self) -> None:
        n = self.count
        self.position, self.velocity = np.zeros((n, 3)), np.zeros((n, 3))
        self.drag, self.drift = np.full(n, 0.248), np.zeros(n)
        self.phase = np.full(n, IDLE, np.int8)
        self.touched, self.crossed, self.netted = np.zeros(n, bool), np.zeros(n, bool), np.zeros(n, bool)
        self.contact_offset, self.landing = np.zeros((n, 2)), np.full((n, 2), np.nan)
        self.tag, self.framed = np.full(n, -1), np.zeros(n, bool)
        self.flip, self.scatter, self.since_hit = np.zeros(n), np.zeros((n, 2)), np.full(n, -1.0)
        self.wind, self.restitution = np.zeros((n, 3)), np.full(n, RESTITUTION)

    def launch(self, ids: Array, position: Array, velocity: Array, drag: Array, drift: Array, tag: Array,
               rng: np.random.Generator) -> None:
        """Start new flights for shuttles ids, forgetting what the old ones did. rng: for what their next hit will be like."""
        self.position[ids], self.velocity[ids], self.drag[ids], self.drift[ids] = position, velocity, drag, drift
        self.phase[ids], self.tag[ids] = INCOMING, tag
        self.touched[ids] = self.crossed[ids] = self.netted[ids] = False
        self.contact_offset[ids], self.landing[ids] = 0.0, np.nan
        self.framed[ids], self.since_hit[ids] = False, -1.0
        self.flip[ids] = rng.uniform(*FLIP_DRAG, len(ids))
        self.scatter[ids] = SCATTER * rng.standard_normal((len(ids), 2))

    def clear(self, ids: Array) -> None:
        """Take shuttles ids out of the air."""
        self.phase[ids] = IDLE

    def step(self, before: RacketSweep, after: RacketSweep, dt: float) -> None:
        """Advance all shuttles by one control step of dt [s] while the rackets move from before to after."""
        _advance(self.position, self.velocity, self.drag, self.drift, self.phase, self.touched, self.crossed, self.netted,
                 self.contact_offset, self.landing, self.framed, self.flip, self.scatter, self.since_hit, self.wind,
                 self.restitution, before.position, before.velocity, before.normal, before.long_axis,
                 after.position, after.velocity, after.normal, after.long_axis, dt)


@njit(cache=True)
def _hermite(p0, v0, p1, v1, u, dt, pos, vel):
    """Cubic through both ends at fraction u of dt: place and velocity."""
    u2, u3 = u * u, u * u * u
    for i in range(3):
        pos[i] = ((2 * u3 - 3 * u2 + 1) * p0[i] + (u3 - 2 * u2 + u) * dt * v0[i]
                  + (-2 * u3 + 3 * u2) * p1[i] + (u3 - u2) * dt * v1[i])
        vel[i] = ((6 * u2 - 6 * u) * (p0[i] - p1[i]) / dt + (3 * u2 - 4 * u + 1) * v0[i] + (3 * u2 - 2 * u) * v1[i])


@njit(cache=True)
def _blend(a, b, u, out):
    size = 0.0
    for i in range(3):
        out[i] = (1 - u) * a[i] + u * b[i]
        size += out[i] * out[i]
    size = np.sqrt(size)
    for i in range(3):
        out[i] /= size


@njit(cache=True)
def _turn(v, up, left):
    """Turn a velocity by small angles [rad] up and to the left, keeping its size."""
    flat = np.hypot(v[0], v[1])
    speed = np.sqrt(flat * flat + v[2] * v[2])
    if flat < 1e-9:
        return
    rise, course = np.arctan2(v[2], flat) + up, np.arctan2(v[1], v[0]) + left
    v[0], v[1], v[2] = speed * np.cos(rise) * np.cos(course), speed * np.cos(rise) * np.sin(course), speed * np.sin(rise)


@njit(cache=True)
def _advance(p, v, k, s, phase, touched, crossed, netted, contact_offset, landing, framed, flip, scatter, since_hit,
             wind, racket_restitution, rp0, rv0, rn0, rl0, rp1, rv1, rn1, rl1, dt):
    h = dt / SUBSTEPS
    old, hit, rpos, rvel, rn, rl, rel = (np.empty(3), np.empty(3), np.empty(3), np.empty(3), np.empty(3), np.empty(3),
                                         np.empty(3))
    for i in range(p.shape[0]):
        if phase[i] == IDLE or phase[i] == DOWN:
            continue
        gap0 = 0.0
        if phase[i] == INCOMING:
            for a in range(3):
                gap0 += (p[i, a] - rp0[i, a]) * rn0[i, a]
        for sub in range(SUBSTEPS):
            for a in range(3):
                old[a] = p[i, a]
            drag = k[i]
            if since_hit[i] >= 0.0:
                drag *= flip_factor(flip[i], since_hit[i] + 0.5 * h)
                since_hit[i] += h
            for a in range(3):  # the model knows still air: fly in the air's frame and drift with it
                v[i, a] -= wind[i, a]
            rk4_step(p[i], v[i], drag, s[i], h)
            for a in range(3):
                v[i, a] += wind[i, a]
                p[i, a] += wind[i, a] * h
            if phase[i] == INCOMING:
                _hermite(rp0[i], rv0[i], rp1[i], rv1[i], (sub + 1.0) / SUBSTEPS, dt, rpos, rvel)
                _blend(rn0[i], rn1[i], (sub + 1.0) / SUBSTEPS, rn)
                gap1 = 0.0
                for a in range(3):
                    gap1 += (p[i, a] - rpos[a]) * rn[a]
                # the cork meets the strings from either side of the face
                side = 1.0 if gap0 > 0 else -1.0
                if side * gap0 >= CORK_RADIUS and side * gap1 < CORK_RADIUS:
                    f = (side * gap0 - CORK_RADIUS) / (side * gap0 - side * gap1)
                    u = (sub + f) / SUBSTEPS
                    _hermite(rp0[i], rv0[i], rp1[i], rv1[i], u, dt, rpos, rvel)
                    _blend(rn0[i], rn1[i], u, rn)
                    _blend(rl0[i], rl1[i], u, rl)
                    along, square = 0.0, 0.0
                    for a in range(3):
                        hit[a] = old[a] + f * (p[i, a] - old[a])
                        rel[a] = hit[a] - rpos[a] - side * CORK_RADIUS * rn[a]
                        along += rel[a] * rl[a]
                        square += rel[a] * rel[a]
                    wide = np.sqrt(max(square - along * along, 0.0))
                    kind, restitution = face_at(along, wide)
                    if kind != MISSED:
                        framed[i] = kind == FRAME
                        bounce(v[i], rvel, rn, restitution * racket_restitution[i] / RESTITUTION, v[i])
                        _turn(v[i], scatter[i, 0], scatter[i, 1])
                        since_hit[i] = (1 - f) * h
                        for a in range(3):
                            p[i, a] = hit[a] + (1 - f) * h * v[i, a]
                        phase[i] = STRUCK
                        touched[i] = True
                        contact_offset[i, 0], contact_offset[i, 1] = along, wide
                gap0 = gap1
            if (old[0] < 0.0) != (p[i, 0] < 0.0):
                f = old[0] / (old[0] - p[i, 0])
                y = old[1] + f * (p[i, 1] - old[1])
                z = old[2] + f * (p[i, 2] - old[2])
                if z < net_height(y) and abs(y) <= HALF_WIDTH_DOUBLES:
                    netted[i] = True
                    p[i, 0], p[i, 1], p[i, 2] = (-0.02 if old[0] < 0 else 0.02), y, z
                    v[i, 0], v[i, 1], v[i, 2] = (-NET_DROP if old[0] < 0 else NET_DROP), 0.0, min(v[i, 2], 0.0)
                elif phase[i] == STRUCK and p[i, 0] >= 0.0 and abs(y) <= HALF_WIDTH_DOUBLES:
                    crossed[i] = True
            if p[i, 2] <= 0.0:
                f = old[2] / (old[2] - p[i, 2])
                landing[i, 0] = old[0] + f * (p[i, 0] - old[0])
                landing[i, 1] = old[1] + f * (p[i, 1] - old[1])
                p[i, 0], p[i, 1], p[i, 2] = landing[i, 0], landing[i, 1], 0.0
                for a in range(3):
                    v[i, a] = 0.0
                phase[i] = DOWN
                break
