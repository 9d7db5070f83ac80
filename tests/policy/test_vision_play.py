"""From a track to the command of a swing, and one shot from pixels."""

import os

import numpy as np
import pytest

from perception.errors import UserError
from perception.flight import fly
from perception.interception import FlightNoise
from perception.tracker import Track
from policy.inference import OnnxPolicy
from policy.vision_play import VisionCfg, play_with_vision, strike_command
from sim.court import HOME_X
from sim.display import choose_offscreen

PERIOD, HEIGHT = 0.02, 1.8
STATE = np.array([1.5, 0.4, 2.6, -9.0, -0.5, 4.0, 0.248, 0.6])


def track(sigma=0.02, state=STATE, time=0.0):
    covariance = np.diag([sigma**2] * 3 + [(4 * sigma) ** 2] * 3 + [0.01**2, 0.1**2])
    return Track(time, state.copy(), covariance, time, 30.0, time, 20, None, True, (), state.copy(), covariance.copy())


def command(t, now=0.0, delay=0, sure=0.3):
    return strike_command(t, now, delay, PERIOD, HEIGHT, FlightNoise(), sure)


@pytest.mark.parametrize("delay", [0, 1])
def test_the_strike_is_where_the_shuttle_is_on_a_control_step_near_the_height(delay):
    swing, sigma = command(track(), delay=delay)
    steps = int(swing.time[0]) + delay
    path = fly(STATE[None, :3], STATE[None, 3:6], STATE[6:7], STATE[7:8], PERIOD, steps + 1)[0]
    np.testing.assert_allclose(swing.position[0] + [HOME_X, 0, 0], path[-1, :3], atol=0.002)
    assert abs(path[-1, 2] - HEIGHT) < 0.5 * PERIOD * abs(path[-1, 5]) + 0.002
    assert swing.wait[0] == delay and swing.launch[0] == 0
    assert (sigma[:2] > 0).all() and sigma[2] < 1e-6  # the place lies on the height


def test_the_racket_goes_along_its_normal_towards_the_net():
    swing, _ = command(track())
    normal, velocity = swing.normal[0], swing.velocity[0]
    assert np.linalg.norm(normal) == pytest.approx(1.0)
    np.testing.assert_allclose(np.cross(normal, velocity), 0, atol=1e-9)
    assert velocity[0] > 1.0


def test_a_track_known_later_gives_the_same_strike_sooner():
    early, _ = command(track())
    later = fly(STATE[None, :3], STATE[None, 3:6], STATE[6:7], STATE[7:8], PERIOD, 11)[0, -1]
    late, _ = command(track(state=np.concatenate([later, STATE[6:]]), time=0.2), now=0.2)
    assert early.time[0] - late.time[0] == 10
    np.testing.assert_allclose(early.position, late.position, atol=1e-3)


def test_no_command_while_the_place_is_not_known_well_enough():
    assert command(track(sigma=0.5)) is None
    assert command(track(sigma=0.5), sure=10.0) is not None


def test_no_command_for_a_shuttle_that_is_past_or_flies_away():
    assert command(track(), now=2.0) is None
    away = STATE.copy()
    away[2], away[5] = 0.5, 1.0  # never comes up to the height
    assert command(track(state=away)) is None


@pytest.mark.parametrize("changes", [{"shots": 0}, {"fps": 1.0}, {"latency": -0.1}, {"latency": 1.0}, {"sure": 0.0}])
def test_settings_that_make_no_sense_are_refused(changes):
    with pytest.raises(UserError):
        play_with_vision(OnnxPolicy(), VisionCfg(**changes))


@pytest.mark.slow
def test_a_shot_is_seen_commanded_and_met_from_pixels(monkeypatch):
    monkeypatch.setenv("PYOPENGL_PLATFORM", os.environ.get("PYOPENGL_PLATFORM", "egl"))
    monkeypatch.setenv("MUJOCO_GL", os.environ.get("MUJOCO_GL", "egl"))
    if choose_offscreen().backend is None:
        pytest.skip("no OpenGL here")
    done = []
    figures = play_with_vision(OnnxPolicy(), VisionCfg(shots=1, fps=40.0), progress=lambda a, b: done.append((a, b)))
    shot = figures["each"][0]
    assert done == [(1, 1)] and figures["frames"] > 40
    assert shot["commanded"] and 0.05 < shot["first_command_s"] < 0.6
    assert shot["place_error_m"] < 0.3 and shot["time_error_s"] < 0.06
