"""The house keeps its floors: imports point down, and what runs on the robot needs neither MuJoCo nor torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FLOORS = ["perception", "sim", "policy", "ros_nodes"]
TRAINING_FILES = {"networks.py", "ppo.py", "training.py", "checkpoint.py", "export.py", "vec_env.py", "gym_env.py", "bench_train.py", "verbs.py",
                  "constraint.py", "off_policy.py", "rollout.py", "sampler.py", "sources.py", "warm_start.py", "workers.py", "stale_study.py"}
ON_THE_ROBOT = ["perception.flight", "perception.camera", "perception.rig_check", "perception.detector", "perception.pipeline",
                "perception.tracker", "perception.tracker_batch", "perception.interception", "perception.height_scale",
                "sim.impact", "sim.kinematics", "sim.court", "policy.contract", "policy.observations", "policy.strike",
                "policy.symmetry", "policy.inference", "policy.commander", "ros_nodes.safety", "ros_nodes.deploy", "ros_nodes.policy_core",
                "ros_nodes.perception_core", "ros_nodes.bag"]


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {a.name.split(".")[0] for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("path", sorted(p for f in FLOORS for p in (ROOT / f).rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_only_point_down(path):
    floor = path.relative_to(ROOT).parts[0]
    used = imports(path)
    above = set(FLOORS[FLOORS.index(floor) + 1:])
    if path.name == "flight.py" or floor == "perception":
        above |= {"mujoco", "torch"}
    assert not used & above, f"{path} imports {used & above} from a floor above"
    if path.name not in TRAINING_FILES:
        assert not used & {"torch", "stable_baselines3"}
    if floor != "ros_nodes":
        assert "rclpy" not in used


def test_what_runs_on_the_robot_imports_without_mujoco_torch_and_sb3():
    code = ("import sys\n"
            "for name in ('mujoco', 'torch', 'stable_baselines3', 'gymnasium', 'onnx'): sys.modules[name] = None\n"
            + "".join(f"import {name}\n" for name in ON_THE_ROBOT))
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_playing_needs_no_torch():
    code = ("import sys\n"
            "for name in ('torch', 'stable_baselines3', 'gymnasium', 'onnx'): sys.modules[name] = None\n"
            "import policy.play, policy.evaluation, policy.recorder, policy.reports, policy.verbs, sim.replay\n")
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
