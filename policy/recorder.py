"""Records one robot of a running task, message by message, as the task steps."""

from pathlib import Path
from typing import Any

import numpy as np

from policy.task import BadmintonTask, Step
from sim.court import is_in
from sim.recording import RolloutWriter
from sim.shuttle import DOWN, IDLE, INCOMING, STRUCK

_UPRIGHT = np.array([1.0, 0.0, 0.0, 0.0])


class TaskRecorder:
    """Call it after every control step with the task, what the step gave, and the step's number."""

    def __init__(self, path: Path, metadata: dict[str, Any], robot: int = 0) -> None:
        self.writer = RolloutWriter(path, metadata)
        self.robot = robot
        self._phase = IDLE
        self._shot = -1

    def close(self) -> None:
        """Finish the file."""
        self.writer.close()

    def __call__(self, task: BadmintonTask, step: Step, number: int) -> None:
        i, t = self.robot, (number + 1) * task.physics.period
        w, physics, s = self.writer, task.physics, task.shuttles
        names = task.robot.joint_names
        w.joints(t, "/joint_states", names, physics.q[i], physics.qd[i], physics.torque[i] @ task.robot.drive_from_joint)
        w.joints(t, "/joint_targets", names, task.contract.joint_targets(task.previous_action[i]))
        w.odometry(t, "/odom", "base", physics.qpos[i, :3], physics.qpos[i, 3:7],
                   task.sense.racket.base_rotation[i].T @ physics.qvel[i, :3], physics.qvel[i, 3:6])
        racket = task.racket
        w.pose(t, "/racket/pose", racket.position[i] + physics.home, racket.normal[i])
        w.supply(t, "/arm/supply", task.robot.voltage, float(step.arm_current[i]))
        if s.phase[i] != IDLE:
            w.odometry(t, "/shuttle/odom", "shuttle", s.position[i], _UPRIGHT, s.velocity[i], np.zeros(3))
        if task.wait[i] == 0:
            w.pose(t, "/strike/pose", task.current.position[i] + physics.home, task.current.normal[i])
            w.velocity(t, "/strike/twist", task.current.velocity[i])
        self._events(task, step, t)

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
