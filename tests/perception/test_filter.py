"""The compiled filter against finite differences, textbook formulas and its own guards."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perception.filter import STATES, correct, flight_step, innovation, predict, see, whitened, workspace
from perception.flight import rk4_step
from tests.perception.flights import robot_rig

speeds = st.floats(-40, 40)
drags, drifts = st.floats(0.2, 0.3), st.floats(-0.5, 1.2)


def stepped(x, dt):
    x, move, turn = x.copy(), np.zeros((3, 5)), np.zeros((3, 5))
    flight_step(x, dt, move, turn, workspace())
    return x, move, turn


@given(speeds, speeds, speeds, drags, drifts)
def test_step_is_the_step_of_the_flight_model(vx, vy, vz, k, s):
    x, _, _ = stepped(np.array([1.0, 2.0, 3.0, vx, vy, vz, k, s]), 0.01)
    p, v = np.array([1.0, 2.0, 3.0]), np.array([vx, vy, vz])
    rk4_step(p, v, k, s, 0.01)
    # under the filter's floor on speed its drift fades, by no more than its share of one step
    np.testing.assert_allclose(x[:6], [*p, *v], atol=1e-12 if np.linalg.norm([vx, vy, vz]) > 1 else 2 * abs(s) * 0.01 + 1e-12)


@given(speeds, speeds, speeds, drags, drifts, st.floats(0.001, 0.012))
def test_jacobian_agrees_with_finite_differences(vx, vy, vz, k, s, dt):
    x = np.array([0.5, -1.0, 2.0, vx, vy, vz, k, s])
    if np.linalg.norm(x[3:6]) < 1.0:
        x[3] += 2.0  # next to standstill the drift has a kink, see the guards below
    _, move, turn = stepped(x, dt)
    for n in range(5):
        up, down = x.copy(), x.copy()
        up[3 + n] += 1e-5
        down[3 + n] -= 1e-5
        slope = (stepped(up, dt)[0] - stepped(down, dt)[0])[:6] / 2e-5
        np.testing.assert_allclose(move[:, n], slope[:3], atol=1e-6)
        np.testing.assert_allclose(turn[:, n], slope[3:], atol=1e-6)


def test_covariance_is_carried_as_the_textbook_says(rng):
    x = np.array([0, 0, 1, 3.0, -18.0, 6.0, 0.25, 0.6])
    root = rng.normal(size=(STATES, STATES)) * 0.3
    cov = root @ root.T
    after, move, turn = stepped(x, 0.01)
    whole = np.eye(STATES)
    whole[:3, 3:], whole[3:6, 3:] = move, turn
    want = whole @ cov @ whole.T
    q, h = 4.0, 0.01
    want[:3, :3] += np.eye(3) * q * h**3 / 3
    want[3:6, 3:6] += np.eye(3) * q * h
    want[:3, 3:6] += np.eye(3) * q * h**2 / 2
    want[3:6, :3] += np.eye(3) * q * h**2 / 2
    want[7, 7] += 0.25 * h
    predict(x, cov, h, 2.0, 0.5, workspace())
    np.testing.assert_allclose(cov, want, atol=1e-12)
    np.testing.assert_array_equal(x, after)


def test_many_steps_at_once_are_those_steps_one_by_one(rng):
    root = rng.normal(size=(STATES, STATES)) * 0.1
    for steps in (2, 3, 7):
        once, x = root @ root.T, np.array([0, 0, 1, 3.0, -25.0, 6.0, 0.25, 0.6])
        each, y = once.copy(), x.copy()
        predict(x, once, 0.01 * steps, 0.0, 0.0, workspace())
        for _ in range(steps):
            predict(y, each, 0.01, 0.0, 0.0, workspace())
        np.testing.assert_allclose(x, y, atol=1e-5)
        np.testing.assert_allclose(once, each, atol=1e-4 * np.abs(each).max())


def test_update_is_joseph_form(rng):
    root = rng.normal(size=(STATES, STATES))
    cov = root @ root.T
    slope, noise = rng.normal(size=(3, 3)) * 50, np.diag([1.0, 2.0, 0.5])
    noise[0, 2] = noise[2, 0] = 0.3
    residual, x = np.array([3.0, -1.0, 2.0]), np.zeros(STATES)
    full = np.zeros((3, STATES))
    full[:, :3] = slope
    s = full @ cov @ full.T + noise
    gain = cov @ full.T @ np.linalg.inv(s)
    rest = np.eye(STATES) - gain @ full
    want = rest @ cov @ rest.T + gain @ noise @ gain.T
    chol, pht, white = np.zeros((3, 3)), np.zeros((3, STATES)), np.zeros(3)
    assert np.isclose(innovation(cov, slope, noise, 3, chol, pht), np.linalg.slogdet(s)[1])
    assert np.isclose(whitened(chol, residual, 3, white), residual @ np.linalg.solve(s, residual))
    correct(x, cov, slope, noise, 3, chol, pht, white, np.zeros((3, STATES)), np.zeros((STATES, STATES)), np.zeros((3, STATES)))
    np.testing.assert_allclose(cov, want, atol=1e-9)
    np.testing.assert_allclose(x, gain @ residual, atol=1e-9)


def test_image_and_its_slope_agree_with_finite_differences():
    from perception.triangulation import eyes_of

    eye, x = eyes_of(robot_rig())[1], np.array([0.4, 1.0, 2.0, 0, 0, 0, 0, 0])
    pixel, slope, scrap = np.zeros(2), np.zeros((2, 3)), np.zeros((2, 3))
    for scale in (1.0, 1.03):
        assert see(eye, x, scale, pixel, slope)
        for n in range(3):
            up, down, a, b = x.copy(), x.copy(), np.zeros(2), np.zeros(2)
            up[n] += 1e-6
            down[n] -= 1e-6
            see(eye, up, scale, a, scrap)
            see(eye, down, scale, b, scrap)
            np.testing.assert_allclose(slope[:, n], (a - b) / 2e-6, rtol=1e-5, atol=1e-5)
    assert not see(eye, np.array([0, -9.0, 1.0, 0, 0, 0, 0, 0]), 1.0, pixel, slope)  # behind the camera


sigmas = st.floats(-2.5, 2.5)


@given(st.lists(st.tuples(sigmas, sigmas, sigmas, st.floats(0.0005, 0.05)), min_size=1, max_size=30), speeds, speeds, speeds)
def test_covariance_stays_symmetric_and_positive(steps, vx, vy, vz):
    x = np.array([0.0, 0, 1, vx, vy, vz, 0.248, 0.6])
    cov = np.diag(np.array([5.0, 5, 5, 15, 15, 15, 0.012, 0.25]) ** 2)
    slope, noise = np.eye(3) * 900, np.eye(3) * 1e-4  # a very sharp camera after a very wide prior: the classic way to go negative
    chol, pht, white = np.zeros((3, 3)), np.zeros((3, STATES)), np.zeros(3)
    for *off, dt in steps:
        predict(x, cov, dt, 0.15, 0.1, workspace())
        innovation(cov, slope, noise, 3, chol, pht)
        whitened(chol, np.tril(chol) @ np.clip(off, -30 / np.diag(chol), 30 / np.diag(chol)), 3, white)  # in sigmas, as a gate would pass
        correct(x, cov, slope, noise, 3, chol, pht, white, np.zeros((3, STATES)), np.zeros((STATES, STATES)), np.zeros((3, STATES)))
        assert np.array_equal(cov, cov.T)
        scale = np.sqrt(np.diag(cov))
        assert np.linalg.eigvalsh(cov / scale / scale[:, None])[0] > -1e-9
        assert np.isfinite(x).all()


def test_standstill_and_vertical_flight_have_no_nan_and_no_blow_up():
    for v in ((0.0, 0.0, 0.0), (0.0, 0.0, -6.0), (1e-12, 0.0, 8.0), (0.0, 1e-7, 0.0)):
        x, cov = np.array([0, 0, 1, *v, 0.248, 0.6]), np.eye(STATES) * 0.01
        predict(x, cov, 0.5, 0.15, 0.1, workspace())
        assert np.isfinite(x).all() and np.isfinite(cov).all()
        assert np.diag(cov).max() < 1.0
