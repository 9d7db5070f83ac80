"""`birdie bench perception`: what the cameras of a playing robot make of serves, and in what time.

The shipped policy plays shots that people hit: it walks to them, pitches and swings, and its camera with it. Those motions are recorded,
then every serve is rendered as its camera would have seen it (`sim/stereo.py`) and given to `perception/pipeline.py`, pair by pair. The
robot is told where to hit, so that what perception makes of it does not change the motion; the camera's pose given to perception is the
true one at exposure. All that is scored is what the pipeline said at the time.

One serve in three is rendered once more without its shuttle: while a flight is followed nothing else is looked for, so false tracks
come when nothing flies.
"""

import itertools
import os
import queue
import time as clock
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from typing import Any

import numpy as np

from perception.camera import Pose, StereoRig, project, zedx
from perception.detector import DetectorCfg
from perception.errors import UserError
from perception.flight import fly
from perception.interception import FlightNoise, Interception, at_height
from perception.noise_truth import Reports
from perception.pipeline import SKIRT_BEHIND, Look, Pipeline, PipelineCfg, one_core
from perception.tracker import Track
from perception.tracker_batch import TrackerBatch
from perception.triangulation import SHUTTLE_SIZE
from policy.inference import OnnxPolicy
from policy.rendered_noise import two_sample
from policy.watched_serves import BEFORE, Frame, Serve, record_serves, render
from sim.robot import Robot, load_robot
from sim.stereo import SensorCfg, StereoCameras, lens_pose

Array = np.ndarray

RANGE = 7.0  # [m] within which a shuttle in view has to be found
SEEN = 0.3  # share of its outline that must show for it to be in view; the rest is behind the net or the robot's own arm
HORIZONS = (0.2, 0.4)  # [s] before the shuttle comes down through the height where it is hit
FRESH = 0.2  # [s] before a horizon in which the shuttle was last in view, for the figures of serves that are not out of sight by then
TRUE_TRACK = (0.5, 0.15)  # [m], or as a share of the distance: a track farther from the shuttle is of something else
HALL_SEED = 1  # which hall, with which banners
EMPTY_EVERY = 3  # one serve in three is shown without shuttle too: trades time for a surer count; odd, to spread over cores
TIMED, PASSES = 3, 3  # serves whose pairs are timed, and how often


@dataclass(eq=False)
class Verdict:
    """What came of one serve. seconds rendered; views (V,) times of frames in view within RANGE; found: of those, the shuttle was among the
    candidates of both eyes; false_tracks given out; errors, time_errors by horizon, of the foretold place [m] and time [s] (inf: nothing
    was foretold); seconds of processor time of detecting, by mode, and of tracking with a forecast; turn_rate: largest of the camera
    [rad/s]; notes of the pipeline; reports: per frame in view at any range its time, the shuttle's place from the left camera (3,) [m] along the
    world's axes, that camera's rotation (3, 3), what the eyes reported (3,) u, v, disparity [px] or nan, and how fast the camera turns [rad/s]; empty_seconds rendered once more without shuttle, empty_false_tracks of what moved there."""

    seconds: float = 0.0
    empty_seconds: float = 0.0
    empty_false_tracks: int = 0
    views: list[float] = field(default_factory=list)
    found: int = 0
    false_tracks: int = 0
    errors: dict[float, float] = field(default_factory=dict)
    time_errors: dict[float, float] = field(default_factory=dict)
    fresh: dict[float, bool] = field(default_factory=dict)
    detect: dict[str, list[float]] = field(default_factory=lambda: {"search": [], "window": [], "away": []})
    track: list[float] = field(default_factory=list)
    turn_rate: float = 0.0
    notes: list[str] = field(default_factory=list)
    reports: list[tuple[float, Array, Array, Array, float]] = field(default_factory=list)


