"""Cameras and stereo rigs: pinhole with distortion, in OpenCV's conventions, and poses with time.

Camera frame: x right, y down, z forward. A rig is two cameras and the place of its left one: fixed in the world for a pair in
the corners of a court, or moving with a robot, whose poses a `PoseBuffer` holds. Files are YAML; the JSON form of a pair given
by its two world poses is read too. Needs numpy and OpenCV only.
"""

import bisect
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import yaml

from perception.errors import UserError

Array = np.ndarray
UNDISTORT_STEPS = 60  # iterations; OpenCV's default of 5 leaves whole pixels near the corners of a wide lens
_NO_TURN = np.eye(3)
UNDISTORT_ERROR = 0.1  # [px] that a pixel may miss itself by when projected back, our choice: a fifth of the noise of a centroid


@dataclass(frozen=True)
class Camera:
    """One camera. width, height, fx, fy, cx, cy [px]; distortion: k1 k2 p1 p2 k3 in OpenCV's order, () for none."""

    width: int
    height: int
    fx: float
    fy: float
    cx: float
    cy: float
    distortion: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.width < 1 or self.height < 1 or self.fx <= 0 or self.fy <= 0:
            raise UserError(f"a camera needs a positive size and focal length; got {self.width} x {self.height}, "
                            f"fx {self.fx}, fy {self.fy}")
        if len(self.distortion) not in (0, 4, 5):  # the rational model can turn rectified images upside down
            raise UserError(f"distortion has {len(self.distortion)} numbers; give none, 4 or 5 (k1 k2 p1 p2 k3)")

    @property
    def matrix(self) -> Array:
        """(3, 3) intrinsic matrix."""
        return np.array([[self.fx, 0.0, self.cx], [0.0, self.fy, self.cy], [0.0, 0.0, 1.0]])

    @property
    def coefficients(self) -> Array:
        """(5,) distortion as OpenCV takes it."""
        return np.array((*self.distortion, *(0.0,) * (5 - len(self.distortion))))

    def project(self, points_c: Array) -> Array:
        """Pixels (N, 2) of points (N, 3) in the camera frame [m]; nan for points at or behind the lens."""
        points = np.asarray(points_c, float).reshape(-1, 3)
        z = np.where(points[:, 2] > 1e-9, points[:, 2], np.nan)
        x, y = points[:, 0] / z, points[:, 1] / z
        if self.distortion:
            k1, k2, p1, p2, k3 = self.coefficients
            r2 = x * x + y * y
            radial = 1 + r2 * (k1 + r2 * (k2 + r2 * k3))
            x, y = (x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x), y * radial + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y)
        return np.stack([self.fx * x + self.cx, self.fy * y + self.cy], axis=1)

    def undistort(self, pixels: Array) -> Array:
        """Normalised image coordinates (N, 2) of pixels (N, 2): x / z, y / z of the ray, free of distortion.

        nan where the distortion cannot be undone: far out, a polynomial folds back, and OpenCV returns what it has.
        """
        points = np.ascontiguousarray(np.asarray(pixels, float).reshape(-1, 2))  # integers would give garbage, opencv#24394
        if not self.distortion or len(points) == 0:
            return (points - [self.cx, self.cy]) / [self.fx, self.fy]
        criteria = (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, UNDISTORT_STEPS, 1e-10)
        out = cv2.undistortPoints(points[:, None], self.matrix, self.coefficients, criteria=criteria)
        flat = np.asarray(out, float).reshape(-1, 2)
        back = self.project(np.column_stack([flat, np.ones(len(flat))]))
        flat[~(np.abs(back - points).max(axis=1) < UNDISTORT_ERROR)] = np.nan
        return flat

    def rays(self, pixels: Array) -> Array:
        """Unit vectors (N, 3) in the camera frame through pixels (N, 2)."""
        flat = self.undistort(pixels)
        rays = np.column_stack([flat, np.ones(len(flat))])
        return rays / np.linalg.norm(rays, axis=1, keepdims=True)

    def inside(self, pixels: Array, margin: float = 0.0) -> Array:
        """(N,) whether pixels (N, 2) lie in the image, margin [px] off its edge; False for nan."""
        p = np.asarray(pixels, float)
        with np.errstate(invalid="ignore"):
            return ((p[:, 0] >= margin) & (p[:, 0] <= self.width - 1 - margin)
                    & (p[:, 1] >= margin) & (p[:, 1] <= self.height - 1 - margin))


