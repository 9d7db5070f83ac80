"""Recordings through the tracker: the bars on recorded rallies and tosses, and files that are not what they should be."""

from pathlib import Path

import numpy as np
import pytest

from perception.camera import StereoRig, project
from perception.errors import UserError
from perception.points import filter_points, read_points, score_points, white_sigma
from perception.track import TrackerCfg
from perception.track_score import score_folder
from perception.tracking import Labels, Recording, epipolar_misfit, read_folder, read_labels, track_recording
from tests.perception.flights import court_rig, flight

RECORDED = Path(__file__).parents[3] / "shared" / "data"
RALLIES, MOCAP = RECORDED / "stereo_rallies", RECORDED / "mocap_300hz"
with_rallies = pytest.mark.skipif(not RALLIES.is_dir(), reason=f"the recorded rallies are not at {RALLIES}")


def label_file(path, rows, head="frame,visible,u_px,v_px"):
    path.write_text("\n".join([head, *rows]) + "\n")
    return path


def recording(rng, seconds=0.9, noise=0.7, empty=0):
    """A made-up flight as both cameras' labels; `empty` frames without shuttle before it."""
    rig = court_rig()
    _, states = flight((0.0, 4.0, 1.2), (0.3, -16.0, 8.0), seconds=seconds)
    pixels = project(rig, states[:, :3]) + noise * rng.normal(size=(len(states), 4))
    frames = np.arange(empty + len(states))
    none = [np.empty((0, 2))] * empty
    return rig, Recording("made up", Labels(frames, none + [p[None, :2] for p in pixels]), Labels(frames, none + [p[None, 2:] for p in pixels]), 0.0), states


def written(folder, one: Recording):
    for side, labels in ((1, one.left), (2, one.right)):
        label_file(folder / f"a_camera{side}.csv", [f"{f},1,{q[0]:.3f},{q[1]:.3f}" if len(p) else f"{f},0,0,0"
                                                    for f, p in zip(labels.frames, labels.pixels, strict=True) for q in (p if len(p) else [(0, 0)])])


@with_rallies
def test_recorded_rallies_are_foretold_within_their_bars():
    figures, logs = score_folder(RALLIES, StereoRig.load(RALLIES / "rig.json"))
    assert figures["flights"] == 37
    for horizon, median, p90 in (("0.2", 0.05, 0.09), ("0.4", 0.07, 0.13), ("0.6", 0.10, 0.22), ("1.0", 0.16, 0.30)):
        assert figures["median_m"][horizon] <= median
        assert figures["p90_m"][horizon] <= p90
        assert figures["missed"][horizon] == 0
    assert all(figures["median_time_error_ms"][h] <= 6.0 for h in ("0.2", "0.4", "0.6"))
    assert figures["first_prediction_ms"] <= 150
    assert 0.60 <= figures["coverage_68"] <= 0.76 + 1 / 128 and 0.90 - 1 / 128 <= figures["coverage_95"] <= 0.98
    assert figures["height_scale"] == pytest.approx(1.024, abs=0.008)  # what a fit of all flights together gives
    nis = []
    for log in logs.values():
        for one in log.flights:
            hit = one.newest
            while hit is not None:
                nis.append(hit.nis)
                hit = hit.earlier
    assert 0.7 < np.median(nis) / 1.386 < 1.3 or np.median(nis) < 1.386  # the noise is not set too tight


@with_rallies
def test_wrong_rig_is_named_and_makes_no_track():
    one = next(r for r in read_folder(RALLIES) if r.name == "11-46-22")
    with pytest.raises(UserError, match="px under this rig"):
        track_recording(StereoRig.load(RALLIES / "rig_wrong.json"), one)


@with_rallies
def test_swapped_files_are_named_and_make_no_track():
    one = next(r for r in read_folder(RALLIES) if r.name == "11-46-22")
    with pytest.raises(UserError, match="swapped"):
        track_recording(StereoRig.load(RALLIES / "rig.json"), Recording("swapped", one.right, one.left, -one.offset))


