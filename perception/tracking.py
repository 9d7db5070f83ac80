"""Recordings through the tracker, as they would have arrived: label files in, one track per exposure out.

A label file has the columns frame, visible, u_px, v_px; several rows of one frame are several candidates. Time is the frame
over the rig's rate; the right camera's frames are shifted by the recording's offset (frames, right minus left).
"""

import csv
import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from perception.camera import StereoRig
from perception.errors import UserError
from perception.height_scale import HeightScale
from perception.track import Track, TrackerCfg
from perception.tracker import Tracker
from perception.triangulation import Sight, StereoCfg, eyes_of, sight, triangulate, undistorted

Array = np.ndarray

COLUMNS = ("frame", "visible", "u_px", "v_px")
MISFIT_LIMIT = 6.0  # [px] median distance from the epipolar line beyond which rig and labels do not belong together; a rig that
# fits has 1 to 2, the wrong one published with the rallies 10 and more


@dataclass(frozen=True, eq=False)
class Labels:
    """Candidates of one camera: frames (F,) in the order of the file, pixels per frame (M, 2), and what was odd about the file."""

    frames: Array
    pixels: list[Array]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Recording:
    """One recording of both cameras. offset: frames of the right camera minus frames of the left; None where it is unknown."""

    name: str
    left: Labels
    right: Labels
    offset: float | None = None


@dataclass(eq=False)
class TrackLog:
    """What the tracker said: per exposure (in the order of arrival) its time [s] and the track given out, or None; the finished
    flights; the height scale each track was filtered with; the median epipolar distance [px] of what it followed; notes."""

    times: list[float] = field(default_factory=list)
    tracks: list[Track | None] = field(default_factory=list)
    flights: list[Track] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    height_scale: HeightScale = field(default_factory=HeightScale)


