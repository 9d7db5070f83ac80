"""`birdie robots`: what a robot folder describes, and whether it is fit to learn badminton."""

from typing import Any

import mujoco
import numpy as np

from sim.robot import Robot, set_pose

Array = np.ndarray
SAMPLES = 2000  # random arm poses for the reach
TOLERANCE = 1e-6  # [m] between a pose and its mirror image


def describe(robot: Robot) -> dict[str, Any]:
    """Size and strength. reach_m: farthest racket from the shoulder; strike_range_m: farthest at the middle height of targets;
    scale: the task's lengths."""
    m, d = robot.model, mujoco.MjData(robot.model)
    rng = np.random.default_rng(0)
    set_pose(robot, d)
    arm = robot.arm_index
    low, high = robot.joint_range[arm].T
    points = np.empty((SAMPLES, 3))
    for i in range(SAMPLES):
        d.qpos[robot.qpos_index[arm]] = rng.uniform(low, high)
        mujoco.mj_kinematics(m, d)
        points[i] = d.site(robot.racket_site).xpos
    shoulder = d.xpos[m.body(robot.shoulder_body).id]
    level = np.abs(points[:, 2] - robot.standing_height - robot.scale.strike_middle) < 0.15
    flat = np.linalg.norm(points[level, :2] - shoulder[:2], axis=1)
    return {
        "name": robot.name, "folder": str(robot.spec_path.parent), "mass_kg": float(m.body_subtreemass[0]),
        "joints": len(robot.joint_names), "arm_joints": len(arm), "standing_height_m": robot.standing_height,
        "reach_m": float(np.linalg.norm(points - shoulder, axis=1).max()),
        "strike_range_m": float(flat.max()) if len(flat) else 0.0,
        "torque_nm": float(robot.per_joint("torque").max()), "scale": vars(robot.scale), "problems": problems(robot),
    }


def problems(robot: Robot) -> list[str]:
    """One line for each thing to mend; empty when the robot is fit."""
    found = []
    m, d = robot.model, mujoco.MjData(robot.model)
    low, high = robot.joint_range.T
    mirrored_range = robot.mirror_sign[:, None] * robot.joint_range[robot.mirror_index]
    mirrored_range.sort(axis=1)
    for i in np.flatnonzero(np.abs(mirrored_range - robot.joint_range).max(axis=1) > 1e-6):
        found.append(f"joint {robot.joint_names[i]}: its range is not the mirror image of {robot.joint_names[robot.mirror_index[i]]}'s")
    for field in ("kp", "kd", "torque", "no_load"):
        value = robot.per_joint(field)
        for i in np.flatnonzero(value != value[robot.mirror_index]):
            found.append(f"joint {robot.joint_names[i]}: {field} differs from {robot.joint_names[robot.mirror_index[i]]}'s")
    q = np.clip(robot.default_pose + 0.2 * np.sin(np.arange(len(low))), low, high)
    seen = []
    for pose in (q, robot.mirror_sign * q[robot.mirror_index]):
        set_pose(robot, d)
        d.qpos[robot.qpos_index] = pose
        mujoco.mj_forward(m, d)
        seen.append((d.site(robot.racket_site).xpos.copy(), d.subtree_com[0].copy()))
    for what, a, b in zip(("racket", "centre of mass"), *seen, strict=True):
        off = float(np.linalg.norm(a * [1, -1, 1] - b))
        if off > TOLERANCE:
            found.append(f"the {what} of the mirrored pose is {off * 1000:.1f} mm from its mirror image: left and right differ in lengths or masses, "
                         "or a flip is missing in robot.yaml")
    set_pose(robot, d)
    d.ctrl[:] = robot.drive_from_joint @ (robot.default_pose + robot.standing_offset)
    for _ in range(round(2.0 / m.opt.timestep)):
        mujoco.mj_step(m, d)
    if not abs(d.qpos[2] - robot.standing_height) < 0.1 * robot.standing_height:
        found.append(f"with no action it does not stand: base at {d.qpos[2]:.2f} m after 2 s instead of {robot.standing_height:.2f}; "
                     "check the default pose, kp of the legs and standing_height")
    return found
