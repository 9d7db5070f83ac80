"""The contract: round trip, and refusals that name the field."""

import json
from dataclasses import replace

import numpy as np
import pytest

from perception.errors import UserError
from policy.contract import PolicyContract
from policy.task import contract_of
from sim.robot import load_robot


@pytest.fixture(scope="module")
def contract(robot):
    return contract_of(robot, 0.02)


def permuted(contract, order):
    """The same robot reporting its joints in another order."""
    per_joint = ("default_pose", "action_offset", "action_scale", "joint_range", "kp", "kd", "torque_limit", "mirror_sign")
    place = np.argsort(order)  # of each old joint in the new order
    return replace(contract, mirror_index=place[contract.mirror_index[order]], arm_index=place[contract.arm_index],
                   joint_names=tuple(contract.joint_names[i] for i in order),
                   **{n: getattr(contract, n)[order] for n in per_joint})


def test_json_round_trip(contract):
    again = PolicyContract.from_json(contract.to_json())
    assert again.to_json() == contract.to_json()
    np.testing.assert_array_equal(again.chain.offset, contract.chain.offset)


def test_contract_from_before_there_was_a_scale_is_read_with_the_first_robots(contract):
    data = json.loads(contract.to_json())
    del data["scale"]
    PolicyContract.from_json(json.dumps(data)).check_fits(contract)


def test_robot_that_reports_joints_in_another_order_fits(contract, rng):
    contract.check_fits(permuted(contract, rng.permutation(len(contract.joint_names))))


def test_gain_of_one_joint_is_compared_by_name_not_by_place(contract, rng):
    robot = permuted(contract, rng.permutation(len(contract.joint_names)))
    kp = robot.kp.copy()
    kp[robot.joint_names.index("EL_FLE")] += 1
    with pytest.raises(UserError, match=r"kp of joint EL_FLE is 100 in the policy and 101"):
        contract.check_fits(replace(robot, kp=kp))


def test_everything_that_shapes_the_motion_is_compared(contract):
    chain = replace(contract.chain, tip=contract.chain.tip + 0.01)
    flipped = contract.mirror_sign.copy()
    flipped[3] *= -1
    for other, said in ((replace(contract, chain=chain), "tip"), (replace(contract, joint_range=contract.joint_range * 0.9), "joint_range"),
                        (replace(contract, scale=replace(contract.scale, reach=0.5)), "reach of the task's scale is 0.75 in the policy and 0.5"),
                        (replace(contract, mirror_sign=flipped), "mirror_sign"), (replace(contract, action_clip=1.0), "action_clip"),
                        (replace(contract, mirror_index=np.arange(18)), "mirror_index"), (replace(contract, arm_index=contract.arm_index[::-1]), "arm_index")):
        with pytest.raises(UserError, match=said):
            contract.check_fits(other)


def test_whole_arrays_are_only_handed_over_in_the_same_order(contract, rng):
    with pytest.raises(UserError, match="another order"):
        contract.check_same(permuted(contract, rng.permutation(len(contract.joint_names))))


def test_policy_for_one_robot_is_refused_by_another(contract):
    with pytest.raises(UserError, match="go2_x5: joint_names differ"):
        contract.check_fits(contract_of(load_robot("go2_x5"), 0.02))


def test_missing_joint_is_named(contract):
    names = tuple(n.replace("WRIST_2", "GRIPPER") for n in contract.joint_names)
    with pytest.raises(UserError, match="WRIST_2"):
        contract.check_fits(replace(contract, joint_names=names))


def test_other_period_and_other_observation_are_refused(contract):
    with pytest.raises(UserError, match="period"):
        contract.check_fits(replace(contract, period=0.01))
    terms = list(contract.observation)
    terms[3] = replace(terms[3], scale=7.0)
    with pytest.raises(UserError, match=terms[3].name):
        contract.check_fits(replace(contract, observation=tuple(terms)))
    with pytest.raises(UserError, match="terms"):
        contract.check_fits(replace(contract, observation=contract.observation[:-1]))


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"version": 99}', '{"version": 1}'])
def test_text_that_is_no_contract_is_refused(text):
    with pytest.raises(UserError, match="contract"):
        PolicyContract.from_json(text)


def test_targets_stay_inside_the_joint_range(contract, rng):
    targets = contract.joint_targets(rng.normal(size=(100, len(contract.joint_names))) * 20)
    assert (targets >= contract.joint_range[:, 0]).all() and (targets <= contract.joint_range[:, 1]).all()
    np.testing.assert_allclose(contract.joint_targets(np.zeros((1, len(contract.joint_names))))[0], contract.action_offset)
