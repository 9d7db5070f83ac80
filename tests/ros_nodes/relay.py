"""A process between two nodes that spoils what passes: the robot's joints, the camera's detections, the policy's commands.

Orders come as JSON on relay/order: {"on": joints | camera | policy, "what": pass | stop | drop | delay | shift | rename | nan | far | short | leap |
freeze | swap | repeat, "value": ...}.
"""

import json
import random
import time

import numpy as np
from geometry_msgs.msg import PoseArray
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_msgs.msg import String

from ros_nodes import topics
from ros_nodes.conversions import ns_of, stamp_of
from ros_nodes.runtime import run


class Relay(Node):
    def __init__(self):
        super().__init__("relay")
        self.orders = {k: {"what": "pass"} for k in ("joints", "camera", "policy")}
        self.queue, self.last = [], {}
        self.next_tick = time.monotonic()
        self.outs = {}
        for on, kind, topic, qos_in, qos_out in (("joints", JointState, topics.JOINTS, topics.SENSOR_IN, topics.SENSOR_OUT),
                                                 ("camera", PoseArray, topics.DETECTION, topics.FLIGHTS, topics.FLIGHTS),
                                                 ("policy", JointState, topics.COMMAND, topics.COMMANDS, topics.COMMANDS)):
            self.outs[on] = self.create_publisher(kind, topic, qos_out)
            self.create_subscription(kind, f"{topic}_raw", lambda m, on=on: self.take(on, m), qos_in)
        self.create_subscription(String, "relay/order", self.on_order, topics.EVENTS)

    def on_order(self, message):
        order = json.loads(message.data)
        self.orders[order["on"]] = order

    def tick(self):
        now = time.monotonic()
        while self.queue and self.queue[0][0] <= now:
            _, on, message = self.queue.pop(0)
            self.outs[on].publish(message)
        self.next_tick = self.queue[0][0] if self.queue else now + 0.05

    def take(self, on, m):
        order = self.orders[on]
        what, value = order["what"], order.get("value")
        if what == "stop" or (what == "drop" and random.random() < value):
            return
        if what == "delay":
            self.queue.append((time.monotonic() + value, on, m))
            self.next_tick = self.queue[0][0]
            return
        if what == "shift":
            m.header.stamp = stamp_of(ns_of(m.header.stamp) + int(value * 1e9))
        elif what == "rename":
            m.name = [value[1] if n == value[0] else n for n in m.name]
        elif what in ("nan", "far", "leap", "short"):
            p = np.array(m.position)
            if what == "short":
                p = p[:-1]
            elif what == "leap":
                p = p + value
            else:
                p[5] = np.nan if what == "nan" else 50.0
            m.position = p.tolist()
        elif what == "swap":
            for pose in m.poses:
                pose.position.x, pose.position.y, pose.position.z = -pose.position.x, -pose.position.y, -pose.position.z
        elif what == "freeze" and on in self.last and self.last[on].poses:  # the same picture over and over, with new stamps
            m.poses = self.last[on].poses
        elif what == "repeat" and on in self.last:  # a driver that hangs and repeats its last message
            m = self.last[on]
        if what not in ("freeze", "repeat") or on not in self.last or (what == "freeze" and not self.last[on].poses):
            self.last[on] = m
        self.outs[on].publish(m)


if __name__ == "__main__":
    raise SystemExit(run(Relay))
