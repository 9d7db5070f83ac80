"""The learner's arithmetic by hand."""

import numpy as np
import pytest
import torch

from policy.networks import AsymmetricMlp, Normaliser
from policy.ppo import AnnealCfg, adapt_rate, generalised_advantage


def test_advantage_of_three_steps_by_hand():
    rewards, values = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[0.5], [1.0], [1.5]])
    got = generalised_advantage(rewards, values, torch.tensor([2.0]), torch.zeros(3, 1), gamma=0.9, lam=0.8)
    d2 = 3 + 0.9 * 2.0 - 1.5
    d1 = 2 + 0.9 * 1.5 - 1.0
    d0 = 1 + 0.9 * 1.0 - 0.5
    a2 = d2
    a1 = d1 + 0.72 * a2
    np.testing.assert_allclose(got[:, 0], [d0 + 0.72 * a1, a1, a2], rtol=1e-6)


def test_end_of_an_episode_cuts_what_comes_after():
    rewards, values = torch.tensor([[1.0], [100.0]]), torch.tensor([[0.0], [50.0]])
    got = generalised_advantage(rewards, values, torch.tensor([50.0]), torch.tensor([[1.0], [0.0]]), gamma=0.9, lam=0.8)
    assert got[0, 0] == pytest.approx(1.0)


@pytest.mark.parametrize(("kl", "expected"), [(0.05, 1e-3 / 1.5), (0.004, 1.5e-3), (0.015, 1e-3)])
def test_learning_rate_follows_the_divergence(kl, expected):
    assert adapt_rate(1e-3, kl, 0.01) == pytest.approx(expected)


def test_learning_rate_stays_in_its_bounds():
    assert adapt_rate(2e-3, 0.0, 0.01) == 2e-3
    assert adapt_rate(1e-5, 1.0, 0.01) == 1e-5


def test_schedule_is_flat_then_linear_then_flat():
    a = AnnealCfg(begin=0.5, end=0.9)
    assert [round(a.at(x, (1.0, 0.0)), 6) for x in (0.0, 0.5, 0.7, 0.9, 1.0)] == [1.0, 1.0, 0.5, 0.0, 0.0]


def test_normaliser_in_batches_equals_numpy_over_all():
    torch.manual_seed(0)
    data = torch.randn(3000, 4) * torch.tensor([1.0, 5.0, 0.1, 2.0]) + torch.tensor([0.0, 3.0, -2.0, 1.0])
    norm = Normaliser(4, clip=6.0)
    norm.count.zero_()
    for part in data.split(700):
        norm.update(part)
    np.testing.assert_allclose(norm.mean, data.mean(0), atol=1e-4)
    np.testing.assert_allclose(norm.variance, data.var(0, correction=0), rtol=1e-4)


def test_actor_cannot_see_the_critics_part():
    net = AsymmetricMlp(10, 6, [8], clip=6.0)
    x = torch.randn(3, 10)
    y = x.clone()
    y[:, 6:] += 1
    assert torch.equal(net.forward_actor(x), net.forward_actor(y))
    assert not torch.equal(net.forward_critic(x), net.forward_critic(y))


def test_closed_form_equals_stable_baselines3(robot):
    from dataclasses import replace

    from policy.training import PRESETS, build

    session = build(replace(PRESETS["default"], robots=4, minibatch=96), threads=1)
    policy = session.algorithm.policy
    g = torch.Generator().manual_seed(0)
    obs, act = torch.randn(16, session.env.task.observation_size, generator=g), torch.randn(16, len(robot.joint_names), generator=g)
    values, logp, entropy = policy.judge(obs, act)
    theirs = policy.evaluate_actions(obs, act)
    torch.testing.assert_close(values, theirs[0].flatten())
    torch.testing.assert_close(logp, theirs[1])
    torch.testing.assert_close(entropy.expand(16), theirs[2])
