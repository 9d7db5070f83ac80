"""Robots that differ: drawn from ranges, written from nominal values, and nominal again when asked."""

from dataclasses import fields, replace

import mujoco
import numpy as np
import pytest

from sim.batch import BatchPhysics
from sim.randomize import KD, KP, RESISTANCE, SLIDING, STICKING, RandomizeCfg, draw, nominal
from sim.robot import DELAY_STEPS, load_robot
from sim.robot import STICKING as STICKING_RATIO


@pytest.fixture(scope="module")
def robot():
    return load_robot()


def expanded(physics):
    """Every model field that differs between simulations."""
    names = ("body_mass", "body_inertia", "body_ipos", "geom_friction", "dof_damping", "dof_armature", "actuator_gainprm", "actuator_forcerange",
             "actuator_biasprm", "actuator_delay", "body_subtreemass", "dof_M0", "dof_invweight0", "body_invweight0", "actuator_acc0")
    return {n: physics.batch.expanded(n).copy() for n in names}


def stand(physics, robot, steps, kick=0.0):
    everyone = np.arange(physics.count)
    physics.reset(everyone, np.tile([0, 0, robot.standing_height], (physics.count, 1)), np.zeros(physics.count),
                  np.tile(robot.default_pose, (physics.count, 1)))
    physics.qvel[:, 0] = kick
    for _ in range(steps):
        physics.step(np.tile(robot.default_pose + robot.standing_offset, (physics.count, 1)))
    return physics.qpos.copy()


def test_nominal_comes_back_exactly(robot, rng):
    physics = BatchPhysics(robot, 4)
    before = stand(physics, robot, 10)
    everyone = np.arange(4)
    for _ in range(3):  # more than once: factors must not pile up
        physics.vary(everyone, draw(RandomizeCfg(), robot, rng, 4))
    assert np.abs(stand(physics, robot, 10) - before).max() > 1e-4
    physics.vary(everyone, nominal(robot, 4))
    for name, values in expanded(physics).items():
        for row in values:
            np.testing.assert_array_equal(row, getattr(robot.model, name), err_msg=name)
    np.testing.assert_array_equal(stand(physics, robot, 10), before)


def test_same_seed_same_robots_and_another_seed_others(robot):
    a, b, c = (draw(RandomizeCfg(), robot, np.random.default_rng(s), 5) for s in (1, 1, 2))
    for f in fields(a):
        np.testing.assert_array_equal(getattr(a, f.name), getattr(b, f.name))
    assert (a.strength != c.strength).all()


def test_draws_stay_in_their_ranges_and_reach_both_ends(robot, rng):
    cfg = RandomizeCfg()
    v = draw(cfg, robot, rng, 4000)
    for name in ("ground_friction", "strength", "kp", "kd", "damping", "armature", "motor_friction", "delay", "encoder_bias", "restitution",
                 "trunk_com"):
        low, high = getattr(cfg, name)
        values = getattr(v, name)
        assert low <= values.min() < low + 0.02 * (high - low), name
        assert high - 0.02 * (high - low) < values.max() <= high, name
    np.testing.assert_allclose(np.linalg.norm(v.racket_normal, axis=1), 1.0)
    np.testing.assert_allclose(np.sum(v.racket_normal * v.racket_long, axis=1), 0.0, atol=1e-12)
    tilt = np.arccos(v.racket_normal @ robot.chain.normal)
    assert 0.02 < tilt.max() <= np.hypot(*[cfg.racket_tilt[1]] * 2) + 1e-9


def test_no_share_of_the_ranges_is_the_nominal_robot(robot, rng):
    v, plain = draw(RandomizeCfg().scaled(0.0, robot.command_delay), robot, rng, 3), nominal(robot, 3)
    for f in fields(v):
        if f.name != "push_every":
            np.testing.assert_allclose(getattr(v, f.name), getattr(plain, f.name), atol=1e-12, err_msg=f.name)


def test_derived_constants_follow_the_masses(robot, rng):
    physics = BatchPhysics(robot, 3)
    v = draw(RandomizeCfg(), robot, rng, 3)
    physics.vary(np.arange(3), v)
    for sim in range(3):
        model = physics.batch.get_model(sim)
        assert model.body_subtreemass[0] == pytest.approx((robot.model.body_mass * v.link_mass[sim]).sum())
        again = mujoco.MjData(model)
        kept = model.body_invweight0.copy()
        mujoco.mj_setConst(model, again)
        np.testing.assert_array_equal(model.body_invweight0, kept)


