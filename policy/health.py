"""What keeps a long training sound: the last second of a robot whose numbers were not finite, and one line when learning stops.

A fault has a name: "physics" (the simulation blew up), "observation", "reward" (not finite), "loss" (a minibatch without a finite
gradient was left out), "parameters" (an update was undone). Training goes on after all of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from policy.task import BadmintonTask, Step
from sim.recording import RolloutWriter

SECOND = 50  # control steps kept of every robot
FILES = 20  # recordings of faults kept per run: the first ones tell most


class BlackBox:
    """Remembers the last second of all robots; writes it down for those with a fault.

    folder: where recordings go, made when the first is needed. metadata: into each of them. told: called with one line per file.
    """

    def __init__(self, task: BadmintonTask, folder: Path, metadata: dict[str, Any], told: Callable[[str], None] = lambda line: None) -> None:
        self.folder, self.metadata, self.told = folder, metadata, told
        self._robot, self._period = task.robot, task.physics.period
        p = task.physics
        self._rings = {name: np.zeros((SECOND, *array.shape)) for name, array in
                       (("qpos", p.qpos), ("qvel", p.qvel), ("action", task.previous_action), ("shuttle", task.shuttles.position))}
        self._contract, self._arm_and_legs = task.contract, (p._qpos_joint, p._qvel_joint)
        self._steps = self.written = 0

    def add(self, task: BadmintonTask, step: Step) -> None:
        """Take in one step; the state of robots with a fault is from after their restart, so it is written before."""
        for name, ids in step.faults.items():
            for i in ids:
                if self.written < FILES:
                    self._write(name, int(i))
        at = self._steps % SECOND
        p = task.physics
        for name, array in (("qpos", p.qpos), ("qvel", p.qvel), ("action", task.previous_action), ("shuttle", task.shuttles.position)):
            self._rings[name][at] = array
        self._steps += 1

    def _write(self, fault: str, robot: int) -> None:
        self.written += 1
        path = self.folder / f"{self.written:02d}_{fault}_robot{robot}.mcap"
        count = min(self._steps, SECOND)
        names, (to_q, to_qd) = self._robot.joint_names, self._arm_and_legs
        with RolloutWriter(path, {**self.metadata, "fault": fault, "robot_number": robot, "step": self._steps}) as w:
            for k in range(count):
                at, t = (self._steps - count + k) % SECOND, (k + 1) * self._period
                qpos, qvel = self._rings["qpos"][at, robot], self._rings["qvel"][at, robot]
                w.joints(t, "/joint_states", names, qpos[to_q], qvel[to_qd], np.zeros(len(names)))
                w.joints(t, "/joint_targets", names, self._contract.joint_targets(self._rings["action"][at, robot]))
                w.odometry(t, "/odom", "base", qpos[:3], qpos[3:7], qvel[:3], qvel[3:6])
                w.odometry(t, "/shuttle/odom", "shuttle", self._rings["shuttle"][at, robot], np.array([1.0, 0, 0, 0]), np.zeros(3), np.zeros(3))
            w.event(max(count, 1) * self._period, event="fault", fault=fault)
        self.told(f"{fault} of robot {robot} was not finite; it starts anew. Its last second: {path}")


@dataclass
class Watch:
    """Looks at each report of a run and says, once per spell, what has gone wrong and what usually is behind it.

    floor: smallest exploration width that schedules allow.
    """

    floor: float
    early: int = 1_500_000  # [steps] before which falling and missing are the rule
    active: set[str] = field(default_factory=set)
    best_error: float = np.inf
    best_at: int = 0

    def look(self, report: dict[str, Any], share: float, kl_target: float, anneal_begin: float) -> list[str]:
        """New warnings for this report. share: how much of the run is done."""
        if report["median_position_error_m"] < 0.95 * self.best_error:
            self.best_error, self.best_at = report["median_position_error_m"], report["steps"]
        late = report["steps"] > self.early
        found = {
            "entropy": share < anneal_begin and report["std_arm"] < 1.25 * self.floor and
            "exploration has died (arm widths at their floor) long before the schedule asks for it: the reward is probably flat, or the "
            "entropy coefficient too small",
            "kl": report.get("kl", 0.0) > 10 * kl_target and report["learning_rate"] <= 1.1e-5 and
            "updates move the policy ten times further than asked, at the smallest learning rate: observations or advantages have "
            "probably jumped (a new reward scale, a normaliser lost on resume, data too old)",
            "falls": late and report["fall_rate"] > 0.5 and
            "more than half of the episodes end in a fall: the robot model, its gains or the spread of targets is probably too much for it",
            "stalled": late and report["hit_rate"] < 0.05 and report["steps"] - self.best_at > self.early and
            "the racket has come no nearer to its targets for a long time: look at rewards by term in TensorBoard for one that outweighs "
            "the strike",
        }
        now = {name for name, text in found.items() if text}
        new = [str(found[name]) for name in found if name in now - self.active]
        self.active = now
        return new
