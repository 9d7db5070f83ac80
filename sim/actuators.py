"""What the drives draw from the robot's supply. The motors themselves are MuJoCo's `dcmotor` elements, see `sim/robot.py`."""

import numpy as np

from sim.robot import STRIBECK, Robot

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
    The torque that reaches the joint lacks what the drive's own friction took; tau is the motor's.
    """
    speed = drive_speed[:, joints]
    motor = torque[:, joints] + robot.per_joint("friction")[joints] * np.tanh(speed / STRIBECK)
    loss = (motor / motor_constant(robot)[joints]) ** 2
    return np.sum(loss + motor * speed, axis=1) / robot.voltage
