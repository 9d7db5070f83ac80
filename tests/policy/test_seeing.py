"""Robots that see for themselves, the limit on their arm's current, and runs that begin with another's weights."""

import math
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
import torch
from rich.console import Console

from perception.errors import UserError
from policy import SHIPPED
from policy.constraint import ConstraintCfg, normalised_cost, penalty
from policy.inference import OnnxPolicy
from policy.perceive import PerceptionCfg
from policy.swings import ShotPool, SwingRange, draw_swings
from policy.task import BadmintonTask, TaskCfg
from policy.training import PRESETS, build, cfg_from_dict, train
from policy.warm_start import begin_with
from sim.randomize import RandomizeCfg
from sim.robot import load_robot
from sim.shuttle import INCOMING

STATE = SHIPPED.parent / "state"


def seeing_task(count=32, seen=1.0, randomize=None, told_of_sight=None, seed=3):
    robot, rng = load_robot("anymal_dynaarm"), np.random.default_rng(seed)
    pool = ShotPool(rng, robot.scale, count=256)
    span = replace(SwingRange.box(robot.scale, 0.5), seen_share=seen, planned_share=1.0)
    return BadmintonTask(robot, count, lambda ids: draw_swings(rng, len(ids), span, pool), seed=seed, threads=1,
                         cfg=TaskCfg(perception=PerceptionCfg(), randomize=randomize, told_of_sight=told_of_sight))


@pytest.fixture(scope="module")
def played():
    """Rows (time to hit, known, error, true command active) of robots that the shipped policy moves, and the task afterwards."""
    task, policy = seeing_task(randomize=RandomizeCfg(), told_of_sight=False), OnnxPolicy()
    observation, out = task.reset(), []
    for _ in range(220):
        observation = task.step(policy(observation[:, : task.actor_size])).observation
        due = (task.shuttles.phase == INCOMING) & (task.wait == 0)
        off = np.linalg.norm(task.command().position - task.current.position, axis=1)
        out.append(np.column_stack([task.countdown * 0.02, task.command().active, off, np.abs(task.command().time_left - task.countdown * 0.02)])[due])
    return np.concatenate(out), task


def test_nothing_is_known_of_a_shuttle_that_was_not_seen_and_more_and_more_of_one_that_is(played):
    rows, _ = played
    early, late = rows[rows[:, 0] > 1.0], rows[(rows[:, 0] > 0.1) & (rows[:, 0] < 0.3)]
    assert early[:, 1].mean() < 0.8 < late[:, 1].mean()
    known_early, known_late = early[early[:, 1] > 0, 2], late[late[:, 1] > 0, 2]
    assert np.median(known_late) < 0.04 < np.percentile(known_early, 90)
    assert np.median(late[late[:, 1] > 0, 3]) < 0.012  # [s]


def test_wind_moves_the_true_target_with_the_shuttle(played):
    _, task = played
    task.reset()
    for _ in range(40):
        task.step(np.zeros((task.count, 18)))
    flying = np.flatnonzero((task.shuttles.phase == INCOMING) & (task.wait == 0) & (task.countdown > 5))
    target = task.current.position.copy()
    left = task.countdown[flying].copy()
    assert len(flying) > 5
    compared = 0
    for n in range(int(left.max())):
        same = (task.current.position[flying] == target[flying]).all(axis=1)  # the others fell, and began anew
        due = flying[(left == n + 1) & (task.countdown[flying] == 1) & same]
        task.step(np.zeros((task.count, 18)))
        still = due[task.shuttles.phase[due] == INCOMING]
        compared += len(still)
        if len(still):
            np.testing.assert_allclose(task.shuttles.position[still] - task.physics.home, target[still], atol=0.02)
    assert compared > 5


def test_no_shuttle_in_the_command_before_it_was_seen_and_the_actor_hears_of_it_only_then():
    task = seeing_task(8)
    observation = task.reset()
    names, start, at = [], 0, {}
    for term in task.contract.observation:
        at[term.name] = slice(start, start + term.size)
        names.append(term.name)
        start += term.size
    assert names[-2:] == ["shuttle_b", "detected"] and task.contract.sees
    assert not task.command().active.any() and (observation[:, at["command_active"]] == 0).all() and (observation[:, at["target_b"]] == 0).all()
    for _ in range(60):
        observation = task.step(np.zeros((8, 18))).observation
    seen = observation[:, at["detected"]][:, 0] > 0
    assert seen.any() and (np.abs(observation[:, at["shuttle_b"]]).sum(axis=1) > 0).tolist() == seen.tolist()


