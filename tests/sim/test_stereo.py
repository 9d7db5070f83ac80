"""What the rendered cameras show: points where the rig says, a shuttle of its true size, streaks, noise, and nothing hidden."""

import os
from dataclasses import replace

import numpy as np
import pytest

from perception.camera import project, zedx
from perception.errors import UserError
from sim.display import choose_offscreen
from sim.stereo import SKIRT, SensorCfg, StereoCameras, lens_pose

QUIET = SensorCfg(read_noise=0.0, shot_noise=0.0)


@pytest.fixture(scope="module")
def opengl():
    before = {k: os.environ.get(k) for k in ("MUJOCO_GL", "PYOPENGL_PLATFORM")}
    display = choose_offscreen()
    if display.backend is None:
        pytest.skip(display.note)
    yield
    for key, value in before.items():
        if value is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = value


@pytest.fixture(scope="module")
def cameras(opengl, robot):
    with StereoCameras(robot, zedx("SVGA", 4), np.random.default_rng(1), QUIET) as made:
        yield made


NOD = 0.4  # [rad] nose down, so that the camera looks along the court and not over it


def standing(robot, pitch=NOD):
    q = np.zeros(robot.model.nq)
    q[:3] = -4.0, 0.0, robot.standing_height
    q[3:7] = np.cos(pitch / 2), 0, np.sin(pitch / 2), 0
    q[robot.qpos_index] = robot.default_pose
    return q


def flight(cameras, place, velocity):
    place, velocity = np.array(place, float), np.array(velocity, float)
    return np.array([np.concatenate([place + o * velocity, velocity]) for o in cameras.cfg.offsets])


def shot(cameras, qpos, path=None, time=0.0):
    """Left and right image and visible shares, the robot standing still."""
    return cameras.shoot(time, qpos, [cameras.pose(qpos)] * cameras.cfg.subframes, path)


def difference(cameras, qpos, path, side=0):
    """How much the shuttle changes each pixel."""
    return np.abs(shot(cameras, qpos, path)[side].astype(float) - shot(cameras, qpos)[side]).sum(axis=2)


def centroid(image):
    weight = image * (image > 0.1 * image.max())
    v, u = np.mgrid[:image.shape[0], :image.shape[1]]
    return np.array([(u * weight).sum(), (v * weight).sum()]) / weight.sum()


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("place", [(0.0, 0.0, 2.2), (-1.5, 0.8, 2.6), (-1.0, -1.2, 2.9), (1.0, 2.0, 1.2)])
def test_a_point_is_found_in_the_image_where_the_rig_says_it_is(cameras, robot, side, place):
    qpos = standing(robot)
    pose = cameras.pose(qpos)
    lens = pose.centre + (pose.rotation.T @ [0.12, 0, 0] if side else 0)
    towards = (lens - place) / np.linalg.norm(lens - place)  # cork first into the lens: its outline is a disc about the point
    told = project(cameras.rig, np.array([place]), pose)[0, 2 * side:2 * side + 2]
    found = centroid(difference(cameras, qpos, flight(cameras, place, 1e-6 * towards), side) > 20)
    assert np.linalg.norm(found - told) <= 0.3


def test_another_lens_and_a_pitched_robot_keep_the_rig_true(opengl, robot):
    with StereoCameras(robot, zedx("SVGA", 2.2), np.random.default_rng(1), QUIET) as wide:
        qpos, place = standing(robot, pitch=NOD - 0.2), np.array([-1.0, 0.7, 2.5])
        pose = wide.pose(qpos)
        towards = 1e-6 * (pose.centre - place)
        assert np.linalg.norm(centroid(difference(wide, qpos, flight(wide, place, towards)) > 20) - project(wide.rig, place[None], pose)[0, :2]) <= 0.3


