"""The task's lengths come from the robot."""

import pytest

from sim.scale import task_scale


def test_first_robot_keeps_the_lengths_that_the_recipe_was_found_with(robot):
    s = robot.scale
    assert (s.base_height, s.low_base, s.fall_height, s.foot_down) == (0.6, 0.45, 0.3, 0.04)
    assert (s.reach, s.walk_from, s.walk_speed, s.no_step, s.ik_damping) == (0.75, 0.65, 0.8, 1.0, 0.03)
    assert (s.box_x, s.box_y, s.far_x, s.far_y) == (0.6, 1.0, 1.1, 1.7)
    assert (s.strike_low, s.strike_middle, s.strike_high, s.meet_height) == (0.9, pytest.approx(1.15), 1.4, 1.8)


def test_robot_of_half_the_size_gets_half_the_lengths_and_the_same_froude_number():
    big, small = task_scale(0.6, 0.2, 1.5, 0.03, 12.0), task_scale(0.3, 0.1, 0.75, 0.015, 12.0)
    for name, value in vars(big).items():
        share = {"walk_speed": 0.5**0.5, "ik_damping": 0.25, "swing_speed": 1.0}.get(name, 0.5)
        assert getattr(small, name) == pytest.approx(share * value, abs=0.006), name


def test_targets_lie_inside_the_stretched_arm_with_room_to_the_side(robot):
    s = robot.scale
    shoulder = s.standing_height + 0.2305  # SHOULDER above the base, robot.xml
    assert s.standing_height + s.strike_high - shoulder < 0.85 * 2 * s.reach
    assert s.standing_height + s.strike_low < s.meet_height < s.standing_height + s.strike_high
