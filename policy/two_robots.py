"""`birdie play --rally`: two robots on one court, each with its own cameras, play a shuttle to and fro.

Robots i and i + N of one batch share court i. Each lives in a world of its own, turned half round about the middle of the net, so that
both see the net ahead; the shuttle that one has hit is handed to the other's world once it flies steadily. What a robot plans comes from
the flight that it tracks itself: place, time, and the racket that sends the shuttle on. It is told nothing of the other robot.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from perception.crossing_batch import come_down
from perception.errors import UserError
from policy.inference import OnnxPolicy
from policy.perceive import PerceptionCfg
from policy.play import REST, Watcher
from policy.strike import plan_strike
from policy.swings import Swings
from policy.task import BadmintonTask, Step, TaskCfg
from sim.court import HALF_LENGTH, HALF_WIDTH_DOUBLES, is_in
from sim.robot import load_robot
from sim.serves import GRID, Shots, human_like_shots, meet, moved_to
from sim.shuttle import DOWN, IDLE, INCOMING, STRUCK

Array = np.ndarray
HALF_TURN = np.array([-1.0, -1.0, 1.0])  # from one robot's world to the other's
STEADY = 0.1  # [s] after a hit: what the flip adds to the drag is below a tenth of its first value (`perception/flight.py`)
BETTER = 0.03  # [m] a strike is planned anew when the interception has moved by so much, our choice: a plan takes a millisecond
LEAVE = 0.3  # [m] beyond the lines at which a flight that is tracked is left alone, our choice: as far as it is off a second before


@dataclass(frozen=True)
class PairCfg:
    """rallies: in all; courts: side by side; longest: hits after which a rally is called off; stand [m] of both from the net and deep [m]: how far
    beyond the far robot's home its return would land, both our choice: at 4 m each, returns need a racket at 12 to 14 m/s; rise [rad] of returns
    at least: higher ones leave more time; told: the truth instead of what the cameras see, to tell their share of the misses."""

    rallies: int = 50
    courts: int = 50
    longest: int = 200
    stand: float = 2.5
    deep: float = 0.6
    rise: float = 0.75
    told: bool = False
    seed: int = 11


def lands_out(state: Array, margin: float = LEAVE) -> Array:
    """(N,) whether flights towards us, states (N, 8) of `perception/filter.py`, come down more than margin [m] out of our half."""
    gone, place, _ = come_down(state, np.zeros(len(state)), np.ones(len(state), bool))
    with np.errstate(invalid="ignore"):
        out = (place[:, 0] < -HALF_LENGTH - margin) | (np.abs(place[:, 1]) > HALF_WIDTH_DOUBLES + margin)
    return np.isfinite(gone) & out


class Pair:
    """Bookkeeping of N courts: whose hit is awaited, how long each rally is, and how past ones ended."""

    def __init__(self, task: BadmintonTask, cfg: PairCfg) -> None:
        self.task, self.cfg, self.n = task, cfg, task.count // 2
        n = self.n
        self.rng = np.random.default_rng(cfg.seed)
        self.hits = np.zeros(n, int)
        self.playing = np.zeros(n, bool)
        self.flying = np.zeros(n, int)  # robot that the shuttle of each court flies to
        self.handed = np.zeros(n, bool)  # it is in that robot's world
        self.planned = np.full((task.count, 3), np.nan)  # interception that the strike was planned for
        self.begun = 0
        self.lengths: list[int] = []
        self.ends: Counter[str] = Counter()
        pool = human_like_shots(np.random.default_rng(cfg.seed + 1), 512)
        met = meet(pool, task.robot.scale.meet_height)
        self.pool = met.take(np.flatnonzero(met.steps > 0))

    # -- flights ------------------------------------------------------------------------------------------------------
    def begin(self, courts: Array) -> None:
        """Throw shuttles in, as people hit them, while there are rallies left to play; to the two robots in turn."""
        courts = courts[: max(self.cfg.rallies - self.begun, 0)]
        if len(courts) == 0:
            return
        robots = courts + self.n * ((self.begun + np.arange(len(courts))) % 2)
        self.begun += len(courts)
        self.hits[courts], self.playing[courts] = 0, True
        place = self.rng.uniform(-1, 1, (len(courts), 2)) * (0.3, 0.5) - (self.cfg.stand, 0.0)
        shots = moved_to(self.pool.take(self.rng.integers(len(self.pool.steps), size=len(courts))), place).shots
        self.flying[courts], self.handed[courts] = robots, True
        self._send(robots, shots, np.full(len(robots), REST))

    def _send(self, robots: Array, shots: Shots, wait: Array) -> None:
        """Shots fly to robots, wait (n,) control steps from now; those that never come down where they can be met are just watched."""
        task = self.task
        height = task.robot.scale.meet_height
        met = meet(shots, height)
        steps = np.where(met.steps > 0, met.steps, 60)
        swings = Swings.idle(len(robots))
        swings.wait, swings.time, swings.launch = np.maximum(wait, 1), steps + 1, steps + 1
        swings.position = met.path[np.arange(len(steps)), met.steps, :3] - task.physics.home
        swings.position[:, 2] = height
        swings.shuttle_position, swings.shuttle_velocity = shots.position, shots.velocity
        swings.drag, swings.drift, swings.tag = shots.drag, shots.drift, robots
        swings.seen = np.full(len(robots), not self.cfg.told)
        if self.cfg.told:
            strike = self._plan(swings.position + task.physics.home, met.path[np.arange(len(steps)), met.steps, 3:], shots.drag, shots.drift)
            swings.normal, swings.velocity = strike
        self.planned[robots] = np.nan
        task.give(robots, swings)

    def _plan(self, place: Array, arrival: Array, drag: Array, drift: Array) -> tuple[Array, Array]:
        """Normals and velocities (n, 3) that send shuttles on to the far robot's home."""
        aim = np.tile([self.cfg.stand + self.cfg.deep, 0.0], (len(place), 1))
        strike = plan_strike(place, arrival, aim, drag, drift, self.cfg.rise)
        return strike.normal, strike.velocity

    def plan(self) -> None:
        """Each robot plans from the flight it tracks; what will land out is left."""
        p, task = self.task.perception, self.task
        if p is None or self.cfg.told:
            return
        due = p.known & task.current.seen & (task.wait == 0) & ~(np.linalg.norm(p.place - self.planned, axis=1) < BETTER)
        ids = np.flatnonzero(due)
        if len(ids):
            out = lands_out(p.tracker.state[ids])
            p.left[ids[out]], p.known[ids[out]] = True, False
            ids = ids[~out]
        if len(ids):
            state = p.tracker.state[ids]
            task.current.normal[ids], task.current.velocity[ids] = self._plan(p.place[ids], p.arrival[ids], state[:, 6], state[:, 7])
            self.planned[ids] = p.place[ids]

    # -- after a control step -----------------------------------------------------------------------------------------
    def look(self, step: Step) -> None:
        """Falls, hits, shuttles handed over, and shuttles on the floor."""
        s, n = self.task.shuttles, self.n
        for i in np.flatnonzero(step.done):
            if self.playing[i % n]:
                self._end(int(i % n), "a robot fell")
        courts = np.flatnonzero(self.playing)
        robots = self.flying[courts]
        hit = robots[self.handed[courts] & (s.phase[robots] == STRUCK)]
        if len(hit):
            other = (hit + n) % (2 * n)
            earlier = s.touched[other] & (s.phase[other] != IDLE)  # their hit was good: it was met
            self.hits[hit % n] += earlier
            s.clear(other)
            self.flying[hit % n], self.handed[hit % n] = other, False
            for c in hit[self.hits[hit % n] >= self.cfg.longest] % n:
                self._end(int(c), "called off")
        courts = np.flatnonzero(self.playing & ~self.handed)
        receiver = self.flying[courts]
        hitter = (receiver + n) % (2 * n)
        steady = (s.phase[hitter] == STRUCK) & (s.since_hit[hitter] >= STEADY)
        if steady.any():
            self.handed[courts[steady]] = True
            a = hitter[steady]
            self._send(receiver[steady], Shots(s.position[a] * HALF_TURN, s.velocity[a] * HALF_TURN, s.drag[a], s.drift[a], np.full(len(a), "robot")), np.ones(len(a), int))
        self._follow()
        for c in np.flatnonzero(self.playing):
            self._floor(int(c))

    def _follow(self) -> None:
        """On the hitter's half the shuttle is where the hitter's world has it."""
        s, n = self.task.shuttles, self.n
        courts = np.flatnonzero(self.playing & self.handed)
        receiver = self.flying[courts]
        hitter = (receiver + n) % (2 * n)
        same = (s.phase[hitter] == STRUCK) & (s.phase[receiver] == INCOMING) & (s.position[hitter, 0] < -0.1)
        a, b = hitter[same], receiver[same]
        s.position[b], s.velocity[b] = s.position[a] * HALF_TURN, s.velocity[a] * HALF_TURN

    def _floor(self, c: int) -> None:
        s, n = self.task.shuttles, self.n
        receiver = int(self.flying[c])
        hitter = (receiver + n) % (2 * n)
        if s.phase[hitter] == DOWN and s.touched[hitter]:  # the last hit was not met
            good = bool(s.crossed[hitter] and is_in(*s.landing[hitter]))
            self.hits[c] += good
            self._end(c, "not met" if good else "into the net" if s.netted[hitter] or not s.crossed[hitter] else "out")
        elif s.phase[receiver] == DOWN and self.handed[c] and s.phase[hitter] == IDLE:
            self._end(c, "the first shuttle was not met")

    def _end(self, c: int, why: str) -> None:
        self.lengths.append(int(self.hits[c]))
        self.ends[why] += 1
        self.playing[c] = False
        robots = np.array([c, c + self.n])
        self.task.shuttles.clear(robots)
        self.task.give(robots, Swings.idle(2))


