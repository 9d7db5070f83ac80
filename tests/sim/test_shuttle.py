"""Shuttles against racket, net and floor."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.court import is_in, net_height
from sim.impact import CORK_RADIUS, HEAD_LONG, impact
from sim.shuttle import DOWN, INCOMING, STRUCK, RacketSweep, Shuttles

DT = 0.02


def sweep(position, velocity, normal=(1.0, 0, 0), long_axis=(0, 0, 1.0)):
    return RacketSweep(*(np.array([x], float) for x in (position, velocity, normal, long_axis)))


def away():
    return sweep((-50.0, 0, 1), (0, 0, 0))


def launch(position, velocity):
    s = Shuttles(1)
    s.launch(np.array([0]), np.array([position], float), np.array([velocity], float), np.array([0.248]), np.array([0.0]), np.array([7]),
             np.random.default_rng(0))
    s.scatter[:] = 0
    return s


def run(s, steps=200):
    for _ in range(steps):
        s.step(away(), away(), DT)


@settings(max_examples=200)
@given(st.floats(0.5, 14), st.floats(2, 45), st.floats(0, 1))
def test_fast_racket_and_fast_shuttle_never_pass_through_each_other(racket_speed, shuttle_speed, phase):
    gap = (racket_speed + shuttle_speed) * DT * phase  # they meet somewhere inside the step
    s = launch((gap + CORK_RADIUS + 1e-6, 0, 1.5), (-shuttle_speed, 0, 0.1))
    s.step(sweep((0, 0, 1.5), (racket_speed, 0, 0)), sweep((racket_speed * DT, 0, 1.5), (racket_speed, 0, 0)), DT)
    if not s.touched[0]:  # then it must not have arrived yet: drag slows the shuttle a little
        s.step(sweep((racket_speed * DT, 0, 1.5), (racket_speed, 0, 0)), sweep((2 * racket_speed * DT, 0, 1.5), (racket_speed, 0, 0)), DT)
    assert s.touched[0] and s.phase[0] == STRUCK


def test_velocity_after_contact_is_that_of_the_impact_model():
    s = launch((0.1, 0, 1.5), (-6.0, 0, -2.0))
    s.step(sweep((0, 0, 1.5), (4.0, 0, 0)), sweep((0.08, 0, 1.5), (4.0, 0, 0)), DT)
    expected = impact(np.array([[-6.0, 0, -2.0]]), np.array([[4.0, 0, 0]]), np.array([[1.0, 0, 0]]))
    np.testing.assert_allclose(s.velocity, expected, atol=1.2)  # drag, doubled by the flip, and gravity: at most a step of each


@pytest.mark.parametrize(("offset", "touched"), [(0.0, True), (HEAD_LONG - 0.03, True), (HEAD_LONG + 0.005, True), (HEAD_LONG + 0.03, False)])
def test_only_the_racket_hits(offset, touched):
    s = launch((0.1, 0, 1.5 + offset), (-8.0, 0, 0))
    s.step(sweep((0, 0, 1.5), (0, 0, 0)), sweep((0, 0, 1.5), (0, 0, 0)), DT)
    assert s.touched[0] == touched


def test_back_of_the_racket_hits_too():
    s = launch((-0.1, 0, 1.5), (8.0, 0, 0))
    s.step(sweep((0, 0, 1.5), (0, 0, 0)), sweep((0, 0, 1.5), (0, 0, 0)), DT)
    assert s.touched[0] and s.velocity[0, 0] < 0


def test_flat_shot_is_caught_by_the_net_and_drops_there():
    s = launch((-2.0, 0, 1.0), (12.0, 0, 0))
    run(s)
    assert s.netted[0] and not s.crossed[0] and s.phase[0] == DOWN
    assert -0.2 < s.landing[0, 0] < 0


def test_struck_shot_over_the_net_is_counted_and_lands():
    s = launch((-3.8, 0, 1.8), (-6.0, 0, 0))
    s.phase[0] = INCOMING
    s.step(sweep((-3.9, 0, 1.8), (5, 0, 3), (0.8, 0, 0.6), (-0.6, 0, 0.8)), sweep((-3.8, 0, 1.86), (5, 0, 3), (0.8, 0, 0.6), (-0.6, 0, 0.8)), DT)
    assert s.touched[0]
    run(s)
    assert s.crossed[0] and s.phase[0] == DOWN
    assert is_in(s.landing[0, 0], s.landing[0, 1])


def test_landing_place_is_on_the_floor_between_the_steps():
    s = launch((-3.0, 0.5, 0.3), (0.0, 0, -5.0))
    run(s, 20)
    np.testing.assert_allclose(s.landing[0], [-3.0, 0.5], atol=1e-6)
    assert s.position[0, 2] == 0


def test_tape_is_higher_at_the_posts():
    assert net_height(0.0) == pytest.approx(1.524)
    assert net_height(3.05) == pytest.approx(1.55) == net_height(-3.05)


@pytest.mark.parametrize(("x", "y", "doubles", "expected"), [
    (6.70, 0, True, True), (6.71, 0, True, False), (3, 3.05, True, True), (3, 2.8, False, False), (-1, 0, True, False)])
def test_lines_are_in(x, y, doubles, expected):
    assert is_in(x, y, doubles=doubles) == expected


def test_frame_hit_is_weak_and_noted():
    mid, rim = launch((0.1, 0, 1.5), (-8.0, 0, 0)), launch((0.1, 0, 1.5 + HEAD_LONG + 0.005), (-8.0, 0, 0))
    for s in (mid, rim):
        s.step(sweep((0, 0, 1.5), (0, 0, 0)), sweep((0, 0, 1.5), (0, 0, 0)), DT)
    assert rim.framed[0] and not mid.framed[0]
    assert rim.velocity[0, 0] < 0.6 * mid.velocity[0, 0]


def test_flip_costs_speed_only_for_a_tenth_of_a_second():
    calm, flipped = launch((0.1, 0, 5), (-8.0, 0, 0)), launch((0.1, 0, 5), (-8.0, 0, 0))
    calm.flip[:], flipped.flip[:] = 0.0, 0.8
    for s in (calm, flipped):
        s.step(sweep((0, 0, 5), (8, 0, 0)), sweep((0.16, 0, 5), (8, 0, 0)), DT)
    losses = []
    for _ in range(10):
        for s in (calm, flipped):
            s.step(away(), away(), DT)
        losses.append(np.linalg.norm(calm.velocity) - np.linalg.norm(flipped.velocity))
    assert losses[4] > 0.3
    assert losses[9] <= losses[4] * 1.02  # drag then wears the gap down
