"""The simulator as if it were the robot: joints, IMU, odometry, camera and clock out, drive commands in, shuttles thrown on a service call.

In real time it moves on by itself and stamps with the system's clock, as a driver would. In lock-step it waits at every control step until the
drives are told what answers the state it sent, and until perception has seen what it was shown; its clock is then its own.
"""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from geometry_msgs.msg import PoseArray
from nav_msgs.msg import Odometry
from rclpy.node import Node
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CameraInfo, Image, Imu, JointState
from std_msgs.msg import Float64MultiArray, String
from std_srvs.srv import Trigger

from perception.errors import UserError
from policy import SHIPPED
from policy.inference import OnnxPolicy
from ros_nodes import topics
from ros_nodes.conversions import (
    camera_info,
    candidates,
    image,
    imu,
    join_ns,
    joint_state,
    ns_of,
    odometry,
    place_of,
    read_drive_command,
    stamp_of,
)
from ros_nodes.deploy import load_deploy
from ros_nodes.latency import Stage
from ros_nodes.runtime import OK, WARN, Diagnostics, calm, parameter, run
from ros_nodes.sim_robot import STEP_NS, SimCfg, SimRobot
from sim.robot import load_robot

DRIVE_TIMEOUT = 0.05  # [s] without a command after which the drives damp by themselves: our choice, twelve of the supervisor's ticks
DRIVE_DAMPING = 3.0  # times their kd; the supervisor's own default
BEHIND = 0.05  # [s] by which real time is given up: the machine was busy, and the robot does not hurry after it
ASK_AGAIN = 0.25  # [s] in lock-step: best effort may lose a message
SUBSTEPS = 4  # physics steps in a control step of 20 ms
BEGIN = 10 * 10**9  # [ns] where a lock-step clock begins: zero means "no time" to ROS


