"""Calibration: rigs with known answers come out, and what would come out wrong is refused with one line."""

import json
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest

from perception import verbs
from perception.calibration import calibrate, image_pairs, read_views, rectified
from perception.calibration_report import write_report
from perception.camera import StereoRig, zedx
from perception.errors import UserError
from tests.perception.boards import BOARD, RIG, poses, shoot

RECORDED = Path(__file__).parents[3] / "shared" / "data" / "chessboards"


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return shoot(tmp_path_factory.mktemp("boards") / "rig", poses())


@pytest.fixture(scope="module")
def found(images):
    return calibrate(read_views(images, BOARD), "hall", 60.0)


def refused(folder, said):
    with pytest.raises(UserError, match=said) as caught:
        calibrate(read_views(folder, BOARD))
    assert "\n" not in str(caught.value)


def test_a_rendered_rig_comes_back(found):
    rig = found.rig
    assert found.stereo_rms < 0.1 and found.row_error_rms < 0.1
    assert rig.left.fx == pytest.approx(520, rel=0.004) and rig.right.fx == pytest.approx(525, rel=0.004)
    np.testing.assert_allclose(rig.right_from_left_translation, RIG.right_from_left_translation, atol=0.0012)
    turn, _ = cv2.Rodrigues(rig.right_from_left_rotation @ RIG.right_from_left_rotation.T)
    assert np.linalg.norm(turn) < np.deg2rad(0.15)
    assert (rig.name, rig.fps) == ("hall", 60.0)


def test_rows_match_on_views_that_were_not_fitted(found):
    assert 0 < found.held_out_rms < 2 * found.row_error_rms + 0.02


def test_rectified_rig_sees_points_in_equal_rows_at_the_right_disparity(found, rng):
    parallel, left, right = rectified(found.rig)
    points = rng.uniform([-0.3, -0.2, 1], [0.3, 0.2, 4], (40, 3))
    a = parallel.left.project(points @ left.T)
    b = parallel.left.project((points @ found.rig.right_from_left_rotation.T + found.rig.right_from_left_translation) @ right.T)
    np.testing.assert_allclose(a[:, 1], b[:, 1], atol=1e-6)
    np.testing.assert_allclose(a[:, 0] - b[:, 0], parallel.left.fx * parallel.baseline / (points @ left.T)[:, 2], atol=1e-6)
    assert parallel.is_parallel


def test_cameras_that_look_at_each_other_have_no_rows_in_common():
    facing = StereoRig(zedx().left, zedx().left, cv2.Rodrigues(np.array([0, np.pi * 0.8, 0]))[0], np.array([1.0, 0.0, 8.0]))
    with pytest.raises(UserError, match="different directions"):
        rectified(facing)


def test_report_is_one_page_that_needs_nothing_else(found, tmp_path):
    path = tmp_path / "deep" / "report.html"
    write_report(found, path)
    page = path.read_text()
    assert page.count("data:image/png;base64,") == 3 and "http" not in page
    assert f"{found.stereo_rms:.3f}" in page and f"{found.row_error_rms:.3f}" in page


def test_images_in_two_folders_do_too(images, tmp_path):
    for side in ("left", "right"):
        (tmp_path / side).mkdir()
        for path in images.glob(f"{side}*"):
            shutil.copy(path, tmp_path / side / f"shot{path.stem.removeprefix(side)}.png")
    assert len(image_pairs(tmp_path)) == len(image_pairs(images)) == 10


def test_pairs_are_matched_by_what_is_left_of_their_names(tmp_path):
    for name in ("left_2.png", "right_2.png", "7-left.jpg", "7-right.jpg", "bright.txt"):
        (tmp_path / name).touch()
    found = [(n, a.name, b.name) for n, a, b in image_pairs(tmp_path)]
    assert found == [("7", "7-left.jpg", "7-right.jpg"), ("2", "left_2.png", "right_2.png")]


def test_too_few_views_are_refused(tmp_path):
    refused(shoot(tmp_path, poses()[:5]), "5 pairs show the whole board.* at least 8")


