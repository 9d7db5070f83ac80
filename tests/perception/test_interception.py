"""Interception: against fine integration, and its covariance against thousands of flights drawn from it."""

import numpy as np
import pytest

from perception.flight import fly
from perception.interception import FlightNoise, at_height, at_plane, at_sphere, forecast

STATE = np.array([0.0, 0.0, 1.5, 1.0, -14.0, 8.0, 0.248, 0.5])
SIGMA = np.array([0.02, 0.03, 0.02, 0.3, 0.4, 0.3, 0.01, 0.2])
QUIET = FlightNoise(0.0, 0.0)


def drawn(rng, count):
    return STATE + SIGMA * rng.normal(size=(count, 8))


def paths(states, dt=0.001, seconds=1.6):
    return fly(states[:, :3], states[:, 3:6], states[:, 6], states[:, 7], dt, int(seconds / dt))


def crossing(path, depth, dt=0.001):
    """First time [s] and state (6,) of each path where depth (N, T) turns positive, straight between steps."""
    above = depth > 0
    n = np.argmax(~above[:, :-1] & above[:, 1:], axis=1)
    rows = np.arange(len(path))
    a, b = depth[rows, n], depth[rows, n + 1]
    share = -a / (b - a)
    return dt * (n + share), path[rows, n] * (1 - share)[:, None] + path[rows, n + 1] * share[:, None]


def test_height_is_crossed_where_and_when_a_fine_integration_says():
    when, at = crossing(paths(STATE[None]), 1.0 - paths(STATE[None])[:, :, 2])
    found = at_height(5.0, STATE, np.diag(SIGMA**2), 1.0)
    assert found.time == pytest.approx(5.0 + when[0], abs=1e-4)
    np.testing.assert_allclose(found.place, at[0, :3], atol=1e-3)
    np.testing.assert_allclose(found.velocity, at[0, 3:], atol=1e-2)


def test_only_the_way_down_counts():
    found = at_height(0.0, STATE, np.diag(SIGMA**2), 2.0)
    assert found.velocity[2] < 0 and found.time > 0.5


def test_place_and_time_scatter_as_the_covariance_says(rng):
    found = at_height(0.0, STATE, np.diag(SIGMA**2), 1.0, noise=QUIET)
    path = paths(drawn(rng, 3000))
    when, at = crossing(path, 1.0 - path[:, :, 2])
    outcome = np.column_stack([at[:, :2], when])
    seen, said = np.cov(outcome.T), found.covariance[np.ix_([0, 1, 6], [0, 1, 6])]
    np.testing.assert_allclose(np.sqrt(np.diag(seen)), np.sqrt(np.diag(said)), rtol=0.08)
    off = outcome - [*found.place[:2], found.time]
    distance2 = np.einsum("ni,ij,nj->n", off, np.linalg.inv(said), off)
    assert 0.62 < np.mean(distance2 < 3.506) < 0.74
    assert 0.92 < np.mean(distance2 < 7.815) < 0.97
    assert found.time_sigma == pytest.approx(outcome[:, 2].std(), rel=0.08)


def test_crossing_lies_on_the_surface_whatever_the_error():
    found = at_height(0.0, STATE, np.diag(SIGMA**2), 1.0)
    assert found.covariance[2, 2] == pytest.approx(0.0, abs=1e-9)  # no height error at a height
    centre = np.array([0.0, -5.0, 0.8])
    sphere = at_sphere(0.0, STATE, np.diag(SIGMA**2), centre, 1.2)
    out = (sphere.place - centre) / 1.2
    assert out @ out == pytest.approx(1.0, abs=1e-4)
    assert out @ sphere.covariance[:3, :3] @ out == pytest.approx(0.0, abs=1e-9)


def test_sphere_covariance_is_that_of_drawn_flights(rng):
    centre = np.array([0.0, -6.5, 1.0])
    found = at_sphere(0.0, STATE, np.diag(SIGMA**2), centre, 1.3, noise=QUIET)
    path = paths(drawn(rng, 2000))
    when, at = crossing(path, 1.3 - np.linalg.norm(path[:, :, :3] - centre, axis=2))
    np.testing.assert_allclose(np.sqrt(np.diag(np.cov(at[:, :3].T))), np.sqrt(np.diag(found.covariance[:3, :3])), rtol=0.15, atol=2e-3)
    assert when.std() == pytest.approx(found.time_sigma, rel=0.1)


def test_plane_is_crossed_in_the_direction_of_its_normal_only():
    point = np.array([0.0, -3.0, 0.0])
    assert at_plane(0.0, STATE, np.eye(8) * 1e-4, point, np.array([0.0, -1.0, 0.0])).place[1] == pytest.approx(-3.0, abs=1e-4)
    assert at_plane(0.0, STATE, np.eye(8) * 1e-4, point, np.array([0.0, 1.0, 0.0])) is None


@pytest.mark.parametrize(("name", "call"), [
    ("never that high", lambda: at_height(0.0, STATE, np.eye(8) * 1e-4, 9.0)),
    ("missed", lambda: at_sphere(0.0, STATE, np.eye(8) * 1e-4, np.array([8.0, 0.0, 1.0]), 1.0)),
    ("not in time", lambda: at_height(0.0, STATE, np.eye(8) * 1e-4, 1.0, horizon=0.3)),
    ("no number", lambda: at_height(0.0, STATE * np.nan, np.eye(8) * 1e-4, 1.0))])
def test_what_is_not_crossed_is_none(name, call):
    assert call() is None


def test_covariance_grows_with_the_time_ahead_and_with_unsure_gravity():
    sizes = [np.trace(forecast(0.0, STATE, np.diag(SIGMA**2), t)[1][:3, :3]) for t in (0.0, 0.2, 0.5, 1.0)]
    assert sizes == sorted(sizes)
    sure, unsure = (forecast(0.0, STATE, np.diag(SIGMA**2), 1.0, FlightNoise(gravity=g))[1] for g in (0.0, 0.03))
    assert unsure[2, 2] - sure[2, 2] == pytest.approx((0.03 * 0.5 * 9.81) ** 2)
    assert unsure[0, 0] == sure[0, 0]
