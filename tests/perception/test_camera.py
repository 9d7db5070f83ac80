"""Cameras and rigs: OpenCV's geometry, files that round-trip, poses between poses."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perception.camera import Camera, Pose, PoseBuffer, StereoRig, project, zedx
from perception.errors import UserError

WIDE = Camera(2048, 1536, 925.0, 944.7, 1027.4, 749.0, (-0.287, 0.107, -0.0002, 0.0007, -0.0186))
RIG_JSON = Path(__file__).parents[2] / ".." / "shared" / "data" / "stereo_rallies" / "rig.json"


def turned(rng, size=1.0):
    rotation, _ = cv2.Rodrigues(size * rng.normal(size=3))
    return rotation


def test_projection_is_opencvs(rng):
    points = rng.uniform([-2, -1.5, 3], [2, 1.5, 9], (200, 3))
    theirs, _ = cv2.projectPoints(points[:, None], np.zeros(3), np.zeros(3), WIDE.matrix, WIDE.coefficients)
    np.testing.assert_allclose(WIDE.project(points), theirs[:, 0], atol=1e-9)


def test_points_behind_the_lens_have_no_pixel():
    assert np.isnan(WIDE.project(np.array([[0.1, 0.1, -2.0], [0.0, 0.0, 0.0]]))).all()
    assert not WIDE.inside(np.full((1, 2), np.nan)).any()


@settings(max_examples=60, deadline=None)
@given(st.floats(300, 1750), st.floats(150, 1350))
def test_a_ray_goes_back_through_its_pixel(u, v):
    ray = WIDE.rays(np.array([[u, v]]))
    assert np.linalg.norm(ray) == pytest.approx(1)
    np.testing.assert_allclose(WIDE.project(4.2 * ray), [[u, v]], atol=0.1)


def test_where_distortion_folds_back_there_is_no_ray():
    assert np.isnan(WIDE.rays(np.array([[0.0, 0.0], [2047.0, 1535.0]]))).all()


def test_integer_pixels_are_pixels():
    np.testing.assert_array_equal(WIDE.undistort(np.array([[100, 200]])), WIDE.undistort(np.array([[100.0, 200.0]])))


def test_a_parallel_rig_gives_disparity_by_the_textbook():
    rig = zedx("HD1200", 2.2)
    points = np.array([[0.5, -0.2, 5.0], [-1.0, 0.3, 7.0]])
    pixels = project(rig, points)
    assert rig.is_parallel and rig.baseline == 0.12
    np.testing.assert_allclose(pixels[:, 0] - pixels[:, 2], 741.6 * 0.12 / points[:, 2])
    np.testing.assert_allclose(pixels[:, 1], pixels[:, 3])


@pytest.mark.parametrize(("mode", "lens", "view"), [("HD1200", 2.2, (104.6, 78.0)), ("SVGA", 4, (74.0, 50.5))])
def test_zedx_sees_the_published_angles(mode, lens, view):
    camera = zedx(mode, lens).left
    angles = np.rad2deg([2 * np.arctan(camera.width / 2 / camera.fx), 2 * np.arctan(camera.height / 2 / camera.fy)])
    np.testing.assert_allclose(angles, view, atol=0.3)


def test_matches_lie_on_epipolar_lines_of_any_rig(rng):
    rig = StereoRig(WIDE, WIDE, turned(rng, 0.3), np.array([-2.0, 0.3, 0.5]), turned(rng), rng.normal(size=3))
    points_w = (rng.uniform([-1, -1, 4], [1, 1, 8], (50, 3)) - rig.pose.translation) @ rig.pose.rotation
    pixels = project(rig, points_w)
    left, right = rig.left.undistort(pixels[:, :2]), rig.right.undistort(pixels[:, 2:])
    one = np.ones((50, 1))
    assert np.abs(np.einsum("ni,ij,nj->n", np.hstack([right, one]), rig.essential(), np.hstack([left, one]))).max() < 1e-6


def test_rig_file_round_trips_exactly(tmp_path, rng):
    rig = StereoRig(WIDE, zedx().left, turned(rng), rng.normal(size=3), turned(rng), rng.normal(size=3), "hall", 119.12, -0.0043)
    rig.save(tmp_path / "rig.yaml")
    again = StereoRig.load(tmp_path / "rig.yaml")
    assert (again.left, again.right, again.name, again.fps, again.time_offset_s) == (rig.left, rig.right, "hall", 119.12, -0.0043)
    for key in ("right_from_left_rotation", "right_from_left_translation", "left_from_world_rotation",
                "left_from_world_translation"):
        np.testing.assert_array_equal(getattr(again, key), getattr(rig, key))


@pytest.mark.skipif(not RIG_JSON.is_file(), reason="the recorded rallies are not beside this clone")
def test_a_pair_given_by_world_poses_sees_the_court_where_it_is():
    rig = StereoRig.load(RIG_JSON)
    pixels = project(rig, np.array([[0.0, 0.0, 1.5], [1.0, 2.0, 1.0]]))  # over the middle of the court
    assert rig.left.inside(pixels[:, :2]).all() and rig.right.inside(pixels[:, 2:]).all()
    assert rig.fps == 119.12 and 5 < rig.baseline < 20
    assert 1 < rig.pose.centre[2] < 6  # it hangs above the floor


@pytest.mark.parametrize(("text", "said"), [
    ("", "no rig"), ("left: 3", "no rig"), ("{]", "no rig"),
    ("left: {width: 0, height: 5, fx: 1, fy: 1, cx: 0, cy: 0, distortion: []}\nright: {}", "positive size"),
])
def test_a_file_that_is_no_rig_is_refused_in_one_line(tmp_path, text, said):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=said) as caught:
        StereoRig.load(path)
    assert "\n" not in str(caught.value).split(";")[0] or "yaml" in str(caught.value).lower()


def test_rigs_that_cannot_be_are_refused():
    camera = zedx().left
    with pytest.raises(UserError, match="no rotation"):
        StereoRig(camera, camera, 2 * np.eye(3), np.array([-0.1, 0, 0]))
    with pytest.raises(UserError, match="no stereo without a baseline"):
        StereoRig(camera, camera, np.eye(3), np.zeros(3))
    with pytest.raises(UserError, match="modes HD1200, SVGA"):
        zedx("VGA")


def test_pose_between_two_poses_turns_and_moves_evenly(rng):
    buffer = PoseBuffer()
    start, end = Pose.of_camera([0, 0, 0.6], turned(rng, 0.2)), Pose.of_camera([0.2, 0.1, 0.7], turned(rng, 0.2))
    buffer.add(1.0, end)
    buffer.add(0.9, start)  # late
    middle = buffer.at(0.95)
    np.testing.assert_allclose(middle.centre, [0.1, 0.05, 0.65])
    np.testing.assert_allclose(middle.rotation @ start.rotation.T, end.rotation @ middle.rotation.T, atol=1e-9)
    np.testing.assert_allclose(buffer.at(0.9).rotation, start.rotation)
    assert buffer.at(1.01).centre[0] == pytest.approx(0.2)
    assert buffer.at(1.1) is None and buffer.at(0.5) is None


def test_pose_buffer_forgets_old_poses_and_refuses_nonsense(rng):
    buffer = PoseBuffer(length=0.5)
    for t in np.arange(0, 2, 0.01):
        buffer.add(float(t), Pose.of_camera([t, 0, 0], np.eye(3)))
    buffer.add(1.995, Pose(np.full((3, 3), np.nan), np.zeros(3)))
    buffer.add(float("nan"), Pose())
    assert buffer.at(1.0) is None
    assert buffer.at(1.755).centre[0] == pytest.approx(1.755)
    assert PoseBuffer().at(0.0) is None
