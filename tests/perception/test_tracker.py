"""The tracker as a specification: start, clutter, hits, gaps, late frames, moving cameras, and input that is no shuttle."""

from dataclasses import replace

import numpy as np
import pytest

from perception.camera import Pose, PoseBuffer, project
from perception.flight import fly
from perception.interception import forecast
from perception.tracker import Tracker, TrackerCfg
from perception.triangulation import eyes_of, sight
from tests.perception.flights import STEREO, court_rig, flight, robot_rig, sights

CFG = TrackerCfg(stereo=STEREO)


def fed(looks, cfg=CFG):
    tracker = Tracker(cfg)
    return tracker, [tracker.add(one) for one in looks]


def test_flight_is_given_out_after_three_pairs_and_gets_sharper(rng):
    times, states = flight()
    looks = sights(robot_rig(), times, states[:, :3], rng)
    _, tracks = fed(looks)
    first = next(n for n, t in enumerate(tracks) if t is not None)
    assert looks[first].label <= 4  # three of the first four pairs, or one more
    errors = [np.linalg.norm(t.state[:3] - states[one.label, :3]) for t, one in zip(tracks, looks, strict=True) if t is not None]
    assert np.median(errors[-20:]) < 0.03 < np.median(errors[:10])


def test_forecast_of_a_court_rig_is_within_its_own_ellipsoid(rng):
    inside, distances = 0, []
    for _ in range(12):
        times, states = flight((0.0, 4.0, 1.2), (rng.uniform(-1, 1), -16.0, 8.0), k=rng.normal(0.248, 0.012), s=rng.normal(0.4, 0.25))
        _, tracks = fed([one for one in sights(court_rig(), times, states[:, :3], rng, noise=0.7) if one.time <= 0.5])
        track = tracks[-1]
        x, cov = forecast(track.time, track.state, track.covariance, times[-1])
        off = x[:3] - states[-1, :3]
        distances.append(np.linalg.norm(off))
        inside += off @ np.linalg.solve(cov[:3, :3], off) < 11.3  # 99 %
    assert inside >= 11 and np.median(distances) < 0.06


def test_cameras_need_not_be_in_step(rng):
    times, states = flight((0.0, 4.0, 1.2), (0.3, -16.0, 8.0))
    _, tracks = fed(sights(court_rig(), times, states[:, :3], rng, lag=0.0037))
    assert np.linalg.norm(tracks[-1].state[:3] - states[-1, :3] - 0.0037 * states[-1, 3:]) < 0.02


def test_false_candidates_do_not_break_a_track(rng):
    times, states = flight()
    tracker, tracks = fed(sights(robot_rig(), times, states[:, :3], rng, clutter=5))
    late = [np.linalg.norm(t.state[:3] - states[round(t.time * 120), :3]) for t in tracks[60:] if t is not None]
    assert len(late) == len(tracks[60:]) and max(late) < 0.3
    assert len([t for t in tracker.tracks if t.confirmed]) == 1


def test_two_hundred_false_candidates_a_frame_make_no_track(rng):
    times = np.arange(60) / 120
    nowhere = np.full((60, 3), [0.0, -50.0, 0.0])  # behind the camera
    _, tracks = fed(sights(robot_rig(), times, nowhere, rng, clutter=200))
    assert not any(tracks)


@pytest.mark.parametrize("point", [(0.0, 1.0, 1.5), (0.5, 0.5, 0.05)])
def test_what_does_not_move_makes_no_track(point, rng):
    times = np.arange(60) / 120
    _, tracks = fed(sights(robot_rig(), times, np.tile(point, (60, 1)).astype(float), rng))
    assert not any(tracks)


