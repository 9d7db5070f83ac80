"""Who plays on the far side: runs to where the robot's return comes down, and hits a shot as people hit.

A model of a friendly amateur, not a measured one: it has a reaction time, a running speed and a reach, hits shots from the
density fitted to measured human shots (`sim/serves.py`), chooses among them by the height it can hit at, and aims near the
robot. What it cannot reach, or what goes out, ends the rally.
"""

from dataclasses import dataclass

import numpy as np

from perception.flight import fly
from sim.court import HOME_X, NET_POST, is_in
from sim.serves import GRID, HORIZON, Shots, height_over_net, human_like_shots, meet, moved_to

TRIES = 8  # shots that fit best from which one that passes the net is chosen
Array = np.ndarray


@dataclass(frozen=True)
class OpponentCfg:
    """home [m, world]; reaction [s] after the return is hit; speed [m/s] of running; reach [m] of arm and racket; low, high [m]:
    heights it hits at; choices: shots it picks from; aim_x, aim_y: half widths of where its shots come down around the
    robot's home [m]. All our choice, of an amateur who wants the rally to go on; none is measured."""

    home: tuple[float, float] = (3.2, 0.0)
    reaction: float = 0.3
    speed: float = 3.0
    reach: float = 0.9
    low: float = 0.3
    high: float = 2.7
    choices: int = 2048
    aim_x: float = 0.5
    aim_y: float = 0.9

    def __post_init__(self) -> None:
        if self.home[0] <= 0 or self.speed <= 0 or not 0 <= self.low < self.high:
            raise ValueError("an opponent stands at x > 0, runs at a positive speed and hits between low and high; "
                             f"got home {self.home}, speed {self.speed}, low {self.low}, high {self.high}")


@dataclass(frozen=True)
class Answers:
    """reached (N,) bool: the opponent hits the shuttle; steps (N,) [GRID] until then; shots: what it hits, meaningful where reached."""

    reached: Array
    steps: Array
    shots: Shots


class Opponent:
    """One player for any number of courts. meet_height [m]: at which the robot likes to meet a shuttle; the aim is there."""

    def __init__(self, rng: np.random.Generator, meet_height: float, cfg: OpponentCfg = OpponentCfg()) -> None:
        self.rng, self.cfg = rng, cfg
        pool = human_like_shots(rng, cfg.choices)
        met = meet(pool, meet_height)
        self._pool = met.take(np.flatnonzero(met.steps > 0))
        self._height = self._pool.shots.position[:, 2]
        carry = self._pool.meeting[:, :2] - self._pool.shots.position[:, :2]
        self._carry, self._course = np.hypot(carry[:, 0], carry[:, 1]), np.arctan2(carry[:, 1], carry[:, 0])

    def serve(self, count: int) -> Shots:
        """Shots to begin rallies with: drawn as people hit, moved so that they come down within the aim."""
        pick = self._pool.take(self.rng.integers(len(self._height), size=count))
        return moved_to(pick, self._aims(count)).shots

    def _aims(self, count: int) -> Array:
        return self.rng.uniform(-1, 1, (count, 2)) * (self.cfg.aim_x, self.cfg.aim_y) + (HOME_X, 0.0)

    def answer(self, position: Array, velocity: Array, drag: Array, drift: Array, since_hit: Array | float = 0.0) -> Answers:
        """What it does about returns that are in the air at position, velocity (N, 3), with drag, drift (N,), world frame, since_hit
        (N,) [s] after the robot hit them: it has seen them coming since.

        It lets a return go that will land out. Otherwise it runs, and hits at the point of the flight within reach where it has
        most time to spare; the shot is the one, of a few drawn, whose length fits best from there to the aim.
        """
        c, n = self.cfg, len(position)
        path = fly(position, velocity, drag, drift, GRID, HORIZON)
        x, y, z = path[:, :, 0], path[:, :, 1], path[:, :, 2]
        floor = np.argmax(z <= 0, axis=1)
        rows = np.arange(n)
        playable = (z <= 0).any(axis=1) & is_in(x[rows, floor], y[rows, floor])
        time = np.arange(HORIZON) * GRID
        run = np.maximum(np.hypot(x - c.home[0], y - c.home[1]) - c.reach, 0.0) / c.speed
        spare = np.reshape(since_hit, (-1, 1)) + time - c.reaction - run
        can = (spare >= 0) & (x > 0.1) & (z > c.low) & (z < c.high) & (time < floor[:, None] * GRID)
        steps = np.argmax(np.where(can, np.where(z > 1.0, spare + 10, spare), -np.inf), axis=1)  # above the waist if it can
        reached = playable & can.any(axis=1)
        hit = path[rows, steps, :3]
        to_aim = self._aims(n) - hit[:, :2]
        distance, course = np.hypot(to_aim[:, 0], to_aim[:, 1]), np.arctan2(to_aim[:, 1], to_aim[:, 0])
        # of the shots hit at about this height, the few that carry about right; of those, the best one that passes the net
        alike = np.argsort(np.abs(self._height[None] - hit[:, 2:]), axis=1)[:, :96]
        off = np.abs(self._carry[alike] - distance[:, None])
        few = np.take_along_axis(alike, np.argsort(off, axis=1)[:, :TRIES], axis=1)
        pool, pick = self._pool.shots, few.ravel()
        turn = np.repeat(course, TRIES) - self._course[pick]
        v = pool.velocity[pick]
        turned = np.stack([np.cos(turn) * v[:, 0] - np.sin(turn) * v[:, 1], np.sin(turn) * v[:, 0] + np.cos(turn) * v[:, 1], v[:, 2]], axis=1)
        tried = Shots(np.repeat(hit, TRIES, axis=0), turned, pool.drag[pick], pool.drift[pick], np.full(len(pick), "opponent"))
        over = (height_over_net(tried) > NET_POST).reshape(n, TRIES)
        best = rows * TRIES + np.argmax(over, axis=1)  # the first that does; they are in order of fit
        shots = tried.take(best)
        return Answers(reached, steps, shots)
