"""`birdie play --vision`: from pixels to swing. One robot, in lock-step: what it is told to hit comes from its own rendered cameras alone.

Every exposure is rendered from where the camera really is, watched by `perception/pipeline.py`, and known to the robot `latency` later;
from the track come place and time where the shuttle can be met, from those the strike, and from the strike the command of the policy,
new at every control step. Neither the shuttle's true flight nor where it will be met reaches the policy; the robot's own pose does.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perception.camera import StereoRig, zedx
from perception.errors import UserError
from perception.interception import FlightNoise
from perception.pipeline import Pipeline, PipelineCfg, one_core
from perception.tracker import Track
from policy.commander import Flight, strike_for_flight
from policy.inference import OnnxPolicy
from policy.play import REST, Outcome, Watcher
from policy.swings import Swings, swings_for_shots
from policy.task import BadmintonTask, TaskCfg
from policy.watched_serves import Serve
from sim.court import HOME_X, is_in
from sim.robot import load_robot
from sim.serves import human_shots
from sim.shuttle import DOWN, INCOMING
from sim.stereo import SensorCfg, StereoCameras, lens_pose

Array = np.ndarray


@dataclass(frozen=True)
class VisionCfg:
    """shots: how many, in reach, of those that people hit, moved as `birdie play` moves them; fps of the cameras; latency [s] from mid exposure to
    the robot acting on it: 25 ms, exposure, transport and detection together; sure [m]: a command is given once the meeting place is known to
    this (largest sigma), our choice: a third of the robot's box, later frames improve it; look_before [s] the hit: images without shuttle."""

    shots: int = 10
    fps: float = 60.0
    latency: float = 0.025
    sure: float = 0.3
    look_before: float = 0.15
    seed: int = 11
    sensor: SensorCfg = field(default_factory=SensorCfg)


def strike_command(track: Track, now: float, delay: int, period: float, height: float, noise: FlightNoise, sure: float) -> tuple[Swings, Array] | None:
    """The swing (of one robot) for a track, as known at time `now` [s], and the sigmas (3,) [m] of its place; None while it is not sure enough.

    delay: control steps until the command becomes known. The strike lies on a control step, so the shuttle is met where it is then.
    """
    told = strike_for_flight(Flight(track.time, track.state, track.covariance), now, delay, period, height, noise, sure)
    if told is None:
        return None
    steps, strike, sigmas = told
    swing = Swings.idle(1)
    swing.wait[:], swing.time[:], swing.launch[:] = delay, steps, 0
    swing.position[:] = strike.position - [HOME_X, 0.0, 0.0]
    swing.normal[:], swing.velocity[:] = strike.normal, strike.velocity
    return swing, sigmas


