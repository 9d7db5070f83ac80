"""Where shots come from: flights that people hit (measured) and the launcher of the ETH paper (sampled).

Measured: `sim/data/human_shots.csv`, 37 flights of amateurs on a court, each with its own start state, drag and drift.
Launcher: the sampling box of Ma et al., Science Robotics 2025, supplement (court frame there, +x towards the opponent).
"""

import csv
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from perception.flight import DRAG_RANGE, fly, sample_coefficients
from sim.court import HOME_X, NET_POST

HUMAN_SHOTS = Path(__file__).parent / "data" / "human_shots.csv"
GRID = 0.02  # [s] control period: interceptions lie on this grid
HORIZON = 120  # [GRID] longest flight looked at, 2.4 s; the longest measured one falls through 1.8 m after 2.0 s
KERNEL = 0.4  # width of the density fitted to human shots, in standard deviations: our choice. Silverman's rule says 0.69 for 37
# shots in 8 dimensions, which blurs clears and smashes into one; near 0 the same 37 shots come again and again
Array = np.ndarray


@dataclass(frozen=True)
class Shots:
    """N flights in the world frame. position, velocity (N, 3) at the hit [m, m/s]; drag, drift (N,) [1/m, m/s^2];
    label (N,): where each came from."""

    position: Array
    velocity: Array
    drag: Array
    drift: Array
    label: Array

    def __len__(self) -> int:
        return len(self.drag)

    def take(self, ids: Array) -> "Shots":
        """The flights ids, which may repeat."""
        return Shots(*(getattr(self, f.name)[ids] for f in fields(self)))


@dataclass(frozen=True)
class Incoming:
    """Flights with the point where they are to be met. path (N, HORIZON, 6): position and velocity every GRID s from the
    hit, world frame; steps (N,): grid steps until they fall through the height asked for; 0 where they never do."""

    shots: Shots
    path: Array
    steps: Array

    def take(self, ids: Array) -> "Incoming":
        """The flights ids."""
        return Incoming(self.shots.take(ids), self.path[ids], self.steps[ids])

    @property
    def meeting(self) -> Array:
        """(N, 6) position and velocity at the meeting point [m, m/s]."""
        return self.path[np.arange(len(self.steps)), self.steps]


def human_shots(path: Path = HUMAN_SHOTS) -> Shots:
    """The measured flights, turned so that the hitter stands on the far side (x > 0) and hits towards the robot.

    In the file x is across the court and y along it. Turning about the vertical keeps left and right, and with them
    the sense of the drift.
    """
    rows = list(csv.DictReader(path.open()))
    number = {k: np.array([float(r[k]) for r in rows]) for k in rows[0] if k != "rally"}
    away = np.where(number["vy_mps"] < 0, 1.0, -1.0)  # hit towards -y: the hitter's side becomes +x
    position = np.stack([away * number["y_m"], -away * number["x_m"], number["z_m"]], axis=-1)
    velocity = np.stack([away * number["vy_mps"], -away * number["vx_mps"], number["vz_mps"]], axis=-1)
    label = np.array([f"{r['rally']}/{r['first_frame']}" for r in rows])
    return Shots(position, velocity, number["drag_per_m"], number["side_right_mps2"], label)


def launcher_shots(rng: np.random.Generator, count: int) -> Shots:
    """Shots of the paper's training distribution, moved with the robot's home: p0 x 6..7, y +-2, z -0.5..2.5 and
    v0 x -19..-13, y +-3, z 9..15, relative to home (z above the floor, raised to 0.2 m where the box dips below)."""
    position = rng.uniform([6, -2, -0.5], [7, 2, 2.5], (count, 3)) + [HOME_X, 0, 0]
    position[:, 2] = np.maximum(position[:, 2], 0.2)
    velocity = rng.uniform([-19, -3, 9], [-13, 3, 15], (count, 3))
    return Shots(position, velocity, *sample_coefficients(rng, count), np.full(count, "launcher"))


