"""What the drives draw from the robot's supply. The motors themselves are MuJoCo's `dcmotor` elements, see `sim/robot.py`."""

import numpy as np

from sim.robot import Robot

ARM_CURRENT_LIMIT = 8.0  # [A] fuse of the arm's 48 V supply, Ma et al. 2025
Array = np.ndarray


def motor_constant(robot: Robot) -> Array:
    """(J,) motor constant Km [N m / sqrt(W)] of each drive: torque over the square root of its copper loss.

    From the drive's own model: K = V / no-load speed, R = K V / stall torque, Km = K / sqrt(R). A guess, since stall torque and
    no-load speed come from public simulator configurations, not from a data sheet of the windings.
    """
    constant = robot.voltage / robot.per_joint("no_load")
    resistance = constant * robot.voltage / robot.per_joint("stall")
    return constant / np.sqrt(resistance)


def supply_current(robot: Robot, torque: Array, drive_speed: Array, joints: Array) -> Array:
    """Current (N,) [A] that the drives `joints` draw together: sum((tau / Km)^2) / V + sum(tau omega) / V.

    torque, drive_speed (N, J) of the drives [N m, rad/s]. Ma et al. 2025, eq. 3-4; braking drives feed back into the others.
    """
    loss = (torque / motor_constant(robot)) ** 2
    return np.sum((loss + torque * drive_speed)[:, joints], axis=1) / robot.voltage
