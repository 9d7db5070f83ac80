"""What each bridge tells a robot: the supervisor as a real process, and this one as the robot with its own names, signs and offsets."""

import numpy as np
import pytest
import yaml

from tests.ros_nodes.robots import random_domain

from sensor_msgs.msg import Imu, JointState  # isort: skip
from std_msgs.msg import Float64MultiArray  # isort: skip
from trajectory_msgs.msg import JointTrajectory  # isort: skip

from policy.inference import OnnxPolicy  # isort: skip
from ros_nodes import topics  # isort: skip
from ros_nodes.bringup import NodeSpec, Stack  # isort: skip
from ros_nodes.conversions import imu, joint_state, read_drive_command  # isort: skip
from ros_nodes.deploy import load_deploy  # isort: skip
from ros_nodes.session import Session  # isort: skip

JOINTS = [{"policy": "LF_HAA", "robot": "left_front_hip", "sign": -1}, {"policy": "SH_ROT", "sign": -1, "offset": 0.3}]
ALL = ("joint_command", "arm_and_legs/commands", "arm_and_legs/joint_trajectory")


@pytest.mark.parametrize("driver", ["drives", "forward_command", "joint_trajectory", "dry"])
def test_a_bridge_tells_the_robot_where_to_stand_and_how_to_stop(driver, tmp_path):
    path = tmp_path / "deploy.yaml"
    path.write_text(yaml.safe_dump({"robot": "anymal_dynaarm", "driver": driver, "controller": "arm_and_legs", "joints": JOINTS,
                                    "safety": {"stand_time": 0.3, "gain_time": 0.1, "joints_timeout": 0.5, "imu_timeout": 0.5, "late": 0.5, "jump": 0.5}}))
    contract = OnnxPolicy().contract
    deploy = load_deploy(path)
    joints, limits = deploy.joint_map(contract), deploy.limits(contract)
    stance = joints.to_robot(limits.stand)
    stack = Stack(tmp_path / "logs", random_domain(), {"deploy": str(path)}, realtime=True)
    stack.start("safety", NodeSpec("safety_node", {"heartbeat": False}))
    stack.adopt_environment()
    got = []
    try:
        with Session() as s:
            n = s.node
            n.create_subscription(JointState, ALL[0], lambda m: got.append(m), topics.COMMANDS)
            n.create_subscription(Float64MultiArray, ALL[1], lambda m: got.append(m), topics.COMMANDS)
            n.create_subscription(JointTrajectory, ALL[2], lambda m: got.append(m), topics.COMMANDS)
            states, imus = n.create_publisher(JointState, topics.JOINTS, topics.SENSOR_OUT), n.create_publisher(Imu, topics.IMU, topics.SENSOR_OUT)

            def report():
                ns = n.get_clock().now().nanoseconds
                states.publish(joint_state(ns, list(joints.robot_names), stance + 0.02, np.zeros(18)))
                imus.publish(imu(ns, np.array([1.0, 0, 0, 0]), np.zeros(3)))

            timer = n.create_timer(0.005, report)
            ok, why = s.bring_to("READY", 20)
            assert ok, (why, stack.log("safety"))
            s.spin(0.1)
            got.clear()
            s.spin(1.0)
            ready, rate = list(got), len(got)
            assert s.call("safety/damp")[0]
            s.spin(0.1)
            got.clear()
            s.spin(0.2)
            damped = list(got)
            assert {t for t in ALL if n.count_publishers(t)} == {"drives": {ALL[0]}, "forward_command": {ALL[1]}, "joint_trajectory": {ALL[2]}, "dry": set()}[driver]
            n.destroy_timer(timer)
    finally:
        assert stack.stop() == {"safety": 0}, stack.log("safety")
    if driver == "dry":
        assert not ready and not damped
        return
    assert rate >= 200, f"told {rate} times in a second"
    if driver == "drives":
        position, kp, kd = read_drive_command(ready[-1], list(joints.robot_names))
        assert np.allclose(position, stance) and np.allclose(kp, limits.kp) and np.allclose(kd, limits.kd)
        _, kp, kd = read_drive_command(damped[-1], list(joints.robot_names))
        assert not kp.any() and np.allclose(kd, 3 * limits.kd)
    elif driver == "forward_command":
        assert np.allclose(ready[-1].data, stance)
        assert np.allclose(damped[-1].data, stance + 0.02), "the measured position: this controller knows no damping"
    else:
        assert list(ready[-1].joint_names) == list(joints.robot_names) and np.allclose(ready[-1].points[0].positions, stance)
        assert ready[-1].points[0].time_from_start.nanosec == 20_000_000
        assert not damped[-1].points, "an empty trajectory stops it"
