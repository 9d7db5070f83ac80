"""From candidate pixels of one or two cameras to measurements with a covariance: undistorted pixels, pairs, points.

A filter must be fed (uL, vL, uR, vR), or (u, v, disparity) of a parallel pair: at 7 m a 12 cm baseline knows the direction
to 5 mm and the depth to 30 cm, so a point with a round covariance would throw the direction away. Points are for starting a
track and for looking at. *Undistorted pixel*: what a camera of the same fx, fy, cx, cy without a lens would see.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from perception.camera import Camera, StereoRig

Array = np.ndarray

_FAR = 1e4  # [m] where rays that never meet are taken to meet
SHUTTLE_SIZE = 0.065  # [m] skirt across its feather tips, 58 to 68 mm by the laws of badminton


@dataclass(frozen=True)
class StereoCfg:
    """Noise of a candidate pixel and the gates of a pair.

    pixel_sigma, blur_share: sigma [px] of a candidate at rest, and its share of the streak that the exposure smears. Labels of
    recorded rallies scatter by 1 px about a smooth flight; the rest stands for the rig's own local errors, which last many frames.
    epipolar_gate: chi-square (one freedom) of the distance from the epipolar line; 10.8 is passed by 99.9 % of true pairs.
    depth_range, height_range [m]: where a shuttle can be, in front of the cameras and above the floor; the upper ends are a
    hall's, our choice: wide enough for any lob, and they throw out most false pairs.
    size_ratio: largest factor between seen and expected size, where sizes are known; a shuttle seen along its axis is half as long.
    speed_between: [m/s] motion allowed for between exposures of cameras that are not synchronised; our choice, a fast drive.
    """

    pixel_sigma: float = 1.6
    blur_share: float = 0.05
    epipolar_gate: float = 10.8
    depth_range: tuple[float, float] = (0.3, 25.0)
    height_range: tuple[float, float] = (-0.3, 12.0)
    size_ratio: float = 3.0
    speed_between: float = 30.0


@dataclass(frozen=True, eq=False)
class Sight:
    """What one camera reported of one exposure.

    time [s] of mid exposure; side 0 left, 1 right; eye (16,) see `filter.py`; pixels (M, 2) undistorted [px]; noise (M, 2, 2)
    [px^2]; area [px^2] of the image, for the density of false candidates; sizes (M,) [px] across, or None; label: frame number
    or any other name of the exposure.
    """

    time: float
    side: int
    eye: Array
    pixels: Array
    noise: Array
    area: float
    sizes: Array | None = None
    label: int = -1


@dataclass(frozen=True, eq=False)
class Pairs:
    """Candidates of two sights that may be one thing: left, right (M,) indices; points (M, 3) [m]; covariance (M, 3, 3) [m^2];
    misfit (M,): chi-square, one freedom, of the distance from the epipolar line."""

    left: Array
    right: Array
    points: Array
    covariance: Array
    misfit: Array


def eyes_of(rig: "StereoRig", rotation: Array | None = None, translation: Array | None = None) -> Array:
    """(2, 16) eyes of a rig, see `filter.py`; rotation (3, 3), translation (3,) left_from_world replace the rig's own pose."""
    r_left = np.asarray(rig.left_from_world_rotation if rotation is None else rotation, float)
    t_left = np.asarray(rig.left_from_world_translation if translation is None else translation, float)
    r_right = rig.right_from_left_rotation @ r_left
    t_right = rig.right_from_left_rotation @ t_left + rig.right_from_left_translation
    return np.stack([np.concatenate([r.ravel(), t, [c.fx, c.fy, c.cx, c.cy]])
                     for r, t, c in ((r_left, t_left, rig.left), (r_right, t_right, rig.right))])


def undistorted(camera: "Camera", pixels: Array, cfg: StereoCfg = StereoCfg(), streaks: Array | None = None) -> tuple[Array, Array]:
    """Undistorted pixels (M, 2) and their noise (M, 2, 2) [px^2] from raw pixels (M, 2) of any number type.

    Noise is cfg.pixel_sigma all round and cfg.blur_share of the streak (M, 2) [px] along it, carried through the lens: near the
    corners of a wide lens one pixel counts for two. Rows that are not finite, or far outside the image, are left out.
    """
    pixels = np.asarray(pixels, np.float64).reshape(-1, 2)  # integers and float32 make OpenCV's undistortion return garbage
    span = np.array([camera.width, camera.height], float)
    keep = np.isfinite(pixels).all(axis=1) & (pixels > -0.1 * span).all(axis=1) & (pixels < 1.1 * span).all(axis=1)
    pixels = pixels[keep]
    if not len(pixels):
        return np.empty((0, 2)), np.empty((0, 2, 2))
    focal, centre = np.array([camera.fx, camera.fy]), np.array([camera.cx, camera.cy])
    three = np.concatenate([pixels, pixels + [1.0, 0.0], pixels + [0.0, 1.0]])
    flat = (camera.undistort(three) * focal + centre).reshape(3, -1, 2)
    stretch = np.stack([flat[1] - flat[0], flat[2] - flat[0]], axis=2)
    noise = np.tile(np.eye(2) * cfg.pixel_sigma**2, (len(pixels), 1, 1))
    if streaks is not None:
        smear = cfg.blur_share * np.asarray(streaks, float).reshape(-1, 2)[keep]
        noise = noise + smear[:, :, None] * smear[:, None, :]
    good = np.isfinite(flat).all(axis=(0, 2))
    return flat[0][good], (stretch @ noise @ stretch.transpose(0, 2, 1))[good]


