"""`birdie ros doctor`: who is there, how fast they speak, who cannot hear whom, whose clock is off, and where the time goes."""

import time
from typing import Any

from rclpy.qos import DurabilityPolicy, ReliabilityPolicy
from rclpy.serialization import deserialize_message
from std_msgs.msg import Header, String

from ros_nodes import topics
from ros_nodes.conversions import ns_of
from ros_nodes.session import Session

EXPECTED = {"operator", "safety", "perception", "policy"}
CLOCK_OFF = 0.2  # [s] between a stamp and the clock here beyond which it is said
ALONE = (topics.COMMAND, topics.DRIVES, topics.JOINTS)  # only one may publish these
RATES = {topics.JOINTS: 100.0, topics.IMU: 100.0, topics.ODOM: 50.0, topics.COMMAND: 45.0, topics.DRIVES: 200.0, topics.HEARTBEAT: 10.0}  # [Hz] at least
BUDGET = {"policy: latency state_to_command": 5.0, "safety: state to command": 6.0, "policy: latency detection_to_command": 10.0}  # [ms] p50


def examine(session: Session, seconds: float) -> dict[str, Any]:
    """Listen for `seconds`; lines to print, problems among them, and the figures."""
    node = session.node
    session.spin(min(seconds, 1.0))  # discovery
    counts: dict[str, int] = {}
    offsets: dict[str, float] = {}
    listeners = []
    for topic, kinds in node.get_topic_names_and_types():
        name = topic.lstrip("/")
        if name in RATES:
            from importlib import import_module

            package, _, kind = kinds[0].split("/")
            cls = getattr(import_module(f"{package}.msg"), kind)

            def heard(data: bytes, name: str = name, cls: Any = cls) -> None:
                counts[name] = counts.get(name, 0) + 1
                if counts[name] % 20 == 1 and cls is not String:
                    message = deserialize_message(data, cls)
                    stamp = message.stamp if cls is Header else message.header.stamp
                    offsets[name] = (time.time_ns() - ns_of(stamp)) * 1e-9

            listeners.append(node.create_subscription(cls, topic, heard, topics.SENSOR_IN, raw=True))
    session.spin(0.3)
    counts.clear()
    begin = time.monotonic()
    session.spin(seconds)
    passed = time.monotonic() - begin
    for listener in listeners:
        node.destroy_subscription(listener)
    lines: list[str] = []
    problems: list[str] = []

    def say(line: str, bad: bool = False) -> None:
        lines.append(("! " if bad else "  ") + line)
        if bad:
            problems.append(line)

    nodes = {n for n, _ in node.get_node_names_and_namespaces()} - {"session"}
    say(f"nodes: {', '.join(sorted(nodes)) or 'none'}")
    for name in sorted(EXPECTED - nodes):
        say(f"node {name} is missing", True)
    rates = {name: counts.get(name, 0) / passed for name in RATES}
    for name, least in RATES.items():
        publishers = node.count_publishers(name)
        if not publishers:
            say(f"{name}: nobody publishes it", name != topics.DRIVES)
        elif name == topics.COMMAND and not counts.get(name):
            say(f"{name}: the policy is not active", True)
        else:
            say(f"{name}: {rates[name]:.0f} Hz", rates[name] < least)
        if name in ALONE and publishers > 1:
            say(f"{name}: {publishers} nodes publish it, only one may", True)
    stamped = {n: o for n, o in offsets.items() if n in (topics.JOINTS, topics.IMU, topics.ODOM)}
    for name, offset in stamped.items():
        say(f"{name}: stamped {offset * 1e3:+.1f} ms before it is heard here", abs(offset) > CLOCK_OFF)
    for topic, _ in node.get_topic_names_and_types():
        for line in mismatches(node, topic):
            say(line, True)
    for name, (level, message, values) in sorted(session.status.items()):
        if level:
            say(f"{name}: {message}", level >= 2)
        if name in BUDGET and values.get("count", "0") != "0":
            p50 = float(values["p50_ms"])
            say(f"{name.replace('latency ', '')}: p50 {p50:.2f} ms, p99 {float(values['p99_ms']):.2f} ms", p50 > BUDGET[name])
    if not session.status:
        say("nobody publishes /diagnostics", True)
    if session.state:
        say(f"safety: {session.state}{', armed' if session.safety.get('armed') else ''}")
    return {"nodes": sorted(nodes), "rates_hz": rates, "clock_offsets_s": stamped, "lines": lines, "problems": problems}


def mismatches(node: Any, topic: str) -> list[str]:
    """Pairs on a topic that will never hear each other, one line each."""
    out = []
    for p in node.get_publishers_info_by_topic(topic):
        for s in node.get_subscriptions_info_by_topic(topic):
            if s.qos_profile.reliability == ReliabilityPolicy.RELIABLE and p.qos_profile.reliability == ReliabilityPolicy.BEST_EFFORT:
                out.append(f"{topic}: {s.node_name} asks for reliable, {p.node_name} offers best effort")
            if s.qos_profile.durability == DurabilityPolicy.TRANSIENT_LOCAL and p.qos_profile.durability == DurabilityPolicy.VOLATILE:
                out.append(f"{topic}: {s.node_name} asks for what was said before, {p.node_name} does not keep it")
            if s.topic_type != p.topic_type:
                out.append(f"{topic}: {p.node_name} sends {p.topic_type}, {s.node_name} expects {s.topic_type}")
    return sorted(set(out))


def test_joint(session: Session, joint: str) -> tuple[bool, str]:
    """Ask for a test of one joint and see that it begins."""
    out = session.node.create_publisher(String, "safety/test_joint", topics.EVENTS)
    if not session.wait_for(lambda: out.get_subscription_count() > 0, 3.0):
        return False, "no supervisor is there"
    if not session.wait_for(lambda: bool(session.safety), 2.0) or not session.safety.get("armed") or session.state != "DAMPING":
        return False, f"the supervisor is {session.state or 'silent'}; it must be damped and armed: birdie ros damp, birdie ros arm"
    out.publish(String(data=joint))
    began = session.wait_for(lambda: session.state == "TEST", 2.0)
    return began, f"{joint} swings" if began else f"it does not begin; is {joint or 'an empty name'} a joint of the policy? See the supervisor's log"
