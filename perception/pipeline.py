"""From a pair of images to the shuttle's flight: detector, sights, tracker, and the windows of the next pair. One call per exposure.

The same object runs on rendered images, on recordings and on the robot: it needs the rig, and for every pair the time of exposure and
the left camera's pose at that time. It never raises for what a camera may show; it raises UserError for what is no image of the rig.
"""

import time as clock
from dataclasses import dataclass, field, replace

import cv2
import numpy as np

from perception.camera import Pose, StereoRig
from perception.detector import Candidates, Detector, DetectorCfg, Window, check_image
from perception.filter import see
from perception.interception import FlightNoise, forecast
from perception.start import StartCfg
from perception.tracker import Track, Tracker, TrackerCfg
from perception.triangulation import SHUTTLE_SIZE, Sight, StereoCfg, eyes_of, undistorted

Array = np.ndarray

DARK = 12  # [grey levels] an image with nothing brighter shows nothing: a covered or broken camera
SKIRT_BEHIND = 0.05  # [m] by which the middle of what is seen, mostly skirt, flies behind the middle of the cork, which is what a racket meets;
# measured on rendered shuttles of true size
LOST = 1.5  # [px/px] of the middle by what a blob is too small or too large, beyond a tenth: twice the shift of a half disc's middle
SWAPPED = 30  # pairs of candidates in matching rows, nearly all of negative disparity, that say so: our choice, about a second of flight


@dataclass(frozen=True)
class PipelineCfg:
    """tracker's stereo.pixel_sigma is that of a blob's centre, far smaller than that of a hand label: 0.6 px measured on rendered
    flights, of which 0.3 px are the centre of what is lit against the centre of the shuttle; start.speed_range: arms and rackets in the hall
    are slower than 4 m/s as often as not, a served shuttle never is; coast: a lob leaves the image at the top and may be away for 1.6 s.
    misses: pairs in a row that should show the track's shuttle and do not before the whole image is searched; patience: before the track is
    not given out any more. pairs: seen before a track is given out; nis: mean chi-square (two freedoms) of its candidates beyond which it is no
    flight; slowest: [m/s] that it must fly for certain (two sigmas); way: [m] that it must have flown; closing: [m/s] towards the camera over
    the floor, for certain too: people's hands, shoes and rackets pass the tracker's own tests for a while, but they go to and fro, and mostly sideways.
    alike: the better four fifths of its candidates must also fit it to this mean chi-square, and their extents be alike to spread (standard
    deviation of the logarithm) and a shuttle's but for a factor ratio, before it is trusted: what is seen of an arm or a racket changes from
    frame to frame, and its depth with it, which looks like a quick flight. Of 30 rendered serves none had more than 0.5 and 0.22 when
    first judged, of the people's arms that passed all other tests none less than 0.62; chi-square is small since pixel_sigma holds slow errors too.
    window: smallest and largest half width [px]; margin: of the window, in sigmas of the forecast.
    """

    detector: DetectorCfg = field(default_factory=DetectorCfg)
    tracker: TrackerCfg = field(default_factory=lambda: TrackerCfg(
        stereo=StereoCfg(pixel_sigma=0.6, height_range=(0.25, 12.0)), start=StartCfg(speed_range=(4.0, 60.0)), coast=2.0))
    misses: int = 2
    patience: int = 8
    pairs: int = 5
    nis: float = 5.0
    slowest: float = 3.0
    way: float = 0.6
    closing: float = 1.0
    alike: float = 0.6
    spread: float = 0.25
    ratio: float = 1.6
    window: tuple[float, float] = (20.0, 100.0)
    margin: float = 4.0


@dataclass(frozen=True, eq=False)
class Look:
    """What one pair gave: time [s]; the flight of the cork given out, or None; candidates of both eyes; where they were looked for: "search" in
    the whole images, "window" about the forecast, "away" nowhere, since the shuttle should be outside the images;
    seconds of processor time spent on detecting and on tracking, the pause where another process was let in not counted."""

    time: float
    track: Track | None
    left: Candidates
    right: Candidates
    mode: str
    detect_s: float
    track_s: float


