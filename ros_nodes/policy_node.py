"""The policy as a lifecycle node: configured it looks and compares, activated it commands, at the contract's period on absolute deadlines.

It ticks when a report of the robot arrives that is nearest to a deadline, so that what it decides from is fresh; reports of joints, odometry
and IMU of one stamp belong together, and it waits a moment for the set. Its time is the robot's: the stamps of the reports.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
from nav_msgs.msg import Odometry
from rclpy.lifecycle import LifecycleNode, State, TransitionCallbackReturn
from sensor_msgs.msg import Imu, JointState
from std_msgs.msg import Float64MultiArray

from perception.errors import UserError
from policy import SHIPPED
from policy.commander import Flight
from policy.inference import OnnxPolicy
from policy.strike import Strike
from ros_nodes import topics
from ros_nodes.conversions import join_ns, joint_state, ns_of, odometry, place_of, split_ns, twist_of, vector
from ros_nodes.deploy import load_deploy
from ros_nodes.latency import Stage
from ros_nodes.policy_core import Decision, PolicyCore, Report
from ros_nodes.runtime import ERROR, OK, WARN, Diagnostics, calm, next_deadline, parameter, run
from ros_nodes.watch import Source
from sim.kinematics import rotation
from sim.recording import facing

MATCH = 0.003  # [s] that a tick waits for odometry and IMU of the same stamp; our choice: they are sent together and come within 1 ms
LATE = 0.005  # [s] after its deadline at which a command counts as a missed deadline: a quarter of the period, a report of a 200 Hz robot
DISCOVERY = 1.0  # [s] from the first report heard until a node that begins knows who else is there; our choice, on a busy machine the first
# peer was found 1 s after the start and the last one half a second later
ALONE = 2.0  # [s] after which a node that hears no robot takes it that there is none
PATIENCE = 5.0  # [s] for which a node that begins waits for another policy's publisher to be gone
ELSEWHEN = 5 * 10**9  # [ns] older stamps are of a bag, or of another clock: nothing to measure a latency with
KEPT = 40  # reports of each kind that wait for their partners
SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE


class PolicyNode(LifecycleNode):
    """Parameters: deploy, policy (file), lock_step, command_source (flight or strike), autostart (configure and activate by itself)."""

    def __init__(self) -> None:
        super().__init__("policy")
        self.deploy_name = parameter(self, "deploy", "anymal_dynaarm")
        self.policy_file = parameter(self, "policy", "")
        self.lock_step = parameter(self, "lock_step", False)
        self.source = parameter(self, "command_source", "flight")
        self.autostart = parameter(self, "autostart", True)
        self.core: PolicyCore | None = None
        self.running = False
        self.refused = ""
        self._begun = time.monotonic()
        self._heard = np.inf  # monotonic [s] of the first report
        self._joints: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._odoms: dict[int, Odometry] = {}
        self._imus: dict[int, np.ndarray] = {}
        self._order: np.ndarray | None = None
        self._names: list[str] = []
        self.unread = "nothing received"
        self._sent: JointState | None = None
        self.flight: Flight | None = None
        self.flight_ns = (-1, 0)  # exposure, arrival of its detection at the tracker
        self.strike: tuple[Strike, float] | None = None
        self.epoch = -1  # [ns]
        self.perception = Source("perception", 0.5, jump=0.5, latched=False)
        self.deadline = np.inf
        self._pending: tuple[int, float] | None = None  # stamp of the report to decide from, monotonic time to wait until
        self._last = 0
        self.next_tick = np.inf
        self.ticks = self.missed = 0
        self.stages = {name: Stage() for name in ("state_to_policy", "policy", "state_to_command", "late", "detection_to_flight", "flight_to_policy",
                                                  "wait_for_tick", "detection_to_command", "exposure_to_command")}
        self._fresh = False
        self._flight_at = 0.0
        self.diagnostics: Diagnostics | None = None
        self.create_subscription(JointState, topics.JOINTS, self.on_joints, topics.SENSOR_IN)
        self.create_subscription(Imu, topics.IMU, self.on_imu, topics.SENSOR_IN)
        self.create_subscription(Odometry, topics.ODOM, self.on_odom, topics.SENSOR_IN)
        self.create_subscription(Float64MultiArray, topics.FLIGHT_TOPIC, self.on_flight, topics.FLIGHTS)
        self.create_subscription(Odometry, topics.STRIKE, self.on_strike, topics.FLIGHTS)
        self.diagnostics = Diagnostics(self, self.statuses)
        if self.autostart:
            self._start_timer = self.create_timer(0.2, self._try_to_start)

    # -- lifecycle ------------------------------------------------------------------------------------------------------
    def _try_to_start(self) -> None:
        """Configure, and activate as soon as the robot reports what fits. A refusal to configure is final."""
        if self.running or self.refused:
            self._start_timer.cancel()
            return
        if self.core is None:
            self.trigger_configure()
        elif not self.unread and self._joints:
            self.trigger_activate()

    def on_configure(self, state: State) -> TransitionCallbackReturn:
        """Load the policy and compare it with the robot's description; nothing is published yet."""
        others = self.count_publishers(self.resolve_topic_name(topics.COMMAND))
        now = time.monotonic()
        settled = now - min(self._heard, self._begun + ALONE) >= DISCOVERY
        if not settled or (others and now - self._begun < PATIENCE):  # one that was killed is remembered for two seconds
            return FAILURE
        try:
            if others:
                raise UserError(f"{others} other node(s) publish on {topics.COMMAND}; only one policy may")
            deploy = load_deploy(self.deploy_name)
            with calm():
                policy = OnnxPolicy(Path(self.policy_file) if self.policy_file else SHIPPED)
            deploy.description.check_fits(policy.contract)
            self.joints = deploy.joint_map(policy.contract)
            if policy.contract.sees:
                raise UserError("this policy is told where its camera saw the shuttle, which the nodes do not tell it yet")
            if self.source not in ("flight", "strike"):
                raise UserError(f"command_source is {self.source}; it must be flight or strike")
        except UserError as error:
            self.refused = str(error)
            self.get_logger().error(f"refused to configure: {error}")
            return FAILURE
        self.core, self.period = PolicyCore(policy, deploy.court), policy.contract.period
        self.names = list(policy.contract.joint_names)
        with calm():
            self.core.warm_up()
        self.command_publisher = self.create_lifecycle_publisher(JointState, topics.COMMAND, topics.COMMANDS)
        self.trace_publisher = self.create_lifecycle_publisher(Float64MultiArray, topics.TRACE_TOPIC, topics.EVENTS)
        self.strike_publisher = self.create_lifecycle_publisher(Odometry, topics.STRIKE_NOW, topics.EVENTS)
        self._names, self._order = [], None
        return super().on_configure(state)

    def on_activate(self, state: State) -> TransitionCallbackReturn:
        """Command, if the robot reports the joints that the policy moves."""
        if self.unread or not self._joints:
            self.get_logger().error(f"refused to activate: {self.unread or 'no joint_states yet'}")
            return FAILURE
        if self.count_publishers(self.resolve_topic_name(topics.COMMAND)) > 1:
            self.refused = f"another node publishes on {topics.COMMAND}; only one policy may"
            self.get_logger().error(f"refused to activate: {self.refused}")
            return FAILURE
        assert self.core is not None
        self.core.reset()
        self.deadline, self.running = time.monotonic(), True
        self._pending, self.next_tick = None, np.inf
        for stage in self.stages.values():
            stage.clear()
        self.ticks = self.missed = 0
        return super().on_activate(state)

    def on_deactivate(self, state: State) -> TransitionCallbackReturn:
        """Command nothing; the supervisor damps the drives when commands stop."""
        self.running, self.next_tick = False, np.inf
        return super().on_deactivate(state)

    def on_cleanup(self, state: State) -> TransitionCallbackReturn:
        """Forget the policy."""
        for publisher in (self.command_publisher, self.trace_publisher, self.strike_publisher):
            self.destroy_publisher(publisher)
        self.core, self.refused = None, ""
        return SUCCESS

    def on_error(self, state: State) -> TransitionCallbackReturn:
        """An exception in a transition: command nothing."""
        self.running = False
        return SUCCESS

    # -- what arrives ---------------------------------------------------------------------------------------------------
    def on_joints(self, message: JointState) -> None:
        """A report; the one nearest to the deadline is decided from."""
        now = time.monotonic()
        self._heard = min(self._heard, now)
        if self.core is None:
            return
        names = list(message.name)
        if names != self._names:
            self._names = names
            try:
                self._order, self.unread = self.joints.order_of(names), ""
            except UserError as error:
                self._order, self.unread = None, str(error)
                self.get_logger().error(self.unread)
        if self._order is None or len(message.position) != len(names) or len(message.velocity) != len(names):
            return
        ns = ns_of(message.header.stamp)
        if ns < self._last - 5 * 10**8:  # the robot's clock was set back: begin anew
            self._restart()
        self._joints[ns] = (self.joints.position(np.asarray(message.position), self._order), self.joints.rate(np.asarray(message.velocity), self._order))
        _trim(self._joints)
        waiting = self._pending is not None and not (self.lock_step and ns > self._pending[0])  # a report that never got its partners is passed over
        if not self.running or waiting or ns <= self._last:
            if self.lock_step and ns == self._last and self._sent is not None:  # asked again: the answer was lost
                self.command_publisher.publish(self._sent)
            return
        half = 0.5 * (ns - self._last) * 1e-9 if 0 < ns - self._last < 1e7 else 0.0025
        if self.lock_step or now >= self.deadline - half:
            self._pending = (ns, np.inf if self.lock_step else now + MATCH)
            self.next_tick = self._pending[1]
            self._when_matched()

    def on_odom(self, message: Odometry) -> None:
        """Place and velocity of the base."""
        self._odoms[ns_of(message.header.stamp)] = message
        _trim(self._odoms)
        self._when_matched()

    def on_imu(self, message: Imu) -> None:
        """Angular velocity of the base."""
        w = message.angular_velocity
        self._imus[ns_of(message.header.stamp)] = np.array([w.x, w.y, w.z])
        _trim(self._imus)
        self._when_matched()

    def on_flight(self, message: Float64MultiArray) -> None:
        """The tracker's state, or that there is none."""
        if self.core is None or len(message.data) != topics.FLIGHT_SIZE:
            return
        data = np.asarray(message.data)
        exposure, arrival = join_ns(*data[:2]), join_ns(*data[2:4])
        self.perception.take(time.monotonic(), exposure * 1e-9)
        if not data[4] or exposure <= self.flight_ns[0]:
            return
        self.flight = self.core.flight(self.seconds(exposure), data[6:14], data[14:].reshape(8, 8))
        self.flight_ns, self._fresh, self._flight_at = (exposure, arrival), True, time.monotonic()
        if not self.lock_step:
            self.stages["detection_to_flight"].add((time.time_ns() - arrival) * 1e-6)

    def on_strike(self, message: Odometry) -> None:
        """A strike asked for directly."""
        if self.core is None:
            return
        p, q = place_of(message.pose.pose)
        turn = rotation(q / max(float(np.linalg.norm(q)), 1e-9))
        court = self.core.court
        velocity = court.direction(turn @ twist_of(message)[0])
        strike = Strike(court.point(p)[None], court.direction(turn[:, 0])[None], velocity[None], np.ones(1, bool))
        self.strike = (strike, self.seconds(ns_of(message.header.stamp)))

    def seconds(self, ns: int) -> float:
        """Seconds since an epoch near by: a double of seconds since 1970 is good to 240 ns only."""
        if self.epoch < 0:
            self.epoch = epoch_of(ns)
        return (ns - self.epoch) * 1e-9

    def _restart(self) -> None:
        assert self.core is not None
        self.core.reset()
        self._joints, self._odoms, self._imus = {}, {}, {}
        self._last, self.flight, self.flight_ns, self._pending, self.epoch = 0, None, (-1, 0), None, -1
        self.perception.reset()

    # -- one decision ---------------------------------------------------------------------------------------------------
    def _when_matched(self) -> None:
        if self._pending is not None and self._pending[0] in self._odoms and self._pending[0] in self._imus:
            self.decide(self._pending[0], self._pending[0], self._pending[0])

    def tick(self) -> None:
        """The wait for partners is over: take the newest of each."""
        self.next_tick = np.inf
        if self._pending is None or not self._odoms or not self._imus:
            self._pending = None
            return
        self.decide(self._pending[0], max(self._odoms), max(self._imus))

    def decide(self, joints_ns: int, odom_ns: int, imu_ns: int) -> None:
        """Decide, command, and say what was seen and done."""
        assert self.core is not None
        begin, begin_ns = time.monotonic(), time.time_ns()
        self._pending, self.next_tick = None, np.inf
        q, qd = self._joints[joints_ns]
        p, orientation = place_of(self._odoms[odom_ns].pose.pose)
        report = Report(q, qd, p, orientation, twist_of(self._odoms[odom_ns])[0], self._imus[imu_ns])
        if not all(np.isfinite(x).all() for x in vars(report).values()):  # nothing to decide from; the supervisor knows as well
            return
        direct = self.strike if self.source == "strike" else None
        d = self.core.tick(self.seconds(joints_ns), report, self.flight if self.source == "flight" else None, direct)
        self._sent = joint_state(joints_ns, self.names, d.targets)
        self.command_publisher.publish(self._sent)
        done, done_ns = time.monotonic(), time.time_ns()
        late = done - self.deadline
        self.ticks += 1
        if self.lock_step:
            self.stages["policy"].add((done - begin) * 1e3)
        else:
            if late > LATE:
                self.missed += 1
            self._measure(begin, begin_ns, done, done_ns, joints_ns, late)
        self.deadline, skipped = next_deadline(self.deadline, self.period, done)
        self.missed += 0 if self.lock_step else skipped
        self.ticks += 0 if self.lock_step else skipped
        self._last = joints_ns
        self._say(d, joints_ns, odom_ns, imu_ns)

    def _measure(self, begin: float, begin_ns: int, done: float, done_ns: int, joints_ns: int, late: float) -> None:
        s = self.stages
        if not 0 <= begin_ns - joints_ns < ELSEWHEN:
            return
        s["state_to_policy"].add((begin_ns - joints_ns) * 1e-6)
        s["policy"].add((done - begin) * 1e3)
        s["state_to_command"].add((done_ns - joints_ns) * 1e-6)
        s["late"].add(late * 1e3)
        if self._fresh:
            arrival_to_flight = s["detection_to_flight"].samples[-1] if s["detection_to_flight"].samples else 0.0
            s["wait_for_tick"].add((begin - self._flight_at) * 1e3)
            s["detection_to_command"].add(arrival_to_flight + (done - begin) * 1e3)
            s["exposure_to_command"].add((done_ns - self.flight_ns[0]) * 1e-6)
            self._fresh = False

    def _say(self, d: Decision, joints_ns: int, odom_ns: int, imu_ns: int) -> None:
        assert self.core is not None
        stamps = [*split_ns(joints_ns), *split_ns(odom_ns), *split_ns(imu_ns), *split_ns(self.flight_ns[0]), d.side]
        self.trace_publisher.publish(vector(np.concatenate([stamps, d.observation, d.action]), ("stamps", topics.TRACE_HEAD),
                                            ("observation", len(d.observation)), ("action", len(d.action))))
        if d.command.active[0]:
            commander = self.core.commander
            normal, court = d.command.normal[0], self.core.court
            q = facing(court.turn.T @ normal)
            velocity = rotation(q).T @ (court.turn.T @ d.command.velocity[0])
            place = court.back(d.command.position[0] + commander.home)
            self.strike_publisher.publish(odometry(self.epoch + round(commander.strike_at * 1e9), "odom", "racket_target", place, q, velocity, np.zeros(3)))

    def statuses(self) -> list[tuple[str, Any, str, dict[str, Any]]]:
        """For /diagnostics."""
        state = "active" if self.running else "refused" if self.refused else "inactive" if self.core else "unconfigured"
        share = self.missed / max(self.ticks, 1)
        seen = self.perception.problem(time.monotonic())
        out = [("state", ERROR if self.refused or (self.core and self.unread) else OK, self.refused or (self.core and self.unread) or state,
                {"state": state, "source": self.source}),
               ("deadlines", WARN if share > 0.005 else OK, f"{share:.2%} of {self.ticks} missed", {"missed": self.missed, "ticks": self.ticks}),
               ("perception", WARN if seen else OK, seen or "alive", {"rate_hz": self.perception.rate, "received": self.perception.received})]
        return out + [(f"latency {name}", OK, "", stage.values()) for name, stage in self.stages.items()]

    def finish(self, why: str) -> None:
        """Commands end here; the supervisor notices."""
        self.running = False


def epoch_of(ns: int) -> int:
    """Where a policy that begins at ns counts its seconds from [ns]: a bag that is replayed must arrive at the same."""
    return ns // 10**12 * 10**12


def _trim(table: dict[int, Any]) -> None:
    while len(table) > KEPT:
        del table[min(table)]


def main() -> int:
    """Entry point."""
    return run(PolicyNode)


if __name__ == "__main__":
    raise SystemExit(main())
