"""A sports hall for rendered cameras: walls with panels, banners and windows, lamps, people who move, a swinging bag.

Nothing here has physics. Everything that a shuttle detector has trouble with is there on purpose: white letters and lines, lamps
that saturate, white shirts, an arm that swings a racket, a bag that swings. Sizes are a common club hall's, our choice.
World frame of `court.xml`: x to the opponent, y left, z up.
"""

from collections.abc import Callable
from itertools import pairwise

import cv2
import mujoco
import numpy as np

Array = np.ndarray

FRONT, BACK, SIDE, HEIGHT = 13.5, -13.0, 8.5, 8.0  # [m] walls behind the opponent and the robot, half width, ceiling
_PIXELS = 80  # [1/m] of a wall texture: 12 mm, finer than a camera pixel at the far wall
_GEOM = mujoco.mjtGeom
_BANNERS = ("BIRDIE OPEN", "FAIR PLAY", "COURT 3", "SC 1904", "21 : 19", "SMASH", "NO SHOES")


def _wall_image(width: float, rng: np.random.Generator, banners: int) -> Array:
    """(H, W, 3) RGB picture of a wall `width` metres long: painted panels, a rail, windows, banners with white letters."""
    w, h = int(width * _PIXELS), int(HEIGHT * _PIXELS)
    grain = cv2.resize(rng.normal(0, 1, (h // 16, w // 16)).astype(np.float32), (w, h), interpolation=cv2.INTER_CUBIC)
    grain = grain + 0.6 * rng.standard_normal((h, w), np.float32)
    image = np.empty((h, w, 3), np.float32)
    image[:] = (78, 92, 98)
    image[h * 5 // 8:] = (122, 96, 66)  # wooden impact wall up to 3 m
    panel = int(1.2 * _PIXELS)
    for x in range(0, w, panel):
        image[h * 5 // 8:, x:x + panel] *= rng.uniform(0.86, 1.1)
        image[:, x:x + 2] *= 0.6
    image[h * 5 // 8 - 4:h * 5 // 8 + 4] = (190, 190, 185)
    for x in range(panel // 2, w - panel, 3 * panel):  # windows under the ceiling
        image[int(0.07 * h):int(0.19 * h), x:x + 2 * panel] = (150, 165, 175)
        image[int(0.07 * h):int(0.19 * h), x:x + 2 * panel:panel // 2] = 60
    image += 4.0 * grain[..., None]
    picture = np.clip(image, 0, 255).astype(np.uint8)
    for _ in range(banners):
        bw, bh = int(rng.uniform(1.6, 3.0) * _PIXELS), int(rng.uniform(0.5, 1.0) * _PIXELS)
        x, y = int(rng.integers(4, max(w - bw, 5))), int(rng.uniform(0.25, 0.8) * h)
        colour = tuple(int(c) for c in rng.choice([(170, 30, 35), (25, 50, 130), (20, 90, 50), (225, 190, 40), (235, 235, 235), (225, 110, 30)]))
        ink = (30, 30, 40) if sum(colour) > 500 else (240, 240, 240)
        cv2.rectangle(picture, (x, y), (x + bw, y + bh), colour, -1)
        words = str(rng.choice(_BANNERS))
        size = bw / 22 / len(words) * 1.15
        cv2.putText(picture, words, (x + bw // 14, y + int(0.66 * bh)), cv2.FONT_HERSHEY_DUPLEX, size, ink, max(2, int(2.2 * size)), cv2.LINE_AA)
    return picture


def _ceiling_image(rng: np.random.Generator) -> Array:
    w, h = int(2 * SIDE * 40), int((FRONT - BACK) * 40)
    image = np.full((h, w, 3), (70, 72, 74), np.float32) + rng.normal(0, 3, (h, w, 1)).astype(np.float32)
    for y in range(0, h, 60):
        image[y:y + 8] = (105, 108, 110)  # girders
    return np.clip(image, 0, 255).astype(np.uint8)


def _material(spec: mujoco.MjSpec, name: str, picture: Array, emission: float) -> str:
    spec.assets[f"{name}.png"] = cv2.imencode(".png", picture[..., ::-1])[1].tobytes()
    spec.add_texture(name=name, type=mujoco.mjtTexture.mjTEXTURE_2D, file=f"{name}.png")
    material = spec.add_material(name=name, emission=emission, specular=0.0)
    material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = name
    return name


def _person(spec: mujoco.MjSpec, name: str, shirt: tuple[float, float, float]) -> None:
    """A mocap body of capsules, 1.75 m tall, feet at its origin."""
    body = spec.worldbody.add_body(name=name, mocap=True)
    skin, trousers = [0.82, 0.62, 0.5, 1], [0.13, 0.14, 0.2, 1]
    for ends, radius, colour in (
        ((0, 0.1, 0.05, 0, 0.1, 0.85), 0.075, trousers), ((0, -0.1, 0.05, 0, -0.1, 0.85), 0.075, trousers),
        ((0.05, 0.1, 0.04, 0.2, 0.1, 0.04), 0.045, [0.92, 0.92, 0.92, 1]), ((0.05, -0.1, 0.04, 0.2, -0.1, 0.04), 0.045, [0.92, 0.92, 0.92, 1]),
        ((0, 0, 0.95, 0, 0, 1.35), 0.16, [*shirt, 1]), ((0, 0.24, 0.9, 0, 0.2, 1.38), 0.045, skin), ((0, 0, 1.6, 0, 0, 1.66), 0.1, skin),
    ):
        body.add_geom(type=_GEOM.mjGEOM_CAPSULE, fromto=ends, size=[radius, 0, 0], rgba=colour, contype=0, conaffinity=0, mass=0)


def _racket_arm(spec: mujoco.MjSpec) -> None:
    arm = spec.worldbody.add_body(name="hall_arm", mocap=True)
    for ends, radius, colour in (((0, 0, 0, 0, 0, 0.55), 0.045, [0.82, 0.62, 0.5, 1]), ((0, 0, 0.55, 0, 0, 0.95), 0.006, [0.1, 0.1, 0.1, 1])):
        arm.add_geom(type=_GEOM.mjGEOM_CAPSULE, fromto=ends, size=[radius, 0, 0], rgba=colour, contype=0, conaffinity=0, mass=0)
    # strings cover a tenth of the bed; the frame is dark and 1 cm thick
    arm.add_geom(type=_GEOM.mjGEOM_ELLIPSOID, pos=[0, 0, 1.08], size=[0.004, 0.1, 0.13], rgba=[0.9, 0.9, 0.85, 0.1], contype=0, conaffinity=0, mass=0)
    rim = [(0.0, 0.1 * np.sin(a), 1.08 + 0.13 * np.cos(a)) for a in np.linspace(0, 2 * np.pi, 13)]
    for a, b in pairwise(rim):
        arm.add_geom(type=_GEOM.mjGEOM_CAPSULE, fromto=[*a, *b], size=[0.005, 0, 0], rgba=[0.15, 0.15, 0.18, 1], contype=0, conaffinity=0, mass=0)


def add_hall(spec: mujoco.MjSpec, rng: np.random.Generator) -> Callable[[mujoco.MjData, float], None]:
    """Put the hall round the court of a spec. Returns move(data, t): puts its moving things where they are at time t [s]."""
    depth, middle = FRONT - BACK, 0.5 * (FRONT + BACK)
    walls = (  # name, length, place, axes of the plane: x along the wall, y up
        ("hall_front", 2 * SIDE, (FRONT, 0, HEIGHT / 2), (0, -1, 0, 0, 0, 1), 6), ("hall_left", depth, (middle, SIDE, HEIGHT / 2), (1, 0, 0, 0, 0, 1), 8),
        ("hall_right", depth, (middle, -SIDE, HEIGHT / 2), (-1, 0, 0, 0, 0, 1), 8), ("hall_back", 2 * SIDE, (BACK, 0, HEIGHT / 2), (0, 1, 0, 0, 0, 1), 3))
    for name, length, place, axes, banners in walls:
        _material(spec, name, _wall_image(length, rng, banners), 0.6)
        spec.worldbody.add_geom(name=name, type=_GEOM.mjGEOM_PLANE, size=[length / 2, HEIGHT / 2, 0.1], pos=place, quat=_quaternion(axes), material=name,
                                contype=0, conaffinity=0)
    _material(spec, "hall_ceiling", _ceiling_image(rng), 0.5)
    spec.worldbody.add_geom(name="hall_ceiling", type=_GEOM.mjGEOM_PLANE, size=[SIDE, depth / 2, 0.1], pos=[middle, 0, HEIGHT],
                            quat=_quaternion((0, 1, 0, 1, 0, 0)), material="hall_ceiling", contype=0, conaffinity=0)
    lamp = spec.add_material(name="hall_lamp", emission=1.0, rgba=[1, 1, 0.97, 1])
    for x in np.arange(BACK + 2.5, FRONT, 4.0):
        for y in (-4.6, 0.0, 4.6):
            spec.worldbody.add_geom(type=_GEOM.mjGEOM_BOX, size=[0.75, 0.12, 0.04], pos=[x, y, HEIGHT - 0.5], material=lamp.name, contype=0, conaffinity=0)
    for name, shirt in (("hall_opponent", (0.75, 0.12, 0.12)), ("hall_walker", (0.93, 0.93, 0.93)), ("hall_umpire", (0.15, 0.35, 0.6))):
        _person(spec, name, shirt)
    _racket_arm(spec)
    bag = spec.worldbody.add_body(name="hall_bag", mocap=True)
    bag.add_geom(type=_GEOM.mjGEOM_CAPSULE, fromto=[0, 0, 0, 0, 0, -3.4], size=[0.012, 0, 0], rgba=[0.7, 0.7, 0.65, 1], contype=0, conaffinity=0, mass=0)
    bag.add_geom(type=_GEOM.mjGEOM_CAPSULE, fromto=[0, 0, -3.5, 0, 0, -4.0], size=[0.13, 0, 0], rgba=[0.9, 0.88, 0.84, 1], contype=0, conaffinity=0, mass=0)
    return _Mover()


def _quaternion(xy: tuple[float, ...]) -> Array:
    """Orientation with x and y axes as given, one after the other."""
    x, y = np.array(xy[:3], float), np.array(xy[3:], float)
    out = np.zeros(4)
    mujoco.mju_mat2Quat(out, np.stack([x, y, np.cross(x, y)], axis=1).ravel())
    return out


class _Mover:
    """Where the hall's moving things are at any time: smooth and periodic."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def __call__(self, data: mujoco.MjData, t: float) -> None:
        if not self._ids:
            for name in ("hall_opponent", "hall_walker", "hall_umpire", "hall_arm", "hall_bag"):
                self._ids[name] = int(data.model.body(name).mocapid[0])
        across = 1.3 * np.sin(1.9 * t)
        self._put(data, "hall_opponent", (5.4 + 0.5 * np.sin(0.8 * t), across, 0.0), (0, 0, 1), np.pi)
        self._put(data, "hall_arm", (5.2 + 0.5 * np.sin(0.8 * t), across + 0.25, 1.35), (0, 1, 0), -0.3 + 1.2 * np.sin(5.0 * t))  # racket tip up to 7 m/s
        self._put(data, "hall_walker", (9.5, 5.0 * np.sin(0.28 * t), 0.0), (0, 0, 1), np.pi / 2 * np.sign(np.cos(0.28 * t)))
        self._put(data, "hall_umpire", (0.3, 4.0, 0.0), (0, 0, 1), -np.pi / 2 + 0.4 * np.sin(1.1 * t))
        self._put(data, "hall_bag", (8.2, -4.2, 6.0), (1, 0, 0), 0.35 * np.sin(1.57 * t))

    def _put(self, data: mujoco.MjData, name: str, place: tuple[float, float, float], axis: tuple[float, float, float], angle: float) -> None:
        number = self._ids[name]
        data.mocap_pos[number] = place
        data.mocap_quat[number] = (np.cos(angle / 2), *(np.sin(angle / 2) * np.array(axis)))
