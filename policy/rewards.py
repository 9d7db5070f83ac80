"""Rewards: one function of a few lines each, named for what it measures, and one table of weights.

All take a `Transition` and return (N,). Weights and shapes from docs/training-log.md; the sum of the regularisers stays
below a tenth of the strike rewards, or the policy learns to save torque instead of learning to hit.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from policy.observations import Sense, SwingCommand
from sim.kinematics import RacketState

Array = np.ndarray
HIT_RADIUS = 0.10  # [m] racket centre to commanded point: a hit in the ETH paper, whose racket is that far from centre to edge


@dataclass
class Widths:
    """Widths of the strike rewards, tightened as the policy improves: position, track [m], velocity (share of speed),
    normal [rad]."""

    position: float = 0.3
    track: float = 0.3
    velocity: float = 1.0
    normal: float = 0.3


@dataclass
class Transition:
    """One control step of N robots after physics, before the next command. sense: the new state against the old command as the robot
    knows it; command: as it is; watched: (due, known, off) (N,) each, whether a shuttle is in the air that the robot has to see, whether it
    has an interception, and by how much that is wrong [m], None for robots without cameras; racket: the true one, which a biased encoder or a bent
    mount hides from the robot;
    struck (N,): the commanded moment was now; torque, drive_speed (N, J); foot_slip (N,) sum over standing feet of
    squared speed [m^2/s^2]; speed_limit (J,), leg (J,) bool."""

    sense: Sense
    command: SwingCommand
    watched: tuple[Array, Array, Array] | None
    racket: RacketState
    action: Array
    previous_action: Array
    struck: Array
    torque: Array
    drive_speed: Array
    foot_slip: Array
    speed_limit: Array
    leg: Array
    widths: Widths

    @property
    def position_error(self) -> Array:
        """(N,) racket centre to commanded point [m]."""
        return np.linalg.norm(self.command.position - self.racket.position, axis=1)

    @property
    def velocity_error(self) -> Array:
        """(N,) racket velocity against the commanded one [m/s]."""
        return np.linalg.norm(self.command.velocity - self.racket.velocity, axis=1)

    @property
    def normal_cosine(self) -> Array:
        """(N,) cosine between the face normal and the commanded one."""
        return np.sum(self.command.normal * self.racket.normal, axis=1)


def strike_position(t: Transition) -> Array:
    """Closeness of the racket centre to the commanded point at the commanded moment."""
    return t.struck / (1 + t.position_error / t.widths.position)


def strike_velocity(t: Transition) -> Array:
    """Closeness of the racket velocity to the commanded one, relative to its speed, at the moment."""
    speed = np.linalg.norm(t.command.velocity, axis=1)
    return t.struck / (1 + t.velocity_error / (t.widths.velocity * (0.3 * speed + 0.5)))


def strike_normal(t: Transition) -> Array:
    """Agreement of the face with the commanded normal at the moment: squared cosine far off, and a sharp part near."""
    cosine = np.clip(t.normal_cosine, 0.0, 1.0)
    return t.struck * (0.5 * cosine**2 + 0.5 / (1 + np.arccos(cosine) / t.widths.normal))


def track_reference(t: Transition) -> Array:
    """Racket near its reference path during the last half second."""
    late = t.sense.command.active & (t.sense.command.time_left <= 0.5)
    return late * np.exp(-np.linalg.norm(t.sense.reference_error, axis=1) / t.widths.track)


def interception(t: Transition) -> Array:
    """Closeness of the interception that the robot believes to the true one, while a shuttle is in the air: makes it look where it should."""
    if t.watched is None:
        return np.zeros(len(t.action))
    due, known, off = t.watched
    return due * known / (1 + off / 0.2)


def walk(t: Transition) -> Array:
    """Base velocity near the wanted one. The Cauchy shape still has a slope at rest; a Gaussian left the legs asleep."""
    off = t.sense.state.velocity[:, :2] - t.sense.walk
    return 1 / (1 + np.sum(off**2, axis=1) / 0.15)


def reach_excess(t: Transition) -> Array:
    """Distance by which the target is out of the arm's comfortable reach [m]."""
    return t.sense.command.active * np.maximum(0.0, t.sense.distance - t.sense.contract.scale.reach)


def alive(t: Transition) -> Array:
    """One per step on its feet."""
    return np.ones(len(t.action))


