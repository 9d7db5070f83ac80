"""Rendered stereo images from cameras on a moving robot: what a ZED X would deliver of a flight in a hall.

One picture is one render of the whole scene at mid exposure, smeared by the camera's own turn, and the shuttle on top: drawn alone,
finely sampled, at every sub-frame with its own place and the camera's, hidden where the scene's depth is nearer, and averaged. So only
shuttle and camera move within an exposure; robot and people are frozen at its middle (a racket at 10 m/s would smear 15 mm).
Then the softness of the lens and the sensor's noise. The scene has one sample a pixel: software OpenGL takes three times as long with
four, and edges that shimmer make life harder for a detector, not easier.

Images are (height, width, 3) uint8, blue green red as OpenCV has it. A pixel of integer coordinates is the middle of that pixel, as in
`perception/camera.py`. OpenGL must have been chosen by `sim/display.py`.
"""

import os
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import cv2
import mujoco
import numpy as np
from numba import njit

from perception.camera import Camera, Pose, StereoRig
from perception.errors import UserError
from sim.hall import add_hall
from sim.robot import Robot, build_spec
from sim.scene import add_court

Array = np.ndarray

SKIRT, CORK = 0.065, 0.027  # [m] diameters, BWF laws: tips on a circle of 58 to 68 mm, cork 25 to 28 mm
FEATHERS, FEATHER_LENGTH = 16, 0.066  # number and [m]; BWF laws: 62 to 70 mm
COLOURS = {"white": ((0.93, 0.93, 0.90, 1.0), (0.95, 0.92, 0.85, 1.0)), "orange": ((1.0, 0.42, 0.08, 1.0), (0.95, 0.92, 0.85, 1.0))}  # skirt, cork
_NEAR, _FAR = 0.03, 60.0  # [m] clipping planes
_EDGE = 6  # [px] of a cut-out round the shuttle
_FINE = 4  # samples across a pixel of the shuttle
_SOFT = 0.5  # [px] sigma of the lens' blur: our choice, about what a sharp machine-vision lens leaves
_TILES = 1 << 20  # noise numbers drawn once and read from a random place each time: a fresh draw would cost more than the render


@dataclass(frozen=True)
class SensorCfg:
    """exposure [s]: at most 2 ms, else a fast shuttle smears beyond use. subframes: places of shuttle and camera within it; five are a step of 1 px at
    20 m/s, 4 m away. read_noise [grey levels] and shot_noise [grey levels at full white]: our choice, a global-shutter
    sensor at the gain that 1.5 ms of hall light needs. shuttle: white or orange.
    """

    exposure: float = 0.0015
    subframes: int = 5
    read_noise: float = 1.5
    shot_noise: float = 2.5
    shuttle: str = "white"

    def __post_init__(self) -> None:
        if not 0 < self.exposure <= 0.002 or self.subframes < 1 or self.read_noise < 0 or self.shot_noise < 0:
            raise UserError(f"exposure must be in (0, 0.002] s, subframes at least 1, noises not negative; got {self}")
        if self.shuttle not in COLOURS:
            raise UserError(f"shuttles are {' or '.join(COLOURS)}, not {self.shuttle}")

    @property
    def offsets(self) -> Array:
        """(subframes,) times of the sub-frames from mid exposure [s]."""
        return (np.arange(self.subframes) + 0.5) / self.subframes * self.exposure - self.exposure / 2


def lens_in_base(robot: Robot) -> tuple[Array, Array]:
    """Axes (3, 3), OpenCV's, and place (3,) [m] of the left camera in the base frame, from the model's camera_left."""
    m, d = robot.model, mujoco.MjData(robot.model)
    try:
        camera, base = m.camera("camera_left").id, m.body(robot.base_body).id
    except KeyError as error:
        raise UserError(f"{robot.spec_path} has no camera named camera_left on its base: where does it see from?") from error
    mujoco.mj_kinematics(m, d)
    mujoco.mj_camlight(m, d)
    turn = d.xmat[base].reshape(3, 3).T
    return turn @ d.cam_xmat[camera].reshape(3, 3) @ np.diag([1.0, -1.0, -1.0]), turn @ (d.cam_xpos[camera] - d.xpos[base])


def lens_pose(base: Array, lens: tuple[Array, Array]) -> Pose:
    """Pose of the left camera for a base at (7,): place [m] and quaternion (w, x, y, z)."""
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, np.asarray(base[3:7], float))
    turn = matrix.reshape(3, 3)
    return Pose.of_camera(base[:3] + turn @ lens[1], turn @ lens[0])


