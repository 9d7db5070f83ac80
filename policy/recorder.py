"""Records one robot of a running task, message by message, as the task steps."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from policy.task import BadmintonTask, Step
from sim.court import is_in
from sim.recording import RolloutWriter
from sim.shuttle import DOWN, IDLE, INCOMING, STRUCK

_UPRIGHT = np.array([1.0, 0.0, 0.0, 0.0])
GRAVITY = np.array([0.0, 0.0, 9.81])


class TaskRecorder:
    """Call it after every control step with the task, what the step gave, and the step's number.

    seconds: wall time spent in it. Where a verb's own perception sees (`birdie play --vision`), it calls `track` and `interception` too.
    """

    def __init__(self, path: Path, metadata: dict[str, Any], robot: int = 0) -> None:
        self.writer = RolloutWriter(path, metadata)
        self.robot = robot
        self.seconds = 0.0
        self._phase = IDLE
        self._shot = -1
        self._velocity: np.ndarray | None = None

    def close(self) -> None:
        """Finish the file."""
        self.writer.close()

    def __call__(self, task: BadmintonTask, step: Step, number: int) -> None:
        begin = time.perf_counter()
        i, t = self.robot, (number + 1) * task.physics.period
        w, physics, s = self.writer, task.physics, task.shuttles
        names, turn = task.robot.joint_names, task.sense.racket.base_rotation[i]
        w.joints(t, "/joint_states", names, physics.q[i], physics.qd[i], physics.torque[i] @ task.robot.drive_from_joint)
        w.joints(t, "/joint_targets", names, task.contract.joint_targets(task.previous_action[i]))
        velocity = physics.qvel[i, :3].copy()
        w.odometry(t, "/odom", "base", physics.qpos[i, :3], physics.qpos[i, 3:7], turn.T @ velocity, physics.qvel[i, 3:6])
        before = velocity if self._velocity is None or step.done[i] else self._velocity
        w.imu(t, "/imu/data", physics.qvel[i, 3:6], turn.T @ ((velocity - before) / physics.period + GRAVITY))
        self._velocity = velocity
        foot = physics.foot[i, :, 2]
        w.values(t, "/feet", dict(zip(task.robot.feet, foot.tolist(), strict=True)), (foot < task.contract.scale.foot_down).astype(float))
        racket = task.racket
        w.pose(t, "/racket/pose", racket.position[i] + physics.home, racket.normal[i])
        w.supply(t, "/arm/supply", task.robot.voltage, float(step.arm_current[i]))
        w.values(t, "/rewards", {name: float(values[i]) for name, values in step.reward_terms.items()})
        if s.phase[i] != IDLE:
            w.odometry(t, "/shuttle/odom", "shuttle", s.position[i], _UPRIGHT, s.velocity[i], np.zeros(3))
        if task.wait[i] == 0:
            command = task.command()
            if command.active[i]:
                w.pose(t, "/strike/pose", command.position[i] + physics.home, command.normal[i])
                w.velocity(t, "/strike/twist", command.velocity[i])
        if task.perception is not None:
            self._perception(task, t)
        self._events(task, step, t)
        self.seconds += time.perf_counter() - begin

    def _perception(self, task: BadmintonTask, t: float) -> None:
        """What a robot that sees for itself saw, tracks and foretells."""
        p, i = task.perception, self.robot
        assert p is not None
        if p.seen[i]:
            self.writer.point(t, "/shuttle/detection", p.shuttle[i])
        if p.tracker.valid[i]:
            self.track(t, p.tracker.state[i], p.tracker.covariance[i])
        if p.known[i]:
            left = max(p.when[i] - t, 0.0)
            c = p.tracker.covariance[i]
            spread = c[:3, :3] + left * (c[:3, 3:6] + c[3:6, :3]) + left**2 * c[3:6, 3:6]  # without drag; the filter's own forecast is not kept
            self.interception(t, p.place[i], spread)

    def track(self, t: float, state: np.ndarray, covariance: np.ndarray) -> None:
        """A tracker's state (8,) and covariance (8, 8) of `perception/filter.py`."""
        self.writer.odometry(t, "/shuttle/track", "shuttle", state[:3], _UPRIGHT, state[3:6], np.zeros(3), covariance[:3, :3], covariance[3:6, 3:6])

    def interception(self, t: float, place: np.ndarray, covariance: np.ndarray) -> None:
        """Where the shuttle is to be met (3,) [m], with covariance (3, 3)."""
        self.writer.place(t, "/shuttle/interception", place, covariance)

    def _events(self, task: BadmintonTask, step: Step, t: float) -> None:
        i, s = self.robot, task.shuttles
        phase, shot = int(s.phase[i]), int(s.tag[i])
        if phase != IDLE and shot != self._shot:
            self.writer.event(t, event="shot", shot=shot)
            self._phase, self._shot = INCOMING, shot
        if phase == STRUCK and self._phase == INCOMING:
            self.writer.event(t, event="touch", shot=shot, frame=bool(s.framed[i]), offset_m=s.contact_offset[i].round(4).tolist())
        if phase == DOWN and self._phase != DOWN:
            x, y = s.landing[i]
            returned = bool(s.touched[i] and s.crossed[i] and is_in(x, y))
            self.writer.event(t, event="landing", shot=shot, x_m=round(float(x), 3), y_m=round(float(y), 3), returned=returned)
        self._phase = phase
        for row in np.flatnonzero(step.struck == i):
            self.writer.event(t, event="strike", position_error_m=round(float(step.strike_position_error[row]), 4),
                              velocity_error_mps=round(float(step.strike_velocity_error[row]), 3))
        if step.terminated[i]:
            self.writer.event(t, event="fall")
