"""A robot is a folder of two files: `robot.xml` (MJCF: bodies, joints, frames) and `robot.yaml` (drives, gains, poses).

`load_robot` reads both, checks that they fit together and returns one typed view; every gain, limit and joint order
in the project comes from it.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import mujoco
import numpy as np
import yaml

from perception.errors import UserError
from sim.kinematics import ArmChain, racket_state
from sim.scale import TaskScale, task_scale

MODELS = Path(__file__).parent / "models"
DELAY_STEPS = 4  # physics steps of past commands that a drive keeps: the longest delay that can be simulated, 20 ms
# LuGre friction: deflection of the bristles at sliding friction [rad], their damping over stiffness [s], sticking over sliding
# friction, and speed at which sticking ends [rad/s]. Our choices: stiff enough that a stuck joint moves less than an encoder
# error of a few mrad, soft enough for 5 ms steps. Joint friction as a constraint costs 22 % of the physics, this 6 %.
BRISTLE, BRISTLE_DAMPING, STICKING, STRIBECK = 0.005, 0.002, 1.2, 0.1
Array = np.ndarray


@dataclass(frozen=True)
class Drive:
    """One kind of motor with its gears. stall, torque, friction [N m]; no_load, speed [rad/s]; kp [N m/rad]; kd [N m s/rad]."""

    stall: float
    no_load: float
    torque: float
    speed: float
    kp: float
    kd: float
    friction: float = 0.0  # sliding


@dataclass(frozen=True)
class Robot:
    """Everything birdie knows of a robot. J joints in policy order; arrays are (J,) unless said otherwise."""

    name: str
    spec_path: Path
    joint_names: tuple[str, ...]
    drives: tuple[Drive, ...]
    voltage: float  # [V]
    arm_current_limit: float  # [A] that the arm may draw from its supply
    command_delay: float  # [s] from a command to the drive acting on it
    default_pose: Array  # [rad]
    action_scale: Array  # [rad]
    mirror_index: Array  # joint that plays the same part on the other side
    mirror_sign: Array  # +1 or -1
    belts: tuple[str | None, ...]  # tendon each drive acts through, None: its own joint
    base_body: str
    racket_site: str
    shoulder_body: str
    feet: tuple[str, ...]
    standing_height: float  # [m]
    swing_speed: float  # [m/s] of the racket that a scripted swing passes

    def per_joint(self, field: str) -> Array:
        """(J,) values of one Drive field, in policy order."""
        return np.array([getattr(d, field) for d in self.drives])

    @cached_property
    def model(self) -> mujoco.MjModel:
        """The robot alone on the court, with one dcmotor per joint in policy order. Shared: do not write to it."""
        return build_spec([self]).compile()

    @cached_property
    def qpos_index(self) -> Array:
        """(J,) places of the joints in qpos, policy order."""
        return np.array([self.model.joint(n).qposadr[0] for n in self.joint_names])

    @cached_property
    def qvel_index(self) -> Array:
        """(J,) places of the joints in qvel, policy order."""
        return np.array([self.model.joint(n).dofadr[0] for n in self.joint_names])

    @cached_property
    def joint_range(self) -> Array:
        """(J, 2) lower and upper joint limits [rad]."""
        return np.array([self.model.joint(n).range for n in self.joint_names])

    @cached_property
    def drive_from_joint(self) -> Array:
        """(J, J) matrix: drive angles = matrix @ joint angles (belts couple joints); joint torques use its transpose."""
        m = self.model
        out = np.eye(len(self.joint_names))
        index = {n: i for i, n in enumerate(self.joint_names)}
        for row, belt in enumerate(self.belts):
            if belt is not None:
                tendon = m.tendon(belt).id
                out[row] = 0
                for w in range(m.tendon_adr[tendon], m.tendon_adr[tendon] + m.tendon_num[tendon]):
                    out[row, index[m.joint(m.wrap_objid[w]).name]] = m.wrap_prm[w]
        return out

    @cached_property
    def arm_index(self) -> Array:
        """Places, in policy order, of the joints between base and racket."""
        m = self.model
        names = []
        body = m.site(self.racket_site).bodyid[0]
        while body != m.body(self.base_body).id:
            for j in range(m.body_jntadr[body], m.body_jntadr[body] + m.body_jntnum[body]):
                names.append(m.joint(j).name)
            body = m.body_parentid[body]
        return np.array([self.joint_names.index(n) for n in reversed(names)])

    @cached_property
    def chain(self) -> ArmChain:
        """The arm from base to racket, read from the compiled model."""
        m = self.model
        base = m.body(self.base_body).id
        offsets: list[Array] = []
        rotations: list[Array] = []
        axes: list[Array] = []
        bodies: list[int] = []
        for name in np.array(self.joint_names)[self.arm_index]:
            body = m.joint(name).bodyid[0]
            pos, mat, walk = np.zeros(3), np.eye(3), body
            parent = bodies[-1] if bodies else base
            while walk != parent:  # fixed links between two joints fold into one transform
                local = _matrix(m.body_quat[walk])
                pos, mat = m.body_pos[walk] + local @ pos, local @ mat
                walk = m.body_parentid[walk]
            offsets.append(pos)
            rotations.append(mat)
            axes.append(m.joint(name).axis.copy())
            bodies.append(body)
        site = m.site(self.racket_site)
        tip, face, walk = site.pos.copy(), _matrix(site.quat), site.bodyid[0]
        while walk != bodies[-1]:
            local = _matrix(m.body_quat[walk])
            tip, face = m.body_pos[walk] + local @ tip, local @ face
            walk = m.body_parentid[walk]
        shoulder = bodies.index(m.body(self.shoulder_body).id)
        return ArmChain(np.array(offsets), np.array(rotations), np.array(axes), tip, face[:, 2].copy(), -face[:, 0], shoulder)

    @cached_property
    def scale(self) -> TaskScale:
        """Lengths and speeds of the task for a robot of this size, from the default pose and the arm's chain."""
        m, d = self.model, mujoco.MjData(self.model)
        set_pose(self, d)
        mujoco.mj_kinematics(m, d)
        shoulder = d.xpos[m.body(self.shoulder_body).id][2] - self.standing_height
        links = np.linalg.norm(self.chain.offset[self.chain.shoulder + 1:], axis=1).sum() + np.linalg.norm(self.chain.tip)
        radius = max(m.geom(f).size[0] for f in self.feet)
        return task_scale(self.standing_height, float(shoulder), float(links), float(radius), self.swing_speed)

    @cached_property
    def standing_offset(self) -> Array:
        """(J,) what to add to the default pose so that soft gains hold it against gravity [rad].

        Drive torques of quiet standing (bias forces less vertical loads on the feet, least squares) over kp. Without it
        the stance creeps apart and the base sinks within seconds.
        """
        m, d = self.model, mujoco.MjData(self.model)
        set_pose(self, d)
        mujoco.mj_forward(m, d)
        columns = []
        for foot in self.feet:
            geom = m.geom(foot).id
            jac = np.zeros((3, m.nv))
            mujoco.mj_jac(m, d, jac, None, d.geom_xpos[geom], m.geom_bodyid[geom])
            columns.append(jac[2])
        loads = np.array(columns).T  # (nv, feet)
        root = m.body_dofadr[m.body(self.base_body).id]
        weight, *_ = np.linalg.lstsq(loads[root:root + 6], d.qfrc_bias[root:root + 6], rcond=None)
        joint_torque = (d.qfrc_bias - loads @ weight)[self.qvel_index]
        drive_torque = np.linalg.solve(self.drive_from_joint.T, joint_torque)
        drive_offset = drive_torque / self.per_joint("kp")
        return np.linalg.solve(self.drive_from_joint, drive_offset)