def test_only_the_robots_named_change(robot, rng):
    physics = BatchPhysics(robot, 5)
    physics.vary(np.array([1, 3]), draw(RandomizeCfg(), robot, rng, 2))
    mass = physics.batch.expanded("body_mass")
    for sim in (0, 2, 4):
        np.testing.assert_array_equal(mass[sim], robot.model.body_mass)
    assert (mass[[1, 3], 1:] != robot.model.body_mass[1:]).any(axis=1).all()
    np.testing.assert_array_equal(physics.variation.delay[[0, 2, 4]], robot.command_delay)


def test_the_columns_of_a_dcmotor_are_where_we_write_them(robot):
    m, drives = robot.model, robot.drives
    np.testing.assert_allclose(m.actuator_gainprm[:, KP], [d.kp for d in drives])
    np.testing.assert_allclose(m.actuator_gainprm[:, KD], [d.kd for d in drives])
    constant = np.array([robot.voltage / d.no_load for d in drives])
    np.testing.assert_allclose(m.actuator_gainprm[:, RESISTANCE], constant * robot.voltage / [d.stall for d in drives])
    np.testing.assert_allclose(m.actuator_biasprm[:, SLIDING], [d.friction for d in drives])
    np.testing.assert_allclose(m.actuator_biasprm[:, STICKING], [STICKING_RATIO * d.friction for d in drives])


def test_a_weak_drive_gives_less_torque_for_the_same_command(robot):
    physics = BatchPhysics(robot, 2)
    v = nominal(robot, 2)
    arm = robot.joint_names.index("FA_ROT")
    v.strength[1] = 0.5
    physics.vary(np.arange(2), v)
    stand(physics, robot, 0)
    target = np.tile(robot.default_pose, (2, 1))
    target[:, arm] += 0.1
    physics.step(target)
    assert physics.torque[1, arm] < 0.75 * physics.torque[0, arm]


def test_a_biased_encoder_shifts_the_joint_and_not_what_the_robot_reads(robot):
    physics = BatchPhysics(robot, 2)
    v = nominal(robot, 2)
    wrist = robot.joint_names.index("WRIST_1")
    v.encoder_bias[1, wrist] = 0.05
    physics.vary(np.arange(2), v)
    stand(physics, robot, 40)
    assert physics.q[1, wrist] - physics.q[0, wrist] == pytest.approx(-0.05, abs=0.01)
    assert physics.encoder[1, wrist] == pytest.approx(physics.encoder[0, wrist], abs=0.01)


def test_a_bent_mount_moves_the_true_racket_only(robot, rng):
    physics = BatchPhysics(robot, 2)
    v = nominal(robot, 2)
    v.racket_tip[1] += 0.01 * v.racket_long[1]
    physics.vary(np.arange(2), v)
    stand(physics, robot, 1)
    racket = physics.racket()
    moved = racket.position[1] - racket.position[0]
    np.testing.assert_allclose(moved, 0.01 * racket.long_axis[0], atol=1e-9)


def test_commands_arrive_after_the_delay(robot):
    joint = robot.joint_names.index("FA_ROT")
    physics = BatchPhysics(robot, DELAY_STEPS)
    v = nominal(robot, DELAY_STEPS)
    v.delay[:] = np.arange(DELAY_STEPS) * robot.model.opt.timestep
    physics.vary(np.arange(DELAY_STEPS), v)
    stand(physics, robot, 25)
    target = np.tile(robot.default_pose + robot.standing_offset, (DELAY_STEPS, 1))
    target[:, joint] += 0.5
    before = physics.q[:, joint].copy()
    physics.step(target)
    moved = physics.q[:, joint] - before
    assert (np.diff(moved) < 0).all() and moved[-1] < 0.2 * moved[0]  # the later the command, the shorter the way in 20 ms


def test_bad_ranges_are_refused_by_name():
    with pytest.raises(ValueError, match="strength: low 2 is above high 1"):
        replace(RandomizeCfg(), strength=(2, 1))
    with pytest.raises(ValueError, match="link_mass"):
        replace(RandomizeCfg(), link_mass=(0.0, 1.0))