def tilt(t: Transition) -> Array:
    """Squared sine of the base's tilt."""
    return np.sum(t.sense.gravity_b[:, :2] ** 2, axis=1)


def heading(t: Transition) -> Array:
    """Squared angle between the base's heading and the net [rad^2]."""
    return t.sense.yaw**2


def low_base(t: Transition) -> Array:
    """Depth of the base below the height at which the robot crouches [m]."""
    return np.maximum(0.0, t.sense.contract.scale.low_base - t.sense.state.position[:, 2])


def bounce(t: Transition) -> Array:
    """Squared vertical base speed, at most 4 [m^2/s^2]."""
    return np.minimum(t.sense.state.velocity[:, 2] ** 2, 4.0)


def action_rate(t: Transition) -> Array:
    """Squared change of the action."""
    return np.sum((t.action - t.previous_action) ** 2, axis=1)


def action_size(t: Transition) -> Array:
    """Squared action."""
    return np.sum(t.action**2, axis=1)


def leg_speed(t: Transition) -> Array:
    """Squared leg joint speeds [rad^2/s^2]."""
    return np.sum(t.sense.state.qd[:, t.leg] ** 2, axis=1)


def torque(t: Transition) -> Array:
    """Squared drive torques [N^2 m^2]."""
    return np.sum(t.torque**2, axis=1)


def leg_pose(t: Transition) -> Array:
    """Squared distance of the legs from the default pose [rad^2]."""
    return np.sum((t.sense.state.q - t.sense.contract.default_pose)[:, t.leg] ** 2, axis=1)


def idle_pose(t: Transition) -> Array:
    """With nothing to hit: squared distance of all joints from the default pose [rad^2]."""
    off = np.sum((t.sense.state.q - t.sense.contract.default_pose) ** 2, axis=1)
    return ~t.sense.command.active * np.minimum(off, 10.0)


def away(t: Transition) -> Array:
    """With nothing to hit: how far the base is beyond 0.3 m from home, at most 1 [m]."""
    return ~t.sense.command.active * np.clip(np.linalg.norm(t.sense.state.position[:, :2], axis=1) - 0.3, 0.0, 1.0)


def foot_slip(t: Transition) -> Array:
    """Squared speed of feet on the ground, each at most 1 [m^2/s^2]."""
    return t.foot_slip


def over_speed(t: Transition) -> Array:
    """Squared drive speed above 90 % of its limit, at most 100 in all [rad^2/s^2]."""
    excess = np.maximum(0.0, np.abs(t.drive_speed) - 0.9 * t.speed_limit)
    return np.minimum(np.sum(excess**2, axis=1), 100.0)


STRIKE: dict[Callable[[Transition], Array], float] = {strike_position: 6.0, strike_velocity: 3.0, strike_normal: 3.0}
GUIDE: dict[Callable[[Transition], Array], float] = {track_reference: 0.06, interception: 0.06, walk: 0.06, reach_excess: -0.05, alive: 0.03}
REGULARISE: dict[Callable[[Transition], Array], float] = {
    tilt: -0.05, heading: -0.02, low_base: -0.5, bounce: -0.02, action_rate: -5e-4, action_size: -1e-4, leg_speed: -2e-5,
    torque: -3e-7, leg_pose: -1e-3, idle_pose: -2e-3, away: 0.0, foot_slip: -0.02, over_speed: -1e-2,
}
REGULARISE_FLOOR = -0.3  # per step: one wild step must not outweigh a good strike
FALL = -2.0  # once, when the robot falls; a good strike is worth 12


TERM_NAMES = frozenset(f.__name__ for group in (STRIKE, GUIDE, REGULARISE) for f in group)


def total_reward(t: Transition, weights: Mapping[str, float] = {}) -> tuple[Array, dict[str, Array]]:
    """Reward (N,) and each weighted term (N,) by name. weights: in place of the table's, by name."""
    out = np.zeros(len(t.action))
    terms: dict[str, Array] = {}
    for group, floor in ((STRIKE, None), (GUIDE, None), (REGULARISE, REGULARISE_FLOOR)):
        part = np.zeros(len(out))
        for function, weight in group.items():
            value = weights.get(function.__name__, weight) * function(t)
            terms[function.__name__] = value
            part += value
        out += part if floor is None else np.maximum(part, floor)
    return out, terms
