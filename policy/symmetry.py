"""The robot and its court are symmetric about the x-z plane, so half of the task need not be learned.

When a target appears its side is noted: +1 left, -1 right, held until the next. For -1 the policy sees the mirror image
and its action is mirrored back; it only ever meets targets on its left. The change is a signed permutation, so it is
exact and free. The same two calls run on the robot.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from policy.contract import PolicyContract
from policy.observations import BY_NAME

Array = np.ndarray


@dataclass(frozen=True)
class SignedPermutation:
    """x -> sign * x[..., index]: its own inverse for a mirror."""

    index: Array
    sign: Array

    def where(self, x: Array, side: Array) -> Array:
        """Mirror the rows of x (N, D) whose side (N,) is -1."""
        return np.where((side < 0)[:, None], self.sign * x[:, self.index], x).astype(x.dtype, copy=False)


VECTOR = ([0, 1, 2], [1, -1, 1])
_KINDS: dict[str, Any] = {"vector": VECTOR, "pseudovector": ([0, 1, 2], [-1, 1, -1]), "planar": ([0, 1], [1, -1])}


def action_mirror(contract: PolicyContract) -> SignedPermutation:
    """Mirror of anything listed per joint in policy order."""
    return SignedPermutation(contract.mirror_index, contract.mirror_sign)


def observation_mirror(contract: PolicyContract) -> SignedPermutation:
    """Mirror of the observation vector, put together from how each term changes."""
    arm = contract.arm_index
    arm_place = {int(j): i for i, j in enumerate(arm)}
    joint_kinds = {
        "joints": (contract.mirror_index, contract.mirror_sign),
        "arm_joints": (np.array([arm_place[int(contract.mirror_index[j])] for j in arm]), contract.mirror_sign[arm]),
    }
    index, sign, start = [], [], 0
    for spec in contract.observation:
        term = BY_NAME[spec.name]
        if term.mirror in ("scalar", "negate"):
            places, signs = np.arange(spec.size), np.full(spec.size, 1.0 if term.mirror == "scalar" else -1.0)
        else:
            kind = {**_KINDS, **joint_kinds}[term.mirror]
            places, signs = np.asarray(kind[0]), np.asarray(kind[1], float)
        index.append(start + places)
        sign.append(signs)
        start += spec.size
    return SignedPermutation(np.concatenate(index), np.concatenate(sign).astype(np.float32))


def target_side(position: Array, yaw: Array, target: Array) -> Array:
    """(N,) +1 where the target (N, 3) lies on the left of a base at position (N, 3) heading yaw (N,), else -1."""
    offset = target - position
    lateral = -np.sin(yaw) * offset[:, 0] + np.cos(yaw) * offset[:, 1]
    return np.where(lateral >= 0, 1.0, -1.0)
