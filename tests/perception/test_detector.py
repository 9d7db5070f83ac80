"""What the detector takes for a shuttle, and what not, on a camera that turns."""

import cv2
import numpy as np
import pytest

from perception.camera import Pose
from perception.candidates import parts
from perception.detector import Detector, DetectorCfg, Window
from perception.errors import UserError
from tests.perception.scenes import CAMERA, ORANGE, WHITE, Hall, looking

STEP = 1 / 60


def watch(path, colour=WHITE, cfg=DetectorCfg(), yaw_rate=-1.0, windows=None, hall=None):
    """Candidates of the last of some images in which a disc goes along path (T, 3) of u, v, diameter, while the camera turns."""
    hall, detector = hall or Hall(), Detector(CAMERA, cfg)
    for n, disc in enumerate(path):
        pose = looking(yaw=yaw_rate * n * STEP, pitch=0.3 * yaw_rate * n * STEP)
        found = detector.look(n * STEP, hall.image(pose.rotation, [] if disc is None else [disc], colour), pose, windows)
        if windows is not None and disc is not None:
            detector.note(n * STEP, disc[0], disc[1])
    return found


def across(frames=10, start=(100.0, 80.0), step=(7.3, 2.1), size=8.0):
    return [(start[0] + n * step[0], start[1] + n * step[1], size) for n in range(frames)]


@pytest.mark.parametrize(("colour", "cfg", "within"), [(WHITE, DetectorCfg(), 0.2), (ORANGE, DetectorCfg(colour="orange"), 0.7)])
def test_a_moving_shuttle_is_the_best_candidate_and_found_within_a_pixel(colour, cfg, within):
    path = across()
    found = watch(path, colour, cfg)
    np.testing.assert_allclose(found.pixels[0], path[-1][:2], atol=within)
    assert found.sizes[0] == pytest.approx(8.0, rel=0.3)


def test_an_orange_shuttle_is_invisible_to_a_detector_for_white():
    assert not any(np.linalg.norm(p - across()[-1][:2]) < 3 for p in watch(across(), ORANGE).pixels)


def test_a_hall_without_shuttle_gives_next_to_nothing_while_the_camera_turns():
    assert len(watch([None] * 10)) <= 1
    assert len(watch([None] * 10, cfg=DetectorCfg(colour="orange"))) <= 1


def test_a_turn_that_it_is_not_told_of_gives_false_candidates():
    hall, detector = Hall(), Detector(CAMERA)
    for n in range(10):
        found = detector.look(n * STEP, hall.image(looking(yaw=n * STEP).rotation), looking())  # told that it does not turn
    assert len(found) >= 3


def test_a_spot_that_stands_still_is_none():
    assert not any(np.linalg.norm(p - (200, 120)) < 5 for p in watch([(200.0, 120.0, 8.0)] * 10, yaw_rate=0.0).pixels)


def test_in_a_window_a_shuttle_that_comes_head_on_is_found():
    found = watch([(200.0, 120.0, 8.0)] * 10, yaw_rate=0.0, windows=[Window(203.0, 118.0, 30.0, 3.4)])
    np.testing.assert_allclose(found.pixels[0], (200.0, 120.0), atol=0.3)


def test_in_a_window_a_shuttle_before_a_lamp_is_found_as_what_is_darker():
    hall = Hall()
    hall.wall[300:600, 480:960] = 255
    path = across()
    found = watch(path, (190, 190, 190), yaw_rate=0.0, hall=hall, windows=[Window(*path[-1][:2], 40.0, 3.4)])
    assert np.linalg.norm(found.pixels - path[-1][:2], axis=1).min() < 0.6


def test_a_window_that_leaves_the_image_is_cut_and_one_outside_gives_nothing():
    path = across(start=(12.0, 40.0), step=(0.5, 6.0))
    assert len(watch(path, windows=[Window(0.0, path[-1][1], 40.0, 3.4)]))
    assert len(watch(path, windows=[Window(-300.0, 100.0, 40.0, 3.4)])) == 0


def test_what_is_cut_off_by_the_border_is_no_candidate():
    path = across(start=(2.0, 40.0), step=(0.0, 7.0))
    assert not any(p[0] < 8 for p in watch(path, yaw_rate=0.0).pixels)


def test_a_shuttle_flies_alone_what_moves_in_pieces_does_not_count():
    hall, detector = Hall(), Detector(CAMERA)
    for n in range(10):
        u, v = 100 + 9.0 * n, 80 + 2.0 * n
        pieces = [(u + du, v + dv, 7.0) for du in (0, 11) for dv in (0, 11)]
        found = detector.look(n * STEP, hall.image(looking().rotation, pieces), looking())
    assert not any(abs(p[0] - u) < 20 and abs(p[1] - v) < 20 for p in found.pixels)


