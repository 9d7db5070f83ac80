"""Writing rollouts as MCAP: one file of standard ROS 2 messages (CDR, profile "ros2"), for Foxglove, PlotJuggler, Rerun, `ros2 bag`.

Written as it goes, in chunks of at most half a second, so a killed run keeps all but its last second. docs/replay.md lists the topics. Numbers are
rounded to single precision, the policy's own, which halves the file; `exact` keeps them as they are.
`sim/rollout_reader.py` reads it back, and bags from elsewhere.
"""

import json
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from mcap.writer import CompressionType, Writer
from rosbags.typesys import Stores, get_typestore

CHUNK_BYTES = 1024 * 1024  # a chunk is closed by time, long before it holds so much
CHUNK_SECONDS = 0.5
Array = np.ndarray

_TYPES = get_typestore(Stores.ROS2_JAZZY)
_JointState = _TYPES.types["sensor_msgs/msg/JointState"]
_Odometry = _TYPES.types["nav_msgs/msg/Odometry"]
_PoseStamped = _TYPES.types["geometry_msgs/msg/PoseStamped"]
_TwistStamped = _TYPES.types["geometry_msgs/msg/TwistStamped"]
_Imu = _TYPES.types["sensor_msgs/msg/Imu"]
_PointStamped = _TYPES.types["geometry_msgs/msg/PointStamped"]
_PoseCovStamped = _TYPES.types["geometry_msgs/msg/PoseWithCovarianceStamped"]
_String = _TYPES.types["std_msgs/msg/String"]
_BatteryState = _TYPES.types["sensor_msgs/msg/BatteryState"]
_Header = _TYPES.types["std_msgs/msg/Header"]
_Time = _TYPES.types["builtin_interfaces/msg/Time"]
_Point = _TYPES.types["geometry_msgs/msg/Point"]
_Vector3 = _TYPES.types["geometry_msgs/msg/Vector3"]
_Quaternion = _TYPES.types["geometry_msgs/msg/Quaternion"]
_Pose = _TYPES.types["geometry_msgs/msg/Pose"]
_PoseCov = _TYPES.types["geometry_msgs/msg/PoseWithCovariance"]
_Twist = _TYPES.types["geometry_msgs/msg/Twist"]
_TwistCov = _TYPES.types["geometry_msgs/msg/TwistWithCovariance"]


