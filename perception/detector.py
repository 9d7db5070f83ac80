"""Where could the shuttle be in one image of a moving camera? Candidates with sub-pixel place, size, streak and score.

What gives a shuttle away at 4 to 40 pixels is that it moves against the hall and stands out in colour. So: earlier images are turned to
where the camera looks now (homography K R K^-1), spread by as much as the camera's own way between them can have shifted the hall, and a
candidate is what is brighter *in the shuttle's colour* than every one of them, by more than noise explains (`motion.py`). Of what is, the
parts that could be a shuttle by size and shape are given out (`candidates.py`). Two ways to look:
the whole image at half resolution when nothing is known, a window at full resolution where a track says the shuttle will be.
In a window the earlier image is chosen so that the shuttle has left its own place: head-on it may need 100 ms for its own width.

Images are (height, width, 3 or 4) uint8, blue green red first. Needs numpy, numba and OpenCV only.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from perception.camera import Camera, Pose
from perception.candidates import Candidates, alone, best, blobs
from perception.errors import UserError
from perception.motion import Frame, Motion, mapped
from perception.triangulation import SHUTTLE_SIZE

Array = np.ndarray

COLOURS = ("white", "orange")


@dataclass(frozen=True)
class DetectorCfg:
    """What counts as a candidate.

    colour: of the shuttle's skirt. White is seen in twice the darkest channel less the brightest: brightness, less saturation, so that
    skin and wood are dark; orange in red less blue, where white, grey and green are dark.
    threshold: [grey levels] above the earlier images; 5 sigma of a noisy sensor whose channels are added up, and a little for edges.
    ages: [s] of the earlier images for a whole image; at 12 m/s across a shuttle leaves its own place in 5 ms, at 2 m/s in 33.
    memory: [s] of images kept, for a shuttle that comes head-on.
    nearest: [m] to what stands still in front of the camera, but for the floor: the net from the robot's home. Nearer things leave edges.
    sizes: [m] smallest and largest extent that a shuttle's blob may have: half a tip circle, since threshold and shade eat at it, and
    twice a shuttle's length, for a streak.
    depth_range: [m] where a whole image is searched: nearer than 0.5 m it has been hit or missed, beyond 14 m is another court.
    most: candidates given out per image, the best first; trades time in clutter against the shuttle being left out.
    """

    colour: str = "white"
    threshold: float = 20.0
    ages: tuple[float, float] = (0.03, 0.06)
    memory: float = 0.14
    nearest: float = 3.0
    sizes: tuple[float, float] = (0.03, 0.18)
    depth_range: tuple[float, float] = (0.5, 14.0)
    most: int = 12

    def __post_init__(self) -> None:
        if self.colour not in COLOURS:
            raise UserError(f"a shuttle's colour is one of {', '.join(COLOURS)}; got {self.colour}")
        if not (self.threshold > 0 and 0 < self.ages[0] < self.ages[1] < self.memory):
            raise UserError(f"threshold must be positive and 0 < ages < memory; got {self.threshold}, {self.ages}, {self.memory}")


@dataclass(frozen=True)
class Window:
    """Where to look: centre [px], half width [px], depth [m] expected there, and how much that may be wrong as a factor."""

    u: float
    v: float
    half: float
    depth: float
    slack: float = 1.5


@dataclass
class Detector:
    """One eye. Give it every image with `look`; it remembers the last cfg.memory seconds."""

    camera: Camera
    cfg: DetectorCfg = DetectorCfg()
    repeats: int = 0  # images left out because they showed the image before to the last bit: a frozen camera
    _past: deque[Frame] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._motion = Motion(self.camera, self.cfg.colour == "orange", self.cfg.nearest)

    def look(self, time: float, image: Array, pose: Pose, windows: list[Window] | None = None) -> Candidates:
        """Candidates in an image taken at time [s] with this camera at pose.

        windows: where to look; None: in the whole image. Raises UserError for what is no image of this camera. An image that equals the
        one before to the last bit gives nothing, and one taken before it is left out.
        """
        check_image(image, self.camera)
        past = self._past
        if past and time <= past[-1].time:
            return Candidates.none()
        if past and np.array_equal(image[::16, :, :3], past[-1].image[::16]):  # noise sees to it that no two true images are equal in any row
            self.repeats += 1
            return Candidates.none()
        now = Frame(time, pose, np.array(image[..., :3]), pose.centre)
        while past and past[0].time < time - self.cfg.memory:
            past.popleft()
        found = self._whole(now) if windows is None else self._windows(now, windows)
        past.append(now)
        return found

    def note(self, time: float, u: float, v: float) -> None:
        """Tell where the track's shuttle was in the image of time [s]: windows then choose images in which it was elsewhere."""
        for frame in reversed(self._past):
            if frame.time == time:
                frame.seen = (u, v)
                return

    def _whole(self, now: Frame) -> Candidates:
        cfg = self.cfg
        before = [next((f for f in reversed(self._past) if now.time - f.time >= 0.9 * age), None) for age in cfg.ages]
        old = [f for n, f in enumerate(before) if f is not None and f not in before[:n]]
        if not old:
            return Candidates.none()
        contrast = self._motion.of_image(now, old)
        smallest, largest = (0.5 * s * self.camera.fx / d for s, d in zip(cfg.sizes, reversed(cfg.depth_range), strict=True))
        found = blobs(contrast, cfg.threshold, max(smallest, 1.0), largest)
        found = found[alone(contrast, found.pixels, found.sizes, cfg.threshold)]
        order = np.argsort(-found.scores * np.minimum(found.sizes, 4.0), kind="stable")[:2 * cfg.most]
        near = [self._near(now, old[0], 2 * found.pixels[n] + 0.5, 2 * float(found.sizes[n])) for n in order]
        return best([one for one in near if one is not None], cfg.most)

    def _near(self, now: Frame, old: Frame, centre: Array, diameter: float) -> Candidates | None:
        """The candidate at a place found at half resolution, measured at full resolution; None where there is none."""
        found = self._cut(now, old, centre, 1.5 * diameter + 6, 0.5 * diameter, 2.5 * diameter + 4)
        if not len(found):
            return None
        off = np.hypot(*(found.pixels - centre).T)
        nearest = int(np.argmin(off))
        return None if off[nearest] > 0.6 * diameter + 2 else found[np.array([nearest])]

    def _windows(self, now: Frame, windows: list[Window]) -> Candidates:
        found = []
        for w in windows:
            size = SHUTTLE_SIZE * self.camera.fx / max(w.depth, 0.1)
            found.append(self._cut(now, self._without(now, w, size), np.array([w.u, w.v]), w.half, 0.4 * size / w.slack, 3.0 * size * w.slack + 2))
        return best(found, self.cfg.most)

    def _without(self, now: Frame, window: Window, size: float) -> Frame | None:
        """The newest image in which the track's shuttle was clear of the place where it is now; None where there is none."""
        for frame in reversed(self._past):
            if frame.seen is None:
                continue
            u, v = mapped(self._motion.turns(frame, now)[0], frame.seen)
            if np.hypot(u - window.u, v - window.v) > 1.5 * size + 3:
                return frame
        return None

    def _cut(self, now: Frame, old: Frame | None, centre: Array, half: float, smallest: float, largest: float) -> Candidates:
        """Candidates in a square of the full image about centre [px]."""
        low = np.maximum(np.floor(centre - half), 0).astype(int)
        high = np.minimum(np.ceil(centre + half) + 1, (self.camera.width, self.camera.height)).astype(int)
        if (high - low < 5).any():
            return Candidates.none()
        contrast = self._motion.of_cut(now, old, low, high, largest)
        found = blobs(contrast, self.cfg.threshold, max(smallest, 1.5), largest)
        return Candidates(found.pixels + low, found.sizes, found.streaks, found.scores)


def check_image(image: Array, camera: Camera) -> None:
    """Raise UserError, saying what it is and what is wanted, for anything but an 8-bit colour image of this camera."""
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] not in (3, 4):
        what = f"{image.dtype} {'x'.join(map(str, image.shape))}" if isinstance(image, np.ndarray) else type(image).__name__
        raise UserError(f"an image must be uint8 of height x width x 3 (blue green red) or 4; got {what}")
    if image.shape[:2] != (camera.height, camera.width):
        raise UserError(f"the image is {image.shape[1]} x {image.shape[0]}, the rig's camera {camera.width} x {camera.height}: another mode or rig")
