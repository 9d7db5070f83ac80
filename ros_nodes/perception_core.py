"""From what cameras report to flights, without ROS: images or detections in, the tracker's state and the interception out."""

from dataclasses import dataclass, replace

import numpy as np

from perception.camera import PoseBuffer
from perception.errors import UserError
from perception.flight import fly
from perception.interception import FlightNoise, Interception, at_height
from perception.noise import NoiseCfg
from perception.pipeline import Pipeline, PipelineCfg, one_core
from perception.track import Track
from perception.tracker import Tracker
from perception.triangulation import eyes_of, sight
from ros_nodes.deploy import CameraMount
from ros_nodes.policy_core import WARM, WARM_BASE

Array = np.ndarray
POSES = 1.0  # [s] of base poses kept for exposures that come late
FROZEN = 30  # exposures in a row with the very same candidates, or the same images, that say so: half a second


@dataclass(frozen=True, eq=False)
class Seen:
    """What is known after an exposure at `ns`: the track, or None; seconds spent on detecting and tracking; note: what is wrong, or empty."""

    ns: int
    track: Track | None
    detect_s: float = 0.0
    track_s: float = 0.0
    note: str = ""


class PerceptionCore:
    """One camera pair on one robot. Feed base poses with `base`, then `detections` or `images`; exposures in the order of time."""

    def __init__(self, mount: CameraMount, noise: NoiseCfg | None = None) -> None:
        cfg = PipelineCfg()
        pixel = (noise or NoiseCfg.load()).measurement_sigma[0]
        self.mount, self.rig = mount, mount.rig
        self.cfg = cfg
        # detections of the noise model are as good as it says; a blob found in an image as good as the pipeline says
        self.tracker = Tracker(replace(cfg.tracker, stereo=replace(cfg.tracker.stereo, pixel_sigma=pixel)))
        self.pipeline = Pipeline(self.rig, cfg)
        self.poses = PoseBuffer(POSES)
        self.noise = FlightNoise(cfg.tracker.acceleration_noise, cfg.tracker.drift_noise)
        self.unplaced = 0
        self._last: Array | None = None
        self._same = 0
        one_core()

    def warm_up(self, height: float) -> bool:
        """Run everything once on a core of its own, for what compiles at first use; whether a flight was found that comes down."""
        core, level = PerceptionCore(self.mount), np.array([1.0, 0.0, 0.0, 0.0])
        path = fly(WARM[None, :3], WARM[None, 3:6], WARM[6:7], WARM[7:8], 0.016, 30)[0]
        found = False
        for n, x in enumerate(path):
            core.base(n * 16_000_000, WARM_BASE, level)
            track = core.detections(n * 16_000_000, self.mount.pose(WARM_BASE, level).apply(x[None, :3])).track
            if track is not None:
                found = core.interception(track, height) is not None
                core.path(track, 1.0)
        return found

    def base(self, ns: int, position: Array, quaternion: Array) -> None:
        """Pose of the base at ns, odom frame."""
        self.poses.add(ns * 1e-9, self.mount.pose(position, quaternion))

    def detections(self, ns: int, points: Array) -> Seen:
        """Candidates (M, 3) [m] of one exposure, in the left camera's optical frame."""
        pose = self.poses.at(ns * 1e-9)
        if pose is None:
            self.unplaced += 1
            return Seen(ns, None, note="where the camera was at that time is not known")
        points = points[np.isfinite(points).all(axis=1)]
        self._same = self._same + 1 if self._last is not None and len(points) and np.array_equal(points, self._last) else 0
        self._last = points
        eyes = eyes_of(self.rig, pose.rotation, pose.translation)
        right = points @ self.rig.right_from_left_rotation.T + self.rig.right_from_left_translation
        for side, (camera, seen) in enumerate(((self.rig.left, points), (self.rig.right, right))):
            pixels = camera.project(seen)
            self.tracker.add(sight(self.rig, side, ns * 1e-9, pixels, eyes, self.tracker.cfg.stereo))
        self.tracker.take_finished()  # else it keeps every flight of the day
        note = f"the same detections {self._same} times: frozen?" if self._same >= FROZEN else ""
        behind = int(np.sum(points[:, 2] <= 0))
        return Seen(ns, self.tracker.track, note=note or ("detections lie behind the camera: are left and right swapped?" if behind else ""))

    def images(self, ns: int, left: Array, right: Array) -> Seen:
        """Images (height, width, 3) uint8 of one exposure."""
        pose = self.poses.at(ns * 1e-9)
        if pose is None:
            self.unplaced += 1
            return Seen(ns, None, note="where the camera was at that time is not known")
        try:
            look = self.pipeline.look(ns * 1e-9, left, right, pose)
        except UserError as error:
            return Seen(ns, None, note=str(error))
        self.pipeline.tracker.take_finished()
        return Seen(ns, look.track, look.detect_s, look.track_s, "; ".join(self.pipeline.notes()))

    def interception(self, track: Track, height: float) -> Interception | None:
        """Where the track comes down through height [m]."""
        return at_height(track.time, track.state, track.covariance, height, 2.5, self.noise)

    def path(self, track: Track, seconds: float, step: float = 0.05) -> Array:
        """(N, 3) places of the flight from now on, every `step` [s]."""
        x = track.state[None]
        return fly(x[:, :3], x[:, 3:6], x[:, 6], x[:, 7], step, max(int(seconds / step), 1))[0, :, :3]
