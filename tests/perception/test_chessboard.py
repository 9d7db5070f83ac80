"""Chessboard corners: where they are, and in an order that does not hang on how the board is held."""

import numpy as np
import pytest

from perception.chessboard import Board, find_corners, mirrored
from perception.errors import UserError
from tests.perception.boards import BOARD, CAMERA, render, turned


@pytest.mark.parametrize("roll", [0, 40, 95, 180, 265])
def test_corners_are_numbered_alike_however_the_board_is_turned(roll):
    rotation = turned(0, 0, roll) @ turned(20, -15, 0)
    translation = np.array([0.02, 0.01, 0.8]) - rotation @ BOARD.points.mean(axis=0)
    corners = find_corners(render(CAMERA, rotation, translation), BOARD)
    np.testing.assert_allclose(corners, CAMERA.project(BOARD.points @ rotation.T + translation), atol=0.15)


@pytest.mark.parametrize("board", [Board(9, 6, 0.03), Board(6, 9, 0.03), Board(7, 4, 0.03)])
def test_mirrored_corners_are_those_of_the_mirror_image(board):
    rotation = turned(15, 20, 10)
    image = render(CAMERA, rotation, np.array([0.0, 0.0, 0.85]) - rotation @ board.points.mean(axis=0), board)
    flipped = find_corners(np.ascontiguousarray(image[:, ::-1]), board)
    np.testing.assert_allclose(mirrored(find_corners(image, board), board, 640), flipped, atol=0.05)


def test_no_board_no_corners(rng):
    assert find_corners(np.full((480, 640), 120, np.uint8), BOARD) is None
    assert find_corners(rng.integers(0, 255, (480, 640), np.uint8), BOARD) is None


def test_half_a_board_is_no_board():
    translation = np.array([0.42, 0.0, 0.8]) - BOARD.points.mean(axis=0)
    assert find_corners(render(CAMERA, np.eye(3), translation), BOARD) is None


def test_corners_outside_the_image_are_no_corners(monkeypatch):
    outside = np.mgrid[-1:8, 0:6].T.reshape(-1, 1, 2).astype(np.float32) * 40
    monkeypatch.setattr("cv2.findChessboardCorners", lambda *a, **k: (True, outside))
    assert find_corners(np.full((480, 640), 120, np.uint8), BOARD) is None


@pytest.mark.parametrize("text", ["8x8", "9x7", "8x6"])
def test_boards_that_look_the_same_upside_down_are_refused(text):
    with pytest.raises(UserError, match="same upside down"):
        Board.parse(text, 0.03)


@pytest.mark.parametrize("text", ["96", "9by6", "x6", "9x6x3", "-9x6"])
def test_board_text_that_is_none_is_refused_with_an_example(text):
    with pytest.raises(UserError, match="such as 9x6"):
        Board.parse(text, 0.03)