class Pipeline:
    """Feed pairs of images with `look`, in the order of their times."""

    def __init__(self, rig: StereoRig, cfg: PipelineCfg = PipelineCfg()) -> None:
        self.rig, self.cfg = rig, cfg
        self.detectors = (Detector(rig.left, cfg.detector), Detector(rig.right, cfg.detector))
        self.tracker = Tracker(cfg.tracker)
        self.looks = 0
        self._dark, self._unplaced = [0, 0], 0
        self._disparities = [0, 0]  # pairs of matching rows: right way round, wrong way round
        self._missed, self._expected = 0, False
        self._extent, self._extent_of = 0.0, -np.inf  # [m] across what is seen of the flight that began then, slowly forgotten
        self._trusted = -np.inf  # when the flight that is trusted began

    def look(self, time: float, left: Array, right: Array, pose: Pose) -> Look:
        """Take in the images (height, width, 3 or 4) uint8 of both cameras, exposed at time [s] with the left camera at pose."""
        begin = clock.thread_time()
        check_image(left, self.rig.left)
        check_image(right, self.rig.right)
        self.looks += 1
        if not (np.isfinite(time) and np.isfinite(pose.rotation).all() and np.isfinite(pose.translation).all()):
            self._unplaced += 1
            return Look(time, None, Candidates.none(), Candidates.none(), "away", clock.thread_time() - begin, 0.0)
        eyes = eyes_of(self.rig, pose.rotation, pose.translation)
        windows = self._windows(time, eyes)
        mode = "search" if windows is None else "window" if any(windows) else "away"
        found, sights = [], []
        for side, (detector, image, camera) in enumerate(zip(self.detectors, (left, right), (self.rig.left, self.rig.right), strict=True)):
            if image[::8, ::8].max() < DARK:
                self._dark[side] += 1
            candidates = detector.look(time, image, Pose(eyes[side, :9].reshape(3, 3), eyes[side, 9:12]), None if windows is None else windows[side])
            found.append(candidates)
            depth = windows[side][0].depth if windows is not None and windows[side] else None
            sights.append(self._sight(side, time, eyes[side], candidates, camera.width * camera.height, depth))
        middle = clock.thread_time()
        self.tracker.add(sights[0])
        track = self.tracker.add(sights[1])
        end = clock.thread_time()
        self._after(time, track, sights)
        sure = track is not None and track.born == self._trusted and self._missed < self.cfg.patience
        if windows is None:
            self._count_disparities(*found)
        return Look(time, of_cork(track) if sure and track is not None else None, found[0], found[1], mode, middle - begin, end - middle)

    def notes(self) -> list[str]:
        """What is wrong with the images so far, one line each; empty if nothing is."""
        out = []
        for side, name in enumerate(("left", "right")):
            if self._dark[side] > 0.5 * self.looks:
                out.append(f"the {name} camera shows black in {self._dark[side]} of {self.looks} images: covered, or not exposing?")
            if self.detectors[side].repeats > 0.3 * self.looks:
                out.append(f"the {name} camera repeats itself in {self.detectors[side].repeats} of {self.looks} images: frozen?")
        if self._unplaced:
            out.append(f"{self._unplaced} pairs came without a finite time or pose and were left out")
        right_way, wrong_way = self._disparities
        if wrong_way > SWAPPED and wrong_way > 4 * right_way:
            out.append(f"{wrong_way} pairs of candidates lie behind the cameras, {right_way} in front: are left and right swapped?")
        return out

    def _sight(self, side: int, time: float, eye: Array, candidates: Candidates, area: float, depth: float | None) -> Sight:
        """Candidates as the tracker takes them. Where the track's depth says that one is too small or too large, part of it is lost before
        something bright, or joined to it, and its middle is that much less sure."""
        camera = self.rig.right if side else self.rig.left
        pixels, noise = undistorted(camera, candidates.pixels, self.cfg.tracker.stereo, candidates.streaks)
        sizes = candidates.sizes if len(pixels) == len(candidates) else None  # some lie where the lens cannot be undone
        if sizes is not None and depth is not None and self._extent > 0:
            usual = self._extent * camera.fx / max(depth, 0.1)
            lost = LOST * np.maximum(np.abs(sizes - usual) - 0.1 * usual, 0.0)
            noise = noise + np.eye(2) * lost[:, None, None] ** 2
        return Sight(time, side, eye, pixels, noise, float(area), sizes)

    def _windows(self, time: float, eyes: Array) -> tuple[list[Window], list[Window]] | None:
        """Windows about the track's forecast in both images; None where the whole images are to be searched."""
        track, self._expected = self.tracker.track, False
        if track is None or track.born != self._trusted or self._missed >= self.cfg.misses or not 0 <= time - track.time < 0.3:  # a pause in the images
            return None
        noise = FlightNoise(self.cfg.tracker.acceleration_noise, self.cfg.tracker.drift_noise)
        x, cov = forecast(track.time, track.state, track.covariance, time, noise)
        out: list[list[Window]] = [[], []]
        slope, pixel = np.empty((2, 3)), np.empty(2)
        for side, eye in enumerate(eyes):
            if not see(eye, x, track.height_scale, pixel, slope):
                continue
            depth = float(eye[6:9] @ x[:3] + eye[11])
            spread = np.sqrt(np.linalg.eigvalsh(slope @ cov[:3, :3] @ slope.T)[-1])
            half = float(np.clip(self.cfg.margin * spread + 1.5 * SHUTTLE_SIZE * eye[12] / max(depth, 0.2) + 10, *self.cfg.window))
            slack = 1.3 + 3 * np.sqrt(float(eye[6:9] @ cov[:3, :3] @ eye[6:9])) / max(depth, 0.2)
            if all(-3 * spread < p < 2 * c + 3 * spread for p, c in zip(pixel, eye[14:16], strict=True)):  # else what is seen at the border is not it
                out[side].append(Window(float(pixel[0]), float(pixel[1]), half, depth, float(min(slack, 3.0))))
        self._expected = all(w and self._inside(w[0], e) for w, e in zip(out, eyes, strict=True))
        return out[0], out[1]

    def _credible(self, track: Track, trusted: bool) -> bool:
        """Whether a confirmed track is a flight towards the robot, and not a moving person's hand. trusted: it has been one so far."""
        cfg, hit = self.cfg, track.newest
        if track.hits < 2 * cfg.pairs or hit is None:
            return False
        velocity = track.state[3:6]
        speed = float(np.linalg.norm(velocity))
        unsure = float(np.sqrt(velocity @ track.covariance[3:6, 3:6] @ velocity)) / max(speed, 1e-9)
        if not trusted:
            eye = hit.sight.eye
            to_camera = (-eye[:9].reshape(3, 3).T @ eye[9:12] - track.state[:3])[:2]
            to_camera /= max(float(np.linalg.norm(to_camera)), 1e-9)
            closing = float(velocity[:2] @ to_camera) - 2 * float(np.sqrt(to_camera @ track.covariance[3:5, 3:5] @ to_camera))
            if closing < cfg.closing or speed * (track.time - track.born) < cfg.way or not self._alike(track):
                return False
        nis, count = 0.0, 0
        while hit is not None and count < 2 * cfg.pairs:
            nis, hit, count = nis + hit.nis, hit.earlier, count + 1
        return nis <= cfg.nis * count and speed - 2 * unsure >= cfg.slowest

    def _alike(self, track: Track) -> bool:
        """Whether a track's latest candidates are images of one small thing, but for the odd one that merged with something else."""
        cfg, hit = self.cfg, track.newest
        misfits: list[float] = []
        extents: list[float] = []
        while hit is not None and len(misfits) < 2 * cfg.pairs:
            eye = hit.sight.eye
            misfits.append(hit.nis)
            if hit.sight.sizes is not None:
                extents.append(hit.sight.sizes[hit.index] * max(float(eye[6:9] @ track.state[:3] + eye[11]), 0.1) / eye[12])
            hit = hit.earlier
        better = 2 * cfg.pairs - 2 * cfg.pairs // 5
        if np.mean(np.sort(misfits)[:better]) > cfg.alike:
            return False
        if not extents:
            return True
        sizes = np.log(np.array(extents) / SHUTTLE_SIZE)
        middle = float(np.median(sizes))
        return bool(np.std(sizes[np.argsort(np.abs(sizes - middle))[:better]]) <= cfg.spread and abs(middle) <= np.log(cfg.ratio))

    @staticmethod
    def _inside(window: Window, eye: Array) -> bool:
        edge = 0.5 * SHUTTLE_SIZE * eye[12] / max(window.depth, 0.2) + 2
        return bool(edge < window.u < 2 * eye[14] - edge and edge < window.v < 2 * eye[15] - edge)

    def _after(self, time: float, track: Track | None, sights: list[Sight]) -> None:
        """Count misses, and tell the detectors where the track's shuttle was."""
        if track is None:
            self._missed = 0
            return
        if track.last_seen >= time:
            self._missed = 0
            self._trusted = track.born if self._credible(track, track.born == self._trusted) else -np.inf
        elif self._expected or self._missed >= self.cfg.misses:
            self._missed += 1
        hit = track.newest
        while hit is not None and hit.sight.time == time:
            u, v = hit.sight.pixels[hit.index]
            self.detectors[hit.sight.side].note(time, float(u), float(v))
            if hit.sight.sizes is not None:
                eye = hit.sight.eye
                extent = float(hit.sight.sizes[hit.index] * (eye[6:9] @ track.state[:3] + eye[11]) / eye[12])
                fresh = track.born != self._extent_of
                self._extent, self._extent_of = extent if fresh else self._extent + 0.1 * (extent - self._extent), track.born
            hit = hit.earlier

    def _count_disparities(self, left: Candidates, right: Candidates) -> None:
        if not self.rig.is_parallel or not len(left) or not len(right):
            return
        d = left.pixels[:, None, 0] - right.pixels[None, :, 0]
        rows = np.abs(left.pixels[:, None, 1] - right.pixels[None, :, 1]) < 1.5
        far, near = (self.rig.left.fx * self.rig.baseline / z for z in (15.0, 1.0))
        self._disparities[0] += int(np.sum(rows & (d > far) & (d < near)))
        self._disparities[1] += int(np.sum(rows & (d < -far) & (d > -near)))


def of_cork(track: Track) -> Track:
    """The track of the cork's middle for one of what is seen of the shuttle: SKIRT_BEHIND further along the flight."""
    state = track.state.copy()
    state[:3] += SKIRT_BEHIND * state[3:6] / max(float(np.linalg.norm(state[3:6])), 1e-9)
    return replace(track, state=state)


def one_core() -> None:
    """Keep OpenCV to one thread: images of this size gain nothing from more, and the control loop needs the other cores."""
    cv2.setNumThreads(1)
