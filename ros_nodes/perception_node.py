"""From cameras to flights: detections, or pairs of images, in; what the tracker knows, where it can be met, and a path to look at, out.

Stamps are times of exposure, on the robot's clock; `latency_offset` [s] is taken off those of cameras that stamp late.
"""

import pathlib
import time
from typing import Any

import numpy as np
from geometry_msgs.msg import PoseArray, PoseStamped
from nav_msgs.msg import Odometry, Path
from rclpy.node import Node
from sensor_msgs.msg import CameraInfo, Image
from std_msgs.msg import Float64MultiArray

from perception.errors import UserError
from policy import SHIPPED
from policy.inference import OnnxPolicy
from ros_nodes import topics
from ros_nodes.conversions import header, ns_of, odometry, pixels_of, place_of, points_of, pose, split_ns, vector
from ros_nodes.deploy import load_deploy
from ros_nodes.latency import Stage
from ros_nodes.perception_core import PerceptionCore, Seen
from ros_nodes.runtime import OK, WARN, Diagnostics, calm, parameter, run
from ros_nodes.watch import Source

UNIT = np.array([1.0, 0.0, 0.0, 0.0])
PATH_EVERY = 0.1  # [s] between paths: for people to look at
NOTED = 1.5  # [s] for which what was wrong with one exposure is said: longer than diagnostics are apart
HELD = 8  # images of each eye that wait for their partner, and exposures that wait for the base's pose
OLD = 0.2  # [s] past which an exposure is too old to be tracked: the tracker's memory


