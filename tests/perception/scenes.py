"""Images for tests, drawn without a simulator: a wall far away that turns with the camera, and a disc for the shuttle."""

import cv2
import numpy as np

from perception.camera import Camera, Pose, StereoRig, project
from perception.triangulation import SHUTTLE_SIZE

CAMERA = Camera(480, 300, 420.0, 420.0, 239.5, 149.5)
RIG = StereoRig(CAMERA, CAMERA, np.eye(3), np.array([-0.12, 0.0, 0.0]), name="small", fps=60.0)
WHITE, ORANGE = (232, 238, 238), (30, 120, 245)  # blue green red


def looking(yaw=0.0, pitch=0.0, centre=(0.0, 0.0, 0.8)):
    """Pose of a camera that looks along world x, turned by yaw to the left and pitch down [rad]."""
    c, s, cp, sp = np.cos(yaw), np.sin(yaw), np.cos(pitch), np.sin(pitch)
    turn = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1.0]]) @ np.array([[cp, 0, sp], [0, 1, 0], [-sp, 0, cp]])
    return Pose.of_camera(np.array(centre), turn @ np.array([[0.0, 0, 1], [-1, 0, 0], [0, -1, 0]]))


def wall(seed=0):
    """A wall of panels, lamps and white letters, seen by a camera without turn; three times as wide and high as the image."""
    rng = np.random.default_rng(seed)
    image = np.full((900, 1440, 3), (90, 80, 70), np.uint8)
    for _ in range(120):
        x, y = rng.integers(0, 1400), rng.integers(0, 860)
        cv2.rectangle(image, (x, y), (x + int(rng.integers(5, 60)), y + int(rng.integers(5, 60))), tuple(int(v) for v in rng.integers(40, 130, 3)), -1)
    for _ in range(25):
        cv2.putText(image, "21:19", (int(rng.integers(0, 1300)), int(rng.integers(40, 880))), cv2.FONT_HERSHEY_SIMPLEX, 0.8, (240, 240, 240), 2)
    return image


class Hall:
    """Draws what a camera sees. lamp: (yaw, pitch) to the middle of a bright square on the wall."""

    def __init__(self, seed=0, noise=2.0, camera=CAMERA):
        self.rng, self.noise, self.camera, self.wall = np.random.default_rng(seed), noise, camera, wall(seed)
        self.straight = looking().rotation

    def image(self, rotation, discs=(), colour=WHITE):
        """Image for a camera of this rotation; discs: (u, v, diameter) [px], drawn to a sixteenth of a pixel."""
        k = self.camera.matrix
        shift = np.array([[1, 0, 480.0], [0, 1, 300.0], [0, 0, 1]])
        turn = k @ rotation @ self.straight.T @ np.linalg.inv(k) @ np.linalg.inv(shift)
        image = cv2.warpPerspective(self.wall, turn, (self.camera.width, self.camera.height), flags=cv2.INTER_LINEAR)
        for u, v, diameter in discs:
            cv2.circle(image, (round(u * 16), round(v * 16)), round(diameter * 8), colour, -1, cv2.LINE_AA, 4)
        return np.clip(image + self.noise * self.rng.standard_normal(image.shape), 0, 255).astype(np.uint8)

    def pair(self, pose, place=None, colour=WHITE):
        """Left and right image of RIG with a shuttle at place (3,) [m], or none."""
        discs = [(), ()]
        if place is not None:
            pixels = project(RIG, np.array([place]), pose)[0]
            size = SHUTTLE_SIZE * self.camera.fx / max(pose.apply(np.array([place]))[0, 2], 0.1)
            discs = [[(*pixels[:2], size)], [(*pixels[2:], size)]]
        return tuple(self.image(pose.rotation, d, colour) for d in discs)
