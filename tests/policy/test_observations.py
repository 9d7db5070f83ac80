"""The observation builder and its mirror."""

import numpy as np
import pytest

from policy.observations import TERMS, RobotState, SwingCommand, build_observation, reference, sense
from policy.symmetry import action_mirror, observation_mirror, target_side
from policy.task import contract_of


@pytest.fixture(scope="module")
def contract(any_robot):
    return contract_of(any_robot, 0.02)


def scene(rng, n, joints):
    quaternion = rng.normal(size=(n, 4)) * [1, 0.2, 0.2, 0.2] + [2, 0, 0, 0]
    quaternion /= np.linalg.norm(quaternion, axis=1, keepdims=True)
    state = RobotState(rng.normal(size=(n, 3)) * 0.3 + [0, 0, 0.6], quaternion, rng.normal(size=(n, 3)), rng.normal(size=(n, 3)),
                       rng.normal(size=(n, joints)), rng.normal(size=(n, joints)))
    normal = rng.normal(size=(n, 3)) + [2, 0, 1]
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    command = SwingCommand(rng.normal(size=(n, 3)) + [0, 0, 1.7], normal, normal * 5, rng.uniform(0, 2, n), rng.random(n) < 0.8)
    return state, command, rng.normal(size=(n, joints))


def mirrored(contract, state, command, previous):
    y, turn = np.array([1, -1, 1]), np.array([-1, 1, -1])
    joints = action_mirror(contract)
    flip = np.full(len(previous), -1.0)
    other = RobotState(state.position * y, state.quaternion * [1, -1, 1, -1], state.velocity * y, state.angular_velocity * turn,
                       joints.where(state.q, flip), joints.where(state.qd, flip))
    told = SwingCommand(command.position * y, command.normal * y, command.velocity * y, command.time_left, command.active)
    return other, told, joints.where(previous, flip)


def test_size_matches_the_contract(contract, rng):
    state, command, previous = scene(rng, 4, len(contract.joint_names))
    observation = build_observation(sense(contract, state, command, previous))
    assert observation.shape == (4, sum(t.size for t in contract.observation))
    assert observation.dtype == np.float32


def test_each_term_has_the_size_it_declares(contract, rng):
    s = sense(contract, *scene(rng, 3, len(contract.joint_names)))
    for term, spec in zip(TERMS, contract.observation, strict=True):
        assert term.compute(s).shape == (3, spec.size), term.name


def test_mirrored_world_gives_the_mirrored_observation(contract, rng):
    world = scene(rng, 50, len(contract.joint_names))
    seen = build_observation(sense(contract, *world))
    other = build_observation(sense(contract, *mirrored(contract, *world)))
    np.testing.assert_allclose(observation_mirror(contract).where(seen, np.full(50, -1.0)), other, atol=1e-5)


def test_mirror_is_its_own_inverse(contract, rng):
    for mirror, size in ((observation_mirror(contract), sum(t.size for t in contract.observation)), (action_mirror(contract), 18)):
        x = rng.normal(size=(5, size))
        flip = np.full(5, -1.0)
        np.testing.assert_array_equal(mirror.where(mirror.where(x, flip), flip), x)
        np.testing.assert_array_equal(mirror.where(x, -flip), x)


def test_one_robot_sees_what_it_sees_in_a_batch(contract, rng):
    state, command, previous = scene(rng, 6, len(contract.joint_names))
    together = build_observation(sense(contract, state, command, previous))
    alone = build_observation(sense(contract, RobotState(*(v[2:3] for v in vars(state).values())),
                                    SwingCommand(*(v[2:3] for v in vars(command).values())), previous[2:3]))
    np.testing.assert_allclose(alone[0], together[2], atol=1e-6)


def test_without_a_command_nothing_of_it_leaks(contract, rng):
    state, command, previous = scene(rng, 2, len(contract.joint_names))
    command.active[:] = False
    first = build_observation(sense(contract, state, command, previous))
    command.position = command.position + 1
    command.time_left = command.time_left + 0.3
    np.testing.assert_array_equal(first, build_observation(sense(contract, state, command, previous)))


def test_reference_ends_at_the_target_with_the_commanded_velocity(rng):
    command = SwingCommand(rng.normal(size=(1, 3)), np.zeros((1, 3)), rng.normal(size=(1, 3)), np.array([0.0]), np.array([True]))
    at_strike = reference(command)
    np.testing.assert_allclose(at_strike, command.position)
    command.time_left = np.array([1e-6])
    np.testing.assert_allclose((at_strike - reference(command)) / 1e-6, command.velocity, rtol=1e-4)


def test_side_is_seen_from_the_base():
    target = np.array([[1.0, 0.5, 1.7], [1.0, 0.5, 1.7]])
    side = target_side(np.zeros((2, 3)), np.array([0.0, 1.0]), target)
    assert side.tolist() == [1.0, -1.0]
