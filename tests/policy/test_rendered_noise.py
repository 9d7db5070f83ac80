"""The two-sample test of the noise model: passes for what the model drew, fails for what it cannot draw."""

import itertools
from dataclasses import replace

import numpy as np

from perception.noise_truth import Reports
from policy.perception_bench import Verdict, reports_of
from policy.rendered_noise import RANGES, two_sample
from tests.perception.test_noise_truth import RIG, TRUE, reports


def test_what_the_model_drew_is_no_farther_from_it_than_its_own_halves(rng):
    found = two_sample(RIG, reports(rng, TRUE), TRUE.exposure_s)
    for name, value in found["distance"].items():
        assert value < 0.03, name
        assert found["halves"][name] < 0.03
    rows = [m for m in found["missed"].values() if m["frames"] > 1000]
    assert len(rows) >= 3
    for row in rows:
        assert abs(row["images"] - row["model"]) < 0.02
    assert set(found["missed"]) <= {f"{a:g}-{b:g} m" for a, b in itertools.pairwise(RANGES)}


def test_errors_that_the_model_cannot_draw_are_told_from_it(rng):
    drawn = reports(rng, TRUE)
    error = np.where(rng.random(len(drawn.seen)) < 0.5, 2.0, -2.0)[:, None] * [1, 0, 0]  # of two values, as of a detector that sticks to one pixel
    other = replace(drawn, measurement=drawn.measurement + error)
    found = two_sample(RIG, other, TRUE.exposure_s)
    assert found["distance"]["u"] > 0.1 > 2 * found["halves"]["u"]


def test_too_few_serves_give_no_figure(rng):
    assert two_sample(RIG, reports(rng, TRUE, flights=6, rows=40), 0.0015) is None


def test_velocities_are_those_of_the_shuttle_and_not_of_a_turning_camera(rng):
    place, velocity = np.array([0.1, 0.2, 5.0]), np.array([1.0, -2.0, -12.0])
    verdict = Verdict()
    for n in range(4):
        angle = 0.3 * n
        turn = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
        verdict.reports.append((n / 60, place + n / 60 * velocity, turn, np.full(3, np.nan if n == 2 else 7.0), 0.5))
    verdict.reports.append((1.0, place, np.eye(3), np.zeros(3), 0.0))  # after a gap
    found: Reports = reports_of([Verdict(), verdict])
    assert found.flight.tolist() == [1, 1, 1] and found.seen.tolist() == [True, False, True]
    np.testing.assert_allclose(np.linalg.norm(found.velocity_c, axis=1), np.linalg.norm(velocity))
    np.testing.assert_allclose(found.points_l[0], [[np.cos(0.3), -np.sin(0.3), 0], [np.sin(0.3), np.cos(0.3), 0], [0, 0, 1]] @ (place + velocity / 60))
    assert len(reports_of([]).flight) == 0
