"""Serves as the cameras of a playing robot see them: the policy plays, what moved is kept, and then rendered exposure by exposure.

The robot is told where to hit, as in `birdie play`, so that what perception makes of the images does not change the motion.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from perception.camera import Pose
from perception.flight import fly
from policy.inference import OnnxPolicy
from policy.play import PlayCfg, play
from policy.task import BadmintonTask, Step
from sim.robot import load_robot
from sim.shuttle import INCOMING
from sim.stereo import StereoCameras, lens_pose

Array = np.ndarray

BEFORE = 0.25  # [s] of hall without shuttle before each serve: time in which nothing may be tracked


@dataclass(frozen=True)
class Serve:
    """One serve as it was played. time (T,) [s], 0 at the hit by the opponent; qpos (T, nq); start (6,) place and velocity of the
    shuttle at 0; drag, drift; hit_time [s]: when it comes down through `height` [m], or the robot touched it if that was sooner."""

    time: Array
    qpos: Array
    start: Array
    drag: float
    drift: float
    height: float

    def shuttle(self, t: Array) -> Array:
        """(len(t), 6) place and velocity at times t [s] from 0 on."""
        out = np.empty((len(t), 6))
        for n, at in enumerate(t):
            steps = max(int(np.ceil(at / 0.004)), 1)
            out[n] = fly(self.start[None, :3], self.start[None, 3:], np.array([self.drag]), np.array([self.drift]), at / steps, steps + 1)[0, -1]
        return out

    def robot(self, t: float) -> Array:
        """(nq,) at time t [s]: linear, the base's rotation along the shorter way."""
        j = int(np.clip(np.searchsorted(self.time, t), 1, len(self.time) - 1))
        u = np.clip((t - self.time[j - 1]) / (self.time[j] - self.time[j - 1]), 0.0, 1.0)
        a, b = self.qpos[j - 1], self.qpos[j].copy()
        if a[3:7] @ b[3:7] < 0:
            b[3:7] *= -1
        q = (1 - u) * a + u * b
        q[3:7] /= np.linalg.norm(q[3:7])
        return q

    @property
    def meeting(self) -> tuple[float, Array]:
        """When [s] and where (3,) [m] the shuttle comes down through the height."""
        path = fly(self.start[None, :3], self.start[None, 3:], np.array([self.drag]), np.array([self.drift]), 0.002, 1500)[0]
        down = int(np.flatnonzero((path[:-1, 2] >= self.height) & (path[1:, 2] < self.height) & (path[:-1, 5] < 0))[0])
        share = (path[down, 2] - self.height) / (path[down, 2] - path[down + 1, 2])
        return 0.002 * (down + share), path[down, :3] + share * (path[down + 1, :3] - path[down, :3])


def record_serves(policy: OnnxPolicy, count: int, seed: int = 3) -> list[Serve]:
    """Let the policy play `count` measured shots, one robot, one after the other, and keep what moved."""
    robot = load_robot(policy.contract.robot)
    serves: list[Serve] = []
    rows: list[tuple[float, Array]] = []
    flight: dict[str, Any] = {}
    was = [False]
    period = 0.02

    class Enough(Exception):
        pass

    def finish() -> None:
        if flight and len(rows) > 20:
            t0 = flight["number"] * period
            serve = Serve(np.array([t for t, _ in rows]) - t0, np.array([q for _, q in rows]), flight["start"], flight["drag"], flight["drift"],
                          robot.scale.meet_height)
            if serve.time[0] <= -BEFORE:
                serves.append(serve)
            if len(serves) == count:
                raise Enough

    def watch(task: BadmintonTask, step: Step, number: int) -> None:
        nonlocal rows, period
        period = task.physics.period
        s = task.shuttles
        rows.append((number * period, task.physics.qpos[0].copy()))
        incoming = bool(s.phase[0] == INCOMING) and not step.done[0]
        if incoming and not was[0]:
            rows = rows[-int(BEFORE / period) - 2:]
            flight.update(number=number, start=np.concatenate([s.position[0], s.velocity[0]]), drag=float(s.drag[0]), drift=float(s.drift[0]))
        if was[0] and not incoming:
            finish()
            flight.clear()
        was[0] = incoming

    try:
        play(policy, PlayCfg(repeats=1 + (2 * count) // 37, robots=1, seed=seed), watch=watch)
    except Enough:
        pass
    return serves


@dataclass(frozen=True, eq=False)
class Frame:
    """One rendered exposure. time [s] from the opponent's hit; truth (3,) [m] where the shuttle is, None before the hit; shows (2,): visible share of it."""

    time: float
    left: Array
    right: Array
    pose: Pose
    truth: Array | None
    shows: Array


def render(serve: Serve, cameras: StereoCameras, fps: float, since: float) -> Iterator[Frame]:
    """The exposures of a serve in order. since [s]: what the hall's own clock said at the opponent's hit."""
    offsets = cameras.cfg.offsets
    end = min(serve.time[-1], serve.meeting[0])
    for t in np.arange(-BEFORE, end, 1 / fps):
        poses = [lens_pose(serve.robot(t + o), cameras.lens) for o in offsets]
        shuttle = serve.shuttle(t + offsets) if t + offsets[0] >= 0 else None
        left, right, shows = cameras.shoot(since + t, serve.robot(t), poses, shuttle)
        pose = lens_pose(serve.robot(t), cameras.lens)
        yield Frame(float(t), left, right, pose, None if shuttle is None else serve.shuttle(np.array([t]))[0, :3], shows)
