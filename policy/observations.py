"""The one observation builder: training, evaluation, play and the robot all call it, batch first.

It needs only what a robot can know: its own state (joints, base), the swing command and the previous action. Each term is
one small function over `Sense`; TERMS fixes their order, which goes into the contract.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from policy.contract import PolicyContract, TermSpec
from sim.kinematics import RacketState, damped_least_squares, racket_state

Array = np.ndarray

REFERENCE_TIME = 0.1  # [s] over which the racket's reference path bends into the strike velocity; training-recipe value
WALK_GAIN = 2.0  # [1/s] wanted base speed for each metre that is left to walk
SPRINT, SPRINT_MARGIN = 2.5, 0.15  # a policy that sees is asked for up to so many times the walking speed where a target leaves no time
# but this [s]; our choice: 2 m/s is a fast trot of this robot
HOME_FROM = 0.15  # [m] from home at which the robot, with nothing to hit, walks back
TIME_CAP = 2.5  # [s] later strikes look the same


@dataclass
class RobotState:
    """N robots as their sensors and state estimator report them, joints in policy order.

    position (N, 3) of the base, relative to home on the floor, court axes [m]; quaternion (N, 4) base to court (w, x, y, z);
    velocity (N, 3) of the base, court axes [m/s]; angular_velocity (N, 3) base axes [rad/s]; q, qd (N, J) [rad, rad/s].
    """

    position: Array
    quaternion: Array
    velocity: Array
    angular_velocity: Array
    q: Array
    qd: Array


@dataclass
class SwingCommand:
    """What the strike planner asks of N robots. position (N, 3) relative to home, normal, velocity (N, 3), court axes;
    time_left (N,) [s] to the strike; active (N,) bool: False while there is nothing to hit."""

    position: Array
    normal: Array
    velocity: Array
    time_left: Array
    active: Array


@dataclass
class Sighting:
    """What N robots' cameras saw last: position (N, 3) of the shuttle relative to home, court axes [m]; detected (N,) bool, of no meaning
    where False."""

    position: Array
    detected: Array


@dataclass
class Sense:
    """Everything the terms read, computed once per step. Suffix _b: base frame; all (N, ...)."""

    contract: PolicyContract
    state: RobotState
    command: SwingCommand
    racket: RacketState
    previous_action: Array
    on: Array  # (N, 1) 1.0 where a command is active
    gravity_b: Array
    velocity_b: Array
    yaw: Array
    to_target_b: Array
    error: Array  # racket to target, court axes
    error_b: Array
    command_velocity_b: Array
    command_normal_b: Array
    racket_velocity_b: Array
    racket_normal_b: Array
    reference_error: Array  # racket to reference path, court axes
    reference_error_b: Array
    distance: Array  # (N,) horizontal, shoulder to target
    walk: Array  # (N, 2) wanted base velocity, court axes [m/s]
    walk_b: Array
    shuttle_b: Array  # from the base; zero where nothing was detected
    detected: Array  # (N, 1) 1.0 where it was


def reference(command: SwingCommand) -> Array:
    """Where the racket should be now, (N, 3): a path that reaches the target in time with the commanded velocity."""
    t = command.time_left[:, None]
    return command.position - command.velocity * REFERENCE_TIME * (1 - np.exp(-t / REFERENCE_TIME))


def sense(contract: PolicyContract, state: RobotState, command: SwingCommand, previous_action: Array, sighting: Sighting | None = None) -> Sense:
    """Derive what the observation terms and the rewards share. sighting: None where there is no camera, as if nothing was detected."""
    scale = contract.scale
    racket = racket_state(contract.chain, state.position, state.quaternion, state.velocity, state.angular_velocity,
                          state.q[:, contract.arm_index], state.qd[:, contract.arm_index])
    rotation = racket.base_rotation
    on = command.active.astype(float)[:, None]
    to_target = command.position - state.position
    error = command.position - racket.position
    reference_error = reference(command) - racket.position
    flat = command.position[:, :2] - racket.shoulder[:, :2]
    distance = np.maximum(np.linalg.norm(flat, axis=1), 1e-6)
    to_home = -state.position[:, :2]
    home_distance = np.maximum(np.linalg.norm(to_home, axis=1), 1e-6)
    pace = scale.walk_speed
    if contract.sees:
        needed = (distance - scale.walk_from) / np.maximum(command.time_left - SPRINT_MARGIN, 0.1)
        pace = np.clip(needed, scale.walk_speed, SPRINT * scale.walk_speed)
    speed = np.where(command.active, np.minimum(pace, SPRINT * WALK_GAIN * np.maximum(0.0, distance - scale.walk_from)) if contract.sees
                     else np.minimum(pace, WALK_GAIN * np.maximum(0.0, distance - scale.walk_from)),
                     (SPRINT if contract.sees else 1.0) * np.minimum(scale.walk_speed, WALK_GAIN * np.maximum(0.0, home_distance - HOME_FROM)))
    walk = speed[:, None] * np.where(command.active[:, None], flat / distance[:, None], to_home / home_distance[:, None])
    vectors = np.zeros((len(speed), 3, 10))
    detected = np.zeros((len(speed), 1))
    if sighting is not None:
        detected = sighting.detected.astype(float)[:, None]
        vectors[:, :, 9] = (sighting.position - state.position) * detected
    vectors[:, 2, 0] = -1.0
    vectors[:, :, 1] = state.velocity
    vectors[:, :, 2] = to_target
    vectors[:, :, 3] = error
    vectors[:, :, 4] = command.velocity
    vectors[:, :, 5] = command.normal
    vectors[:, :, 6] = racket.velocity
    vectors[:, :, 7] = racket.normal
    vectors[:, :, 8] = reference_error
    vectors_b = np.matmul(rotation.transpose(0, 2, 1), vectors)
    yaw = np.arctan2(rotation[:, 1, 0], rotation[:, 0, 0])
    cos, sin = np.cos(yaw), np.sin(yaw)
    walk_b = np.stack([cos * walk[:, 0] + sin * walk[:, 1], -sin * walk[:, 0] + cos * walk[:, 1]], axis=1)
    return Sense(contract, state, command, racket, previous_action, on, vectors_b[:, :, 0], vectors_b[:, :, 1], yaw,
                 vectors_b[:, :, 2], error, vectors_b[:, :, 3], vectors_b[:, :, 4], vectors_b[:, :, 5], vectors_b[:, :, 6],
                 vectors_b[:, :, 7], reference_error, vectors_b[:, :, 8], distance, walk, walk_b, vectors_b[:, :, 9], detected)


@dataclass(frozen=True)
class Term:
    """One term: size (J: one per joint, A: one per arm joint), scale, how it changes in the mirror, and its function."""

    name: str
    size: int | str
    scale: float
    mirror: str  # vector, pseudovector, planar, joints, arm_joints, scalar or negate
    compute: Callable[[Sense], Array]


def _time_features(s: Sense) -> Array:
    t = np.minimum(s.command.time_left, TIME_CAP)
    return np.stack([t, np.exp(-t / 0.3), np.exp(-t / 0.08)], axis=1) * s.on


def _velocity_mismatch(s: Sense) -> Array:
    off = np.linalg.norm(s.command.velocity - s.racket.velocity, axis=1, keepdims=True)
    return np.exp(-s.command.time_left[:, None] / 0.12) * 0.3 * off * s.on


def _joint_hint(s: Sense) -> Array:
    """Joint step that takes the racket to its reference: the arm's inverse kinematics, for the network to lean on."""
    size = np.linalg.norm(s.reference_error, axis=1, keepdims=True)
    step = s.reference_error * np.minimum(1.0, 0.5 / np.maximum(size, 1e-6))
    return damped_least_squares(s.racket.jacobian, step, s.contract.scale.ik_damping) * s.on


