"""The contract between a trained policy and whatever carries it out: the simulator, an ONNX session, a robot.

It travels inside the checkpoint (JSON beside the weights) and in the ONNX metadata. Readers compare by name, never by
position, and refuse a mismatch with a message that names the field.
"""

import json
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from perception.errors import UserError
from sim.kinematics import ArmChain
from sim.scale import TaskScale, task_scale

VERSION = 1
BEFORE_SCALES = task_scale(0.615, 0.2305, 1.4974, 0.03, 12.0)  # of anymal_dynaarm: what contracts without a scale were trained under
Array = np.ndarray


@dataclass(frozen=True)
class TermSpec:
    """One observation term: name, size, and scale applied before the policy's own normaliser; history: past values held."""

    name: str
    size: int
    scale: float
    history: int = 1


@dataclass(frozen=True)
class PolicyContract:
    """What the policy was trained against. J joints in policy order.

    The policy's output a (J,) becomes joint targets q = action_offset + action_scale * clip(a, +-action_clip) [rad]; a drive
    behind it holds them with kp [N m/rad], kd [N m s/rad] and torque_limit [N m]. action_offset is the default pose plus
    what gravity asks for at these gains. period [s] is the time between two outputs. scale holds the lengths of the task, of which
    observations and strike planner read some.
    """

    robot: str
    joint_names: tuple[str, ...]
    default_pose: Array
    action_offset: Array
    action_scale: Array
    action_clip: float
    joint_range: Array  # (J, 2) [rad]
    kp: Array
    kd: Array
    torque_limit: Array
    mirror_index: Array
    mirror_sign: Array
    arm_index: Array
    chain: ArmChain
    scale: TaskScale
    period: float
    observation: tuple[TermSpec, ...]
    observation_clip: float  # after the normaliser inside the policy
    version: int = VERSION

    @property
    def sees(self) -> bool:
        """Whether the policy is told where its camera saw the shuttle."""
        return any(t.name == "detected" for t in self.observation)

    def to_json(self) -> str:
        """One JSON object; `from_json` gives back an equal contract."""
        out: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, np.ndarray):
                value = value.tolist()
            elif isinstance(value, ArmChain):
                value = value.to_json()
            elif isinstance(value, TaskScale):
                value = vars(value)
            elif f.name == "observation":
                value = [vars(t) for t in value]
            out[f.name] = value
        return json.dumps(out)

    @staticmethod
    def from_json(text: str) -> "PolicyContract":
        """Raises UserError when the text is no contract of this version."""
        try:
            data = json.loads(text)
            if data["version"] != VERSION:
                raise UserError(f"policy contract has version {data['version']}, this birdie reads version {VERSION}; export the policy again")
            data["chain"] = ArmChain.from_json(data["chain"])
            data["scale"] = TaskScale(**data["scale"]) if "scale" in data else BEFORE_SCALES
            data["observation"] = tuple(TermSpec(**t) for t in data["observation"])
            data["joint_names"] = tuple(data["joint_names"])
            for name in ("default_pose", "action_offset", "action_scale", "joint_range", "kp", "kd", "torque_limit", "mirror_sign"):
                data[name] = np.asarray(data[name], float)
            for name in ("mirror_index", "arm_index"):
                data[name] = np.asarray(data[name], int)
            return PolicyContract(**data)
        except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise UserError(f"not a policy contract: {type(error).__name__}: {error}") from error

    def joint_targets(self, action: Array) -> Array:
        """Joint position targets (N, J) [rad] for policy outputs (N, J), inside the joint range."""
        targets = self.action_offset + self.action_scale * np.clip(action, -self.action_clip, self.action_clip)
        return np.clip(targets, self.joint_range[:, 0], self.joint_range[:, 1])

    def check_fits(self, robot: "PolicyContract") -> None:
        """Raise UserError naming the first field in which the robot at hand (described by its own contract) differs."""
        ours, theirs = set(self.joint_names), set(robot.joint_names)
        if ours != theirs:
            missing, extra = sorted(ours - theirs), sorted(theirs - ours)
            raise UserError(f"policy does not fit robot {robot.robot}: joint_names differ (robot lacks {missing}, has extra {extra})")
        order = np.array([robot.joint_names.index(n) for n in self.joint_names])
        for name in ("default_pose", "action_offset", "action_scale", "kp", "kd", "torque_limit", "mirror_sign", "joint_range"):
            mine, other = getattr(self, name), getattr(robot, name)[order]
            if not np.allclose(mine, other, atol=1e-6):
                worst = int(np.argmax(np.abs(mine - other).reshape(len(mine), -1).max(axis=1)))
                raise UserError(f"policy does not fit robot {robot.robot}: {name} of joint {self.joint_names[worst]} "
                                f"is {_show(mine[worst])} in the policy and {_show(other[worst])} in the robot")
        for name in ("mirror_index", "arm_index"):
            mine_n = [self.joint_names[i] for i in getattr(self, name)]
            other_n = [robot.joint_names[i] for i in (robot.mirror_index[order] if name == "mirror_index" else robot.arm_index)]
            if mine_n != other_n:
                raise UserError(f"policy does not fit robot {robot.robot}: {name} is {mine_n} in the policy and {other_n} in the robot")
        for name in ("offset", "rotation", "axis", "tip", "normal", "long_axis", "shoulder"):
            if not np.allclose(getattr(self.chain, name), getattr(robot.chain, name), atol=1e-6):
                raise UserError(f"policy does not fit robot {robot.robot}: {name} of the arm's chain differs")
        for name, mine_m in vars(self.scale).items():
            other_m = getattr(robot.scale, name)
            if abs(mine_m - other_m) > 1e-6:
                raise UserError(f"policy does not fit robot {robot.robot}: {name} of the task's scale is {mine_m:g} in the policy and "
                                f"{other_m:g} in the robot")
        if self.action_clip != robot.action_clip:
            raise UserError(f"policy does not fit: action_clip is {self.action_clip} in the policy and {robot.action_clip} here")
        if abs(self.period - robot.period) > 1e-9:
            raise UserError(f"policy does not fit: period is {self.period} s in the policy and {robot.period} s here")
        if self.observation != robot.observation:
            for mine_t, other_t in zip(self.observation, robot.observation, strict=False):
                if mine_t != other_t:
                    raise UserError(f"policy does not fit: observation term {mine_t} in the policy, {other_t} here")
            raise UserError(f"policy does not fit: {len(self.observation)} observation terms in the policy, {len(robot.observation)} here")

    def check_same(self, robot: "PolicyContract") -> None:
        """`check_fits`, and the joints in the same order: for callers that hand over whole arrays, as the simulator does."""
        self.check_fits(robot)
        if self.joint_names != robot.joint_names:
            raise UserError(f"policy does not fit robot {robot.robot}: joint_names are in another order, {robot.joint_names} in the robot")


def _show(value: Array | float) -> str:
    return " to ".join(f"{v:g}" for v in np.atleast_1d(value))
