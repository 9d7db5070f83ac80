"""The robot model against things that can be worked out by hand."""

import shutil
from dataclasses import dataclass

import mujoco
import numpy as np
import pytest

from perception.errors import UserError
from sim.robot import MODELS, STICKING, build_spec, load_robot, set_pose


@dataclass(frozen=True)
class Facts:
    """What one robot should be. ranges [rad] of some joints; knee: a leg joint and its torque [N m]; free: joints that can spin up in
    the air; shoulder, elbow, wrist: joints of the swing; cocked: elbow and wrist before it [rad]; elbow: where it is sent; late: physics
    step at which the wrist follows."""

    ranges: dict[str, tuple[float, float]]
    mass: float
    knee: tuple[str, float]
    free: tuple[str, ...]
    swing: tuple[str, str, str]
    cocked: tuple[float, float]
    elbow: float
    late: int


FACTS = {
    "anymal_dynaarm": Facts(
        ranges={"SH_ROT": (-4.312, 4.312), "EL_FLE": (0, 3.092)},
        # trunk, four legs of hip + thigh + shank, arm of 9.445 without its last 0.048 kg link, racket with that link, camera
        mass=26.4 + 4 * (0.37 + 5.13 + 0.80) + 9.397 + 0.258 + 0.3,
        knee=("LF_KFE", 80), free=("LF_KFE", "SH_ROT", "FA_ROT"),
        swing=("SH_FLE", "EL_FLE", "WRIST_1"), cocked=(1.0, -1.5), elbow=0.5, late=11),
    "go2_x5": Facts(
        ranges={"FL_CALF": (-2.7227, -0.83776), "WAIST": (-2.618, 2.618)},
        # trunk, four legs of hip + thigh + calf + foot, arm without its hand, racket with flange and holder, camera
        mass=6.921 + 4 * (0.678 + 1.152 + 0.154 + 0.04) + 2.939 + 0.258 + 0.3,
        knee=("FL_CALF", 35.55), free=("FL_HIP", "WAIST", "WRIST_ROLL"),
        swing=("SHOULDER", "ELBOW", "WRIST_PITCH"), cocked=(0.7, -1.5), elbow=0.3, late=28),
}


def facts(robot):
    return FACTS[robot.name]


def test_joint_ranges_are_radians(any_robot):
    for name, (low, high) in facts(any_robot).ranges.items():
        assert any_robot.joint_range[any_robot.joint_names.index(name)] == pytest.approx([low, high])
    assert np.ptp(any_robot.joint_range, axis=1).min() > 1.3


def test_mass_adds_up_from_the_published_parts(any_robot):
    assert any_robot.model.body_subtreemass[0] == pytest.approx(facts(any_robot).mass, abs=0.01)


def test_mass_is_balanced_left_and_right(any_robot):
    d = mujoco.MjData(any_robot.model)
    set_pose(any_robot, d)
    mujoco.mj_forward(any_robot.model, d)
    assert d.subtree_com[0][1] == pytest.approx(0, abs=1e-9)
    assert abs(d.subtree_com[0][0]) < 0.1


def test_stands_still_for_five_seconds_with_no_action(any_robot):
    d = mujoco.MjData(any_robot.model)
    set_pose(any_robot, d)
    d.ctrl[:] = any_robot.drive_from_joint @ (any_robot.default_pose + any_robot.standing_offset)
    for _ in range(1000):
        mujoco.mj_step(any_robot.model, d)
    assert d.qpos[2] == pytest.approx(any_robot.standing_height, abs=0.02)
    assert np.abs(d.qvel).max() < 0.05
    assert np.abs(d.qpos[:2]).max() < 0.02


def free_motor(robot, name):
    """The robot in the air without gravity, one motor told to run far away."""
    m = build_spec([robot]).compile()  # its own copy: the shared model keeps its gravity
    m.opt.gravity[:] = 0
    d = mujoco.MjData(m)
    set_pose(robot, d)
    d.qpos[2] = 5
    d.ctrl[:] = robot.drive_from_joint @ robot.default_pose
    d.ctrl[robot.joint_names.index(name)] += 100
    return m, d


