"""Fitting flights: synthetic ones with known answers, and the recorded ones where they are at hand."""

from pathlib import Path

import numpy as np
import pytest

from perception.flight import fly
from perception.flight_fit import Flight, bench_flights, end_error, fit_flight, height_scales, read_flights, states_at

RECORDED = Path(__file__).parents[3] / "shared" / "data"


def synthetic(rng, n=1, noise=0.01, k=0.25, s=0.65):
    v = np.stack([rng.uniform(-3, 3, n), rng.uniform(12, 25, n), rng.uniform(6, 14, n)], axis=1)
    p = np.tile([[0.0, -5.0, 1.5]], (n, 1))
    path = fly(p, v, np.full(n, k), np.full(n, s), 1 / 119, 130)[:, :, :3]
    t = np.arange(130) / 119
    return [Flight(t, x + noise * rng.normal(size=x.shape), str(i)) for i, x in enumerate(path)], v


def test_clean_flight_gives_back_its_start_drag_and_drift(rng):
    (flight,), v = synthetic(rng, noise=1e-4)
    fit = fit_flight(flight.time, flight.position)
    np.testing.assert_allclose(fit.velocity, v[0], atol=0.05)
    assert fit.drag == pytest.approx(0.25, abs=0.002) and fit.drift == pytest.approx(0.65, abs=0.02)


def test_stray_points_do_not_pull_the_fit_away(rng):
    (flight,), v = synthetic(rng, noise=0.01)
    flight.position[[10, 40, 41, 90]] += rng.normal(size=(4, 3)) * 2
    np.testing.assert_allclose(fit_flight(flight.time, flight.position).velocity, v[0], atol=0.4)


def test_leaving_the_drift_out_makes_the_forecast_worse(rng):
    flights, _ = synthetic(rng, n=6)
    with_drift = np.median([end_error(f, 0.6, True) for f in flights])
    without = np.median([end_error(f, 0.6, False) for f in flights])
    assert with_drift < 0.6 * without


def test_squeezed_heights_are_noticed_from_the_other_flights(rng):
    flights, _ = synthetic(rng, n=7)
    squeezed = [Flight(f.time, f.position * [1, 1, 0.97], f.label) for f in flights]
    np.testing.assert_allclose(height_scales(squeezed), 1 / 0.97, atol=0.012)
    np.testing.assert_allclose(height_scales(flights), 1.0, atol=0.012)


def test_states_do_not_depend_on_where_they_are_asked_for():
    v = np.array([3.0, 18.0, 9.0])
    once = states_at(np.zeros(3), v, 0.25, 0.6, np.array([0.5]))
    often = states_at(np.zeros(3), v, 0.25, 0.6, np.linspace(0.01, 0.5, 50))
    np.testing.assert_allclose(once[-1], often[-1], atol=1e-5)


def test_folder_without_flights_says_what_it_needs(tmp_path):
    with pytest.raises(ValueError, match=r"shots.csv"):
        read_flights(tmp_path)


@pytest.mark.skipif(not RECORDED.is_dir(), reason=f"the recorded flights are not at {RECORDED}")
def test_recorded_rallies_are_foretold_within_their_bars():
    figures = bench_flights(read_flights(RECORDED / "stereo_rallies"))
    for horizon, bar in (("0.2", 0.05), ("0.4", 0.065), ("0.6", 0.09), ("1.0", 0.14)):
        assert figures["drag_and_drift"]["median_m"][horizon] <= bar
        assert figures["drag_only"]["median_m"][horizon] > 1.5 * figures["drag_and_drift"]["median_m"][horizon]
