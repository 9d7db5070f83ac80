"""Made-up flights before a made-up camera pair, for the tests of the tracker and what stands around it."""

from dataclasses import replace

import numpy as np

from perception.camera import Pose, StereoRig, project, zedx
from perception.flight import fly
from perception.triangulation import Sight, StereoCfg, eyes_of, sight

STEREO = StereoCfg(pixel_sigma=0.7)


def robot_rig(height: float = 0.6) -> StereoRig:
    """A ZED X at SVGA, looking along +y over the net, 4 m behind it."""
    look = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])  # columns: the camera's axes in the world
    pose = Pose.of_camera(np.array([0.0, -4.0, height]), look)
    return replace(zedx("SVGA", 2.2), left_from_world_rotation=pose.rotation, left_from_world_translation=pose.translation)


def court_rig() -> StereoRig:
    """Two cameras in the corners behind one base line, 9 m from mid court, as in the recorded rallies: nearly alike, never quite."""
    def looking(centre: np.ndarray) -> Pose:
        forward = np.array([0.0, 0.0, 1.5]) - centre
        forward /= np.linalg.norm(forward)
        right = np.cross(forward, [0.0, 0.0, 1.0])
        right /= np.linalg.norm(right)
        return Pose.of_camera(centre, np.stack([right, np.cross(forward, right), forward], axis=1))

    left, right = looking(np.array([-6.0, -7.0, 4.0])), looking(np.array([5.6, -6.2, 4.5]))
    relative = right.rotation @ left.rotation.T
    camera = replace(zedx("HD1200", 2.2).left, fx=900.0, fy=900.0)
    return StereoRig(camera, camera, relative, right.translation - relative @ left.translation, left.rotation, left.translation, "court", 120.0)


def flight(position=(0.3, 3.0, 1.5), velocity=(-0.5, -14.0, 7.0), rate: float = 120.0, seconds: float = 0.9, k: float = 0.248, s: float = 0.5):
    """Times (T,) and states (T, 6) of one flight."""
    steps = int(seconds * rate) + 1
    return np.arange(steps) / rate, fly(np.array([position]), np.array([velocity]), np.array([k]), np.array([s]), 1 / rate, steps)[0]


def sights(rig: StereoRig, times, points, rng=None, noise: float = 0.5, clutter: int = 0, cfg: StereoCfg = STEREO, lag: float = 0.0) -> list[Sight]:
    """Sights of both cameras of points (T, 3), with noise [px] and false candidates a frame; lag [s]: of the right camera.

    With a lag the points are taken to move in a straight line in between.
    """
    eyes, out = eyes_of(rig), []
    later = points + lag * np.gradient(points, times, axis=0)
    for n, time in enumerate(times):
        for side in (0, 1):
            pixels = project(rig, (later if side else points)[n:n + 1])[:, 2 * side:2 * side + 2]
            camera = rig.right if side else rig.left
            pixels = pixels[camera.inside(pixels)]
            if rng is not None:
                pixels = pixels + noise * rng.normal(size=pixels.shape)
                pixels = np.concatenate([pixels, rng.uniform([0, 0], [camera.width, camera.height], (clutter, 2))])
            out.append(sight(rig, side, time + (lag if side else 0.0), pixels, eyes, cfg, n))
    return out
