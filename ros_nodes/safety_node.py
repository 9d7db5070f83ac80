"""The last node before the drives: supervisor and hardware bridge in one process, at 250 Hz on absolute deadlines."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from rclpy.node import Node
from sensor_msgs.msg import Imu, JointState
from std_msgs.msg import Bool, Header, String
from std_srvs.srv import Trigger

from perception.errors import UserError
from policy import SHIPPED
from policy.inference import OnnxPolicy
from ros_nodes import topics
from ros_nodes.bridges import make_bridge
from ros_nodes.conversions import ns_of
from ros_nodes.deploy import load_deploy
from ros_nodes.latency import Stage
from ros_nodes.runtime import ERROR, OK, WARN, Diagnostics, next_deadline, parameter, run
from ros_nodes.safety import SafetyCfg, Supervisor

RATE = 250.0  # [Hz] at which drives are told again; 200 is what the field asks for, a quarter more makes up for ticks lost on a busy machine
ELSEWHEN = 5 * 10**9  # [ns] older stamps are of a bag, or of another clock
LAST_WORDS = 0.1  # [s] for which damping is sent at the end, so that a best-effort reader loses it only if all are lost
PATIENT = {"joints_timeout": 20.0, "imu_timeout": 20.0, "command_periods": 1000.0, "operator_timeout": 20.0, "late": np.inf, "jump": np.inf}
# in lock-step the simulator waits for us, however long it takes


class SafetyNode(Node):
    """Parameters: deploy, policy (file), driver (overrides the deploy file's), lock_step, heartbeat (whether an operator must be alive)."""

    def __init__(self) -> None:
        super().__init__("safety")
        deploy = load_deploy(parameter(self, "deploy", "anymal_dynaarm"))
        policy = parameter(self, "policy", "")
        contract = OnnxPolicy(Path(policy) if policy else SHIPPED).contract
        driver = parameter(self, "driver", "") or deploy.driver
        self.lock_step = parameter(self, "lock_step", False)
        self.heartbeat = parameter(self, "heartbeat", True)
        self.limits = deploy.limits(contract)
        self.joints = deploy.joint_map(contract)
        cfg = deploy.safety if not self.lock_step else SafetyCfg(**{**vars(deploy.safety), **PATIENT})
        self.supervisor = Supervisor(self.limits, cfg)
        self.bridge = make_bridge(driver, self, self.joints, deploy.controller, contract.period)
        self.driver = driver
        self._order: np.ndarray | None = None
        self._names: list[str] = []
        self._unread = ""
        self._odd_imu = 0
        self.period, self.next_tick = 1 / RATE, time.monotonic()
        self.missed = self.ticks = self._missed_told = 0
        self.commands = Stage()  # policy's state to command at this node [ms]
        self._said: tuple[Any, ...] = ()
        self._publishers_at = 0.0
        self.foreign = ""
        self.create_subscription(JointState, topics.JOINTS, self.on_joints, topics.SENSOR_IN)
        self.create_subscription(Imu, topics.IMU, self.on_imu, topics.SENSOR_IN)
        self.create_subscription(JointState, topics.COMMAND, self.on_command, topics.COMMANDS)
        self.create_subscription(Header, topics.HEARTBEAT, self.on_heartbeat, topics.SENSOR_IN)
        self.create_subscription(Bool, topics.ESTOP, self.on_estop, topics.EVENTS)
        self.create_subscription(String, "drives/fault", self.on_drives, topics.EVENTS)
        self.state_publisher = self.create_publisher(String, topics.SAFETY, topics.STATE)
        for name, act in (("arm", self.arm), ("stand", self.supervisor.stand), ("play", self.supervisor.play), ("damp", self.supervisor.damp),
                          ("estop_now", self._estop)):
            self.create_service(Trigger, f"safety/{name}", self._service(name, act))
        self.create_subscription(String, "safety/test_joint", self.on_test, topics.EVENTS)
        self.diagnostics = Diagnostics(self, self.statuses, deploy.description.name)

    # -- what arrives ---------------------------------------------------------------------------------------------------
    def on_joints(self, message: JointState) -> None:
        """By name; a report that lacks one of our joints is a fault."""
        now, s = time.monotonic(), self.supervisor
        names = list(message.name)
        if names != self._names:
            self._names = names
            try:
                self._order, self._unread = self.joints.order_of(names), ""
            except UserError as error:
                self._order, self._unread = None, str(error)
        problem, q, qd = self._unread, s.q, s.qd
        if self._order is not None:
            if len(message.position) != len(names) or len(message.velocity) != len(names):
                problem = f"joint_states names {len(names)} joints, with {len(message.position)} positions and {len(message.velocity)} velocities"
            else:
                q = self.joints.position(np.asarray(message.position), self._order)
                qd = self.joints.rate(np.asarray(message.velocity), self._order)
        s.on_joints(now, ns_of(message.header.stamp) * 1e-9, q, qd, problem)
        if problem:
            self.tell()

    def on_imu(self, message: Imu) -> None:
        """Orientation of the base."""
        q = message.orientation
        self.supervisor.on_imu(time.monotonic(), ns_of(message.header.stamp) * 1e-9, np.array([q.w, q.x, q.y, q.z]))

    def on_command(self, message: JointState) -> None:
        """The policy's answer goes to the drives at once."""
        now = time.monotonic()
        stamp = ns_of(message.header.stamp)
        before = self.supervisor.state
        sent = self.supervisor.on_policy(now, stamp * 1e-9, tuple(message.name), np.asarray(message.position, float))
        if sent:
            self.tell()
        elif before is not self.supervisor.state:
            self.tell()
        age = time.time_ns() - stamp
        if not self.lock_step and 0 <= age < ELSEWHEN:
            self.commands.add(age * 1e-6)

    def on_heartbeat(self, message: Header) -> None:
        """The operator lives, and may say why to stop."""
        self.supervisor.on_operator(time.monotonic(), ns_of(message.stamp) * 1e-9, message.frame_id)

    def on_estop(self, message: Bool) -> None:
        """Stop now."""
        if message.data:
            self.supervisor.estop(time.monotonic())
            self.tell()

    def on_drives(self, message: String) -> None:
        """What the drives say is wrong; an empty string clears it."""
        self.supervisor.drives = message.data

    def on_test(self, message: String) -> None:
        """Swing one joint."""
        ok, why = self.supervisor.test_joint(time.monotonic(), message.data)
        if ok:
            self.get_logger().info(f"test of {message.data}: {why}")
        else:
            self.get_logger().warning(f"test of {message.data} refused: {why}")

    def arm(self, now: float) -> tuple[bool, str]:
        """Arm, unless somebody else commands the drives."""
        self._look_round(now, True)
        if self.foreign:
            return False, self.foreign
        return self.supervisor.arm(now)

    def _estop(self, now: float) -> tuple[bool, str]:
        self.supervisor.estop(now, "emergency stop by service")
        return True, "stopped"

    def _service(self, name: str, act: Any) -> Any:
        def answer(_request: Any, response: Any) -> Any:
            response.success, response.message = act(time.monotonic())
            self.tell()
            if response.success:  # two lines of code: a logger must not change its severity on one
                self.get_logger().info(f"{name}: {response.message}")
            else:
                self.get_logger().warning(f"{name}: {response.message}")
            self._say_state()
            return response
        return answer

    # -- what goes out --------------------------------------------------------------------------------------------------
    def tell(self) -> None:
        """Judge everything now and tell the drives."""
        self.bridge.send(self.supervisor.tick(time.monotonic()))
        self._say_state()

    def tick(self) -> None:
        """One deadline."""
        now = time.monotonic()
        self.next_tick, missed = next_deadline(self.next_tick, self.period, now)
        self.ticks, self.missed = self.ticks + 1, self.missed + missed
        if not self.heartbeat:
            self.supervisor.on_operator(now, now, "")
        if now - self._publishers_at > 0.05:
            self._look_round(now, False)
        self.tell()

    def _look_round(self, now: float, drives: bool) -> None:
        """Who else publishes what only one may."""
        self._publishers_at = now
        self.supervisor.publishers = self.count_publishers(self.resolve_topic_name(topics.COMMAND))
        if drives and self.bridge.topic:
            others = self.count_publishers(self.resolve_topic_name(self.bridge.topic)) - 1
            self.foreign = f"{others} other node(s) command the drives on {self.bridge.topic}" if others else ""

    def _say_state(self) -> None:
        s = self.supervisor
        said = (s.state, s.armed, tuple(s.faults.items()))
        if said == self._said:
            return
        if self._said and s.state is not self._said[0]:
            why = s.transitions[-1][2] if s.transitions else ""
            change = f"{self._said[0].value} -> {s.state.value}: {why}"
            if s.faults:
                self.get_logger().error(change)
            else:
                self.get_logger().info(change)
        self._said = said
        self.state_publisher.publish(String(data=json.dumps({
            "state": s.state.value, "armed": s.armed, "faults": s.faults, "why": s.transitions[-1][2] if s.transitions else "begin"})))

    def statuses(self) -> list[tuple[str, Any, str, dict[str, Any]]]:
        """For /diagnostics."""
        s, now = self.supervisor, time.monotonic()
        text = "; ".join(f"{k}: {v}" for k, v in s.faults.items()) or f"{s.state.value}{', armed' if s.armed else ''}"
        over = s.arm_current > self.limits.robot.arm_current_limit
        out: list[tuple[str, Any, str, dict[str, Any]]] = [("state", ERROR if s.faults else OK, text, {"state": s.state.value, "armed": s.armed, **{f"fault {k}": v for k, v in s.faults.items()}}),
               ("drives", WARN if over else OK, f"the arm draws {s.arm_current:.1f} A" if over else self.driver,
                {"arm_current_A": s.arm_current, "arm_current_limit_A": self.limits.robot.arm_current_limit, "driver": self.driver}),
               ("deadlines", WARN if self.missed - self._missed_told > 0.05 * RATE else OK, f"{self.missed - self._missed_told} of {RATE:g} missed",
                {"missed": self.missed, "ticks": self.ticks})]
        self._missed_told = self.missed
        for source in (s.joints, s.imu, s.policy, s.operator):
            problem = source.problem(now)
            out.append((f"source {source.name}", WARN if problem else OK, problem or "alive",
                        {"rate_hz": source.rate, "jitter_ms": source.jitter * 1e3, "received": source.received, "repeats": source.repeats}))
        out.append(("state to command", OK, "at the receiving end", self.commands.values()))
        return out

    def finish(self, why: str) -> None:
        """Damp, and keep saying so until it must have been heard."""
        s = self.supervisor
        s.damp(time.monotonic(), f"end of the node: {why}")
        until = time.monotonic() + LAST_WORDS
        while time.monotonic() < until:
            self.bridge.send(s.damping())
            time.sleep(self.period)
        self._say_state()
        self.diagnostics.publish()
        self.bridge.close()
        time.sleep(0.02)  # a reliable writer that is destroyed at once may take its last words along


def main() -> int:
    """Entry point."""
    return run(SafetyNode)


if __name__ == "__main__":
    raise SystemExit(main())
