"""Safety between policy and drives: pure checks, and the supervisor that decides what the drives are told. No ROS in here.

    DAMPING --arm, stand--> STAND --gains and pose ramped--> READY --play--> PLAY
       ^                      |                                |               |
       +----------- any fault, `damp`, or the end of the program --------------+

A fault is latched by name and takes the drives to damping: no stiffness, only the drives' own damping. Nothing but `arm` clears it, and
only once its cause is gone; `stand` and `play` must then be asked for again. All times are monotonic and of the receiving end.
"""

from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from policy.contract import PolicyContract
from ros_nodes.description import Description
from ros_nodes.watch import Source

Array = np.ndarray


class State(Enum):
    """What the drives are told. TEST moves one joint, with all others damped."""

    DAMPING = "DAMPING"
    STAND = "STAND"
    READY = "READY"
    PLAY = "PLAY"
    TEST = "TEST"


@dataclass(frozen=True)
class SafetyCfg:
    """Limits and times. Measured of the shipped policy in 185 shots of `birdie play`: a target moves at most 3.2 action scales in a period, the
    drives would be asked for 5.5 times their torque limit for an instant, the arm draws up to 25 A on average over a second, no drive
    exceeds 1.02 of its speed limit, the base tilts 16 degrees. Each limit below leaves about half as much again: our choice, a tighter one
    trades false alarms for milder accidents.

    slew: action scales per policy period; torque: shares of the torque limit, unclipped; arm_current: shares of its limit, mean over
    current_time [s]; speed: share of the drive's; tilt [rad] (training ends an episode at 66 degrees); range_slack [rad] beyond joint ranges.
    joints_timeout, imu_timeout: eight and more reports of a 200 Hz robot, a busy machine loses 20 ms now and then; command_periods: age of a
    policy command, in policy periods; operator_timeout: four beats of a 50 Hz heartbeat, more over a radio link; stall: silence of the supervisor
    itself after which drives may have let go by their own watchdog (the simulator's at 0.05 s) and must not be stiffened again; late, jump: see `watch.Source`. All such [s].
    damping: times the drives' kd, our choice: a robot of 60 kg sinks to the floor in half a second and nothing breaks. stand_time [s] of the
    ramp; gain_time [s] within it in which the gains come; stand_error [rad] from the stance at its end: feet that were splayed on
    the floor stay so until the first step (0.57 rad seen). blend [s] from stance to policy. test_*: of a single joint.
    interpolation: "hold" gives the drive the policy's target as it comes, as in training; "linear" reaches it at the period's end.
    """

    slew: float = 5.0
    torque: float = 8.0
    arm_current: float = 5.0
    current_time: float = 1.0
    speed: float = 1.5
    tilt: float = np.deg2rad(60)
    range_slack: float = 1e-3
    joints_timeout: float = 0.06
    imu_timeout: float = 0.06
    command_periods: float = 3.0
    operator_timeout: float = 0.08
    stall: float = 0.05
    late: float = 0.1
    jump: float = 0.1
    damping: float = 3.0
    stand_time: float = 3.0
    gain_time: float = 0.5
    stand_error: float = 0.8
    blend: float = 0.2
    test_swing: float = 0.1
    test_time: float = 2.0
    test_gain: float = 0.3
    interpolation: str = "hold"


@dataclass(frozen=True)
class Limits:
    """A robot's limits with joints in policy order. robot: reordered; joint_range (J, 2) [rad]; stand (J,) [rad]; kp, kd (J,); period [s]."""

    robot: Description
    joint_range: Array
    stand: Array
    kp: Array
    kd: Array
    period: float

    @staticmethod
    def of(contract: PolicyContract, robot: Description) -> "Limits":
        """Raises UserError where policy and robot do not fit."""
        robot.check_fits(contract)
        stand = np.clip(contract.action_offset, contract.joint_range[:, 0], contract.joint_range[:, 1])
        return Limits(robot.reordered(contract.joint_names), contract.joint_range, stand, contract.kp, contract.kd, contract.period)

    @property
    def names(self) -> tuple[str, ...]:
        """Joint names in policy order."""
        return self.robot.joint_names


