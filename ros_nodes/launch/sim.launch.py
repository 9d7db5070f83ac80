"""The same nodes against the simulator: ros2 launch ros_nodes sim.launch.py; then call sim/serve."""

from launch import LaunchDescription
from launch_ros.actions import Node


def generate_launch_description() -> LaunchDescription:
    """Simulator, operator without joystick, supervisor, perception and policy."""
    common = {"deploy": "anymal_dynaarm"}
    return LaunchDescription([
        Node(package="ros_nodes", executable="sim_robot_node", parameters=[common]),
        Node(package="ros_nodes", executable="operator_node"),
        Node(package="ros_nodes", executable="safety_node", parameters=[{**common, "driver": "sim"}]),
        Node(package="ros_nodes", executable="perception_node", parameters=[common]),
        Node(package="ros_nodes", executable="policy_node", parameters=[common]),
    ])
