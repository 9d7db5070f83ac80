"""Where shots come from: flights that people hit (measured) and the launcher of the ETH paper (sampled).

Measured: `sim/data/human_shots.csv`, 37 flights of amateurs on a court, each with its own start state, drag and drift.
Launcher: the sampling box of Ma et al., Science Robotics 2025, supplement (court frame there, +x towards the opponent).
"""

import csv
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from perception.flight import fly, sample_coefficients
from sim.court import HOME_X

HUMAN_SHOTS = Path(__file__).parent / "data" / "human_shots.csv"
GRID = 0.02  # [s] control period: interceptions lie on this grid
HORIZON = 120  # [GRID] longest flight looked at, 2.4 s; the longest measured one falls through 1.8 m after 2.0 s
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


def scattered_human_shots(rng: np.random.Generator, count: int) -> Shots:
    """Measured flights drawn at random, each with velocity scattered by 3 % per axis and drag by 3 %, our choice: enough
    that no two training shots are alike, less than the spread between neighbouring measured ones."""
    shots = human_shots()
    shots = shots.take(rng.integers(len(shots), size=count))
    velocity = shots.velocity * (1 + 0.03 * rng.standard_normal((count, 3)))
    drag = shots.drag * (1 + 0.03 * rng.standard_normal(count))
    return Shots(shots.position, velocity, drag, shots.drift, shots.label)


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