def sight(rig: "StereoRig", side: int, time: float, pixels: Array, eyes: Array | None = None, cfg: StereoCfg = StereoCfg(),
          label: int = -1) -> Sight:
    """A sight from raw pixels (M, 2) of the left (0) or right (1) camera at time [s]; eyes (2, 16) where the rig moves."""
    camera = rig.right if side else rig.left
    flat, noise = undistorted(camera, pixels, cfg)
    return Sight(float(time), side, (eyes_of(rig) if eyes is None else eyes)[side], flat, noise,
                 float(camera.width * camera.height), label=label)


def _depth(eye: Array, points: Array) -> Array:
    return np.asarray(points @ eye[6:9] + eye[11])


def _image(eye: Array, points: Array) -> tuple[Array, Array, Array]:
    """Pixels (M, 2), depth (M,) and slope (M, 2, 3) of points (M, 3) in an eye."""
    rotation, translation = eye[:9].reshape(3, 3), eye[9:12]
    camera = points @ rotation.T + translation
    depth = np.where(np.abs(camera[:, 2]) > 1e-6, camera[:, 2], 1e-6)
    flat = camera[:, :2] / depth[:, None]
    slope = (rotation[None, :2] - flat[:, :, None] * rotation[None, 2:3]) / depth[:, None, None] * eye[12:14][None, :, None]
    return flat * eye[12:14] + eye[14:16], camera[:, 2], slope


def _middles(left: Array, right: Array, eyes: Array) -> Array:
    """(M, 3) middle of the shortest connection of the rays through pixels (M, 2) of both eyes."""
    centres, rays = [], []
    for eye, pixels in zip(eyes, (left, right), strict=True):
        rotation = eye[:9].reshape(3, 3)
        ray = np.concatenate([(pixels - eye[14:16]) / eye[12:14], np.ones((len(pixels), 1))], axis=1) @ rotation
        rays.append(ray / np.linalg.norm(ray, axis=1, keepdims=True))
        centres.append(-rotation.T @ eye[9:12])
    between = centres[1] - centres[0]
    cosine = np.sum(rays[0] * rays[1], axis=1)
    sine2 = 1 - cosine**2
    parallel, sine2 = sine2 < 1e-9, np.maximum(sine2, 1e-9)
    along = [(rays[0] @ between - cosine * (rays[1] @ between)) / sine2, (cosine * (rays[0] @ between) - rays[1] @ between) / sine2]
    along = [np.where(parallel, _FAR, a) for a in along]
    return np.clip(0.5 * sum(c + a[:, None] * r for c, a, r in zip(centres, along, rays, strict=True)), -_FAR, _FAR)


def triangulate(left: Array, right: Array, left_noise: Array, right_noise: Array, eyes: Array) -> tuple[Array, Array, Array]:
    """Points (M, 3) [m], covariance (M, 3, 3) [m^2] and misfit (M,) of pixel pairs (M, 2) with noise (M, 2, 2) seen by eyes (2, 16).

    The middle of the two rays' shortest connection, then two Gauss-Newton steps on the four pixel residuals. misfit is their
    chi-square; four numbers less three unknowns leave one freedom, the distance from the epipolar line. Parallel rays give
    covariances that say so (1e6 m^2 and more), never an error.
    """
    points = _middles(left, right, eyes)
    weights = [np.linalg.inv(left_noise), np.linalg.inv(right_noise)]
    for step in range(3):
        information, push, misfit = np.zeros((len(points), 3, 3)), np.zeros((len(points), 3)), np.zeros(len(points))
        for eye, pixels, weight in zip(eyes, (left, right), weights, strict=True):
            seen, _, slope = _image(eye, points)
            off = pixels - seen
            lever = slope.transpose(0, 2, 1) @ weight
            information += lever @ slope
            push += np.einsum("mij,mj->mi", lever, off)
            misfit += np.einsum("mi,mij,mj->m", off, weight, off)
        # parallel rays leave a direction open: a little of the whole keeps the inverse finite, and the covariance huge
        information += np.eye(3) * (1e-9 * np.trace(information, axis1=1, axis2=2)[:, None, None] + 1e-12)
        covariance = np.linalg.inv(information)
        if step < 2:
            points = np.clip(points + np.einsum("mij,mj->mi", covariance, push), -_FAR, _FAR)
    return points, covariance, misfit


