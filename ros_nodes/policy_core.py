"""The policy at its period, without ROS: what the node does with what it has heard. Replaying a bag goes through the same lines."""

from dataclasses import dataclass

import numpy as np

from policy.commander import Commander, CommanderCfg, Flight
from policy.inference import OnnxPolicy
from policy.observations import RobotState, SwingCommand
from policy.strike import Strike
from ros_nodes.deploy import Court
from sim.kinematics import rotation

Array = np.ndarray
WARM = np.array([1.0, 0.0, 2.2, -12.0, 0.0, 5.0, 0.25, 0.0])  # a flight that comes down at home: to run everything once before it matters
WARM_BASE = np.array([-4.0, 0.0, 0.6])  # [m]


@dataclass(frozen=True, eq=False)
class Report:
    """One robot's report. q, qd (J,) policy order; position (3,) [m], quaternion (w, x, y, z) in odom; velocity_b (3,), turning_b (3,) base axes."""

    q: Array
    qd: Array
    position: Array
    quaternion: Array
    velocity_b: Array
    turning_b: Array


@dataclass(frozen=True, eq=False)
class Decision:
    """targets, action (J,); observation (A,) float32 as the network saw it; command it followed; side +1 or -1."""

    targets: Array
    action: Array
    observation: Array
    command: SwingCommand
    side: float


class PolicyCore:
    """One robot. `tick` once per policy period, in the order of time."""

    def __init__(self, policy: OnnxPolicy, court: Court = Court(), cfg: CommanderCfg = CommanderCfg()) -> None:
        self.policy, self.court, self.contract = policy, court, policy.contract
        self.commander = Commander(policy.contract, cfg)
        self.reset()

    def reset(self) -> None:
        """As at the start of an episode."""
        self.previous = np.zeros((1, len(self.contract.joint_names)))
        self.commander.reset()
        self.commander.side = np.ones(1)

    def state(self, report: Report) -> RobotState:
        """The observation builder's view of a report: court axes, relative to home."""
        q = self.court.quaternion(report.quaternion)
        velocity = rotation(q) @ report.velocity_b
        position = self.court.point(report.position) - self.commander.home
        return RobotState(position[None], q[None], velocity[None], report.turning_b[None], report.q[None], report.qd[None])

    def tick(self, now: float, report: Report, flight: Flight | None = None, strike: tuple[Strike, float] | None = None) -> Decision:
        """Decide at `now` [s] of the robot's clock. flight: court axes, the newest known; strike: one asked for directly, and its time [s]."""
        state = self.state(report)
        turn = rotation(state.quaternion[0])
        yaw = float(np.arctan2(turn[1, 0], turn[0, 0]))
        if strike is not None:
            command = self.commander.give(now, strike[0], strike[1], state.position[0], yaw)
        else:
            command = self.commander.command(now, flight, state.position[0], yaw)
        side = self.commander.side
        observation = self.policy.observe(state, command, self.previous, side)
        targets, action = self.policy.decide(observation, side)
        self.previous = np.where(np.isfinite(action), action, 0.0)  # what the supervisor refuses must not spoil what comes after it
        return Decision(targets[0], action[0], observation[0], command, float(side[0]))

    def warm_up(self) -> bool:
        """Run everything once, for what compiles or allocates at first use; whether a strike came of it. Afterwards all is as at the start."""
        zero, level = np.zeros(len(self.contract.joint_names)), np.array([1.0, 0.0, 0.0, 0.0])
        report, active = Report(self.contract.default_pose, zero, WARM_BASE, level, np.zeros(3), np.zeros(3)), False
        for n in range(3):
            place = self.court.back(WARM_BASE)
            report = Report(report.q, report.qd, place, level, report.velocity_b, report.turning_b)
            active = bool(self.tick(0.02 * n, report, Flight(0.02 * n, WARM, np.eye(8) * 1e-5)).command.active[0])
        self.reset()
        return active

    def flight(self, time: float, state: Array, covariance: Array) -> Flight:
        """A flight in court axes from one in odom axes."""
        if self.court.is_odom:
            return Flight(time, state, covariance)
        turn = np.eye(8)
        turn[:3, :3] = turn[3:6, 3:6] = self.court.turn
        out = state.copy()
        out[:3], out[3:6] = self.court.point(state[:3]), self.court.direction(state[3:6])
        return Flight(time, out, turn @ covariance @ turn.T)
