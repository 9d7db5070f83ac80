"""The deploy file of a robot: which robot it is, how its joints are called, how it is driven, where its camera looks from."""

import hashlib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from perception.camera import Pose, StereoRig, zedx
from perception.errors import UserError
from policy.contract import PolicyContract
from ros_nodes.description import Description, load_description
from ros_nodes.joint_map import JointMap
from ros_nodes.safety import Limits, SafetyCfg
from sim.kinematics import rotation

Array = np.ndarray
CONFIG = Path(__file__).parent / "config"
DRIVERS = ("sim", "drives", "forward_command", "joint_trajectory", "dry")
KEYS = {"robot", "driver", "joints", "safety", "camera", "court", "controller", "battery"}


@dataclass(frozen=True)
class CameraMount:
    """The left camera on the base: axes (3, 3) of its optical frame in the base's, place (3,) [m]; rig; digest of what it was read from."""

    rig: StereoRig
    axes: Array
    place: Array
    digest: str

    def pose(self, position: Array, quaternion: Array) -> Pose:
        """Pose of the left camera for a base at position (3,) [m] and quaternion (w, x, y, z), odom frame."""
        turn = rotation(quaternion)
        return Pose.of_camera(position + turn @ self.place, turn @ self.axes)


@dataclass(frozen=True)
class Court:
    """The court's frame in odom: x, y [m] of the floor under the middle of the net, heading [rad] of its x axis, which points to the other side."""

    x: float = 0.0
    y: float = 0.0
    yaw: float = 0.0

    @property
    def is_odom(self) -> bool:
        """Whether both frames are one."""
        return self.x == self.y == self.yaw == 0.0

    @property
    def turn(self) -> Array:
        """(3, 3) court from odom axes."""
        c, s = np.cos(self.yaw), np.sin(self.yaw)
        return np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])

    def point(self, p: Array) -> Array:
        """(3,) in court axes."""
        return p if self.is_odom else self.turn @ (p - [self.x, self.y, 0.0])

    def direction(self, v: Array) -> Array:
        """(3,) velocity or normal in court axes."""
        return v if self.is_odom else self.turn @ v

    def back(self, p: Array) -> Array:
        """(3,) from court to odom axes."""
        return p if self.is_odom else self.turn.T @ p + [self.x, self.y, 0.0]

    def quaternion(self, q: Array) -> Array:
        """Orientation (w, x, y, z) in court axes."""
        if self.is_odom:
            return q
        c, s = np.cos(-0.5 * self.yaw), np.sin(-0.5 * self.yaw)
        w, x, y, z = q
        return np.array([c * w - s * z, c * x - s * y, c * y + s * x, c * z + s * w])


@dataclass(frozen=True)
class Deploy:
    """Everything a deploy file says, checked."""

    path: Path
    description: Description
    driver: str
    controller: str
    safety: SafetyCfg
    camera: CameraMount | None
    court: Court
    joints: tuple[dict[str, Any], ...]

    def joint_map(self, contract: PolicyContract) -> JointMap:
        """Policy joints to the robot's. UserError where the file names joints that the policy has not."""
        return JointMap.parse(list(self.joints), contract.joint_names, str(self.path))

    def limits(self, contract: PolicyContract) -> Limits:
        """Raises UserError where the policy was trained for another robot."""
        return Limits.of(contract, self.description)


def load_deploy(where: str | Path) -> Deploy:
    """A file, a folder holding deploy.yaml, or the name of one that ships. Raises UserError that names the file and the key."""
    shipped = CONFIG / f"{where}.yaml"
    path = shipped if shipped.is_file() else Path(where) / "deploy.yaml" if Path(where).is_dir() else Path(where)
    try:
        text = path.read_text()
        data = yaml.safe_load(text)
        if not isinstance(data, dict):
            raise ValueError("it holds no keys")
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"no deploy file at {path}: {error}; docs/deploy.md shows one") from error
    unknown = data.keys() - KEYS
    if unknown:
        raise UserError(f"{path}: unknown key {sorted(unknown)[0]}; known are {', '.join(sorted(KEYS))}")
    driver = data.get("driver", "forward_command")
    if driver not in DRIVERS:
        raise UserError(f"{path}: driver is {driver}; it must be one of {', '.join(DRIVERS)}")
    if "robot" not in data:
        raise UserError(f"{path}: robot is missing: a shipped robot's name, or a folder with robot.yaml and robot.xml")
    robot = str(data["robot"])
    folder = path.parent / robot
    description = load_description(folder if (folder / "robot.yaml").is_file() else robot)
    try:
        safety = _settings(SafetyCfg(), data.get("safety") or {}, f"{path}: safety")
        court = _settings(Court(), data.get("court") or {}, f"{path}: court")
        camera = _camera(data.get("camera"), path)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: {type(error).__name__}: {error}; docs/deploy.md shows a deploy file") from error
    return Deploy(path, description, driver, str(data.get("controller", "joint_group_controller")), safety, camera, court, tuple(data.get("joints") or ()))


def _settings(default: Any, data: dict[str, Any], where: str) -> Any:
    known = {f.name: type(getattr(default, f.name)) for f in fields(default)}
    for key, value in data.items():
        if key not in known:
            raise UserError(f"{where} has no {key}; known are {', '.join(known)}")
        if known[key] is not str and not (isinstance(value, (int, float)) and np.isfinite(value)):
            raise UserError(f"{where}: {key} is {value}; it must be a number")
    out = replace(default, **{k: known[k](v) for k, v in data.items()})
    if isinstance(out, SafetyCfg) and out.interpolation not in ("hold", "linear"):
        raise UserError(f"{where}: interpolation is {out.interpolation}; it must be hold or linear")
    return out


def _camera(data: dict[str, Any] | None, path: Path) -> CameraMount | None:
    if not data:
        return None
    if "rig" in data:
        file = path.parent / str(data["rig"])
        rig, content = StereoRig.load(file), file.read_bytes()
    else:
        rig, content = zedx(str(data.get("mode", "SVGA")), float(data.get("lens_mm", 2.2))), b""
    axes, place = np.array(data["axes"], float).reshape(3, 3), np.array(data["place"], float).reshape(3)
    if np.abs(axes @ axes.T - np.eye(3)).max() > 1e-4 or np.linalg.det(axes) < 0:
        raise UserError(f"{path}: camera axes are no rotation")
    digest = hashlib.sha256(content + axes.tobytes() + place.tobytes()).hexdigest()[:12]
    return CameraMount(rig, axes, place, digest)
