"""How serves seen by the cameras are scored: in view, found, foretold, false; what is missing never looks good."""

from dataclasses import replace

import numpy as np
import pytest

from perception.errors import UserError
from perception.flight import fly
from perception.pipeline import SKIRT_BEHIND
from policy.perception_bench import HORIZONS, Verdict, batch_tick_ms, bench_perception, judge, summarise
from policy.watched_serves import BEFORE, Frame, Serve
from tests.perception.scenes import RIG, Hall, looking

STEP = 1 / 60
HEIGHT = 1.4
SEEN, HIDDEN = np.ones(2), np.zeros(2)
START = np.array([6.0, 0.6, 2.4, -13.0, -0.8, 2.0])  # flat enough to stay in the image until it is near


def serve(qpos=None, time=None):
    """A serve to a robot that stands; what it is told of the robot does not matter to `judge`."""
    time = np.arange(-0.3, 1.2, 0.02) if time is None else time
    qpos = np.tile([0, 0, 0.5, 1.0, 0, 0, 0], (len(time), 1)) if qpos is None else qpos
    return Serve(time, qpos, START, 0.248, 0.6, HEIGHT)


def frames(drawn=True, told=True, shows=SEEN, seed=0):
    """Exposures of `serve`. drawn: whether images show the shuttle; told: whether the truth knows of it."""
    hall, s = Hall(seed), serve()
    for t in np.arange(-BEFORE, s.meeting[0], STEP):
        pose = looking(pitch=-0.15 + 0.02 * np.sin(7 * t))
        x = s.shuttle(np.array([t]))[0] if t >= 0 else None
        middle = None if x is None else x[:3] - SKIRT_BEHIND * x[3:] / np.linalg.norm(x[3:])
        left, right = hall.pair(pose, middle if drawn else None)
        known = x is not None and told
        yield Frame(float(t), left, right, pose, x[:3] if known else None, shows if known else HIDDEN)


@pytest.fixture(scope="module")
def seen():
    return judge(serve(), frames(), RIG)


def test_a_serve_in_plain_sight_is_found_and_foretold_without_a_false_track(seen):
    assert len(seen.views) > 15  # then it is above the image
    assert seen.found >= 0.9 * len(seen.views)
    assert seen.false_tracks == 0
    assert seen.errors[0.4] < 0.1 and seen.errors[0.2] < 0.06
    assert seen.time_errors[0.2] < 0.02
    assert seen.notes == []


def test_every_frame_is_timed_in_the_way_it_was_looked_at(seen):
    assert sum(len(times) for times in seen.detect.values()) == round(seen.seconds * RIG.fps)
    assert min(min(times) for times in seen.detect.values() if times) > 0
    assert len(seen.detect["window"]) == len(seen.track) > 0


def test_only_frames_near_enough_and_shown_by_both_eyes_count_as_in_view(seen):
    path = serve().shuttle(np.array(seen.views))
    assert np.linalg.norm(path[:, :3] - (0, 0, 0.8), axis=1).max() < 7.2
    one_eye = judge(serve(), frames(shows=np.array([1.0, 0.1])), RIG)
    assert one_eye.views == []


def test_a_serve_that_is_not_seen_is_infinitely_wrong_and_never_found():
    blind = judge(serve(), frames(drawn=False), RIG)
    assert blind.found == 0 and len(blind.views) > 15
    assert all(blind.errors[h] == np.inf and blind.time_errors[h] == np.inf for h in HORIZONS)


def test_a_track_of_what_is_no_shuttle_is_false():
    ghost = judge(serve(), frames(told=False), RIG)
    assert ghost.false_tracks >= 1 and ghost.views == []


def test_the_meeting_lies_on_the_flight_and_on_the_way_down():
    when, where = serve().meeting
    x = serve().shuttle(np.array([when]))[0]
    np.testing.assert_allclose(x[:3], where, atol=2e-3)
    assert where[2] == pytest.approx(HEIGHT, abs=1e-6) and x[5] < 0


def test_places_of_a_serve_are_those_of_the_flight_model():
    t = np.array([0.02, 0.12, 0.4])
    path = fly(START[None, :3], START[None, 3:], np.array([0.248]), np.array([0.6]), 0.001, 401)[0]
    np.testing.assert_allclose(serve().shuttle(t), path[[20, 120, 400]], atol=1e-4)


def test_between_two_records_the_robot_turns_the_shorter_way():
    turn = np.array([np.cos(0.1), 0, 0, np.sin(0.1)])
    qpos = np.array([[0, 0, 0.5, 1, 0, 0, 0], [0.2, 0, 0.5, *(-turn)]])  # minus a quaternion is the same rotation
    q = serve(qpos, np.array([0.0, 0.02])).robot(0.01)
    np.testing.assert_allclose(np.abs(q[3:7]), np.abs([np.cos(0.05), 0, 0, np.sin(0.05)]), atol=1e-6)
    assert q[0] == pytest.approx(0.1)


def verdict(error, found=9, false=0, fresh=True):
    errors, views = dict.fromkeys(HORIZONS, error), [0.1 * n for n in range(10)]
    return Verdict(seconds=2.0, views=views, found=found, false_tracks=false, errors=errors, time_errors=errors,
                   fresh=dict.fromkeys(HORIZONS, fresh), turn_rate=1.0)


def test_figures_of_many_serves_weigh_frames_and_seconds():
    figures = summarise([verdict(0.02, found=10), verdict(0.04, found=8, false=1), verdict(0.09)])
    assert figures["recall"] == pytest.approx(27 / 30)
    assert figures["false_tracks_per_100_s"] == pytest.approx(100 / 6)
    assert figures["interception_median_m"] == {"0.2": 0.04, "0.4": 0.04}


def test_a_track_in_the_empty_hall_counts_as_false_and_its_seconds_count_too():
    figures = summarise([replace(verdict(0.02), empty_seconds=3.0, empty_false_tracks=2), verdict(0.02, false=1)])
    assert figures["false_tracks"] == 3 and figures["empty_false_tracks"] == 2
    assert figures["false_tracks_per_100_s"] == pytest.approx(100 * 3 / 7)


def test_serves_not_foretold_count_against_the_median_until_there_is_none():
    assert summarise([verdict(0.02), verdict(0.05), verdict(np.inf)])["interception_median_m"]["0.4"] == 0.05
    assert summarise([verdict(0.02), verdict(np.inf), verdict(np.inf)])["interception_median_m"]["0.4"] is None


def test_serves_out_of_sight_are_told_apart():
    figures = summarise([verdict(0.02), verdict(0.2, fresh=False), verdict(0.3, fresh=False)])
    assert figures["interception_median_m"]["0.2"] == 0.2
    assert figures["interception_fresh_median_m"]["0.2"] == 0.02 and figures["interception_fresh_serves"]["0.2"] == 1


def test_recall_of_nothing_in_view_is_unknown_not_perfect():
    assert summarise([replace(verdict(np.inf), views=[], found=0)])["recall"] is None


def test_the_batch_is_timed():
    assert 0 < batch_tick_ms(RIG, count=32, ticks=12) < 100


@pytest.mark.parametrize("settings", [{"serves": 0}, {"fps": 5.0}, {"fps": 1000.0}])
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(UserError):
        bench_perception(**settings)
