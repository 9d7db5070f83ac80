"""Shared pieces: the robot is loaded once, and tests never wait for foreign threads."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import pytest
from hypothesis import settings

from sim.robot import Robot, available_robots, load_robot

settings.register_profile("birdie", deadline=None)  # the first example pays for compilation
settings.load_profile("birdie")


@pytest.fixture(scope="session")
def robot() -> Robot:
    return load_robot("anymal_dynaarm")


@pytest.fixture(scope="session", params=list(available_robots()))
def any_robot(request: pytest.FixtureRequest) -> Robot:
    """Each robot that ships, in turn."""
    return load_robot(request.param)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)