def judge(serve: Serve, frames: Iterable[Frame], rig: StereoRig, cfg: PipelineCfg = PipelineCfg()) -> Verdict:
    """Give the frames of a serve to a fresh pipeline and score what it said at each."""
    pipeline, out = Pipeline(rig, cfg), Verdict()
    said: list[tuple[float, Track | None]] = []
    balance: dict[float, int] = {}  # frames in which a track was of something else, less those in which it was of the shuttle
    last: Array | None = None
    for f in frames:
        look = pipeline.look(f.time, f.left, f.right, f.pose)
        out.detect[look.mode].append(look.detect_s)
        if look.track is not None:
            begin = clock.thread_time()
            _foretell(look.track, serve.height, cfg)
            if look.mode == "window":
                out.track.append(look.track_s + clock.thread_time() - begin)
            born = look.track.born
            balance[born] = balance.get(born, 0) + (-1 if _is_of_shuttle(look.track, f) else 1)
        said.append((f.time, look.track))
        turned = 0.0 if last is None else rig.fps * float(np.linalg.norm(f.pose.rotation - last)) / np.sqrt(2)
        out.turn_rate = max(out.turn_rate, turned)
        last = f.pose.rotation
        _count(out, serve, f, look, rig, turned)
    out.seconds, out.notes = len(said) / rig.fps, pipeline.notes()
    out.false_tracks = sum(b > 0 for b in balance.values())
    when, where = serve.meeting
    for h in HORIZONS:
        before = [track for t, track in said if t <= when - h]
        crossing = _foretell(before[-1], serve.height, cfg) if before and before[-1] is not None else None
        out.errors[h] = float(np.linalg.norm(crossing.place - where)) if crossing else np.inf
        out.time_errors[h] = abs(crossing.time - when) if crossing else np.inf
        out.fresh[h] = any(when - h - FRESH <= t <= when - h for t in out.views)
    return out


def _is_of_shuttle(track: Track, frame: Frame) -> bool:
    if frame.truth is None:
        return False
    off, distance = (float(np.linalg.norm(frame.truth - x)) for x in (track.state[:3], frame.pose.centre))
    return bool(off < max(TRUE_TRACK[0], TRUE_TRACK[1] * distance))


def _count(out: Verdict, serve: Serve, frame: Frame, look: Look, rig: StereoRig, turn_rate: float) -> None:
    """Whether the shuttle was in view of both eyes within RANGE, and whether both have a candidate on it; and what they report of it."""
    if frame.truth is None or frame.shows.min() < SEEN:
        return
    x = serve.shuttle(np.array([frame.time]))[0]
    middle = x[:3] - SKIRT_BEHIND * x[3:] / np.linalg.norm(x[3:])  # of what is seen
    pixels = project(rig, middle[None], frame.pose)[0]
    distance = float(np.linalg.norm(middle - frame.pose.centre))
    size = SHUTTLE_SIZE * rig.left.fx / distance
    eyes = ((rig.left, pixels[:2], look.left), (rig.right, pixels[2:], look.right))
    if not all(camera.inside(p[None], size)[0] for camera, p, _ in eyes):
        return
    near = [_nearest(c.pixels, p, max(3.0, 0.75 * size)) for _, p, c in eyes]
    found = near[0] is not None and near[1] is not None
    if distance < RANGE:
        out.views.append(frame.time)
        out.found += found
    left, right = near
    report = np.full(3, np.nan) if left is None or right is None else np.array([left[0], left[1], left[0] - right[0]])
    out.reports.append((frame.time, middle - frame.pose.centre, frame.pose.rotation, report, turn_rate))


def _nearest(candidates: Array, pixel: Array, reach: float) -> Array | None:
    """The candidate (2,) [px] nearest to pixel, within reach [px]."""
    off = np.linalg.norm(candidates - pixel, axis=1)
    return candidates[off.argmin()] if len(off) and off.min() < reach else None


def reports_of(verdicts: list[Verdict]) -> Reports:
    """What the eyes reported in all serves, with the truth; velocities are from one frame to the next, without the camera's turn."""
    rows = []
    for number, verdict in enumerate(verdicts):
        for (t0, before, _, _, _), (t1, place, rotation, report, turn) in itertools.pairwise(verdict.reports):
            if t1 - t0 < 0.05:
                rows.append((number, rotation @ place, rotation @ (place - before) / (t1 - t0), turn, report))
    columns = [np.array(column) for column in zip(*rows, strict=True)] if rows else [np.empty((0, *shape)) for shape in ((), (3,), (3,), (), (3,))]
    flight, places, velocities, turns, measurement = columns
    return Reports(flight, places, velocities, turns, measurement, np.isfinite(measurement[:, 0]))