def read_labels(path: Path) -> Labels:
    """Labels of one camera. Raises UserError for a file that is empty, or is none, or is damaged before its last line.

    A last line that was cut off is left out and noted. Candidates that are not finite count as not seen.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read as a label file: {error}") from error
    if not lines or any(c not in lines[0].split(",") for c in COLUMNS):
        raise UserError(f"{path} is no label file: its first line must be {','.join(COLUMNS)}")
    rows = list(csv.reader(lines))
    where = [rows[0].index(c) for c in COLUMNS]
    frames: list[int] = []
    pixels: list[list[tuple[float, float]]] = []
    notes: list[str] = []
    odd = 0
    for number, row in enumerate(rows[1:], start=2):
        if not row:
            continue
        try:
            if len(row) < len(rows[0]):
                raise ValueError("cut off")
            frame, visible = float(row[where[0]]), float(row[where[1]])
            u, v = float(row[where[2]]), float(row[where[3]])
            if not frame.is_integer():
                raise ValueError("frame is no whole number")
        except ValueError as error:
            if number == len(rows):
                notes.append(f"{path.name}: the last line is cut off and was left out")
                break
            raise UserError(f"{path}, line {number}: {','.join(row)[:60]!r} is not frame, visible, u, v ({error})") from error
        if not frames or int(frame) != frames[-1]:
            frames.append(int(frame))
            pixels.append([])
        if visible > 0:  # NaN is not
            if math.isfinite(u) and math.isfinite(v):
                pixels[-1].append((u, v))
            else:
                odd += 1
    if not frames:
        raise UserError(f"{path} holds no frames")
    if odd:
        notes.append(f"{path.name}: {odd} candidates without finite coordinates count as not seen")
    back = int(np.sum(np.diff(frames) < 0))
    if back:
        notes.append(f"{path.name}: time runs backwards {back} times; exposures more than 0.2 s late are left out")
    return Labels(np.array(frames), [np.array(p, float).reshape(-1, 2) for p in pixels], tuple(notes))


def read_folder(folder: Path) -> list[Recording]:
    """All recordings NAME_camera1.csv, NAME_camera2.csv of a folder, in the order of their names; offsets from
    frame_offsets.json where it is there."""
    names = sorted(p.name.removesuffix("_camera1.csv") for p in folder.glob("*_camera1.csv"))
    if not names:
        raise UserError(f"{folder} holds no label files: they are called NAME_camera1.csv and NAME_camera2.csv")
    offsets: dict[str, Any] = {}
    path = folder / "frame_offsets.json"
    if path.is_file():
        try:
            offsets = json.loads(path.read_text())
            offsets = {k: float(v) for k, v in offsets.items()}
        except (ValueError, AttributeError, TypeError) as error:
            raise UserError(f"{path} cannot be read: {error}") from error
    out = []
    for name in names:
        right = folder / f"{name}_camera2.csv"
        if not right.is_file():
            raise UserError(f"{folder}: {name}_camera1.csv has no {right.name} beside it; a flight needs both cameras")
        out.append(Recording(name, read_labels(folder / f"{name}_camera1.csv"), read_labels(right), offsets.get(name)))
    return out


def arrivals(rig: StereoRig, recording: Recording, cfg: StereoCfg = StereoCfg()) -> list[Sight]:
    """Sights of both cameras in the order they would have arrived: each file in its own order, the earlier time first."""
    eyes = eyes_of(rig)
    queues = []
    for side, labels in enumerate((recording.left, recording.right)):
        shift = (recording.offset or 0.0) if side else 0.0
        queues.append([sight(rig, side, (frame - shift) / rig.fps, pixels, eyes, cfg, int(frame))
                       for frame, pixels in zip(labels.frames, labels.pixels, strict=True)])
    out: list[Sight] = []
    left, right = queues
    i = j = 0
    while i < len(left) or j < len(right):
        if j == len(right) or (i < len(left) and left[i].time <= right[j].time):
            out.append(left[i])
            i += 1
        else:
            out.append(right[j])
            j += 1
    return out


def epipolar_misfit(rig: StereoRig, recording: Recording, cfg: StereoCfg = StereoCfg()) -> float:
    """Median distance [px] from the epipolar line of frames with one candidate in each camera; NaN where there are under ten.

    inf where most of them meet behind the cameras. The right camera's pixel is taken between its two frames about the left one's exposure.
    """
    alone = [{int(f): p[0] for f, p in zip(side.frames, side.pixels, strict=True) if len(p) == 1} for side in (recording.left, recording.right)]
    shift = recording.offset or 0.0
    left, right = [], []
    for frame, pixel in alone[0].items():
        before = math.floor(frame + shift)
        if before in alone[1] and before + 1 in alone[1]:
            share = frame + shift - before
            left.append(pixel)
            right.append((1 - share) * alone[1][before] + share * alone[1][before + 1])
    if len(left) < 10:
        return math.nan
    pairs = [undistorted(c, np.array(p), replace(cfg, pixel_sigma=1.0)) for c, p in ((rig.left, left), (rig.right, right))]
    if len(pairs[0][0]) != len(pairs[1][0]):  # some are outside the image: the rig is for other images
        return math.inf
    eyes = eyes_of(rig)
    points, _, misfit = triangulate(pairs[0][0], pairs[1][0], pairs[0][1], pairs[1][1], eyes)
    misfit = np.sqrt(2 * misfit)  # both cameras share the distance: sqrt(misfit) is it over sqrt(2) sigma
    for eye in eyes:  # swapped cameras of a symmetric rig keep their epipolar lines; their rays meet behind them
        misfit[points @ eye[6:9] + eye[11] <= 0] = np.inf
    return float(np.median(misfit))


def _time_offset(rig: StereoRig, recording: Recording) -> float:
    """Offset [frames] found from the labels themselves, where nothing says it."""
    from perception.calibration import time_offset

    tracks = []
    for labels in (recording.left, recording.right):
        one = [(f, *p[0]) for f, p in zip(labels.frames, labels.pixels, strict=True) if len(p) == 1]
        tracks.append(np.array(one, float).reshape(-1, 3))
    frames, _ = time_offset(rig, *tracks)
    return float(frames)


def with_offset(rig: StereoRig, recording: Recording) -> Recording:
    """The recording with its offset, found from its own labels where none came with it."""
    if recording.offset is not None:
        return recording
    try:
        return replace(recording, offset=_time_offset(rig, recording))
    except (ValueError, UserError) as error:
        raise UserError(f"{recording.name}: the cameras' time offset is not known and cannot be found ({error})") from error


def track_recording(rig: StereoRig, recording: Recording, cfg: TrackerCfg = TrackerCfg(), scale: HeightScale = HeightScale()) -> TrackLog:
    """Run the tracker over a recording, exposure by exposure; nothing later than an exposure has a say in what is said at it.

    scale: what is known of the rig's heights before; every flight that ends adds to it (sigma 0: taken as it is). Raises
    UserError where rig and labels do not belong together.
    """
    seen = [sum(len(p) for p in side.pixels) for side in (recording.left, recording.right)]
    for count, name in zip(seen, ("left", "right"), strict=True):
        if not count:
            raise UserError(f"{recording.name}: the {name} camera saw nothing; a flight needs both cameras")
    misfit = epipolar_misfit(rig, recording, cfg.stereo)
    if misfit > MISFIT_LIMIT:
        how = f"miss each other by {misfit:.0f} px" if np.isfinite(misfit) else "do not meet in front of the cameras"
        raise UserError(f"{recording.name}: the labels of both cameras {how} under this rig; "
                        "it is another rig's file, the cameras are swapped, or the time offset is wrong (see birdie calibrate --check)")
    log = TrackLog(notes=[*recording.left.notes, *recording.right.notes], height_scale=scale)
    tracker = Tracker(cfg)
    for one in arrivals(rig, recording, cfg.stereo):
        tracker.height_scale = (log.height_scale.value, log.height_scale.sigma)
        track = tracker.add(one)
        log.times.append(one.time)
        log.tracks.append(track)
        for flight in tracker.take_finished():
            log.flights.append(flight)
            log.height_scale = log.height_scale.learn(flight, cfg)
    log.flights += [t for t in tracker.tracks if t.confirmed]
    if tracker.too_late:
        log.notes.append(f"{tracker.too_late} exposures came more than {cfg.memory:g} s late, or without a time, and were left out")
    if tracker.repeats > 0.3 * len(log.times):
        log.notes.append(f"{tracker.repeats} of {len(log.times)} exposures repeat the one before to the last bit: frozen images?")
    return log
