"""Training runs: reproducible, resumable, stoppable."""

import json
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
import torch
from rich.console import Console

from perception.errors import UserError
from policy.checkpoint import KEEP, newest_checkpoint, read_record
from policy.curriculum import UPDATE_EVERY, Curriculum
from policy.export import export_policy
from policy.inference import OnnxPolicy
from policy.off_policy import OffPolicyCfg
from policy.play import PlayCfg, play
from policy.training import PRESETS, How, TrainCfg, build, resume_session, train
from sim.robot import available_robots, load_robot

SMALL = replace(PRESETS["default"], robots=32, minibatch=256, epochs=2, total_steps=32 * 24 * 20)
QUIET = Console(quiet=True)


def weights(session):
    return torch.cat([p.detach().flatten() for p in session.algorithm.policy.parameters()]).numpy()


def run_iterations(cfg, count, threads, mode="sequential"):
    session = build(cfg, how=How(mode, threads))
    algorithm = session.algorithm
    _, callback = algorithm._setup_learn(cfg.total_steps)
    losses = []
    for _ in range(count):
        algorithm.collect_rollouts(session.env, callback, None, algorithm.n_steps)
        algorithm.train()
        losses.append(tuple(algorithm.last_losses.values()))
    algorithm.source.close()
    return session, losses


@pytest.mark.parametrize("mode", ["sequential", "overlapped"])
def test_first_twenty_iterations_are_bit_identical_for_one_seed(mode):
    first, losses = run_iterations(SMALL, 20, 2, mode)
    second, again = run_iterations(SMALL, 20, 2, mode)
    assert losses == again
    assert weights(first).tobytes() == weights(second).tobytes()
    other, _ = run_iterations(replace(SMALL, seed=2), 1, 2, mode)
    assert weights(other).tobytes() != weights(first).tobytes()
    assert first.algorithm.last_losses["staleness"] == (1.0 if mode == "overlapped" else 0.0)


@pytest.mark.parametrize("lag", [0, 2])
def test_late_source_is_as_late_as_asked_and_its_weights_say_so(lag):
    session, _ = run_iterations(replace(SMALL, lag=lag, off_policy=OffPolicyCfg(clip="bapo", proximal=True)), 5, 1)
    losses = session.algorithm.last_losses
    assert losses["staleness"] == lag
    assert 0.6 <= losses["clip_low"] <= 0.9 and 1.2 <= losses["clip_high"] <= 3.0 and losses["positive_share"] > 0.4


def test_rollouts_that_are_too_old_are_thrown_away_and_counted():
    session = build(replace(SMALL, lag=2, off_policy=OffPolicyCfg(max_staleness=1)), threads=1)
    algorithm = session.algorithm
    _, callback = algorithm._setup_learn(SMALL.total_steps)
    for _ in range(4):
        algorithm.collect_rollouts(session.env, callback, None, algorithm.n_steps)
        assert algorithm.version - algorithm.rollout.version <= 1
        algorithm.train()
    assert algorithm.too_old > 0
    assert algorithm.num_timesteps == 4 * 32 * 24


def test_sampling_beside_learning_sees_the_policy_of_one_update_ago():
    session = build(SMALL, how=How("overlapped", 1))
    algorithm = session.algorithm
    _, callback = algorithm._setup_learn(SMALL.total_steps)
    means = []
    for _ in range(3):
        algorithm.collect_rollouts(session.env, callback, None, algorithm.n_steps)
        r = algorithm.rollout
        with torch.no_grad():
            means.append(float((algorithm.policy.judge(r.observation[0], r.action[0])[1] - r.log_prob[0]).abs().max()))
        algorithm.train()
    algorithm.source.close()
    assert means[0] < 1e-4 < means[1]  # the first rollout is fresh, the later ones were begun before the update


def test_resumed_run_has_the_same_weights_curriculum_rate_and_schedule(tmp_path):
    train(SMALL, tmp_path, threads=1, console=QUIET)
    checkpoint = newest_checkpoint(tmp_path)
    record = read_record(checkpoint)
    record["curriculum"]["spread"], record["curriculum"]["widths"]["position"] = 0.9, 0.123
    (checkpoint / "checkpoint.json").write_text(json.dumps(record))
    session, _ = resume_session(tmp_path, None, threads=1)
    stored = torch.load(checkpoint / "state.pt", weights_only=True)
    assert session.algorithm.num_timesteps == SMALL.total_steps
    assert session.algorithm.rate == record["learning_rate"]
    assert session.curriculum.spread == 0.9
    assert session.env.task.widths.position == 0.123 and session.env.task.widths is session.curriculum.widths
    for name, value in session.algorithm.policy.state_dict().items():
        assert torch.equal(value, stored["policy"][name]), name
    assert session.algorithm.policy.mlp_extractor.normaliser.count > SMALL.total_steps
    assert session.algorithm.policy.optimizer.state_dict()["state"][0]["step"] == stored["optimizer"]["state"][0]["step"]


def test_the_critic_knows_after_a_resume_what_it_knew(tmp_path):
    train(SMALL, tmp_path, threads=1, console=QUIET)
    session, _ = resume_session(tmp_path, SMALL.total_steps * 2, threads=1)
    algorithm = session.algorithm
    _, callback = algorithm._setup_learn(SMALL.total_steps, reset_num_timesteps=False)
    algorithm.collect_rollouts(session.env, callback, None, algorithm.n_steps)
    algorithm.train()
    fresh, _ = run_iterations(SMALL, 1, threads=1)
    assert fresh.algorithm.last_losses["explained_variance"] < 0.2 < 0.4 < algorithm.last_losses["explained_variance"]
    assert algorithm.num_timesteps == SMALL.total_steps + 32 * 24


