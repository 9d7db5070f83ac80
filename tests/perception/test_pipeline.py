"""From pairs of images to a flight, and what becomes of cameras that are covered, frozen, swapped or not what they should be."""

import numpy as np
import pytest

from perception.camera import Pose
from perception.errors import UserError
from perception.flight import fly
from perception.interception import at_height
from perception.pipeline import SKIRT_BEHIND, Pipeline
from tests.perception.scenes import RIG, Hall, looking

STEP = 1 / 60
FRAMES = 40
START, VELOCITY = np.array([6.0, 0.6, 2.4]), np.array([-13.0, -0.8, 2.0])
PATH = fly(START[None], VELOCITY[None], np.array([0.248]), np.array([0.6]), STEP, FRAMES)[0]


def pose_at(n):
    """The robot turns, pitches and walks a little."""
    return looking(yaw=0.04 * np.sin(0.2 * n), pitch=-0.3 + 0.03 * np.sin(0.3 * n), centre=(0.01 * n * STEP * 60 * 0.3, 0.0, 0.8))


@pytest.fixture(scope="module")
def pairs():
    """Images of a flight towards the robot: (time, left, right, pose), the first ten without shuttle."""
    hall, out = Hall(), []
    for n in range(-10, FRAMES):
        place = None
        if n >= 0:
            place = PATH[n, :3] - SKIRT_BEHIND * PATH[n, 3:] / np.linalg.norm(PATH[n, 3:])
        out.append((n * STEP, *hall.pair(pose_at(n), place), pose_at(n)))
    return out


def feed(pairs, change=lambda left, right, n: (left, right), pipeline=None):
    pipeline = pipeline or Pipeline(RIG)
    looks = []
    for n, (time, left, right, pose) in enumerate(pairs):
        looks.append(pipeline.look(time, *change(left, right, n), pose))
    return pipeline, looks


def test_a_flight_is_found_followed_in_windows_and_foretold(pairs):
    pipeline, looks = feed(pairs)
    first = next(n for n, look in enumerate(looks) if look.track is not None)
    assert 10 < first <= 10 + 9  # 150 ms after the hit
    later = looks[first + 1:10 + 24]
    assert all(look.track is not None and look.mode == "window" for look in later)
    track = later[-1].track
    assert np.linalg.norm(track.state[:3] - PATH[23, :3]) < 0.15  # it has just passed before white letters
    crossing = at_height(track.time, track.state, track.covariance, 2.0)
    down = next(n for n in range(FRAMES - 1) if PATH[n, 2] >= 2.0 > PATH[n + 1, 2])
    share = (PATH[down, 2] - 2.0) / (PATH[down, 2] - PATH[down + 1, 2])
    np.testing.assert_allclose(crossing.place, PATH[down, :3] + share * (PATH[down + 1, :3] - PATH[down, :3]), atol=0.1)
    assert pipeline.notes() == []


def test_a_hall_without_shuttle_gives_no_track():
    hall = Hall(seed=3)
    _, looks = feed([(n * STEP, *hall.pair(pose_at(n)), pose_at(n)) for n in range(40)])
    assert all(look.track is None for look in looks)


@pytest.mark.parametrize("side", [0, 1])
def test_one_black_camera_makes_no_track_and_is_named(pairs, side):
    def cover(left, right, n):
        dark = np.zeros_like(left)
        dark[0, 0] = n % 5  # a sensor that runs
        return (left, dark) if side else (dark, right)

    pipeline, looks = feed(pairs, cover)
    assert all(look.track is None for look in looks)
    assert [n for n in pipeline.notes() if "black" in n and ("right" if side else "left") in n]


def test_frozen_frames_make_no_track_and_are_named(pairs):
    pipeline, looks = feed(pairs, lambda left, right, n: pairs[20][1:3])
    assert all(look.track is None for look in looks)
    assert any("frozen" in n for n in pipeline.notes())


def test_a_camera_that_freezes_in_flight_does_not_bend_the_track(pairs):
    _, looks = feed(pairs, lambda left, right, n: pairs[min(n, 30)][1:3])
    track = looks[36].track
    assert track is None or np.linalg.norm(track.state[:3] - PATH[26, :3]) < 0.3


def test_swapped_cameras_make_no_track_and_are_named(pairs):
    pipeline = Pipeline(RIG)
    for _ in range(2):
        _, looks = feed([(t + 2 * FRAMES * STEP * pipeline.looks, *rest) for t, *rest in pairs], lambda left, right, n: (right, left), pipeline)
        assert all(look.track is None for look in looks)
    assert any("swapped" in n for n in pipeline.notes())


def test_two_hundred_bright_spots_a_frame_make_no_track():
    hall, rng, looks, pipeline = Hall(), np.random.default_rng(1), [], Pipeline(RIG)
    for n in range(30):
        images = [hall.image(pose_at(n).rotation, [(rng.uniform(5, 475), rng.uniform(5, 295), 6.0) for _ in range(200)]) for _ in range(2)]
        looks.append(pipeline.look(n * STEP, *images, pose_at(n)))
    assert all(look.track is None for look in looks)


def test_poses_and_times_that_are_not_finite_are_left_out_and_named(pairs):
    pipeline, looks = feed([(np.nan if n % 2 else t, left, right, Pose(np.full((3, 3), np.nan), np.zeros(3)) if n % 4 else pose)
                            for n, (t, left, right, pose) in enumerate(pairs)])
    assert all(look.track is None for look in looks)
    assert any("pose" in n for n in pipeline.notes())


def test_time_that_runs_backwards_makes_no_track(pairs):
    _, looks = feed([(-t, *rest) for t, *rest in pairs])
    assert all(look.track is None for look in looks)


def test_images_of_another_mode_are_refused(pairs):
    with pytest.raises(UserError, match="another mode"):
        Pipeline(RIG).look(0.0, np.zeros((600, 960, 3), np.uint8), pairs[0][2], pairs[0][3])


def test_a_shuttle_that_leaves_the_image_is_still_known_when_it_should_come_down(pairs):
    """The camera looks away after 24 frames of flight; the flight goes on without it."""
    hall, pipeline = Hall(), Pipeline(RIG)
    feed(pairs[:34], pipeline=pipeline)
    for n in range(24, FRAMES):
        pose = looking(yaw=0.9)
        look = pipeline.look(n * STEP, *hall.pair(pose), pose)
        assert look.mode == "away" and look.track is not None


def test_a_shuttle_that_is_gone_although_it_should_be_seen_is_given_up(pairs):
    hall, pipeline = Hall(), Pipeline(RIG)
    feed(pairs[:28], pipeline=pipeline)
    looks = [pipeline.look(n * STEP, *hall.pair(pose_at(n)), pose_at(n)) for n in range(18, 32)]
    assert looks[0].track is not None and looks[-1].track is None
    assert looks[-1].mode == "search"


def test_poses_that_jump_about_are_survived(pairs):
    rng = np.random.default_rng(2)
    pipeline, _ = feed(pairs[:24])  # a track is there
    looks = []
    for n in range(14, 30):
        turn, _ = np.linalg.qr(rng.standard_normal((3, 3)))
        pose = Pose(turn * np.sign(np.linalg.det(turn)), rng.uniform(-3, 3, 3))
        looks.append(pipeline.look(n * STEP, *pairs[n + 10][1:3], pose))
    assert len(looks) == 16  # all were taken; what a robot at random places sees means nothing
