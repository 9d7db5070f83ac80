"""Pairs, points and covariances: what a stereo pair knows, and what it refuses."""

from dataclasses import replace

import numpy as np
import pytest

from perception.camera import project
from perception.triangulation import (
    StereoCfg,
    disparity_measurement,
    epipolar_chi2,
    eyes_of,
    pair,
    sight,
    triangulate,
    undistorted,
)
from tests.perception.flights import court_rig, robot_rig


def looks(rig, points, **kwargs):
    pixels = project(rig, points)
    return [sight(rig, side, kwargs.get("times", (0.0, 0.0))[side], pixels[:, 2 * side:2 * side + 2]) for side in (0, 1)]


@pytest.mark.parametrize("rig", [robot_rig(), court_rig()], ids=["robot", "court"])
def test_points_come_back(rig, rng):
    points = rng.uniform([-1, 0, 0.5], [1, 2, 2.5], (40, 3))
    found = pair(*looks(rig, points), most=10_000)
    own = found.left == found.right
    assert own.sum() == 40
    np.testing.assert_allclose(found.points[own][np.argsort(found.left[own])], points, atol=1e-6)


def test_covariance_is_that_of_noisy_pixels(rng):
    rig, point = robot_rig(), np.array([[0.3, 2.0, 1.8]])
    clean = project(rig, point)
    noise = np.tile(np.eye(2) * 0.5**2, (4000, 1, 1))
    pixels = clean + 0.5 * rng.normal(size=(4000, 4))
    points, covariance, misfit = triangulate(pixels[:, :2], pixels[:, 2:], noise, noise, eyes_of(rig))
    seen = np.cov(points.T)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance.mean(axis=0))), np.sqrt(np.diag(seen)), rtol=0.15)
    assert misfit.mean() == pytest.approx(1.0, abs=0.1)  # four pixels less three unknowns
    # 6 m away with 12 cm between the eyes: 40 cm along the ray, under 1 cm across it. A round covariance would deny both
    values = np.sqrt(np.linalg.eigvalsh(covariance[0]))
    assert values[-1] > 25 * values[0]


def test_far_pairs_of_parallel_rays_are_unsure_not_errors():
    rig = robot_rig()
    pixels = np.array([[480.0, 300.0], [100.0, 100.0]])
    noise = np.tile(np.eye(2), (2, 1, 1))
    points, covariance, _ = triangulate(pixels, pixels, noise, noise, eyes_of(rig))
    assert np.isfinite(points).all() and np.isfinite(covariance).all()
    assert np.sqrt(np.linalg.eigvalsh(covariance)[:, -1]).min() > 20


def test_candidates_off_the_epipolar_line_make_no_pair():
    rig = robot_rig()
    left, right = looks(rig, np.array([[0.0, 1.0, 1.5]]))
    off = replace(right, pixels=right.pixels + [0.0, 12.0])
    assert len(pair(left, right).points) == 1
    assert len(pair(left, off).points) == 0
    assert epipolar_chi2(left, right)[0, 0] < 1e-6 < epipolar_chi2(left, off)[0, 0]


def test_cameras_out_of_step_get_the_slack_of_a_moving_shuttle():
    rig = court_rig()
    point, moved = np.array([[0.0, 1.0, 2.0]]), np.array([[0.0, 1.08, 2.03]])  # 20 m/s for 4 ms
    left, right = looks(rig, point, times=(0.0, 0.004))[0], looks(rig, moved, times=(0.0, 0.004))[1]
    tight = StereoCfg(pixel_sigma=0.5)
    assert len(pair(left, right, tight).points) == 1
    assert len(pair(replace(left, time=0.004), right, replace(tight, epipolar_gate=0.5)).points) == 0


@pytest.mark.parametrize(("name", "point"), [("too far", [0.0, 30.0, 1.5]), ("under the floor", [0.0, 1.0, -2.0])])
def test_points_no_shuttle_can_be_at_make_no_pair(name, point):
    rig = robot_rig()
    eyes = eyes_of(rig)
    pixels = project(rig, np.array([point]))
    left, right = (sight(rig, side, 0.0, pixels[:, 2 * side:2 * side + 2], eyes) for side in (0, 1))
    assert len(left.pixels) == 1  # it is in the image
    assert len(pair(left, right).points) == 0


def test_things_of_the_wrong_size_make_no_pair():
    left, right = looks(robot_rig(), np.array([[0.0, 1.0, 1.5]]))
    true = 0.065 * left.eye[12] / 5.0
    for size, count in ((true, 1), (8 * true, 0), (true / 8, 0)):
        assert len(pair(replace(left, sizes=np.array([size])), replace(right, sizes=np.array([size]))).points) == count


def test_whole_number_pixels_are_as_good_as_floats():
    camera = court_rig().left
    floats, _ = undistorted(replace(camera, distortion=(-0.28, 0.1, 0.0, 0.0, 0.0)), np.array([[700.0, 500.0]]))
    whole, _ = undistorted(replace(camera, distortion=(-0.28, 0.1, 0.0, 0.0, 0.0)), np.array([[700, 500]], np.int32))
    np.testing.assert_array_equal(floats, whole)


def test_pixels_that_are_none_are_left_out():
    flat, noise = undistorted(robot_rig().left, np.array([[np.nan, 3.0], [np.inf, 1.0], [1e9, 5.0], [-4000.0, 5.0], [480.0, 300.0]]))
    assert len(flat) == len(noise) == 1


def test_blur_widens_the_noise_along_the_streak_only():
    _, noise = undistorted(robot_rig().left, np.array([[400.0, 300.0]]), StereoCfg(pixel_sigma=1.0, blur_share=0.05), np.array([[40.0, 0.0]]))
    np.testing.assert_allclose(noise[0], [[1 + 2.0**2, 0], [0, 1]], atol=1e-6)


def test_column_and_disparity_errors_correlate_as_sampled(rng):
    left = np.array([[500.0, 300.0]]) + 0.6 * rng.normal(size=(20_000, 2))
    right = np.array([[480.0, 300.0]]) + 0.6 * rng.normal(size=(20_000, 2))
    rows, noise = disparity_measurement(left, right, 0.6, 0.6 * np.sqrt(2))
    np.testing.assert_allclose(np.cov(rows.T), noise[0], atol=0.02)
    assert np.linalg.eigvalsh(noise[0])[0] > 0