def test_a_policy_without_sight_plays_where_robots_have_cameras():
    task = seeing_task(4, told_of_sight=False)
    OnnxPolicy().contract.check_same(task.contract)
    with pytest.raises(UserError, match="observation terms"):
        OnnxPolicy().contract.check_same(seeing_task(4).contract)


def test_penalty_is_zero_where_the_limit_is_kept_and_pulls_away_from_what_breaks_it():
    cfg = ConstraintCfg()
    assert cfg.cost(torch.tensor([0.5, 0.9, 1.1, 9.0])).tolist() == pytest.approx([0.0, 0.0, math.log(1.2), math.log(9.1)])
    assert cfg.weight_at(0) == cfg.weight < cfg.weight_at(500) < cfg.weight_at(10**6) == pytest.approx(cfg.weight_max)
    advantage, violation = normalised_cost(torch.zeros(50), torch.zeros(50), 0.99, 0.0)
    log_ratio = torch.zeros(50, requires_grad=True)
    assert float(penalty(torch.exp(log_ratio), advantage, violation, 0.2)) == 0.0
    raw = torch.cat([torch.full((25,), 1.0), torch.full((25,), -1.0)])
    advantage, violation = normalised_cost(raw, torch.full((50,), 5.0), 0.99, 0.0)
    loss = penalty(torch.exp(log_ratio), advantage, violation, 0.2)
    loss.backward()
    assert float(loss) > 0 and (log_ratio.grad[:25] > 0).all() and (log_ratio.grad[25:] < 0).all()


def test_a_constrained_run_says_how_often_the_limit_is_broken_and_what_it_does_about_it(tmp_path, monkeypatch):
    monkeypatch.setattr("policy.training.UPDATE_EVERY", 10_000)
    cfg = replace(PRESETS["default"], robots=64, minibatch=512, epochs=2, total_steps=64 * 24 * 16, constraint=ConstraintCfg())
    reports = train(cfg, tmp_path, threads=1, console=Console(file=StringIO()))
    assert reports and 0 <= reports[-1]["over_current_rate"] <= 1 and reports[-1]["cost"] > 0
    assert reports[-1]["cost_weight"] == pytest.approx(ConstraintCfg().weight_at(round(reports[-1]["steps"] / (64 * 24)) - 1), rel=0.02)
    assert all(np.isfinite(r["violation"]) for r in reports)


def test_a_run_begun_with_another_does_at_first_what_the_other_did(tmp_path):
    cfg = replace(PRESETS["seeing"], robots=8, minibatch=96)
    session = build(cfg, threads=1)
    line = begin_with(session, STATE)
    assert "new inputs shuttle_b, detected" in line and "fresh cost_critic" in line
    shipped, task = OnnxPolicy(), session.env.task
    observation = task.reset()
    for _ in range(50):
        observation = task.step(np.zeros((8, 18))).observation
    old = shipped(observation[:, :110])
    with torch.no_grad():
        trunk = session.algorithm.policy
        new = trunk.action_net(trunk.mlp_extractor.forward_actor(torch.from_numpy(observation))).numpy()
    np.testing.assert_allclose(new, old, atol=2e-4)
    assert session.curriculum.spread == cfg.curriculum.start and session.curriculum.steps_at_update == 0


def test_beginning_with_another_robot_is_refused(tmp_path):
    session = build(replace(PRESETS["default"], robots=4, minibatch=96, robot="go2_x5"), threads=1)
    with pytest.raises(UserError, match="begin with a run of go2_x5"):
        begin_with(session, STATE)
    with pytest.raises(UserError, match="either --resume"):
        train(PRESETS["default"], tmp_path, resume=STATE, begin=STATE)


def test_settings_of_a_seeing_run_survive_its_checkpoint():
    from dataclasses import asdict

    cfg = PRESETS["seeing"]
    assert cfg_from_dict(asdict(cfg)) == cfg