def epipolar_chi2(left: Sight, right: Sight) -> Array:
    """(M, K) chi-square, one freedom, of every pair's distance from the epipolar line: Sampson's first-order form, no points needed."""
    rotations = [eye[:9].reshape(3, 3) for eye in (left.eye, right.eye)]
    turn = rotations[1] @ rotations[0].T
    x, y, z = right.eye[9:12] - turn @ left.eye[9:12]
    essential = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]) @ turn
    flat = [np.concatenate([(s.pixels - s.eye[14:16]) / s.eye[12:14], np.ones((len(s.pixels), 1))], axis=1) for s in (left, right)]
    off = flat[0] @ essential.T @ flat[1].T
    on_right = (flat[0] @ essential.T)[:, :2] / right.eye[12:14]  # slope of `off` by the right pixel; the same for every right one
    on_left = (flat[1] @ essential)[:, :2] / left.eye[12:14]
    variance = (np.einsum("mi,kij,mj->mk", on_right, right.noise, on_right) + np.einsum("ki,mij,kj->mk", on_left, left.noise, on_left))
    return np.asarray(off**2 / np.maximum(variance, 1e-30))


def pair(left: Sight, right: Sight, cfg: StereoCfg = StereoCfg(), most: int = 100, height_scale: float = 1.0) -> Pairs:
    """All pairs of candidates of two sights that pass the epipolar, depth, height and size gates; the `most` best of them.

    Sights of cameras that are not synchronised may be apart in time: the gate then widens by cfg.speed_between over that time.
    """
    eyes = np.stack([left.eye, right.eye])
    moved = cfg.speed_between * abs(left.time - right.time)  # [m] and, seen, [px]: it loosens the gate by its square in sigmas
    i, j = (n.ravel() for n in np.meshgrid(np.arange(len(left.pixels)), np.arange(len(right.pixels)), indexing="ij"))
    if not len(i):
        return Pairs(i, j, np.empty((0, 3)), np.empty((0, 3, 3)), np.empty(0))
    points = _middles(left.pixels[i], right.pixels[j], eyes)  # rough, but enough for the gates: what passes is looked at closely
    depths = [_depth(eye, points) for eye in eyes]
    height = points[:, 2] * height_scale
    keep = (height >= cfg.height_range[0]) & (height <= cfg.height_range[1])
    for depth, sizes, index, eye in zip(depths, (left.sizes, right.sizes), (i, j), eyes, strict=True):
        keep &= (depth >= cfg.depth_range[0]) & (depth <= cfg.depth_range[1])
        if sizes is not None:
            ratio = sizes[index] * np.maximum(depth, cfg.depth_range[0]) / (SHUTTLE_SIZE * eye[12])
            keep &= (ratio <= cfg.size_ratio) & (ratio >= 1 / cfg.size_ratio)
    pixels_moved = moved * eyes[0, 12] / np.maximum(depths[0], cfg.depth_range[0])
    sigma2 = 0.25 * (np.trace(left.noise, axis1=1, axis2=2)[i] + np.trace(right.noise, axis1=1, axis2=2)[j])
    gate = cfg.epipolar_gate + 0.5 * pixels_moved**2 / sigma2
    keep &= epipolar_chi2(left, right).ravel() <= 1.5 * gate  # to first order; the exact distance decides below
    i, j, gate = i[keep], j[keep], gate[keep]
    points, covariance, misfit = triangulate(left.pixels[i], right.pixels[j], left.noise[i], right.noise[j], eyes)
    keep = misfit <= gate
    chosen = np.flatnonzero(keep)
    chosen = chosen[np.argsort(misfit[chosen], kind="stable")[:most]]
    covariance = covariance[chosen] + np.eye(3) * moved**2 / 3
    return Pairs(i[chosen], j[chosen], points[chosen], covariance, misfit[chosen])


def disparity_measurement(left: Array, right: Array, pixel_sigma: Array | float, disparity_sigma: Array | float) -> tuple[Array, Array]:
    """(M, 3) measurement (u, v, disparity) [px] and its covariance (M, 3, 3) from rectified pixels (M, 2) of a parallel pair.

    v is the mean of both rows. u is the left column and has a say in the disparity too: their errors correlate, which a
    diagonal covariance would deny; the off-diagonal is half the disparity's variance, as for equal and independent columns.
    """
    left, right = np.asarray(left, float), np.asarray(right, float)
    rows = np.stack([left[:, 0], 0.5 * (left[:, 1] + right[:, 1]), left[:, 0] - right[:, 0]], axis=1)
    pixel, disparity = np.broadcast_to(pixel_sigma, len(rows)), np.broadcast_to(disparity_sigma, len(rows))
    noise = np.zeros((len(rows), 3, 3))
    noise[:, 0, 0], noise[:, 1, 1], noise[:, 2, 2] = pixel**2, 0.5 * pixel**2, disparity**2
    noise[:, 0, 2] = noise[:, 2, 0] = np.minimum(0.5 * disparity**2, 0.95 * pixel * disparity)
    return rows, noise
