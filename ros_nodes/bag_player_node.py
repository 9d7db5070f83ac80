"""A recorded robot in place of a real one: its sensors out of a bag, at the pace they were recorded, with their own stamps."""

import time
from importlib import import_module
from pathlib import Path
from typing import Any

from rclpy.node import Node

from perception.errors import UserError
from ros_nodes import topics
from ros_nodes.bag import sensor_messages
from ros_nodes.runtime import OK, Diagnostics, parameter, run

BEGIN = 1.0  # [s] that listeners get to be found before the first message


class BagPlayerNode(Node):
    """Parameters: bag (folder or .mcap), rate (times real time). Ends when the bag does."""

    def __init__(self) -> None:
        super().__init__("bag_player")
        path, self.rate = Path(parameter(self, "bag", "")), parameter(self, "rate", 1.0)
        if self.rate <= 0:
            raise UserError(f"rate is {self.rate}; it must be above 0")
        self.messages = sensor_messages(path)
        self._outs: dict[str, Any] = {}
        for topic, kind in {(m[0], m[1]) for m in self.messages}:
            package, _, name = kind.split("/")
            qos = topics.SENSOR_OUT if topic.lstrip("/") in (topics.JOINTS, topics.IMU) else topics.FLIGHTS
            self._outs[topic] = self.create_publisher(getattr(import_module(f"{package}.msg"), name), topic.lstrip("/"), qos)
        self.at, self.done = 0, False
        self._begun = time.monotonic() + BEGIN
        self.next_tick = self._begun
        self.diagnostics = Diagnostics(self, self.statuses)

    def tick(self) -> None:
        """Send what is due."""
        now = time.monotonic()
        first = self.messages[0][2]
        while self.at < len(self.messages):
            topic, _, ns, data = self.messages[self.at]
            due = self._begun + (ns - first) * 1e-9 / self.rate
            if due > now:
                self.next_tick = due
                return
            self._outs[topic].publish(data)
            self.at += 1
        self.done = True

    def statuses(self) -> list[tuple[str, Any, str, dict[str, Any]]]:
        """For /diagnostics."""
        return [("bag", OK, f"{self.at} of {len(self.messages)} messages", {"sent": self.at})]


def main() -> int:
    """Entry point."""
    return run(BagPlayerNode)


if __name__ == "__main__":
    raise SystemExit(main())