def _foretell(track: Track, height: float, cfg: PipelineCfg) -> Interception | None:
    return at_height(track.time, track.state, track.covariance, height, 2.5, FlightNoise(cfg.tracker.acceleration_noise, cfg.tracker.drift_noise))


def empty_hall(serve: Serve, cameras: StereoCameras, fps: float, since: float) -> Iterator[Frame]:
    """What the robot sees when it moves as in a serve but nothing flies: any track is false. since [s]: as in `render`."""
    offsets = cameras.cfg.offsets
    for t in np.arange(-BEFORE, min(serve.time[-1], serve.meeting[0]), 1 / fps):
        poses = [lens_pose(serve.robot(t + o), cameras.lens) for o in offsets]
        left, right, _ = cameras.shoot(since + t, serve.robot(t), poses)
        yield Frame(float(t), left, right, lens_pose(serve.robot(t), cameras.lens), None, np.zeros(2))


def _work(robot_name: str, part: list[tuple[int, Serve]], rig: StereoRig, sensor: SensorCfg, cfg: PipelineCfg, tell: Any) -> list[Verdict]:
    """One process: render and judge some serves, one by one; the hall is the same everywhere."""
    one_core()
    out = []
    with StereoCameras(load_robot(robot_name), rig, np.random.default_rng(HALL_SEED), sensor) as cameras:
        for number, serve in part:
            verdict = judge(serve, render(serve, cameras, rig.fps, 7.0 * number), rig, cfg)
            if number % EMPTY_EVERY == 0:
                bare = judge(serve, empty_hall(serve, cameras, rig.fps, 7.0 * number), rig, cfg)
                verdict.empty_seconds, verdict.empty_false_tracks = bare.seconds, bare.false_tracks
            out.append(verdict)
            tell.put(number)
    return out


def time_alone(robot: Robot, serves: list[Serve], rig: StereoRig, sensor: SensorCfg, cfg: PipelineCfg) -> dict[str, float | None]:
    """Processor time of a pair [ms], when nothing of ours runs beside it: each pair's median of PASSES passes over the same images."""
    one_core()
    detect: dict[str, list[Array]] = {"search": [], "window": [], "away": []}
    track: list[Array] = []
    with StereoCameras(robot, rig, np.random.default_rng(HALL_SEED), sensor) as cameras:
        for serve in serves:
            frames = list(render(serve, cameras, rig.fps, 0.0))
            passes = [judge(serve, frames, rig, cfg) for _ in range(PASSES)]
            for mode, times in detect.items():
                times.append(np.median([p.detect[mode] for p in passes], axis=0))
            track.append(np.median([p.track for p in passes], axis=0))
    window, search = np.concatenate(detect["window"]), np.concatenate(detect["search"])
    return {"p50_ms": _ms(window, 50), "p99_ms": _ms(window, 99), "search_p50_ms": _ms(search, 50), "search_p99_ms": _ms(search, 99),
            "tracker_ms": _ms(np.concatenate(track), 50), "timed_pairs": len(window) + len(search)}


def bench_perception(serves: int = 100, fps: float = 60.0, lens_mm: float = 2.2, shuttle: str = "white", threads: int = 0, seed: int = 3,
                     progress: Callable[[int, int, float], object] | None = None) -> dict[str, Any]:
    """Figures of `serves` rendered serves; progress(done, all, seconds left) after each. threads: processes that render, 0: one per core.

    OpenGL must have been chosen by `sim/display.py`. Interception errors are at the height where the robot meets the shuttle.
    """
    if serves < 1 or not 10 <= fps <= 240:
        raise UserError(f"serves must be at least 1 and fps between 10 and 240; got {serves}, {fps:g}")
    rig, cfg = replace(zedx("SVGA", lens_mm), fps=fps), PipelineCfg(detector=DetectorCfg(colour=shuttle))
    policy = OnnxPolicy()
    played = record_serves(policy, serves, seed)
    workers = min(threads or os.cpu_count() or 1, len(played))
    context = get_context("spawn")
    verdicts: list[Verdict] = []
    with context.Manager() as manager, ProcessPoolExecutor(workers, mp_context=context) as pool:
        told = manager.Queue()
        parts = [list(enumerate(played))[n::workers] for n in range(workers)]
        jobs = [pool.submit(_work, policy.contract.robot, part, rig, SensorCfg(shuttle=shuttle), cfg, told) for part in parts]
        start, done = clock.monotonic(), 0
        while done < len(played) and not any(j.done() and j.exception() for j in jobs):
            try:
                told.get(timeout=1.0)
            except queue.Empty:
                continue
            done += 1
            if progress is not None:
                progress(done, len(played), (clock.monotonic() - start) / done * (len(played) - done))
        for job in jobs:
            verdicts += job.result()
    sensor = SensorCfg(shuttle=shuttle)
    alone = time_alone(load_robot(policy.contract.robot), played[:TIMED], rig, sensor, cfg)
    return {**summarise(verdicts), **alone, "batch_4096_tick_ms": batch_tick_ms(rig), "fps": fps, "lens_mm": lens_mm, "shuttle": shuttle,
            "noise": two_sample(rig, reports_of(verdicts), sensor.exposure), "seed": seed, "training": {k: policy.training.get(k) for k in ("steps", "commit")}}


