"""Stereo calibration from chessboard images, with refusals where the result would look good and be wrong.

Low residuals alone prove little: a board seen flat, in one corner, in a mirror, or numbered differently by the two cameras can
leave a fraction of a pixel and a useless rig. Each of these has a check here and a message that says what to do about it.
Whether a rig fits what its cameras record later is `rig_check.py`'s to say.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from perception.camera import Camera, StereoRig
from perception.chessboard import Board, find_corners, mirrored
from perception.errors import UserError
from perception.rig_check import time_offset as time_offset  # what a tracker needs to know of two free-running cameras

Array = np.ndarray

IMAGE_SUFFIXES = {".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".tif", ".tiff"}
LEAST_VIEWS = 8  # pairs; below 8 the principal point of a usual set is known to 1 px at best
LEAST_COVER = 0.25  # share of an image that boards must have covered, all views together; OpenCV's sample set covers 0.43
LEAST_QUARTER = 0.10  # and of each quarter of it, 0.21 there; where no board was, distortion is a guess
LEAST_TILT = 20.0  # [deg] between the two views that differ most (sample set: 65); flat-on ones leave the focal length open
MONO_LIMIT = 1.0  # [px] rms; a rigid flat board that holds still gives 0.1 to 0.4
STEREO_LIMIT = 1.0  # [px] rms; what a pair adds to the mono rms is hundredths of a pixel, where both saw the same board at once
VIEW_RATIO, VIEW_LIMIT = 3.0, 0.3  # one view's rms over the median of all, and [px] besides: so shows a board that
# moved by 1 px between the exposures; the sample set's worst view has 1.5
SAME_WAY = 60.0  # [deg] between the optical axes, below which "left of" means something
_STEPS = (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, 200, 1e-9)


@dataclass(frozen=True, eq=False)
class Views:
    """Boards that both cameras saw: names (V,), size (width, height) [px], corners (V, n, 2) [px] of each camera; skipped: names
    of pairs in which the board was not found; paths (V, 2) of the images."""

    board: Board
    size: tuple[int, int]
    names: list[str]
    left: Array
    right: Array
    skipped: list[str]
    paths: list[tuple[Path, Path]]


@dataclass(frozen=True, eq=False)
class Calibration:
    """A rig with its evidence: mono_rms (2,), stereo_rms, row_error_rms, held_out_rms [px]; view_errors (V, 2) and row_errors
    (V,) rms [px]; row_residuals (V, n) [px] left less right row after rectification; focal_sigma (2,) [px]; tilt (2,) [deg]."""

    rig: StereoRig
    views: Views
    mono_rms: tuple[float, float]
    stereo_rms: float
    row_error_rms: float
    held_out_rms: float
    view_errors: Array
    row_errors: Array
    row_residuals: Array
    focal_sigma: tuple[float, float]
    tilt: tuple[float, float]

    def figures(self) -> dict[str, Any]:
        """What `birdie calibrate --json` writes."""
        return {
            "mono_rms_px": list(self.mono_rms), "stereo_rms_px": self.stereo_rms, "row_error_rms_px": self.row_error_rms,
            "row_error_held_out_rms_px": self.held_out_rms, "baseline_m": self.rig.baseline, "views": len(self.views.names),
            "views_without_board": self.views.skipped, "focal_px": [self.rig.left.fx, self.rig.right.fx],
            "focal_sigma_px": list(self.focal_sigma), "tilt_deg": list(self.tilt),
            "coverage": [float(covered(c, self.views.size).mean()) for c in (self.views.left, self.views.right)],
            "view_error_px": dict(zip(self.views.names, self.view_errors.tolist(), strict=True)),
            "view_row_error_px": dict(zip(self.views.names, self.row_errors.tolist(), strict=True)),
        }


def image_pairs(folder: Path) -> list[tuple[str, Path, Path]]:
    """(name, left, right) of a folder with left*, right* (or *left, *right) images, or with folders left and right of
    equally named ones."""
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder; calibrate takes one with left*.jpg and right*.jpg, "
                        "or with folders left and right")
    sides: list[dict[str, Path]] = []
    for side in ("left", "right"):
        where = folder / side
        files = [p for p in sorted((where if where.is_dir() else folder).iterdir()) if p.suffix.lower() in IMAGE_SUFFIXES]
        if where.is_dir():
            sides.append({p.stem.lower().removeprefix(side).removesuffix(side): p for p in files})
        else:
            sides.append({p.stem.lower().removeprefix(side).removesuffix(side): p for p in files
                          if p.stem.lower().startswith(side) or p.stem.lower().endswith(side)})
    left, right = sides
    if not left and not right:
        raise UserError(f"{folder} holds no left*.jpg and right*.jpg (or png, bmp, tif), nor folders left and right of them")
    alone = [one[n].name for one, other in ((left, right), (right, left)) for n in sorted(one.keys() - other.keys())]
    if alone:
        raise UserError(f"{folder} has {len(left)} left and {len(right)} right images; without a partner: {', '.join(alone[:6])}"
                        f"{' ...' if len(alone) > 6 else ''}")
    return [(name.strip("_-. ") or "0", left[name], right[name]) for name in sorted(left)]


def read_views(folder: Path, board: Board, note: Callable[[str], None] = lambda text: None) -> Views:
    """Find the board in all image pairs of a folder. Raises UserError for images that cannot be read, that differ in size, and
    where no pair shows the board; note(text) is told what goes on."""
    size: tuple[int, int] | None = None
    names, left, right, skipped, paths = [], [], [], [], []
    pairs = image_pairs(folder)
    for i, (name, *files) in enumerate(pairs):
        note(f"looking for the board, pair {i + 1} of {len(pairs)}")
        corners = []
        for path in files:
            image = cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_GRAYSCALE) if path.stat().st_size else None
            if image is None:
                raise UserError(f"{path} cannot be read as an image; take it out, with its partner, or save it again")
            here = (image.shape[1], image.shape[0])
            if size is not None and here != size:
                raise UserError(f"{path} is {here[0]} x {here[1]}, those before it {size[0]} x {size[1]}; "
                                "all must come from one mode")
            size = here
            corners.append(find_corners(image, board))
        if corners[0] is None or corners[1] is None:
            skipped.append(name)
        else:
            names.append(name)
            left.append(corners[0])
            right.append(corners[1])
            paths.append((files[0], files[1]))
    if size is None or not names:
        raise UserError(f"no pair of {folder} shows a {board.columns}x{board.rows} board (inner corners) in both images")
    return Views(board, size, names, np.array(left), np.array(right), skipped, paths)


def covered(corners: Array, size: tuple[int, int]) -> Array:
    """(24, 32) bool: cells of the image that some board (V, n, 2) covered."""
    mask = np.zeros((24, 32), np.uint8)
    scale = np.array([32, 24]) / np.array(size)
    for view in corners:
        cv2.fillConvexPoly(mask, cv2.convexHull((view * scale - 0.5).round().astype(np.int32)), 1)
    return mask.astype(bool)


def _check_views(views: Views) -> None:
    if len(views.names) < LEAST_VIEWS:
        without = f", {len(views.skipped)} more do not show it" if views.skipped else ""
        raise UserError(f"{len(views.names)} pairs show the whole board in both images{without}; "
                        f"take at least {LEAST_VIEWS}, better 15")
    for corners, side in ((views.left, "left"), (views.right, "right")):
        cells = covered(corners, views.size)
        quarters = {f"{v} {h}": float(cells[12 * j:12 * j + 12, 16 * i:16 * i + 16].mean())
                    for j, v in enumerate(("upper", "lower")) for i, h in enumerate(("left", "right"))}
        if cells.mean() < LEAST_COVER or min(quarters.values()) < LEAST_QUARTER:
            emptiest = min(quarters, key=lambda q: quarters[q])
            raise UserError(f"one-sided views: boards covered {cells.mean():.0%} of the {side} image and "
                            f"{quarters[emptiest]:.0%} of its {emptiest} quarter ({LEAST_COVER:.0%} and {LEAST_QUARTER:.0%} "
                            "needed); bring the board there too")


def _mono(views: Views, corners: Array, side: str) -> tuple[float, Array, Array, float, float]:
    """rms [px], matrix, distortion, sigma of the focal length [px], tilt [deg] of one camera."""
    points = [views.board.points.astype(np.float32)] * len(corners)
    pixels = [c.astype(np.float32) for c in corners]
    rms, matrix, distortion, turns, _, sigmas, _, each = cv2.calibrateCameraExtended(
        points, pixels, views.size, np.eye(3), np.zeros((5, 1)), criteria=_STEPS)
    normals = np.array([cv2.Rodrigues(t)[0][:, 2] for t in turns])
    tilt = float(np.rad2deg(np.arccos(np.clip(normals @ normals.T, -1, 1).min())))
    if tilt < LEAST_TILT:
        raise UserError(f"one-sided views: the board was tilted by {tilt:.0f} degrees at most before the {side} camera; "
                        "tilt it by 30 degrees and more to all sides, else focal length and distance cannot be told apart")
    if rms > MONO_LIMIT:
        worst = views.names[int(np.argmax(each))]
        raise UserError(f"the {side} camera is left with {rms:.2f} px rms, above {MONO_LIMIT:g}, most in view {worst}: "
                        "blurred images, a bent board, or a lens that this model does not fit")
    return float(rms), matrix, distortion, float(sigmas[0, 0]), tilt


def _stereo(views: Views, left: Array, right: Array, cameras: list[tuple[Array, Array]]) -> tuple[float, list[Any], Array]:
    """rms [px], [matrix, distortion, matrix, distortion, R, t], errors per view (V, 2) [px]; all parameters refined together."""
    points = [views.board.points.astype(np.float32)] * len(left)
    (matrix, distortion), (matrix_right, distortion_right) = ((m.copy(), d.copy()) for m, d in cameras)  # OpenCV writes into them
    rms, *found = cv2.stereoCalibrateExtended(
        points, [c.astype(np.float32) for c in left], [c.astype(np.float32) for c in right], matrix, distortion, matrix_right,
        distortion_right, views.size, np.eye(3), np.zeros((3, 1)), flags=cv2.CALIB_USE_INTRINSIC_GUESS, criteria=_STEPS)
    return float(rms), found[:6], np.asarray(found[-1], float).reshape(-1, 2)


def _refuse_mismatch(views: Views, rms: float, errors: Array, cameras: list[tuple[Array, Array]]) -> None:
    """Say why two cameras that calibrate well alone do not fit together."""
    flipped = np.array([mirrored(c, views.board, views.size[0]) for c in views.right])
    *camera, _, _ = _mono(views, flipped, "right")[1:]
    if _stereo(views, views.left, flipped, [cameras[0], (camera[0], camera[1])])[0] < STEREO_LIMIT:
        raise UserError("the images of one camera are mirror images; turn mirroring off in its driver and take them again")
    worst = [views.names[i] for i in np.argsort(-errors.max(axis=1))[:3]]
    raise UserError(f"each camera fits alone, the pair is left with {rms:.1f} px rms: pairs were not taken "
                    f"at the same time, or are mixed up, or the board has more corners than --board says; "
                    f"worst {', '.join(worst)}")


def rectified(rig: StereoRig) -> tuple[StereoRig, Array, Array]:
    """The parallel rig that both images are turned to, and the rotations (3, 3) of the left and right camera into it.

    Raises UserError for a pair that looks in different directions: it has no common rows.
    """
    size = (rig.left.width, rig.left.height)
    turn_left, turn_right, left, right, *_ = cv2.stereoRectify(
        rig.left.matrix, rig.left.coefficients, rig.right.matrix, rig.right.coefficients, size, rig.right_from_left_rotation,
        rig.right_from_left_translation.reshape(3, 1), flags=cv2.CALIB_ZERO_DISPARITY, alpha=0)
    turned = max(np.linalg.norm(cv2.Rodrigues(r)[0]) for r in (turn_left, turn_right))
    if turned > np.deg2rad(SAME_WAY) or abs(right[0, 3]) < abs(right[1, 3]):
        raise UserError("the two cameras look in different directions, or stand above each other: "
                        "there is no rectified pair of rows")
    camera = Camera(*size, float(left[0, 0]), float(left[1, 1]), float(left[0, 2]), float(left[1, 2]))
    parallel = StereoRig(camera, camera, np.eye(3), np.array([float(right[0, 3] / right[0, 0]), 0.0, 0.0]),
                         turn_left @ rig.left_from_world_rotation, turn_left @ rig.left_from_world_translation,
                         f"{rig.name}_rectified", rig.fps, rig.time_offset_s)
    return parallel, np.asarray(turn_left, float), np.asarray(turn_right, float)


def row_residuals(rig: StereoRig, left: Array, right: Array) -> Array:
    """(V, n) row of the left corners less row of the right ones [px] after rectification, of corners (V, n, 2)."""
    parallel, *turns = rectified(rig)
    rows = []
    for camera, turn, corners in zip((rig.left, rig.right), turns, (left, right), strict=True):
        rows.append(parallel.left.project(camera.rays(corners.reshape(-1, 2)) @ turn.T)[:, 1].reshape(corners.shape[:2]))
    return rows[0] - rows[1]


def _rig(views: Views, found: list[Any], name: str, fps: float) -> StereoRig:
    left, right = (Camera(*views.size, float(m[0, 0]), float(m[1, 1]), float(m[0, 2]), float(m[1, 2]),
                          tuple(float(x) for x in np.ravel(d)[:5]))
                   for m, d in ((found[0], found[1]), (found[2], found[3])))
    return StereoRig(left, right, np.asarray(found[4], float), np.ravel(found[5]).astype(float), name=name, fps=fps)


def _held_out(views: Views, cameras: list[tuple[Array, Array]]) -> float:
    """rms [px] of the row residuals of each half of the views under the rig of the other half."""
    rest = []
    for half in (slice(0, None, 2), slice(1, None, 2)):
        other = slice(1 - (half.start or 0), None, 2)
        _, found, _ = _stereo(views, views.left[half], views.right[half], cameras)
        rest.append(row_residuals(_rig(views, found, "half", 0.0), views.left[other], views.right[other]).ravel())
    return float(np.sqrt(np.mean(np.concatenate(rest) ** 2)))


def calibrate(views: Views, name: str = "rig", fps: float = 0.0, note: Callable[[str], None] = lambda text: None) -> Calibration:
    """Both cameras alone, then all parameters of the pair together (OpenCV's pinhole with five distortion numbers).

    Raises UserError where views are too few or one-sided, images are mirrored or swapped, or pairs do not belong together.
    """
    _check_views(views)
    note("calibrating each camera alone")
    monos = [_mono(views, views.left, "left"), _mono(views, views.right, "right")]
    cameras = [(m[1], m[2]) for m in monos]
    note("calibrating the pair")
    rms, found, errors = _stereo(views, views.left, views.right, cameras)
    if rms > STEREO_LIMIT:
        _refuse_mismatch(views, rms, errors, cameras)
    rig = _rig(views, found, name, fps)
    angle = np.rad2deg(np.linalg.norm(cv2.Rodrigues(rig.right_from_left_rotation)[0]))
    place = -rig.right_from_left_rotation.T @ rig.right_from_left_translation
    if angle < SAME_WAY and place[0] < 0 and abs(place[0]) > abs(place[1]):
        raise UserError(f"the right camera stands {-place[0]:.3f} m to the left of the left one: "
                        "left and right are swapped, or both are mirror images")
    odd = errors.max(axis=1) > max(VIEW_LIMIT, VIEW_RATIO * float(np.median(errors.max(axis=1))))
    if odd.any():
        named = ", ".join(views.names[i] for i in np.flatnonzero(odd)[:6])
        raise UserError(f"views that do not fit with the others: {named}; take them out, "
                        "the board moved between the two exposures or was bent")
    rows = row_residuals(rig, views.left, views.right)
    note("calibrating on each half of the views, to judge it by the other")
    return Calibration(rig, views, (monos[0][0], monos[1][0]), rms, float(np.sqrt(np.mean(rows**2))), _held_out(views, cameras),
                       errors, np.sqrt(np.mean(rows**2, axis=1)), rows, (monos[0][3], monos[1][3]), (monos[0][4], monos[1][4]))
