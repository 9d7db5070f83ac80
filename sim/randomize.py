"""What differs from robot to robot, from racket to racket and from shuttle to shuttle: drawn per simulation, never compounding.

`draw` makes a `Variation` from ranges; `BatchPhysics.vary` writes it into the simulations. Every model value is computed from
the nominal model, not from what stands there, and MuJoCo's derived constants are recomputed (`set_const`), so drawing twice does
not multiply factors and writing the nominal variation gives the nominal robot back bit by bit.

The ranges are our choice: wide enough for what was not identified on hardware (sim/models/README.md marks the guesses), narrow
enough that one policy can cover them. The papers this project follows print none; a mass of 0 to 2 kg at the hand, pushes of
0.5 m/s and the identification ranges for friction (0 to 0.5 N m) and delay (to 25 ms) are what public ETH code uses.
"""

from dataclasses import dataclass, fields, replace

import numpy as np
from mujoco.batch import Batch

from perception.flight import WIND_MAX
from sim.impact import RESTITUTION, RESTITUTION_SPREAD
from sim.robot import DELAY_STEPS, Robot

# columns of a dcmotor's gainprm and biasprm; MuJoCo's manual leaves them open, tests/sim/test_randomize.py holds them
RESISTANCE, KP, KD, SLIDING, STICKING = 0, 4, 6, 3, 4
Array = np.ndarray
Range = tuple[float, float]


@dataclass(frozen=True)
class RandomizeCfg:
    """(low, high) of each draw. Factors on the nominal value: link_mass, each link's; trunk_mass, the base body's on top of it;
    ground_friction; strength, each drive's torque; kp, kd, each drive's; damping, armature, motor_friction, each joint's;
    racket_mass. Offsets: trunk_com [m] each way; delay [s], in all, not on top; encoder_bias [rad] each joint; racket_shift [m] along
    each axis of the face; racket_tilt [rad] about each. push [m/s] each way, every push_every [s]. restitution: of the
    strings. wind [m/s] each way on the floor plan."""

    link_mass: Range = (0.95, 1.05)
    trunk_mass: Range = (0.95, 1.15)
    trunk_com: Range = (-0.02, 0.02)
    ground_friction: Range = (0.65, 1.35)
    strength: Range = (0.9, 1.05)
    kp: Range = (0.9, 1.1)
    kd: Range = (0.8, 1.2)
    damping: Range = (0.5, 2.0)
    armature: Range = (0.8, 1.2)
    motor_friction: Range = (0.3, 2.0)
    delay: Range = (0.0, 0.015)
    encoder_bias: Range = (-0.015, 0.015)
    racket_mass: Range = (0.85, 1.15)
    racket_shift: Range = (-0.01, 0.01)
    racket_tilt: Range = (-0.03, 0.03)
    push: Range = (-0.4, 0.4)
    push_every: Range = (3.0, 8.0)
    restitution: Range = (RESTITUTION - RESTITUTION_SPREAD, RESTITUTION + RESTITUTION_SPREAD)
    wind: Range = (-WIND_MAX, WIND_MAX)

    def __post_init__(self) -> None:
        for f in fields(self):
            low, high = getattr(self, f.name)
            if not low <= high:
                raise ValueError(f"{f.name}: low {low} is above high {high}")
        for name in ("link_mass", "trunk_mass", "ground_friction", "strength", "armature", "racket_mass"):
            if getattr(self, name)[0] <= 0:
                raise ValueError(f"{name}: a factor must be above 0; low is {getattr(self, name)[0]}")

    def scaled(self, share: float, delay: float) -> "RandomizeCfg":
        """Ranges shrunk towards the nominal robot, whose delay [s] is given: 0 is the nominal robot, 1 is all of it."""
        centre = dict.fromkeys(_FACTORS, 1.0) | {"delay": delay, "restitution": RESTITUTION}
        return replace(self, **{f.name: tuple(centre.get(f.name, 0.0) + share * (edge - centre.get(f.name, 0.0)) for edge in getattr(self, f.name))
                                for f in fields(self) if f.name != "push_every"})


_FACTORS = ("link_mass", "trunk_mass", "ground_friction", "strength", "kp", "kd", "damping", "armature", "motor_friction", "racket_mass")


@dataclass
class Variation:
    """N robots. link_mass (N, bodies), strength, kp, kd, damping, armature, motor_friction (N, J), ground_friction, restitution (N,):
    factors, restitution the value; trunk_com (N, 3) [m]; delay (N,) [s]; encoder_bias (N, J) [rad]; racket_tip, racket_normal,
    racket_long (N, 3) in the last joint's frame; wind, push (N, 3) [m/s], push_every (N,) [s], infinite for never."""

    link_mass: Array
    trunk_com: Array
    ground_friction: Array
    strength: Array
    kp: Array
    kd: Array
    damping: Array
    armature: Array
    motor_friction: Array
    delay: Array
    encoder_bias: Array
    racket_tip: Array
    racket_normal: Array
    racket_long: Array
    restitution: Array
    wind: Array
    push_limit: Array
    push_every: Array

    def put(self, ids: Array, other: "Variation") -> None:
        """Overwrite robots ids with other, in order."""
        for f in fields(self):
            getattr(self, f.name)[ids] = getattr(other, f.name)


