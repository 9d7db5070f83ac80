"""Reading rollouts: our own MCAP files, cut ones up to the cut, and plain ROS 2 bags of others (MCAP or sqlite3).

What a bag must have is /joint_states. Without /odom or a /tf of the base the robot stands at its home; everything else is optional. Series of
different rates are brought to the times of /joint_states by holding the last value, as a robot's own clock would see them.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from mcap.reader import NonSeekingReader
from rosbags.highlevel import AnyReader
from rosbags.typesys import Stores, get_typestore

from perception.errors import UserError

Array = np.ndarray

_TYPES = get_typestore(Stores.ROS2_JAZZY)
HOLD = 0.1  # [s] for which a value stays true without a new one: a shuttle or command that has not been repeated since is gone


@dataclass(frozen=True, eq=False)
class Series:
    """Rows over time: time (T,) [s], values (T, K), names (K,) where columns have any."""

    time: Array
    values: Array
    names: tuple[str, ...] = ()

    def at(self, times: Array, hold: float = HOLD) -> Array:
        """(len(times), K): the last row not older than hold [s], nan where there is none."""
        index = np.searchsorted(self.time, times + 1e-9, side="right") - 1
        out = self.values[np.maximum(index, 0)].astype(float)
        old = (index < 0) | (times - self.time[np.maximum(index, 0)] > hold)
        out[old] = np.nan
        return out


@dataclass
class Rollout:
    """A recording in arrays. time (T,) [s]; joint_names; q, qd, torque, target (T, J) [rad, rad/s, N m, rad], nan where not recorded;
    base (T, 7): position [m] and quaternion (w, x, y, z); shuttle (T, 3), nan while none is in the air; strike (T, 6): commanded place and
    normal, nan while there is none; racket (T, 6): the true one; track, interception (T, 12): place and covariance (3, 3) by row;
    events: (time, facts); series: everything with numbers, by topic; complete: False when the file was cut off; notes: what is missing or was
    made up."""

    metadata: dict[str, Any] = field(default_factory=dict)
    time: Array = field(default_factory=lambda: np.zeros(0))
    joint_names: tuple[str, ...] = ()
    q: Array = field(default_factory=lambda: np.zeros((0, 0)))
    qd: Array = field(default_factory=lambda: np.zeros((0, 0)))
    torque: Array = field(default_factory=lambda: np.zeros((0, 0)))
    target: Array = field(default_factory=lambda: np.zeros((0, 0)))
    base: Array = field(default_factory=lambda: np.zeros((0, 7)))
    shuttle: Array = field(default_factory=lambda: np.zeros((0, 3)))
    strike: Array = field(default_factory=lambda: np.zeros((0, 6)))
    racket: Array = field(default_factory=lambda: np.zeros((0, 6)))
    track: Array = field(default_factory=lambda: np.zeros((0, 12)))
    interception: Array = field(default_factory=lambda: np.zeros((0, 12)))
    events: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    series: dict[str, Series] = field(default_factory=dict)
    complete: bool = True
    notes: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """From the first to the last sample [s]."""
        return float(self.time[-1] - self.time[0])

    def of(self, kind: str) -> Array:
        """Times (K,) [s] of the events of a kind."""
        return np.array([t for t, e in self.events if e.get("event") == kind])

    def cut(self, begin: float | None, end: float | None) -> "Rollout":
        """The part from begin to end [s] after the start. Raises UserError where nothing is left."""
        first = self.time[0]
        low = first if begin is None else first + begin
        high = self.time[-1] if end is None else first + end
        rows = (self.time >= low - 1e-9) & (self.time <= high + 1e-9)
        if rows.sum() < 2:
            raise UserError(f"nothing is left from {low - first:g} to {high - first:g} s; the recording is {self.seconds:.1f} s long")
        arrays = {k: v[rows] for k, v in vars(self).items() if isinstance(v, np.ndarray)}
        return Rollout(**{**vars(self), **arrays, "events": [(t, e) for t, e in self.events if low <= t <= high]})

    def swing(self, number: int) -> "Rollout":
        """The part around swing `number`, 1 for the first: from 1.5 s before its strike to 1 s after."""
        strikes = self.of("strike")
        if not 1 <= number <= len(strikes):
            raise UserError(f"there is no swing {number}; the recording holds {len(strikes)}")
        t = float(strikes[number - 1] - self.time[0])
        return self.cut(max(t - 1.5, 0.0), t + 1.0)


def _own(path: Path) -> Iterator[tuple[str, float, str, Any]]:
    with path.open("rb") as file:
        for schema, channel, message in NonSeekingReader(file).iter_messages(log_time_order=False):
            if schema is None or schema.name not in _TYPES.types:
                continue
            yield channel.topic, message.log_time * 1e-9, schema.name, _TYPES.deserialize_cdr(message.data, schema.name)


def _bag(path: Path) -> Iterator[tuple[str, float, str, Any]]:
    with AnyReader([path], default_typestore=_TYPES) as reader:
        for connection, stamp, raw in reader.messages():
            if connection.msgtype in _KINDS:
                yield connection.topic, stamp * 1e-9, connection.msgtype, reader.deserialize(raw, connection.msgtype)


def _vector(v: Any) -> list[float]:
    return [v.x, v.y, v.z]


def _turn(q: Any) -> list[float]:
    return [q.w, q.x, q.y, q.z]


def _joint_state(m: Any) -> list[float]:
    n = len(m.name)
    return [*m.position, *([np.nan] * (n - len(m.position))), *m.velocity, *([np.nan] * (n - len(m.velocity))), *m.effort, *([np.nan] * (n - len(m.effort)))]


_KINDS: dict[str, Any] = {
    "sensor_msgs/msg/JointState": _joint_state,
    "nav_msgs/msg/Odometry": lambda m: [*_vector(m.pose.pose.position), *_turn(m.pose.pose.orientation), *_vector(m.twist.twist.linear),
                                        *_vector(m.twist.twist.angular), *np.asarray(m.pose.covariance).reshape(6, 6)[:3, :3].ravel()],
    "sensor_msgs/msg/Imu": lambda m: [*_vector(m.angular_velocity), *_vector(m.linear_acceleration)],
    "geometry_msgs/msg/PointStamped": lambda m: _vector(m.point),
    "geometry_msgs/msg/PoseStamped": lambda m: [*_vector(m.pose.position), *_turn(m.pose.orientation)],
    "geometry_msgs/msg/PoseWithCovarianceStamped": lambda m: [*_vector(m.pose.pose.position), *_turn(m.pose.pose.orientation),
                                                              *np.asarray(m.pose.covariance).reshape(6, 6)[:3, :3].ravel()],
    "geometry_msgs/msg/TwistStamped": lambda m: [*_vector(m.twist.linear), *_vector(m.twist.angular)],
    "sensor_msgs/msg/BatteryState": lambda m: [m.voltage, -m.current],
    "std_msgs/msg/String": None,
    "tf2_msgs/msg/TFMessage": None,
}


def read_rollout(path: Path) -> Rollout:
    """Read a recording, up to the cut where it was cut off, or a ROS 2 bag. Raises UserError when nothing of it can be read."""
    if not path.exists():
        raise UserError(f"no recording {path}; birdie play writes runs/play/<time>/rollout.mcap")
    if path.is_file() and path.stat().st_size == 0:
        raise UserError(f"{path} is empty: nothing was recorded, or the disk was full")
    bag = path.is_dir() or path.suffix == ".db3"
    rows: dict[str, list[tuple[float, list[float]]]] = defaultdict(list)
    names: dict[str, tuple[str, ...]] = {}
    out, seen = Rollout(), Counter[str]()
    try:
        for topic, t, kind, message in (_bag(path.parent if path.suffix == ".db3" else path) if bag else _own(path)):
            seen[topic] += 1
            if kind == "std_msgs/msg/String":
                _text(out, topic, t, message.data)
            elif kind == "tf2_msgs/msg/TFMessage":
                for transform in message.transforms:
                    if transform.child_frame_id.strip("/") in ("base", "base_link", "trunk"):
                        rows["/tf"].append((t, [*_vector(transform.transform.translation), *_turn(transform.transform.rotation)]))
            elif _KINDS.get(kind) is not None:
                if kind == "sensor_msgs/msg/JointState":
                    given = tuple(message.name)
                    if names.setdefault(topic, given) != given:
                        continue  # the same topic with other joints: the first set is the robot's
                rows[topic].append((t, _KINDS[kind](message)))
    except Exception as error:  # a cut can fall anywhere, and each place makes mcap, zstd, sqlite or struct raise something else
        out.complete = False
        if not rows["/joint_states"]:
            raise UserError(f"{path} is no readable recording: {(str(error) or type(error).__name__).splitlines()[0]}") from error
    if not rows["/joint_states"]:
        what = ", ".join(sorted(seen)[:6]) or "nothing"
        raise UserError(f"{path} holds no /joint_states; nothing to replay (it holds {what})")
    for topic, content in rows.items():
        content.sort(key=lambda row: row[0])
        out.series[topic] = Series(np.array([t for t, _ in content]), np.array([v for _, v in content], float), names.get(topic, ()))
    _arrange(out)
    return out


def _text(out: Rollout, topic: str, t: float, data: str) -> None:
    if topic not in ("/events", "/birdie/metadata"):
        return
    try:
        facts = json.loads(data)
    except json.JSONDecodeError:
        out.notes.append(f"a message on {topic} is no JSON and was left out")
        return
    if topic == "/events":
        out.events.append((t, facts))
    else:
        out.metadata = facts


def _arrange(out: Rollout) -> None:
    """Fill the arrays at the times of /joint_states."""
    joints = out.series["/joint_states"]
    n = len(joints.names)
    out.joint_names, out.time = joints.names, joints.time
    out.q, out.qd, out.torque = joints.values[:, :n], joints.values[:, n:2 * n], joints.values[:, 2 * n:]
    none = np.full((len(out.time), n), np.nan)
    targets = out.series.get("/joint_targets")
    out.target = none
    if targets is not None:
        place = [targets.names.index(name) if name in targets.names else -1 for name in out.joint_names]
        values = targets.at(out.time)
        out.target = np.column_stack([values[:, p] if p >= 0 else np.full(len(out.time), np.nan) for p in place])
    base = out.series.get("/odom") or out.series.get("/tf")
    if base is None:
        out.base = np.full((len(out.time), 7), np.nan)
        out.notes.append("no /odom and no /tf of the base: the robot is shown standing at its home")
    else:
        out.base = base.at(out.time, np.inf)[:, :7]
        first = np.flatnonzero(np.isfinite(out.base[:, 0]))
        out.base[: first[0]] = out.base[first[0]]  # joints that came before the first pose

    def rows(topic: str, columns: int) -> Array:
        s = out.series.get(topic)
        return np.full((len(out.time), columns), np.nan) if s is None else s.at(out.time)[:, :columns]

    out.shuttle = rows("/shuttle/odom", 3)
    out.strike, out.racket = _faces(rows("/strike/pose", 7)), _faces(rows("/racket/pose", 7))
    track, meeting = rows("/shuttle/track", 22), rows("/shuttle/interception", 16)
    out.track = np.column_stack([track[:, :3], track[:, 13:22]])
    out.interception = np.column_stack([meeting[:, :3], meeting[:, 7:16]])
    out.events.sort(key=lambda e: e[0])


def _faces(pose: Array) -> Array:
    """(T, 6) centre and normal for poses (T, 7) whose x axis is the normal."""
    w, x, y, z = pose[:, 3:].T
    return np.column_stack([pose[:, :3], 1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y)])


def describe(rollout: Rollout) -> dict[str, Any]:
    """What a recording holds: seconds, samples, events by kind, topics, complete, notes, metadata."""
    kinds = Counter(str(e.get("event")) for _, e in rollout.events)
    return {"seconds": rollout.seconds, "samples": len(rollout.time), "events": dict(kinds), "topics": sorted(rollout.series), "complete": rollout.complete,
            "notes": rollout.notes, "metadata": {k: v for k, v in rollout.metadata.items() if k != "contract"}}
