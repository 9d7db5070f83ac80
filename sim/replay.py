"""Rollout -> video or viewer window. Poses come from the recording; nothing is simulated again (`sim/resim.py` does that)."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import imageio_ffmpeg
import mujoco
import numpy as np

from perception.errors import UserError
from perception.flight import DRAG_MEAN, DRIFT_MEAN, fly
from sim.court import HOME_X
from sim.robot import Robot, build_spec
from sim.rollout_reader import Rollout, Series
from sim.scene import FORECAST_COLOUR, TRAIL_SECONDS, add_court, draw_ellipsoid, draw_path, draw_shuttle, draw_strike

Array = np.ndarray
AHEAD = 0.8  # [s] of the tracked flight that are drawn


@dataclass(frozen=True)
class VideoCfg:
    """width, height [px]; fps; slow: playback speed within slow_window [s] around a strike; speed: of the rest; seconds: longest video, 0: all."""

    width: int = 1920
    height: int = 1080
    fps: int = 30
    slow: float = 0.25
    slow_window: float = 0.14
    speed: float = 1.0
    seconds: float = 0.0


class Poser:
    """Puts a model at any time of a rollout: linear between samples, shortest way round for the base's rotation.

    notes: joints that the recording lacks, which stay in the default pose, and joints that the robot does not have. Raises UserError where not one
    joint is common.
    """

    def __init__(self, rollout: Rollout, robot: Robot) -> None:
        missing = sorted(set(robot.joint_names) - set(rollout.joint_names))
        unknown = sorted(set(rollout.joint_names) - set(robot.joint_names))
        if len(missing) == len(robot.joint_names):
            raise UserError(f"the recording has no joint of robot {robot.name}: it has {', '.join(rollout.joint_names[:6])}; give --robot")
        self.notes = [*([f"not in the recording, shown in the default pose: {', '.join(missing)}"] if missing else []),
                      *([f"not joints of {robot.name}, left out: {', '.join(unknown)}"] if unknown else [])]
        self.rollout, self.robot = rollout, robot
        spec = build_spec([robot])
        add_court(spec)
        self.model = spec.compile()
        self.data = mujoco.MjData(self.model)
        common = [n for n in robot.joint_names if n in rollout.joint_names]
        for name, angle in zip(robot.joint_names, robot.default_pose, strict=True):
            self.data.qpos[self.model.joint(name).qposadr[0]] = angle
        self._qpos_index = np.array([self.model.joint(n).qposadr[0] for n in common])
        self._order = [rollout.joint_names.index(n) for n in common]
        self._jumps = _jumps(rollout.shuttle)
        self._track: Series | None = rollout.series.get("/shuttle/track")

    def pose(self, t: float) -> None:
        """Set the model to time t [s]."""
        r = self.rollout
        i = int(np.clip(np.searchsorted(r.time, t) - 1, 0, len(r.time) - 2)) if len(r.time) > 1 else 0
        j = min(i + 1, len(r.time) - 1)
        span = r.time[j] - r.time[i]
        u = float(np.clip((t - r.time[i]) / span, 0, 1)) if span > 0 else 0.0
        d = self.data
        if not np.isfinite(r.base[i]).all():
            d.qpos[:7] = [HOME_X, 0, self.robot.standing_height, 1, 0, 0, 0]
        else:
            if np.linalg.norm(r.base[j, :3] - r.base[i, :3]) > 0.5:
                u = 0.0  # the robot was put back on its feet between these samples
            d.qpos[:3] = (1 - u) * r.base[i, :3] + u * r.base[j, :3]
            a, b = r.base[i, 3:], r.base[j, 3:]
            q = (1 - u) * a + u * (b if a @ b >= 0 else -b)
            d.qpos[3:7] = q / np.linalg.norm(q)
        d.qpos[self._qpos_index] = ((1 - u) * r.q[i] + u * r.q[j])[self._order]
        mujoco.mj_forward(self.model, d)

    def trail(self, t: float) -> Array:
        """(K, 3) where the shuttle in the air has been lately, newest last [m]."""
        r = self.rollout
        first, last = np.searchsorted(r.time, [t - TRAIL_SECONDS, t + 1e-9])
        starts = self._jumps[(self._jumps > first) & (self._jumps < last)]
        path = r.shuttle[(starts[-1] if len(starts) else first):last]
        return path[np.isfinite(path[:, 0])]

    def forecast(self, t: float) -> tuple[Array, Array]:
        """Path (K, 3) [m] and radius (K,) [m] of the flight as the tracker knows it at t, empty where it knows none."""
        none = np.zeros((0, 3)), np.zeros(0)
        if self._track is None:
            return none
        row = self._track.at(np.array([t]))[0]
        if not np.isfinite(row[0]):
            return none
        path = fly(row[None, :3], row[None, 7:10], np.array([DRAG_MEAN]), np.array([DRIFT_MEAN]), 0.04, round(AHEAD / 0.04) + 1)[0]
        path = path[path[:, 2] > 0]
        sigma = np.sqrt(max(float(np.trace(row[13:22].reshape(3, 3))) / 3, 0.0))
        i = int(np.clip(np.searchsorted(self.rollout.time, t), 0, len(self.rollout.time) - 1))
        end = self.rollout.interception[i, 3:].reshape(3, 3)
        last = np.sqrt(max(float(np.trace(end)) / 3, 0.0)) if np.isfinite(end).all() else sigma
        return path[:, :3], np.linspace(sigma, last, len(path))

    def draw(self, scene: mujoco.MjvScene, t: float) -> None:
        """Add shuttle and trail, the tracked flight with its uncertainty, and the commanded strike at time t."""
        r = self.rollout
        draw_shuttle(scene, self.trail(t))
        draw_path(scene, *self.forecast(t), FORECAST_COLOUR)
        now = int(np.searchsorted(r.time, t + 1e-9)) - 1
        if now < 0:
            return
        if np.isfinite(r.interception[now]).all():
            draw_ellipsoid(scene, r.interception[now, :3], r.interception[now, 3:].reshape(3, 3), FORECAST_COLOUR)
        if np.isfinite(r.strike[now, 0]):
            draw_strike(scene, r.strike[now, :3], r.strike[now, 3:])


def _jumps(shuttle: Array) -> Array:
    """Indices of samples at which another shuttle begins: after a gap, or far from the one before."""
    step = np.linalg.norm(np.diff(shuttle, axis=0), axis=1)
    return np.flatnonzero(~(step <= 1.5)) + 1  # also true for nan


def frame_times(rollout: Rollout, cfg: VideoCfg) -> Array:
    """Times [s] of the video's frames: evenly at cfg.fps, closer together around strikes."""
    strikes = rollout.of("strike")
    times: list[float] = []
    t = float(rollout.time[0])
    while t <= rollout.time[-1] and (not cfg.seconds or len(times) < cfg.seconds * cfg.fps):
        times.append(t)
        near = len(strikes) > 0 and np.min(np.abs(strikes - t)) < cfg.slow_window
        t += (cfg.slow if near else cfg.speed) / cfg.fps
    return np.array(times)


