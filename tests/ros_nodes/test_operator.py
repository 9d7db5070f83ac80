"""The joystick's deadman and stop, and what the doctor finds: the operator's node as a real process."""

import json
import os
import subprocess
import sys

import pytest

from tests.ros_nodes.robots import ROOT, random_domain

from sensor_msgs.msg import Joy  # isort: skip
from std_msgs.msg import Bool, Header, String  # isort: skip

from ros_nodes import topics  # isort: skip
from ros_nodes.bringup import NodeSpec, Stack  # isort: skip
from ros_nodes.session import Session  # isort: skip


@pytest.fixture
def operator(tmp_path):
    stack = Stack(tmp_path / "logs", random_domain())
    stack.start("operator", NodeSpec("operator_node", {"deadman": True, "deadman_button": 2, "stop_button": 0}))
    stack.adopt_environment()
    with Session() as s:
        yield s
    assert stack.stop() == {"operator": 0}, stack.log("operator")


def test_the_deadman_must_be_held_and_the_stop_button_stops(operator):
    s, n = operator, operator.node
    beats, stops = [], []
    n.create_subscription(Header, topics.HEARTBEAT, lambda m: beats.append(m), topics.SENSOR_IN)
    n.create_subscription(Bool, topics.ESTOP, lambda m: stops.append(m.data), topics.EVENTS)
    joy = n.create_publisher(Joy, topics.JOY, topics.SENSOR_OUT)
    buttons = [0, 0, 1]
    timer = n.create_timer(0.02, lambda: joy.publish(Joy(buttons=buttons)))
    assert s.wait_for(lambda: bool(beats) and beats[-1].frame_id == "", 15), "held: nothing to stop for"
    stamps = [b.stamp.sec * 10**9 + b.stamp.nanosec for b in beats]
    assert stamps == sorted(set(stamps)), "a heartbeat's stamp must advance"
    buttons[2] = 0
    assert s.wait_for(lambda: "released" in beats[-1].frame_id, 0.5)
    buttons[2] = 1
    assert s.wait_for(lambda: beats[-1].frame_id == "", 0.5)
    assert not stops
    buttons[0] = 1
    assert s.wait_for(lambda: True in stops, 0.5)
    n.destroy_timer(timer)
    assert s.wait_for(lambda: "silent" in beats[-1].frame_id, 1.0)


def test_the_doctor_names_missing_nodes_and_pairs_that_cannot_hear_each_other(operator, tmp_path):
    n = operator.node
    assert operator.wait_for(lambda: n.count_publishers(topics.HEARTBEAT) > 0, 15)
    n.create_publisher(String, "odd", topics.COMMANDS)  # best effort
    n.create_subscription(String, "odd", lambda m: None, topics.EVENTS)  # reliable
    out = subprocess.run([sys.executable, str(ROOT / "birdie.py"), "ros", "doctor", "--seconds", "1.5", "--json", str(tmp_path / "found.json")],
                         capture_output=True, text=True, env=dict(os.environ), cwd=tmp_path)
    assert out.returncode == 2, out.stdout + out.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert "operator" in found["nodes"] and found["rates_hz"][topics.HEARTBEAT] > 40
    for said in ("node safety is missing", "node policy is missing", "/odd: session asks for reliable, session offers best effort", "joint_states: nobody publishes it"):
        assert said in found["problems"], found["problems"]
