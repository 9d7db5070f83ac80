"""Rollout -> video or viewer window. Poses come from the recording; nothing is simulated again."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import imageio_ffmpeg
import mujoco
import numpy as np

from perception.errors import UserError
from sim.recording import Rollout
from sim.robot import Robot, build_spec
from sim.scene import TRAIL_SECONDS, add_court, draw_shuttle, draw_strike

Array = np.ndarray


@dataclass(frozen=True)
class VideoCfg:
    """width, height [px]; fps; slow: playback speed within slow_window [s] around a strike; seconds: longest video, 0: all."""

    width: int = 1280
    height: int = 720
    fps: int = 30
    slow: float = 0.25
    slow_window: float = 0.14
    seconds: float = 0.0


class Poser:
    """Puts a model at any time of a rollout: linear between samples, shortest way round for the base's rotation."""

    def __init__(self, rollout: Rollout, robot: Robot) -> None:
        missing = set(robot.joint_names) - set(rollout.joint_names)
        if missing:
            raise UserError(f"the recording lacks joints of robot {robot.name}: {', '.join(sorted(missing))}")
        self.rollout = rollout
        spec = build_spec([robot])
        add_court(spec)
        self.model = spec.compile()
        self.data = mujoco.MjData(self.model)
        self._qpos_index = np.array([self.model.joint(n).qposadr[0] for n in robot.joint_names])
        self._order = [rollout.joint_names.index(n) for n in robot.joint_names]

    def pose(self, t: float) -> None:
        """Set the model to time t [s]."""
        r = self.rollout
        i = int(np.clip(np.searchsorted(r.time, t) - 1, 0, len(r.time) - 2)) if len(r.time) > 1 else 0
        j = min(i + 1, len(r.time) - 1)
        span = r.time[j] - r.time[i]
        u = float(np.clip((t - r.time[i]) / span, 0, 1)) if span > 0 else 0.0
        d = self.data
        if np.linalg.norm(r.base[j, :3] - r.base[i, :3]) > 0.5:
            u = 0.0  # the robot was put back on its feet between these samples
        d.qpos[:3] = (1 - u) * r.base[i, :3] + u * r.base[j, :3]
        a, b = r.base[i, 3:], r.base[j, 3:]
        q = (1 - u) * a + u * (b if a @ b >= 0 else -b)
        d.qpos[3:7] = q / np.linalg.norm(q)
        d.qpos[self._qpos_index] = ((1 - u) * r.q[i] + u * r.q[j])[self._order]
        mujoco.mj_forward(self.model, d)

    def draw(self, scene: mujoco.MjvScene, t: float) -> None:
        """Add shuttle, trail and commanded strike at time t."""
        r = self.rollout
        seen = (r.time > t - TRAIL_SECONDS) & (r.time <= t)
        path = r.shuttle[seen]
        gaps = np.flatnonzero(np.isnan(path[:, 0]))
        path = path[gaps[-1] + 1:] if len(gaps) else path
        jumps = np.flatnonzero(np.linalg.norm(np.diff(path, axis=0), axis=1) > 1.5)  # a new shuttle elsewhere
        draw_shuttle(scene, path[jumps[-1] + 1:] if len(jumps) else path)
        now = np.flatnonzero(r.time <= t)
        if len(now) and np.isfinite(r.strike[now[-1], 0]):
            draw_strike(scene, r.strike[now[-1], :3], r.strike[now[-1], 3:])


def frame_times(rollout: Rollout, cfg: VideoCfg) -> Array:
    """Times [s] of the video's frames: evenly at cfg.fps, closer together around strikes."""
    strikes = np.array([t for t, e in rollout.events if e.get("event") == "strike"])
    times: list[float] = []
    t = float(rollout.time[0])
    while t <= rollout.time[-1] and (not cfg.seconds or len(times) < cfg.seconds * cfg.fps):
        times.append(t)
        near = len(strikes) > 0 and np.min(np.abs(strikes - t)) < cfg.slow_window
        t += (cfg.slow if near else 1.0) / cfg.fps
    return np.array(times)


def _caption(rollout: Rollout, t: float) -> str:
    shots = sum(1 for s, e in rollout.events if e.get("event") == "shot" and s <= t)
    touched = sum(1 for s, e in rollout.events if e.get("event") == "touch" and s <= t)
    returned = sum(1 for s, e in rollout.events if e.get("event") == "landing" and e.get("returned") and s <= t)
    return f"shot {shots}   touched {touched}   returned {returned}"


def frames(rollout: Rollout, robot: Robot, cfg: VideoCfg) -> Iterator[Array]:
    """The video frame by frame, (height, width, 3) uint8; memory does not grow with its length."""
    poser = Poser(rollout, robot)
    poser.model.vis.global_.offwidth, poser.model.vis.global_.offheight = cfg.width, cfg.height
    camera = mujoco.MjvCamera()
    camera.type = mujoco.mjtCamera.mjCAMERA_FREE
    camera.lookat[:] = [-2.6, 0.0, 1.25]
    camera.distance, camera.azimuth, camera.elevation = 6.2, 62.0, -11.0
    last = float(rollout.time[0])
    with mujoco.Renderer(poser.model, cfg.height, cfg.width, max_geom=2000) as renderer:
        for t in frame_times(rollout, cfg):
            poser.pose(t)
            renderer.update_scene(poser.data, camera)
            poser.draw(renderer.scene, t)
            image = renderer.render().copy()
            cv2.putText(image, _caption(rollout, t), (28, cfg.height - 28), cv2.FONT_HERSHEY_SIMPLEX, 0.8, (255, 255, 255), 2, cv2.LINE_AA)
            if t - last < 0.9 / cfg.fps and t > last:
                cv2.putText(image, f"{cfg.slow:g}x", (cfg.width - 120, cfg.height - 28), cv2.FONT_HERSHEY_SIMPLEX, 0.8,
                            (255, 220, 120), 2, cv2.LINE_AA)
            last = t
            yield image


def write_video(rollout: Rollout, robot: Robot, path: Path, cfg: VideoCfg = VideoCfg(), progress: Callable[[int], object] | None = None) -> int:
    """H.264 video of a rollout, streamed to the encoder; returns the number of frames. progress(frame) after each."""
    draft = path.with_suffix(".part.mp4")
    writer = imageio_ffmpeg.write_frames(str(draft), (cfg.width, cfg.height), fps=cfg.fps, codec="libx264", quality=7, macro_block_size=1,
                                         output_params=["-preset", "veryfast", "-movflags", "+faststart"])
    writer.send(None)
    count = 0
    try:
        for image in frames(rollout, robot, cfg):
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
            t = rollout.time[0] + ((time.monotonic() - start) * speed) % max(rollout.time[-1] - rollout.time[0], 1e-3)
            poser.pose(t)
            with window.lock():
                window.user_scn.ngeom = 0
                poser.draw(window.user_scn, t)
            window.sync()
            time.sleep(1 / 120)
