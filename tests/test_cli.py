"""The command line as a person meets it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from policy import SHIPPED

ROOT = Path(__file__).parent.parent


def birdie(*args, cwd=ROOT):
    return subprocess.run([sys.executable, str(ROOT / "birdie.py"), *map(str, args)], capture_output=True, text=True, cwd=cwd)


@pytest.mark.parametrize("verb", ["train", "play", "eval", "replay", "export", "bench", "robots", "track", "calibrate", "up", "ros"])
def test_help_of_every_verb_explains_every_option(verb):
    out = birdie(verb, "--help")
    assert out.returncode == 0
    assert "usage: birdie" in out.stdout
    assert "TODO" not in out.stdout and len(out.stdout) > 300


@pytest.mark.parametrize(("args", "said"), [
    (["eval", "--policy", "nowhere.onnx"], "nowhere.onnx"),
    (["play", "--policy", "README.md", "--no-video"], "README.md"),
    (["replay", "nothing.mcap", "--video", "x.mp4"], "nothing.mcap"),
    (["replay", "pyproject.toml", "--video", "x.mp4"], "pyproject.toml"),
    (["export", "--run", "empty"], "no checkpoint"),
    (["train", "--resume", "empty"], "no checkpoint"),
    (["train", "--robot", "unicorn", "--total-steps", "100"], "unicorn"),
    (["up", "--robot", "nowhere"], "nowhere"),
    (["up", "--robot", "dry", "--bag", "README.md"], "README.md"),
    (["up", "--robot", "dry", "--lock-step"], "--lock-step"),
    (["ros", "again"], "--bag"),
])
def test_bad_input_gets_one_line_and_exit_code_two(tmp_path, args, said):
    before = sorted(p.name for p in ROOT.iterdir())
    out = birdie(*args)
    assert out.returncode == 2
    lines = [x for x in out.stderr.splitlines() if x.strip()]
    assert len(lines) == 1 and said in lines[0] and lines[0].startswith("birdie: ")
    assert "Traceback" not in out.stdout + out.stderr
    assert not (ROOT / "x.mp4").exists()
    assert sorted(p.name for p in ROOT.iterdir() if p.name != "runs") == [p for p in before if p != "runs"]


@pytest.mark.parametrize("args", [["eval", "--swngs", "3"], ["fly"], ["play", "--shots", "robot"]])
def test_unknown_options_exit_with_two_and_no_traceback(args):
    out = birdie(*args)
    assert out.returncode == 2
    assert "Traceback" not in out.stdout + out.stderr


def test_policy_for_another_robot_is_refused_by_field(tmp_path):
    import onnx

    model = onnx.load(SHIPPED)
    for prop in model.metadata_props:
        if prop.key == "birdie_contract":
            contract = json.loads(prop.value)
            contract["kp"][contract["joint_names"].index("LF_KFE")] = 99.0
            prop.value = json.dumps(contract)
    path = tmp_path / "other.onnx"
    onnx.save(model, path)
    out = birdie("eval", "--policy", path, "--swings", 10)
    assert out.returncode == 2
    assert "kp of joint LF_KFE is 99 in the policy and 85 in the robot" in out.stderr


def test_eval_writes_its_figures(tmp_path):
    path = tmp_path / "deep" / "eval.json"
    out = birdie("eval", "--swings", 50, "--robots", 10, "--no-card", "--json", path)
    assert out.returncode == 0, out.stderr
    figures = json.loads(path.read_text())
    keys = {"hit_rate", "median_position_error_m", "median_velocity_error_mps", "fall_rate", "over_speed_rate", "swings"}
    assert keys <= figures.keys() and figures["swings"] == 50


def test_play_without_opengl_plays_all_the_same_and_says_what_to_install(tmp_path):
    import os

    env = {**os.environ, "MUJOCO_GL": "glx_that_is_not_there"}
    out = subprocess.run([sys.executable, str(ROOT / "birdie.py"), "play", "--repeats", "1", "--out", str(tmp_path)], capture_output=True,
                         text=True, env=env, cwd=ROOT)
    assert out.returncode == 0, out.stderr
    assert "apt install" in out.stdout
    assert (tmp_path / "rollout.mcap").exists() and not (tmp_path / "rally.mp4").exists()
    keys = {"shots", "in_reach", "touched_rate", "returned_rate", "out_of_reach"}
    assert keys <= json.loads((tmp_path / "scores.json").read_text()).keys()


def test_bench_sim_prints_both_rates(tmp_path):
    path = tmp_path / "b.json"
    out = birdie("bench", "sim", "--robots", 32, "--seconds", 1, "--json", path)
    assert out.returncode == 0, out.stderr
    assert {"env_steps_per_s", "raw_physics_steps_per_s", "ratio"} <= json.loads(path.read_text()).keys()