def test_dropped_robot_lands_on_its_feet_and_carries_its_weight(any_robot):
    d = mujoco.MjData(any_robot.model)
    set_pose(any_robot, d)
    d.qpos[2] += 0.05
    d.ctrl[:] = any_robot.drive_from_joint @ (any_robot.default_pose + any_robot.standing_offset)
    for _ in range(600):
        mujoco.mj_step(any_robot.model, d)
    mujoco.mj_forward(any_robot.model, d)
    feet = {any_robot.model.geom(f).id for f in any_robot.feet}
    force, up = np.zeros(6), 0.0
    for i, contact in enumerate(d.contact):
        assert contact.geom[0] in feet or contact.geom[1] in feet
        mujoco.mj_contactForce(any_robot.model, d, i, force)
        up += force[0]
    assert up == pytest.approx(any_robot.model.body_subtreemass[0] * 9.81, rel=0.01)


def test_arm_swinging_freely_keeps_its_energy(robot):
    spec = build_spec([robot])
    for actuator in list(spec.actuators):
        spec.delete(actuator)
    for joint in list(spec.joints):  # base and legs welded, arm without friction
        if joint.name in ("root", *robot.joint_names[:12]):
            spec.delete(joint)
        else:
            joint.damping = np.zeros_like(joint.damping)
    spec.option.timestep = 0.0005
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_RK4
    spec.option.enableflags |= mujoco.mjtEnableBit.mjENBL_ENERGY
    m = spec.compile()
    assert m.nv == 6
    d = mujoco.MjData(m)
    d.joint("SH_FLE").qpos[0], d.joint("EL_FLE").qpos[0] = 0.6, 1.5
    mujoco.mj_forward(m, d)
    start, seen = d.energy.sum(), 0.0
    for _ in range(300):  # 0.15 s, before any joint reaches its stop
        mujoco.mj_step(m, d)
        seen = max(seen, d.energy[1])
    assert seen > 2  # joules: it really swings
    assert d.energy.sum() == pytest.approx(start, abs=0.002 * seen)


def test_scripted_swing_reaches_its_declared_speed_within_the_drives_limits(any_robot):
    robot, known = any_robot, facts(any_robot)
    m, d = robot.model, mujoco.MjData(robot.model)
    set_pose(robot, d)
    target = robot.default_pose + robot.standing_offset
    shoulder, elbow, wrist = (robot.joint_names.index(n) for n in known.swing)
    target[elbow], target[wrist] = known.cocked
    d.qpos[robot.qpos_index] = target
    peak, limiting = 0.0, ""
    for step in range(60):
        aim = target.copy()
        aim[shoulder] = 2.1
        aim[elbow] = known.elbow
        if step > known.late:
            aim[wrist] = 2.0
        d.ctrl[:] = robot.drive_from_joint @ aim
        mujoco.mj_step(m, d)
        velocity = np.zeros(6)
        mujoco.mj_objectVelocity(m, d, mujoco.mjtObj.mjOBJ_SITE, m.site(robot.racket_site).id, velocity, 0)
        assert (np.abs(d.actuator_force) <= robot.per_joint("torque") + STICKING * robot.per_joint("friction")).all()
        share = np.abs(d.actuator_velocity) / robot.per_joint("speed")
        assert share[robot.arm_index].max() < 1
        if np.linalg.norm(velocity[3:]) > peak:
            peak, limiting = float(np.linalg.norm(velocity[3:])), robot.joint_names[int(np.argmax(share))]
    print(f"{robot.name}: racket peak {peak:.1f} m/s; nearest to its speed limit: {limiting}")
    assert peak >= robot.swing_speed == 12


def test_motor_gives_no_more_than_its_torque_at_stall(any_robot):
    name, torque = facts(any_robot).knee
    m, d = free_motor(any_robot, name)
    mujoco.mj_step(m, d, nstep=2)  # the command takes one step to arrive
    assert d.actuator_force[any_robot.joint_names.index(name)] == pytest.approx(torque)


@pytest.mark.parametrize(("which", "name"), [(r, n) for r, known in FACTS.items() for n in known.free])
def test_motor_speed_stays_under_no_load(which, name):
    robot = load_robot(which)
    m, d = free_motor(robot, name)
    i = robot.joint_names.index(name)
    peak = 0.0
    for _ in range(400):
        mujoco.mj_step(m, d)
        peak = max(peak, d.actuator_velocity[i])
    assert peak <= robot.drives[i].no_load * 1.02
    assert peak > robot.drives[i].no_load * 0.6


