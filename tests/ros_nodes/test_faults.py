"""What goes wrong on a robot, each with real processes: drives damp within 100 ms, nothing moves without re-arming, and /diagnostics says why."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.ros_nodes.robots import ROOT, Bench, memory_files

from ros_nodes.bag import raw_messages  # isort: skip
from ros_nodes.bringup import NodeSpec, _segments  # isort: skip

SOON = 0.1  # [s]


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    before = memory_files()
    b = Bench(tmp_path_factory.mktemp("faults"), record=True)
    yield b
    pids = [p.pid for p in b.stack.processes.values()]
    b.close()
    assert not [p for p in pids if os.path.exists(f"/proc/{p}")], "a process was left"
    assert memory_files() <= before, "shared memory was left"


def check_latched(bench, fault):
    """The fault is named, nobody moves however long all is well again, and arming makes it go."""
    s = bench.session
    assert s.wait_for(lambda: s.state == "DAMPING" and any(k.startswith(fault) for k in s.faults), 2.0), s.safety
    name = next(k for k in s.faults if k.startswith(fault))
    assert bench.named(f"fault {name}"), "not in /diagnostics"
    for on in ("joints", "camera", "policy"):
        bench.spoil(on, "pass")
    s.commands.clear()
    s.spin(0.5)
    assert not any(stiff for _, _, stiff in s.commands), "commanded without re-arming"
    ok, why = s.call("safety/stand")
    assert not ok and "not armed" in why
    ok, why = s.call("safety/play")
    assert not ok


@pytest.mark.parametrize(("on", "what", "value", "fault"), [
    ("joints", "stop", None, "joint_states_stale"),
    ("joints", "repeat", None, "joint_states_stale"),
    ("joints", "rename", ["LF_HAA", "LF_HAX"], "joint_states_invalid"),
    ("joints", "nan", None, "joint_states_invalid"),
    ("joints", "short", None, "joint_states_invalid"),
    ("joints", "shift", 1.0, "joint_states_clock"),
    ("joints", "shift", -1.0, "joint_states_clock"),
    ("joints", "delay", 0.2, "joint_states_"),
    ("policy", "nan", None, "command_not_finite"),
    ("policy", "far", None, "command_range"),
    ("policy", "short", None, "command_shape"),
    ("policy", "rename", ["LF_HAA", "LF_HAX"], "command_shape"),
    ("policy", "stop", None, "policy_stale"),
    ("policy", "delay", 0.2, "policy_stale"),
    ("policy", "drop", 0.9, "policy_stale"),
], ids=lambda v: str(v) if not isinstance(v, list) else "-".join(v))
def test_spoiled_messages_damp_and_stay_damped(bench, on, what, value, fault):
    bench.to("PLAY")
    took = bench.damped_after(lambda: bench.spoil(on, what, value))
    assert took is not None and took < (SOON if what != "drop" else 1.0), f"damped after {took}"
    check_latched(bench, fault)


def test_lost_joint_states_are_borne(bench):
    bench.to("PLAY")
    bench.spoil("joints", "drop", 0.2)
    bench.session.spin(2.0)
    assert bench.session.state == "PLAY", bench.session.safety


@pytest.mark.parametrize(("what", "value", "said"), [("stop", None, "silent"), ("freeze", None, "frozen"), ("swap", None, "swapped"), ("delay", 0.4, "late")])
def test_a_bad_camera_is_named_and_the_robot_keeps_its_feet(bench, what, value, said):
    bench.to("PLAY")
    s = bench.session
    assert s.ask("sim/serve", 5)[0]
    flying = time.monotonic() + 1.75  # 1.6 s of rest, then the shuttle comes
    s.spin(max(flying - time.monotonic(), 0))
    bench.spoil("camera", what, value)
    if what == "freeze":  # the same picture for half a second of flight
        assert s.wait_for(lambda: "frozen" in str(s.status.get("perception: camera")), 4.0), s.status.get("perception: camera")
    else:
        assert s.wait_for(lambda: said in str(s.status.get("perception: camera")), 4.0), s.status.get("perception: camera")
    assert s.state == "PLAY", s.safety
    bench.spoil("camera", "pass")
    s.wait_for(lambda: len(s.outcomes) > 0, 8.0)
    s.outcomes.clear()


@pytest.mark.parametrize("how", ["service", "operator"])
def test_emergency_stop(bench, how):
    bench.to("PLAY")
    took = bench.damped_after(lambda: bench.session.call("safety/estop_now" if how == "service" else "operator/stop"))
    assert took is not None and took < SOON
    check_latched(bench, "emergency_stop")


@pytest.mark.parametrize(("node", "fault"), [("policy", "policy_stale"), ("operator", "operator_stale"), ("safety", ""), ("sim_robot", "joint_states_stale")])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_a_node_that_is_killed_or_frozen(bench, node, fault, number):
    bench.to("PLAY")
    s = bench.session
    if node == "sim_robot":  # the drives are gone themselves: what counts is what they would be told
        begin = time.monotonic()
        bench.stack.signal(node, number)
        assert s.wait_for(lambda: s.state == "DAMPING", 2.0)
        took = time.monotonic() - begin
    else:
        took = bench.damped_after(lambda: bench.stack.signal(node, number))
    assert took is not None and took < SOON, f"damped after {took}"
    if node == "safety":
        assert bench.named("commands stopped")
    if number == signal.SIGSTOP:
        bench.stack.signal(node, signal.SIGCONT)
        s.spin(0.3)
    else:
        bench.restart(node)
    if node == "safety" and number == signal.SIGKILL:
        assert s.wait_for(lambda: s.state == "DAMPING" and not s.safety["armed"], 10.0)
        s.commands.clear()
        s.spin(0.3)
        assert not any(stiff for _, _, stiff in s.commands)
    elif fault:
        check_latched(bench, fault)
    else:
        assert s.wait_for(lambda: s.state == "DAMPING", 2.0), "a supervisor that was frozen must not go on where it was"
    bench.to("PLAY")


def test_perception_that_is_killed_is_named_and_comes_back(bench):
    bench.to("PLAY")
    s = bench.session
    bench.stack.signal("perception", signal.SIGKILL)
    assert s.wait_for(lambda: "silent" in str(s.status.get("policy: perception")), 4.0)
    assert s.state == "PLAY", "a robot that sees nothing stands and plays nothing; it need not fall"
    bench.restart("perception")
    assert s.wait_for(lambda: "alive" in str(s.status.get("policy: perception")), 15.0)


def test_a_second_policy_refuses_and_a_stranger_is_a_fault(bench):
    bench.to("PLAY")
    s = bench.session
    bench.stack.start("second", NodeSpec("policy_node", {}, {"__node": "second"}))
    try:
        assert s.wait_for(lambda: "only one policy may" in str(s.status.get("second: state")), 15.0), s.status.get("second: state")
        # starting one more process can starve the others of a small machine, which is rightly a fault of another name
        assert "two_policies" not in s.faults, s.safety
        bench.to("PLAY")
        s.spin(0.2)
        assert "two_policies" not in s.faults, s.safety  # with the refused one still up
    finally:
        bench.stack.processes["second"].kill()
        bench.stack.processes.pop("second").wait()
        bench.stack.specs.pop("second")
    from sensor_msgs.msg import JointState

    from ros_nodes import topics

    stranger = []
    took = bench.damped_after(lambda: stranger.append(s.node.create_publisher(JointState, topics.COMMAND, topics.COMMANDS)))
    assert took is not None and took < 0.3, took  # a look every 50 ms, and discovery
    s.node.destroy_publisher(stranger[0])
    s.spin(0.3)
    check_latched(bench, "two_policies")


@pytest.mark.parametrize("state", ["DAMPING", "STAND", "READY", "PLAY"])
def test_ctrl_c_in_every_state_damps_and_ends_well(bench, state):
    bench.to(state)
    s = bench.session
    s.commands.clear()
    begin = time.monotonic()
    bench.stack.signal("safety", signal.SIGINT)
    s.spin(0.35)
    last = [c for c in s.commands if c[0] > begin]
    assert last and last[-1][1] == "DAMPING" and not last[-1][2], last[-3:]
    first = next(t for t, name, _ in last if name == "DAMPING")
    assert first - begin < SOON
    assert bench.stack.wait("safety", 5) == 0, bench.stack.log("safety")
    bench.restart("safety")
    assert s.wait_for(lambda: s.state == "DAMPING" and s.safety.get("why") == "begin", 10.0)


def test_what_a_killed_recorder_had_written_is_there(bench):
    bench.to("PLAY")
    s = bench.session
    s.spin(1.0)
    bench.stack.signal("recorder", signal.SIGKILL)
    killed = time.time_ns()
    bench.stack.wait("recorder", 2)
    assert bench.session.state == "PLAY"
    joints = [when for topic, _, when, _ in raw_messages(bench.folder / "bag") if topic == "/joint_states"]
    assert len(joints) > 400
    assert (killed - max(joints)) * 1e-9 < 1.0, "more than the last half second was lost"
    bench.stack.processes.pop("recorder")
    bench.stack.specs.pop("recorder")


def test_a_full_disk_ends_the_recording_and_nothing_else(bench, tmp_path):
    bench.to("PLAY")
    s, stack = bench.session, bench.stack
    spec = NodeSpec("recorder_node", {"folder": str(tmp_path / "bag")}, vital=False)
    real = sys.executable
    small = tmp_path / "small"
    small.write_text(f"#!/bin/sh\nulimit -f 200\nexec {real} \"$@\"\n")  # files of 100 kB at most: the same error path as a full disk
    small.chmod(0o755)
    sys.executable = str(small)
    try:
        stack.start("small_recorder", spec)
    finally:
        sys.executable = real
    assert s.wait_for(lambda: "recording ended" in str(s.status.get("recorder: recording")), 15.0), s.status.get("recorder: recording")
    assert s.status["recorder: recording"][0] == 2
    assert s.state == "PLAY" and stack.processes["small_recorder"].poll() is None
    stack.signal("small_recorder", signal.SIGINT)
    assert stack.wait("small_recorder", 5) == 0, stack.log("small_recorder")
    stack.processes.pop("small_recorder")
    stack.specs.pop("small_recorder")
    assert any(topic == "/joint_states" for topic, *_ in raw_messages(tmp_path / "bag"))


def test_ctrl_c_while_birdie_up_plays_leaves_nothing(tmp_path):
    before = _segments()  # of the other stack, whose dead are not buried yet
    env = {k: v for k, v in os.environ.items() if k not in ("ROS_DOMAIN_ID", "BIRDIE_PARENT")}
    process = subprocess.Popen([sys.executable, str(ROOT / "birdie.py"), "up", "--serves", "30", "--realtime", "--out", str(tmp_path / "up")],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, cwd=tmp_path, start_new_session=True)
    until = time.monotonic() + 40
    log = tmp_path / "up" / "safety.log"
    while time.monotonic() < until and not (log.exists() and "READY -> PLAY" in log.read_text()):
        time.sleep(0.1)
    from tests.ros_nodes.robots import children

    nodes = children(process.pid)
    assert len(nodes) >= 6, process.stderr.read() if process.poll() is not None else nodes
    os.killpg(process.pid, signal.SIGINT)
    out, errors = process.communicate(timeout=20)
    assert process.returncode == 130 and "Traceback" not in errors, errors
    assert "PLAY -> DAMPING: end of the node" in log.read_text()
    figures = json.loads((tmp_path / "up" / "figures.json").read_text())
    assert set(figures["exit_codes"].values()) == {0}, (figures["exit_codes"], out)
    assert not [p for p in nodes if os.path.exists(f"/proc/{p}")]
    assert memory_files() <= before


def test_nodes_end_when_whoever_started_them_is_killed(tmp_path):
    from tests.ros_nodes.robots import children

    before = _segments()  # of the other stack, whose dead are not buried yet
    env = {k: v for k, v in os.environ.items() if k not in ("ROS_DOMAIN_ID", "BIRDIE_PARENT")}
    process = subprocess.Popen([sys.executable, str(ROOT / "birdie.py"), "up", "--no-record", "--out", str(tmp_path / "up")], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, env=env, cwd=tmp_path, start_new_session=True)
    log = tmp_path / "up" / "safety.log"
    until = time.monotonic() + 40
    while time.monotonic() < until and not (log.exists() and "DAMPING -> STAND" in log.read_text()):
        time.sleep(0.1)
    nodes = children(process.pid)
    assert len(nodes) >= 5
    process.kill()
    process.wait()
    until = time.monotonic() + 8
    while time.monotonic() < until and any(os.path.exists(f"/proc/{p}") for p in nodes):
        time.sleep(0.05)
    assert not [p for p in nodes if os.path.exists(f"/proc/{p}")]
    assert "STAND -> DAMPING: end of the node: SIGTERM" in log.read_text()
    from ros_nodes.bringup import Stack

    stack = Stack(tmp_path / "none", None)  # what the killed one could not clean, its successor does
    stack._before = before
    stack.clean_memory()
    assert memory_files() <= before
