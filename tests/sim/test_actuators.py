"""Supply current by hand."""

import numpy as np
import pytest

from sim.actuators import motor_constant, supply_current


def test_stalled_drive_draws_its_stall_current_at_stall_torque(robot):
    # at stall the whole voltage falls over the winding: P = V^2 / R, so the supply sees V / R
    i = robot.joint_names.index("SH_FLE")
    drive = robot.drives[i]
    torque = np.zeros((1, 18))
    torque[0, i] = drive.stall
    resistance = (robot.voltage / drive.no_load) * robot.voltage / drive.stall
    current = supply_current(robot, torque, np.zeros((1, 18)), robot.arm_index)
    assert current[0] == pytest.approx(robot.voltage / resistance)


def test_legs_do_not_count_and_braking_feeds_back(robot):
    torque, speed = np.zeros((1, 18)), np.zeros((1, 18))
    torque[0, 0], speed[0, 0] = 50, 5
    assert supply_current(robot, torque, speed, robot.arm_index)[0] == 0
    i = robot.joint_names.index("FA_ROT")
    torque[0, i], speed[0, i] = 5.0, -20.0
    torque_of_motor = 5.0 - robot.drives[i].friction  # friction of a drive that turns backwards helps it forwards
    expected = ((torque_of_motor / motor_constant(robot)[i]) ** 2 - 20 * torque_of_motor) / robot.voltage
    assert supply_current(robot, torque, speed, robot.arm_index)[0] == pytest.approx(expected)