def test_belt_adds_shoulder_to_elbow(robot):
    i, j = robot.joint_names.index("EL_FLE"), robot.joint_names.index("SH_FLE")
    assert robot.drive_from_joint[i, j] == robot.drive_from_joint[i, i] == 1
    m, d = robot.model, mujoco.MjData(robot.model)
    set_pose(robot, d)
    mujoco.mj_forward(m, d)
    # moving the shoulder back by what the elbow opens leaves the elbow's motor, and the forearm's slope, where they were
    length, slope = d.actuator_length[i], d.xmat[m.body("forearm").id].copy()
    d.qpos[robot.qpos_index[j]] += 0.3
    d.qpos[robot.qpos_index[i]] -= 0.3
    mujoco.mj_forward(m, d)
    assert d.actuator_length[i] == pytest.approx(length)
    np.testing.assert_allclose(d.xmat[m.body("forearm").id], slope, atol=1e-12)
    # and the motor's torque enters both joints
    moment = np.zeros((m.nu, m.nv))
    mujoco.mju_sparse2dense(moment, d.actuator_moment, d.moment_rownnz, d.moment_rowadr, d.moment_colind)
    assert moment[i, robot.qvel_index[j]] == moment[i, robot.qvel_index[i]] == 1


def test_mirrored_robot_moves_as_the_mirror_image(any_robot, rng):
    m = any_robot.model
    left, right = mujoco.MjData(m), mujoco.MjData(m)
    for d in (left, right):
        set_pose(any_robot, d)
        d.qpos[2] = 3  # in the air: contacts are solved in an order that the mirror does not keep
    offset = rng.normal(size=len(any_robot.joint_names)) * 0.2
    target = any_robot.default_pose + offset
    left.ctrl[:] = any_robot.drive_from_joint @ target
    right.ctrl[:] = any_robot.drive_from_joint @ (any_robot.mirror_sign * target[any_robot.mirror_index])
    for _ in range(40):
        mujoco.mj_step(m, left)
        mujoco.mj_step(m, right)
    q_left, q_right = left.qpos[any_robot.qpos_index], right.qpos[any_robot.qpos_index]
    np.testing.assert_allclose(q_right, any_robot.mirror_sign * q_left[any_robot.mirror_index], atol=1e-6)
    np.testing.assert_allclose(right.qpos[:3], left.qpos[:3] * [1, -1, 1], atol=1e-6)


@pytest.mark.parametrize(("edit", "said"), [
    (("name: LF_HAA", "name: LF_HAX"), "LF_HAA"),
    (("racket_site: racket", "racket_site: bat"), "bat"),
    (("default: 1.8", "default: 3.5"), "EL_FLE"),
    (("voltage: 48.0", "volts: 48.0"), "voltage"),
])
def test_folder_whose_files_disagree_is_refused_by_name(tmp_path, edit, said):
    folder = tmp_path / "mine"
    shutil.copytree(MODELS / "anymal_dynaarm", folder)
    text = (folder / "robot.yaml").read_text()
    assert edit[0] in text
    (folder / "robot.yaml").write_text(text.replace(*edit))
    with pytest.raises(UserError, match=said):
        load_robot(folder)


def test_unknown_robot_names_those_there_are():
    with pytest.raises(UserError, match="anymal_dynaarm"):
        load_robot("nobody")


def held(robot, free):
    """The robot in the air without gravity, every joint but `free` as heavy as a house."""
    spec = build_spec([robot])
    for joint in spec.joints:
        if joint.name not in free:
            joint.armature = 1e7
    spec.option.gravity = [0, 0, 0]
    m = spec.compile()
    d = mujoco.MjData(m)
    set_pose(robot, d)
    d.qpos[2] = 3
    return m, d


def second_order_step(t, stiffness, damping, inertia):
    """Answer of an underdamped mass on spring and damper to a unit step of its rest position, by hand."""
    omega, zeta = np.sqrt(stiffness / inertia), damping / (2 * np.sqrt(stiffness * inertia))
    assert zeta < 1
    t, turn = np.maximum(t, 0.0), omega * np.sqrt(1 - zeta**2)
    return 1 - np.exp(-zeta * omega * t) * (np.cos(turn * t) + zeta / np.sqrt(1 - zeta**2) * np.sin(turn * t))


