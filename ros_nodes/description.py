"""What safety and policy need to know of a robot's drives, read from its `robot.yaml` and the belts in its `robot.xml`, without MuJoCo."""

import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from perception.errors import UserError
from policy.contract import PolicyContract

Array = np.ndarray
MODELS = Path(__file__).parent.parent / "sim" / "models"
STRIBECK = 0.1  # [rad/s] speed at which sticking ends; sim/robot.py's, held together by a test


@dataclass(frozen=True)
class Description:
    """A robot's drives. J joints in the YAML's order, arrays (J,): default_pose, action_scale [rad]; kp [N m/rad], kd [N m s/rad]; torque,
    stall, friction [N m]; speed, no_load [rad/s]. drive_from_joint (J, J): drive angles = matrix @ joint angles; arm (J,) bool; voltage [V];
    arm_current_limit [A]."""

    name: str
    joint_names: tuple[str, ...]
    default_pose: Array
    action_scale: Array
    kp: Array
    kd: Array
    torque: Array
    speed: Array
    stall: Array
    no_load: Array
    friction: Array
    drive_from_joint: Array
    arm: Array
    voltage: float
    arm_current_limit: float

    def drive_torque(self, target: Array, q: Array, qd: Array) -> Array:
        """(J,) torque that the drives would ask for at joint targets, angles [rad] and speeds [rad/s], before any limit [N m]."""
        return self.kp * (self.drive_from_joint @ (target - q)) - self.kd * (self.drive_from_joint @ qd)

    def arm_current(self, torque: Array, qd: Array) -> float:
        """[A] that the arm draws at drive torques (J,) [N m]: the formula of `sim/actuators.py`, Ma et al. 2025, eq. 3-4."""
        speed = self.drive_from_joint @ qd
        motor = np.clip(torque, -self.torque, self.torque) + self.friction * np.tanh(speed / STRIBECK)
        constant = self.voltage / self.no_load
        km2 = constant**2 / (constant * self.voltage / self.stall)
        return float(np.sum((motor**2 / km2 + motor * speed)[self.arm]) / self.voltage)

    def check_fits(self, contract: PolicyContract) -> None:
        """Raise UserError that names the first field in which a policy's contract differs from this robot, joints by name."""
        if set(contract.joint_names) != set(self.joint_names):
            missing, extra = sorted(set(contract.joint_names) - set(self.joint_names)), sorted(set(self.joint_names) - set(contract.joint_names))
            raise UserError(f"policy does not fit robot {self.name}: joint_names differ (robot lacks {missing}, has extra {extra})")
        order = [self.joint_names.index(n) for n in contract.joint_names]
        for field, ours in (("default_pose", "default_pose"), ("action_scale", "action_scale"), ("kp", "kp"), ("kd", "kd"), ("torque_limit", "torque")):
            mine, other = getattr(contract, field), getattr(self, ours)[order]
            if not np.allclose(mine, other, atol=1e-6):
                worst = int(np.argmax(np.abs(mine - other)))
                raise UserError(f"policy does not fit robot {self.name}: {field} of joint {contract.joint_names[worst]} is {mine[worst]:g} "
                                f"in the policy and {other[worst]:g} in the robot")

    def reordered(self, names: tuple[str, ...]) -> "Description":
        """The same robot with its joints in the order of names."""
        o = [self.joint_names.index(n) for n in names]
        arrays = {k: v[np.ix_(o, o)] if k == "drive_from_joint" else v[o] for k, v in vars(self).items() if isinstance(v, np.ndarray)}
        return Description(**{**vars(self), **arrays, "joint_names": names})


def load_description(robot: str | Path) -> Description:
    """Read a shipped robot by name, or a folder with robot.yaml and robot.xml. UserError names what is missing or wrong."""
    folder = MODELS / str(robot) if (MODELS / str(robot) / "robot.yaml").is_file() else Path(robot)
    path = folder / "robot.yaml"
    try:
        data = yaml.safe_load(path.read_text())
        joints = data["joints"]
        names = tuple(j["name"] for j in joints)
        drive = [data["drives"][j["drive"]] for j in joints]

        def column(key: str) -> Array:
            return np.array([float(d.get(key, 0.0)) for d in drive])

        root = ET.parse(folder / "robot.xml").getroot()
        matrix = np.eye(len(names))
        for row, joint in enumerate(joints):
            if joint.get("belt"):
                matrix[row] = 0.0
                for part in root.findall(f".//tendon/fixed[@name='{joint['belt']}']/joint"):
                    matrix[row, names.index(part.attrib["joint"])] = float(part.attrib["coef"])
        legs = _legs(root, [str(f) for f in data["feet"]])
        return Description(
            name=data["name"], joint_names=names, default_pose=np.array([float(j["default"]) for j in joints]),
            action_scale=np.array([float(j["scale"]) for j in joints]), kp=column("kp"), kd=column("kd"), torque=column("torque"),
            speed=column("speed"), stall=column("stall"), no_load=column("no_load"), friction=column("friction"), drive_from_joint=matrix,
            arm=np.array([n not in legs for n in names]), voltage=float(data["voltage"]), arm_current_limit=float(data["arm_current_limit"]))
    except (OSError, ET.ParseError, yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} cannot be read as a robot: {type(error).__name__}: {error}; see docs/your-robot.md") from error


def _legs(root: ET.Element, feet: list[str]) -> set[str]:
    """Names of the joints between base and feet."""
    out: set[str] = set()

    def walk(body: ET.Element, above: list[str]) -> None:
        here = above + [j.attrib.get("name", "") for j in body.findall("joint")]
        if any(g.attrib.get("name") in feet for g in body.findall("geom")):
            out.update(here)
        for child in body.findall("body"):
            walk(child, here)

    for top in root.findall(".//worldbody/body"):
        walk(top, [])
    return out
