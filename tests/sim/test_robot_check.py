"""`birdie robots` finds what makes a robot unfit."""

import shutil

import pytest

from sim.robot import MODELS, load_robot
from sim.robot_check import describe, problems


def altered(tmp_path, name, old, new):
    folder = tmp_path / "mine"
    shutil.copytree(MODELS / "anymal_dynaarm", folder)
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))
    return load_robot(folder)


# mass [kg]; farthest racket [m]: the links stretched with the wrist bent, 0.047 + 0.413 + 0.421 + 0.589 and 0.040 + 0.264 + 0.251 + 0.590
SIZES = {"anymal_dynaarm": (61.6, 1.475), "go2_x5": (18.5, 1.145)}


def test_shipped_robot_is_fit_and_of_the_size_it_should_be(any_robot):
    facts, (mass, reach) = describe(any_robot), SIZES[any_robot.name]
    assert facts["problems"] == []
    assert facts["mass_kg"] == pytest.approx(mass, abs=0.1)
    assert 0.9 * reach < facts["reach_m"] <= reach
    assert facts["arm_joints"] == 6 and facts["joints"] == 18


def test_targets_are_where_the_racket_can_get(any_robot):
    """Farther to the side than to the highest target, at its height, so that some reach is left to play with."""
    scale = any_robot.scale
    assert describe(any_robot)["strike_range_m"] > scale.walk_from


@pytest.mark.parametrize(("name", "old", "new", "said"), [
    ("robot.xml", 'mass="5.13"', 'mass="6.13"', "centre of mass"),
    ("robot.xml", 'pos="0 0 0.4207"', 'pos="0 0.03 0.4207"', "racket"),
    ("robot.xml", 'range="-0.785 0.611"', 'range="-0.5 0.611"', "LF_HAA"),
    ("robot.yaml", "mirror: SH_ROT,  flip: true", "mirror: SH_ROT", "flip is missing"),
    ("robot.yaml", "default: 0.4,  scale: 0.5,  mirror: RF_HFE", "default: 2.0,  scale: 0.5,  mirror: RF_HFE", "does not stand"),
])
def test_what_is_wrong_is_named(tmp_path, name, old, new, said):
    assert any(said in line for line in problems(altered(tmp_path, name, old, new)))