def test_interrupt_writes_a_checkpoint_and_resume_finishes_the_run(tmp_path, monkeypatch):
    from policy.ppo import BatchPPO

    original = BatchPPO.train

    def interrupted(self):
        original(self)
        if self.num_timesteps >= 32 * 24 * 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(BatchPPO, "train", interrupted)
    train(SMALL, tmp_path, threads=1, console=QUIET)
    assert read_record(newest_checkpoint(tmp_path))["steps"] == 32 * 24 * 3
    monkeypatch.setattr(BatchPPO, "train", original)
    train(SMALL, tmp_path, resume=tmp_path, threads=1, console=QUIET)
    assert read_record(newest_checkpoint(tmp_path))["steps"] == SMALL.total_steps
    assert len(list((tmp_path / "checkpoints").iterdir())) <= KEEP


def test_finished_run_is_not_resumed_without_more_steps(tmp_path):
    train(replace(SMALL, total_steps=32 * 24), tmp_path, threads=1, console=QUIET)
    with pytest.raises(UserError, match="--total-steps"):
        train(SMALL, tmp_path, resume=tmp_path, threads=1, console=QUIET)


@pytest.mark.parametrize("damage", ["empty", "json", "weights"])
def test_missing_or_damaged_checkpoint_is_refused(tmp_path, damage):
    if damage != "empty":
        train(replace(SMALL, total_steps=32 * 24), tmp_path, threads=1, console=QUIET)
        name = {"json": "checkpoint.json", "weights": "state.pt"}[damage]
        path = newest_checkpoint(tmp_path) / name
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UserError):
        resume_session(tmp_path, None, threads=1)


def test_curriculum_widens_when_it_hits_and_narrows_when_it_falls():
    c = Curriculum()
    good = np.full(500, 0.05)
    c.update(UPDATE_EVERY, good, good, good, 0.0)
    assert c.spread == pytest.approx(0.4) and c.widths.position < 0.3
    c.update(2 * UPDATE_EVERY, good, good, good, 0.9)
    assert c.spread == pytest.approx(0.3)
    for i in range(30):
        c.update((3 + i) * UPDATE_EVERY, good, good, good, 0.0)
    assert c.spread == pytest.approx(c.cfg.top)


def test_curriculum_with_too_few_strikes_waits():
    c = Curriculum()
    c.update(UPDATE_EVERY, np.full(5, 0.01), np.full(5, 0.1), np.full(5, 0.9), 0.0)
    assert c.spread == 0.3


@pytest.mark.slow
def test_it_learns(tmp_path):
    """Forty seconds of training move the racket nearer to its targets; a broken reward, mirror or bootstrap does not."""
    cfg = replace(PRESETS["quick"], robots=256, minibatch=2048, total_steps=620_000)
    out = StringIO()
    reports = train(cfg, tmp_path, console=Console(file=out, width=300))
    assert len(reports) == 2
    assert "warning" not in out.getvalue() and not (tmp_path / "faults").exists() and reports[-1]["faults"] == {}
    assert reports[-1]["median_position_error_m"] < 0.75 * reports[0]["median_position_error_m"]
    assert reports[-1]["reward"] > reports[0]["reward"]


@pytest.mark.parametrize("name", [n for n in available_robots() if n != TrainCfg.robot])  # test_shipped.py does all this for that one
def test_every_other_robot_can_be_trained_exported_and_played(name, tmp_path):
    scale = load_robot(name).scale
    train(replace(SMALL, robot=name, total_steps=32 * 24 * 2), tmp_path, threads=1, console=QUIET)
    export_policy(tmp_path, tmp_path / "p.onnx")
    policy = OnnxPolicy(tmp_path / "p.onnx")
    assert policy.contract.scale == scale
    figures, outcome = play(policy, PlayCfg(repeats=1, robots=19), threads=1)
    assert figures["shots"] == 37 and np.abs(outcome.place).max(axis=0) == pytest.approx([scale.box_x, scale.box_y], rel=0.2)


def test_stock_stable_baselines3_trains_on_the_same_vec_env(robot):
    from stable_baselines3 import PPO

    session = build(replace(SMALL, robots=8), threads=1)
    stock = PPO("MlpPolicy", session.env, n_steps=16, batch_size=64, n_epochs=1, device="cpu")
    stock.learn(8 * 16 * 2)
    assert stock.num_timesteps == 8 * 16 * 2


def test_folder_that_holds_a_run_is_not_trained_into_again(tmp_path):
    train(replace(SMALL, total_steps=32 * 24), tmp_path, threads=1, console=QUIET)
    before = newest_checkpoint(tmp_path)
    with pytest.raises(UserError, match="already holds a run"):
        train(SMALL, tmp_path, threads=1, console=QUIET)
    assert newest_checkpoint(tmp_path) == before


def test_checkpoint_of_another_robot_is_not_resumed(tmp_path):
    train(replace(SMALL, total_steps=32 * 24), tmp_path, threads=1, console=QUIET)
    path = newest_checkpoint(tmp_path) / "checkpoint.json"
    record = json.loads(path.read_text())
    record["contract"]["kd"][4] = 9.0
    path.write_text(json.dumps(record))
    with pytest.raises(UserError, match="kd of joint RF_HFE"):
        resume_session(tmp_path, 10**6, threads=1)