def test_frozen_frames_are_noticed_and_end_the_track(rng):
    times, states = flight()
    looks = sights(robot_rig(), times, states[:, :3], rng)
    live, frozen = looks[:80], [replace(looks[78 + n % 2], time=looks[78 + n % 2].time + (1 + n // 2) / 120) for n in range(80)]
    tracker, tracks = fed([*live, *frozen])
    assert tracker.repeats == 80
    assert tracks[79] is not None and tracks[-1] is None


def test_track_coasts_through_a_gap_and_ends_after_a_longer_one(rng):
    times, states = flight(seconds=1.2)
    looks = sights(robot_rig(), times, states[:, :3], rng)
    blind = [replace(one, pixels=one.pixels[:0], noise=one.noise[:0]) if 0.4 < one.time < 0.65 else one for one in looks]
    _tracker, tracks = fed(blind)
    assert all(tracks[n] is not None for n, one in enumerate(blind) if 0.4 < one.time < 1.0)
    assert tracks[-1] is None or tracks[-1].born == tracks[90].born  # one flight, not two
    gone = [replace(one, pixels=one.pixels[:0], noise=one.noise[:0]) if one.time > 0.4 else one for one in looks]
    _, tracks = fed(gone)
    assert all(t is None for t, one in zip(tracks, gone, strict=True) if one.time > 0.4 + CFG.coast + 0.01)


def test_hit_starts_a_new_flight_within_80_ms(rng):
    _times, states = flight((0.0, 4.0, 1.2), (0.3, -16.0, 8.0), seconds=0.6)
    back = fly(states[-1:, :3], np.array([[0.5, 15.0, 9.0]]), np.array([0.25]), np.array([0.6]), 1 / 120, 60)[0]
    both = np.concatenate([states[:, :3], back[1:, :3]])
    looks = sights(court_rig(), np.arange(len(both)) / 120, both, rng)
    tracker, tracks = fed(looks)
    new = next(one.time for one, t in zip(looks, tracks, strict=True) if t is not None and t.state[4] > 5)
    assert 0.6 < new < 0.68
    assert tracks[-1].born == pytest.approx(0.6, abs=0.03)
    assert len(tracker.take_finished()) == 1


def test_late_and_out_of_order_frames_end_in_the_same_state(rng):
    times, states = flight()
    looks = sights(robot_rig(), times, states[:, :3], rng)
    order = np.argsort([one.time + (0.15 if n % 7 == 3 else 0.0) for n, one in enumerate(looks)], kind="stable")
    _, straight = fed(looks)
    tracker, mixed = fed([looks[n] for n in order])
    assert tracker.too_late == 0
    # the very last ones are still on their way in neither: the same exposures, the same filter
    np.testing.assert_allclose(mixed[-1].state, straight[-1].state, atol=1e-9)
    np.testing.assert_allclose(mixed[-1].covariance, straight[-1].covariance, atol=1e-12)


def test_time_that_runs_backwards_is_left_out_and_counted(rng):
    times, states = flight()
    looks = sights(robot_rig(), times, states[:, :3], rng)
    tracker, tracks = fed([*looks, *(replace(one, time=one.time - 1.0) for one in looks), replace(looks[-1], time=np.nan)])
    assert tracker.too_late == len([one for one in looks if one.time - 1.0 < times[-1] - CFG.memory]) + 1
    assert tracks[-1] is tracks[len(looks) - 1]


def test_swapped_cameras_make_no_track(rng):
    times, states = flight()
    rig = robot_rig()
    swapped = []
    for one in sights(rig, times, states[:, :3], rng):
        swapped.append(replace(one, side=1 - one.side, eye=eyes_of(rig)[1 - one.side]))
    _, tracks = fed(sorted(swapped, key=lambda one: one.time))
    assert not any(tracks)


def test_one_camera_alone_makes_no_track(rng):
    times, states = flight()
    looks = sights(robot_rig(), times, states[:, :3], rng)
    _, tracks = fed([one if one.side == 0 else replace(one, pixels=one.pixels[:0], noise=one.noise[:0]) for one in looks])
    assert not any(tracks)


def test_camera_that_pitches_and_walks_tracks_as_well_as_one_that_stands(rng):
    rig, (times, states) = robot_rig(), flight()
    home = rig.pose
    poses, eyes = PoseBuffer(2.0), {}

    def moved(t):
        angle, shift = 0.15 * np.sin(9 * t), np.array([0.0, 0.5 * t, 0.03 * np.sin(30 * t)])
        tip = np.array([[1, 0, 0], [0, np.cos(angle), -np.sin(angle)], [0, np.sin(angle), np.cos(angle)]])
        rotation = tip @ home.rotation
        return Pose(rotation, -rotation @ (home.centre + shift))

    for t in np.arange(-0.02, 1.0, 0.005):  # odometry at 200/s: exposures fall in between
        poses.add(t, moved(t))
    errors = []
    tracker = Tracker(CFG)
    for n, t in enumerate(times):
        pixels = project(rig, states[n:n + 1, :3], moved(t))
        pose = poses.at(t)
        eyes = eyes_of(rig, pose.rotation, pose.translation)
        for side in (0, 1):
            seen = pixels[:, 2 * side:2 * side + 2]
            seen = seen[rig.left.inside(seen)] + 0.5 * rng.normal(size=(int(rig.left.inside(seen).sum()), 2))
            track = tracker.add(sight(rig, side, t, seen, eyes, STEREO, n))
        if track is not None and n > 60:
            errors.append(np.linalg.norm(track.state[:3] - states[n, :3]))
    assert len(errors) > 40 and np.median(errors) < 0.05


def test_height_scale_is_learned_from_gravity(rng):
    from perception.height_scale import HeightScale

    scale = HeightScale()
    for n in range(4):
        times, states = flight((0.0, 4.0, 1.2), (0.4 * n - 0.6, -16.0, 9.0))
        squeezed = states[:, :3] / [1.0, 1.0, 1.04]  # what a rig with short metres of height would report
        _tracker, tracks = fed(sights(court_rig(), times, squeezed, rng, noise=0.7))
        scale = scale.learn(tracks[-1], CFG)
    assert scale.value == pytest.approx(1.04, abs=0.02)
    assert scale.sigma < 0.015
    known = HeightScale(1.0, 0.0)
    assert known.learn(tracks[-1], CFG) is known
