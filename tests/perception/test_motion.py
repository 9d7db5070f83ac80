"""The shuttle's colour and the turning of earlier images: against plain arrays and OpenCV."""

import cv2
import numpy as np
import pytest

from perception.motion import HALVING, _full, _half, _turned, mapped


def colour(image, orange):
    b, g, r = (image[..., n].astype(int) for n in range(3))
    return np.maximum(r - b if orange else 2 * np.minimum(b, np.minimum(g, r)) - np.maximum(b, np.maximum(g, r)), 0)


@pytest.fixture
def image(rng):
    return cv2.resize(rng.integers(0, 256, (15, 21, 3), dtype=np.uint8), (82, 60), interpolation=cv2.INTER_LINEAR)


@pytest.mark.parametrize("orange", [False, True])
def test_colours_are_those_of_the_formula_and_saturated_ones_of_the_other_kind_are_dark(image, orange):
    whole = np.empty((60, 82), np.uint8)
    _full(image, 0, 0, orange, whole)
    np.testing.assert_array_equal(whole, colour(image, orange))
    part = np.empty((10, 20), np.uint8)
    _full(image, 5, 7, orange, part)
    np.testing.assert_array_equal(part, whole[7:17, 5:25])
    small = np.empty((30, 41), np.uint8)
    _half(image.reshape(60, -1), orange, small)
    sums = image.astype(int).reshape(30, 2, 41, 2, 3).sum(axis=(1, 3))
    np.testing.assert_array_equal(small, colour(sums, orange) >> 2)
    assert (colour(image, orange) == 0).any()  # a difference below zero must not come round as a bright one


def test_a_turned_cut_out_is_that_of_opencv_and_says_where_the_image_did_not_reach(image):
    there = np.array([[1.01, -0.02, 6.3], [0.015, 0.99, -2.2], [1e-5, -2e-5, 1.0]])
    back = np.linalg.inv(there)
    reference = colour(cv2.warpPerspective(image, there, (82, 60)), False)
    reached = cv2.warpPerspective(np.full((60, 82), 255, np.uint8), there, (82, 60)) == 255
    out, covered = np.empty((40, 50), np.uint8), np.empty((40, 50), np.bool_)
    assert not _turned(image, back, 0, 15, False, out, covered)
    assert np.mean(covered == reached[15:55, :50]) > 0.98  # OpenCV rounds to a 32nd of a pixel
    both = covered & reached[15:55, :50]
    assert np.abs(out.astype(int) - reference[15:55, :50])[both].max() <= 12 and (out[~covered] == 0).all()
    assert _turned(image, back, 20, 10, False, out[:20, :20].copy(), covered[:20, :20].copy())


def test_what_is_behind_the_camera_is_mapped_far_outside():
    assert mapped(np.diag([1.0, 1.0, -1.0]), (10.0, 10.0)) == (-1e4, -1e4)
    assert mapped(HALVING, (10.0, 20.0)) == pytest.approx((4.75, 9.75))