def _rate_hint(s: Sense) -> Array:
    """Joint rates that would turn the racket's velocity into the commanded one."""
    near = np.exp(-s.command.time_left[:, None] / 0.12)
    return damped_least_squares(s.racket.jacobian, (s.command.velocity - s.racket.velocity) * near,
                                s.contract.scale.ik_damping) * s.on


TERMS: tuple[Term, ...] = (
    Term("gravity_b", 3, 1.0, "vector", lambda s: s.gravity_b),
    Term("angular_velocity_b", 3, 0.3, "pseudovector", lambda s: s.state.angular_velocity),
    Term("velocity_b", 3, 1.0, "vector", lambda s: s.velocity_b),
    Term("heading", 1, 1.0, "negate", lambda s: np.sin(s.yaw)[:, None]),
    Term("position", 3, 1.0, "vector", lambda s: s.state.position - [0, 0, s.contract.scale.base_height]),
    Term("joint_offset", "J", 1.0, "joints", lambda s: s.state.q - s.contract.default_pose),
    Term("joint_velocity", "J", 0.07, "joints", lambda s: s.state.qd),
    Term("previous_action", "J", 0.5, "joints", lambda s: s.previous_action),
    Term("command_active", 1, 1.0, "scalar", lambda s: s.on),
    Term("target_b", 3, 1.0, "vector", lambda s: s.to_target_b * s.on),
    Term("target_error_b", 3, 1.0, "vector", lambda s: s.error_b * s.on),
    Term("command_velocity_b", 3, 0.2, "vector", lambda s: s.command_velocity_b * s.on),
    Term("command_normal_b", 3, 1.0, "vector", lambda s: s.command_normal_b * s.on),
    Term("racket_velocity_b", 3, 0.2, "vector", lambda s: s.racket_velocity_b),
    Term("racket_normal_b", 3, 1.0, "vector", lambda s: s.racket_normal_b),
    Term("normal_agreement", 1, 1.0, "scalar",
         lambda s: np.sum(s.command.normal * s.racket.normal, axis=1, keepdims=True) * s.on),
    Term("command_speed", 1, 0.2, "scalar", lambda s: np.linalg.norm(s.command.velocity, axis=1, keepdims=True) * s.on),
    Term("time_features", 3, 1.0, "scalar", _time_features),
    Term("reference_error_b", 3, 2.0, "vector", lambda s: s.reference_error_b * s.on),
    Term("velocity_mismatch", 1, 1.0, "scalar", _velocity_mismatch),
    Term("reach_excess", 1, 1.0, "scalar", lambda s: np.maximum(0.0, s.distance - s.contract.scale.reach)[:, None] * s.on),
    Term("walk_b", 2, 1.0, "planar", lambda s: s.walk_b),
    Term("joint_hint", "A", 1.0, "arm_joints", _joint_hint),
    Term("rate_hint", "A", 0.1, "arm_joints", _rate_hint),
)
SIGHT: tuple[Term, ...] = (  # of a policy that sees for itself
    Term("shuttle_b", 3, 0.2, "vector", lambda s: s.shuttle_b),
    Term("detected", 1, 1.0, "scalar", lambda s: s.detected),
)
BY_NAME = {t.name: t for t in (*TERMS, *SIGHT)}


def term_specs(joints: int, arm_joints: int, sees: bool = False) -> tuple[TermSpec, ...]:
    """The terms as the contract records them, for a robot with so many joints."""
    sizes = {"J": joints, "A": arm_joints}
    return tuple(TermSpec(t.name, t.size if isinstance(t.size, int) else sizes[t.size], t.scale) for t in (*TERMS, *(SIGHT if sees else ())))


def build_observation(s: Sense) -> Array:
    """(N, size) float32, the contract's terms in its order, each times its scale. Not mirrored: see `policy/symmetry.py`."""
    return np.concatenate([t.scale * BY_NAME[t.name].compute(s) for t in s.contract.observation], axis=1, dtype=np.float32)
