"""The nodes of a robot on hardware: ros2 launch ros_nodes robot.launch.py deploy:=/path/to/deploy.yaml [driver:=dry]."""

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node


def generate_launch_description() -> LaunchDescription:
    """Operator, supervisor, perception and policy. Nothing moves before `safety/arm`, `safety/stand` and `safety/play` are called."""
    deploy = LaunchConfiguration("deploy")
    arguments = [
        DeclareLaunchArgument("deploy", default_value="anymal_dynaarm", description="deploy file of the robot, see docs/deploy.md"),
        DeclareLaunchArgument("driver", default_value="", description="in place of the deploy file's: dry, drives, forward_command, joint_trajectory"),
        DeclareLaunchArgument("policy", default_value="", description="ONNX file; the shipped one if empty"),
        DeclareLaunchArgument("deadman", default_value="true", description="whether a joystick's button must be held"),
    ]
    common = {"deploy": deploy, "policy": LaunchConfiguration("policy")}
    nodes = [
        Node(package="ros_nodes", executable="operator_node", parameters=[{"deadman": LaunchConfiguration("deadman")}]),
        Node(package="ros_nodes", executable="safety_node", parameters=[{**common, "driver": LaunchConfiguration("driver")}]),
        Node(package="ros_nodes", executable="perception_node", parameters=[{"deploy": deploy}]),
        Node(package="ros_nodes", executable="policy_node", parameters=[common]),
    ]
    return LaunchDescription([*arguments, *nodes])