@dataclass(frozen=True)
class Command:
    """What the drives are told: position (J,) [rad], kp (J,) [N m/rad], kd (J,) [N m s/rad], policy order; state it came from; stamp [s]
    of the robot state that it answers, on the robot's clock."""

    position: Array
    kp: Array
    kd: Array
    state: State
    stamp: float


# -- checks: each gives a line that says what is wrong, or an empty one -------------------------------------------------
def check_shape(values: Array, joints: int, what: str) -> str:
    """As many numbers as joints."""
    return "" if np.shape(values) == (joints,) else f"{what} has shape {np.shape(values)}, there are {joints} joints"


def check_finite(values: Array, names: tuple[str, ...], what: str) -> str:
    """No nan, no inf."""
    bad = np.flatnonzero(~np.isfinite(values))
    return f"{what} of joint {names[bad[0]]} is {values[bad[0]]}" if len(bad) else ""


def check_range(target: Array, limits: Limits, slack: float) -> str:
    """Targets inside the joint ranges."""
    over = np.maximum(limits.joint_range[:, 0] - target, target - limits.joint_range[:, 1])
    worst = int(np.argmax(over))
    low, high = limits.joint_range[worst]
    return f"target of joint {limits.names[worst]} is {target[worst]:.3f} rad, its range {low:.3f} to {high:.3f}" if over[worst] > slack else ""


def check_slew(target: Array, before: Array, limits: Limits, slew: float) -> str:
    """No target leaps further from the one before than slew action scales."""
    share = np.abs(target - before) / limits.robot.action_scale
    worst = int(np.argmax(share))
    return f"target of joint {limits.names[worst]} leaps by {abs(target[worst] - before[worst]):.2f} rad in one period" if share[worst] > slew else ""


def check_torque(target: Array, q: Array, qd: Array, limits: Limits, share: float) -> str:
    """No drive is asked for more than share times its limit, by its own law."""
    ratio = np.abs(limits.robot.drive_torque(target, q, qd)) / limits.robot.torque
    worst = int(np.argmax(ratio))
    return f"drive of joint {limits.names[worst]} is asked for {ratio[worst]:.1f} times its torque" if ratio[worst] > share else ""


def check_speed(qd: Array, limits: Limits, share: float) -> str:
    """No drive turns faster than share times its speed limit."""
    ratio = np.abs(limits.robot.drive_from_joint @ qd) / limits.robot.speed
    worst = int(np.argmax(ratio))
    return f"drive of joint {limits.names[worst]} turns at {ratio[worst]:.2f} times its speed limit" if ratio[worst] > share else ""


def check_tilt(quaternion: Array, tilt: float) -> str:
    """The base (w, x, y, z) is no further than tilt [rad] from upright."""
    size = float(np.linalg.norm(quaternion))
    if not np.isfinite(size) or abs(size - 1.0) > 0.01:
        return f"orientation is no unit quaternion: its size is {size:g}"
    _, x, y, _ = np.asarray(quaternion) / size
    now = float(np.arccos(np.clip(1 - 2 * (x * x + y * y), -1.0, 1.0)))
    return f"the base tilts {np.rad2deg(now):.0f} degrees" if now > tilt else ""


def interpolate(before: Array, target: Array, share: float) -> Array:
    """Between two targets, share 0 to 1."""
    return before + min(max(share, 0.0), 1.0) * (target - before)


