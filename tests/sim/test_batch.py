"""The batch against a plain loop of mj_step."""

import mujoco
import numpy as np
import pytest

from sim.batch import SUBSTEPS, BatchPhysics
from sim.robot import set_pose


def drive(robot, count, threads, actions):
    physics = BatchPhysics(robot, count, threads)
    zero = np.zeros((count, 3))
    zero[:, 2] = robot.standing_height
    physics.reset(np.arange(count), zero, np.zeros(count), np.tile(robot.default_pose, (count, 1)))
    for action in actions:
        assert not physics.step(action).any()
    return physics


@pytest.mark.parametrize("threads", [1, 2])
def test_batch_is_bit_identical_to_a_loop_of_single_simulations(robot, rng, threads):
    count, steps = 5, 12
    actions = robot.default_pose + robot.standing_offset + 0.3 * rng.normal(size=(steps, count, len(robot.joint_names)))
    physics = drive(robot, count, threads, actions)
    for i in range(count):
        d = mujoco.MjData(robot.model)
        set_pose(robot, d, x=-4)
        for action in actions[:, i]:
            d.ctrl[:] = (action[None] @ robot.drive_from_joint.T)[0]
            for _ in range(SUBSTEPS):
                mujoco.mj_step(robot.model, d)
        np.testing.assert_allclose(physics.qpos[i], d.qpos, atol=1e-12)


def test_blown_up_simulation_is_reported_and_the_others_go_on(robot):
    physics = drive(robot, 4, 2, [])
    target = np.tile(robot.default_pose + robot.standing_offset, (4, 1))
    physics.qvel[2, 8] = np.nan
    physics.qvel[3, 3] = 1e7
    bad = physics.step(target)
    assert bad.tolist() == [False, False, True, True]
    assert np.isfinite(physics.qpos[:2]).all()


def test_reset_puts_only_the_named_robots_back(robot):
    physics = drive(robot, 3, 1, [np.tile(robot.default_pose, (3, 1))] * 5)
    before = physics.qpos.copy()
    physics.reset(np.array([1]), np.array([[0.1, 0.2, 0.6]]), np.array([0.3]), robot.default_pose[None])
    np.testing.assert_array_equal(physics.qpos[[0, 2]], before[[0, 2]])
    np.testing.assert_allclose(physics.qpos[1, :3], [-3.9, 0.2, 0.6])
    assert (physics.qvel[1] == 0).all()
