"""Racket kinematics of a robot with one arm: place, velocity, normal and Jacobian from measured joints.

Runs on the robot too (numpy and numba only). MuJoCo could give the same after a forward pass, but that pass costs
as much as a physics step, and the robot has no MuJoCo; `tests/sim/test_kinematics.py` holds the two together to 1e-9.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit

Array = np.ndarray


@dataclass(frozen=True)
class ArmChain:
    """Serial chain of hinge joints from the base to the racket face.

    offset: (J, 3) joint frame origin in the parent joint's frame [m]; the first in the base frame.
    rotation: (J, 3, 3) joint frame orientation in the parent joint's frame at angle zero.
    axis: (J, 3) unit hinge axis in the joint's own frame.
    tip: (3,) centre of the racket face in the last joint's frame [m]. normal, long_axis: (3,) unit vectors there.
    shoulder: index of the joint whose origin counts as the shoulder (for reach).
    """

    offset: Array
    rotation: Array
    axis: Array
    tip: Array
    normal: Array
    long_axis: Array
    shoulder: int

    def to_json(self) -> dict:
        """Plain lists, for the policy file."""
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in self.__dict__.items()}

    @staticmethod
    def from_json(data: dict) -> "ArmChain":
        """Inverse of `to_json`."""
        arrays = {k: np.asarray(data[k], float) for k in ("offset", "rotation", "axis", "tip", "normal", "long_axis")}
        return ArmChain(shoulder=int(data["shoulder"]), **arrays)


@dataclass
class RacketState:
    """World-frame racket of N robots. position, velocity, normal, long_axis, shoulder: (N, 3) [m, m/s]; jacobian: (N, 3, J) of
    the face centre with respect to the arm joints [m/rad]; base_rotation: (N, 3, 3) base to world."""

    position: Array
    velocity: Array
    normal: Array
    long_axis: Array
    shoulder: Array
    jacobian: Array
    base_rotation: Array


@njit(cache=True)
def _quat_to_mat(q, out):
    w, x, y, z = q[0], q[1], q[2], q[3]
    out[0, 0] = 1 - 2 * (y * y + z * z)
    out[0, 1] = 2 * (x * y - w * z)
    out[0, 2] = 2 * (x * z + w * y)
    out[1, 0] = 2 * (x * y + w * z)
    out[1, 1] = 1 - 2 * (x * x + z * z)
    out[1, 2] = 2 * (y * z - w * x)
    out[2, 0] = 2 * (x * z - w * y)
    out[2, 1] = 2 * (y * z + w * x)
    out[2, 2] = 1 - 2 * (x * x + y * y)


def rotation(quaternion: Array) -> Array:
    """(3, 3) of a unit quaternion (w, x, y, z)."""
    out = np.empty((3, 3))
    _quat_to_mat(np.asarray(quaternion, float), out)
    return out


@njit(cache=True)
def _mul(a, b, out):
    for i in range(3):
        for j in range(3):
            out[i, j] = a[i, 0] * b[0, j] + a[i, 1] * b[1, j] + a[i, 2] * b[2, j]


@njit(cache=True)
def _apply(m, v, out):
    for i in range(3):
        out[i] = m[i, 0] * v[0] + m[i, 1] * v[1] + m[i, 2] * v[2]


@njit(cache=True)
def _axis_angle(axis, angle, out):
    """Rodrigues' formula for a unit axis."""
    c, s = np.cos(angle), np.sin(angle)
    x, y, z = axis[0], axis[1], axis[2]
    t = 1 - c
    out[0, 0], out[0, 1], out[0, 2] = c + t * x * x, t * x * y - s * z, t * x * z + s * y
    out[1, 0], out[1, 1], out[1, 2] = t * x * y + s * z, c + t * y * y, t * y * z - s * x
    out[2, 0], out[2, 1], out[2, 2] = t * x * z - s * y, t * y * z + s * x, c + t * z * z