def _caption(rollout: Rollout, t: float) -> str:
    shots = sum(1 for s, e in rollout.events if e.get("event") == "shot" and s <= t)
    touched = sum(1 for s, e in rollout.events if e.get("event") == "touch" and s <= t)
    returned = sum(1 for s, e in rollout.events if e.get("event") == "landing" and e.get("returned") and s <= t)
    return f"shot {shots}   touched {touched}   returned {returned}" if shots else f"{t - rollout.time[0]:.1f} s"


class Film:
    """Pictures of one rollout, (height, width, 3) uint8."""

    def __init__(self, rollout: Rollout, robot: Robot, width: int, height: int, title: str = "") -> None:
        self.rollout, self.height, self.title = rollout, height, title
        self.poser = Poser(rollout, robot)
        self.poser.model.vis.global_.offwidth, self.poser.model.vis.global_.offheight = width, height
        self.poser.model.vis.quality.offsamples = 0  # smooth edges cost as much as all the rest where a processor draws
        self.camera = mujoco.MjvCamera()
        self.camera.type = mujoco.mjtCamera.mjCAMERA_FREE
        self.camera.lookat[:] = [-2.6, 0.0, 1.25]
        self.camera.distance, self.camera.azimuth, self.camera.elevation = 6.2, 62.0, -11.0
        self.renderer = mujoco.Renderer(self.poser.model, height, width, max_geom=2000)
        self.renderer.scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = 0

    def at(self, t: float) -> Array:
        """The picture at time t [s]."""
        self.poser.pose(t)
        self.renderer.update_scene(self.poser.data, self.camera)
        self.poser.draw(self.renderer.scene, t)
        image = self.renderer.render().copy()
        scale = self.height / 900
        self.write(image, _caption(self.rollout, t), (round(28 * scale) + 8, self.height - round(28 * scale)))
        if self.title:
            self.write(image, self.title, (round(28 * scale) + 8, round(48 * scale)))
        return image

    def write(self, image: Array, text: str, place: tuple[int, int], colour: tuple[int, int, int] = (255, 255, 255)) -> None:
        scale = self.height / 900
        for width, ink in ((5, (0, 0, 0)), (2, colour)):
            cv2.putText(image, text, place, cv2.FONT_HERSHEY_SIMPLEX, scale, ink, max(1, round(width * scale)), cv2.LINE_AA)


