"""The physics step is the longest that keeps feet, energy and swing within stated bounds."""

from sim.robot import load_robot
from sim.timestep import CREEP_MAX, ENERGY_MAX, SPEED_MAX, energy_error, foot_creep, study, swing_speed


def test_the_models_step_is_the_longest_within_the_bounds():
    figures = study(load_robot())
    assert figures["chosen_s"] == figures["model_s"]
    assert [r["step_s"] for r in figures["rows"]] == [0.001, 0.002, 0.004, 0.005, 0.010]
    assert not figures["rows"][-1]["within"]  # or the list ought to go on


def test_experiments_are_exact_in_the_limit():
    robot = load_robot()
    coarse, fine = energy_error(robot, 0.005), energy_error(robot, 0.0005)
    assert fine < 0.2 * coarse < 0.2 * ENERGY_MAX
    assert foot_creep(robot, 0.005)[0] < CREEP_MAX
    assert abs(swing_speed(robot, 0.0005) / swing_speed(robot, 0.001) - 1) < SPEED_MAX / 3
