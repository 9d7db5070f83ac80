"""The simulated robot as hardware: drives that fall back to damping, sensors, a camera, a court. No ROS in here; time is in physics steps."""

import json
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perception.camera import StereoRig
from perception.noise import NoiseCfg, draw_bias, draw_latency, sample, step_bias
from policy.play import REST, PlayCfg, serves
from policy.rewards import HIT_RADIUS
from policy.swings import Swings
from policy.task import FALL_TILT
from sim.batch import BatchPhysics
from sim.court import is_in
from sim.kinematics import rotation
from sim.randomize import KD, KP
from sim.robot import Robot
from sim.shuttle import DOWN, IDLE, INCOMING, RacketSweep, Shuttles
from sim.stereo import lens_in_base, lens_pose

Array = np.ndarray
STEP_NS = 5_000_000  # [ns] a physics step of the models
FORGET = 6.0  # [s] after its hit at which a shuttle that never came down is given up
RACKETS = 600  # places of the racket that are remembered: 3 s


@dataclass(frozen=True)
class SimCfg:
    """seed: of shots, places and noise; repeats: times each human shot is in the list, drawn as `birdie play` draws them; fps of the cameras;
    noise: what the camera reports of a shuttle."""

    seed: int = 11
    repeats: int = 10
    fps: float = 60.0
    noise: NoiseCfg = field(default_factory=NoiseCfg.load)


@dataclass(frozen=True, eq=False)
class Exposure:
    """What the camera took at step: points (M, 3) [m] in the left optical frame, or a pair of images; known at step `due`."""

    step: int
    due: int
    points: Array
    images: tuple[Array, Array] | None = None