@njit(cache=True)
def _racket(pos, quat, linvel_w, angvel_b, q, qd, offset, rotation, axis, tip, normal_l, long_l, shoulder_index,
            position, velocity, normal, long_axis, shoulder, jacobian, base_rotation):
    n, joints = q.shape
    frame, turned, joint_rot = np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 3))
    tmp, angvel_w, arm = np.empty(3), np.empty(3), np.empty(3)
    origins, axes = np.empty((joints, 3)), np.empty((joints, 3))
    for i in range(n):
        _quat_to_mat(quat[i], base_rotation[i])
        frame[:, :] = base_rotation[i]
        px, py, pz = pos[i, 0], pos[i, 1], pos[i, 2]
        for j in range(joints):
            _apply(frame, offset[j], tmp)
            px, py, pz = px + tmp[0], py + tmp[1], pz + tmp[2]
            origins[j, 0], origins[j, 1], origins[j, 2] = px, py, pz
            _mul(frame, rotation[j], turned)
            _apply(turned, axis[j], axes[j])
            _axis_angle(axis[j], q[i, j], joint_rot)
            _mul(turned, joint_rot, frame)
        own = i if tip.shape[0] > 1 else 0
        _apply(frame, tip[own], tmp)
        position[i, 0], position[i, 1], position[i, 2] = px + tmp[0], py + tmp[1], pz + tmp[2]
        _apply(frame, normal_l[own], normal[i])
        _apply(frame, long_l[own], long_axis[i])
        shoulder[i] = origins[shoulder_index]
        _apply(base_rotation[i], angvel_b[i], angvel_w)
        for k in range(3):
            arm[k] = position[i, k] - pos[i, k]
        velocity[i, 0] = linvel_w[i, 0] + angvel_w[1] * arm[2] - angvel_w[2] * arm[1]
        velocity[i, 1] = linvel_w[i, 1] + angvel_w[2] * arm[0] - angvel_w[0] * arm[2]
        velocity[i, 2] = linvel_w[i, 2] + angvel_w[0] * arm[1] - angvel_w[1] * arm[0]
        for j in range(joints):
            rx = position[i, 0] - origins[j, 0]
            ry = position[i, 1] - origins[j, 1]
            rz = position[i, 2] - origins[j, 2]
            a = axes[j]
            jacobian[i, 0, j] = a[1] * rz - a[2] * ry
            jacobian[i, 1, j] = a[2] * rx - a[0] * rz
            jacobian[i, 2, j] = a[0] * ry - a[1] * rx
            for k in range(3):
                velocity[i, k] += jacobian[i, k, j] * qd[i, j]


def racket_state(chain: ArmChain, position: Array, quaternion: Array, velocity_w: Array, angular_velocity_b: Array,
                 q_arm: Array, qd_arm: Array, tip: Array | None = None, normal: Array | None = None,
                 long_axis: Array | None = None) -> RacketState:
    """Racket of N robots.

    position (N, 3) base in the world [m]; quaternion (N, 4) base to world, (w, x, y, z); velocity_w (N, 3) of the base
    origin [m/s]; angular_velocity_b (N, 3) in the base frame [rad/s]; q_arm, qd_arm (N, J) [rad, rad/s]. tip, normal, long_axis
    (N, 3): where each robot's own racket sits in its last joint's frame, where that is not as in the chain.
    """
    n, joints = q_arm.shape
    vectors = np.empty((5, n, 3))
    out = RacketState(vectors[0], vectors[1], vectors[2], vectors[3], vectors[4], np.empty((n, 3, joints)), np.empty((n, 3, 3)))
    _racket(position, quaternion, velocity_w, angular_velocity_b, q_arm, qd_arm, chain.offset, chain.rotation,
            chain.axis, np.atleast_2d(chain.tip if tip is None else tip), np.atleast_2d(chain.normal if normal is None else normal),
            np.atleast_2d(chain.long_axis if long_axis is None else long_axis), chain.shoulder, out.position, out.velocity, out.normal,
            out.long_axis, out.shoulder, out.jacobian, out.base_rotation)
    return out


@njit(cache=True)
def _damped_step(jacobian, error, damping, out):
    n, _, joints = jacobian.shape
    a = np.empty((3, 3))
    x = np.empty(3)
    for i in range(n):
        for r in range(3):
            for c in range(3):
                s = 0.0
                for j in range(joints):
                    s += jacobian[i, r, j] * jacobian[i, c, j]
                a[r, c] = s
            a[r, r] += damping
        c00 = a[1, 1] * a[2, 2] - a[1, 2] * a[2, 1]
        c01 = a[0, 2] * a[2, 1] - a[0, 1] * a[2, 2]
        c02 = a[0, 1] * a[1, 2] - a[0, 2] * a[1, 1]
        c11 = a[0, 0] * a[2, 2] - a[0, 2] * a[2, 0]
        c12 = a[0, 2] * a[1, 0] - a[0, 0] * a[1, 2]
        c22 = a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0]
        det = a[0, 0] * c00 + a[1, 0] * c01 + a[2, 0] * c02
        e = error[i]
        x[0] = (c00 * e[0] + c01 * e[1] + c02 * e[2]) / det
        x[1] = (c01 * e[0] + c11 * e[1] + c12 * e[2]) / det
        x[2] = (c02 * e[0] + c12 * e[1] + c22 * e[2]) / det
        for j in range(joints):
            out[i, j] = jacobian[i, 0, j] * x[0] + jacobian[i, 1, j] * x[1] + jacobian[i, 2, j] * x[2]


def damped_least_squares(jacobian: Array, error: Array, damping: float) -> Array:
    """Joint step (N, J) = J^T (J J^T + damping I)^-1 error for jacobian (N, 3, J), error (N, 3).

    Wampler 1986, doi 10.1109/TSMC.1986.289285; the 3 x 3 system is symmetric positive definite for damping > 0.
    """
    out = np.empty((jacobian.shape[0], jacobian.shape[2]))
    _damped_step(jacobian, error, damping, out)
    return out