def nominal(robot: Robot, count: int) -> Variation:
    """The robot as its two files describe it, count times."""
    model, joints, chain = robot.model, len(robot.joint_names), robot.chain

    def one() -> Array:
        return np.ones((count, joints))

    return Variation(
        link_mass=np.ones((count, model.nbody)), trunk_com=np.zeros((count, 3)), ground_friction=np.ones(count), strength=one(), kp=one(),
        kd=one(), damping=one(), armature=one(), motor_friction=one(), delay=np.full(count, robot.command_delay),
        encoder_bias=np.zeros((count, joints)), racket_tip=np.tile(chain.tip, (count, 1)), racket_normal=np.tile(chain.normal, (count, 1)),
        racket_long=np.tile(chain.long_axis, (count, 1)), restitution=np.full(count, RESTITUTION), wind=np.zeros((count, 3)),
        push_limit=np.zeros(count), push_every=np.full(count, np.inf))


def draw(cfg: RandomizeCfg, robot: Robot, rng: np.random.Generator, count: int) -> Variation:
    """count robots drawn evenly from the ranges. The same generator state gives the same robots."""
    v = nominal(robot, count)
    model, joints = robot.model, len(robot.joint_names)
    v.link_mass *= rng.uniform(*cfg.link_mass, v.link_mass.shape)
    v.link_mass[:, model.body(robot.base_body).id] *= rng.uniform(*cfg.trunk_mass, count)
    v.link_mass[:, model.site(robot.racket_site).bodyid[0]] *= rng.uniform(*cfg.racket_mass, count)
    v.trunk_com = rng.uniform(*cfg.trunk_com, (count, 3))
    v.ground_friction = rng.uniform(*cfg.ground_friction, count)
    for name in ("strength", "kp", "kd", "damping", "armature", "motor_friction", "encoder_bias"):
        low, high = getattr(cfg, name)
        setattr(v, name, rng.uniform(low, high, (count, joints)))
    longest = DELAY_STEPS * model.opt.timestep
    v.delay = np.clip(rng.uniform(*cfg.delay, count), 0.0, longest)
    wide = np.cross(v.racket_normal, v.racket_long)
    shift, tilt = rng.uniform(*cfg.racket_shift, (count, 3, 1)), rng.uniform(*cfg.racket_tilt, (count, 3))
    v.racket_tip += shift[:, 0] * v.racket_long + shift[:, 1] * wide + shift[:, 2] * v.racket_normal
    turn = tilt[:, :1] * v.racket_long + tilt[:, 1:2] * wide + tilt[:, 2:] * v.racket_normal
    v.racket_normal, v.racket_long = _turned(v.racket_normal, turn), _turned(v.racket_long, turn)
    v.restitution = rng.uniform(*cfg.restitution, count)
    v.wind[:, :2] = rng.uniform(*cfg.wind, (count, 2))
    v.push_limit = np.full(count, cfg.push[1])
    v.push_every = rng.uniform(*cfg.push_every, count)
    return v


def _turned(vector: Array, turn: Array) -> Array:
    """Vectors (N, 3) rotated by rotation vectors turn (N, 3) [rad], by Rodrigues' formula."""
    angle = np.linalg.norm(turn, axis=1, keepdims=True)
    axis = turn / np.maximum(angle, 1e-12)
    along = np.sum(axis * vector, axis=1, keepdims=True)
    return np.cos(angle) * vector + np.sin(angle) * np.cross(axis, vector) + (1 - np.cos(angle)) * along * axis


def write_models(batch: Batch, robot: Robot, ids: Array, v: Variation) -> None:
    """Give simulations ids their own model values, each from the nominal model, and recompute what MuJoCo derives from them."""
    m = robot.model
    base, dofs = m.body(robot.base_body).id, robot.qvel_index
    motors = np.array([m.actuator(n).id for n in robot.joint_names])
    row, feet = ids[:, None], [m.geom(f).id for f in robot.feet]
    batch.expand("body_mass")[ids] = m.body_mass * v.link_mass
    batch.expand("body_inertia")[ids] = m.body_inertia * v.link_mass[:, :, None]
    place = batch.expand("body_ipos")
    place[ids] = m.body_ipos
    place[ids, base] += v.trunk_com
    friction = batch.expand("geom_friction")
    for geom in [m.geom("floor").id, *feet]:  # a contact takes the larger of the two
        friction[ids, geom, 0] = m.geom_friction[geom, 0] * v.ground_friction
    batch.expand("dof_damping")[row, dofs] = m.dof_damping[dofs] * v.damping
    batch.expand("dof_armature")[row, dofs] = m.dof_armature[dofs] * v.armature
    gain, nominal_gain = batch.expand("actuator_gainprm"), m.actuator_gainprm[motors]
    gain[row, motors, RESISTANCE] = nominal_gain[:, RESISTANCE] / v.strength
    gain[row, motors, KP] = nominal_gain[:, KP] * (v.kp * v.strength)
    gain[row, motors, KD] = nominal_gain[:, KD] * (v.kd * v.strength)
    batch.expand("actuator_forcerange")[row, motors] = m.actuator_forcerange[motors] * v.strength[:, :, None]
    bias = batch.expand("actuator_biasprm")
    for column in (SLIDING, STICKING):
        bias[row, motors, column] = m.actuator_biasprm[motors, column] * v.motor_friction
    batch.expand("actuator_delay")[row, motors] = v.delay[:, None]
    batch.set_const(ids)
