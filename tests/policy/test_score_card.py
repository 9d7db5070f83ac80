"""The score card: intervals are right, a policy that stands still scores nothing, the same seed gives the same bytes."""

import json

import numpy as np
import pytest

from perception.errors import UserError
from policy import SHIPPED
from policy.drill import drill
from policy.inference import OnnxPolicy
from policy.score_card import CardCfg, median, page, public, rate, rows, run, wilson
from policy.swings import SwingRange
from sim.robot import load_robot


@pytest.fixture(scope="module")
def policy():
    return OnnxPolicy(SHIPPED)


@pytest.fixture(scope="module")
def card(policy):
    return run(policy, CardCfg(swings=24, seed=3))


def test_wilson_interval_of_known_cases():
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-3)  # Agresti and Coull 1998, table of n = 10
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-3)
    assert wilson(0, 0) == (0.0, 1.0)


def test_intervals_hold_the_truth_as_often_as_they_say(rng):
    inside = [w["low"] <= 0.9 <= w["high"] for w in (rate(rng.random(200) < 0.9) for _ in range(400))]
    assert 0.91 < np.mean(inside) < 0.985
    inside = [m["low"] <= 0.0 <= m["high"] for m in (median(rng.normal(size=101)) for _ in range(400))]
    assert 0.91 < np.mean(inside) < 0.985


def test_every_swing_asked_for_is_counted_and_the_shipped_policy_hits(policy):
    span = SwingRange.box(load_robot("anymal_dynaarm").scale, 0.5)
    d = drill(policy, span, 60, 5, robots=10)
    assert len(d.error) == 60 == len(d.place) == len(d.over) and d.episodes == 10
    assert d.hit.mean() > 0.9 and np.nanmedian(np.abs(d.reached - d.speed)) < 1.0
    assert d.steps.min() >= 0 and 0 <= d.slip < 1


def test_a_policy_that_does_nothing_hits_nothing_and_falls_count_as_missed(policy):
    class Limp:
        contract, training, path = policy.contract, policy.training, policy.path

        def __call__(self, observation):
            return np.full((len(observation), 18), 6.0 if self.wild else 0.0, np.float32)

    span = SwingRange.box(load_robot("anymal_dynaarm").scale, 1.0)
    still, wild = Limp(), Limp()
    still.wild, wild.wild = False, True
    assert drill(still, span, 30, 5, robots=5).hit.mean() < 0.1
    fallen = drill(wild, span, 30, 5, robots=5)
    assert fallen.falls == 5 and len(fallen.error) == 30 and np.isinf(fallen.error).sum() > 20 and not fallen.hit.any()


def test_what_a_robot_sees_for_itself_is_less_sure_than_what_it_is_told(policy, card):
    assert card["level2"]["hit"]["count"] == card["level1"]["hit"]["count"] == 24
    known = {r["from_s"]: r["known"] for r in card["sight"]}
    assert known[0.2] > known[1.0]  # a shuttle is not known from its first moment
    assert all(r["error"]["median"] is None or r["error"]["median"] > 0 for r in card["sight"])


def test_card_has_its_keys_and_the_page_is_one_small_file(card):
    figures = json.loads(json.dumps(public(card)))
    for key in ("level1", "level2", "returned_in_rate", "median_landing_error_m", "racket_speed", "max_racket_speed_mps", "over_current_swings", "fall_rate",
                "home_rate", "foot_slip_mps"):
        assert key in figures
    assert {"hit_rate", "hit_rate_2m_1.6s", "hit_rate_2m_0.8s", "median_position_error_m"} <= figures["level1"].keys()
    text = page(card, "a <policy>")
    assert len(text) < 5e6 and text.count("data:image/png;base64,") == 4 and "a &lt;policy&gt;" in text
    assert all(what.split(",")[0][:20] in text.replace("&#x27;", "'") for what, _, _ in rows(card)[:3])


def test_same_seed_gives_the_same_bytes(policy, card):
    again = run(policy, CardCfg(swings=24, seed=3, threads=1))
    assert json.dumps(public(again)) == json.dumps(public(card))
    assert page(again, "x") == page(card, "x")


def test_sizes_that_make_no_sense_are_refused(policy):
    with pytest.raises(UserError, match="at least 1"):
        drill(policy, SwingRange.box(load_robot("anymal_dynaarm").scale), 0, 1)
