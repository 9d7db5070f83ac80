"""Policy joints to robot joints and back: name, order, sign and offset, from the deploy file of a robot. Never by position."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perception.errors import UserError

Array = np.ndarray


@dataclass(frozen=True)
class JointMap:
    """J joints in policy order. robot angle = sign * policy angle + offset [rad]; robot_names: what the robot calls them."""

    policy_names: tuple[str, ...]
    robot_names: tuple[str, ...]
    sign: Array
    offset: Array

    def order_of(self, reported: Sequence[str]) -> Array:
        """(J,) places of our joints in a report. Raises UserError naming joints that are missing from it or that it has twice."""
        names = list(reported)
        missing = [n for n in self.robot_names if n not in names]
        if missing:
            strangers = [n for n in names if n not in self.robot_names]
            raise UserError(f"the robot does not report joint {', '.join(missing)}" + (f"; it reports {', '.join(strangers)}, which no policy joint maps to" if strangers else ""))
        twice = sorted({n for n in self.robot_names if names.count(n) > 1})
        if twice:
            raise UserError(f"the robot reports joint {', '.join(twice)} twice")
        return np.array([names.index(n) for n in self.robot_names])

    def position(self, reported: Array, order: Array) -> Array:
        """(J,) policy angles from a robot's report [rad]."""
        return self.sign * (np.asarray(reported, float)[order] - self.offset)

    def rate(self, reported: Array, order: Array) -> Array:
        """(J,) policy speeds or torques from a robot's report."""
        return self.sign * np.asarray(reported, float)[order]

    def to_robot(self, position: Array) -> Array:
        """(J,) robot angles, in the order of robot_names, for policy angles [rad]."""
        return self.sign * position + self.offset

    def rate_to_robot(self, rate: Array) -> Array:
        """(J,) robot speeds or torques for the policy's."""
        return self.sign * rate

    @staticmethod
    def same(names: Sequence[str]) -> "JointMap":
        """A robot whose joints are the policy's."""
        return JointMap(tuple(names), tuple(names), np.ones(len(names)), np.zeros(len(names)))

    @staticmethod
    def parse(entries: list[dict[str, Any]] | None, policy_names: Sequence[str], where: str) -> "JointMap":
        """From a deploy file's list of {policy, robot, sign, offset}; joints left out keep name, sign and zero. UserError names a wrong entry."""
        table = {n: (n, 1.0, 0.0) for n in policy_names}
        seen: set[str] = set()
        for entry in entries or []:
            unknown = entry.keys() - {"policy", "robot", "sign", "offset"}
            name = entry.get("policy")
            if unknown or name not in table:
                raise UserError(f"{where}: joint entry {entry} " + (f"has unknown keys {sorted(unknown)}" if unknown else "names no joint of the policy"))
            if name in seen:
                raise UserError(f"{where}: joint {name} is listed twice")
            seen.add(str(name))
            sign, offset = float(entry.get("sign", 1)), float(entry.get("offset", 0.0))
            if sign not in (1.0, -1.0) or not abs(offset) <= 2 * np.pi:
                raise UserError(f"{where}: joint {name} has sign {sign:g} and offset {offset:g}; sign is 1 or -1, offset in radians")
            table[str(name)] = (str(entry.get("robot", name)), sign, offset)
        robot_names = [table[n][0] for n in policy_names]
        twice = sorted({n for n in robot_names if robot_names.count(n) > 1})
        if twice:
            raise UserError(f"{where}: two policy joints map to robot joint {', '.join(twice)}")
        return JointMap(tuple(policy_names), tuple(robot_names), np.array([table[n][1] for n in policy_names]),
                        np.array([table[n][2] for n in policy_names]))
