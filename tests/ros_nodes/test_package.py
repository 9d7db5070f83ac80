"""The folder as colcon and launch see it, and the files a robot is described by. No ROS needed."""

import ast
import importlib.util
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from perception.errors import UserError
from ros_nodes.deploy import Court, load_deploy
from ros_nodes.perception_core import PerceptionCore
from ros_nodes.policy_core import PolicyCore
from sim.stereo import lens_in_base, lens_pose

PACKAGE = Path(__file__).parent.parent.parent / "ros_nodes"


def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_package_xml_is_valid_and_names_every_message_package_that_is_imported():
    catkin_pkg = pytest.importorskip("catkin_pkg.package", reason="catkin-pkg is not installed")
    package = catkin_pkg.parse_package(PACKAGE / "package.xml")
    assert package.name == "ros_nodes" and package.get_build_type() == "ament_python"
    depends = {d.name for d in package.exec_depends}
    used = set()
    for path in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[-1] in ("msg", "srv"):
                used.add(node.module.split(".")[0])
    assert used <= depends, used - depends


def test_every_entry_point_is_a_node_with_a_main():
    for node in load(PACKAGE / "setup.py", "ros_nodes_setup").NODES:
        tree = ast.parse((PACKAGE / f"{node}.py").read_text())
        assert any(isinstance(n, ast.FunctionDef) and n.name == "main" for n in tree.body), node
    assert {p.stem for p in PACKAGE.glob("*_node.py")} == set(load(PACKAGE / "setup.py", "ros_nodes_setup").NODES)


@pytest.mark.parametrize("path", sorted((PACKAGE / "launch").glob("*.launch.py")), ids=lambda p: p.name)
def test_launch_files_start_nodes_that_exist_with_parameters_they_declare(path, monkeypatch):
    started = []

    class Recorded:
        def __init__(self, *args, **kwargs):
            if "executable" in kwargs:
                started.append(kwargs)

    for name in ("launch", "launch.actions", "launch.substitutions", "launch_ros", "launch_ros.actions"):  # neither is on PyPI
        module = types.ModuleType(name)
        for cls in ("LaunchDescription", "DeclareLaunchArgument", "LaunchConfiguration", "Node"):
            setattr(module, cls, Recorded)
        monkeypatch.setitem(sys.modules, name, module)
    load(path, path.stem.replace(".", "_")).generate_launch_description()
    assert len(started) >= 4
    for node in started:
        assert node["package"] == "ros_nodes"
        source = (PACKAGE / f"{node['executable']}.py").read_text()
        for group in node.get("parameters", []):
            for key in group:
                assert f'parameter(self, "{key}"' in source, f"{node['executable']} declares no {key}"


def test_ros_nodes_is_the_only_place_that_imports_rclpy_and_the_verbs_do_without():
    code = ("import sys\n"
            "sys.modules['rclpy'] = None\n"
            "import ros_nodes.verbs, ros_nodes.bringup, ros_nodes.safety, ros_nodes.bag, ros_nodes.policy_core, ros_nodes.perception_core\n")
    subprocess.run([sys.executable, "-c", code], check=True, cwd=PACKAGE.parent)


def test_what_runs_on_a_robot_needs_no_mujoco_and_no_torch():
    code = ("import sys\n"
            "for name in ('mujoco', 'torch', 'stable_baselines3', 'gymnasium', 'onnx'): sys.modules[name] = None\n"
            "import ros_nodes.safety, ros_nodes.bag, ros_nodes.policy_core, ros_nodes.perception_core, ros_nodes.deploy, policy.commander\n"
            "try: import rclpy\n"
            "except ImportError: pass\n"
            "else: import ros_nodes.safety_node, ros_nodes.policy_node, ros_nodes.perception_node, ros_nodes.operator_node, ros_nodes.recorder_node\n")
    subprocess.run([sys.executable, "-c", code], check=True, cwd=PACKAGE.parent)


def test_the_shipped_camera_sits_where_the_models_does(robot):
    mount = load_deploy(robot.name).camera
    axes, place = lens_in_base(robot)
    assert np.allclose(mount.axes, axes, atol=1e-9) and np.allclose(mount.place, place, atol=1e-9)
    base = np.array([-3.0, 0.4, 0.6, 0.9, 0.1, -0.2, 0.3])
    base[3:] /= np.linalg.norm(base[3:])
    ours, theirs = mount.pose(base[:3], base[3:]), lens_pose(base, (axes, place))
    assert np.allclose(ours.rotation, theirs.rotation, atol=1e-9) and np.allclose(ours.translation, theirs.translation, atol=1e-9)


