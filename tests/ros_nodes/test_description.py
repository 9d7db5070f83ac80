"""What safety reads without MuJoCo is what the simulator has, and joints are mapped by name both ways."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perception.errors import UserError
from policy.inference import OnnxPolicy
from ros_nodes.description import STRIBECK, load_description
from ros_nodes.joint_map import JointMap
from ros_nodes.watch import Source
from sim import robot as sim_robot
from sim.actuators import supply_current


def test_description_is_the_simulators_robot(any_robot, rng):
    d = load_description(any_robot.name)
    assert d.joint_names == any_robot.joint_names and STRIBECK == sim_robot.STRIBECK
    for field in ("kp", "kd", "torque", "speed", "stall", "no_load", "friction"):
        assert np.array_equal(getattr(d, field), any_robot.per_joint(field)), field
    assert np.array_equal(d.drive_from_joint, any_robot.drive_from_joint)
    assert set(np.flatnonzero(d.arm)) == set(any_robot.arm_index)
    torque, qd = d.torque * rng.uniform(-1, 1, len(d.kp)), rng.standard_normal(len(d.kp))
    assert d.arm_current(torque, qd) == pytest.approx(supply_current(any_robot, torque[None], (d.drive_from_joint @ qd)[None], any_robot.arm_index)[0])


def test_a_folder_that_is_no_robot_is_refused(tmp_path):
    with pytest.raises(UserError, match="your-robot"):
        load_description(tmp_path)


def test_a_policy_whose_gains_differ_is_refused_by_joint():
    contract = OnnxPolicy().contract
    contract.kp[3] += 1.0
    with pytest.raises(UserError, match=f"kp of joint {contract.joint_names[3]} is 86"):
        load_description("anymal_dynaarm").check_fits(contract)


NAMES = ("a", "b", "c", "d")


@given(st.permutations(range(4)), st.lists(st.sampled_from([1, -1]), min_size=4, max_size=4), st.lists(st.floats(-3, 3), min_size=4, max_size=4),
       st.lists(st.floats(-3, 3), min_size=4, max_size=4))
def test_there_and_back_is_the_same_angle_in_any_order(order, signs, offsets, angles):
    m = JointMap.parse([{"policy": n, "robot": f"motor_{n}", "sign": s, "offset": o} for n, s, o in zip(NAMES, signs, offsets, strict=True)], NAMES, "here")
    reported_names = [m.robot_names[i] for i in order]
    reported = m.to_robot(np.array(angles))[list(order)]
    places = m.order_of(reported_names)
    assert np.allclose(m.position(reported, places), angles, atol=1e-12)
    assert np.allclose(m.rate(m.rate_to_robot(np.array(angles))[list(order)], places), angles)


@pytest.mark.parametrize(("entries", "said"), [
    ([{"policy": "e"}], "names no joint"), ([{"policy": "a", "sign": 0}], "sign is 1 or -1"), ([{"policy": "a"}, {"policy": "a"}], "twice"),
    ([{"policy": "a", "robot": "b"}], "two policy joints"), ([{"policy": "a", "gear": 3}], "unknown keys"), ([{"policy": "a", "offset": 90}], "radians"),
])
def test_wrong_entries_are_named(entries, said):
    with pytest.raises(UserError, match=said):
        JointMap.parse(entries, NAMES, "deploy.yaml")


def test_joints_that_are_missing_renamed_or_double_are_named():
    m = JointMap.same(NAMES)
    with pytest.raises(UserError, match=r"does not report joint c; it reports x"):
        m.order_of(["a", "b", "x", "d"])
    with pytest.raises(UserError, match="joint a twice"):
        m.order_of(["a", "b", "c", "d", "a"])
    assert list(m.order_of(["gripper", "d", "c", "b", "a"])) == [4, 3, 2, 1]


def test_a_source_on_time_has_no_problem_and_its_offset_does_not_matter():
    s = Source("x", 0.05)
    for k in range(100):
        assert s.take(1000 + 0.01 * k, 3.0 + 0.01 * k)
    assert not s.problem(1000.99) and "silent" in s.problem(1001.2)
    assert s.rate == pytest.approx(100) and s.jitter < 1e-9


def test_a_clock_that_drifts_is_followed_and_one_that_jumps_is_not():
    s = Source("x", 0.05)
    for k in range(100_000):  # 1000 s at 100 us/s
        assert s.take(0.01 * k, 0.01 * k * (1 - 1e-4))
    assert not s.take(1000.0, 1000.0 * (1 - 1e-4) + 0.5) and "ahead" in s.fault
