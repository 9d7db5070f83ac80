"""Rallies against the opponent: every one begins, is counted and ends for a reason."""

from dataclasses import replace

import numpy as np
import pytest

from perception.errors import UserError
from policy import SHIPPED
from policy.inference import OnnxPolicy
from policy.rally import RallyCfg, play_rallies
from sim.opponent import OpponentCfg
from sim.shuttle import STRUCK

CFG = RallyCfg(rallies=6, courts=6, longest=2)


@pytest.fixture(scope="module")
def policy():
    return OnnxPolicy(SHIPPED)


def test_rallies_are_counted_and_end_for_a_reason_and_repeat_with_their_seed(policy):
    strokes = []

    def watch(task, step, number):
        strokes.append((task.shuttles.phase == STRUCK).copy())

    figures = play_rallies(policy, CFG, watch=watch)
    hits = np.diff(np.array(strokes).astype(int), axis=0, prepend=0).clip(0).sum()
    assert figures["rallies"] == 6 == sum(figures["ends"].values())
    assert 6 <= figures["returns"] <= hits  # a stroke that goes out is no return
    assert figures["returns"] <= figures["shots"]  # nobody returns what was not played
    assert 1 <= figures["median_returns"] <= figures["best_returns"] <= CFG.longest
    assert play_rallies(policy, CFG) == figures


def test_an_opponent_that_cannot_move_ends_rallies_at_once(policy):
    statue = replace(CFG, opponent=OpponentCfg(speed=0.01, reach=0.01, home=(6.5, 2.9)))
    figures = play_rallies(policy, statue)
    assert figures["best_returns"] <= 1
    assert figures["ends"].get("past the opponent", 0) >= 4


def test_sizes_that_make_no_sense_are_refused(policy):
    with pytest.raises(UserError, match="at least 1"):
        play_rallies(policy, RallyCfg(rallies=0))
