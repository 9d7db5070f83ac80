"""Impact and its inverse."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sim.impact import (
    EDGE_LOSS,
    FRAME,
    FRICTION,
    GRIP,
    HEAD_LONG,
    HEAD_WIDE,
    MISSED,
    RESTITUTION,
    STRINGS,
    face_at,
    impact,
    racket_for,
)

velocity = hnp.arrays(float, 3, elements=st.floats(-30, 30))


def test_head_on_by_hand():
    # shuttle at 5 m/s meets a racket at 4 m/s: relative 9 m/s, turned round times 0.75, plus the racket
    out = impact(np.array([[-5.0, 0, 0]]), np.array([[4.0, 0, 0]]), np.array([[1.0, 0, 0]]), 0.75)
    np.testing.assert_allclose(out, [[4 + 0.75 * 9, 0, 0]])


def test_oblique_by_hand_with_grip():
    # 6 m/s straight down onto a face at 45 degrees: normal -6/sqrt(2) turns to 0.75 * 6/sqrt(2); the tangential 6/sqrt(2), small
    # against what sliding friction could take (0.3 * 1.75 = 0.525 of the normal), loses the share GRIP
    n = np.array([[np.sqrt(0.5), 0, np.sqrt(0.5)]])
    out = impact(np.array([[0.0, 0.0, -6.0]]), np.zeros((1, 3)), n, 0.75)
    keep = 1 - GRIP
    np.testing.assert_allclose(out[0], [3 * 0.75 + 3 * keep, 0, 3 * 0.75 - 3 * keep])


def test_grazing_shuttle_slides_and_loses_by_friction():
    # normal 1 m/s, tangential 10 m/s: friction takes 0.3 * 1.75 * 1 m/s off the tangential part, less than GRIP would
    out = impact(np.array([[-1.0, 10.0, 0.0]]), np.zeros((1, 3)), np.array([[1.0, 0, 0]]), 0.75)
    np.testing.assert_allclose(out[0], [0.75, 10 - FRICTION * 1.75, 0])


@given(velocity, velocity, velocity, st.floats(0.3, 0.9))
def test_energy_in_the_rackets_frame_never_grows(v, vr, n, e):
    size = np.linalg.norm(n)
    if size < 1e-3:
        return
    n = n / size
    out = impact(v[None], vr[None], n[None], e)[0]
    assert np.sum((out - vr) ** 2) <= np.sum((v - vr) ** 2) * (1 + 1e-9) + 1e-9


@given(velocity, velocity)
def test_turning_the_normal_round_changes_nothing(v, vr):
    n = np.array([[0.6, 0.0, 0.8]])
    np.testing.assert_allclose(impact(v[None], vr[None], n), impact(v[None], vr[None], -n), atol=1e-9)


def test_inverse_agrees_with_impact_to_a_millimetre_per_second(rng):
    v_in = np.stack([rng.uniform(-12, -0.5, 2000), rng.uniform(-3, 3, 2000), rng.uniform(-9, 2, 2000)], axis=1)
    v_out = np.stack([rng.uniform(3, 25, 2000), rng.uniform(-5, 5, 2000), rng.uniform(-3, 15, 2000)], axis=1)
    normal, speed, solved = racket_for(v_in, v_out)
    assert solved.all()
    again = impact(v_in, normal * speed[:, None], normal)
    assert np.linalg.norm(again - v_out, axis=1).max() < 1e-3
    np.testing.assert_allclose(np.linalg.norm(normal, axis=1), 1)


def test_inverse_of_no_change_says_so():
    v = np.array([[-3.0, 0, -5.0]])
    assert not racket_for(v, v.copy())[2][0]


@pytest.mark.parametrize(("along", "wide", "kind", "restitution"), [
    (0, 0, STRINGS, RESTITUTION), (HEAD_LONG, 0, STRINGS, RESTITUTION * (1 - EDGE_LOSS)), (0, HEAD_WIDE + 0.005, FRAME, 0.35),
    (HEAD_LONG + 0.02, 0, MISSED, 0)])
def test_face_is_strings_then_frame_then_nothing(along, wide, kind, restitution):
    got = face_at(along, wide)
    assert got[0] == kind and got[1] == pytest.approx(restitution)
