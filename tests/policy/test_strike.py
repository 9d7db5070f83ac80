"""Planned strikes against impact and flight."""

import numpy as np

from perception.flight import FLIP_DRAG, flip_factor, rk4_step
from policy.strike import NET_CLEARANCE, aim, plan_strike
from sim.court import net_height
from sim.impact import impact


def cases(rng, n=60):
    position = np.stack([rng.uniform(-4.8, -3.0, n), rng.uniform(-1, 1, n), rng.uniform(1.4, 2.1, n)], axis=1)
    velocity_in = np.stack([rng.uniform(-5, -1, n), rng.uniform(-1, 1, n), rng.uniform(-6, -4, n)], axis=1)
    place = np.stack([rng.uniform(2, 3.5, n), rng.uniform(-1.5, 1.5, n)], axis=1)
    return position, velocity_in, place, rng.uniform(0.23, 0.27, n), rng.uniform(0, 1, n)


def fly_with_flip(position, velocity, drag, drift, dt=0.004, steps=700):
    """Paths (N, steps, 3) of shuttles that turn over after the hit as the average one does."""
    p, v, out = position.copy(), velocity.copy(), []
    for k in range(steps):
        out.append(p.copy())
        for i in range(len(p)):
            rk4_step(p[i], v[i], drag[i] * flip_factor(np.mean(FLIP_DRAG), (k + 0.5) * dt), drift[i], dt)
    return np.stack(out, axis=1)


def test_planned_racket_sends_the_shuttle_over_the_net_to_the_place(rng):
    position, velocity_in, place, drag, drift = cases(rng)
    strike = plan_strike(position, velocity_in, place, drag, drift)
    assert strike.feasible.all()
    out = impact(velocity_in, strike.velocity, strike.normal)
    path = fly_with_flip(position, out, drag, drift)
    for i in range(len(position)):
        x, y, z = path[i, :, 0], path[i, :, 1], path[i, :, 2]
        net = np.argmax(x > 0)
        assert z[net] > net_height(y[net]) + NET_CLEARANCE - 0.1
        down = np.argmax(z < 0)
        assert np.hypot(x[down] - place[i, 0], y[down] - place[i, 1]) < 0.12


def test_normals_are_unit_and_velocity_is_along_them(rng):
    strike = plan_strike(*cases(rng))
    np.testing.assert_allclose(np.linalg.norm(strike.normal, axis=1), 1, atol=1e-9)
    speed = np.linalg.norm(strike.velocity, axis=1)
    np.testing.assert_allclose(strike.velocity, strike.normal * speed[:, None], atol=1e-9)


def test_place_that_no_speed_reaches_says_so():
    _, _, feasible = aim(np.array([[-4.0, 0, 1.8]]), np.array([[12.0, 0.0]]), np.array([0.248]), np.array([0.6]))
    assert not feasible[0]


def test_elevation_is_raised_where_the_net_asks_for_it():
    low = np.array([[-0.8, 0.0, 0.4]])  # just behind the net and under the tape
    velocity, clearance, feasible = aim(low, np.array([[2.0, 0.0]]), np.array([0.248]), np.array([0.0]), elevation=0.3)
    assert feasible[0] and clearance[0] >= NET_CLEARANCE
    assert np.arctan2(velocity[0, 2], np.hypot(*velocity[0, :2])) > 0.5
