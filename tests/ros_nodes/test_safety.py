"""The supervisor as its rules read: what it lets through, what it latches, and what it takes to move again. No ROS needed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perception.errors import UserError
from policy.inference import OnnxPolicy
from ros_nodes.description import load_description
from ros_nodes.safety import Limits, SafetyCfg, State, Supervisor, check_slew, check_tilt

CONTRACT = OnnxPolicy().contract
LIMITS = Limits.of(CONTRACT, load_description("anymal_dynaarm"))
UP = np.array([1.0, 0.0, 0.0, 0.0])
J = len(LIMITS.names)


class Bench:
    """A robot, a policy and an operator that send what they should, at 200, 50 and 50 times a second, unless told otherwise."""

    def __init__(self, cfg=SafetyCfg()):
        self.s = Supervisor(LIMITS, cfg)
        self.now, self.step = 100.0, 0
        self.q, self.qd, self.quaternion = LIMITS.stand.copy(), np.zeros(J), UP
        self.target = LIMITS.stand.copy()
        self.names = LIMITS.names
        self.shift = 0.0  # of the robot's clock
        self.send = {"joints", "imu", "policy", "operator"}
        self.stop = ""

    def run(self, seconds):
        for _ in range(round(seconds / 0.005)):
            self.now += 0.005
            self.step += 1
            stamp = self.now - 90.0 + self.shift
            if "joints" in self.send:
                self.s.on_joints(self.now, stamp, self.q, self.qd)
            if "imu" in self.send:
                self.s.on_imu(self.now, stamp, self.quaternion)
            if "policy" in self.send and self.step % 4 == 0:
                self.s.on_policy(self.now, stamp, self.names, self.target)
            if "operator" in self.send and self.step % 4 == 0:
                self.s.on_operator(self.now, self.now, self.stop)
            self.last = self.s.tick(self.now)
        return self.last

    def to(self, state):
        self.run(0.1)
        if state is State.DAMPING:
            return self
        assert self.s.arm(self.now)[0]
        self.run(0.05)
        if state is State.TEST:
            assert self.s.test_joint(self.now, "LF_KFE")[0]
        else:
            assert self.s.stand(self.now)[0], self.s.stand(self.now)
            self.run(0.05 if state is State.STAND else self.s.cfg.stand_time + 0.05)
            if state is State.PLAY:
                assert self.s.play(self.now)[0], self.s.play(self.now)
                self.run(0.05)
        assert self.s.state is state
        return self


def is_damping(command):
    return command.state is State.DAMPING and not command.kp.any() and (command.kd > 0).all()


MOVING = [State.STAND, State.READY, State.PLAY, State.TEST]


def test_it_begins_damped_and_moves_only_when_armed_and_asked():
    b = Bench()
    assert is_damping(b.run(1.0))
    assert not b.s.stand(b.now)[0] and not b.s.play(b.now)[0] and not b.s.test_joint(b.now, "LF_KFE")[0]
    assert b.s.arm(b.now)[0]
    assert is_damping(b.run(1.0)), "armed is not yet standing"
    assert not b.s.play(b.now)[0]
    assert b.s.stand(b.now)[0]


def test_gains_and_pose_are_ramped_up_from_where_the_robot_lies():
    b = Bench()
    b.q = LIMITS.stand + 0.5
    b.to(State.STAND)
    early = b.last
    assert (early.kp < 0.2 * LIMITS.kp).all() and np.abs(early.position - b.q).max() < 0.01
    kp, position = [], []
    for _ in range(60):
        c = b.run(0.05)
        b.q = c.position
        kp.append(c.kp[0])
        position.append(c.position[0])
    assert (np.diff(kp) >= -1e-12).all() and kp[-1] == LIMITS.kp[0]
    assert (np.diff(position) <= 1e-12).all() and np.abs(np.diff(position)).max() < 0.05


def test_ready_waits_for_the_stance_and_gives_up_on_it():
    b = Bench()
    b.to(State.STAND)
    b.q = np.where(LIMITS.robot.arm, LIMITS.stand, LIMITS.stand + 1.0)
    b.run(b.s.cfg.stand_time)
    assert b.s.state is State.STAND
    b.run(b.s.cfg.stand_time)
    assert b.s.state is State.DAMPING and "stand" in b.s.faults


def test_play_follows_the_policy_after_a_blend():
    b = Bench().to(State.READY)
    b.target = LIMITS.stand + 0.05
    b.run(0.1)
    assert np.array_equal(b.last.position, LIMITS.stand), "READY holds the stance whatever the policy says"
    assert b.s.play(b.now)[0]
    first = b.run(0.005).position
    assert np.abs(first - LIMITS.stand).max() < 0.01
    assert np.allclose(b.run(0.3).position, b.target)
    assert np.array_equal(b.last.kp, LIMITS.kp) and np.array_equal(b.last.kd, LIMITS.kd)


def test_a_command_answers_with_the_stamp_of_the_state_it_came_from():
    b = Bench().to(State.PLAY)
    b.run(0.3)
    assert b.s.on_policy(b.now, b.now - 90.0 + 1e-4, LIMITS.names, b.target)
    assert b.s.tick(b.now).stamp == pytest.approx(b.now - 90.0 + 1e-4)


def test_linear_interpolation_reaches_the_target_at_the_end_of_the_period():
    b = Bench(SafetyCfg(interpolation="linear")).to(State.PLAY)
    b.run(0.3)
    b.target = LIMITS.stand + 0.1
    while b.step % 4 != 3:
        b.run(0.005)
    shares = [(b.run(0.005).position[0] - LIMITS.stand[0]) / 0.1 for _ in range(5)]
    assert shares[:4] == pytest.approx([0.0, 0.25, 0.5, 0.75], abs=1e-6) and shares[4] == pytest.approx(1.0)


def test_command_joints_are_taken_by_name():
    b = Bench().to(State.PLAY)
    order = np.random.default_rng(1).permutation(J)
    b.names, b.target = tuple(np.array(LIMITS.names)[order]), (LIMITS.stand + 0.01 * np.arange(J))[order]
    assert np.allclose(b.run(0.5).position, LIMITS.stand + 0.01 * np.arange(J))


FAULTS = {
    "joints stop": (lambda b: b.send.discard("joints"), "joint_states_stale"),
    "imu stops": (lambda b: b.send.discard("imu"), "imu_stale"),
    "operator gone": (lambda b: b.send.discard("operator"), "operator_stale"),
    "operator says stop": (lambda b: setattr(b, "stop", "deadman released"), "operator_stop"),
    "emergency stop": (lambda b: b.s.estop(b.now), "emergency_stop"),
    "tilt": (lambda b: setattr(b, "quaternion", np.array([np.cos(0.6), np.sin(0.6), 0, 0])), "tilt"),
    "orientation nan": (lambda b: setattr(b, "quaternion", np.full(4, np.nan)), "tilt"),
    "joint too fast": (lambda b: setattr(b, "qd", np.full(J, 70.0)), "joint_speed"),
    "joint nan": (lambda b: setattr(b, "q", np.where(np.arange(J) == 3, np.nan, b.q)), "joint_states_invalid"),
    "speed inf": (lambda b: setattr(b, "qd", np.full(J, np.inf)), "joint_states_invalid"),
    "joint missing": (lambda b: setattr(b, "q", b.q[:-1]), "joint_states_invalid"),
    "clock ahead": (lambda b: setattr(b, "shift", 1.0), "joint_states_clock"),
    "clock back": (lambda b: setattr(b, "shift", -1.0), "joint_states_clock"),
    "late by 200 ms": (lambda b: setattr(b, "shift", -0.2), "joint_states_"),
    "two policies": (lambda b: setattr(b.s, "publishers", 2), "two_policies"),
    "drives": (lambda b: setattr(b.s, "drives", "drive 3 too hot"), "drives"),
}


@pytest.mark.parametrize("state", MOVING, ids=lambda s: s.value)
@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_damps_within_100_ms_is_named_and_stays(fault, state):
    b = Bench().to(state)
    cause, name = FAULTS[fault]
    cause(b)
    assert is_damping(b.run(0.095)), fault
    assert any(k.startswith(name) for k in b.s.faults), b.s.faults
    b.__dict__.update(send={"joints", "imu", "policy", "operator"}, stop="", q=LIMITS.stand.copy(), qd=np.zeros(J), quaternion=UP, shift=0.0)
    b.s.publishers, b.s.drives = 1, ""
    assert is_damping(b.run(2.0)), "well again, but nobody armed"
    assert not b.s.stand(b.now)[0] and not b.s.play(b.now)[0] and b.s.faults
    assert b.s.arm(b.now)[0] and not b.s.faults
    b.run(0.05)
    assert b.s.stand(b.now)[0]
    b.run(3.1)
    assert b.s.play(b.now)[0]


@pytest.mark.parametrize("fault", [f for f in FAULTS if f not in ("emergency stop", "clock ahead", "clock back", "late by 200 ms")])
def test_arming_is_refused_while_the_cause_is_there(fault):
    b = Bench().to(State.PLAY)
    FAULTS[fault][0](b)
    b.run(0.4)
    ok, why = b.s.arm(b.now)
    assert not ok and why and b.s.state is State.DAMPING


BAD_COMMANDS = {
    "nan": (lambda t: np.where(np.arange(J) == 5, np.nan, t), "command_not_finite"),
    "inf": (lambda t: np.full(J, np.inf), "command_not_finite"),
    "out of range": (lambda t: np.where(np.arange(J) == 2, 9.0, t), "command_range"),
    "one short": (lambda t: t[:-1], "command_shape"),
    "empty": (lambda t: t[:0], "command_shape"),
    "leap": (lambda t: LIMITS.joint_range[:, 0] + 1e-3, "command_slew"),
}


@pytest.mark.parametrize("bad", BAD_COMMANDS)
def test_bad_commands_never_reach_the_drives(bad):
    make, name = BAD_COMMANDS[bad]
    b = Bench().to(State.PLAY)
    b.run(0.5)
    assert not b.s.on_policy(b.now, b.now - 90.0 + 1e-4, LIMITS.names, make(b.target))
    assert is_damping(b.s.tick(b.now)) and name in b.s.faults


@pytest.mark.parametrize("bad", [x for x in BAD_COMMANDS if x != "leap"])
def test_play_is_refused_while_commands_are_bad_or_missing(bad):
    b = Bench().to(State.READY)
    good, b.target = b.target, BAD_COMMANDS[bad][0](b.target)
    b.run(0.1)
    assert not b.s.play(b.now)[0] and b.s.state is State.READY
    b.target = good
    b.run(0.1)
    assert b.s.play(b.now)[0]


def test_commands_for_other_joints_are_a_fault():
    b = Bench().to(State.PLAY)
    b.names = (*LIMITS.names[:-1], "TAIL")
    b.run(0.05)
    assert b.s.state is State.DAMPING and "TAIL" in b.s.faults["command_shape"]


def test_a_policy_that_falls_silent_is_damped_after_three_periods():
    b = Bench().to(State.PLAY)
    b.send.discard("policy")
    b.run(3 * LIMITS.period - 0.02)
    assert b.s.state is State.PLAY
    assert is_damping(b.run(0.045)) and "policy_stale" in b.s.faults


@pytest.mark.parametrize("state", MOVING)
def test_a_supervisor_that_was_frozen_does_not_go_on_where_it_was(state):
    b = Bench().to(state)
    b.now += 0.055  # all sources speak again at once when it wakes up
    assert is_damping(b.run(0.005)) and "supervisor_stalled" in b.s.faults
    b.now += 1.0
    b.s.faults.clear()
    b.run(0.005)
    assert "supervisor_stalled" not in b.s.faults, "damped drives have nothing to lose by it"


def test_a_policy_that_answers_an_old_state_again_is_as_good_as_silent():
    b = Bench().to(State.PLAY)
    b.send.discard("policy")
    for _ in range(20):
        b.s.on_policy(b.now, 5.0, LIMITS.names, b.target)
        b.run(0.005)
    assert b.s.state is State.DAMPING and "policy_stale" in b.s.faults


def test_torque_far_beyond_the_drives_is_a_fault():
    b = Bench(SafetyCfg(slew=1e9)).to(State.PLAY)
    b.run(0.5)
    b.target = np.where(np.arange(J) == LIMITS.names.index("SH_ROT"), LIMITS.joint_range[:, 1], LIMITS.stand)
    b.q = np.where(np.arange(J) == LIMITS.names.index("SH_ROT"), -20.0, b.q)
    b.run(0.05)
    assert "command_torque" in b.s.faults and "SH_ROT" in b.s.faults["command_torque"]


def test_arm_current_over_its_limit_for_long_is_a_fault_and_for_a_moment_is_not():
    arm = LIMITS.robot.arm
    b = Bench(SafetyCfg(slew=1e9, torque=1e9)).to(State.PLAY)
    b.run(0.5)
    b.target = np.clip(np.where(arm, LIMITS.stand + 2.0, LIMITS.stand), *LIMITS.joint_range.T)
    b.run(0.1)
    assert b.s.state is State.PLAY
    b.run(3.0)
    assert b.s.state is State.DAMPING and "arm_current" in b.s.faults


def test_joint_test_moves_one_joint_and_goes_back_to_damping_armed():
    b = Bench().to(State.TEST)
    moved = []
    for _ in range(39):
        c = b.run(0.05)
        moved.append(c.position)
        assert (c.kp > 0).sum() == 1
    assert np.ptp(np.array(moved), axis=0).max() == pytest.approx(2 * b.s.cfg.test_swing, rel=0.02)
    b.run(0.2)
    assert b.s.state is State.DAMPING and b.s.armed
    assert "no joint" in b.s.test_joint(b.now, "TAIL")[1]


@pytest.mark.parametrize("state", MOVING, ids=lambda s: s.value)
def test_damp_works_from_everywhere_and_asks_for_arming(state):
    b = Bench().to(state)
    b.s.damp(b.now)
    assert is_damping(b.s.tick(b.now)) and not b.s.faults
    assert not b.s.stand(b.now)[0]


def test_overtaken_reports_are_left_out_without_a_fault():
    b = Bench().to(State.PLAY)
    before = b.s.q.copy()
    b.s.on_joints(b.now, b.now - 90.0 - 0.007, before + 1.0, b.qd)
    assert np.array_equal(b.s.q, before)
    assert b.run(0.1).state is State.PLAY


def test_a_frozen_driver_that_repeats_its_last_report_is_stale():
    b = Bench().to(State.PLAY)
    b.send.discard("joints")
    for _ in range(20):
        b.s.on_joints(b.now, 10.0, b.q, b.qd)
        b.run(0.005)
    assert "joint_states_stale" in b.s.faults or "joint_states_clock" in b.s.faults


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=64), min_size=J, max_size=J))
def test_whatever_a_policy_sends_the_drives_get_finite_targets_in_range(values):
    b = Bench().to(State.PLAY)
    b.s.on_policy(b.now, b.now - 90.0 + 1e-4, LIMITS.names, np.array(values))
    c = b.s.tick(b.now)
    assert np.isfinite(c.position).all() and np.isfinite(c.kp).all()
    assert c.state is State.DAMPING or ((c.position >= LIMITS.joint_range[:, 0] - 1e-3) & (c.position <= LIMITS.joint_range[:, 1] + 1e-3)).all()


@given(st.floats(0, np.pi), st.floats(0, 2 * np.pi), st.floats(-np.pi, np.pi))
def test_tilt_is_the_angle_from_upright_whatever_the_heading(tilt, axis, heading):
    lean = np.array([np.cos(tilt / 2), np.sin(tilt / 2) * np.cos(axis), np.sin(tilt / 2) * np.sin(axis), 0.0])
    turn = np.array([np.cos(heading / 2), 0, 0, np.sin(heading / 2)])
    w = turn[0] * lean[0] - turn[3] * lean[3]
    x, y, z = turn[0] * lean[1] - turn[3] * lean[2], turn[0] * lean[2] + turn[3] * lean[1], turn[0] * lean[3] + turn[3] * lean[0]
    assert bool(check_tilt(np.array([w, x, y, z]), 1.0)) == (tilt > 1.0) or abs(tilt - 1.0) < 1e-6


def test_slew_is_counted_in_action_scales():
    step = LIMITS.robot.action_scale * 4.9
    assert not check_slew(LIMITS.stand + step, LIMITS.stand, LIMITS, 5.0)
    step[7] *= 1.1
    assert LIMITS.names[7] in check_slew(LIMITS.stand + step, LIMITS.stand, LIMITS, 5.0)


def test_a_policy_for_another_robot_is_refused_by_field():
    with pytest.raises(UserError, match="joint_names"):
        Limits.of(CONTRACT, load_description("go2_x5"))