@dataclass(frozen=True)
class Pose:
    """Where a rig is: x_left = rotation @ x_world + translation. rotation (3, 3), translation (3,) [m]."""

    rotation: Array = field(default_factory=lambda: np.eye(3))
    translation: Array = field(default_factory=lambda: np.zeros(3))

    @property
    def centre(self) -> Array:
        """(3,) place of the left camera in the world [m]."""
        return -self.rotation.T @ self.translation

    def apply(self, points_w: Array) -> Array:
        """Points (N, 3) of the world in the left camera's frame."""
        return np.asarray(points_w, float) @ self.rotation.T + self.translation

    @staticmethod
    def of_camera(centre: Array, world_from_camera: Array) -> "Pose":
        """From the camera's place (3,) [m] and its axes in the world (3, 3)."""
        rotation = np.asarray(world_from_camera, float).T
        return Pose(rotation, -rotation @ np.asarray(centre, float))


@dataclass(frozen=True)
class StereoRig:
    """Two cameras, x_right = right_from_left_rotation @ x_left + right_from_left_translation [m], OpenCV's convention; the left
    one in the world by left_from_world_rotation, _translation. fps [1/s]; time_offset_s [s]: the right camera's clock less the
    left's."""

    left: Camera
    right: Camera
    right_from_left_rotation: Array
    right_from_left_translation: Array
    left_from_world_rotation: Array = field(default_factory=lambda: np.eye(3))
    left_from_world_translation: Array = field(default_factory=lambda: np.zeros(3))
    name: str = "rig"
    fps: float = 0.0
    time_offset_s: float = 0.0

    def __post_init__(self) -> None:
        for what in ("right_from_left_rotation", "left_from_world_rotation"):
            rotation = getattr(self, what)
            if rotation.shape != (3, 3) or np.abs(rotation @ rotation.T - np.eye(3)).max() > 1e-4 or np.linalg.det(rotation) < 0:
                raise UserError(f"{what} of rig {self.name} is no rotation matrix")
        if self.baseline < 1e-6:
            raise UserError(f"the two cameras of rig {self.name} are in the same place; there is no stereo without a baseline")

    @property
    def baseline(self) -> float:
        """Distance between the two lenses [m]."""
        return float(np.linalg.norm(self.right_from_left_translation))

    @property
    def pose(self) -> Pose:
        """The fixed pose of the left camera."""
        return Pose(self.left_from_world_rotation, self.left_from_world_translation)

    @property
    def is_parallel(self) -> bool:
        """Whether rows match and disparity is all that differs: same intrinsics, no rotation, baseline along x."""
        t = self.right_from_left_translation
        return bool(np.abs(self.right_from_left_rotation - _NO_TURN).max() < 1e-9 and np.abs(t[1:]).max() < 1e-9 and t[0] < 0
                    and self.left == self.right and not any(self.left.distortion))

    def essential(self) -> Array:
        """(3, 3) E with x_right^T E x_left = 0 in normalised coordinates."""
        x, y, z = self.right_from_left_translation
        return np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]) @ self.right_from_left_rotation

    def save(self, path: Path) -> None:
        """Write YAML; `load` gives the same rig back exactly."""
        def camera(c: Camera) -> dict[str, Any]:
            numbers = {key: getattr(c, key) for key in ("width", "height", "fx", "fy", "cx", "cy")}
            return {**numbers, "distortion": list(c.distortion)}

        data = {
            "name": self.name, "fps": self.fps, "time_offset_s": self.time_offset_s,
            "left": camera(self.left), "right": camera(self.right),
            **{key: getattr(self, key).tolist() for key in _ARRAYS},
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("# Stereo rig, OpenCV conventions: pixels, metres, x right, y down, z forward.\n"
                        + yaml.safe_dump(data, sort_keys=False))

    @staticmethod
    def load(path: Path) -> "StereoRig":
        """Read a rig: our YAML, or JSON with camera1 and camera2 by their world poses. UserError names what is wrong."""
        try:
            text = path.read_text()
        except OSError as error:
            raise UserError(f"cannot read the rig {path}: {error.strerror}") from error
        try:
            data = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
            return _from_world_poses(data, path.stem) if "camera1" in data else _from_yaml(data, path.stem)
        except (ValueError, KeyError, TypeError, IndexError, yaml.YAMLError) as error:
            raise UserError(f"{path} is no rig: {type(error).__name__}: {error}; docs/calibrate.md shows one") from error


_ARRAYS = ("right_from_left_rotation", "right_from_left_translation", "left_from_world_rotation", "left_from_world_translation")


def _from_yaml(data: dict[str, Any], name: str) -> StereoRig:
    def camera(d: dict[str, Any]) -> Camera:
        return Camera(int(d["width"]), int(d["height"]), float(d["fx"]), float(d["fy"]), float(d["cx"]), float(d["cy"]),
                      tuple(map(float, d.get("distortion", ()))))

    arrays = {key: np.array(data[key], float) for key in _ARRAYS if key in data}
    return StereoRig(camera(data["left"]), camera(data["right"]), name=str(data.get("name", name)),
                     fps=float(data.get("fps", 0.0)), time_offset_s=float(data.get("time_offset_s", 0.0)), **arrays)


def _from_world_poses(data: dict[str, Any], name: str) -> StereoRig:
    width, height = (int(x) for x in data["image_size_px"])
    cameras, rotations, translations = [], [], []
    for key in ("camera1", "camera2"):
        d = data[key]
        k = np.array(d["K"], float)
        cameras.append(Camera(width, height, k[0, 0], k[1, 1], k[0, 2], k[1, 2], tuple(map(float, np.ravel(d["dist"])))))
        rotations.append(np.array(d["R"], float))
        translations.append(np.ravel(np.array(d["t_m"], float)))
    relative = rotations[1] @ rotations[0].T
    return StereoRig(cameras[0], cameras[1], relative, translations[1] - relative @ translations[0],
                     rotations[0], translations[0], name, float(data.get("fps", 0.0)))


# ZED X: focal lengths for the 2.2 and 4 mm lenses in stereolabs' zed-isaac-sim utils.py, modes and rates in zedx.yaml of
# zed-ros2-wrapper; 0.12 m baseline. Those are of rectified images, which the camera delivers, so there is no distortion; a
# camera's own file is better than these.
ZEDX_FOCAL = {2.2: 741.6, 4: 1272.5}  # [px] at HD1200
ZEDX_MODES = {"HD1200": (1920, 1200, 60.0, 1.0), "SVGA": (960, 600, 120.0, 0.5)}  # size [px], fps, focal scale
ZEDX_BASELINE = 0.12  # [m]


def zedx(mode: str = "SVGA", lens_mm: float = 2.2) -> StereoRig:
    """A nominal ZED X in mode HD1200 or SVGA with the 2.2 or the 4 mm lens."""
    if mode not in ZEDX_MODES or lens_mm not in ZEDX_FOCAL:
        raise UserError(f"a ZED X has modes {', '.join(ZEDX_MODES)} and lenses of 2.2 and 4 mm; got {mode}, {lens_mm}")
    width, height, fps, scale = ZEDX_MODES[mode]
    focal = ZEDX_FOCAL[lens_mm] * scale
    camera = Camera(width, height, focal, focal, (width - 1) / 2, (height - 1) / 2)
    return StereoRig(camera, camera, np.eye(3), np.array([-ZEDX_BASELINE, 0.0, 0.0]),
                     name=f"zedx_{mode.lower()}_{lens_mm:g}mm", fps=fps)


def project(rig: StereoRig, points_w: Array, pose: Pose | None = None) -> Array:
    """Pixels (N, 4) uL vL uR vR of points (N, 3) in the world [m]; nan behind a lens. pose: of a moving rig, else its own."""
    left = (rig.pose if pose is None else pose).apply(points_w)
    right = left @ rig.right_from_left_rotation.T + rig.right_from_left_translation
    return np.concatenate([rig.left.project(left), rig.right.project(right)], axis=1)


class PoseBuffer:
    """Poses with time, for looking up where a moving rig was at an exposure.

    length [s]: how long poses are kept; beyond [s]: how far past the newest or oldest pose `at` still answers, with the nearest.
    """

    def __init__(self, length: float = 1.0, beyond: float = 0.02) -> None:
        self.length, self.beyond = length, beyond
        self._times: list[float] = []
        self._poses: list[Pose] = []

    def add(self, t: float, pose: Pose) -> None:
        """Take in the pose at time t [s]; late ones are put in their place, not finite ones are dropped."""
        if not (np.isfinite(t) and np.isfinite(pose.rotation).all() and np.isfinite(pose.translation).all()):
            return
        at = bisect.bisect_left(self._times, t)
        if at < len(self._times) and self._times[at] == t:
            self._poses[at] = pose
        else:
            self._times.insert(at, t)
            self._poses.insert(at, pose)
        keep = bisect.bisect_left(self._times, self._times[-1] - self.length)
        del self._times[:keep], self._poses[:keep]

    def at(self, t: float) -> Pose | None:
        """The pose at time t [s]: place of the lens linear, rotation along the shortest turn; None where it is not known."""
        times = self._times
        if not times or not times[0] - self.beyond <= t <= times[-1] + self.beyond:
            return None
        after = bisect.bisect_left(times, t)
        if after == 0 or after == len(times):
            return self._poses[min(after, len(times) - 1)]
        a, b = self._poses[after - 1], self._poses[after]
        share = (t - times[after - 1]) / (times[after] - times[after - 1])
        turn, _ = cv2.Rodrigues(b.rotation @ a.rotation.T)
        part, _ = cv2.Rodrigues(share * np.asarray(turn, float))
        rotation = np.asarray(part, float) @ a.rotation
        return Pose(rotation, -rotation @ ((1 - share) * a.centre + share * b.centre))