def _add_shuttle_mesh(spec: mujoco.MjSpec) -> None:
    """Cork and skirt as two meshes about the cork's middle, cork towards +z: the place of a shuttle is where it meets the strings, as in
    `sim/shuttle.py`, and near its centre of mass. The skirt: 16 vanes that overlap over their outer half, stems below."""
    length = FEATHER_LENGTH * np.cos(np.arcsin((SKIRT - CORK) / 2 / FEATHER_LENGTH))
    cork_length = CORK * 0.95
    top = CORK / 2
    corners: list[Array] = []
    faces: list[tuple[int, int, int]] = []

    def quad(a: Array, b: Array, c: Array, d: Array) -> None:
        for side in ((0, 1, 2), (0, 2, 3), (2, 1, 0), (3, 2, 0)):  # seen from both sides
            faces.append(tuple(len(corners) + n for n in side))  # type: ignore[arg-type]
        corners.extend([a, b, c, d])

    def rim(share: float, angle: float) -> Array:
        radius = CORK / 2 * 0.9 + share * (SKIRT / 2 - CORK / 2 * 0.9)
        return np.array([radius * np.cos(angle), radius * np.sin(angle), top - cork_length - share * length])

    step = 2 * np.pi / FEATHERS
    for n in range(FEATHERS):
        middle = n * step
        for low, high, narrow, wide in ((0.0, 0.45, 0.10, 0.10), (0.45, 0.6, 0.3, 0.5), (0.6, 1.0, 0.52, 0.48)):
            quad(rim(low, middle - narrow * step), rim(low, middle + narrow * step), rim(high, middle + wide * step), rim(high, middle - wide * step))
    for thread in (0.25, 0.4):
        for n in range(FEATHERS):
            a, b = n * step, (n + 1) * step
            quad(rim(thread, a), rim(thread, b), rim(thread + 0.025, b), rim(thread + 0.025, a))
    spec.add_mesh(name="shuttle_skirt", uservert=np.ravel(corners), userface=np.ravel(faces), inertia=mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL)
    rings, around = 6, 20
    points = [np.array([0.0, 0.0, top])]
    for r in range(1, rings + 1):
        bend = min(r / (rings - 1), 1.0) * np.pi / 2
        z = top - CORK / 2 * (1 - np.cos(bend)) if r < rings else top - cork_length
        points += [np.array([CORK / 2 * np.sin(bend) * np.cos(a), CORK / 2 * np.sin(bend) * np.sin(a), z]) for a in np.arange(around) * 2 * np.pi / around]
    points.append(np.array([0.0, 0.0, top - cork_length]))
    shell = [(0, 1 + n, 1 + (n + 1) % around) for n in range(around)]
    for r in range(rings - 1):
        for n in range(around):
            a, b, c, d = (1 + r * around + n, 1 + r * around + (n + 1) % around, 1 + (r + 1) * around + n, 1 + (r + 1) * around + (n + 1) % around)
            shell += [(a, c, b), (b, c, d)]
    last = len(points) - 1
    shell += [(last, 1 + (rings - 1) * around + (n + 1) % around, 1 + (rings - 1) * around + n) for n in range(around)]
    spec.add_mesh(name="shuttle_cork", uservert=np.ravel(points), userface=np.ravel(shell), inertia=mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL)


@njit(cache=True)
def _add_noise(image, noise, start, sigma, out):
    """out = image + sigma[image] * noise, clipped; the noise is read from `start` on, wrapping round."""
    mask = len(noise) - 1
    for i in range(len(image)):
        level = min(max(image[i], 0.0), 255.0)
        value = level + sigma[int(level)] * noise[(start + i) & mask]
        out[i] = np.uint8(min(max(value + 0.5, 0.0), 255.0))