def play_with_vision(policy: OnnxPolicy, cfg: VisionCfg = VisionCfg(), watch: Watcher | None = None,
                     progress: Callable[[int, int], object] | None = None, robot_name: str = "") -> dict[str, Any]:
    """Play cfg.shots shots from pixels; returns the score card. watch as in `policy.play.play`; progress(done, all) after each shot.

    OpenGL must have been chosen by `sim/display.py`. Raises UserError for settings that make no sense.
    """
    if cfg.shots < 1 or not 10 <= cfg.fps <= 240 or not 0 <= cfg.latency <= 0.2 or cfg.sure <= 0:
        raise UserError(f"shots must be at least 1, fps 10 to 240, latency 0 to 0.2 s, sure positive; got {cfg}")
    robot = load_robot(robot_name or policy.contract.robot)
    rng = np.random.default_rng(cfg.seed)
    pool = human_shots().take(rng.permutation(np.tile(np.arange(37), 1 + cfg.shots // 10)))
    place = rng.uniform(-1, 1, (len(pool), 2)) * (robot.scale.box_x, robot.scale.box_y)
    swings, served = swings_for_shots(pool, robot.scale.meet_height, REST, place)
    reach = Outcome(robot.scale, pool.label[served], swings.position[:, :2], swings.launch * 0.02).in_reach()
    swings = swings.take(np.flatnonzero(reach)[:cfg.shots])
    task = BadmintonTask(robot, 1, lambda ids: Swings.idle(len(ids)), seed=cfg.seed, cfg=TaskCfg(swings=10**9))
    policy.contract.check_same(task.contract)
    one_core()
    with StereoCameras(robot, zedx("SVGA"), np.random.default_rng(1), cfg.sensor) as cameras:
        court = _Court(policy, task, cameras, cfg, watch)
        results = []
        for number in range(len(swings.time)):
            results.append(court.shot(swings.take(np.array([number]))))
            if progress is not None:
                progress(number + 1, len(swings.time))

    def share(key: str) -> float:
        return float(np.mean([r[key] for r in results]))

    def median(key: str) -> float | None:
        known = [r[key] for r in results if r[key] is not None]
        return float(np.median(known)) if known else None

    return {"shots": len(results), "touched_rate": share("touched"), "returned_rate": share("returned"), "commanded_rate": share("commanded"), "falls": court.falls,
            "first_command_median_s": median("first_command_s"), "place_error_median_m": median("place_error_m"),
            "time_error_median_s": median("time_error_s"), "frames": court.frames, "notes": sorted(court.notes), "each": results, "fps": cfg.fps, "latency_s": cfg.latency, "seed": cfg.seed,
            "training": {k: policy.training.get(k) for k in ("steps", "minutes", "commit")}}


class _Court:
    """One robot, its cameras, and what is remembered from step to step."""

    def __init__(self, policy: OnnxPolicy, task: BadmintonTask, cameras: StereoCameras, cfg: VisionCfg, watch: Watcher | None) -> None:
        self.policy, self.task, self.cameras, self.cfg, self.watch = policy, task, cameras, cfg, watch
        self.rig: StereoRig = cameras.rig
        self.observation = task.reset()
        self.number = self.falls = self.frames = 0
        self.notes: set[str] = set()
        self.past: list[tuple[float, Array]] = [(0.0, task.physics.qpos[0].copy())]

    @property
    def now(self) -> float:
        return self.number * self.task.physics.period

    def step(self) -> bool:
        """One control step; whether the robot fell."""
        step = self.task.step(self.policy(self.observation[:, :self.task.actor_size]))
        self.observation = step.observation
        if self.watch is not None:
            self.watch(self.task, step, self.number)
        self.number += 1
        self.past = [*self.past[-15:], (self.now, self.task.physics.qpos[0].copy())]
        self.falls += int(step.done[0])
        return bool(step.done[0])

    def shot(self, swing: Swings) -> dict[str, Any]:
        """One shot, from a look at the empty hall to the shuttle on the floor."""
        task, cfg, s = self.task, self.cfg, self.task.shuttles
        period, height = task.physics.period, task.robot.scale.meet_height
        one = np.array([0])
        pipeline_cfg = PipelineCfg()
        noise = FlightNoise(pipeline_cfg.tracker.acceleration_noise, pipeline_cfg.tracker.drift_noise)
        pipeline = Pipeline(self.rig, pipeline_cfg)
        for _ in range(REST):  # back home, and what was hit before comes down
            self.step()
        hit_at = self.now + round(cfg.look_before / period) * period
        exposure = self.now
        start = np.concatenate([swing.shuttle_position[0], swing.shuttle_velocity[0]])
        first: float | None = None
        last: Swings | None = None
        strike_at = 0.0
        fell = False
        while not fell:
            if abs(self.now - hit_at) < 0.5 * period:
                s.launch(one, start[None, :3], start[None, 3:], swing.drag, swing.drift, np.array([self.number]), task.rng)
            if self.now > hit_at and s.phase[0] != INCOMING:
                break
            fell = self.step()
            flight = Serve(np.array([t for t, _ in self.past]) - hit_at, np.array([q for _, q in self.past]), start, float(swing.drag[0]), float(swing.drift[0]), height)
            track = None
            while exposure <= self.now - cfg.latency:
                track = self._expose(pipeline, flight, exposure, hit_at)
                exposure += 1 / cfg.fps
            if track is None:
                continue
            active = last is not None and task.wait[0] == 0
            if last is not None and active and strike_at - self.now < 0.5 * period:
                continue  # the swing is over
            told = strike_command(track, self.now, 0 if active else 1, period, height, noise, cfg.sure)
            if told is None:
                continue
            command = told[0]
            if last is None:
                task.give(one, command)
                first = self.now - hit_at
            else:
                for name in ("position", "normal", "velocity"):
                    getattr(task.current, name)[one] = getattr(command, name)
                task.countdown[one] = command.time
            strike_at = self.now + float(command.time[0] + command.wait[0]) * period
            last = command
        while not fell and s.phase[0] != DOWN and self.now < hit_at + 6.0:
            fell = self.step()
        self.notes |= set(pipeline.notes())
        return self._result(flight, swing, first, last, strike_at - hit_at, fell)

    def _expose(self, pipeline: Pipeline, flight: Serve, exposure: float, hit_at: float) -> Track | None:
        t = exposure - hit_at
        offsets = self.cameras.cfg.offsets
        in_air = t + offsets[0] >= 0 and self.task.shuttles.phase[0] == INCOMING
        poses = [lens_pose(flight.robot(t + o), self.cameras.lens) for o in offsets]
        left, right, _ = self.cameras.shoot(exposure, flight.robot(t), poses, flight.shuttle(t + offsets) if in_air else None)
        self.frames += 1
        return pipeline.look(exposure, left, right, lens_pose(flight.robot(t), self.cameras.lens)).track

    def _result(self, flight: Serve, swing: Swings, first: float | None, last: Swings | None, strike: float, fell: bool) -> dict[str, Any]:
        s = self.task.shuttles
        crossed, touched = bool(s.crossed[0]), bool(s.touched[0])
        landing = s.landing[0]
        out: dict[str, Any] = {"touched": touched and not fell, "returned": bool(touched and crossed and is_in(landing[0], landing[1])) and not fell,
                               "commanded": last is not None, "first_command_s": first, "place_error_m": None, "time_error_s": None, "fell": fell}
        if last is not None:
            where = flight.shuttle(np.array([strike]))[0, :3] - [HOME_X, 0.0, 0.0]
            out["place_error_m"] = float(np.linalg.norm(last.position[0] - where))
            out["time_error_s"] = abs(strike - float(swing.time[0]) * self.task.physics.period)
        return out
