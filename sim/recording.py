"""Rollout <-> MCAP. One file of standard ROS 2 messages (CDR, profile "ros2"): Foxglove, PlotJuggler and `ros2 bag` open it.

Written as it goes, in chunks of about a second, so a killed run keeps all but its last second; a file that was cut off
is read up to the cut. Topics: /joint_states, /joint_targets, /odom (base), /shuttle/odom (truth), /racket/pose,
/strike/pose and /strike/twist (the command), /events (JSON text), /birdie/metadata (JSON text, first message).
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from mcap.reader import NonSeekingReader
from mcap.writer import CompressionType, Writer
from rosbags.typesys import Stores, get_typestore

from perception.errors import UserError

CHUNK_BYTES = 64 * 1024  # about one second of a rollout at 50 Hz
Array = np.ndarray

_TYPES = get_typestore(Stores.ROS2_JAZZY)
_JointState = _TYPES.types["sensor_msgs/msg/JointState"]
_Odometry = _TYPES.types["nav_msgs/msg/Odometry"]
_PoseStamped = _TYPES.types["geometry_msgs/msg/PoseStamped"]
_TwistStamped = _TYPES.types["geometry_msgs/msg/TwistStamped"]
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


def _odometry(t: float, child: str, p: Array, q: Array, v: Array, w: Array) -> Any:
    zero = np.zeros(36)
    twist = _Twist(_Vector3(*map(float, v)), _Vector3(*map(float, w)))
    return _Odometry(_header(t, "court"), child, _PoseCov(_pose(p, q), zero), _TwistCov(twist, zero))


def facing(normal: Array) -> Array:
    """Quaternion (w, x, y, z) that turns the x axis onto a unit normal (3,)."""
    half = normal + [1.0, 0.0, 0.0]
    if half @ half < 1e-12:
        return np.array([0.0, 0.0, 0.0, 1.0])
    half = half / np.linalg.norm(half)
    return np.array([half[0], 0.0, -half[2], half[1]])


class RolloutWriter:
    """Writes one rollout; use as a context manager. metadata: JSON-able facts (contract, seed, commit, robot)."""

    def __init__(self, path: Path, metadata: dict[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb")
        self._writer = Writer(self._file, chunk_size=CHUNK_BYTES, compression=CompressionType.ZSTD)
        self._writer.start(profile="ros2", library="birdie")
        self._channels: dict[str, int] = {}
        self._schemas: dict[str, int] = {}
        self.text(0.0, "/birdie/metadata", json.dumps(metadata))

    def __enter__(self) -> "RolloutWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Finish the index and close the file."""
        if not self._file.closed:
            self._writer.finish()
            self._file.close()

    def _write(self, t: float, topic: str, kind: str, message: Any) -> None:
        if topic not in self._channels:
            if kind not in self._schemas:
                definition, _ = _TYPES.generate_msgdef(kind, ros_version=2)
                self._schemas[kind] = self._writer.register_schema(kind, "ros2msg", definition.encode())
            self._channels[topic] = self._writer.register_channel(topic, "cdr", self._schemas[kind])
        ns = round(t * 1e9)
        self._writer.add_message(self._channels[topic], ns, bytes(_TYPES.serialize_cdr(message, kind)), ns)

    def text(self, t: float, topic: str, data: str) -> None:
        """A std_msgs/String at time t [s]."""
        self._write(t, topic, "std_msgs/msg/String", _String(data))

    def event(self, t: float, **facts: Any) -> None:
        """Something that happened, on /events."""
        self.text(t, "/events", json.dumps(facts))

    def joints(self, t: float, topic: str, names: tuple[str, ...], q: Array, qd: Array | None = None, effort: Array | None = None) -> None:
        """Joint angles [rad], speeds [rad/s], torques [N m]."""
        empty = np.zeros(0)
        message = _JointState(_header(t, ""), list(names), np.asarray(q, float), empty if qd is None else np.asarray(qd, float),
                              empty if effort is None else np.asarray(effort, float))
        self._write(t, topic, "sensor_msgs/msg/JointState", message)

    def odometry(self, t: float, topic: str, child: str, p: Array, q: Array, v: Array, w: Array) -> None:
        """Pose in the court frame [m, (w, x, y, z)], twist in the child frame [m/s, rad/s]."""
        self._write(t, topic, "nav_msgs/msg/Odometry", _odometry(t, child, p, q, v, w))

    def pose(self, t: float, topic: str, p: Array, normal: Array) -> None:
        """A face at p (3,) [m, court frame] whose normal (3,) is the pose's x axis."""
        self._write(t, topic, "geometry_msgs/msg/PoseStamped", _PoseStamped(_header(t, "court"), _pose(p, facing(normal))))

    def velocity(self, t: float, topic: str, v: Array) -> None:
        """A velocity (3,) [m/s] in the court frame."""
        twist = _Twist(_Vector3(*map(float, v)), _Vector3(0.0, 0.0, 0.0))
        self._write(t, topic, "geometry_msgs/msg/TwistStamped", _TwistStamped(_header(t, "court"), twist))

    def supply(self, t: float, topic: str, voltage: float, current: float) -> None:
        """What a supply delivers [V, A]; the message counts a current that is drawn as negative."""
        unknown, none = float("nan"), np.zeros(0, np.float32)
        self._write(t, topic, "sensor_msgs/msg/BatteryState", _BatteryState(
            _header(t, ""), voltage, unknown, -current, unknown, unknown, unknown, unknown, 0, 0, 0, True, none, none, "", ""))


