"""Recorded commands into the simulator: where does it part from the recording, joint by joint?

The simulated robot is put into the recorded state, driven with the recorded joint targets, and put back every WINDOW, since two
systems that touch the ground part for good after a while whatever their joints do. What is compared is how far apart they are so and so long
after they were the same.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from perception.errors import UserError
from sim.batch import BatchPhysics
from sim.kinematics import rotation
from sim.robot import Robot
from sim.rollout_reader import Rollout

Array = np.ndarray
WINDOW = 1.0  # [s] between two starts from the recorded state; our choice: long enough for a swing, short enough for a step to match
HORIZONS = (0.1, 0.2, 0.5, 1.0)  # [s] after a start at which the two are compared


@dataclass(frozen=True, eq=False)
class Resim:
    """time (T,) [s]; joint_names; recorded, simulated (T, J) [rad]; base (T,) [m] how far the bases are apart; age (T,) [s] since the last
    start from the recorded state."""

    time: Array
    joint_names: tuple[str, ...]
    recorded: Array
    simulated: Array
    base: Array
    age: Array

    def figures(self) -> dict[str, Any]:
        """Root mean square difference by horizon: each joint [rad], all of them, the base [m]."""
        out: dict[str, Any] = {"seconds": float(self.time[-1] - self.time[0]), "window_s": WINDOW, "horizons": {}}
        off = self.simulated - self.recorded
        for h in HORIZONS:
            rows = np.abs(self.age - h) < 0.5 * float(np.median(np.diff(self.time)))
            if rows.any():
                each = np.sqrt(np.mean(off[rows] ** 2, axis=0))
                out["horizons"][f"{h:g}"] = {"starts": int(rows.sum()), "all_joints_rad": float(np.sqrt(np.mean(off[rows] ** 2))),
                                             "base_m": float(np.sqrt(np.mean(self.base[rows] ** 2))),
                                             "joints_rad": {n: round(float(e), 5) for n, e in zip(self.joint_names, each, strict=True)}}
        return out


def resimulate(rollout: Rollout, robot: Robot) -> Resim:
    """Drive the nominal robot with a recording's joint targets. Raises UserError for a recording that lacks what is needed."""
    missing = sorted(set(robot.joint_names) - set(rollout.joint_names))
    if missing:
        raise UserError(f"the recording lacks joints of {robot.name}: {', '.join(missing)}; nothing can be driven with it")
    order = [rollout.joint_names.index(n) for n in robot.joint_names]
    if not np.isfinite(rollout.target).any():
        raise UserError("the recording holds no /joint_targets: there is nothing to drive the simulator with")
    odom = rollout.series.get("/odom")
    if odom is None or not np.isfinite(rollout.qd).any():
        raise UserError("the recording holds no /odom or no joint speeds: the simulator cannot be put into the recorded state")
    physics = BatchPhysics(robot, 1, 1)
    times = np.arange(rollout.time[0], rollout.time[-1] + 1e-9, physics.period)
    if len(times) < 10:
        raise UserError(f"the recording is {rollout.seconds:.2f} s long; a comparison needs {10 * physics.period:g} s")
    at = np.clip(np.searchsorted(rollout.time, times - 1e-6), 0, len(rollout.time) - 1)
    q, qd, target = rollout.q[at][:, order], rollout.qd[at][:, order], rollout.target[at][:, order]
    base, pose = odom.at(times, np.inf), rollout.base[at]
    simulated, apart, age = np.empty_like(q), np.empty(len(times)), np.empty(len(times))
    since = np.inf
    for k in range(len(times)):
        jump = k > 0 and np.linalg.norm(pose[k, :3] - pose[k - 1, :3]) > 0.2  # put back on its feet
        if since >= WINDOW - 1e-9 or jump or not np.isfinite(target[k]).all():
            _put(physics, robot, pose[k], base[k], q[k], qd[k])
            since = 0.0
        else:
            physics.step(target[k][None])
            since += physics.period
        simulated[k], apart[k], age[k] = physics.q[0], np.linalg.norm(physics.qpos[0, :3] - pose[k, :3]), since
    return Resim(times - times[0], robot.joint_names, q, simulated, apart, age)


def _put(physics: BatchPhysics, robot: Robot, pose: Array, odom: Array, q: Array, qd: Array) -> None:
    """The recorded state, velocities included; drives remember no older command than the joints' own angles."""
    physics.reset(np.array([0]), pose[None, :3] - physics.home, np.zeros(1), q[None])
    physics.qpos[0, 3:7] = pose[3:7] / np.linalg.norm(pose[3:7])
    physics.qvel[0, :3], physics.qvel[0, 3:6] = rotation(physics.qpos[0, 3:7]) @ odom[7:10], odom[10:13]
    physics.qvel[0, robot.qvel_index] = qd
