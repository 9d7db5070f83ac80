"""Many filters with one instruction: number by number what the filter of one flight gives."""

import numpy as np
import pytest

from perception import filter as one
from perception import filter_lanes as many
from perception.filter_lanes import LANES
from tests.perception.flights import robot_rig

TRIANGLE = np.tril_indices(8)


def flights(rng, rig):
    """States before the rig's cameras, covariances, and a filled block with a row for every number."""
    state = np.column_stack([rng.uniform(-1, 1, LANES), rng.uniform(0, 3, LANES), rng.uniform(1, 2, LANES), rng.normal(0, 8, (LANES, 3)),
                             rng.uniform(0.15, 0.35, LANES), rng.uniform(-1, 1, LANES)])
    root = rng.normal(size=(LANES, 8, 8)) * [0.1, 0.1, 0.1, 1, 1, 1, 0.01, 0.2]
    covariance = root.transpose(0, 2, 1) @ root
    block = np.zeros((many.ROWS, LANES))
    block[:8] = state.T
    block[many.COVARIANCE:many.COVARIANCE + 36] = covariance[:, TRIANGLE[0], TRIANGLE[1]].T
    block[many.DT], block[many.ACCELERATION] = rng.uniform(0.002, 0.012, LANES), rng.uniform(0.1, 5, LANES)
    block[many.ROTATION:many.ROTATION + 9] = np.asarray(rig.left_from_world_rotation).reshape(9, 1)
    block[many.TRANSLATION:many.TRANSLATION + 3] = np.asarray(rig.left_from_world_translation).reshape(3, 1)
    block[many.FOLLOWED], block[many.SEEN] = 1, 1
    return state, covariance, block


def test_prediction_is_that_of_one_flight(rng):
    state, covariance, block = flights(rng, robot_rig())
    many.predict_lanes(block.reshape(-1), 1.0, 0.1)
    for lane in range(LANES):
        one.predict(state[lane], covariance[lane], block[many.DT, lane], block[many.ACCELERATION, lane], 0.1, one.workspace())
    np.testing.assert_allclose(block[:8].T, state, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(block[many.COVARIANCE:44].T, covariance[:, TRIANGLE[0], TRIANGLE[1]], rtol=1e-9, atol=1e-12)


def test_a_slow_shuttle_is_predicted_alike(rng):
    state, covariance, block = flights(rng, robot_rig())
    block[3:6] *= 0.01  # under the speed below which the direction of flight is no use
    state[:, 3:6] *= 0.01
    many.predict_lanes(block.reshape(-1), 1.0, 0.1)
    for lane in range(LANES):
        one.predict(state[lane], covariance[lane], block[many.DT, lane], block[many.ACCELERATION, lane], 0.1, one.workspace())
    np.testing.assert_allclose(block[many.COVARIANCE:44].T, covariance[:, TRIANGLE[0], TRIANGLE[1]], rtol=1e-9, atol=1e-12)


def corrected_alone(rig, state, covariance, measurement, noise, size, gate):
    """State, covariance and NIS of one flight by the joint update of `filter.py`; NIS -1 where it has no image."""
    relative = np.asarray(rig.right_from_left_rotation), np.asarray(rig.right_from_left_translation)
    r, t = np.asarray(rig.left_from_world_rotation), np.asarray(rig.left_from_world_translation)
    eyes = [np.concatenate([turn.ravel(), shift, [c.fx, c.fy, c.cx, c.cy]])
            for turn, shift, c in ((r, t, rig.left), (relative[0] @ r, relative[0] @ t + relative[1], rig.right))]
    expected, slope, pixel, two = np.zeros(4), np.zeros((4, 3)), np.zeros(2), np.zeros((2, 3))
    for side, eye in enumerate(eyes):
        if not one.see(eye, state, 1.0, pixel, two):
            return -1.0
        expected[2 * side:2 * side + 2], slope[2 * side:2 * side + 2] = pixel, two
    if size == 3:
        expected[2], slope[2] = expected[0] - expected[2], slope[0] - slope[2]
    chol, pht, gain, rest, left, white = np.zeros((4, 4)), np.zeros((4, 8)), np.zeros((4, 8)), np.zeros((8, 8)), np.zeros((3, 8)), np.zeros(4)
    one.innovation(covariance, slope, noise, size, chol, pht)
    nis = one.whitened(chol, measurement - expected, size, white)
    if nis <= gate:
        one.correct(state, covariance, slope, noise, size, chol, pht, white, gain, rest, left)
    return nis


@pytest.mark.parametrize("size", [3, 4], ids=["u v disparity", "uL vL uR vR"])
def test_update_is_the_joint_one_of_one_flight(rng, size):
    rig = robot_rig()
    state, covariance, block = flights(rng, rig)
    state[5, :3] = block[:3, 5] = np.asarray(rig.pose.centre) - 3 * np.asarray(rig.pose.rotation)[2]  # behind the cameras
    variance, gate = np.array([1.0, 0.8, 0.5, 0.6]), 30.0
    measurement = np.column_stack([rng.uniform(0, 960, LANES), rng.uniform(0, 600, LANES), rng.uniform(2, 30, LANES), rng.uniform(0, 600, LANES)])
    block[many.MEASUREMENT:many.MEASUREMENT + 4] = measurement.T
    block[many.SEEN, 7], block[many.FOLLOWED, 8] = 0, 0
    before = block.copy()
    relative = np.concatenate([np.asarray(rig.right_from_left_rotation).ravel(), np.asarray(rig.right_from_left_translation)])
    lenses = np.array([[c.fx, c.fy, c.cx, c.cy] for c in (rig.left, rig.right)]).ravel()
    many.correct_lanes(block.reshape(-1), relative, lenses, size == 4, variance, gate)
    nis = np.array([corrected_alone(rig, state[i], covariance[i], measurement[i], np.diag(variance), size, gate) for i in range(LANES)])
    assert nis[5] == -1 and (nis <= gate).any() and (nis > gate).any()
    wanted = np.ones(LANES, bool)
    wanted[[7, 8]] = False
    np.testing.assert_allclose(block[many.NIS, wanted], nis[wanted], rtol=1e-8)
    assert (block[many.NIS, ~wanted] == -1).all()
    np.testing.assert_array_equal(block[:44, ~wanted], before[:44, ~wanted])
    np.testing.assert_allclose(block[:8, wanted].T, state[wanted], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(block[many.COVARIANCE:44, wanted].T, covariance[wanted][:, TRIANGLE[0], TRIANGLE[1]], rtol=1e-7, atol=1e-9)
    taken = wanted & (block[many.NIS] >= 0) & (block[many.NIS] <= gate)
    assert (block[:8, taken] != before[:8, taken]).any(axis=0).all()
    np.testing.assert_array_equal(block[:44, ~taken], before[:44, ~taken])