def play_pair(policy: OnnxPolicy, cfg: PairCfg = PairCfg(), threads: int = 0, watch: Watcher | None = None, robot_name: str = "") -> dict[str, Any]:
    """Play cfg.rallies rallies between two of a kind; returns lengths and ends. A rally's length is the number of good hits by both.

    watch, robot_name: as in `policy.play.play`. Raises UserError for sizes that make no sense.
    """
    if min(cfg.rallies, cfg.courts, cfg.longest) < 1 or not 1.0 <= cfg.stand <= 5.0:
        raise UserError(f"rallies, courts and the longest rally must be at least 1, robots 1 to 5 m from the net; got {cfg}")
    robot = load_robot(robot_name or policy.contract.robot)
    courts = min(cfg.courts, cfg.rallies)
    task = BadmintonTask(robot, 2 * courts, lambda ids: Swings.idle(len(ids)), seed=cfg.seed, threads=threads,
                         cfg=TaskCfg(swings=10**9, perception=PerceptionCfg(), told_of_sight=policy.contract.sees))
    policy.contract.check_same(task.contract)
    task.physics.home = np.array([-cfg.stand, 0.0, 0.0])
    observation = task.reset()
    pair, number = Pair(task, cfg), 0
    while True:
        pair.begin(np.flatnonzero(~pair.playing))
        if not pair.playing.any() and pair.begun >= cfg.rallies:
            break
        step = task.step(policy(observation[:, : task.actor_size]))
        pair.look(step)
        pair.plan()
        observation = step.observation
        if watch is not None:
            watch(task, step, number)
        number += 1
    lengths = np.array(pair.lengths)
    return {
        "rallies": len(lengths), "median_hits": float(np.median(lengths)), "mean_hits": float(lengths.mean()), "best_hits": int(lengths.max()),
        "hits": int(lengths.sum()), "ends": dict(pair.ends.most_common()), "lengths": lengths.tolist(), "stand_m": cfg.stand, "told": cfg.told, "seed": cfg.seed,
        "seconds_played": number * GRID, "training": {k: policy.training.get(k) for k in ("steps", "minutes", "commit")},
    }