def test_a_streak_is_told_by_length_and_direction():
    hall, detector = Hall(), Detector(CAMERA)
    for n in range(8):
        u, v = 60 + 20.0 * n, 90 + 10.0 * n
        smear = [(u + s * 8.9, v + s * 4.5, 7.0) for s in np.linspace(-0.5, 0.5, 15)]
        found = detector.look(n * STEP, hall.image(looking().rotation, smear), looking())
    nearest = np.argmin(np.linalg.norm(found.pixels - (u, v), axis=1))
    streak = found.streaks[nearest]
    assert abs(streak @ (0.894, 0.447)) == pytest.approx(np.linalg.norm(streak), rel=0.05)
    assert np.linalg.norm(streak) == pytest.approx(13, abs=3)  # longest extent beyond the shortest of a disc of 7 smeared by 10


@pytest.mark.parametrize("brightness", [0, 255])
def test_black_and_white_images_give_nothing(brightness):
    detector = Detector(CAMERA)
    for n in range(6):
        image = np.full((300, 480, 3), brightness, np.uint8)
        image[0, 0] = n  # not frozen
        assert len(detector.look(n * STEP, image, looking())) == 0


def test_a_frozen_camera_gives_nothing_even_though_the_robot_turns_and_is_counted():
    image, detector = Hall().image(looking().rotation, [(200, 100, 8)]), Detector(CAMERA)
    found = [len(detector.look(n * STEP, image, looking(yaw=0.05 * n))) for n in range(10)]
    assert sum(found) == 0 and detector.repeats == 9


def test_an_image_from_the_past_is_left_out():
    hall, detector = Hall(), Detector(CAMERA)
    for n in range(8):
        detector.look(n * STEP, hall.image(looking().rotation), looking())
    assert len(detector.look(3 * STEP, hall.image(looking().rotation, [(200, 100, 8)]), looking())) == 0


def test_four_channels_are_as_good_as_three():
    hall, detector = Hall(), Detector(CAMERA)
    for n, disc in enumerate(across()):
        image = np.dstack([hall.image(looking().rotation, [disc]), np.full((300, 480), 255, np.uint8)])
        found = detector.look(n * STEP, image, looking())
    np.testing.assert_allclose(found.pixels[0], disc[:2], atol=0.2)


@pytest.mark.parametrize(("image", "said"), [
    (np.zeros((300, 480, 3), np.float32), "uint8"), (np.zeros((300, 480), np.uint8), "height x width x 3"), (np.zeros((0, 0, 3), np.uint8), "0 x 0"),
    (np.zeros((600, 960, 3), np.uint8), "960 x 600"), (None, "NoneType"), (np.zeros((300, 480, 3), np.uint16), "uint16"),
])
def test_what_is_no_image_of_this_camera_is_refused_in_one_line(image, said):
    with pytest.raises(UserError, match=said) as error:
        Detector(CAMERA).look(0.0, image, Pose())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("changes", [{"colour": "blue"}, {"threshold": 0.0}, {"ages": (0.06, 0.03)}, {"memory": 0.01}])
def test_settings_that_make_no_sense_are_refused(changes):
    with pytest.raises(UserError):
        DetectorCfg(**changes)


def test_parts_are_those_of_opencv_on_any_image():
    rng = np.random.default_rng(3)
    for density in (0.0, 0.02, 0.3, 0.6, 1.0):
        image = (rng.random((41, 58)) < density).astype(np.uint8) * rng.integers(21, 255, (41, 58), dtype=np.uint8)
        found = parts(image, 20.0)
        total, labels, stats, _ = cv2.connectedComponentsWithStats((image > 20).astype(np.uint8), connectivity=8)
        assert len(found) == total - 1
        boxes = np.column_stack([found[:, 8], found[:, 10], found[:, 9] - found[:, 8] + 1, found[:, 11] - found[:, 10] + 1, found[:, 6]])
        np.testing.assert_array_equal(np.sort(boxes, axis=0), np.sort(stats[1:], axis=0))
        middles = np.array([_middle(image * (labels == n)) for n in range(1, total)]).reshape(-1, 2)
        np.testing.assert_allclose(np.sort(found[:, 1:3], axis=0), np.sort(middles, axis=0))


def _middle(image):
    y, x = np.nonzero(image)
    return np.average(x, weights=image[y, x]), np.average(y, weights=image[y, x])