def test_views_in_one_corner_are_refused(tmp_path):
    corner = tuple((-0.2 + 0.02 * (n % 3), -0.19 + 0.02 * (n // 3)) for n in range(9))
    refused(shoot(tmp_path, poses(places=corner)), "one-sided views: boards covered .* quarter")


def test_views_without_tilt_are_refused(tmp_path):
    refused(shoot(tmp_path, poses(tilt=0.0)), "one-sided views.*tilted by")


def test_one_mirrored_camera_is_refused(tmp_path):
    shoot(tmp_path, poses(), change=lambda side, image: image[:, ::-1] if side == "left" else image)
    refused(tmp_path, "images of one camera are mirror images")


def test_two_mirrored_cameras_are_refused(tmp_path):
    refused(shoot(tmp_path, poses(), change=lambda side, image: image[:, ::-1]), "swapped, or both are mirror images")


def test_swapped_cameras_are_refused(images, tmp_path):
    for path in images.iterdir():
        other = "right" if path.name.startswith("left") else "left"
        shutil.copy(path, tmp_path / path.name.replace(path.name.rstrip("0123456789.png"), other, 1))
    refused(tmp_path, "swapped, or both are mirror images")


def test_pairs_that_are_mixed_up_are_refused(images, tmp_path):
    for path in images.iterdir():
        number = int(path.stem[-2:])
        shutil.copy(path, tmp_path / (f"right{(number + 1) % 10:02d}.png" if path.name.startswith("right") else path.name))
    refused(tmp_path, "not taken at the same time, or are mixed up")


def test_a_view_that_does_not_fit_with_the_rest_is_named(images, tmp_path):
    shutil.copytree(images, tmp_path, dirs_exist_ok=True)
    image = cv2.imread(str(tmp_path / "right04.png"), 0)
    cv2.imwrite(str(tmp_path / "right04.png"), np.roll(image, 2, axis=0))  # the board moved by 2 px between the exposures
    refused(tmp_path, "do not fit with the others: 04;")


def test_left_without_right_is_refused_by_name(images, tmp_path):
    shutil.copytree(images, tmp_path, dirs_exist_ok=True)
    (tmp_path / "right03.png").unlink()
    refused(tmp_path, "10 left and 9 right images; without a partner: left03.png")


@pytest.mark.parametrize("content", [b"", b"not an image"])
def test_unreadable_image_is_refused_by_name(images, tmp_path, content):
    shutil.copytree(images, tmp_path, dirs_exist_ok=True)
    (tmp_path / "right02.png").write_bytes(content)
    refused(tmp_path, "right02.png cannot be read as an image")


def test_images_of_two_sizes_are_refused(images, tmp_path):
    shutil.copytree(images, tmp_path, dirs_exist_ok=True)
    cv2.imwrite(str(tmp_path / "right05.png"), np.zeros((240, 320), np.uint8))
    refused(tmp_path, "right05.png is 320 x 240, those before it 640 x 480")


def test_images_without_the_board_are_refused(tmp_path):
    for side in ("left", "right"):
        cv2.imwrite(str(tmp_path / f"{side}1.png"), np.full((480, 640), 90, np.uint8))
    refused(tmp_path, "no pair of .* shows a 9x6 board")


def test_folder_without_images_says_how_they_are_called(tmp_path):
    refused(tmp_path, r"no left\*.jpg and right\*.jpg")
    refused(tmp_path / "nowhere", "is no folder")


@pytest.mark.skipif(not RECORDED.is_dir(), reason=f"the recorded boards are not at {RECORDED}")
def test_recorded_boards_calibrate_within_their_bars(tmp_path):
    verbs.calibrate(RECORDED, square_mm=25.0, out=tmp_path, json_path=tmp_path / "figures.json")
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["stereo_rms_px"] <= 0.23 and figures["row_error_rms_px"] <= 0.18 and max(figures["mono_rms_px"]) <= 0.21
    assert figures["views"] == 13
    rig = StereoRig.load(tmp_path / "rig.yaml")
    assert rig.baseline == figures["baseline_m"] and (tmp_path / "report.html").is_file()


def test_the_rig_shown_in_the_documents_is_one(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "calibrate.md").read_text()
    (tmp_path / "rig.yaml").write_text(page.split("```yaml")[1].split("```")[0])
    rig = StereoRig.load(tmp_path / "rig.yaml")
    assert rig.is_parallel and rig.fps == 60 and rig.baseline == 0.12