class StereoCameras:
    """The cameras of one robot in the hall. Close it after use, or use it in a `with`."""

    def __init__(self, robot: Robot, rig: StereoRig, rng: np.random.Generator, cfg: SensorCfg = SensorCfg()) -> None:
        if any(rig.left.distortion) or any(rig.right.distortion):
            raise UserError(f"rig {rig.name} has lens distortion; images are rendered rectified, as a ZED X delivers them")
        self.robot, self.rig, self.cfg, self.rng = robot, rig, cfg, rng
        self.lens = lens_in_base(robot)
        spec = build_spec([robot])
        add_court(spec)
        self._move_hall = add_hall(spec, rng)
        _add_shuttle_mesh(spec)
        self.model = spec.compile()
        width, height = max(rig.left.width, rig.right.width), max(rig.left.height, rig.right.height)
        self.model.vis.global_.offwidth, self.model.vis.global_.offheight = width, height
        self.model.vis.quality.shadowsize = 0  # shadows would triple the time and lie where no shuttle does
        self.model.vis.quality.offsamples = 0
        self.data = mujoco.MjData(self.model)
        self._hall, self._alone = mujoco.MjvScene(self.model, 1000), mujoco.MjvScene(self.model, 10)  # the second has lights and shuttle only
        for scene in (self._hall, self._alone):
            for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION, mujoco.mjtRndFlag.mjRND_SKYBOX):
                scene.flags[flag] = 0
        self._free, self._everything, self._nothing = mujoco.MjvCamera(), mujoco.MjvOption(), mujoco.MjvOption()
        self._nothing.geomgroup[:] = 0
        self._gl = _gl_context(width, height)
        self._gl.make_current()
        self._context = mujoco.MjrContext(self.model, mujoco.mjtFontScale.mjFONTSCALE_100)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        levels = np.arange(256)
        self._sigma = np.sqrt(cfg.read_noise**2 + cfg.shot_noise**2 * levels / 255).astype(np.float32)
        self._noise = rng.standard_normal(_TILES).astype(np.float32)
        self._limit = (width, height)

    def __enter__(self) -> "StereoCameras":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Give the OpenGL context back."""
        self._context.free()
        self._gl.free()

    def pose(self, qpos: Array) -> Pose:
        """Pose of the left camera for a robot at qpos."""
        return lens_pose(np.asarray(qpos)[:7], self.lens)

    def shoot(self, time: float, qpos: Array, poses: list[Pose], shuttle: Array | None = None) -> tuple[Array, Array, Array]:
        """Left and right image of one exposure, and how much of the shuttle each shows.

        time [s] for what moves in the hall; qpos (nq,) of the robot at mid exposure; poses: of the left camera at cfg.offsets, the
        middle one counts as that of the exposure; shuttle (subframes, 6): place and direction of flight at cfg.offsets [m, -], world,
        None for none. Third result (2,): visible share of a shuttle's outline, 0 where it is out of the image or hidden.
        """
        d = self.data
        d.qpos[:len(qpos)] = qpos
        self._move_hall(d, time)
        mujoco.mj_kinematics(self.model, d)
        mujoco.mj_comPos(self.model, d)
        mujoco.mj_camlight(self.model, d)
        for scene, options in ((self._hall, self._everything), (self._alone, self._nothing)):
            mujoco.mjv_updateScene(self.model, d, options, None, self._free, mujoco.mjtCatBit.mjCAT_ALL.value, scene)
        self._gl.make_current()
        images, shares = [], np.zeros(2)
        for side, camera in enumerate((self.rig.left, self.rig.right)):
            eyes = [_eye(self.rig, side, p) for p in poses]
            plain, depth = self._render(self._hall, camera, eyes[len(eyes) // 2], (0, 0, camera.width, camera.height), 1)
            image: Array = _smear(plain, camera, eyes).astype(np.float32)
            if shuttle is not None:
                shares[side] = self._add_shuttle(image, depth, camera, eyes, shuttle)
            image = cv2.GaussianBlur(image, (0, 0), _SOFT)
            out = np.empty(image.size, np.uint8)
            _add_noise(image.ravel(), self._noise, int(self.rng.integers(_TILES)), self._sigma, out)
            images.append(out.reshape(image.shape))
        return images[0], images[1], shares

    def _add_shuttle(self, image: Array, depth: Array, camera: Camera, eyes: list[Pose], shuttle: Array) -> float:
        """Draw the shuttle over a float32 image with its depth buffer, in place; returns its visible share."""
        places = np.array([eye.apply(s[None, :3])[0] for eye, s in zip(eyes, shuttle, strict=True)])
        if places[:, 2].min() < 2 * _NEAR:
            return 0.0
        pixels = camera.project(places)
        reach = 0.1 * camera.fx / places[:, 2].min() + _EDGE
        low = np.maximum(np.floor(pixels.min(axis=0) - reach), 0).astype(int)
        high = np.minimum(np.ceil(pixels.max(axis=0) + reach), (camera.width, camera.height)).astype(int)
        w, h = high - low
        if w < 2 or h < 2:
            return 0.0
        fine = max(1, min(_FINE, self._limit[0] // w, self._limit[1] // h))
        box = (int(low[0]), int(low[1]), int(w), int(h))
        behind = np.kron(depth[low[1]:high[1], low[0]:high[0]], np.ones((fine, fine), np.float32))
        light, cover = np.zeros((h * fine, w * fine, 3), np.float32), np.zeros((h * fine, w * fine), np.float32)
        for eye, s in zip(eyes, shuttle, strict=True):
            self._alone.ngeom = 0
            self._draw_shuttle(s[:3], s[3:])
            colours, near = self._render(self._alone, camera, eye, box, fine)
            seen = (near < behind) & (near < 1.0)
            light += colours * seen[..., None]
            cover += seen
        mean_light, mean_cover = (cv2.resize(x / len(eyes), (w, h), interpolation=cv2.INTER_AREA) for x in (light, cover))
        part = image[low[1]:high[1], low[0]:high[0]]
        part *= 1 - mean_cover[..., None]
        part += mean_light
        outline = 0.7 * np.pi / 4 * (SKIRT * camera.fx / places[:, 2].mean()) ** 2  # [px^2]; 0.7: gaps between the stems
        return min(float(mean_cover.sum()) / outline, 1.0)

    def _draw_shuttle(self, place: Array, direction: Array) -> None:
        z = direction / max(float(np.linalg.norm(direction)), 1e-9)
        x = np.cross([0.0, 1.0, 0.0] if abs(z[1]) < 0.9 else [1.0, 0.0, 0.0], z)
        x /= np.linalg.norm(x)
        frame = np.stack([x, np.cross(z, x), z], axis=1)
        for name, colour in zip(("shuttle_skirt", "shuttle_cork"), COLOURS[self.cfg.shuttle], strict=True):
            mesh = self.model.mesh(name).id
            local = np.zeros(9)
            mujoco.mju_quat2Mat(local, self.model.mesh_quat[mesh])  # the compiler moves a mesh to its own principal axes
            geom = self._alone.geoms[self._alone.ngeom]
            mujoco.mjv_initGeom(geom, mujoco.mjtGeom.mjGEOM_MESH, np.ones(3), place + frame @ self.model.mesh_pos[mesh],
                                (frame @ local.reshape(3, 3)).ravel(), np.array(colour, np.float32))
            geom.dataid = 2 * mesh
            geom.emission = 0.4  # feathers let light through: seen from below they are not dark
            self._alone.ngeom += 1

    def _render(self, scene: mujoco.MjvScene, camera: Camera, eye: Pose, box: tuple[int, int, int, int], fine: int) -> tuple[Array, Array]:
        """Colours (h, w, 3) uint8 and depth buffer (h, w) of the part box (x, y, width, height) [px] of an image, `fine` samples across a pixel."""
        x, y, w, h = box
        axes = eye.rotation.T
        for lens in scene.camera:
            lens.pos, lens.forward, lens.up = eye.centre, axes[:, 2], -axes[:, 1]
            lens.frustum_near, lens.frustum_far = _NEAR, _FAR
            lens.frustum_top = (camera.cy - y + 0.5) * _NEAR / camera.fy  # a pixel's middle is at its integer, its edges half a pixel off
            lens.frustum_bottom = (camera.cy - (y + h) + 0.5) * _NEAR / camera.fy
            lens.frustum_center = (x + w / 2 - 0.5 - camera.cx) * _NEAR / camera.fx
            lens.frustum_width = w / 2 * _NEAR / camera.fx
            lens.orthographic = 0
        view = mujoco.MjrRect(0, 0, w * fine, h * fine)
        mujoco.mjr_render(view, scene, self._context)
        colours, depth = np.empty((h * fine, w * fine, 3), np.uint8), np.empty((h * fine, w * fine), np.float32)
        mujoco.mjr_readPixels(colours, depth, view, self._context)
        return colours[::-1, :, ::-1], depth[::-1]


def _gl_context(width: int, height: int) -> Any:
    """A context of the OpenGL that `sim/display.py` chose, also where MuJoCo was imported before that."""
    backend = os.environ.get("MUJOCO_GL", "")
    if backend in ("egl", "osmesa"):
        return import_module(f"mujoco.{backend}").GLContext(width, height)
    return mujoco.GLContext(width, height)


def _eye(rig: StereoRig, side: int, left: Pose) -> Pose:
    """Pose of the left (0) or right (1) camera."""
    if side == 0:
        return left
    return Pose(rig.right_from_left_rotation @ left.rotation, rig.right_from_left_rotation @ left.translation + rig.right_from_left_translation)


def _smear(image: Array, camera: Camera, eyes: list[Pose]) -> Array:
    """The mean of an image turned as the camera turned within the exposure: at its begin, middle and end."""
    middle = eyes[len(eyes) // 2]
    if np.linalg.norm(eyes[0].rotation - eyes[-1].rotation) / np.sqrt(2) * camera.fx < 0.25:  # [px] from begin to end
        return image
    inverse = np.linalg.inv(camera.matrix)
    ends = [cv2.warpPerspective(image, camera.matrix @ eye.rotation @ middle.rotation.T @ inverse, (camera.width, camera.height),
                                borderMode=cv2.BORDER_REPLICATE) for eye in (eyes[0], eyes[-1])]
    return cv2.addWeighted(cv2.addWeighted(ends[0], 0.5, ends[1], 0.5, 0), 2 / 3, image, 1 / 3, 0)
