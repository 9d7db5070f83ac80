"""How long a physics step may be: the same experiments at several steps, against bounds that we state.

A longer step is cheaper and coarser. Three things must survive it: feet that stay where they stand, energy that a free arm keeps,
and the speed that a racket reaches. `birdie bench timestep` prints the table; the model's step is the longest of STEPS within
the bounds.
"""

import time
from typing import Any

import mujoco
import numpy as np

from sim.batch import SUBSTEPS
from sim.robot import Robot, build_spec

STEPS = (0.001, 0.002, 0.004, 0.005, 0.010)  # [s]
# Bounds, our choice. A foot may creep 1 mm in a second, well under the 10 cm/s at which a policy is charged for slipping; a
# free arm may lose or gain 2 % of its energy in half a second, less than motor friction takes; a swing may peak 5 % off, a third
# of the range that drives' strength is drawn from in training.
CREEP_MAX, ENERGY_MAX, SPEED_MAX = 1.0, 0.02, 0.05  # [mm/s], shares
SWING_REACH = 2.5  # action scales, forward and back, of the test swing: saturates the drives


def _model(robot: Robot, step: float, free_arm: bool = False) -> mujoco.MjModel:
    """The robot at another physics step, without command delay; free_arm: base held, no motors, no friction, no damping."""
    spec = build_spec([robot])
    spec.option.timestep = step
    for motor in list(spec.actuators):
        if free_arm:
            spec.delete(motor)
        else:
            motor.nsample, motor.delay = 0, 0.0
    if free_arm:
        spec.option.enableflags |= mujoco.mjtEnableBit.mjENBL_ENERGY
        arm = {robot.joint_names[i] for i in robot.arm_index}
        for joint in list(spec.joints):
            if joint.name in arm:
                joint.damping = np.zeros_like(joint.damping)
            else:
                spec.delete(joint)
    return spec.compile()


def _stand(robot: Robot, model: mujoco.MjModel) -> mujoco.MjData:
    data = mujoco.MjData(model)
    data.qpos[2], data.qpos[3] = robot.standing_height, 1.0
    data.qpos[robot.qpos_index] = robot.default_pose
    data.ctrl[:] = robot.drive_from_joint @ (robot.default_pose + robot.standing_offset)
    return data


def foot_creep(robot: Robot, step: float) -> tuple[float, float]:
    """Mean horizontal speed of a foot while the robot stands for 4 s, after 1 s to settle [mm/s], and physics steps/s of it."""
    model = _model(robot, step)
    data = _stand(robot, model)
    feet = [model.geom(f).id for f in robot.feet]
    mujoco.mj_step(model, data, nstep=round(1.0 / step))
    before = data.geom_xpos[feet, :2].copy()
    count, start = round(4.0 / step), time.perf_counter()
    mujoco.mj_step(model, data, nstep=count)
    rate = count / (time.perf_counter() - start)
    return float(np.linalg.norm(data.geom_xpos[feet, :2] - before, axis=1).mean() / 4.0 * 1000), rate


def energy_error(robot: Robot, step: float) -> float:
    """Change of energy of the arm falling freely for half a second, as a share of the most kinetic energy it had."""
    model = _model(robot, step, free_arm=True)
    data = mujoco.MjData(model)
    for i in robot.arm_index:
        data.joint(robot.joint_names[i]).qpos[0] = robot.default_pose[i] + 0.3 * robot.action_scale[i]
    mujoco.mj_forward(model, data)
    start, kinetic = data.energy.sum(), 0.0
    for _ in range(round(0.5 / step)):
        limits = data.nefc
        mujoco.mj_step(model, data)
        if data.nefc > limits:  # a joint at its stop gives energy away at any step
            break
        kinetic = max(kinetic, data.energy[1])
    return float(abs(data.energy.sum() - start) / max(kinetic, 1e-9))


def swing_speed(robot: Robot, step: float) -> float:
    """Fastest racket in a swing of the arm's flexing joints from one end to the other, base standing [m/s]."""
    model = _model(robot, step)
    data = _stand(robot, model)
    site = model.site(robot.racket_site).id
    flexing = [i for i in robot.arm_index if robot.mirror_sign[i] > 0]
    peak, velocity = 0.0, np.zeros(6)
    for way in (-1.0, 1.0):
        aim = robot.default_pose + robot.standing_offset
        aim[flexing] += way * SWING_REACH * robot.action_scale[flexing]
        data.ctrl[:] = robot.drive_from_joint @ np.clip(aim, *robot.joint_range.T)
        for _ in range(round(0.24 / step)):  # a whole number of every step
            mujoco.mj_step(model, data)
            mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_SITE, site, velocity, 0)
            peak = max(peak, float(np.linalg.norm(velocity[3:])))
    return peak


def study(robot: Robot) -> dict[str, Any]:
    """The experiments at all STEPS. rows: one per step, with `within` the bounds; chosen_s: the longest step that is; model_s: the
    model's own."""
    rows: list[dict[str, Any]] = []
    for step in STEPS:
        creep, rate = foot_creep(robot, step)
        speed, energy = swing_speed(robot, step), energy_error(robot, step)
        finest = rows[0]["swing_speed_mps"] if rows else speed
        off = abs(speed / finest - 1)
        rows.append({"step_s": step, "foot_creep_mm_per_s": creep, "energy_error": energy, "swing_speed_mps": speed, "swing_speed_error": off,
                     "real_time_factor": rate * step, "within": creep <= CREEP_MAX and energy <= ENERGY_MAX and off <= SPEED_MAX})
    good = [r["step_s"] for r in rows if r["within"]]
    return {"robot": robot.name, "rows": rows, "chosen_s": max(good, default=None), "model_s": float(robot.model.opt.timestep),
            "control_s": SUBSTEPS * float(robot.model.opt.timestep),
            "bounds": {"foot_creep_mm_per_s": CREEP_MAX, "energy_error": ENERGY_MAX, "swing_speed_error": SPEED_MAX}}
