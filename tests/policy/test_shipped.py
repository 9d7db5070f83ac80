"""The policy that ships must still do what its score card says, in this code, on this machine."""

import json
from pathlib import Path

import numpy as np
import pytest

from perception.errors import UserError
from policy import SHIPPED
from policy.evaluation import EvalCfg, evaluate
from policy.export import write_onnx
from policy.inference import OnnxPolicy
from policy.play import PlayCfg, play
from policy.recorder import TaskRecorder
from sim.rollout_reader import read_rollout


@pytest.fixture(scope="module")
def policy():
    return OnnxPolicy(SHIPPED)


def test_hits_drilled_targets(policy):
    figures = evaluate(policy, EvalCfg(swings=300, robots=60, seed=101))
    assert figures["swings"] == 300
    assert figures["hit_rate"] >= 0.95
    assert figures["median_velocity_error_mps"] <= 1.0
    assert figures["fall_rate"] <= 0.02
    assert figures["over_speed_rate"] <= 0.005


def test_returns_measured_shots_and_accounts_for_each(policy, tmp_path):
    recorder = TaskRecorder(tmp_path / "r.mcap", {"robot": policy.contract.robot})
    figures, outcome = play(policy, PlayCfg(repeats=2, seed=102), watch=recorder)
    recorder.close()
    assert figures["shots"] == 74
    assert figures["touched_rate"] >= 0.7
    assert figures["returned_rate"] >= 0.5
    assert len(figures["out_of_reach"]) == 74 - outcome.touched.sum()
    assert not (outcome.returned & ~outcome.crossed).any() and not (outcome.crossed & ~outcome.touched).any()
    rollout = read_rollout(tmp_path / "r.mcap")
    kinds = {e["event"] for _, e in rollout.events}
    assert rollout.complete and {"shot", "strike", "landing"} <= kinds
    assert np.nanmax(rollout.shuttle[:, 2]) > 2


def test_as_hit_names_a_reason_for_every_shot_not_touched(policy):
    figures, _ = play(policy, PlayCfg(repeats=1, as_hit=True))
    assert figures["shots"] == 37
    reasons = {o["why"] for o in figures["out_of_reach"]}
    assert reasons <= {"too far", "too little time", "into the net", "missed", "fell"} and "too far" in reasons
    assert figures["in_reach"] < 30


def test_same_seed_gives_the_same_figures(policy):
    cfg = EvalCfg(swings=50, robots=10, seed=5)
    assert json.dumps(evaluate(policy, cfg, threads=1)) == json.dumps(evaluate(policy, cfg, threads=2))


def test_export_of_the_shipped_checkpoint_matches_torch_and_the_shipped_file(policy, tmp_path):
    from policy.checkpoint import load_state, read_record
    from policy.networks import ActorForExport
    from policy.training import build, cfg_from_dict

    folder = SHIPPED.parent / "state"
    record = read_record(folder)
    cfg = cfg_from_dict({**record["cfg"], "robots": 32, "minibatch": 256})
    session = build(cfg, threads=1)
    load_state(folder, session.algorithm)
    actor = ActorForExport(session.algorithm.policy).eval()
    assert actor.normaliser.variance.std() > 0.01  # a trained normaliser, not a fresh one
    out = tmp_path / "again.onnx"
    difference = write_onnx(actor, policy.contract, policy.training, out)
    assert difference < 1e-5
    again = OnnxPolicy(out)
    observation = np.random.default_rng(0).normal(size=(64, actor.normaliser.mean.shape[0])).astype(np.float32)
    np.testing.assert_allclose(again(observation), policy(observation), atol=1e-5)
    assert again.contract.to_json() == policy.contract.to_json()


def test_shipped_contract_fits_the_shipped_robot(policy, robot):
    from policy.task import contract_of

    policy.contract.check_fits(contract_of(robot, policy.contract.period))


@pytest.mark.parametrize("content", [None, b"", b"no network", "onnx"])
def test_missing_or_foreign_policy_file_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "p.onnx"
    if content == "onnx":
        import onnx

        model = onnx.load(SHIPPED)
        del model.metadata_props[:]
        onnx.save(model, path)
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError) as error:
        OnnxPolicy(path)
    assert "p.onnx" in str(error.value) and "\n" not in str(error.value)


def test_act_on_one_robot_equals_the_task_in_a_batch(policy, robot):
    """What a robot would run (OnnxPolicy.act) gives the joint targets that the simulator applied."""
    from policy.observations import RobotState, SwingCommand
    from policy.swings import ShotPool, SwingRange, draw_swings
    from policy.task import BadmintonTask

    rng = np.random.default_rng(1)
    pool, span = ShotPool(rng, robot.scale, count=100), SwingRange.box(robot.scale)
    task = BadmintonTask(robot, 4, lambda ids: draw_swings(rng, len(ids), span, pool), seed=2, threads=1)
    observation = task.reset()
    for _ in range(50):
        one = slice(1, 2)
        state = RobotState(*(v[one].copy() for v in vars(task.robot_state()).values()))
        command = SwingCommand(*(v[one].copy() for v in vars(task.command()).values()))
        targets, _ = policy.act(state, command, task.previous_action[one], task.side[one])
        observation = task.step(policy(observation[:, : task.actor_size])).observation
        if task.swing_number[1] or np.all(task.previous_action[1] == 0):
            continue
        np.testing.assert_allclose(targets[0], task.contract.joint_targets(task.previous_action[1]), atol=1e-4)


def test_score_card_beside_the_policy_is_of_this_policy(policy):
    card = json.loads((Path(SHIPPED).parent / "scores.json").read_text())
    assert card["eval"]["training"]["steps"] == policy.training["steps"]
    assert card["command"].startswith("birdie train")