def test_the_skirt_has_its_true_size(cameras, robot):
    qpos, place = standing(robot), np.array([-1.4, 0.0, 2.0])
    pose = cameras.pose(qpos)
    away = 1e-6 * (place - pose.centre)  # skirt first: the tip circle is all that is seen, a cork's length nearer
    changed = difference(cameras, qpos, flight(cameras, place, away))
    depth = pose.apply(place[None])[0, 2] - 0.075
    across = np.sqrt(4 / np.pi * (changed > 0.5 * np.median(changed[changed > 20])).sum())
    assert across == pytest.approx(SKIRT * cameras.rig.left.fx / depth, rel=0.08)


def test_a_fast_shuttle_smears_by_its_way_within_the_exposure(cameras, robot):
    qpos, place = standing(robot), np.array([0.0, 0.0, 2.2])
    pose = cameras.pose(qpos)
    across = pose.rotation.T @ np.array([40.0, 0.0, 0.0])

    def width(speed_share):
        columns = difference(cameras, qpos, flight(cameras, place, across * speed_share)).sum(axis=0)
        return np.count_nonzero(columns > 60)

    way = 40.0 * cameras.cfg.exposure * cameras.rig.left.fx / pose.apply(place[None])[0, 2]  # 9 px
    assert width(1.0) - width(1e-6) == pytest.approx(way * 0.8, abs=2)  # five places in the exposure lie 4/5 of it apart


def test_what_is_hidden_or_outside_shows_nothing(cameras, robot):
    qpos = standing(robot)
    shares = [shot(cameras, qpos, flight(cameras, place, (-5, 0, -2)))[2] for place in ((-1.0, 0.0, 1.8), (14.5, 0.0, 2.0), (-1.0, 6.0, 2.0), (-6.0, 0, 1.5))]
    assert (shares[0] > 0.8).all()
    assert all((share == 0).all() for share in shares[1:])  # behind the wall, beside the image, behind the camera


def test_noise_is_as_told_and_the_same_seed_gives_the_same_bytes(opengl, robot):
    def grey(seed):
        with StereoCameras(robot, zedx("SVGA", 4), np.random.default_rng(seed), SensorCfg(read_noise=3.0, shot_noise=0.0)) as made:
            return shot(made, standing(robot))[0], shot(made, standing(robot))[0]

    first, second = grey(4)
    calm = (first > 20) & (first < 230) & (second > 20) & (second < 230)
    assert np.std((first.astype(float) - second)[calm]) == pytest.approx(3.0 * np.sqrt(2), rel=0.05)
    np.testing.assert_array_equal(first, grey(4)[0])


def test_people_and_bag_move(cameras, robot):
    qpos = standing(robot)
    a, b = shot(cameras, qpos, time=0.0)[0].astype(int), shot(cameras, qpos, time=0.3)[0].astype(int)
    assert np.abs(a - b).max() > 60
    assert np.median(np.abs(a - b)) == 0


def test_the_pose_of_the_lens_turns_with_the_base(cameras, robot):
    up = lens_pose(standing(robot, pitch=-0.3)[:7], cameras.lens)
    level = lens_pose(standing(robot, pitch=0.0)[:7], cameras.lens)
    assert np.degrees(np.arcsin(level.rotation[2, 2])) == pytest.approx(42.97, abs=0.1)  # the camera looks 43 degrees up
    assert up.rotation[2, 2] > level.rotation[2, 2]


@pytest.mark.parametrize("changes", [{"exposure": 0.004}, {"exposure": 0.0}, {"subframes": 0}, {"shuttle": "green"}, {"read_noise": -1.0}])
def test_settings_that_make_no_sense_are_refused(changes):
    with pytest.raises(UserError):
        SensorCfg(**changes)


def test_a_rig_with_distortion_is_refused(robot):
    rig = zedx("SVGA", 4)
    bent = replace(rig, left=replace(rig.left, distortion=(0.1, 0.0, 0.0, 0.0)))
    with pytest.raises(UserError, match="distortion"):
        StereoCameras(robot, bent, np.random.default_rng(0))
