"""Rendered chessboards with known answers, for the tests of calibration."""

import cv2
import numpy as np

from perception.camera import Camera, StereoRig
from perception.chessboard import Board

BOARD = Board(9, 6, 0.03)
CAMERA = Camera(640, 480, 520.0, 521.0, 322.0, 238.0)
RIG = StereoRig(CAMERA, Camera(640, 480, 525.0, 524.0, 318.0, 241.0), cv2.Rodrigues(np.array([0.01, -0.02, 0.005]))[0],
                np.array([-0.12, 0.001, -0.002]))
CELL = 24  # [px] of the texture that a square has


def texture(board):
    """(H, W) uint8 board with a white rim, its first inner square black."""
    j, i = np.mgrid[:board.rows + 1, :board.columns + 1]
    squares = np.where((i + j) % 2 == 0, 20, 235).astype(np.uint8)
    return np.pad(np.kron(squares, np.ones((CELL, CELL), np.uint8)), CELL, constant_values=235)


def render(camera, rotation, translation, board=BOARD, scale=3):
    """Grey image (H, W) of a board whose points x are at rotation @ x + translation [m] in the camera; no distortion."""
    # texture pixel -> board [m]: inner corner (0, 0) is two cells in; pixel centres, hence the half
    corner = 0.5 / CELL - 2
    to_board = np.array([[1 / CELL, 0, corner], [0, 1 / CELL, corner], [0, 0, 1 / board.square]]) * board.square
    plane = np.column_stack([rotation[:, 0], rotation[:, 1], translation])
    up = np.array([[scale, 0, (scale - 1) / 2], [0, scale, (scale - 1) / 2], [0, 0, 1]])
    image = cv2.warpPerspective(texture(board), up @ camera.matrix @ plane @ to_board,
                                (camera.width * scale, camera.height * scale), flags=cv2.INTER_LINEAR, borderValue=110)
    return cv2.GaussianBlur(cv2.resize(image, (camera.width, camera.height), interpolation=cv2.INTER_AREA), (3, 3), 0.6)


def turned(*degrees):
    return cv2.Rodrigues(np.deg2rad(np.array(degrees, float)))[0]


ALL_OVER = tuple((x, y) for y in (-0.19, 0.01, 0.2) for x in (-0.2, 0.05, 0.3)) + ((0.05, 0.0),)  # [m] board centres at 0.9 m


def poses(board=BOARD, places=ALL_OVER, tilt=30.0):
    """(rotation, translation) of boards all over the left image, tilted to all sides."""
    out = []
    middle = board.points.mean(axis=0)
    for n, (x, y) in enumerate(places):
        angle = 2 * np.pi * n / 5
        rotation = turned(tilt * np.cos(angle), tilt * np.sin(angle), 4.0 * n - 18)
        out.append((rotation, np.array([x, y, 0.85 + 0.02 * n]) - rotation @ middle))
    return out


def shoot(folder, poses, rig=RIG, board=BOARD, change=lambda side, image: image):
    """Write left*.png and right*.png of boards at these poses (in the left camera) to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for n, (rotation, translation) in enumerate(poses):
        turn = rig.right_from_left_rotation
        moved = (turn @ rotation, turn @ translation + rig.right_from_left_translation)
        for side, camera, pose in (("left", rig.left, (rotation, translation)), ("right", rig.right, moved)):
            cv2.imwrite(str(folder / f"{side}{n:02d}.png"), change(side, render(camera, *pose, board)))
    return folder