def _header(t: float, frame: str) -> Any:
    ns = round(t * 1e9)
    return _Header(_Time(ns // 10**9, ns % 10**9), frame)


def _pose(p: Array, q_wxyz: Array) -> Any:
    return _Pose(_Point(*map(float, p)), _Quaternion(float(q_wxyz[1]), float(q_wxyz[2]), float(q_wxyz[3]), float(q_wxyz[0])))


def _covariance(covariance: Array | None) -> Array:
    """(36,) of ROS, position first, for a covariance (3, 3) of the position."""
    out = np.zeros((6, 6))
    if covariance is not None:
        out[:3, :3] = covariance
    return out.ravel()


def _odometry(t: float, child: str, p: Array, q: Array, v: Array, w: Array, place: Array | None = None, speed: Array | None = None) -> Any:
    twist = _Twist(_Vector3(*map(float, v)), _Vector3(*map(float, w)))
    return _Odometry(_header(t, "court"), child, _PoseCov(_pose(p, q), _covariance(place)), _TwistCov(twist, _covariance(speed)))


def facing(normal: Array) -> Array:
    """Quaternion (w, x, y, z) that turns the x axis onto a unit normal (3,)."""
    half = normal + [1.0, 0.0, 0.0]
    if half @ half < 1e-12:
        return np.array([0.0, 0.0, 0.0, 1.0])
    half = half / np.linalg.norm(half)
    return np.array([half[0], 0.0, -half[2], half[1]])


class RolloutWriter:
    """Writes one rollout; use as a context manager. metadata: JSON-able facts (contract, seed, commit, robot). exact: do not round."""

    def __init__(self, path: Path, metadata: dict[str, Any], exact: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb")
        self._writer = Writer(self._file, chunk_size=CHUNK_BYTES, compression=CompressionType.ZSTD)
        self._writer.start(profile="ros2", library="birdie")
        self._channels: dict[str, int] = {}
        self._schemas: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        self._exact = exact
        self._chunk_since = 0.0
        self.text(0.0, "/birdie/metadata", json.dumps(metadata))
        self._end_chunk()  # what the recording is of must be there whatever happens next

    def __enter__(self) -> "RolloutWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Finish the index and close the file."""
        if not self._file.closed:
            self._writer.finish()
            self._file.close()

    def _end_chunk(self) -> None:
        # mcap closes chunks by size alone; a slow recording would lie in memory for long, and be lost with the process
        self._writer._Writer__finalize_chunk()  # type: ignore[attr-defined]
        self._file.flush()

    def _write(self, t: float, topic: str, kind: str, message: Any) -> None:
        if topic not in self._channels:
            if kind not in self._schemas:
                definition, _ = _TYPES.generate_msgdef(kind, ros_version=2)
                self._schemas[kind] = self._writer.register_schema(kind, "ros2msg", definition.encode())
            self._channels[topic] = self._writer.register_channel(topic, "cdr", self._schemas[kind])
        if t - self._chunk_since >= CHUNK_SECONDS or t < self._chunk_since:
            self._end_chunk()
            self._chunk_since = t
        ns, number = round(t * 1e9), self._numbers.get(topic, 0)
        self._numbers[topic] = number + 1
        self._writer.add_message(self._channels[topic], ns, bytes(_TYPES.serialize_cdr(message, kind)), ns, number)

    def _array(self, values: Array | None) -> Array:
        if values is None:
            return np.zeros(0)
        return np.asarray(values, float) if self._exact else np.asarray(values, np.float32).astype(float)

    def text(self, t: float, topic: str, data: str) -> None:
        """A std_msgs/String at time t [s]."""
        self._write(t, topic, "std_msgs/msg/String", _String(data))

    def event(self, t: float, **facts: Any) -> None:
        """Something that happened, on /events."""
        self.text(t, "/events", json.dumps(facts))

    def joints(self, t: float, topic: str, names: tuple[str, ...], q: Array, qd: Array | None = None, effort: Array | None = None) -> None:
        """Joint angles [rad], speeds [rad/s], torques [N m]."""
        self._write(t, topic, "sensor_msgs/msg/JointState",
                    _JointState(_header(t, ""), list(names), self._array(q), self._array(qd), self._array(effort)))

    def values(self, t: float, topic: str, values: dict[str, float], effort: Array | None = None) -> None:
        """Named numbers, as the positions of a JointState: what plots them by name needs no message of ours."""
        self.joints(t, topic, tuple(values), np.array(list(values.values()), float), effort=effort)

    def odometry(self, t: float, topic: str, child: str, p: Array, q: Array, v: Array, w: Array, place: Array | None = None,
                 speed: Array | None = None) -> None:
        """Pose in the court frame [m, (w, x, y, z)], twist in the child frame [m/s, rad/s]; place, speed: covariances (3, 3), zero if unknown."""
        self._write(t, topic, "nav_msgs/msg/Odometry", _odometry(
            t, child, self._array(p), self._array(q), self._array(v), self._array(w), place, speed))

    def imu(self, t: float, topic: str, turning: Array, acceleration: Array) -> None:
        """Turn rate (3,) [rad/s] and specific force (3,) [m/s^2] in the base frame; no orientation, which the covariance says."""
        none = np.zeros(9)
        none[0] = -1.0
        self._write(t, topic, "sensor_msgs/msg/Imu", _Imu(
            _header(t, "base"), _Quaternion(0.0, 0.0, 0.0, 1.0), none, _Vector3(*map(float, self._array(turning))), np.zeros(9),
            _Vector3(*map(float, self._array(acceleration))), np.zeros(9)))

    def point(self, t: float, topic: str, p: Array) -> None:
        """A place (3,) [m, court frame]."""
        self._write(t, topic, "geometry_msgs/msg/PointStamped", _PointStamped(_header(t, "court"), _Point(*map(float, self._array(p)))))

    def place(self, t: float, topic: str, p: Array, covariance: Array) -> None:
        """A place (3,) [m, court frame] with covariance (3, 3), no orientation."""
        pose = _PoseCov(_pose(self._array(p), np.array([1.0, 0, 0, 0])), _covariance(covariance))
        self._write(t, topic, "geometry_msgs/msg/PoseWithCovarianceStamped", _PoseCovStamped(_header(t, "court"), pose))

    def pose(self, t: float, topic: str, p: Array, normal: Array) -> None:
        """A face at p (3,) [m, court frame] whose normal (3,) is the pose's x axis."""
        self._write(t, topic, "geometry_msgs/msg/PoseStamped", _PoseStamped(_header(t, "court"), _pose(self._array(p), self._array(facing(normal)))))

    def velocity(self, t: float, topic: str, v: Array) -> None:
        """A velocity (3,) [m/s] in the court frame."""
        twist = _Twist(_Vector3(*map(float, self._array(v))), _Vector3(0.0, 0.0, 0.0))
        self._write(t, topic, "geometry_msgs/msg/TwistStamped", _TwistStamped(_header(t, "court"), twist))

    def supply(self, t: float, topic: str, voltage: float, current: float) -> None:
        """What a supply delivers [V, A]; the message counts a current that is drawn as negative."""
        unknown, none = float("nan"), np.zeros(0, np.float32)
        self._write(t, topic, "sensor_msgs/msg/BatteryState", _BatteryState(
            _header(t, ""), voltage, unknown, -current, unknown, unknown, unknown, unknown, 0, 0, 0, True, none, none, "", ""))
