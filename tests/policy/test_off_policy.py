"""Clip bounds that balance, and weights for old data, by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from policy.off_policy import WEIGHT_LIMIT, BapoCfg, balanced_bounds, behaviour_weight, clipped_objective

CFG = BapoCfg()


def test_fresh_data_is_balanced_and_keeps_the_tightest_bounds():
    advantage = torch.randn(4096, generator=torch.Generator().manual_seed(0))
    advantage -= advantage.mean()
    low, high, share = balanced_bounds(torch.ones(4096), advantage, CFG)
    assert (low, high) == (CFG.low[0], CFG.high[0]) and share == pytest.approx(0.5, abs=1e-3)


def test_upper_bound_opens_first_until_the_share_is_reached():
    # good samples at ratio 1.3 (outside 1.2), bad ones inside: one step up to 1.3 lets the good ones in, and the lower bound stays
    ratio, advantage = torch.tensor([1.29, 1.29, 1.0]), torch.tensor([1.0, 1.0, -1.0])
    low, high, share = balanced_bounds(ratio, advantage, CFG)
    assert high == pytest.approx(1.3) and low == CFG.low[0]
    assert share == pytest.approx(2.58 / 3.58)


def test_lower_bound_shuts_out_bad_samples_when_the_upper_one_is_at_its_end():
    ratio, advantage = torch.tensor([1.0, 0.8, 0.8]), torch.tensor([1.0, -1.0, -1.0])
    low, high, share = balanced_bounds(ratio, advantage, CFG)
    assert high == pytest.approx(CFG.high[1]) and 0.8 < low <= 0.84 and share == pytest.approx(1.0)


def test_no_good_sample_ends_at_both_limits():
    low, high, share = balanced_bounds(torch.ones(8), -torch.ones(8), CFG)
    assert (low, high, share) == (pytest.approx(CFG.low[1]), pytest.approx(CFG.high[1]), 0.0)


@given(st.integers(0, 10_000), st.floats(0.05, 0.8))
def test_bounds_stay_in_their_ranges_and_the_share_is_what_it_says(seed, spread):
    g = torch.Generator().manual_seed(seed)
    ratio, advantage = torch.exp(spread * torch.randn(200, generator=g)), torch.randn(200, generator=g)
    low, high, share = balanced_bounds(ratio, advantage, CFG)
    assert CFG.low[0] <= low <= CFG.low[1] + 1e-9 and CFG.high[0] <= high <= CFG.high[1] + 1e-9
    weight = ratio * advantage.abs()
    plus = weight[(advantage > 0) & (ratio <= high)].sum()
    minus = weight[(advantage <= 0) & (ratio >= low)].sum()
    assert share == pytest.approx(float(plus / (plus + minus)), rel=1e-4)
    assert share >= CFG.share - 1e-6 or (low == pytest.approx(CFG.low[1]) and high == pytest.approx(CFG.high[1]))


def test_weight_of_old_data_is_its_likelihood_ratio_up_to_a_limit():
    got = behaviour_weight(torch.log(torch.tensor([0.5, 1.0, 50.0])), torch.zeros(3))
    assert got.tolist() == pytest.approx([0.5, 1.0, WEIGHT_LIMIT])


def test_clip_lets_no_gradient_through_where_it_cuts():
    ratio = torch.tensor([1.5, 0.5, 1.5, 0.5], requires_grad=True)
    clipped_objective(ratio, torch.tensor([1.0, -1.0, -1.0, 1.0]), 0.8, 1.2).sum().backward()
    assert ratio.grad.tolist() == [0.0, 0.0, -1.0, 1.0]
