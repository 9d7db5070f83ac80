"""Numbers that are not finite are named, recorded and survived; a run that stops learning says so once."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import policy.ppo
import policy.task
from perception.errors import UserError
from policy.health import FILES, SECOND, BlackBox, Watch
from policy.sampler import Behaviour
from policy.training import PRESETS, build
from sim.rollout_reader import read_rollout

TINY = replace(PRESETS["default"], robots=16, minibatch=128, epochs=1, total_steps=16 * 24 * 4)


def poisoned(monkeypatch, name, robot, after):
    """Let policy.task's function `name` give NaN for one robot from call `after` on, once."""
    calls = {"n": 0}
    original = getattr(policy.task, name)

    def wrapped(*args):
        out = original(*args)
        calls["n"] += 1
        if calls["n"] == after:
            (out if isinstance(out, np.ndarray) else out[0])[robot] = np.nan
        return out

    monkeypatch.setattr(policy.task, name, wrapped)


@pytest.mark.parametrize("fault", ["observation", "reward", "physics"])
def test_fault_is_named_its_last_second_recorded_and_training_goes_on(tmp_path, monkeypatch, fault):
    session = build(TINY, threads=1)
    task, said = session.env.task, []
    task.reset()
    session.env.black_box = BlackBox(task, tmp_path / "faults", {"robot": TINY.robot}, said.append)
    session.env.log.faults.clear()
    for _ in range(60):
        session.env.step_arrays(np.zeros((16, 18)))
    before = task.physics.qpos[5].copy()
    if fault == "physics":
        task.physics.qvel[5, 8] = np.nan
    else:
        poisoned(monkeypatch, {"observation": "build_observation", "reward": "total_reward"}[fault], 5, after=1)
    step = session.env.step_arrays(np.zeros((16, 18)))
    assert step.faults.keys() == {fault} and step.faults[fault].tolist() == [5]
    assert step.terminated[5] and not step.truncated[5] and step.reward[5] == 0.0
    assert np.isfinite(step.observation).all() and np.isfinite(step.reward).all()
    assert session.env.log.faults == {fault: 1}
    files = list((tmp_path / "faults").glob("*.mcap"))
    assert [f.name for f in files] == [f"01_{fault}_robot5.mcap"] and fault in said[0] and str(files[0]) in said[0]
    rollout = read_rollout(files[0])
    assert len(rollout.time) == SECOND and rollout.metadata["fault"] == fault
    np.testing.assert_allclose(rollout.base[-1], before[:7], atol=1e-9)
    for _ in range(5):
        assert not session.env.step_arrays(np.zeros((16, 18))).faults


def test_no_more_recordings_than_a_disk_can_bear(tmp_path):
    session = build(TINY, threads=1)
    session.env.task.reset()
    session.env.black_box = box = BlackBox(session.env.task, tmp_path, {})
    for _ in range(4):
        session.env.task.physics.qvel[:, 8] = np.nan
        session.env.step_arrays(np.zeros((16, 18)))
    assert box.written == FILES == len(list(tmp_path.glob("*.mcap"))) and session.env.log.faults["physics"] == 64


def started(cfg=TINY):
    session = build(cfg, threads=1)
    _, callback = session.algorithm._setup_learn(cfg.total_steps)
    session.algorithm.collect_rollouts(session.env, callback, None, cfg.horizon)
    return session, callback


def test_minibatch_without_a_finite_loss_is_left_out_and_counted():
    session, _ = started()
    session.algorithm.rollout.reward[3, 2] = np.inf
    before = {k: v.clone() for k, v in session.algorithm.policy.named_parameters()}
    session.algorithm.train()
    assert session.env.log.faults["loss"] > 0
    assert all(torch.isfinite(p).all() for p in session.algorithm.policy.parameters())
    assert set(before) == {k for k, _ in session.algorithm.policy.named_parameters()}


def test_three_updates_without_a_finite_loss_end_the_run_in_one_line():
    session, callback = started()
    with pytest.raises(UserError, match="three updates in a row"):
        for _ in range(3):
            session.algorithm.rollout.reward[:] = np.nan
            session.algorithm.train()
            session.algorithm.collect_rollouts(session.env, callback, None, TINY.horizon)


def test_update_that_spoils_the_parameters_is_undone(monkeypatch):
    session, _ = started()
    algorithm = session.algorithm
    before = {k: v.detach().clone() for k, v in algorithm.policy.state_dict().items()}
    step = algorithm.policy.optimizer.step

    def spoil(*args, **kwargs):
        step(*args, **kwargs)
        with torch.no_grad():
            algorithm.policy.action_net.bias[0] = float("nan")

    monkeypatch.setattr(algorithm.policy.optimizer, "step", spoil)
    algorithm.train()
    assert session.env.log.faults["parameters"] == 1
    for name in ("action_net.weight", "action_net.bias", "value_net.weight"):
        assert torch.equal(algorithm.policy.state_dict()[name], before[name]), name


def report(**changes):
    good = {"steps": 2_000_000, "median_position_error_m": 0.05, "hit_rate": 0.9, "fall_rate": 0.0, "std_arm": 0.3, "kl": 0.03,
            "learning_rate": 1e-3}
    return {**good, **changes}


@pytest.mark.parametrize(("changes", "word"), [
    ({"std_arm": 0.045}, "exploration has died"), ({"kl": 0.5, "learning_rate": 1e-5}, "ten times further"),
    ({"fall_rate": 0.8}, "end in a fall")])
def test_run_that_goes_wrong_says_so_once_per_spell(changes, word):
    watch = Watch(floor=0.04)
    assert watch.look(report(), 0.1, 0.03, 0.5) == []
    first = watch.look(report(**changes), 0.1, 0.03, 0.5)
    assert len(first) == 1 and word in first[0]
    assert watch.look(report(**changes), 0.1, 0.03, 0.5) == []
    watch.look(report(), 0.1, 0.03, 0.5)
    assert len(watch.look(report(**changes), 0.1, 0.03, 0.5)) == 1


def test_racket_that_comes_no_nearer_is_told():
    watch, said = Watch(floor=0.04), []
    for steps in range(250_000, 4_000_000, 250_000):
        said += watch.look(report(steps=steps, median_position_error_m=0.5, hit_rate=0.01), 0.1, 0.03, 0.5)
    assert len(said) == 1 and "no nearer" in said[0]


def test_copy_of_the_policy_does_not_follow_it():
    session, _ = started()
    copy = Behaviour.of(session.algorithm.policy, 7)
    before = {k: v.clone() for k, v in copy.actor.items()}
    session.algorithm.train()
    assert copy.version == 7 and all(torch.equal(v, before[k]) for k, v in copy.actor.items())
    assert not torch.equal(copy.actor["head.bias"], session.algorithm.policy.action_net.bias)