def test_each_joint_answers_a_step_like_a_spring_and_damper(robot):
    to_drive, kp, kd = robot.drive_from_joint, robot.per_joint("kp"), robot.per_joint("kd")
    for j, name in enumerate(robot.joint_names):
        m, d = held(robot, {name})
        mujoco.mj_forward(m, d)
        dof = robot.qvel_index[j]
        unit, inertia = np.eye(m.nv)[dof], np.zeros(m.nv)
        mujoco.mj_mulM(m, d, inertia, unit)
        stiffness, damping = to_drive[:, j] ** 2 @ kp, to_drive[:, j] ** 2 @ kd + m.dof_damping[dof].item()  # a belt adds its drive's
        step = 0.15 if robot.default_pose[j] + 0.15 < robot.joint_range[j, 1] else -0.15
        target = robot.default_pose.copy()
        target[j] += step
        d.ctrl[:] = to_drive @ target
        seen, times = [], []
        for _ in range(120):  # 0.6 s
            mujoco.mj_step(m, d)
            seen.append((d.qpos[robot.qpos_index[j]] - robot.default_pose[j]) / step)
            times.append(d.time)
        by_hand = second_order_step(np.array(times) - robot.command_delay, stiffness, damping, inertia[dof])
        # motor friction and the integrator's own damping account for up to 8 % of the step
        np.testing.assert_allclose(seen, by_hand, atol=0.09, err_msg=name)
        assert abs(seen[-1] - 1) < 0.1 and 1.02 < max(seen) < 1.6, name


def test_moving_the_shoulder_alone_keeps_the_forearms_angle_in_space(robot):
    shoulder, elbow = robot.joint_names.index("SH_FLE"), robot.joint_names.index("EL_FLE")
    m, d = held(robot, {"SH_FLE", "EL_FLE"})
    start = d.qpos[robot.qpos_index].copy()
    d.ctrl[shoulder] += 0.3  # the shoulder's motor goes on, the elbow's holds
    for _ in range(400):
        mujoco.mj_step(m, d)
    moved = d.qpos[robot.qpos_index] - start
    assert moved[shoulder] == pytest.approx(0.3, abs=0.01)
    assert moved[elbow] == pytest.approx(-0.3, abs=0.01)


@pytest.mark.parametrize("end", [0, 1])
def test_joints_stop_at_their_limits_against_all_the_torque_of_their_drives(robot, end):
    for j, name in enumerate(robot.joint_names):
        m, d = held(robot, {name})
        m.geom_contype[:] = m.geom_conaffinity[:] = 0  # one thing at a time
        limit, sign, dof = robot.joint_range[j, end], (-1, 1)[end], robot.qvel_index[j]
        d.qpos[robot.qpos_index[j]] = limit - sign * 0.4
        target = robot.default_pose.copy()
        target[j] = limit + sign * 20  # saturates the drive
        d.ctrl[:] = robot.drive_from_joint @ target
        beyond = fastest = 0.0
        for _ in range(200):
            mujoco.mj_step(m, d)
            fastest = max(fastest, abs(d.qvel[dof]))
            beyond = max(beyond, sign * (d.qpos[robot.qpos_index[j]] - limit))
        assert 0 < beyond < 0.03 + 0.01 * fastest, (name, beyond)  # it gets there, and is caught within 10 ms: a rubber stop
        assert sign * (d.qpos[robot.qpos_index[j]] - limit) < 0.04, name  # and rests at the stop


def test_arm_driven_into_the_trunk_stops_at_its_surface(robot):
    m, d = held(robot, {"SH_ROT", "SH_FLE", "EL_FLE"})
    target = robot.default_pose.copy()
    target[robot.joint_names.index("SH_FLE")], target[robot.joint_names.index("EL_FLE")] = 1.1, 3.0  # forearm back down onto the trunk
    d.ctrl[:] = robot.drive_from_joint @ target
    deepest, arm_touched = 0.0, False
    for step in range(400):
        mujoco.mj_step(m, d)
        deepest = 0.0 if step == 300 else deepest  # the blow itself is caught within 4 cm
        assert deepest > -0.04
        for contact in d.contact:
            bodies = {m.body(m.geom_bodyid[g]).name for g in contact.geom}
            arm_touched |= bool(bodies & {"forearm", "racket", "upperarm"}) and bool(bodies - {"forearm", "racket", "upperarm", "world"})
            deepest = min(deepest, contact.dist)
    assert arm_touched
    assert -0.01 < deepest < 0  # m, at rest, against drives of 60 N m
