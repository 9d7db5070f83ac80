"""What the robots are asked to hit next: swings drawn for training and evaluation, or laid out shot by shot for play.

A swing is an optional wait, then a command with a shuttle that arrives at the commanded point at the commanded time. Two
kinds of command are mixed in training: planned ones have normal and speed as the strike planner gave them for the shot, at a
place of its own near home; drilled ones draw both at random, so that the policy learns to follow commands a planner never
happened to give. Play plans each shot at the place where it really comes down.
"""

from dataclasses import dataclass, fields

import numpy as np

from policy.commander import RETURN_PLACE
from policy.strike import plan_strike
from sim.court import HOME_X
from sim.scale import TaskScale
from sim.serves import Shots, human_like_shots, launcher_shots, meet, moved_to

Array = np.ndarray


@dataclass
class Swings:
    """N swings. wait (N,), time (N,) [control steps]; position, normal, velocity (N, 3) relative to home [m, -, m/s];
    launch (N,) [control steps] before the strike at which the shuttle appears (0: none) with shuttle_position and
    shuttle_velocity (N, 3) [world], drag, drift (N,); tag (N,): number of the shot, -1 for drawn ones; seen (N,): the robot knows of
    place and time what it sees (`perceive.py`), else it is told the truth."""

    wait: Array
    time: Array
    position: Array
    normal: Array
    velocity: Array
    launch: Array
    shuttle_position: Array
    shuttle_velocity: Array
    drag: Array
    drift: Array
    tag: Array
    seen: Array

    def take(self, ids: Array) -> "Swings":
        """The swings ids."""
        return Swings(*(getattr(self, f.name)[ids] for f in fields(self)))

    @staticmethod
    def idle(count: int) -> "Swings":
        """Swings that wait for ever: nothing to hit."""
        zero, vector = np.zeros(count), np.zeros((count, 3))
        forward = np.tile([1.0, 0.0, 0.0], (count, 1))
        return Swings(np.full(count, np.iinfo(np.int64).max // 2), np.ones(count, int), vector, forward, vector.copy(), zero.astype(int),
                      vector.copy(), vector.copy(), zero, zero.copy(), np.full(count, -1), np.zeros(count, bool))

    def put(self, ids: Array, other: "Swings") -> None:
        """Overwrite swings ids with other, in order."""
        for f in fields(self):
            getattr(self, f.name)[ids] = getattr(other, f.name)


@dataclass(frozen=True)
class SwingRange:
    """From what swings are drawn. x, y, height: (low, high) relative to home, height above the standing base [m]; speed [m/s];
    time, wait [control steps, high excluded]; wait_share: part of swings with a wait; elevation, azimuth [rad] of the normal;
    planned_share: part of commands that come from the strike planner; seen_share: part of swings of which the robot knows what it sees,
    whose flights begin at their hit; rush_share: part of the others with 0.6 s or more wherever they are; hurry: 0 to 1, how far the shortest time sinks from
    time[0] towards what the target's distance allows at best."""

    x: tuple[float, float]
    y: tuple[float, float]
    height: tuple[float, float]
    speed: tuple[float, float]
    time: tuple[int, int] = (75, 101)
    wait: tuple[int, int] = (10, 50)
    wait_share: float = 0.0
    elevation: tuple[float, float] = (0.1, 1.0)
    azimuth: tuple[float, float] = (-0.4, 0.4)
    planned_share: float = 0.0
    hurry: float = 0.0
    seen_share: float = 0.0
    rush_share: float = 0.0

    @staticmethod
    def box(scale: TaskScale, spread: float = 1.0, top_speed: float | None = None) -> "SwingRange":
        """The whole box of targets of a robot, as evaluation draws from it. spread scales its floor plan; top_speed [m/s] of
        the racket, two thirds of the swing speed if left out."""
        x, y = spread * scale.box_x, spread * scale.box_y
        fast = scale.swing_speed / 1.5 if top_speed is None else top_speed
        return SwingRange((-x, x), (-y, y), (scale.strike_low, scale.strike_high), (SLOWEST, fast))


SLOWEST = 2.0  # [m/s] of the racket; our choice: a push at the net, slower strikes are of no use
RUSH = 30  # [control steps] shortest time of a rushed target: 0.6 s, what is left when a hard shot is first seen
BEST_TIME, BEST_PACE = 25.0, 32.0  # [control steps] a near target in 0.5 s; a far one 0.64 of its walking time later: arm and legs share the way


class ShotPool:
    """Flights kept ready on the control grid, relative to the point where they are met, with a planned strike each, for a robot
    of the given scale."""

    def __init__(self, rng: np.random.Generator, scale: TaskScale, count: int = 2048, human_share: float = 0.7) -> None:
        humans = int(count * human_share)
        human, launcher = human_like_shots(rng, humans), launcher_shots(rng, count - humans)
        shots = Shots(*(np.concatenate([getattr(human, f.name), getattr(launcher, f.name)]) for f in fields(Shots)))
        self.scale = scale
        met = meet(shots, scale.base_height + rng.uniform(scale.strike_low, scale.strike_high, count))
        met = met.take(np.flatnonzero(met.steps > 0))
        count = len(met.steps)
        place = np.stack([HOME_X + scale.box_x * rng.uniform(-1, 1, count), scale.box_y * rng.uniform(-1, 1, count)], axis=1)
        met = moved_to(met, place)
        landing = np.stack([rng.uniform(1.8, 3.0, count), rng.uniform(-1.2, 1.2, count)], axis=1)
        strike = plan_strike(met.meeting[:, :3], met.meeting[:, 3:], landing, met.shots.drag, met.shots.drift)
        keep = np.flatnonzero(strike.feasible)
        self.path = met.path[keep]
        self.path[:, :, :3] -= met.meeting[keep, None, :3]
        self.steps = met.steps[keep]
        self.drag, self.drift = met.shots.drag[keep], met.shots.drift[keep]
        self.normal, self.velocity = strike.normal[keep], strike.velocity[keep]

    def __len__(self) -> int:
        return len(self.steps)


def draw_swings(rng: np.random.Generator, count: int, span: SwingRange, pool: ShotPool) -> Swings:
    """Draw count swings from a range, each with a flight from the pool that meets the target on time."""
    shot = rng.integers(len(pool), size=count)
    position = np.stack([rng.uniform(*span.x, count), rng.uniform(*span.y, count),
                         pool.scale.standing_height + rng.uniform(*span.height, count)], axis=1)
    rise, turn = rng.uniform(*span.elevation, count), rng.uniform(*span.azimuth, count)
    normal = np.stack([np.cos(rise) * np.cos(turn), np.cos(rise) * np.sin(turn), np.sin(rise)], axis=1)
    velocity = normal * rng.uniform(*span.speed, count)[:, None]
    planned = rng.random(count) < span.planned_share
    normal = np.where(planned[:, None], pool.normal[shot], normal)
    velocity = np.where(planned[:, None], pool.velocity[shot], velocity)
    best = BEST_TIME + BEST_PACE / pool.scale.walk_speed * np.hypot(position[:, 0], position[:, 1])
    shortest = np.minimum(span.time[0], span.time[0] + span.hurry * (best - span.time[0]))
    if span.rush_share:
        shortest = np.where(rng.random(count) < span.rush_share, RUSH, shortest)
    time = rng.integers(np.round(shortest).astype(int), span.time[1])
    wait = np.where(rng.random(count) < span.wait_share, rng.integers(*span.wait, size=count), 0)
    # a long flight enters the scene on its way; a little later than the command, so that the last return has time to land
    launch = np.maximum(np.minimum(pool.steps[shot], time - 10), 1)
    seen = rng.random(count) < span.seen_share if span.seen_share else np.zeros(count, bool)
    launch, time = np.where(seen, pool.steps[shot], launch), np.where(seen, pool.steps[shot] + 1, time)
    start = pool.path[shot, pool.steps[shot] - launch]
    return Swings(wait, time, position, normal, velocity, launch, start[:, :3] + position + [HOME_X, 0, 0], start[:, 3:],
                  pool.drag[shot], pool.drift[shot], np.full(count, -1), seen)


def swings_for_shots(shots: Shots, height: float, wait: int, place: Array | None = None) -> tuple[Swings, Array]:
    """One swing per shot, planned to return it to RETURN_PLACE, as play serves them.

    height [m] at which the falling shuttle is met; wait [control steps] before it is hit; place (N, 2) relative to home:
    where it is met [m], None leaves the flights where they are. Returns the swings and the (N,) ids of the shots that
    come down through the height at all, of which there is one swing each.
    """
    met = meet(shots, height)
    usable = np.flatnonzero(met.steps > 0)
    met = met.take(usable)
    if place is not None:
        met = moved_to(met, place[usable] + [HOME_X, 0.0])
    n = len(usable)
    strike = plan_strike(met.meeting[:, :3], met.meeting[:, 3:], np.tile([RETURN_PLACE], (n, 1)), met.shots.drag, met.shots.drift)
    return Swings(np.full(n, wait), met.steps.copy(), strike.position - [HOME_X, 0, 0], strike.normal, strike.velocity,
                  met.steps.copy(), met.path[:, 0, :3], met.path[:, 0, 3:], met.shots.drag, met.shots.drift, usable,
                  np.zeros(n, bool)), usable


