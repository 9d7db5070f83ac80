"""Two videos through `birdie track`: drawn scenes, and files that are no videos."""

from dataclasses import replace

import cv2
import numpy as np
import pytest

from perception.errors import UserError
from perception.flight import fly
from perception.track_video import track_videos
from perception.verbs import track
from tests.perception.scenes import RIG, Hall, looking

STANDING = replace(RIG, left_from_world_rotation=looking(pitch=-0.3).rotation, left_from_world_translation=looking(pitch=-0.3).translation)
PATH = fly(np.array([[6.0, 0.6, 2.4]]), np.array([[-13.0, -0.8, 2.0]]), np.array([0.248]), np.array([0.6]), 1 / 60, 30)[0, :, :3]


def film(folder, count=36, size=None):
    """left.avi and right.avi of a flight that begins with the eleventh frame."""
    hall, paths = Hall(), [folder / "left.avi", folder / "right.avi"]
    size = size or (RIG.left.width, RIG.left.height)
    writers = [cv2.VideoWriter(str(p), cv2.VideoWriter.fourcc(*"MJPG"), 60.0, size) for p in paths]
    for n in range(-10, count - 10):
        for writer, image in zip(writers, hall.pair(STANDING.pose, PATH[n] if n >= 0 else None), strict=True):
            writer.write(cv2.resize(image, size))
    for writer in writers:
        writer.release()
    return paths


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    return film(tmp_path_factory.mktemp("films"))


def test_the_shuttle_is_found_where_it_was_drawn(films):
    log, overlays = track_videos(STANDING, *films)
    given = [(n, t) for n, t in enumerate(log.tracks) if t is not None]
    assert given and given[0][0] >= 12 and len(log.flights) == 1
    n, last = given[-1]
    assert np.linalg.norm(last.state[:3] - PATH[n - 10]) < 0.25
    assert 1 <= len(overlays) <= 6 and overlays[0][1].shape[1] == 1080


def test_the_verb_writes_a_report_with_images(films, tmp_path):
    STANDING.save(tmp_path / "rig.yaml")
    track(tuple(films), rig=tmp_path / "rig.yaml", out=tmp_path / "out")
    assert "data:image/jpeg;base64," in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(("name", "content"), [("empty", b""), ("no video", b"frame,visible\n" * 20)])
def test_files_that_are_no_videos_are_refused(films, tmp_path, name, content):
    (tmp_path / "x.avi").write_bytes(content)
    with pytest.raises(UserError, match=r"x\.avi"):
        track_videos(STANDING, tmp_path / "x.avi", films[1])
    with pytest.raises(UserError, match="cannot be opened"):
        track_videos(STANDING, tmp_path / "nowhere.avi", films[1])


def test_cut_video_is_used_as_far_as_it_goes_and_says_so(films, tmp_path):
    (tmp_path / "cut.avi").write_bytes(films[0].read_bytes()[:len(films[0].read_bytes()) // 3])
    try:
        log, _ = track_videos(STANDING, tmp_path / "cut.avi", films[1])
    except UserError as error:  # some builds of the reader refuse a file without its index
        assert "cut.avi" in str(error)
    else:
        assert 0 < len(log.times) < 36 and any("cut off" in note for note in log.notes)


def test_images_of_another_size_are_refused(tmp_path):
    with pytest.raises(UserError, match="480"):
        track_videos(STANDING, *film(tmp_path, 3, (320, 200)))


def test_a_black_camera_makes_no_track_and_is_named(films, tmp_path):
    writer = cv2.VideoWriter(str(tmp_path / "dark.avi"), cv2.VideoWriter.fourcc(*"MJPG"), 60.0, (RIG.left.width, RIG.left.height))
    for _ in range(36):
        writer.write(np.zeros((RIG.left.height, RIG.left.width, 3), np.uint8))
    writer.release()
    log, _ = track_videos(STANDING, films[0], tmp_path / "dark.avi")
    assert not any(log.tracks) and any("right camera shows black" in note for note in log.notes)


def test_a_video_beside_labels_is_refused(films, tmp_path):
    STANDING.save(tmp_path / "rig.yaml")
    with pytest.raises(UserError, match="one is a video"):
        track((films[0], tmp_path / "a.csv"), rig=tmp_path / "rig.yaml")
