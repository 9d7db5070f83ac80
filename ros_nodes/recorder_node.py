"""Everything into a rosbag2 MCAP, in a process of its own: raw CDR as it comes, so that a slow disk delays nobody.

Times in the bag are those of the robot's clock: stamps of what the robot sends, and for all else the latest of them. A killed recorder loses
half a second at most; a full disk ends the recording with a line in /diagnostics; what was written stays readable.
"""

import json
import shutil
import struct
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from perception.errors import UserError
from ros_nodes import topics
from ros_nodes.runtime import ERROR, OK, Diagnostics, parameter, run

LOOK = 0.2  # [s] between looks for new topics
FLUSH = 0.5  # [s] between chunks: what a kill may cost
LEAST_FREE = 200e6  # [bytes] of disk left at which recording ends by itself; our choice, room for everybody else to end well
ROBOT_STAMPED = (topics.JOINTS, topics.IMU, topics.ODOM, topics.DETECTION)
NEVER = ("/rosout", "/parameter_events")
STAMP = struct.Struct("<iI")  # a header's stamp, after four bytes of CDR encapsulation


class RecorderNode(Node):
    """Parameters: folder (of the bag, must not exist), images (record them too), facts (JSON for /birdie/metadata)."""

    def __init__(self) -> None:
        super().__init__("recorder")
        self.folder = Path(parameter(self, "folder", ""))
        self.images = parameter(self, "images", False)
        facts = parameter(self, "facts", "{}")
        if str(self.folder) == "." or self.folder.exists():
            raise UserError(f"the recorder needs a folder that does not exist yet; got '{self.folder}'")
        self.store = get_typestore(Stores.ROS2_KILTED)
        self.writer = Writer(self.folder, version=9, storage_plugin=StoragePlugin.MCAP)
        self.writer.set_compression(CompressionMode.STORAGE, CompressionFormat.ZSTD)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.writer.open()
        except OSError as error:
            raise UserError(f"cannot record to {self.folder}: {error.strerror}") from error
        self.stopped = ""
        self.count, self.bytes = 0, 0
        self._channels: dict[str, Any] = {}
        self._unknown: set[str] = set()
        self._now = 0
        self._flushed = self._looked = time.monotonic()
        self.next_tick = time.monotonic()
        text = self.store.types["std_msgs/msg/String"](json.dumps(json.loads(facts)))
        self._metadata = bytes(self.store.serialize_cdr(text, "std_msgs/msg/String"))
        self.diagnostics = Diagnostics(self, self.statuses)

    def tick(self) -> None:
        """Look for new topics, and write out what is held."""
        now = time.monotonic()
        self.next_tick = now + 0.05
        if self.stopped:
            return
        if now - self._looked > LOOK:
            self._looked = now
            self._look()
        if now - self._flushed > FLUSH:
            self._flushed = now
            self._guarded(self._flush)

    def _look(self) -> None:
        for topic, kinds in self.get_topic_names_and_types():
            if topic in self._channels or topic in self._unknown or topic in NEVER or ("/image" in topic and not self.images):
                continue
            package, _, name = kinds[0].split("/")
            if kinds[0] not in self.store.types:
                self._unknown.add(topic)
                continue
            infos = self.get_publishers_info_by_topic(topic)
            if not infos:
                continue
            reliable = all(i.qos_profile.reliability == ReliabilityPolicy.RELIABLE for i in infos)
            latched = all(i.qos_profile.durability == DurabilityPolicy.TRANSIENT_LOCAL for i in infos)
            qos = QoSProfile(depth=200, reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
                             durability=DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE)
            channel = self.writer.add_connection(topic, kinds[0], typestore=self.store)
            self._channels[topic] = channel
            stamped = topic.lstrip("/") in ROBOT_STAMPED or any(topic.endswith("/" + t) for t in ROBOT_STAMPED)
            self.create_subscription(getattr(import_module(f"{package}.msg"), name), topic,
                                     lambda data, c=channel, s=stamped: self._take(c, s, data), qos, raw=True)

    def _take(self, channel: Any, stamped: bool, data: bytes) -> None:
        if self.stopped:
            return
        if stamped:
            seconds, nanoseconds = STAMP.unpack_from(data, 4)
            when = seconds * 10**9 + nanoseconds
            self._now = max(self._now, when) if abs(when - self._now) < 10**9 else when
        else:
            when = self._now
        if not when:
            return  # the robot has not said yet what time it is
        if not self.count:
            first = self.writer.add_connection("/birdie/metadata", "std_msgs/msg/String", typestore=self.store)
            self._guarded(lambda: self.writer.write(first, when, self._metadata))
        self.count, self.bytes = self.count + 1, self.bytes + len(data)
        self._guarded(lambda: self.writer.write(channel, when, data))

    def _flush(self) -> None:
        storage: Any = self.writer.storage
        if storage.chunk.bio.tell():
            storage.close_chunk()
        storage.bio.flush()
        if shutil.disk_usage(self.folder).free < LEAST_FREE:
            raise OSError(28, f"less than {LEAST_FREE / 1e6:.0f} MB left on the disk")

    def _guarded(self, act: Any) -> None:
        try:
            act()
        except OSError as error:
            self.stopped = f"recording ended after {self.count} messages: {error.strerror or error}"
            self.get_logger().error(self.stopped)
            self.diagnostics.publish()

    def statuses(self) -> list[tuple[str, Any, str, dict[str, Any]]]:
        """For /diagnostics."""
        return [("recording", ERROR if self.stopped else OK, self.stopped or str(self.folder),
                 {"messages": self.count, "bytes": self.bytes, "topics": len(self._channels), "unknown_types": len(self._unknown)})]

    def finish(self, why: str) -> None:
        """Write the index, and metadata.yaml beside it."""
        if self.stopped:
            try:
                self.writer.storage.bio.close()  # type: ignore[union-attr]
            except OSError:
                pass
            return
        self.writer.close()


def main() -> int:
    """Entry point."""
    return run(RecorderNode)


if __name__ == "__main__":
    raise SystemExit(main())
