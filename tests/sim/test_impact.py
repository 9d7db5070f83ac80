"""Impact and its inverse."""

import numpy as np
import pytest

from sim.impact import impact, racket_for, reflect


def test_head_on_by_hand():
    # shuttle at 5 m/s meets a racket at 4 m/s: relative 9 m/s, turned round times 0.75, plus the racket
    out = impact(np.array([[-5.0, 0, 0]]), np.array([[4.0, 0, 0]]), np.array([[1.0, 0, 0]]), 0.75)
    assert out[0, 0] == pytest.approx(4 + 0.75 * 9)


def test_oblique_keeps_the_tangential_part():
    n = np.array([[np.sqrt(0.5), 0, np.sqrt(0.5)]])
    out = impact(np.array([[0.0, 2.0, -6.0]]), np.zeros((1, 3)), n, 0.75)
    # normal component -6/sqrt(2) becomes +0.75*6/sqrt(2); along the face (x, z) = (1, -1)/sqrt(2) stays 6/sqrt(2)
    np.testing.assert_allclose(out[0], [0.75 * 3 + 3, 2.0, 0.75 * 3 - 3])


def test_inverse_agrees_with_impact(rng):
    v_in, v_out = rng.normal(size=(500, 3)) * 8, rng.normal(size=(500, 3)) * 12
    normal, speed = racket_for(v_in, v_out)
    again = impact(v_in, normal * speed[:, None], normal)
    np.testing.assert_allclose(again, v_out, atol=1e-9)


def test_energy_in_the_rackets_frame_never_grows(rng):
    v, vr = rng.normal(size=(500, 3)) * 10, rng.normal(size=(500, 3)) * 10
    n = rng.normal(size=(500, 3))
    n /= np.linalg.norm(n, axis=1, keepdims=True)
    out = impact(v, vr, n)
    assert (np.sum((out - vr) ** 2, axis=1) <= np.sum((v - vr) ** 2, axis=1) + 1e-9).all()


def test_compiled_twin_agrees(rng):
    v, vr, n, out = rng.normal(size=3), rng.normal(size=3), np.array([0.6, 0.0, 0.8]), np.empty(3)
    reflect(v, vr, n, 0.75, out)
    np.testing.assert_allclose(out, impact(v[None], vr[None], n[None])[0])