# -- the supervisor -----------------------------------------------------------------------------------------------------
@dataclass
class Supervisor:
    """Feed it with what arrives, ask it at every tick what the drives are told. Never raises on what arrives.

    faults: latched, name -> detail; armed: `stand` is allowed; transitions: (monotonic, state, why) of the latest changes.
    """

    limits: Limits
    cfg: SafetyCfg = field(default_factory=SafetyCfg)
    state: State = State.DAMPING
    faults: dict[str, str] = field(default_factory=dict)
    armed: bool = False
    transitions: list[tuple[float, State, str]] = field(default_factory=list)
    arm_current: float = 0.0  # [A] estimated, mean over current_time

    def __post_init__(self) -> None:
        c, j = self.cfg, len(self.limits.names)
        self.joints = Source("joint_states", c.joints_timeout, c.late, c.jump)
        self.imu = Source("imu", c.imu_timeout, c.late, c.jump)
        self.policy = Source("policy", c.command_periods * self.limits.period, c.late, np.inf)  # answers carry the robot's own stamps
        self.operator = Source("operator", c.operator_timeout, c.operator_timeout, c.operator_timeout)
        self.q, self.qd = np.zeros(j), np.zeros(j)
        self.quaternion = np.array([1.0, 0.0, 0.0, 0.0])
        self.stamp = 0.0
        self.target = self.limits.stand.copy()
        self._before = self.limits.stand.copy()
        self._target_at = self._since = self._played = -np.inf
        self._start = np.zeros(j)
        self._test = (0, 0.0)
        self._policy_bad = ""
        self._answered = 0.0
        self._current_at = -np.inf
        self._ticked = np.inf
        self.stopped = ""  # why the operator says stop, while it does
        self.publishers = 1  # on the policy's topic
        self.drives = ""  # what the drives report wrong

    # -- what arrives ---------------------------------------------------------------------------------------------------
    def on_joints(self, now: float, stamp: float, q: Array, qd: Array, problem: str = "") -> None:
        """A report of the robot: q, qd (J,) policy order; problem: why it cannot be read."""
        bad = problem or check_shape(q, len(self.q), "joint_states") or check_finite(q, self.limits.names, "position") \
            or check_shape(qd, len(self.q), "joint speeds") or check_finite(qd, self.limits.names, "speed")
        if bad:
            self._fault(now, "joint_states_invalid", bad)
            return
        if self.joints.take(now, stamp):
            self.q, self.qd, self.stamp = np.array(q, float), np.array(qd, float), stamp

    def on_imu(self, now: float, stamp: float, quaternion: Array) -> None:
        """Orientation (w, x, y, z) of the base."""
        if self.imu.take(now, stamp):
            self.quaternion = np.array(quaternion, float)

    def on_policy(self, now: float, stamp: float, names: tuple[str, ...], target: Array) -> bool:
        """A policy command: targets (J,) [rad] of joints by name, answering the robot state of `stamp`. True where the drives are told of it."""
        limits, c = self.limits, self.cfg
        target = np.asarray(target, float)
        fault, bad = "command_shape", check_shape(target, len(names), "policy command")
        if not bad and set(names) != set(limits.names):
            bad = f"policy commands joints {', '.join(sorted(set(names) ^ set(limits.names)))} that do not match the robot's"
        if not bad and len(names) != len(limits.names):
            bad = "policy commands a joint twice"
        if not bad:
            target = target[[names.index(n) for n in limits.names]]
            fault, bad = "command_not_finite", check_finite(target, limits.names, "target")
        if not bad:
            fault, bad = "command_range", check_range(target, limits, c.range_slack)
        if not bad and np.isfinite(self._target_at) and now - self._target_at < 2.5 * limits.period:
            fault, bad = "command_slew", check_slew(target, self.target, limits, c.slew)
        if not bad and self.state is State.PLAY:
            fault, bad = "command_torque", check_torque(target, self.q, self.qd, limits, c.torque)
        if bad:
            self._policy_bad = bad
            if self.state is State.PLAY:
                self._fault(now, fault, bad)
            return False
        if self.stamp - stamp > c.command_periods * limits.period or not self.policy.take(now, stamp):  # an answer to what is long past
            return False
        self._policy_bad = ""
        self._before, self.target, self._target_at = (self.target, target, now)
        self._answered = stamp
        return self.state is State.PLAY

    def on_operator(self, now: float, stamp: float, stop: str) -> None:
        """A heartbeat whose stamp must advance; stop: why the robot is to stop, or an empty string."""
        if self.operator.take(now, stamp):
            self.stopped = stop
            if stop and self.state is not State.DAMPING:
                self._fault(now, "operator_stop", stop)

    def estop(self, now: float, why: str = "emergency stop") -> None:
        """Stop at once, latched."""
        self._fault(now, "emergency_stop", why)

    # -- what the operator asks for -------------------------------------------------------------------------------------
    def problems(self, now: float, state: State) -> dict[str, str]:
        """Everything that would not let the drives be in a state now: name -> detail."""
        out: dict[str, str] = {}

        def note(name: str, detail: str) -> None:
            if detail:
                out.setdefault(name, detail)

        if state is State.DAMPING:
            return out
        for source, name in ((self.joints, "joint_states"), (self.imu, "imu"), (self.operator, "operator")):
            detail = source.problem(now)
            kind = "clock" if "clock" in detail else "late" if "late" in detail else "stale"
            note(f"{name}_{kind}", detail and f"{source.name}: {detail}")
        if state is State.PLAY:
            detail = self.policy.problem(now)
            note("policy_stale", detail and f"policy command: {detail}")
            if detail and now - self.joints.last > self.cfg.joints_timeout / 3:  # the policy has nothing to answer: say the cause too
                note("joint_states_stale", f"joint_states: silent for {(now - self.joints.last) * 1e3:.0f} ms")
            if now - self._played > self.limits.period:
                note("command_invalid", self._policy_bad)
        note("tilt", check_tilt(self.quaternion, self.cfg.tilt))
        note("joint_speed", check_speed(self.qd, self.limits, self.cfg.speed))
        note("operator_stop", self.stopped)
        note("drives", self.drives)
        if self.publishers > 1:
            note("two_policies", f"{self.publishers} nodes publish policy commands; only one may")
        if self.arm_current > self.cfg.arm_current * self.limits.robot.arm_current_limit:
            note("arm_current", f"the arm draws {self.arm_current:.0f} A on average, its limit is {self.limits.robot.arm_current_limit:g} A")
        return out

    def arm(self, now: float) -> tuple[bool, str]:
        """Clear the latched faults, if their causes are gone."""
        if self.state is not State.DAMPING:
            return False, f"already {self.state.value}"
        for source in (self.joints, self.imu, self.policy, self.operator):
            source.reset()
        self.arm_current, self._current_at = 0.0, -np.inf
        problems = self.problems(now, State.STAND)
        if problems:
            return False, "; ".join(problems.values())
        self.faults.clear()
        self.armed = True
        return True, "armed"

    def stand(self, now: float) -> tuple[bool, str]:
        """From DAMPING, once armed: get up."""
        if self.state is not State.DAMPING or not self.armed or self.faults:
            return False, f"not armed: {self._why()}" if self.state is State.DAMPING else f"already {self.state.value}"
        problems = self.problems(now, State.STAND)
        if problems:
            return False, "; ".join(problems.values())
        self._start, self._since = self.q.copy(), now
        self._go(now, State.STAND, "asked for")
        return True, "standing up"

    def play(self, now: float) -> tuple[bool, str]:
        """From READY: hand over to the policy, if it sends good commands."""
        if self.state is not State.READY:
            return False, f"not READY but {self.state.value}{': ' + self._why() if self.faults else ''}"
        problems = self.problems(now, State.PLAY)
        if problems:
            return False, "; ".join(problems.values())
        self._since = self._played = now
        self._go(now, State.PLAY, "asked for")
        return True, "playing"

    def test_joint(self, now: float, name: str) -> tuple[bool, str]:
        """From DAMPING, once armed: swing one joint about where it is, gently, all others damped."""
        if name not in self.limits.names:
            return False, f"no joint {name}; there are {', '.join(self.limits.names)}"
        if self.state is not State.DAMPING or not self.armed or self.faults:
            return False, f"not armed: {self._why()}"
        joint = self.limits.names.index(name)
        self._test, self._since = (joint, float(self.q[joint])), now
        self._go(now, State.TEST, f"joint {name}")
        return True, f"{name} swings by {self.cfg.test_swing:g} rad for {self.cfg.test_time:g} s"

    def damp(self, now: float, why: str = "asked for") -> tuple[bool, str]:
        """To DAMPING from anywhere; not a fault, but standing up again wants arming."""
        self.armed = False
        if self.state is not State.DAMPING:
            self._go(now, State.DAMPING, why)
        return True, "damping"

    # -- what the drives are told ---------------------------------------------------------------------------------------
    def tick(self, now: float) -> Command:
        """Look at everything once more and say what the drives are told now."""
        silent, self._ticked = now - self._ticked, now
        if self.state is not State.DAMPING and silent > self.cfg.stall:
            self._fault(now, "supervisor_stalled", f"the supervisor itself was silent for {silent * 1e3:.0f} ms")
        for name, detail in self.problems(now, self.state).items():
            self._fault(now, name, detail)
        self._follow_current(now)
        limits, c = self.limits, self.cfg
        if self.state is State.STAND:
            share = (now - self._since) / c.stand_time
            if share >= 1.0:
                error = np.abs(self.q - limits.stand)
                worst = int(np.argmax(error))
                if error[worst] <= c.stand_error:
                    self._go(now, State.READY, "stands")
                elif share > 1.5:
                    self._fault(now, "stand", f"joint {limits.names[worst]} is {error[worst]:.2f} rad from the stance")
        if self.state is State.TEST and now - self._since > c.test_time:
            self.damp(now, "test done")
            self.armed = True
        return self._command(now)

    def _command(self, now: float) -> Command:
        limits, c, passed = self.limits, self.cfg, now - self._since
        if self.state is State.DAMPING:
            return self.damping()
        if self.state is State.TEST:
            joint, middle = self._test
            position, kp = self.q.copy(), np.zeros(len(self.q))
            position[joint] = np.clip(middle + c.test_swing * np.sin(2 * np.pi * passed / c.test_time), *limits.joint_range[joint])
            kp[joint] = c.test_gain * limits.kp[joint]
            return Command(position, kp, limits.kd * c.damping, self.state, self.stamp)
        if self.state is State.STAND:
            s = min(passed / c.stand_time, 1.0)
            gain = min(passed / c.gain_time, 1.0)
            return Command(interpolate(self._start, limits.stand, s * s * (3 - 2 * s)), gain * limits.kp, limits.kd, self.state, self.stamp)
        if self.state is State.READY:
            return Command(limits.stand, limits.kp, limits.kd, self.state, self.stamp)
        target = self.target
        if c.interpolation == "linear":
            target = interpolate(self._before, self.target, (now - self._target_at) / limits.period)
        if passed < c.blend:
            target = interpolate(limits.stand, target, passed / c.blend)
        return Command(target, limits.kp, limits.kd, self.state, self._answered)

    def damping(self) -> Command:
        """No stiffness; the drives' damping alone."""
        return Command(self.q.copy(), np.zeros(len(self.q)), self.cfg.damping * self.limits.kd, State.DAMPING, self.stamp)

    def _follow_current(self, now: float) -> None:
        passed = min(max(now - self._current_at, 0.0), 0.1)
        self._current_at = now
        if self.state in (State.DAMPING, State.TEST):
            self.arm_current *= 1 - passed / self.cfg.current_time
            return
        command, robot = self._command(now), self.limits.robot
        drawn = robot.arm_current(robot.drive_torque(command.position, self.q, self.qd) * (command.kp > 0), self.qd)
        self.arm_current += passed / self.cfg.current_time * (drawn - self.arm_current)

    def _fault(self, now: float, name: str, detail: str) -> None:
        self.faults.setdefault(name, detail)
        self.armed = False
        if self.state is not State.DAMPING:
            self._go(now, State.DAMPING, f"{name}: {detail}")

    def _go(self, now: float, state: State, why: str) -> None:
        self.state = state
        self.transitions = [*self.transitions[-31:], (now, state, why)]

    def _why(self) -> str:
        return "; ".join(f"{k} ({v})" for k, v in self.faults.items()) or "ask for arming first"
