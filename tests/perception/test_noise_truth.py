"""Noise fitted with the truth at hand gives back the model that the reports were drawn from."""

from dataclasses import replace

import numpy as np
import pytest

from perception.camera import zedx
from perception.errors import UserError
from perception.noise import NoiseCfg, draw_bias, sample
from perception.noise_truth import Reports, fit_with_truth

RIG = zedx("SVGA", 4)
TRUE = NoiseCfg(pixel_sigma=0.45, tail_share=0.12, eye_correlation=0.5, blur_share=0.08, exposure_s=0.004, timing_sigma_s=0.0,
                bias_sigma=0.4, bias_correlation=0.8, miss_base=0.03, miss_small=0.12, miss_blur=0.04, miss_turn=0.06, false_rate=0.01, drop_rate=0.0)


def reports(rng, cfg, flights=150, rows=120):
    number = np.repeat(np.arange(flights), rows)
    n = len(number)
    points = rng.uniform([-1, -0.6, 3], [1, 0.6, 11], (n, 3))
    velocity = rng.normal(size=(n, 3)) * np.where(rng.random(n) < 0.4, 0.1, 12.0)[:, None]
    turn = rng.uniform(0, 2, n)
    measurement, seen = sample(cfg, RIG, points, velocity, turn, draw_bias(cfg, flights, rng)[number], rng)
    return Reports(number, points, velocity, turn, measurement, seen)


def test_the_model_that_was_sampled_comes_back(rng):
    found, sources = fit_with_truth(RIG, reports(rng, TRUE), NoiseCfg(exposure_s=0.004, timing_sigma_s=0.0))
    tolerances = {"pixel_sigma": 0.03, "tail_share": 0.05, "eye_correlation": 0.06, "blur_share": 0.012, "bias_sigma": 0.06, "bias_correlation": 0.08,
                  "miss_base": 0.02, "miss_small": 0.04, "miss_blur": 0.012, "miss_turn": 0.015, "false_rate": 0.004}
    for key, tolerance in tolerances.items():
        assert getattr(found, key) == pytest.approx(getattr(TRUE, key), abs=tolerance), key
        assert sources[key].startswith("fitted")
    assert found.latency_s == NoiseCfg().latency_s and "as told" in sources["latency_s"]


def test_a_clean_rig_fits_clean(rng):
    clean = NoiseCfg(pixel_sigma=0.2, tail_share=0.0, eye_correlation=0.0, blur_share=0.0, exposure_s=0.004,
                     timing_sigma_s=0.0, bias_sigma=0.0, miss_base=0.0, miss_small=0.0, miss_blur=0.0, miss_turn=0.0,
                     false_rate=0.0, drop_rate=0.0)
    found, _ = fit_with_truth(RIG, reports(rng, clean), NoiseCfg(exposure_s=0.004, timing_sigma_s=0.0))
    assert found.bias_sigma < 0.02 and found.blur_share < 0.012 and found.eye_correlation < 0.05 and found.tail_share < 0.03
    assert found.miss_base == found.miss_small == found.false_rate == 0.0 and found.pixel_sigma == pytest.approx(0.2, rel=0.05)


def test_too_few_reports_and_columns_that_differ_are_refused(rng):
    few = reports(rng, TRUE, flights=3)
    with pytest.raises(UserError, match="of 3 flights; the noise model needs"):
        fit_with_truth(RIG, few)
    with pytest.raises(UserError, match="differ in length"):
        fit_with_truth(RIG, replace(few, seen=few.seen[:5]))
    with pytest.raises(UserError, match="not parallel"):
        fit_with_truth(replace(RIG, right_from_left_translation=np.array([-0.1, 0.1, 0])), few)