class SimRobotNode(Node):
    """Parameters: deploy, policy (file), robot (name or folder), seed, repeats, lock_step, vision (render images), shuffle (seed by which the order of the
    reported joints is shuffled, -1: as they are), max_rate (lock-step: times real time, 0: as fast as it goes)."""

    def __init__(self) -> None:
        super().__init__("sim_robot")
        deploy = load_deploy(parameter(self, "deploy", "anymal_dynaarm"))
        name = parameter(self, "robot", "") or deploy.description.name
        self.lock_step, self.vision = parameter(self, "lock_step", False), parameter(self, "vision", False)
        if self.vision and not self.lock_step:
            raise UserError("rendered images take longer than real time; vision needs lock_step")
        if deploy.camera is None:
            raise UserError(f"{deploy.path} has no camera; the simulator needs one")
        with calm():
            robot = load_robot(name)
            SimRobot(robot, deploy.camera.rig).warm_up()
        policy = parameter(self, "policy", "")
        contract = OnnxPolicy(Path(policy) if policy else SHIPPED).contract
        if tuple(contract.joint_names) != robot.joint_names:
            raise UserError(f"robot {name} has other joints than the policy")
        self.map = deploy.joint_map(contract)
        cameras = None
        if self.vision:
            from sim.stereo import StereoCameras

            cameras = StereoCameras(robot, deploy.camera.rig, np.random.default_rng(1))
        self.sim = SimRobot(robot, deploy.camera.rig, SimCfg(parameter(self, "seed", 11), parameter(self, "repeats", 10)), cameras)
        shuffle = parameter(self, "shuffle", -1)
        joints = len(robot.joint_names)
        self.order = np.arange(joints) if shuffle < 0 else np.random.default_rng(shuffle).permutation(joints)
        self.names = [self.map.robot_names[i] for i in self.order]
        self.command_names = list(self.map.robot_names)
        self.mode, self.commanded, self._command_at = "damping", False, -np.inf
        self._stamps: dict[int, int] = {}  # ns of a report: step
        self._ns0 = self.ns = BEGIN
        self.to_drives = Stage()
        self._measured = 0
        self.missed = self.bad = 0
        self._answered = self._shown = self._seen = -1
        self._asked = 0.0
        self._state = ""
        self._images_at = 0
        self.joints_out = self.create_publisher(JointState, topics.JOINTS, topics.SENSOR_OUT)
        self.imu_out = self.create_publisher(Imu, topics.IMU, topics.SENSOR_OUT)
        self.odom_out = self.create_publisher(Odometry, topics.ODOM, topics.FLIGHTS)
        self.clock_out = self.create_publisher(Clock, topics.CLOCK, topics.COMMANDS)
        self.detections_out = self.create_publisher(PoseArray, topics.DETECTION, topics.FLIGHTS)
        if self.vision:
            self.images_out = [self.create_publisher(Image, t, topics.PICTURES) for t in topics.IMAGES]
            self.infos_out = [self.create_publisher(CameraInfo, t, topics.PICTURES) for t in topics.INFOS]
        self.truth_out = self.create_publisher(Odometry, "sim/shuttle", topics.SENSOR_OUT)
        self.mode_out = self.create_publisher(String, topics.DRIVE_MODE, topics.STATE)
        self.outcome_out = self.create_publisher(String, topics.OUTCOME, topics.EVENTS)
        self.create_subscription(JointState, topics.DRIVES, self.on_command, topics.COMMANDS)
        self.create_subscription(Odometry, topics.STRIKE_NOW, self.on_strike, topics.EVENTS)
        if self.lock_step:
            self.create_subscription(Float64MultiArray, topics.FLIGHT_TOPIC, self.on_flight, topics.FLIGHTS)
        self.create_service(Trigger, "sim/serve", self.on_serve)
        self.create_service(Trigger, "sim/reset", self.on_reset)
        self.diagnostics = Diagnostics(self, self.statuses, robot.name)
        self.sim.damp(DRIVE_DAMPING)
        self._tell_mode()
        self.next_tick = time.monotonic()

    # -- what arrives ---------------------------------------------------------------------------------------------------
    def on_command(self, message: JointState) -> None:
        """A drive command, joints by name. One that cannot be read is left out, and the drives damp when no other comes."""
        try:
            position, kp, kd = read_drive_command(message, self.command_names)
        except UserError:
            self.bad += 1
            return
        self._command_at, self.commanded = time.monotonic(), True
        self._state = message.header.frame_id
        self.sim.drive(self.map.sign * (position - self.map.offset), kp, kd)
        self._set_mode("damping" if not kp.any() else "driven")
        ns = ns_of(message.header.stamp)
        if not self.lock_step and self._state == "PLAY" and ns > self._measured + 10_000_000:
            self._measured = ns
            self.to_drives.add((time.time_ns() - ns) * 1e-6)
        if self.lock_step and abs(ns - self.ns) < 1000:
            self._answered = self.ns
            self.next_tick = time.monotonic()

    def on_strike(self, message: Odometry) -> None:
        """What the robot says it is at, for judging it."""
        ns, step = ns_of(message.header.stamp), self.sim.step_number
        self.sim.strike = (step + (ns - self.ns) / STEP_NS, place_of(message.pose.pose)[0])

    def on_flight(self, message: Float64MultiArray) -> None:
        """In lock-step: perception has seen an exposure."""
        self._seen = max(self._seen, join_ns(*message.data[:2]))
        self.next_tick = time.monotonic()

    def on_serve(self, _request: Any, response: Any) -> Any:
        """Throw the next shuttle."""
        response.success, response.message = self.sim.serve()
        return response

    def on_reset(self, _request: Any, response: Any) -> Any:
        """Back on its feet at home."""
        self.sim.reset()
        response.success, response.message = True, "on its feet at home"
        return response

    # -- time -----------------------------------------------------------------------------------------------------------
    def tick(self) -> None:
        """Real time: one physics step. Lock-step: a control step, once everybody has answered."""
        if self.lock_step:
            self._lock_step()
            return
        now = time.monotonic()
        if now - self.next_tick > BEHIND:
            self.missed += int((now - self.next_tick) / (STEP_NS * 1e-9))
            self.next_tick = now
        self.next_tick += STEP_NS * 1e-9
        if self.commanded and now - self._command_at > DRIVE_TIMEOUT:
            self._time_out()
        outcome = self.sim.advance()
        self.ns = time.time_ns()
        self._stamps[self.sim.step_number] = self.ns
        if len(self._stamps) > 400:
            del self._stamps[min(self._stamps)]
        for exposure in self.sim.take_exposures():
            self.detections_out.publish(candidates(self._stamps.get(exposure.step, self.ns), exposure.points))
        self._report()
        if outcome is not None:
            self._tell_outcome(outcome)

    def _lock_step(self) -> None:
        now = time.monotonic()
        if self._answered < self.ns or self._seen < self._shown:
            if now - self._asked > ASK_AGAIN:
                self._asked = now
                self._report()
            self.next_tick = now + 0.05
            if self.commanded and now - self._command_at > 400 * DRIVE_TIMEOUT:
                self._time_out()
            return
        for _ in range(SUBSTEPS):
            outcome = self.sim.advance()
            self.ns = self._ns0 + self.sim.step_number * STEP_NS
            if outcome is not None:
                self._tell_outcome(outcome)
        for exposure in self.sim.take_exposures():
            ns = self._ns0 + exposure.step * STEP_NS
            if exposure.images is not None:
                for side, pixels in enumerate(exposure.images):
                    frame = f"camera_{('left', 'right')[side]}_optical_frame"
                    self.infos_out[side].publish(camera_info(ns, frame, self.sim.rig, side))
                    self.images_out[side].publish(image(ns, frame, pixels))
            else:
                self.detections_out.publish(candidates(ns, exposure.points))
            self._shown = ns
        self._asked, self.next_tick = now, now + 0.05
        self._report()

    def _time_out(self) -> None:
        """No command for too long: the drives damp by themselves, as a robot's do."""
        self.commanded = False
        self.sim.damp(DRIVE_DAMPING)
        self._set_mode("damping: commands stopped")

    def _set_mode(self, mode: str) -> None:
        if mode != self.mode:
            self.mode = mode
            self._tell_mode()

    def _tell_mode(self) -> None:
        self.mode_out.publish(String(data=self.mode))

    def _tell_outcome(self, outcome: dict[str, Any]) -> None:
        self.outcome_out.publish(String(data=json.dumps(outcome)))

    def _report(self) -> None:
        """Odometry and IMU first, then the joints, all of one stamp."""
        ns, (p, q, v, w) = self.ns, self.sim.base
        self.odom_out.publish(odometry(ns, "odom", "base_link", p, q, v, w))
        self.imu_out.publish(imu(ns, q, w))
        angles, speeds, torques = self.sim.joints
        self.joints_out.publish(joint_state(ns, self.names, self.map.to_robot(angles)[self.order], self.map.rate_to_robot(speeds)[self.order],
                                            self.map.rate_to_robot(torques)[self.order]))
        self.clock_out.publish(Clock(clock=stamp_of(ns)))
        if self.sim.shuttle.phase[0]:
            zero = np.zeros(3)
            self.truth_out.publish(odometry(ns, "odom", "shuttle", self.sim.shuttle.position[0], np.array([1.0, 0, 0, 0]), self.sim.shuttle.velocity[0], zero))

    def statuses(self) -> list[tuple[str, Any, str, dict[str, Any]]]:
        """For /diagnostics."""
        stopped = self.mode.startswith("damping: ")
        return [("drives", WARN if stopped else OK, self.mode, {"unreadable_commands": self.bad, "state": self._state}),
                ("clock", OK, "lock-step" if self.lock_step else "real time", {"steps_missed": self.missed}),
                ("latency state_to_drives", OK, "", self.to_drives.values())]

    def finish(self, why: str) -> None:
        """The robot is switched off."""
        if self.sim.cameras is not None:
            self.sim.cameras.close()


def main() -> int:
    """Entry point."""
    return run(SimRobotNode)


if __name__ == "__main__":
    raise SystemExit(main())