def _matrix(quaternion: Array) -> Array:
    """Rotation matrix (3, 3) of a quaternion (w, x, y, z)."""
    out = np.zeros(9)
    mujoco.mju_quat2Mat(out, quaternion)
    return out.reshape(3, 3)


def set_pose(robot: Robot, data: mujoco.MjData, x: float = 0.0, y: float = 0.0, yaw: float = 0.0) -> None:
    """Put the robot of a one-robot model on its feet in the default pose, at (x, y) [m] with heading yaw [rad]."""
    data.qpos[:3] = x, y, robot.standing_height
    data.qpos[3:7] = np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)
    data.qpos[robot.qpos_index] = robot.default_pose
    data.qvel[:] = 0
    data.ctrl[:] = robot.drive_from_joint @ robot.default_pose
    for motor, target in enumerate(data.ctrl):  # what the drives still have in their ears
        mujoco.mj_initCtrlHistory(data.model, data, motor, None, np.full((DELAY_STEPS, 1), target))


def build_spec(robots: list[Robot]) -> mujoco.MjSpec:
    """Court with the given robots on it; a single robot keeps its names, several get the prefixes r0_, r1_, ..."""
    court_path = MODELS / "court.xml"
    if len(robots) == 1:  # by inclusion: attaching without a prefix makes MuJoCo warn
        spec = mujoco.MjSpec.from_string(
            f'<mujoco><include file="{court_path.resolve()}"/><include file="{robots[0].spec_path.resolve()}"/></mujoco>')
        _add_motors(spec, robots[0])
        return spec
    court = mujoco.MjSpec.from_file(str(court_path))
    for number, robot in enumerate(robots):
        child = mujoco.MjSpec.from_file(str(robot.spec_path))
        _add_motors(child, robot)
        court.attach(child, prefix=f"r{number}_", frame=court.worldbody.add_frame())
    return court