@pytest.mark.skipif(not MOCAP.is_dir(), reason=f"the recorded tosses are not at {MOCAP}")
def test_motion_capture_is_followed_within_its_bars_and_consistently():
    figures = score_points(MOCAP)
    assert figures["residual_rms_m"] <= 0.004
    assert figures["nis_bounds"][0] <= figures["nis_mean"] <= figures["nis_bounds"][1]
    for name in ("toss_10", "toss_24", "toss_28"):
        assert figures["flights"][name]["residual_rms_m"] <= 0.004 and figures["flights"][name]["consistent"]
        assert 0.12 < figures["flights"][name]["drag"] < 0.2  # these shuttles carry markers


def test_points_with_known_noise_are_consistent(rng):
    times, states = flight((0, 0, 1.5), (1.0, 2.0, 3.0), rate=300.0, seconds=0.5, k=0.2, s=0.0)
    points = states[:, :3] + 0.001 * rng.normal(size=(len(times), 3))
    np.testing.assert_allclose(white_sigma(points), 0.001, rtol=0.3)
    off, nis, _ = filter_points(times, points)
    assert 2.3 < nis[6:].mean() < 3.7
    assert np.sqrt(np.mean(np.sum(off[6:] ** 2, axis=1))) < 0.003


def test_forecasts_do_not_look_ahead(rng):
    rig, whole, _ = recording(rng)
    cut = Recording("cut", Labels(whole.left.frames[:60], whole.left.pixels[:60]), Labels(whole.right.frames[:60], whole.right.pixels[:60]), 0.0)
    first, second = track_recording(rig, whole), track_recording(rig, cut)
    for a, b in zip(first.tracks[:120], second.tracks, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_array_equal(a.state, b.state)


def test_labels_come_back_as_they_were_written(tmp_path, rng):
    _, one, _ = recording(rng, empty=4)
    written(tmp_path, one)
    (read,) = read_folder(tmp_path)
    assert read.name == "a" and read.offset is None
    np.testing.assert_array_equal(read.left.frames, one.left.frames)
    assert [len(p) for p in read.left.pixels] == [len(p) for p in one.left.pixels]
    np.testing.assert_allclose(np.concatenate(read.right.pixels), np.concatenate(one.right.pixels), atol=1e-3)


def test_several_rows_of_a_frame_are_several_candidates(tmp_path):
    labels = read_labels(label_file(tmp_path / "a.csv", ["0,1,10,20", "0,1,30,40", "1,0,0,0"]))
    assert [len(p) for p in labels.pixels] == [2, 0]


@pytest.mark.parametrize(("name", "text", "message"), [
    ("empty", "", "no label file"),
    ("another table", "a,b\n1,2\n", "first line must be"),
    ("no rows", "frame,visible,u_px,v_px\n", "holds no frames"),
    ("words", "frame,visible,u_px,v_px\n0,1,left,3\n1,1,2,3\n", "line 2"),
    ("half a row in the middle", "frame,visible,u_px,v_px\n0,1\n1,1,2,3\n", "line 2"),
    ("half a frame", "frame,visible,u_px,v_px\n0.5,1,2,3\n1,1,2,3\n", "whole number")])
def test_files_that_are_none_are_refused_in_one_line(tmp_path, name, text, message):
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as error:
        read_labels(path)
    assert "\n" not in str(error.value)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe\x00\x80" * 10)
    with pytest.raises(UserError, match="cannot be read"):
        read_labels(tmp_path / "x.csv")


def test_cut_file_is_used_as_far_as_it_goes_and_says_so(tmp_path):
    labels = read_labels(label_file(tmp_path / "a.csv", ["0,1,10,20", "1,1,11,2", "2,1,12"]))
    assert labels.frames.tolist() == [0, 1]
    assert "cut off" in labels.notes[0]


def test_nan_counts_as_not_seen_and_is_noted(tmp_path):
    labels = read_labels(label_file(tmp_path / "a.csv", ["0,1,nan,20", "1,1,inf,3", "2,1,5,6", "3,nan,5,6"]))
    assert [len(p) for p in labels.pixels] == [0, 0, 1, 0]
    assert "2 candidates without finite coordinates" in labels.notes[0]


def test_time_that_runs_backwards_is_noted_and_invents_nothing(tmp_path, rng):
    rig, one, _ = recording(rng)
    frames = np.concatenate([one.left.frames, one.left.frames])
    back = [Labels(frames, labels.pixels * 2) for labels in (one.left, one.right)]
    log = track_recording(rig, Recording("twice", *back, 0.0))
    assert len(log.flights) == 1
    assert any("0.2 s late" in note for note in log.notes)
    label_file(tmp_path / "a.csv", ["0,1,1,1", "5,1,1,1", "2,1,1,1"])
    assert "backwards" in read_labels(tmp_path / "a.csv").notes[0]


def test_camera_without_data_is_named(rng):
    rig, one, _ = recording(rng)
    dark = Labels(one.right.frames, [np.empty((0, 2))] * len(one.right.frames))
    with pytest.raises(UserError, match="right camera saw nothing"):
        track_recording(rig, Recording("dark", one.left, dark, 0.0))


def test_swapped_cameras_are_named(rng):
    rig, one, _ = recording(rng)
    with pytest.raises(UserError, match="swapped"):
        track_recording(rig, Recording("swapped", one.right, one.left, 0.0))


def test_frozen_images_are_noted_and_make_no_track(rng):
    rig, one, _ = recording(rng)
    still = [Labels(labels.frames, [labels.pixels[20]] * len(labels.frames)) for labels in (one.left, one.right)]
    log = track_recording(rig, Recording("frozen", *still, 0.0))
    assert not log.flights and any("frozen" in note for note in log.notes)


def test_whole_number_labels_are_good_enough(rng):
    rig, one, states = recording(rng)
    whole = [Labels(labels.frames, [np.rint(p).astype(int) for p in labels.pixels]) for labels in (one.left, one.right)]
    log = track_recording(rig, Recording("integers", *whole, 0.0))
    assert np.linalg.norm(log.tracks[-1].state[:3] - states[-1, :3]) < 0.05


def test_misfit_is_small_for_the_right_rig_and_none_for_no_data(rng):
    rig, one, _ = recording(rng)
    assert epipolar_misfit(rig, one) < 2.0
    assert np.isnan(epipolar_misfit(rig, Recording("short", Labels(one.left.frames[:3], one.left.pixels[:3]), one.right, 0.0)))


def test_folders_that_hold_nothing_to_track_say_what_is_missing(tmp_path, rng):
    with pytest.raises(UserError, match="no label files"):
        read_folder(tmp_path)
    _, one, _ = recording(rng)
    written(tmp_path, one)
    with pytest.raises(UserError, match="cannot be scored"):
        score_folder(tmp_path, court_rig())
    (tmp_path / "frame_offsets.json").write_text("{broken")
    with pytest.raises(UserError, match=r"frame_offsets\.json"):
        read_folder(tmp_path)
    (tmp_path / "frame_offsets.json").unlink()
    (tmp_path / "a_camera2.csv").unlink()
    with pytest.raises(UserError, match="needs both cameras"):
        read_folder(tmp_path)


def test_two_label_files_give_track_interceptions_and_a_report(tmp_path, rng):
    from perception.verbs import track

    rig, one, _ = recording(rng)
    written(tmp_path, one)
    rig.save(tmp_path / "rig.yaml")
    track((tmp_path / "a_camera1.csv", tmp_path / "a_camera2.csv"), rig=tmp_path / "rig.yaml", offset=0.0, height_scale=1.0, out=tmp_path / "out")
    rows = (tmp_path / "out" / "track.csv").read_text().splitlines()
    assert len(rows) > 150 and rows[0].startswith("t_s,flight_born_s,x_m")
    assert len((tmp_path / "out" / "interceptions.csv").read_text().splitlines()) > 50
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 3 and "http" not in page  # nothing to fetch


@pytest.mark.parametrize(("paths", "message"), [
    ((Path("nowhere"),), "no folder nowhere"), ((), "one folder, or two"), ((Path("a.csv"), Path("b.csv")), "needs --rig")])
def test_the_verb_says_what_it_takes(paths, message):
    from perception.verbs import track

    with pytest.raises(UserError, match=message):
        track(paths)


def test_points_out_of_order_are_refused(tmp_path):
    path = label_file(tmp_path / "toss.csv", ["0,0,0,1", "0.1,0,0,1", "0.05,0,0,1"], "t_s,x_m,y_m,z_m")
    with pytest.raises(UserError, match="does not go forward"):
        read_points(path)


def test_cfg_is_what_the_docs_say():
    cfg = TrackerCfg()
    assert cfg.coast == 0.3 and cfg.memory == 0.2 and cfg.trial == 0.08
