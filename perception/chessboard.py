"""Chessboards in images: corners to a fraction of a pixel, in an order that both cameras agree on.

A board whose counts of inner corners are both odd or both even looks the same upside down, and two cameras may then number
its corners differently: each calibrates well alone and the pair is wrong by pixels. Only boards with one odd and one even
count are taken; there the colour of the first square settles the order.
"""

from dataclasses import dataclass

import cv2
import numpy as np

from perception.errors import UserError

Array = np.ndarray

WINDOW_SHARE = 0.25  # half the refinement window over the distance of neighbouring corners: at 0.4 the next corner leaks into
WINDOW_RANGE = (2, 11)  # [px] it and the error doubles; below 0.2 noise grows (measured on recorded boards)
LEAST_SPACING = 5.0  # [px] between neighbouring corners; closer ones are too few pixels to refine, and mostly no board
DARKER = 0.8  # brightness of the first square over that of its neighbours at most; real prints have 0.1 to 0.2


@dataclass(frozen=True)
class Board:
    """A chessboard by its inner corners: columns x rows of them, square [m]."""

    columns: int
    rows: int
    square: float

    def __post_init__(self) -> None:
        if min(self.columns, self.rows) < 3:
            raise UserError(f"a board of {self.columns}x{self.rows} inner corners is too small; print one with at least 4x3")
        if (self.columns + self.rows) % 2 == 0:
            raise UserError(f"a {self.columns}x{self.rows} board looks the same upside down, so that the cameras may number "
                            "its corners differently; use one with one odd and one even count of inner corners, such as 9x6")
        if not 0 < self.square < 10:
            raise UserError(f"a square of {self.square:g} m is no chessboard's")

    @property
    def points(self) -> Array:
        """(columns * rows, 3) corners on the board [m], row by row."""
        grid = np.zeros((self.rows * self.columns, 3))
        grid[:, :2] = np.mgrid[:self.columns, :self.rows].T.reshape(-1, 2) * self.square
        return grid

    @staticmethod
    def parse(text: str, square: float) -> "Board":
        """From "9x6", inner corners."""
        parts = text.lower().split("x")
        if len(parts) != 2 or not all(p.strip().isdigit() for p in parts):
            raise UserError(f"--board {text}: give the counts of inner corners, such as 9x6")
        return Board(int(parts[0]), int(parts[1]), square)


def find_corners(image: Array, board: Board) -> Array | None:
    """(columns * rows, 2) corners [px] of a board in a grey image (H, W) uint8, or None where the whole board is not in sight.

    Order: rows run to the right of columns as seen from the front, first square dark.
    """
    size = (board.columns, board.rows)
    found, corners = cv2.findChessboardCorners(image, size, flags=cv2.CALIB_CB_ADAPTIVE_THRESH | cv2.CALIB_CB_NORMALIZE_IMAGE)
    if not found:  # slower, and finds boards in bad light that the other misses
        found, corners = cv2.findChessboardCornersSB(image, size)
    if not found:
        return None
    corners = np.ascontiguousarray(corners, np.float32).reshape(-1, 1, 2)
    apart = _spacing(corners.reshape(board.rows, board.columns, 2))
    inside = (corners >= 1).all() and (corners <= [image.shape[1] - 2, image.shape[0] - 2]).all()
    if not inside or apart < LEAST_SPACING:  # a detector may extend a part of a board to corners that are not there
        return None
    window = int(np.clip(round(WINDOW_SHARE * apart), *WINDOW_RANGE))
    cv2.cornerSubPix(image, corners, (window, window), (-1, -1), (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, 100, 1e-4))
    return _ordered(image, corners.reshape(-1, 2).astype(float), board)


def mirrored(corners: Array, board: Board, width: int) -> Array:
    """What `find_corners` would have given for the mirror image, of this width [px]: corners (columns * rows, 2) in its order."""
    grid = (np.array([width - 1.0, 0.0]) + np.array([-1.0, 1.0]) * corners).reshape(board.rows, board.columns, 2)
    # of the two reversals that make it right-handed again, the one along the even count keeps the first square dark
    return (grid[::-1] if board.rows % 2 == 0 else grid[:, ::-1]).reshape(-1, 2)


def _spacing(grid: Array) -> float:
    return float(min(np.linalg.norm(np.diff(grid, axis=axis), axis=2).min() for axis in (0, 1)))


def _ordered(image: Array, corners: Array, board: Board) -> Array | None:
    grid = corners.reshape(board.rows, board.columns, 2)
    along, down = grid[0, -1] - grid[0, 0], grid[-1, 0] - grid[0, 0]
    if along[0] * down[1] - along[1] * down[0] < 0:
        grid = grid[::-1]

    def brightness(row: int, column: int) -> float:
        cell = grid[row:row + 2, column:column + 2].reshape(4, 2)
        u, v = np.round(cell.mean(axis=0)).astype(int)
        reach = max(1, int(0.15 * np.linalg.norm(cell[0] - cell[3])))
        return float(image[max(0, v - reach):v + reach + 1, max(0, u - reach):u + reach + 1].mean())

    cells = np.array([[brightness(j, i) for i in range(board.columns - 1)] for j in range(board.rows - 1)])
    even = np.add.outer(np.arange(board.rows - 1), np.arange(board.columns - 1)) % 2 == 0
    dark, light = float(cells[even].mean()), float(cells[~even].mean())
    if min(dark, light) > DARKER * max(dark, light):
        return None  # corners without dark and light squares between them: no chessboard
    if dark > light:
        grid = grid[::-1, ::-1]
    return np.ascontiguousarray(grid.reshape(-1, 2))