class SimRobot:
    """One robot on the court. `advance` moves it by one physics step; everything is read from its attributes and methods."""

    def __init__(self, robot: Robot, rig: StereoRig, cfg: SimCfg = SimCfg(), cameras: Any = None) -> None:
        self.robot, self.rig, self.cfg, self.cameras = robot, rig, cfg, cameras
        self.rng = np.random.default_rng(cfg.seed)
        self.physics = BatchPhysics(robot, 1, 1)
        self.shuttle = Shuttles(1)
        gain = self.physics.batch.expand("actuator_gainprm")
        self._kp, self._kd = gain[0, :, KP], gain[0, :, KD]
        self.swings, self.outcome, order, _ = serves(robot, PlayCfg(repeats=cfg.repeats, seed=cfg.seed))
        self.queue = deque(order.tolist())
        self.axes, self.lens = lens_in_base(robot)
        self.step_number = 0
        self.target = robot.default_pose.copy()
        self.exposures: deque[Exposure] = deque()
        self._next_exposure = 0.0
        self._bias = draw_bias(cfg.noise, 1, self.rng)
        self._bias_at = 0
        self._serve: Swings | None = None
        self.serve_number = 0
        self._launch_at = self._launched = -1
        self._rackets: deque[tuple[int, Array]] = deque(maxlen=RACKETS)
        self.strike: tuple[float, Array] | None = None  # [steps], place (3,) [m] world: what the robot says it is at
        self._fell = False
        self.falls = 0
        self.reset()

    def reset(self) -> None:
        """On its feet at home, at rest; the shuttle gone."""
        self.physics.reset(np.array([0]), np.array([[0.0, 0.0, self.robot.standing_height + 0.01]]), np.zeros(1), self.robot.default_pose[None])
        self.shuttle.clear(np.array([0]))
        self.target = self.robot.default_pose.copy()
        self._serve, self._launched = None, -1
        self._before = self._sweep()

    def warm_up(self) -> None:
        """Run everything once, for what compiles at first use; for a robot that is thrown away."""
        self._serve = self.swings.take(np.array([self.queue[0]]))
        self._launch_at = self.step_number + 1
        for _ in range(12):
            self.advance()
        self.shuttle.phase[0] = DOWN
        self.strike = (self.step_number, np.zeros(3))
        self.advance()

    def _sweep(self) -> RacketSweep:
        r = self.physics.racket()
        return RacketSweep(r.position + self.physics.home, r.velocity, r.normal, r.long_axis)

    # -- drives ---------------------------------------------------------------------------------------------------------
    def drive(self, target: Array, kp: Array, kd: Array) -> None:
        """Hold joint targets (J,) [rad] with gains (J,) until told otherwise, policy order."""
        self.target = target
        self._kp[:], self._kd[:] = kp, kd

    def damp(self, factor: float) -> None:
        """No stiffness, and factor times the drives' damping: what drives do by themselves when commands stop."""
        self._kp[:] = 0.0
        self._kd[:] = factor * self.robot.per_joint("kd")

    # -- time -----------------------------------------------------------------------------------------------------------
    def advance(self) -> dict[str, Any] | None:
        """One physics step. What became of the serve, when it is over, else None."""
        p, s = self.physics, self.shuttle
        blown = p.step(self.target[None], 1)
        self.step_number += 1
        if blown.any():
            self.reset()
            self._fell = True
        if self._serve is not None and self.step_number == self._launch_at:
            w = self._serve
            s.launch(np.array([0]), w.shuttle_position, w.shuttle_velocity, w.drag, w.drift, w.tag, self.rng)
            self._launched, self._bias = self.step_number, draw_bias(self.cfg.noise, 1, self.rng)
        after = self._sweep()
        s.step(self._before, after, STEP_NS * 1e-9)
        self._before = after
        self._rackets.append((self.step_number, after.position[0].copy()))
        up = 1 - 2 * float(p.qpos[0, 4] ** 2 + p.qpos[0, 5] ** 2)
        if self._serve is not None and (up < FALL_TILT or p.qpos[0, 2] < self.robot.scale.fall_height):
            self._fell = True
        if self.step_number >= self._next_exposure:
            self._next_exposure = max(self._next_exposure + 1e9 / STEP_NS / self.cfg.fps, self.step_number)
            self._expose()
        return self._judge()

    # -- what the robot reports -----------------------------------------------------------------------------------------
    @property
    def base(self) -> tuple[Array, Array, Array, Array]:
        """Place (3,) [m], quaternion (w, x, y, z), velocity and angular velocity (3,) in base axes, odom frame, which is the court's."""
        p = self.physics
        q = p.qpos[0, 3:7]
        return p.qpos[0, :3].copy(), q.copy(), rotation(q).T @ p.qvel[0, :3], p.qvel[0, 3:6].copy()

    @property
    def joints(self) -> tuple[Array, Array, Array]:
        """Angles [rad] as encoders give them, speeds [rad/s], joint torques [N m], policy order."""
        p = self.physics
        return p.encoder[0].copy(), p.qd[0].copy(), p.torque[0] @ self.robot.drive_from_joint

    # -- serves ---------------------------------------------------------------------------------------------------------
    def serve(self, number: int = -1) -> tuple[bool, str]:
        """Throw the next shuttle of the list, after the rest that `birdie play` leaves between shots."""
        if self._serve is not None:
            return False, "a shuttle is on its way"
        if not self.queue:
            return False, "the list of shots is at its end"
        tag = self.queue.popleft()
        self._serve = self.swings.take(np.array([tag]))
        self.serve_number += 1
        self._fell, self.strike = False, None
        self._launch_at, self._launched = self.step_number + REST * 4, -1
        return True, json.dumps({"serve": self.serve_number, "shot": str(self.outcome.label[tag])})

    def _judge(self) -> dict[str, Any] | None:
        s = self.shuttle
        if self._serve is None or self._launched < 0:
            return None
        late = (self.step_number - self._launched) * STEP_NS * 1e-9 > FORGET
        if s.phase[0] != DOWN and not late:
            return None
        error = self._strike_error()
        x, y = s.landing[0]
        out = {"serve": self.serve_number, "shot": str(self.outcome.label[int(self._serve.tag[0])]), "touched": bool(s.touched[0]) and not self._fell,
               "returned": bool(s.touched[0] and s.crossed[0] and is_in(x, y)) and not self._fell, "fell": self._fell, "commanded": self.strike is not None,
               "position_error_m": error, "hit": error is not None and error < HIT_RADIUS and not self._fell}
        if self.strike is not None:
            told = self.strike[0] - self._launched
            out["place_error_m"] = float(np.linalg.norm(self.strike[1] - self._serve.position[0] - self.physics.home))
            out["time_error_s"] = float(abs(told - self._serve.time[0] * 4) * STEP_NS * 1e-9)
        self.falls += self._fell
        self._serve, self._launched = None, -1
        s.clear(np.array([0]))
        return out

    def _strike_error(self) -> float | None:
        """[m] from the racket to the last commanded place at the commanded time; None where none was commanded or remembered."""
        if self.strike is None:
            return None
        steps = np.array([n for n, _ in self._rackets])
        places = np.array([p for _, p in self._rackets])
        if not steps[0] <= self.strike[0] <= steps[-1]:
            return None
        there = np.array([np.interp(self.strike[0], steps, places[:, a]) for a in range(3)])
        return float(np.linalg.norm(there - self.strike[1]))

    # -- camera ---------------------------------------------------------------------------------------------------------
    def _expose(self) -> None:
        s, cfg = self.shuttle, self.cfg
        dt = (self.step_number - self._bias_at) * STEP_NS * 1e-9
        self._bias, self._bias_at = step_bias(cfg.noise, self._bias, dt, self.rng), self.step_number
        due = self.step_number + max(round(float(draw_latency(cfg.noise, 1, self.rng)[0]) * 1e9 / STEP_NS), 1)
        if self.exposures:
            due = max(due, self.exposures[-1].due)
        flying = s.phase[0] not in (IDLE, DOWN)
        if self.cameras is not None:
            self.exposures.append(Exposure(self.step_number, due, np.zeros((0, 3)), self._shoot(flying)))
            return
        points = np.zeros((0, 3))
        if flying:
            points = self._detect()
        self.exposures.append(Exposure(self.step_number, due, points))

    def _detect(self) -> Array:
        """(0 or 1, 3) where the noise model says the camera sees the shuttle [m], left optical frame."""
        p, s, rig = self.physics, self.shuttle, self.rig
        q = p.qpos[0]
        pose = lens_pose(q, (self.axes, self.lens))
        velocity = p.qvel[0, :3] + rotation(q[3:7]) @ np.cross(p.qvel[0, 3:6], self.lens)
        point = pose.apply(s.position[:1])
        relative = (s.velocity[:1] - velocity) @ pose.rotation.T
        z, seen = sample(self.cfg.noise, rig, point, relative, np.linalg.norm(p.qvel[:1, 3:6], axis=1), self._bias, self.rng)
        if not seen[0] or not z[0, 2] > 0.1:
            return np.zeros((0, 3))
        c = rig.left
        depth = c.fx * rig.baseline / z[0, 2]
        return np.array([[(z[0, 0] - c.cx) / c.fx * depth, (z[0, 1] - c.cy) / c.fy * depth, depth]])

    def _shoot(self, flying: bool) -> tuple[Array, Array]:
        """Both images; within the exposure everything moves on as it moves now."""
        p, s = self.physics, self.shuttle
        q, v = p.qpos[0], p.qvel[0]
        offsets = self.cameras.cfg.offsets
        poses = []
        for o in offsets:
            moved = q[:7].copy()
            moved[:3] += v[:3] * o
            moved[3:7] += 0.5 * o * _product(q[3:7], np.concatenate([[0.0], v[3:6]]))
            moved[3:7] /= np.linalg.norm(moved[3:7])
            poses.append(lens_pose(moved, self.cameras.lens))
        shuttle = None
        if flying:
            shuttle = np.concatenate([s.position[0] + offsets[:, None] * s.velocity[0], np.tile(s.velocity[0], (len(offsets), 1))], axis=1)
        left, right, _ = self.cameras.shoot(self.step_number * STEP_NS * 1e-9, q, poses, shuttle)
        return left, right

    def take_exposures(self) -> list[Exposure]:
        """Those that are known by now."""
        out = []
        while self.exposures and self.exposures[0].due <= self.step_number:
            out.append(self.exposures.popleft())
        return out

    @property
    def in_flight(self) -> bool:
        """Whether a shuttle comes at the robot."""
        return bool(self.shuttle.phase[0] == INCOMING)


def _product(a: Array, b: Array) -> Array:
    """Quaternion product, (w, x, y, z)."""
    return np.array([a[0] * b[0] - a[1:] @ b[1:], *(a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:]))])
