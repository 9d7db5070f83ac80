"""What people see: the court's lines and net, the shuttle with its trail, the commanded strike. Nothing here has physics."""

import mujoco
import numpy as np

from sim.court import (
    HALF_LENGTH,
    HALF_WIDTH_DOUBLES,
    HALF_WIDTH_SINGLES,
    LINE_WIDTH,
    LONG_SERVICE_DOUBLES,
    NET_MIDDLE,
    NET_POST,
    SHORT_SERVICE,
)

NET_DEPTH = 0.76  # [m] of the net below its tape, BWF law 1
TRAIL_SECONDS = 0.7
SHUTTLE_COLOUR = np.array([1.0, 0.55, 0.1, 1.0])
TARGET_COLOUR = np.array([0.2, 0.75, 1.0, 0.35])
FORECAST_COLOUR = np.array([0.35, 0.9, 0.4, 0.3])
Array = np.ndarray


def add_court(spec: mujoco.MjSpec) -> None:
    """Draw lines, net and posts into a spec."""
    half, tape = LINE_WIDTH / 2, 0.075  # [m] BWF law 1: tape 75 mm

    def box(size: list[float], pos: list[float], material: str) -> None:
        spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, size=size, pos=pos, material=material, contype=0, conaffinity=0)

    def line(x0: float, x1: float, y0: float, y1: float) -> None:
        box([abs(x1 - x0) / 2 or half, abs(y1 - y0) / 2 or half, 0.001], [(x0 + x1) / 2, (y0 + y1) / 2, 0.002], "line")

    for sign in (-1, 1):
        for y in (HALF_WIDTH_DOUBLES - half, HALF_WIDTH_SINGLES - half):
            line(-HALF_LENGTH, HALF_LENGTH, sign * y, sign * y)
        for x in (HALF_LENGTH - half, HALF_LENGTH - LONG_SERVICE_DOUBLES, SHORT_SERVICE):
            line(sign * x, sign * x, -HALF_WIDTH_DOUBLES, HALF_WIDTH_DOUBLES)
        line(sign * SHORT_SERVICE, sign * HALF_LENGTH, 0, 0)
        spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_CYLINDER, size=[0.02, NET_POST / 2, 0],
                                pos=[0, sign * HALF_WIDTH_DOUBLES, NET_POST / 2], material="tape", contype=0, conaffinity=0)
    box([0.003, HALF_WIDTH_DOUBLES, (NET_DEPTH - tape) / 2], [0, 0, NET_MIDDLE - tape - (NET_DEPTH - tape) / 2], "mesh")
    box([0.006, HALF_WIDTH_DOUBLES, tape / 2], [0, 0, NET_MIDDLE - tape / 2], "tape")


def _geom(scene: mujoco.MjvScene) -> mujoco.MjvGeom | None:
    if scene.ngeom >= scene.maxgeom:
        return None
    scene.ngeom += 1
    return scene.geoms[scene.ngeom - 1]


def draw_shuttle(scene: mujoco.MjvScene, path: Array) -> None:
    """Shuttle and trail. path (T, 3): places so far, newest last [m]; drawn at 1.5 times its size, to be seen."""
    if len(path) == 0:
        return
    for a, b, age in zip(path[:-1], path[1:], range(len(path) - 1, 0, -1), strict=True):
        geom = _geom(scene)
        if geom is None:
            return
        colour = SHUTTLE_COLOUR * [1, 1, 1, max(0.08, 0.55 * (1 - age / len(path)))]
        mujoco.mjv_initGeom(geom, mujoco.mjtGeom.mjGEOM_CAPSULE, np.zeros(3), np.zeros(3), np.zeros(9), colour.astype(np.float32))
        mujoco.mjv_connector(geom, mujoco.mjtGeom.mjGEOM_CAPSULE, 0.008, a, b)
    geom = _geom(scene)
    if geom is not None:
        mujoco.mjv_initGeom(geom, mujoco.mjtGeom.mjGEOM_SPHERE, np.array([0.05, 0, 0]), path[-1], np.eye(3).ravel(),
                            SHUTTLE_COLOUR.astype(np.float32))


def draw_path(scene: mujoco.MjvScene, path: Array, radius: Array, colour: Array) -> None:
    """A tube through places (T, 3) [m], as wide as radius (T,) [m]."""
    for a, b, r in zip(path[:-1], path[1:], radius[1:], strict=True):
        geom = _geom(scene)
        if geom is None:
            return
        mujoco.mjv_initGeom(geom, mujoco.mjtGeom.mjGEOM_CAPSULE, np.zeros(3), np.zeros(3), np.zeros(9), colour.astype(np.float32))
        mujoco.mjv_connector(geom, mujoco.mjtGeom.mjGEOM_CAPSULE, max(float(r), 0.004), a, b)


def draw_ellipsoid(scene: mujoco.MjvScene, place: Array, covariance: Array, colour: Array) -> None:
    """One standard deviation about a place (3,) [m] with covariance (3, 3)."""
    values, axes = np.linalg.eigh(covariance)
    geom = _geom(scene)
    if geom is not None:
        turn = axes if np.linalg.det(axes) > 0 else axes * [1, 1, -1]
        size = np.clip(np.sqrt(np.maximum(values, 0.0)), 0.01, 1.0)
        mujoco.mjv_initGeom(geom, mujoco.mjtGeom.mjGEOM_ELLIPSOID, size, place, turn.ravel(), colour.astype(np.float32))


def facing_frame(normal: Array) -> Array:
    """(3, 3) a rotation whose z axis is a unit normal (3,)."""
    helper = np.array([0.0, 1.0, 0.0]) if abs(normal[1]) < 0.9 else np.array([1.0, 0.0, 0.0])
    x = np.cross(helper, normal)
    x /= np.linalg.norm(x)
    return np.stack([x, np.cross(normal, x), normal], axis=1)


def draw_face(scene: mujoco.MjvScene, position: Array, normal: Array, colour: Array) -> None:
    """A face as a disc of the hit radius."""
    geom = _geom(scene)
    if geom is not None:
        mujoco.mjv_initGeom(geom, mujoco.mjtGeom.mjGEOM_CYLINDER, np.array([0.1, 0.003, 0.0]), position, facing_frame(normal).ravel(),
                            colour.astype(np.float32))


def draw_strike(scene: mujoco.MjvScene, position: Array, normal: Array) -> None:
    """The commanded face, with its normal as a short rod."""
    draw_face(scene, position, normal, TARGET_COLOUR)
    geom = _geom(scene)
    if geom is not None:
        mujoco.mjv_initGeom(geom, mujoco.mjtGeom.mjGEOM_CAPSULE, np.zeros(3), np.zeros(3), np.zeros(9), TARGET_COLOUR.astype(np.float32))
        mujoco.mjv_connector(geom, mujoco.mjtGeom.mjGEOM_CAPSULE, 0.006, position, position + 0.2 * normal)