def test_warming_up_goes_all_the_way_to_a_strike():
    from policy.inference import OnnxPolicy

    core = PolicyCore(OnnxPolicy())
    assert core.warm_up() and not core.previous.any() and core.commander.strike is None
    assert PerceptionCore(load_deploy("anymal_dynaarm").camera).warm_up(1.8)


def test_flights_that_are_over_are_forgotten():
    from perception.flight import fly
    from ros_nodes.policy_core import WARM, WARM_BASE

    core, level = PerceptionCore(load_deploy("anymal_dynaarm").camera), np.array([1.0, 0.0, 0.0, 0.0])
    path = fly(WARM[None, :3], WARM[None, 3:6], WARM[6:7], WARM[7:8], 0.016, 40)[0]
    tracked = 0
    for flight in range(3):
        for n in range(240):  # 0.6 s of flight, then nothing for 3 s
            ns = (flight * 240 + n) * 16_000_000
            core.base(ns, WARM_BASE, level)
            points = core.mount.pose(WARM_BASE, level).apply(path[n][None, :3]) if n < len(path) else np.zeros((0, 3))
            tracked += core.detections(ns, points).track is not None
    assert tracked > 60 and core.tracker.track is None
    assert core.tracker.take_finished() == ()


@pytest.mark.parametrize(("change", "said"), [
    ({"robot": "unicorn"}, "unicorn"), ({"driver": "wish"}, "driver is wish"), ({"gears": 3}, "unknown key gears"),
    ({"safety": {"slow": 1}}, "safety has no slow"), ({"safety": {"tilt": "much"}}, "must be a number"),
    ({"camera": {"axes": [[2, 0, 0], [0, 1, 0], [0, 0, 1]], "place": [0, 0, 0]}}, "no rotation"), ({"camera": {"place": [0, 0, 0]}}, "axes"),
    ({"joints": [{"policy": "TAIL"}]}, "TAIL"),
])
def test_a_wrong_deploy_file_is_refused_by_key(tmp_path, change, said):
    import yaml

    from policy.inference import OnnxPolicy

    path = tmp_path / "deploy.yaml"
    path.write_text(yaml.safe_dump({"robot": "anymal_dynaarm", **change}))
    with pytest.raises(UserError, match=said):
        load_deploy(tmp_path).joint_map(OnnxPolicy().contract)


def test_a_court_that_is_turned_gives_the_same_decisions(rng):
    from policy.commander import Flight
    from policy.inference import OnnxPolicy
    from ros_nodes.policy_core import WARM, Report

    policy = OnnxPolicy()
    court = Court(1.5, -0.7, 0.4)
    c = policy.contract
    straight, turned = PolicyCore(policy), PolicyCore(policy, court)
    q = np.array([0.99, 0.02, -0.03, 0.1])
    q /= np.linalg.norm(q)
    half = 0.2
    heading = np.array([np.cos(half), 0, 0, np.sin(half)])
    q_odom = np.array([heading[0] * q[0] - heading[3] * q[3], heading[0] * q[1] - heading[3] * q[2], heading[0] * q[2] + heading[3] * q[1],
                       heading[0] * q[3] + heading[3] * q[0]])
    p = np.array([-3.8, 0.3, 0.6])
    joints, v, w = c.default_pose + 0.1 * rng.standard_normal(len(c.default_pose)), np.array([0.1, 0.2, 0.0]), np.array([0.0, 0.1, 0.3])
    a = straight.tick(1.0, Report(joints, v[0] * joints, p, q, v, w), Flight(0.99, WARM, np.eye(8) * 1e-5))
    state = WARM.copy()
    state[:3], state[3:6] = court.back(WARM[:3]), court.turn.T @ WARM[3:6]
    b = turned.tick(1.0, Report(joints, v[0] * joints, court.back(p), q_odom, v, w), turned.flight(0.99, state, np.eye(8) * 1e-5))
    assert a.command.active[0] and b.command.active[0]
    assert np.allclose(a.observation, b.observation, atol=1e-5)