def frames(rollouts: list[Rollout], robots: list[Robot], cfg: VideoCfg, titles: list[str] | None = None) -> Iterator[Array]:
    """The video frame by frame, (height, width, 3) uint8; several rollouts side by side, each from its own start. Memory does not grow."""
    width = cfg.width // len(rollouts) // 2 * 2
    films = [Film(r, robot, width, cfg.height, title) for r, robot, title in
             zip(rollouts, robots, titles or [""] * len(rollouts), strict=True)]
    first = rollouts[0]
    last = float(first.time[0])
    try:
        for t in frame_times(first, cfg):
            since = t - first.time[0]
            images = [f.at(min(f.rollout.time[0] + since, f.rollout.time[-1])) for f in films]
            image = images[0] if len(images) == 1 else np.hstack(images)
            if cfg.speed > cfg.slow and last < t < last + 0.9 * cfg.speed / cfg.fps:
                films[0].write(image, f"{cfg.slow:g}x", (image.shape[1] - round(0.14 * cfg.height), cfg.height - round(cfg.height / 32)), (255, 220, 120))
            last = t
            yield image
    finally:
        for film in films:
            film.renderer.close()


def write_video(rollouts: list[Rollout], robots: list[Robot], path: Path, cfg: VideoCfg = VideoCfg(), titles: list[str] | None = None,
                progress: Callable[[int], object] | None = None) -> int:
    """H.264 video of one or more rollouts, streamed to the encoder; returns the number of frames. progress(frame) after each."""
    draft = path.with_suffix(".part.mp4")
    width = cfg.width // len(rollouts) // 2 * 2 * len(rollouts)
    writer = imageio_ffmpeg.write_frames(str(draft), (width, cfg.height), fps=cfg.fps, codec="libx264", quality=7, macro_block_size=1,
                                         output_params=["-preset", "veryfast", "-movflags", "+faststart"])
    writer.send(None)
    count = 0
    try:
        for image in frames(rollouts, robots, cfg, titles):
            writer.send(np.ascontiguousarray(image))
            count += 1
            if progress is not None:
                progress(count)
    finally:
        writer.close()
    draft.replace(path)
    return count


def show_window(rollout: Rollout, robot: Robot, speed: float = 1.0) -> None:
    """Loop the rollout in MuJoCo's viewer until it is closed."""
    from mujoco import viewer

    poser = Poser(rollout, robot)
    with viewer.launch_passive(poser.model, poser.data, show_left_ui=False, show_right_ui=False) as window:
        start = time.monotonic()
        while window.is_running():
            t = rollout.time[0] + ((time.monotonic() - start) * speed) % max(rollout.seconds, 1e-3)
            poser.pose(t)
            with window.lock():
                window.user_scn.ngeom = 0
                poser.draw(window.user_scn, t)
            window.sync()
            time.sleep(1 / 120)