def summarise(verdicts: list[Verdict]) -> dict[str, Any]:
    """The figures of many serves as one; a serve that was not foretold counts as infinitely wrong."""
    seconds, in_view = sum(v.seconds for v in verdicts), sum(len(v.views) for v in verdicts)
    empty_seconds, empty_false = sum(v.empty_seconds for v in verdicts), sum(v.empty_false_tracks for v in verdicts)
    false = sum(v.false_tracks for v in verdicts) + empty_false
    out: dict[str, Any] = {
        "serves": len(verdicts), "seconds": seconds, "frames_in_view": in_view, "recall": sum(v.found for v in verdicts) / in_view if in_view else None,
        "false_tracks": false, "false_tracks_per_100_s": 100 * false / (seconds + empty_seconds),
        "empty_seconds": empty_seconds, "empty_false_tracks": empty_false,
        "turn_rate_max_rad_s": max(v.turn_rate for v in verdicts), "notes": sorted({n for v in verdicts for n in v.notes})}
    for name, keep in (("", lambda v, h: True), ("_fresh", lambda v, h: v.fresh[h])):
        for what, unit in (("errors", "interception{}_median_m"), ("time_errors", "interception{}_time_median_s")):
            out[unit.format(name)] = {f"{h}": _median([getattr(v, what)[h] for v in verdicts if keep(v, h)]) for h in HORIZONS}
        out[f"interception{name}_serves"] = {f"{h}": sum(keep(v, h) for v in verdicts) for h in HORIZONS}
    return out


def _ms(seconds: Array, percent: float) -> float | None:
    return float(1e3 * np.percentile(seconds, percent)) if len(seconds) else None


def _median(values: list[float]) -> float | None:
    ordered = np.sort(values)
    value = 0.5 * (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) if len(ordered) else np.inf
    return float(value) if np.isfinite(value) else None


def batch_tick_ms(rig: StereoRig, count: int = 4096, ticks: int = 60) -> float:
    """Median time [ms] of one tick of `count` filters of `perception/tracker_batch.py`, each following a flight of its own."""
    rng = np.random.default_rng(0)
    start = np.column_stack([rng.uniform(2, 6, count), rng.uniform(-2, 2, count), rng.uniform(1, 3, count)])
    velocity = np.column_stack([rng.uniform(-15, -8, count), rng.uniform(-1, 1, count), rng.uniform(0, 6, count)])
    path = fly(start, velocity, np.full(count, 0.248), np.full(count, 0.6), 1 / 60, ticks)
    pose = Pose.of_camera(np.array([-4.0, 0.0, 0.7]), np.array([[0.0, 0, 1], [-1, 0, 0], [0, -1, 0]]))
    batch = TrackerBatch(count, rig)
    rotation, translation = np.tile(pose.rotation, (count, 1, 1)), np.tile(pose.translation, (count, 1))
    spent = []
    for n in range(ticks):
        pixels = project(rig, path[:, n, :3], pose)
        measured = np.column_stack([pixels[:, 0], pixels[:, 1], pixels[:, 0] - pixels[:, 2]]) + rng.normal(0, 0.3, (count, 3))
        seen = np.isfinite(measured).all(axis=1)
        begin = clock.perf_counter()
        batch.step(n / 60, np.nan_to_num(measured), np.array(seen), rotation, translation)
        spent.append(clock.perf_counter() - begin)
    return float(1e3 * np.median(spent[5:]))