def _add_motors(spec: mujoco.MjSpec, robot: Robot) -> None:
    """One dcmotor per joint in policy order: PD in torque space, a torque limit, torque that falls with speed, friction, and
    position targets that arrive late (targets, not torques: a late torque would destabilise the drive's own loop)."""
    for name, drive, belt in zip(robot.joint_names, robot.drives, robot.belts, strict=True):
        motor = spec.add_actuator(name=name)
        motor.trntype = mujoco.mjtTrn.mjTRN_JOINT if belt is None else mujoco.mjtTrn.mjTRN_TENDON
        motor.target = name if belt is None else belt
        constant = robot.voltage / drive.no_load  # [V s/rad]
        motor.set_to_dcmotor(
            motorconst=[constant, constant],
            resistance=constant * robot.voltage / drive.stall,
            saturation=[drive.torque, 0, 0],
            controller=[drive.kp, 0, drive.kd, 0, 0, robot.voltage],
            ctrlspec=1,  # one input: the position target
            lugre=[drive.friction / BRISTLE, drive.friction / BRISTLE * BRISTLE_DAMPING, drive.friction, STICKING * drive.friction, STRIBECK],
        )
        motor.nsample, motor.delay = DELAY_STEPS, robot.command_delay


def available_robots() -> dict[str, Path]:
    """Folders under sim/models that hold a robot, by name."""
    return {p.parent.name: p.parent for p in sorted(MODELS.glob("*/robot.yaml"))}


def load_robot(name_or_folder: str | Path = "anymal_dynaarm") -> Robot:
    """Load a shipped robot by name, or any folder holding robot.xml and robot.yaml.

    Raises UserError that names the file and the key when something is missing or the two files disagree.
    """
    folder = available_robots().get(str(name_or_folder), Path(name_or_folder))
    yaml_path, xml_path = folder / "robot.yaml", folder / "robot.xml"
    for path in (yaml_path, xml_path):
        if not path.is_file():
            known = ", ".join(available_robots())
            raise UserError(f"no robot at {folder}: {path.name} is missing; give a folder with robot.xml and robot.yaml, or one of: {known}")
    try:
        data = yaml.safe_load(yaml_path.read_text())
        drives = {k: Drive(**{f: float(x) for f, x in v.items()}) for k, v in data["drives"].items()}
        joints = data["joints"]
        names = tuple(j["name"] for j in joints)
        unknown = [j["mirror"] for j in joints if j["mirror"] not in names]
        if unknown:
            raise UserError(f"{yaml_path}: mirror names joints that are not listed: {', '.join(unknown)}")
        robot = Robot(
            name=data["name"],
            spec_path=xml_path,
            joint_names=names,
            drives=tuple(drives[j["drive"]] for j in joints),
            voltage=float(data["voltage"]),
            arm_current_limit=float(data["arm_current_limit"]),
            command_delay=float(data["command_delay"]),
            default_pose=np.array([float(j["default"]) for j in joints]),
            action_scale=np.array([float(j["scale"]) for j in joints]),
            mirror_index=np.array([names.index(j["mirror"]) for j in joints]),
            mirror_sign=np.array([-1.0 if j.get("flip") else 1.0 for j in joints]),
            belts=tuple(j.get("belt") for j in joints),
            base_body=data["base_body"],
            racket_site=data["racket_site"],
            shoulder_body=data["shoulder_body"],
            feet=tuple(data["feet"]),
            standing_height=float(data["standing_height"]),
            swing_speed=float(data["swing_speed"]),
        )
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{yaml_path}: {type(error).__name__}: {error}; compare with {MODELS / 'anymal_dynaarm' / 'robot.yaml'}") from error
    _check(robot)
    return robot


