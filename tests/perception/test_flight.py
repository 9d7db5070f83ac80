"""The flight model against hand-computable cases and measured shots."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perception.flight import GRAVITY, STEP_MAX, acceleration, fly, rk4_step, sample_coefficients
from sim.serves import human_shots

speeds = st.floats(-40, 40)


@given(speeds, speeds, speeds, st.floats(0.2, 0.3), st.floats(0, 1.2))
def test_compiled_step_agrees_with_the_array_acceleration(vx, vy, vz, k, s):
    v = np.array([vx, vy, vz])
    p, w = np.zeros(3), v.copy()
    dt = 1e-6
    rk4_step(p, w, k, s, dt)
    # where the horizontal speed is next to nothing the drift switches off, and the two may differ by it
    if np.hypot(vx, vy) > 1e-3:
        np.testing.assert_allclose((w - v) / dt, acceleration(v, k, s), atol=2e-2)
    np.testing.assert_allclose(p / dt, v, atol=1e-3)


def test_falls_at_terminal_speed():
    path = fly(np.zeros((1, 3)), np.array([[0.0, 0.0, -1.0]]), np.array([0.248]), np.array([0.6]), 0.02, 400)
    assert path[0, -1, 5] == pytest.approx(-np.sqrt(GRAVITY / 0.248), rel=1e-6)
    assert np.abs(path[0, :, :2]).max() == 0  # straight down has no right-hand side


def test_drifts_to_the_right_of_flight():
    path = fly(np.zeros((2, 3)), np.array([[10.0, 0, 5.0], [-10.0, 0, 5.0]]), np.full(2, 0.248), np.full(2, 0.6), 0.02, 40)
    assert path[0, -1, 1] < -0.1
    assert path[1, -1, 1] > 0.1


def test_energy_never_grows(rng):
    v = rng.normal(size=(50, 3)) * 20
    path = fly(np.zeros((50, 3)), v, *sample_coefficients(rng, 50) * np.array([[1.0], [0.0]]), 0.01, 150)
    energy = GRAVITY * path[:, :, 2] + 0.5 * np.sum(path[:, :, 3:] ** 2, axis=2)
    assert np.diff(energy, axis=1).max() < 1e-6


def test_longest_step_is_fine_enough_for_the_fastest_measured_shots():
    shots = human_shots()
    coarse = fly(shots.position, shots.velocity, shots.drag, shots.drift, STEP_MAX, 84)
    fine = fly(shots.position, shots.velocity, shots.drag, shots.drift, STEP_MAX / 12, 83 * 12 + 1)[:, ::12]
    assert np.abs(coarse[:, :, :3] - fine[:, :, :3]).max() < 1e-3


def test_one_shuttle_flies_as_in_a_batch():
    shots = human_shots()
    together = fly(shots.position, shots.velocity, shots.drag, shots.drift, 0.02, 50)
    alone = fly(shots.position[3:4], shots.velocity[3:4], shots.drag[3:4], shots.drift[3:4], 0.02, 50)
    np.testing.assert_array_equal(together[3], alone[0])


def test_no_nan_at_rest():
    assert np.isfinite(acceleration(np.zeros(3), 0.248, 0.6)).all()
    assert np.isfinite(fly(np.zeros((1, 3)), np.zeros((1, 3)), np.array([0.248]), np.array([0.6]), 0.01, 20)).all()