def human_like_shots(rng: np.random.Generator, count: int, source: Shots | None = None) -> Shots:
    """Shots drawn from a density fitted to the measured ones (or to `source`): a smoothed bootstrap.

    Features of a shot: log speed, elevation, course against straight ahead, place of the hit, drag, drift. Each sample is a
    measured shot plus KERNEL times Gaussian noise with the features' covariance, shrunk towards the mean so that variances
    stay as measured (Silverman, Density Estimation, 1986, section 6.4.1). Samples that no measured shot is like are drawn
    again: into the net, hit below 5 cm, or more than 10 % above the fastest.
    """
    measured = human_shots() if source is None else source
    features = _features(measured)
    mean = features.mean(axis=0)
    factor = np.linalg.cholesky(np.cov(features.T))
    top = 1.1 * np.exp(features[:, 0].max())
    kept: list[Shots] = []
    while sum(map(len, kept)) < count:
        n = 2 * count
        pick = rng.integers(len(measured), size=n)
        noise = KERNEL * rng.standard_normal((n, features.shape[1])) @ factor.T
        f = mean + (features[pick] - mean + noise) / np.sqrt(1 + KERNEL**2)
        speed, rise, course = np.exp(f[:, 0]), f[:, 1], f[:, 2]
        velocity = speed[:, None] * np.stack([-np.cos(rise) * np.cos(course), np.cos(rise) * np.sin(course), np.sin(rise)], axis=1)
        drawn = Shots(f[:, 3:6], velocity, np.clip(f[:, 6], *DRAG_RANGE), f[:, 7], np.full(n, "human-like"))
        like = (height_over_net(drawn) > NET_POST) & (drawn.position[:, 2] > 0.05) & (speed < top)
        kept.append(drawn.take(np.flatnonzero(like)))
    return Shots(*(np.concatenate([getattr(k, f.name) for k in kept])[:count] for f in fields(Shots)))


def _features(shots: Shots) -> Array:
    """(N, 8) what the density of human shots is fitted over."""
    v = shots.velocity
    speed = np.linalg.norm(v, axis=1)
    return np.column_stack([np.log(speed), np.arcsin(v[:, 2] / speed), np.arctan2(v[:, 1], -v[:, 0]), shots.position, shots.drag,
                            shots.drift])


def height_over_net(shots: Shots) -> Array:
    """(N,) height at which shots towards the robot pass the net's plane [m]; nan where they come down before it."""
    path = fly(shots.position, shots.velocity, shots.drag, shots.drift, GRID, HORIZON)
    past = path[:, :, 0] < 0
    rows, first = np.arange(len(shots)), np.maximum(np.argmax(past, axis=1), 1)
    a, b = path[rows, first - 1], path[rows, first]
    share = a[:, 0] / (a[:, 0] - b[:, 0])
    height = a[:, 2] + share * (b[:, 2] - a[:, 2])
    return np.where(past.any(axis=1) & (height > 0), height, np.nan)


def meet(shots: Shots, height: float | Array) -> Incoming:
    """Fly the shots and find the grid step nearest to where each falls through height [m], (N,) or one for all."""
    path = fly(shots.position, shots.velocity, shots.drag, shots.drift, GRID, HORIZON)
    z = path[:, :, 2]
    height = np.broadcast_to(np.asarray(height, float), (len(shots),))[:, None]
    falls = (z[:, :-1] >= height) & (z[:, 1:] < height) & (path[:, :-1, 5] < 0)
    first = np.argmax(falls, axis=1)
    rows = np.arange(len(shots))
    later_is_nearer = np.abs(z[rows, first + 1] - height[:, 0]) < np.abs(z[rows, first] - height[:, 0])
    return Incoming(shots, path, np.where(falls.any(axis=1), first + later_is_nearer, 0))


def moved_to(incoming: Incoming, place: Array) -> Incoming:
    """Shift each flight on the floor plan so that it is met at place (N, 2) [m, world]; heights stay."""
    shift = np.zeros((len(incoming.steps), 3))
    shift[:, :2] = place - incoming.meeting[:, :2]
    path = incoming.path.copy()
    path[:, :, :3] += shift[:, None]
    shots = incoming.shots
    return Incoming(Shots(shots.position + shift, shots.velocity, shots.drag, shots.drift, shots.label), path, incoming.steps)
