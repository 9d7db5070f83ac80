"""Right rigs and wrong ones, told apart by what the cameras recorded; and how far apart in time the cameras were."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from perception import verbs
from perception.calibration import time_offset
from perception.camera import Camera, Pose, StereoRig
from perception.errors import UserError
from perception.flight_fit import states_at
from perception.rig_check import check_rig, epipolar_distance, fit_offset, read_tracks

RECORDED = Path(__file__).parents[3] / "shared" / "data" / "stereo_rallies"
needs_recordings = pytest.mark.skipif(not RECORDED.is_dir(), reason=f"the recorded rallies are not at {RECORDED}")
LENS = Camera(2048, 1536, 925.0, 930.0, 1020.0, 770.0, (-0.28, 0.1, 0.0, 0.0, -0.015))


def looking(centre, target):
    forward = np.subtract(target, centre) / np.linalg.norm(np.subtract(target, centre))
    right = np.cross(forward, [0, 0, 1.0])
    right /= np.linalg.norm(right)
    return Pose.of_camera(centre, np.column_stack([right, np.cross(forward, right), forward]))


def corners_rig(turn=(0.0, 0.0, 0.0)):
    """Two cameras in corners of a hall, 119 /s; turn [deg]: by how much the right one was knocked about its axes since."""
    left, right = looking([5.0, -8.0, 3.5], [0, 0, 1]), looking([-5.0, -8.0, 3.5], [0, 0, 1])
    relative = cv2.Rodrigues(np.deg2rad(np.array(turn)))[0] @ right.rotation @ left.rotation.T
    between = right.translation - right.rotation @ left.rotation.T @ left.translation
    return StereoRig(LENS, LENS, relative, between, left.rotation, left.translation, fps=119.0)


def tracks(rng, offset, shots=5, noise=1.0, strays=0.03, first=200):
    """Labels of both cameras, offset [frames] apart, of shots to and fro; some of them strays."""
    rig, frame = corners_rig(), first
    out: list = [[], []]
    for n in range(shots):
        way = 1 if n % 2 else -1
        p, v = np.array([rng.uniform(-2, 2), -5.0 * way, 1.5]), np.array([rng.uniform(-3, 3), 18.0 * way, rng.uniform(2, 8)])
        for side, camera in enumerate((rig.left, rig.right)):
            # the right camera's frame f shows the moment (f - offset): its flight starts between two of its frames
            ahead = 0.0 if side == 0 else (-offset) % 1
            whole = 0 if side == 0 else round(-((-offset) - ahead))
            path = states_at(p, v, 0.25, 0.6, (ahead + np.arange(90)) / rig.fps)[:, :3]
            points = path @ rig.left_from_world_rotation.T + rig.left_from_world_translation
            if side:
                points = points @ rig.right_from_left_rotation.T + rig.right_from_left_translation
            pixels = camera.project(points) + noise * rng.normal(size=(90, 2))
            out[side].append(np.column_stack([frame + whole + np.arange(90), pixels]))
        frame += 110
    for side in (0, 1):
        rows = np.concatenate(out[side])
        rows = rows[np.isfinite(rows).all(axis=1)]
        stray = rng.random(len(rows)) < strays
        rows[stray, 1:] = rng.uniform([0, 0], [2048, 1536], (stray.sum(), 2))
        out[side] = rows
    return out


@pytest.mark.parametrize("offset", [-37.3, -0.45, 0.0, 0.62, 12.8])
def test_offset_comes_back_through_noise_and_strays(rng, offset):
    left, right = tracks(rng, offset)
    found, error = time_offset(corners_rig(), left, right)
    assert found == pytest.approx(offset, abs=0.1)
    assert abs(found - offset) < 4 * fit_offset(corners_rig(), left, right).sigma_frames
    assert 0.5 < error < 2.0


def test_offset_does_not_hang_on_a_constant_added_to_both_counts(rng):
    left, right = tracks(rng, 0.4)
    early, _ = time_offset(corners_rig(), left, right)
    late, _ = time_offset(corners_rig(), left + [5000, 0, 0], right + [5000, 0, 0])
    assert early == pytest.approx(late, abs=1e-6)


def test_swapping_the_cameras_of_a_rig_turns_the_offset_around(rng):
    rig, (left, right) = corners_rig(), tracks(rng, 0.4)
    back = rig.right_from_left_rotation.T
    swapped = StereoRig(rig.right, rig.left, back, -back @ rig.right_from_left_translation)
    assert time_offset(swapped, right, left)[0] == pytest.approx(-time_offset(rig, left, right)[0], abs=0.03)


def test_distance_is_zero_for_pairs_that_meet_and_pixels_otherwise(rng):
    rig = replace(corners_rig(), left=replace(LENS, distortion=()), right=replace(LENS, distortion=()))
    world = rng.uniform([-2, -3, 0.5], [2, 3, 4], (50, 3)) @ rig.left_from_world_rotation.T + rig.left_from_world_translation
    left, right = world, world @ rig.right_from_left_rotation.T + rig.right_from_left_translation
    left, right = left[:, :2] / left[:, 2:], right[:, :2] / right[:, 2:]
    np.testing.assert_allclose(epipolar_distance(rig, left, right), 0, atol=1e-9)
    off = np.abs(epipolar_distance(rig, left, right + rng.normal(size=right.shape) * 3 / 925))
    # 3 px across the line in one camera is 3 / sqrt(2) by this measure, if both lines are as steep, and nothing along it
    assert 1.0 < np.sqrt(np.mean(off**2)) < 4.3


@pytest.mark.parametrize("turn", [(1.0, 0.0, 0.0), (0.0, 0.0, 2.0), (-5.0, 8.0, 3.0)])
def test_a_camera_that_was_knocked_is_noticed(rng, turn):
    recordings = {"a": tuple(tracks(rng, 0.3))}
    assert check_rig(corners_rig(), recordings)["rig_ok"]
    figures = check_rig(corners_rig(turn), recordings)
    assert not figures["rig_ok"] and figures["epipolar_error_px"] > 3


def test_swapped_label_files_are_noticed(rng):
    left, right = tracks(rng, 0.3)
    assert not check_rig(corners_rig(), {"a": (right, left)})["rig_ok"]


def test_a_cut_recording_is_named_and_does_not_fail_the_rig(rng):
    good = {str(n): tuple(tracks(rng, 0.3)) for n in range(2)}
    figures = check_rig(corners_rig(), {**good, "cut": (tracks(rng, 0.3)[0], tracks(rng, 0.3)[1])})
    assert figures["rig_ok"] and figures["time_offset_frames"]["cut"] is None
    assert "no offset" in figures["recordings"]["cut"]["problem"]
    assert figures["time_offset_frames"]["0"] == pytest.approx(0.3, abs=0.1)


def test_what_tells_no_offset_says_why(rng):
    rig, (left, right) = corners_rig(), tracks(rng, 0.3)
    with pytest.raises(UserError, match="only 20 frames are labelled"):
        time_offset(rig, left[:20], right)
    still = [np.column_stack([np.arange(100), np.tile(track[30, 1:], (100, 1))]) for track in (left, right)]
    with pytest.raises(UserError, match=r"moves along the epipolar lines, or hardly|no offset"):
        time_offset(rig, *still)
    with pytest.raises(UserError, match="only 0 frames"):
        time_offset(rig, np.empty((0, 3)), right)
    assert fit_offset(rig, left[:150], right + [3000, 0, 0]).problem  # never labelled at the same time


def test_nan_labels_are_no_labels(rng):
    left, right = tracks(rng, 0.3)
    right[::7, 1] = np.nan
    assert time_offset(corners_rig(), left, right)[0] == pytest.approx(0.3, abs=0.1)


def test_folder_without_labels_and_single_files_are_refused(tmp_path):
    with pytest.raises(UserError, match="no folder"):
        read_tracks(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"NAME_camera1\.csv"):
        read_tracks(tmp_path)
    (tmp_path / "a_camera1.csv").write_text("frame,visible,u_px,v_px\n")
    with pytest.raises(UserError, match=r"no a_camera2\.csv"):
        read_tracks(tmp_path)


def test_the_verb_takes_images_or_a_check():
    with pytest.raises(UserError, match="one of: a folder of images, --check"):
        verbs.calibrate()


@needs_recordings
def test_recorded_rallies_pass_the_rig_that_fits_and_give_their_offsets(tmp_path):
    labels = tmp_path / "labels"
    labels.mkdir()
    for path in RECORDED.glob("*_camera?.csv"):  # nothing else: the offsets must come from the labels
        shutil.copy(path, labels)
    verbs.calibrate(check=(RECORDED / "rig.json", labels), json_path=tmp_path / "check.json")
    figures = json.loads((tmp_path / "check.json").read_text())
    assert figures["rig_ok"] and figures["epipolar_error_px"] < 2
    for rally, offset in json.loads((RECORDED / "frame_offsets.json").read_text()).items():
        assert figures["time_offset_frames"][rally] == pytest.approx(offset, abs=0.15)
    assert figures["time_offset_frames"]["11-46-46"] is None and "no offset" in figures["recordings"]["11-46-46"]["problem"]


@needs_recordings
def test_recorded_rallies_fail_the_rig_published_with_them(tmp_path):
    for path in [*RECORDED.glob("11-46-04_camera?.csv"), *RECORDED.glob("11-47-02_camera?.csv")]:
        shutil.copy(path, tmp_path)
    with pytest.raises(UserError, match="does not fit these recordings"):
        verbs.calibrate(check=(RECORDED / "rig_wrong.json", tmp_path), json_path=tmp_path / "check.json")
    assert json.loads((tmp_path / "check.json").read_text())["rig_ok"] is False
