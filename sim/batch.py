"""N copies of one robot stepped in C++ threads: joint targets in, state out.

On `mujoco.batch`: measured in one run on 2 cores with 512 robots, 4 substeps each, it made 22.9 k control steps/s against
21.1 k for `mujoco.rollout`, which returns the whole state history and takes the full state back each time. One MjData
per thread, so memory does not grow with derived quantities. Derived fields (foot places, drive torques) are those of
the last substep's start, 5 ms before the state; rewards may read them, observations do not.
"""

import mujoco
import numpy as np
from mujoco.batch import Batch, SimulationError

from sim.actuators import supply_current
from sim.court import HOME_X
from sim.kinematics import RacketState, racket_state
from sim.randomize import Variation, nominal, write_models
from sim.robot import DELAY_STEPS, Robot

SUBSTEPS = 4  # of the model's 5 ms: a control step is 20 ms
SPEED_LIMIT = 200.0  # [rad/s, m/s] beyond any motor here: a simulation that reaches it has blown up
Array = np.ndarray


class BatchPhysics:
    """N robots. qpos (N, nq), qvel (N, nv), torque (N, J) and foot (N, feet, 3) are live arrays over the simulations.

    All robots are the nominal one until `vary` makes them differ.
    """

    def __init__(self, robot: Robot, count: int, threads: int = 0) -> None:
        self.robot, self.count = robot, count
        self.model = robot.model
        self.batch = Batch(self.model, count, threads)
        self.qpos, self.qvel = self.batch.bind("qpos"), self.batch.bind("qvel")
        self._ctrl = self.batch.bind("ctrl")
        history = self.batch.bind("history").reshape(count, self.model.nu, -1)  # per drive: two of bookkeeping, times, values
        self._past_targets = history[:, :, -DELAY_STEPS:]
        self._geom_xpos = self.batch.bind("geom_xpos")
        self.torque = self.batch.bind("actuator_force")
        self._feet = [self.model.geom(f).id for f in robot.feet]
        self._to_drive = robot.drive_from_joint.T
        self._qpos_joint = _as_slice(robot.qpos_index)
        self._qvel_joint = _as_slice(robot.qvel_index)
        self.period = SUBSTEPS * self.model.opt.timestep
        self.home = np.array([HOME_X, 0.0, 0.0])
        self.variation = nominal(robot, count)

    def vary(self, ids: Array, variation: Variation) -> None:
        """Robots ids become those of `variation` (n of them); their derived constants follow."""
        self.variation.put(ids, variation)
        write_models(self.batch, self.robot, ids, variation)

    @property
    def encoder(self) -> Array:
        """(N, J) joint angles as the robot reports them [rad]."""
        return self.q + self.variation.encoder_bias

    @property
    def supply(self) -> Array:
        """(N,) current that the arm draws [A], see `sim/actuators.py`."""
        return supply_current(self.robot, self.torque, self.drive_speed(), self.robot.arm_index)

    def racket(self) -> RacketState:
        """The true faces of N rackets relative to home, wherever their mounts and encoders say they are."""
        v, arm = self.variation, self.robot.arm_index
        return racket_state(self.robot.chain, self.qpos[:, :3] - self.home, self.qpos[:, 3:7], self.qvel[:, :3], self.qvel[:, 3:6],
                            self.q[:, arm], self.qd[:, arm], v.racket_tip, v.racket_normal, v.racket_long)

    @property
    def foot(self) -> Array:
        """(N, feet, 3) foot centres, world frame [m]."""
        return self._geom_xpos[:, self._feet]

    @property
    def q(self) -> Array:
        """(N, J) joint angles in policy order [rad]."""
        return self.qpos[:, self._qpos_joint]

    @property
    def qd(self) -> Array:
        """(N, J) joint speeds in policy order [rad/s]."""
        return self.qvel[:, self._qvel_joint]

    def drive_speed(self) -> Array:
        """(N, J) speeds of the drives, which differ from the joints' where a belt couples two [rad/s]."""
        return self.qd @ self._to_drive

    def step(self, joint_targets: Array, substeps: int = SUBSTEPS) -> Array:
        """One control step towards joint targets (N, J) [rad], as the encoders see them; (N,) True where a simulation blew up."""
        np.matmul(joint_targets - self.variation.encoder_bias, self._to_drive, out=self._ctrl)
        bad = np.zeros(self.count, bool)
        try:
            self.batch.step(nstep=substeps)
        except SimulationError as error:
            bad[error.ids] = True
        bad |= ~(np.abs(self.qvel).max(axis=1) < SPEED_LIMIT)  # also true for NaN
        bad |= ~np.isfinite(self.qpos).all(axis=1)
        return bad

    def reset(self, ids: Array, position: Array, yaw: Array, q: Array) -> None:
        """Put robots ids at rest: base position (n, 3) relative to home [m], heading yaw (n,) [rad], joints q (n, J) [rad]."""
        self.batch.reset(ids, stage=mujoco.mjtStage.mjSTAGE_NONE)
        self.qpos[ids, :3] = position + self.home
        self.qpos[ids, 3] = np.cos(yaw / 2)
        self.qpos[ids, 4:6] = 0.0
        self.qpos[ids, 6] = np.sin(yaw / 2)
        self.qpos[np.ix_(ids, self.robot.qpos_index)] = q
        self.qvel[ids] = 0.0
        self._past_targets[ids] = (q @ self._to_drive)[:, :, None]


def _as_slice(index: Array) -> slice | Array:
    """A slice where the index is a run, so that reading it is a view."""
    if np.array_equal(index, np.arange(index[0], index[0] + len(index))):
        return slice(int(index[0]), int(index[0]) + len(index))
    return index
