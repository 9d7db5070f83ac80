"""What `birdie up` and the tests hold the robot with: services called, states waited for, outcomes and diagnostics collected."""

import json
import time
from collections.abc import Callable
from typing import Any

import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from nav_msgs.msg import Odometry
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import JointState
from std_msgs.msg import String
from std_srvs.srv import Trigger

from ros_nodes import topics
from ros_nodes.conversions import place_of


class Session:
    """A node of ours on the robot's domain. Close it, or use it in a `with`."""

    def __init__(self, watch_drives: bool = False) -> None:
        self.context = rclpy.Context()
        rclpy.init(context=self.context, signal_handler_options=SignalHandlerOptions.NO)
        self.node = Node("session", context=self.context)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)
        self.safety: dict[str, Any] = {}
        self.outcomes: list[dict[str, Any]] = []
        self.status: dict[str, tuple[int, str, dict[str, str]]] = {}
        self.heard: dict[str, float] = {}
        self.mode, self.modes = "", []  # type: ignore[var-annotated]
        self.base_height = 0.0
        self.commands: list[tuple[float, str, bool]] = []  # monotonic, state, whether stiff
        self._clients: dict[str, Any] = {}
        n = self.node
        n.create_subscription(String, topics.SAFETY, self._on_safety, topics.STATE)
        n.create_subscription(String, topics.OUTCOME, lambda m: self.outcomes.append(json.loads(m.data)), topics.EVENTS)
        n.create_subscription(DiagnosticArray, topics.DIAGNOSTICS, self._on_diagnostics, topics.EVENTS)
        n.create_subscription(String, topics.DRIVE_MODE, self._on_mode, topics.STATE)
        if watch_drives:
            n.create_subscription(JointState, topics.DRIVES, self._on_drives, topics.COMMANDS)
            n.create_subscription(Odometry, topics.ODOM, self._on_odom, topics.SENSOR_IN)

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Leave the domain."""
        self.executor.shutdown()
        self.node.destroy_node()
        self.context.try_shutdown()
        if hasattr(self.context, "destroy"):
            self.context.destroy()  # else its shared memory stays where it is until the interpreter ends, and sometimes longer

    def _on_safety(self, message: String) -> None:
        self.safety = json.loads(message.data)

    def _on_mode(self, message: String) -> None:
        self.mode = message.data
        self.modes.append((time.monotonic(), message.data))

    def _on_drives(self, message: JointState) -> None:
        half = len(message.position) // 2
        self.commands.append((time.monotonic(), message.header.frame_id, any(message.position[half:])))

    def _on_odom(self, message: Odometry) -> None:
        self.base_height = float(place_of(message.pose.pose)[0][2])

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        for s in message.status:
            self.status[s.name] = (int.from_bytes(s.level, "little"), s.message, {v.key: v.value for v in s.values})
            self.heard[s.name] = time.monotonic()

    @property
    def state(self) -> str:
        """Of the supervisor, "" before it was heard."""
        return str(self.safety.get("state", ""))

    @property
    def faults(self) -> dict[str, str]:
        """Latched, by name."""
        return dict(self.safety.get("faults", {}))

    def spin(self, seconds: float) -> None:
        """Listen for so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.executor.spin_once(timeout_sec=max(until - time.monotonic(), 0.0))

    def wait_for(self, what: Callable[[], bool], seconds: float) -> bool:
        """Listen until what() is true; False when it is not within seconds."""
        until = time.monotonic() + seconds
        while not what():
            left = until - time.monotonic()
            if left <= 0:
                return False
            self.executor.spin_once(timeout_sec=min(left, 0.05))
        return True

    def call(self, service: str, seconds: float = 5.0) -> tuple[bool, str]:
        """Call a Trigger service."""
        if service not in self._clients:
            self._clients[service] = self.node.create_client(Trigger, service)
        client = self._clients[service]
        until = time.monotonic() + seconds
        while not client.service_is_ready():
            if time.monotonic() > until:
                return False, f"nobody offers {service}"
            self.executor.spin_once(timeout_sec=0.02)
        future = client.call_async(Trigger.Request())
        if not self.wait_for(future.done, max(until - time.monotonic(), 0.5)):
            return False, f"{service} does not answer"
        response = future.result()
        return bool(response.success), str(response.message)

    def ask(self, service: str, seconds: float) -> tuple[bool, str]:
        """Call until it is granted, or seconds are over."""
        until = time.monotonic() + seconds
        while True:
            ok, why = self.call(service, min(max(until - time.monotonic(), 0.2), 2.0))  # one that was asked just died: ask its successor
            if ok or time.monotonic() > until:
                return ok, why
            self.spin(0.1)

    def bring_to(self, state: str, seconds: float = 25.0) -> tuple[bool, str]:
        """From DAMPING to STAND, READY or PLAY, by arming and asking."""
        until = time.monotonic() + seconds
        if self.state == state:
            return True, ""
        if self.state in ("", "DAMPING"):
            for service in ("safety/arm", "safety/stand"):
                ok, why = self.ask(service, until - time.monotonic())
                if not ok:
                    return False, f"{service}: {why}"
            self.wait_for(lambda: self.state != "DAMPING", 1.0)  # the answer may overtake the state
        if state == "STAND":
            return self.state == "STAND", "stand"
        if not self.wait_for(lambda: self.state in ("READY", "DAMPING"), until - time.monotonic()) or self.state != "READY":
            return False, f"did not get up: {self.safety}"
        if state == "PLAY":
            ok, why = self.ask("safety/play", until - time.monotonic())
            return ok and self.wait_for(lambda: self.state == "PLAY", 2.0), f"safety/play: {why}"
        return True, ""

    def number(self, status: str, key: str) -> float:
        """A value of a status on /diagnostics; nan where it was not heard."""
        try:
            return float(self.status[status][2][key])
        except (KeyError, ValueError):
            return float("nan")
