"""How commands reach drives: one small class, and what there is of it: the simulator, two ros2_control controllers, a dry run.

A bridge turns a `Command` in policy joints into the robot's messages; it never decides anything. The supervisor hands it one at every tick,
200 times a second and more, and at once when the policy has answered: drives that get 10 to 50 commands a second stutter.
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from builtin_interfaces.msg import Duration
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from perception.errors import UserError
from ros_nodes import topics
from ros_nodes.conversions import drive_command
from ros_nodes.joint_map import JointMap
from ros_nodes.safety import Command, State

Array = np.ndarray


class HardwareBridge(ABC):
    """Drives of one robot. send: tell them; close: nothing more will be told; topic: what it writes to, "" for nothing."""

    topic = ""

    @abstractmethod
    def send(self, command: Command) -> None:
        """Tell the drives, joints by name, sign and offset of the map."""

    def close(self) -> None:
        """Let go of the drives. They are damped when this is called."""
        return None


class DriveBridge(HardwareBridge):
    """Position targets with gains in one message: the simulator, and drives behind a driver of your own that holds the PD loop and falls
    back to damping by itself when commands stop."""

    def __init__(self, node: Node, joints: JointMap) -> None:
        self.joints, self.topic = joints, topics.DRIVES
        self.names = list(joints.robot_names)
        self.publisher = node.create_publisher(JointState, self.topic, topics.COMMANDS)

    def send(self, command: Command) -> None:
        """See the class."""
        self.publisher.publish(drive_command(round(command.stamp * 1e9), self.names, self.joints.to_robot(command.position), command.kp, command.kd,
                                             command.state.value))


class ForwardCommandBridge(HardwareBridge):
    """`forward_command_controller` of ros2_control: positions only, in the order of its `joints` parameter, which must be the deploy file's.

    The controller has no gains and no timeout. Damping cannot be told through it: the last measured position is held, and the driver
    below must have a damping of its own.
    """

    def __init__(self, node: Node, joints: JointMap, controller: str) -> None:
        self.joints, self.topic = joints, f"{controller}/commands"
        self.publisher = node.create_publisher(Float64MultiArray, self.topic, topics.COMMANDS)

    def send(self, command: Command) -> None:
        """See the class."""
        message = Float64MultiArray()
        message.data = self.joints.to_robot(command.position).tolist()
        self.publisher.publish(message)


class TrajectoryBridge(HardwareBridge):
    """`joint_trajectory_controller` of ros2_control: one point a policy period ahead, by name; it interpolates by itself. Gains and damping as
    in `ForwardCommandBridge`; on the way to DAMPING an empty trajectory stops the controller where the joints are."""

    def __init__(self, node: Node, joints: JointMap, controller: str, period: float) -> None:
        self.joints, self.topic, self.period = joints, f"{controller}/joint_trajectory", period
        self.publisher = node.create_publisher(JointTrajectory, self.topic, topics.COMMANDS)
        self.names = list(joints.robot_names)

    def send(self, command: Command) -> None:
        """See the class."""
        message = JointTrajectory(joint_names=self.names)  # stamp 0: at once
        if command.state is not State.DAMPING:
            point = JointTrajectoryPoint(positions=self.joints.to_robot(command.position).tolist())
            point.time_from_start = Duration(sec=int(self.period), nanosec=round(self.period % 1.0 * 1e9))
            message.points = [point]
        self.publisher.publish(message)


class DryBridge(HardwareBridge):
    """Computes everything and commands nothing: there is no publisher to the drives at all."""

    def __init__(self) -> None:
        self.commands = 0
        self.last: Command | None = None

    def send(self, command: Command) -> None:
        """See the class."""
        self.commands, self.last = self.commands + 1, command


def make_bridge(driver: str, node: Node, joints: JointMap, controller: str, period: float) -> HardwareBridge:
    """The bridge a deploy file asks for by name. Raises UserError for other names."""
    makers: dict[str, Any] = {
        "sim": lambda: DriveBridge(node, joints), "drives": lambda: DriveBridge(node, joints), "dry": DryBridge,
        "forward_command": lambda: ForwardCommandBridge(node, joints, controller),
        "joint_trajectory": lambda: TrajectoryBridge(node, joints, controller, period),
    }
    if driver not in makers:
        raise UserError(f"driver is {driver}; it must be one of {', '.join(makers)}")
    return makers[driver]()