class PerceptionNode(Node):
    """Parameters: deploy, policy (file), vision (images instead of detections), height [m] at which shuttles are met (0: the policy's), latency_offset
    [s], lock_step."""

    def __init__(self) -> None:
        super().__init__("perception")
        deploy = load_deploy(parameter(self, "deploy", "anymal_dynaarm"))
        if deploy.camera is None:
            raise UserError(f"{deploy.path} has no camera; perception needs one")
        self.vision = parameter(self, "vision", False)
        self.lock_step = parameter(self, "lock_step", False)
        self.offset = round(parameter(self, "latency_offset", 0.0) * 1e9)
        policy = parameter(self, "policy", "")
        self.height = parameter(self, "height", 0.0) or OnnxPolicy(pathlib.Path(policy) if policy else SHIPPED).contract.scale.meet_height
        self.core = PerceptionCore(deploy.camera)
        self.digest = deploy.camera.digest
        self.source = Source("camera", 0.5, late=0.1, jump=0.5, latched=False)
        self.stages = {name: Stage() for name in ("exposure_to_arrival", "detect", "track", "arrival_to_flight")}
        self.note = self.info_note = ""
        self.seen = self.tracked = self.old = 0
        self._path_at = self._noted = 0.0
        self._pictures: tuple[dict[int, Any], dict[int, Any]] = ({}, {})
        self._base_ns = -1
        self._waiting: list[tuple[int, int, Any]] = []
        self.flights = self.create_publisher(Float64MultiArray, topics.FLIGHT_TOPIC, topics.FLIGHTS)
        self.tracks = self.create_publisher(Odometry, topics.TRACK, topics.FLIGHTS)
        self.interceptions = self.create_publisher(Odometry, topics.INTERCEPTION, topics.FLIGHTS)
        self.paths = self.create_publisher(Path, topics.PATH, topics.EVENTS)
        self.create_subscription(Odometry, topics.ODOM, self.on_odom, topics.FLIGHTS)
        if self.vision:
            for side in (0, 1):
                self.create_subscription(Image, topics.IMAGES[side], lambda m, s=side: self.on_image(s, m), topics.PICTURES)
                self.create_subscription(CameraInfo, topics.INFOS[side], lambda m, s=side: self.on_info(s, m), topics.PICTURES)
        else:
            self.create_subscription(PoseArray, topics.DETECTION, self.on_detection, topics.FLIGHTS)
        self.diagnostics = Diagnostics(self, self.statuses, self.digest)
        with calm():
            self.core.warm_up(self.height)

    # -- what arrives ---------------------------------------------------------------------------------------------------
    def on_odom(self, message: Odometry) -> None:
        """Where the base is."""
        ns = ns_of(message.header.stamp)
        if ns < self._base_ns - 5 * 10**8:  # the robot's clock was set back
            self.core = PerceptionCore(self.core.mount)
            self.source.reset()
        self._base_ns = ns
        self.core.base(ns, *place_of(message.pose.pose))
        while self._waiting and self._waiting[0][0] <= ns:
            self._look(*self._waiting.pop(0))

    def on_detection(self, message: PoseArray) -> None:
        """Candidates of one exposure."""
        self._take(ns_of(message.header.stamp) - self.offset, points_of(message))

    def on_image(self, side: int, message: Image) -> None:
        """One eye of a pair."""
        ns = ns_of(message.header.stamp) - self.offset
        mine, other = self._pictures[side], self._pictures[1 - side]
        mine[ns] = message
        if ns in other:
            pair = [mine.pop(ns), other.pop(ns)]
            try:
                left, right = (pixels_of(m) for m in (pair if side == 0 else pair[::-1]))
            except (UserError, ValueError) as error:
                self.note = str(error)
                return
            self._take(ns, (left, right))
        for held in self._pictures:
            while len(held) > HELD:
                del held[min(held)]

    def on_info(self, side: int, message: CameraInfo) -> None:
        """What the camera says of itself must be the rig it is taken for."""
        camera = self.core.rig.right if side else self.core.rig.left
        k = np.asarray(message.k).reshape(3, 3)
        said, ours = (message.width, message.height, k[0, 0], k[1, 1], k[0, 2], k[1, 2]), (camera.width, camera.height, camera.fx, camera.fy, camera.cx, camera.cy)
        baseline = -message.p[3] / message.p[0] if side and message.p[0] else self.core.rig.baseline
        if not np.allclose(said, ours, rtol=1e-3) or abs(baseline - self.core.rig.baseline) > 1e-3:
            self.info_note = (f"the {'right' if side else 'left'} camera says {message.width}x{message.height}, fx {k[0, 0]:.1f}, baseline {baseline:.3f} m; "
                              f"the rig {camera.width}x{camera.height}, fx {camera.fx:.1f}, baseline {self.core.rig.baseline:.3f} m")

    def _take(self, ns: int, what: Any) -> None:
        arrival = time.time_ns()
        self.source.take(time.monotonic(), ns * 1e-9)
        if not self.lock_step:
            self.stages["exposure_to_arrival"].add((arrival - ns) * 1e-6)
        if ns > self._base_ns:
            self._waiting = [*self._waiting[-HELD:], (ns, arrival, what)]
        else:
            self._look(ns, arrival, what)

    # -- what goes out --------------------------------------------------------------------------------------------------
    def _look(self, ns: int, arrival: int, what: Any) -> None:
        begin = time.perf_counter()
        self.seen += 1
        if self._base_ns - ns > OLD * 1e9 and not self.lock_step:
            self.old += 1
        seen = self.core.images(ns, *what) if isinstance(what, tuple) else self.core.detections(ns, what)
        if seen.note or time.monotonic() - self._noted > NOTED:
            self.note, self._noted = seen.note, time.monotonic()
        spent = (time.perf_counter() - begin) * 1e3
        self.stages["detect"].add(seen.detect_s * 1e3)
        self.stages["track"].add(seen.track_s * 1e3 if self.vision else spent)
        self._tell(ns, arrival, seen)
        if not self.lock_step:
            self.stages["arrival_to_flight"].add((time.time_ns() - arrival) * 1e-6)

    def _tell(self, ns: int, arrival: int, seen: Seen) -> None:
        track = seen.track
        data = np.zeros(topics.FLIGHT_SIZE)
        data[:4] = *split_ns(ns), *split_ns(arrival)
        if track is not None:
            self.tracked += 1
            data[4:6], data[6:14], data[14:] = (1.0, track.born), track.state, track.covariance.ravel()
        self.flights.publish(vector(data, ("stamps", 4), ("flight, birth", 2), ("state", 8), ("covariance", 64)))
        if track is None:
            return
        self.tracks.publish(odometry(ns, "odom", "shuttle", track.state[:3], UNIT, track.state[3:6], np.zeros(3), track.covariance[:6, :6]))
        meeting = self.core.interception(track, self.height)
        if meeting is None:
            return
        self.interceptions.publish(odometry(round(meeting.time * 1e9), "odom", "shuttle", meeting.place, UNIT, meeting.velocity, np.zeros(3),
                                            meeting.covariance[:6, :6]))
        if time.monotonic() - self._path_at > PATH_EVERY:
            self._path_at = time.monotonic()
            places = self.core.path(track, meeting.time - track.time)
            self.paths.publish(Path(header=header(ns, "odom"), poses=[PoseStamped(header=header(ns + k * 50_000_000, "odom"), pose=pose(p, UNIT))
                                                                      for k, p in enumerate(places)]))

    def statuses(self) -> list[tuple[str, Any, str, dict[str, Any]]]:
        """For /diagnostics."""
        problem = self.info_note or self.source.problem(time.monotonic()) or self.note
        out = [("camera", WARN if problem else OK, problem or "alive",
                {"rate_hz": self.source.rate, "jitter_ms": self.source.jitter * 1e3, "seen": self.seen, "tracked": self.tracked, "too_old": self.old,
                 "unplaced": self.core.unplaced, "rig": self.core.rig.name, "mount": self.digest})]
        return out + [(f"latency {name}", OK, "", stage.values()) for name, stage in self.stages.items()]


def main() -> int:
    """Entry point."""
    return run(PerceptionNode)


if __name__ == "__main__":
    raise SystemExit(main())
