"""Bookkeeping of a session: every shot is served once, falls are booked where they belong, and it always ends."""

import numpy as np
import pytest

from perception.errors import UserError
from policy.play import PlayCfg, play
from policy.task import contract_of


class Scripted:
    """Stands in for an OnnxPolicy: an action for each observation batch."""

    training: dict = {}  # noqa: RUF012

    def __init__(self, robot, act):
        self.contract, self.act, self.calls = contract_of(robot, 0.02), act, 0

    def __call__(self, observation):
        self.calls += 1
        return self.act(self.calls, len(observation))


def test_robot_that_stands_still_meets_every_shot_in_reach_and_touches_next_to_none(robot):
    figures, outcome = play(Scripted(robot, lambda k, n: np.zeros((n, 18))), PlayCfg(repeats=1, robots=9))
    tried = ~outcome.left
    assert (np.isfinite(outcome.error[tried]) | outcome.fell[tried]).all()  # each came to its commanded moment
    assert figures["falls"] <= 1  # from a scattered start pose, with nobody balancing
    assert figures["touched_rate"] < 0.2
    assert figures["shots"] == 37


@pytest.mark.parametrize("robots", [1, 5])
def test_shots_of_a_robot_that_falls_now_and_then_are_not_lost(robot, robots):
    def act(k, n):
        action = np.zeros((n, 18))
        if k % 400 == 150:
            action[0] = 6.0  # a kick of all joints
        if 150 < k % 400 < 175:
            action[0] = 6.0 * (-1) ** (k // 3)
        return action

    figures, outcome = play(Scripted(robot, act), PlayCfg(repeats=1, robots=robots, as_hit=True))
    assert figures["falls"] > 0
    tried = ~outcome.left
    assert (np.isfinite(outcome.error[tried]) | outcome.fell[tried]).all()
    assert np.isfinite(outcome.error[tried]).sum() >= tried.sum() - figures["falls"]


def test_policy_that_falls_at_once_ends_too(robot):
    rng = np.random.default_rng(0)
    figures, outcome = play(Scripted(robot, lambda k, n: 6 * rng.normal(size=(n, 18))), PlayCfg(repeats=1, robots=4, as_hit=True))
    assert figures["falls"] > 4
    assert outcome.fell[~outcome.left & ~np.isfinite(outcome.error)].all()
    assert len(figures["out_of_reach"]) == 37 - outcome.touched.sum()


@pytest.mark.parametrize("cfg", [PlayCfg(repeats=0), PlayCfg(robots=0), PlayCfg(spread_x=-1)])
def test_sizes_that_make_no_sense_are_refused(robot, cfg):
    with pytest.raises(UserError):
        play(Scripted(robot, lambda k, n: np.zeros((n, 18))), cfg)
