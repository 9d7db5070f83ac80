"""Arrays to messages and back. Quaternions are (w, x, y, z) here and (x, y, z, w) in messages; times are seconds or nanoseconds."""

import array
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from geometry_msgs.msg import Pose, PoseArray
from nav_msgs.msg import Odometry
from sensor_msgs.msg import CameraInfo, Image, Imu, JointState
from std_msgs.msg import Float64MultiArray, Header, MultiArrayDimension

from perception.camera import Camera, StereoRig
from perception.errors import UserError
from ros_nodes.topics import GAINS

Array = np.ndarray


def stamp_of(ns: int) -> Time:
    """A message stamp for nanoseconds."""
    return Time(sec=int(ns // 10**9), nanosec=int(ns % 10**9))


def ns_of(stamp: Any) -> int:
    """Nanoseconds of a message stamp."""
    return stamp.sec * 10**9 + stamp.nanosec


def header(ns: int, frame: str) -> Header:
    """A header at ns."""
    return Header(stamp=stamp_of(ns), frame_id=frame)


def joint_state(ns: int, names: list[str], q: Array, qd: Array | None = None, effort: Array | None = None, frame: str = "") -> JointState:
    """Angles [rad], speeds [rad/s], torques [N m] of joints by name."""
    message = JointState(header=header(ns, frame), name=names)
    message.position = array.array("d", np.asarray(q, float).tobytes())
    if qd is not None:
        message.velocity = array.array("d", np.asarray(qd, float).tobytes())
    if effort is not None:
        message.effort = array.array("d", np.asarray(effort, float).tobytes())
    return message


def drive_command(ns: int, names: list[str], position: Array, kp: Array, kd: Array, frame: str) -> JointState:
    """One message with targets and gains, so that neither is ever seen without the other."""
    gains = [n + GAINS for n in names]
    zero = np.zeros(len(names))
    return joint_state(ns, [*names, *gains], np.concatenate([position, kp]), np.concatenate([zero, kd]), None, frame)


def read_drive_command(message: JointState, names: list[str]) -> tuple[Array, Array, Array]:
    """Targets, kp, kd of joints by name. Raises UserError where one is missing or not finite."""
    place = {n: i for i, n in enumerate(message.name)}
    try:
        joints, gains = [place[n] for n in names], [place[n + GAINS] for n in names]
        position, velocity = np.asarray(message.position, float), np.asarray(message.velocity, float)
        out = position[joints], position[gains], velocity[gains]
    except (KeyError, IndexError) as error:
        raise UserError(f"drive command without {error}") from error
    if not all(np.isfinite(x).all() for x in out):
        raise UserError("drive command is not finite")
    return out


def pose(p: Array, q: Array) -> Pose:
    """A pose from place (3,) [m] and quaternion (w, x, y, z)."""
    out = Pose()
    out.position.x, out.position.y, out.position.z = map(float, p)
    out.orientation.w, out.orientation.x, out.orientation.y, out.orientation.z = map(float, q)
    return out


def place_of(message: Pose) -> tuple[Array, Array]:
    """Place (3,) [m] and quaternion (w, x, y, z)."""
    p, q = message.position, message.orientation
    return np.array([p.x, p.y, p.z]), np.array([q.w, q.x, q.y, q.z])


def odometry(ns: int, frame: str, child: str, p: Array, q: Array, v_child: Array, w_child: Array, covariance: Array | None = None) -> Odometry:
    """Pose in frame, twist in the child frame. covariance (6, 6): of place and velocity, where child's axes are the frame's."""
    out = Odometry(header=header(ns, frame), child_frame_id=child)
    out.pose.pose = pose(p, q)
    linear, angular = out.twist.twist.linear, out.twist.twist.angular
    linear.x, linear.y, linear.z = map(float, v_child)
    angular.x, angular.y, angular.z = map(float, w_child)
    if covariance is not None:
        full = np.zeros((2, 6, 6))
        full[0, :3, :3], full[1, :3, :3] = covariance[:3, :3], covariance[3:, 3:]
        out.pose.covariance, out.twist.covariance = full[0].ravel(), full[1].ravel()
    return out


def twist_of(message: Odometry) -> tuple[Array, Array]:
    """Linear [m/s] and angular [rad/s] velocity (3,), child axes."""
    v, w = message.twist.twist.linear, message.twist.twist.angular
    return np.array([v.x, v.y, v.z]), np.array([w.x, w.y, w.z])


def imu(ns: int, q: Array, w: Array) -> Imu:
    """Orientation and angular velocity [rad/s] in imu_link; acceleration is not given (covariance -1, REP 145)."""
    out = Imu(header=header(ns, "imu_link"))
    out.orientation.w, out.orientation.x, out.orientation.y, out.orientation.z = map(float, q)
    out.angular_velocity.x, out.angular_velocity.y, out.angular_velocity.z = map(float, w)
    out.linear_acceleration_covariance[0] = -1.0
    return out


def vector(data: Array, *labels: tuple[str, int]) -> Float64MultiArray:
    """A vector whose parts (name, size) are said in the layout."""
    out = Float64MultiArray()
    out.layout.dim = [MultiArrayDimension(label=name, size=size, stride=size) for name, size in labels]
    out.data = array.array("d", np.asarray(data, float).tobytes())
    return out


def split_ns(ns: int) -> tuple[float, float]:
    """Seconds and nanoseconds: a double holds each of them exactly, but not both at once."""
    return float(ns // 10**9), float(ns % 10**9)


def join_ns(seconds: float, nanoseconds: float) -> int:
    """Inverse of `split_ns`."""
    return int(seconds) * 10**9 + int(nanoseconds)


def candidates(ns: int, points: Array) -> PoseArray:
    """Points (M, 3) [m] in the left camera's optical frame."""
    unit = np.array([1.0, 0.0, 0.0, 0.0])
    return PoseArray(header=header(ns, "camera_left_optical_frame"), poses=[pose(p, unit) for p in points])


def points_of(message: PoseArray) -> Array:
    """(M, 3) [m]."""
    return np.array([[p.position.x, p.position.y, p.position.z] for p in message.poses]).reshape(-1, 3)


def image(ns: int, frame: str, pixels: Array) -> Image:
    """bgr8 of (height, width, 3) uint8."""
    height, width, _ = pixels.shape
    out = Image(header=header(ns, frame), height=height, width=width, encoding="bgr8", step=3 * width)
    data = array.array("B")
    data.frombytes(np.ascontiguousarray(pixels).tobytes())
    out.data = data  # anything but array.array is checked element by element: 27 ms a frame
    return out


def pixels_of(message: Image) -> Array:
    """(height, width, 3) uint8, blue green red. UserError for encodings that are none of bgr8, rgb8, bgra8, rgba8, mono8."""
    channels = {"bgr8": 3, "rgb8": 3, "bgra8": 4, "rgba8": 4, "mono8": 1}.get(message.encoding)
    if channels is None:
        raise UserError(f"images come as {message.encoding}; bgr8, rgb8, bgra8, rgba8 and mono8 can be read")
    rows = np.frombuffer(message.data, np.uint8).reshape(message.height, message.step)
    out = rows[:, :message.width * channels].reshape(message.height, message.width, channels)
    if channels == 1:
        return np.repeat(out, 3, axis=2)
    return np.ascontiguousarray(out[:, :, 2::-1]) if message.encoding.startswith("rgb") else np.ascontiguousarray(out[:, :, :3])


def camera_info(ns: int, frame: str, rig: StereoRig, side: int) -> CameraInfo:
    """Intrinsics of the left (0) or right (1) camera of a parallel pair; P holds -fx times the baseline, as image_proc reads it."""
    c: Camera = rig.right if side else rig.left
    out = CameraInfo(header=header(ns, frame), height=c.height, width=c.width, distortion_model="plumb_bob")
    out.d = c.coefficients.tolist()
    out.k = c.matrix.ravel()
    out.r = np.eye(3).ravel()
    p = np.zeros((3, 4))
    p[:, :3] = c.matrix
    p[0, 3] = -c.fx * rig.baseline if side else 0.0
    out.p = p.ravel()
    return out
