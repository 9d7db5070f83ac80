"""The operator: a heartbeat that says all is well, from a joystick's deadman or from a person who watches; and its end stops the robot."""

import time
from typing import Any

from rclpy.node import Node
from sensor_msgs.msg import Joy
from std_msgs.msg import Bool, Header
from std_srvs.srv import Trigger

from ros_nodes import topics
from ros_nodes.conversions import header
from ros_nodes.runtime import OK, WARN, Diagnostics, next_deadline, parameter, run

PERIOD = 0.02  # [s] between heartbeats; the supervisor bears three of them missing


class OperatorNode(Node):
    """Parameters: deadman (whether a joystick's button must be held), deadman_button, stop_button (numbers), joy_timeout [s].

    Any driver that publishes sensor_msgs/Joy on `joy` serves (the `joy` package on a robot). The stop button and the service
    `operator/stop` stop at once and stay until the supervisor is armed again.
    """

    def __init__(self) -> None:
        super().__init__("operator")
        self.deadman = parameter(self, "deadman", False)
        self.held_button, self.stop_button = parameter(self, "deadman_button", 4), parameter(self, "stop_button", 1)
        self.joy_timeout = parameter(self, "joy_timeout", 0.25)
        self.period, self.next_tick = PERIOD, time.monotonic()
        self._joy_at, self._held = -1e9, False
        self.beats = 0
        self.beat_out = self.create_publisher(Header, topics.HEARTBEAT, topics.FLIGHTS)
        self.stop_out = self.create_publisher(Bool, topics.ESTOP, topics.EVENTS)
        self.create_subscription(Joy, topics.JOY, self.on_joy, topics.SENSOR_IN)
        self.create_service(Trigger, "operator/stop", self.on_stop)
        self.diagnostics = Diagnostics(self, self.statuses)

    @property
    def stop(self) -> str:
        """Why the robot is to stop, or an empty string."""
        if not self.deadman:
            return ""
        if time.monotonic() - self._joy_at > self.joy_timeout:
            return "the joystick is silent"
        return "" if self._held else "the deadman is released"

    def on_joy(self, message: Joy) -> None:
        """Buttons."""
        buttons = list(message.buttons)
        held = len(buttons) > self.held_button and bool(buttons[self.held_button])
        changed, self._held, self._joy_at = held != self._held, held, time.monotonic()
        if len(buttons) > self.stop_button and buttons[self.stop_button]:
            self.stop_out.publish(Bool(data=True))
        if changed and self.deadman:
            self.beat()

    def on_stop(self, _request: Any, response: Any) -> Any:
        """Emergency stop."""
        self.stop_out.publish(Bool(data=True))
        response.success, response.message = True, "stop sent"
        return response

    def beat(self) -> None:
        """Say so now."""
        self.beats += 1
        self.beat_out.publish(header(time.monotonic_ns(), self.stop))

    def tick(self) -> None:
        """One heartbeat."""
        self.next_tick, _ = next_deadline(self.next_tick, self.period, time.monotonic())
        self.beat()

    def statuses(self) -> list[tuple[str, Any, str, dict[str, Any]]]:
        """For /diagnostics."""
        stop = self.stop
        return [("operator", WARN if stop else OK, stop or ("deadman held" if self.deadman else "no joystick asked for"), {"beats": self.beats})]

    def finish(self, why: str) -> None:
        """Say that nobody watches any more."""
        self.beat_out.publish(header(time.monotonic_ns(), f"the operator's node ended: {why}"))
        time.sleep(0.02)


def main() -> int:
    """Entry point."""
    return run(OperatorNode)


if __name__ == "__main__":
    raise SystemExit(main())