@dataclass
class Rollout:
    """A recording in arrays. time (T,) [s]; joint_names; q (T, J) [rad]; base (T, 7): position and quaternion (w, x, y, z);
    shuttle (T, 3), nan while none is in the air; strike (T, 6): commanded place and normal, nan while there is none;
    events: (time, facts); complete: False when the file was cut off."""

    metadata: dict[str, Any] = field(default_factory=dict)
    time: Array = field(default_factory=lambda: np.zeros(0))
    joint_names: tuple[str, ...] = ()
    q: Array = field(default_factory=lambda: np.zeros((0, 0)))
    base: Array = field(default_factory=lambda: np.zeros((0, 7)))
    shuttle: Array = field(default_factory=lambda: np.zeros((0, 3)))
    strike: Array = field(default_factory=lambda: np.zeros((0, 6)))
    events: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    complete: bool = True


def _messages(path: Path) -> Iterator[tuple[str, float, Any]]:
    with path.open("rb") as file:
        for schema, channel, message in NonSeekingReader(file).iter_messages(log_time_order=False):
            assert schema is not None
            yield channel.topic, message.log_time * 1e-9, _TYPES.deserialize_cdr(message.data, schema.name)


def _frame(pose: Any) -> tuple[Array, Array]:
    p, q = pose.position, pose.orientation
    return np.array([p.x, p.y, p.z]), np.array([q.w, q.x, q.y, q.z])


def read_rollout(path: Path) -> Rollout:
    """Read a recording, up to the cut where it was cut off. Raises UserError when nothing of it can be read."""
    if not path.is_file():
        raise UserError(f"no recording {path}; birdie play writes runs/play/<time>/rollout.mcap")
    rows: dict[float, dict[str, Any]] = {}
    out = Rollout()
    try:
        for topic, t, message in _messages(path):
            row = rows.setdefault(t, {})
            if topic == "/joint_states":
                out.joint_names = tuple(message.name)
                row["q"] = np.array(message.position)
            elif topic == "/odom":
                row["base"] = np.concatenate(_frame(message.pose.pose))
            elif topic == "/shuttle/odom":
                row["shuttle"] = _frame(message.pose.pose)[0]
            elif topic == "/strike/pose":
                p, (w, x, y, z) = _frame(message.pose)
                row["strike"] = np.array([*p, 1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y)])
            elif topic == "/events":
                out.events.append((t, json.loads(message.data)))
            elif topic == "/birdie/metadata":
                out.metadata = json.loads(message.data)
    except Exception as error:  # a cut can fall anywhere, and each place makes mcap, zstd or struct raise something else
        out.complete = False
        if not any("q" in r for r in rows.values()):
            raise UserError(f"{path} is no readable recording: {(str(error) or type(error).__name__).splitlines()[0]}") from error
    times = [t for t in sorted(rows) if "q" in rows[t] and "base" in rows[t]]
    if not times:
        raise UserError(f"{path} holds no /joint_states with /odom; nothing to replay")
    out.time = np.array(times)
    out.q = np.array([rows[t]["q"] for t in times])
    out.base = np.array([rows[t]["base"] for t in times])
    out.shuttle = np.array([rows[t].get("shuttle", np.full(3, np.nan)) for t in times])
    out.strike = np.array([rows[t].get("strike", np.full(6, np.nan)) for t in times])
    return out


def check_complete(path: Path, up_to_cut: bool = False) -> dict[str, Any]:
    """What a recording holds, before anything is written from it: seconds, samples, events by kind, complete, metadata.

    Raises UserError for one that was cut off, unless up_to_cut.
    """
    rollout = read_rollout(path)
    seconds = float(rollout.time[-1] - rollout.time[0])
    if not rollout.complete and not up_to_cut:
        raise UserError(f"{path} was cut off after {seconds:.1f} s; --up-to-cut shows what is there")
    kinds = Counter(str(e.get("event")) for _, e in rollout.events)
    return {"seconds": seconds, "samples": len(rollout.time), "events": dict(kinds), "complete": rollout.complete,
            "metadata": {k: v for k, v in rollout.metadata.items() if k != "contract"}}