def _check(robot: Robot) -> None:
    """Refuse a folder whose two files disagree, naming what to mend."""
    try:
        spec = mujoco.MjSpec.from_file(str(robot.spec_path))
    except ValueError as error:
        raise UserError(f"{robot.spec_path} cannot be read: {str(error).splitlines()[0]}") from error
    known = {
        "joints": {j.name for j in spec.joints},
        "tendons": {t.name for t in spec.tendons},
        "bodies": {b.name for b in spec.bodies},
        "sites": {s.name for s in spec.sites},
        "geoms": {g.name for g in spec.geoms},
    }
    wanted = {
        "joints": set(robot.joint_names),
        "tendons": {b for b in robot.belts if b},
        "bodies": {robot.base_body, robot.shoulder_body},
        "sites": {robot.racket_site},
        "geoms": set(robot.feet),
    }
    for kind, names in wanted.items():
        missing = names - known[kind]
        if missing:
            raise UserError(f"{robot.spec_path}: no {kind} named {', '.join(sorted(missing))}, which robot.yaml asks for")
    extra = {j.name for j in spec.joints if j.type != mujoco.mjtJoint.mjJNT_FREE} - wanted["joints"]
    if extra:
        raise UserError(f"{robot.spec_path}: robot.yaml does not list the joints {', '.join(sorted(extra))}")
    try:
        limited = [bool(robot.model.joint(n).limited[0]) if hasattr(robot.model.joint(n), "limited") else True for n in robot.joint_names]
    except ValueError as error:
        raise UserError(f"{robot.spec_path} does not compile: {str(error).splitlines()[0]}") from error
    for i, name in enumerate(robot.joint_names):
        if not limited[i]:
            raise UserError(f"{robot.spec_path}: joint {name} has no range; policies need one to stay inside")
        if robot.mirror_index[robot.mirror_index[i]] != i:
            raise UserError(f"{robot.spec_path.parent / 'robot.yaml'}: mirror of joint {name} does not point back to it")
        low, high = robot.joint_range[i]
        if not low <= robot.default_pose[i] <= high:
            raise UserError(f"robot.yaml: default {robot.default_pose[i]} of joint {name} is outside its range {low:.3f} to {high:.3f}")
    _check_chain(robot)


def _check_chain(robot: Robot) -> None:
    """Our racket kinematics against MuJoCo's in a bent pose: they part where a joint is off its body's origin."""
    m, d = robot.model, mujoco.MjData(robot.model)
    set_pose(robot, d)
    arm = robot.arm_index
    d.qpos[robot.qpos_index[arm]] += 0.3 * np.cos(np.arange(len(arm)))
    mujoco.mj_kinematics(m, d)
    zero = np.zeros((1, 3))
    ours = racket_state(robot.chain, d.qpos[None, :3], d.qpos[None, 3:7], zero, zero, d.qpos[robot.qpos_index[arm]][None],
                        np.zeros((1, len(arm))))
    off = float(np.linalg.norm(ours.position[0] - d.site(robot.racket_site).xpos))
    if off > 1e-6:
        raise UserError(f"{robot.spec_path}: the racket site is {off:.3f} m from where the joints put it; joints of the arm must be hinges "
                        "at their body's origin (no pos attribute), and the base must be the first body with a free joint")
