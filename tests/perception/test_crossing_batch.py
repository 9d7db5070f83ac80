"""Crossings in a batch: those of `interception.py`, one by one."""

import numpy as np

from perception.crossing_batch import come_down
from perception.interception import at_height


def test_same_as_one_flight_with_its_covariance(rng):
    n = 60
    state = np.column_stack([rng.uniform(2, 7, n), rng.uniform(-2, 2, n), rng.uniform(0.5, 3, n), rng.uniform(-18, -5, n), rng.uniform(-2, 2, n),
                             rng.uniform(-6, 12, n), rng.uniform(0.21, 0.29, n), rng.uniform(0, 1, n)])
    height = rng.uniform(1.2, 2.2, n)
    gone, place, velocity = come_down(state, height, np.ones(n, bool), 2.5)
    crossing = [at_height(0.0, x, np.eye(8) * 1e-6, h, 2.5) for x, h in zip(state, height, strict=True)]
    found = np.isfinite(gone)
    assert found.sum() > 25 and not found.all()
    for i, c in enumerate(crossing):
        assert found[i] == (c is not None) or abs(velocity[i, 2]) < 0.6  # grazing ones have no time worth the name
        if c is not None and found[i]:
            assert abs(gone[i] - c.time) < 2e-4
            np.testing.assert_allclose(place[i], c.place, atol=1e-3)
            np.testing.assert_allclose(velocity[i], c.velocity, atol=1e-2)


def test_below_and_falling_unwanted_or_not_finite_never_come_down():
    state = np.tile([5.0, 0, 1.0, -8, 0, -1, 0.25, 0.5], (3, 1))
    state[1, 2] = 3.0
    state[2] = np.nan
    gone, _, _ = come_down(state, np.full(3, 1.5), np.array([True, False, True]))
    assert np.isnan(gone).all()
    state[1, 5] = 0.0
    gone, place, _ = come_down(state, np.full(3, 1.5), np.array([True, True, True]))
    assert np.isnan(gone[[0, 2]]).all() and abs(place[1, 2] - 1.5) < 1e-6
