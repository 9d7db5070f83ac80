"""`birdie play --shots opponent`: rallies between the policy and the model of a person in `sim/opponent.py`."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perception.errors import UserError
from policy.inference import OnnxPolicy
from policy.play import REST, Outcome, Watcher
from policy.swings import Swings, swings_for_shots
from policy.task import BadmintonTask, Step, TaskCfg
from sim.court import HOME_X, is_in
from sim.opponent import Opponent, OpponentCfg
from sim.robot import load_robot
from sim.serves import GRID, Shots
from sim.shuttle import DOWN, IDLE, STRUCK

Array = np.ndarray


@dataclass(frozen=True)
class RallyCfg:
    """rallies: in all; courts: side by side; longest: returns of the robot after which a rally is called off, our choice."""

    rallies: int = 50
    courts: int = 25
    longest: int = 100
    seed: int = 11
    opponent: OpponentCfg = field(default_factory=OpponentCfg)


class Court:
    """Bookkeeping of N courts: which shot is in play on each, how long its rally is, and how past rallies ended."""

    def __init__(self, task: BadmintonTask, opponent: Opponent, cfg: RallyCfg) -> None:
        self.task, self.opponent, self.cfg = task, opponent, cfg
        self.returns = np.zeros(task.count, int)
        self.tag = np.full(task.count, -1)
        self.answered = np.zeros(task.count, bool)  # the opponent has dealt with the shuttle in the air
        self.playing = np.zeros(task.count, bool)
        self.begun = self.shots = 0
        self.lengths: list[int] = []
        self.ends: Counter[str] = Counter()

    def begin(self, ids: Array) -> None:
        """Serve on courts ids, as long as there are rallies left to play."""
        ids = ids[: max(self.cfg.rallies - self.begun, 0)]
        self.begun += len(ids)
        self.returns[ids], self.playing[ids] = 0, True
        if len(ids):
            self._hit(ids, self.opponent.serve(len(ids)), np.full(len(ids), REST))

    def end(self, i: int, why: str) -> None:
        """The rally on court i is over."""
        self.lengths.append(int(self.returns[i]))
        self.ends[why] += 1
        self.playing[i], self.tag[i] = False, -1

    def _hit(self, ids: Array, shots: Shots, wait: Array) -> None:
        """The opponent hits shots towards courts ids, wait (n,) control steps from now."""
        swings, usable = swings_for_shots(shots, self.task.robot.scale.meet_height, 1)
        reach = Outcome(self.task.robot.scale, shots.label[usable], swings.position[:, :2], swings.launch * GRID).in_reach()
        swings.wait = np.maximum(wait[usable], 1)
        swings.tag = self.shots + np.arange(len(usable))
        self.shots += len(usable)
        self.answered[ids] = False
        for row in np.setdiff1d(np.arange(len(ids)), usable[reach]):
            self.end(int(ids[row]), "out of the robot's reach")
        go = ids[usable[reach]]
        self.tag[go] = swings.tag[reach]
        if len(go):
            self.task.give(go, swings.take(np.flatnonzero(reach)))

    def look(self, step: Step) -> None:
        """After a control step: falls, returns, what the opponent makes of them, and shuttles on the floor."""
        s = self.task.shuttles
        for i in np.flatnonzero(step.done & self.playing):
            self.end(int(i), "the robot fell")
        mine = self.playing & (s.tag == self.tag) & (s.phase != IDLE)
        over = np.flatnonzero(mine & (s.phase == STRUCK) & s.crossed & ~self.answered)
        if len(over):
            answers = self.opponent.answer(s.position[over], s.velocity[over], s.drag[over], s.drift[over], s.since_hit[over])
            self.answered[over] = True
            back = np.flatnonzero(answers.reached)
            self.returns[over[back]] += 1
            for i in over[back][self.returns[over[back]] >= self.cfg.longest]:
                self.end(int(i), "called off")
            back = back[self.playing[over[back]]]
            if len(back):
                self._hit(over[back], answers.shots.take(back), answers.steps[back])
        for i in np.flatnonzero(mine & self.playing & (s.phase == DOWN) & (s.tag == self.tag)):
            good = bool(s.touched[i] and s.crossed[i] and is_in(*s.landing[i]))
            self.returns[i] += good
            self.end(int(i), "past the opponent" if good else "not touched" if not s.touched[i] else
                     "into the net" if s.netted[i] or not s.crossed[i] else "out")


def play_rallies(policy: OnnxPolicy, cfg: RallyCfg = RallyCfg(), threads: int = 0, watch: Watcher | None = None,
                 robot_name: str = "") -> dict[str, Any]:
    """Play cfg.rallies rallies; returns their lengths and ends. A rally's length is the number of the robot's good returns.

    watch, robot_name: as in `policy.play.play`. Raises UserError for sizes that make no sense.
    """
    if cfg.rallies < 1 or cfg.courts < 1 or cfg.longest < 1:
        raise UserError(f"rallies, courts and the longest rally must be at least 1; they are {cfg.rallies}, {cfg.courts}, {cfg.longest}")
    robot = load_robot(robot_name or policy.contract.robot)
    courts = min(cfg.courts, cfg.rallies)
    task = BadmintonTask(robot, courts, lambda ids: Swings.idle(len(ids)), seed=cfg.seed, threads=threads, cfg=TaskCfg(swings=10**9))
    policy.contract.check_same(task.contract)
    opponent = Opponent(np.random.default_rng(cfg.seed), robot.scale.meet_height, cfg.opponent)
    observation = task.reset()
    court = Court(task, opponent, cfg)
    number = 0
    while True:
        court.begin(np.flatnonzero(~court.playing))
        if not court.playing.any() and court.begun >= cfg.rallies:
            break
        step = task.step(policy(observation[:, : task.actor_size]))
        observation = step.observation
        court.look(step)
        if watch is not None:
            watch(task, step, number)
        number += 1
    lengths = np.array(court.lengths)
    return {
        "rallies": len(lengths), "median_returns": float(np.median(lengths)), "mean_returns": float(lengths.mean()),
        "best_returns": int(lengths.max()), "returns": int(lengths.sum()), "shots": court.shots, "ends": dict(court.ends.most_common()),
        "home_x_m": HOME_X, "seed": cfg.seed, "training": {k: policy.training.get(k) for k in ("steps", "minutes", "commit")},
    }
