"""Two videos of a rig that stands still through the pipeline: the log `birdie track` reports from, and images to look at.

The frames of both are taken to be exposed together, frame by frame at the rig's rate; a robot's moving cameras come with
poses, which a video file does not hold: there the pipeline is called directly.
"""

from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np

from perception.camera import StereoRig
from perception.errors import UserError
from perception.height_scale import HeightScale
from perception.pipeline import Look, Pipeline
from perception.tracking import TrackLog
from perception.triangulation import eyes_of

Array = np.ndarray

SUFFIXES = (".mp4", ".avi", ".mov", ".mkv")
OVERLAYS = 6  # images in the report, spread over the recording


def frames(left: Path, right: Path, notes: list[str]) -> Iterator[tuple[Array, Array]]:
    """Pairs of frames of two videos, as far as both go; what was odd is added to notes. Raises UserError where there is none."""
    readers = []
    for path in (left, right):
        reader = cv2.VideoCapture(str(path)) if path.is_file() else None
        if reader is None or not reader.isOpened():
            raise UserError(f"{path} cannot be opened as a video")
        readers.append(reader)
    said = [int(reader.get(cv2.CAP_PROP_FRAME_COUNT)) for reader in readers]
    count = 0
    while True:
        pair = [reader.read() for reader in readers]
        if not all(ok for ok, _ in pair):
            break
        count += 1
        yield pair[0][1], pair[1][1]
    for reader in readers:
        reader.release()
    if not count:
        raise UserError(f"{left.name} and {right.name} hold no pair of frames")
    if count < max(said):
        notes.append(f"{count} pairs of frames of {said[0]} and {said[1]} that the files speak of: one is shorter, or cut off")


def _overlay(rig: StereoRig, left: Array, right: Array, look: Look, width: int = 1080) -> Array:
    """Both images side by side, candidates as small circles, the flight given out as a large one."""
    eyes, sides = eyes_of(rig), []
    for eye, camera, image, found in zip(eyes, (rig.left, rig.right), (left, right), (look.left, look.right), strict=True):
        drawn = np.ascontiguousarray(image[:, :, :3])
        for u, v in found.pixels:
            cv2.circle(drawn, (round(float(u)), round(float(v))), 6, (255, 160, 0), 1, cv2.LINE_AA)
        if look.track is not None:
            point = eye[:9].reshape(3, 3) @ look.track.state[:3] + eye[9:12]
            pixel = camera.project(point[None])[0]
            if camera.inside(pixel[None])[0]:
                cv2.circle(drawn, (round(float(pixel[0])), round(float(pixel[1]))), 14, (40, 40, 255), 2, cv2.LINE_AA)
        sides.append(drawn)
    both = np.concatenate(sides, axis=1)
    return cv2.resize(both, (width, round(both.shape[0] * width / both.shape[1])), interpolation=cv2.INTER_AREA)


def track_videos(rig: StereoRig, left: Path, right: Path) -> tuple[TrackLog, list[tuple[str, Array]]]:
    """The log of two videos, and up to OVERLAYS captioned BGR images of pairs with a flight (without any: the first pair).

    Raises UserError for files that are no videos, and for images of another size than the rig's.
    """
    if not rig.fps > 0:
        raise UserError(f"rig {rig.name} says no rate (fps); a video needs it for its times")
    log, pipeline = TrackLog(height_scale=HeightScale(1.0, 0.0)), Pipeline(rig)
    pictures: list[tuple[float, str, Array]] = []
    for n, (one, two) in enumerate(frames(left, right, log.notes)):
        time = n / rig.fps
        look = pipeline.look(time, one, two, rig.pose)
        log.times.append(time)
        log.tracks.append(look.track)
        log.flights += pipeline.tracker.take_finished()
        if look.track is not None or n == 0:
            pictures.append((time, f"{time:.2f} s: " + ("candidates (thin) and the flight given out" if look.track else "candidates; no flight yet"),
                             _overlay(rig, one, two, look)))
            if len(pictures) > 20 * OVERLAYS:  # keep every other one: memory stays small however long the video
                pictures = pictures[::2]
    log.flights += [t for t in pipeline.tracker.tracks if t.confirmed]
    log.notes += pipeline.notes()
    flown = [p for p in pictures if "given out" in p[1]] or pictures
    chosen = np.unique(np.linspace(0, len(flown) - 1, OVERLAYS).astype(int))
    return log, [flown[i][1:] for i in chosen]
