"""What N robots see of their shuttles: the camera on the moving base, the noise model, the batched tracker, the interception.

The same chain as on the robot, with the noise model in place of images: what a camera would report of the true shuttle
(`perception/noise.py`), a filter per robot (`perception/tracker_batch.py`), and where the flight comes down through the height
at which it is to be met (`perception/crossing_batch.py`). A robot that lost sight keeps its last interception.

The camera takes an image every control step, so that one clock does: 50 a second where a ZED X gives 60. Of a flight that is known
the strike's direction and speed are those planned for the true one; only place and time are what the robot believes.
"""

from dataclasses import dataclass, field

import numpy as np

from perception.camera import zedx
from perception.crossing_batch import come_down
from perception.noise import ZEDX, NoiseCfg, draw_bias, sample, step_bias
from perception.tracker_batch import TrackerBatch, TrackerBatchCfg
from sim.robot import Robot
from sim.stereo import lens_in_base

Array = np.ndarray


@dataclass(frozen=True)
class PerceptionCfg:
    """lens_mm: of the ZED X at SVGA, the robot's wide one; hold [s]: how long an interception is kept without sight, the paper's 2 s; steps_late: (low, high) control
    steps from exposure to measurement, drawn per episode: 20 to 40 ms, the field's good systems, the paper says 60 to 160; sigma [m]: an
    interception is believed once its horizontal standard deviation is under it, our choice: sooner known against wrong steps at first."""

    lens_mm: float = 2.2
    hold: float = 2.0
    steps_late: tuple[int, int] = (1, 2)
    sigma: float = 0.5
    noise: NoiseCfg = field(default_factory=lambda: NoiseCfg.load(ZEDX))


class Perception:
    """N cameras, filters and beliefs. World frame, times in seconds of the task's own clock.

    place, arrival (N, 3) [m, m/s] and when (N,) [s]: of the interception believed, where the shuttle will be, how fast, and at what time,
    where known (N,) is True; seen (N,): a measurement came this step,
    of a shuttle at shuttle (N, 3) [m] as triangulated; in_view (N,): the true shuttle was inside both images; left (N,): whoever reads the
    beliefs lets this flight go, nothing is known of it until the next.
    """

    def __init__(self, robot: Robot, count: int, period: float, cfg: PerceptionCfg, seed: int = 0) -> None:
        self.cfg, self.count, self.period = cfg, count, period
        self.rng = np.random.default_rng(seed)
        self.rig = zedx("SVGA", cfg.lens_mm)
        self.axes, self.lens = lens_in_base(robot)
        pixel, disparity = cfg.noise.measurement_sigma
        self.tracker = TrackerBatch(count, self.rig, TrackerBatchCfg(pixel_sigma=pixel, disparity_sigma=disparity))
        self.place, self.arrival, self.shuttle = (np.zeros((count, 3)) for _ in range(3))
        self.when, self.fresh = np.zeros(count), np.full(count, -np.inf)
        self.known, self.seen, self.in_view, self.left = (np.zeros(count, bool) for _ in range(4))
        self.bias = draw_bias(cfg.noise, count, self.rng)
        self.late = np.full(count, cfg.steps_late[0])
        depth = cfg.steps_late[1] + 1
        self._measured, self._reported = np.full((depth, count, 3), np.nan), np.zeros((depth, count), bool)
        self._turn, self._shift = np.tile(np.eye(3), (depth, count, 1, 1)), np.zeros((depth, count, 3))
        self._exposed = np.full(depth, -np.inf)
        self._slot = 0

    def restart(self, ids: Array) -> None:
        """New episodes: another delay, nothing known."""
        self.late[ids] = self.rng.integers(self.cfg.steps_late[0], self.cfg.steps_late[1] + 1, len(ids))
        self.forget(ids)

    def forget(self, ids: Array) -> None:
        """A swing is over, or another shuttle comes: tracks and beliefs of robots ids end."""
        self.tracker.reset(ids)
        self.known[ids] = self.left[ids] = False
        self.fresh[ids] = -np.inf
        self._reported[:, ids] = False

    def start(self, ids: Array) -> None:
        """Shuttles for robots ids are hit now."""
        self.forget(ids)
        self.bias[ids] = draw_bias(self.cfg.noise, len(ids), self.rng)

    def step(self, now: float, position: Array, rotation: Array, velocity: Array, turning_b: Array, shuttle: Array, speed: Array, flying: Array,
             height: Array) -> None:
        """Expose at `now`, and take in the measurement that arrives now.

        position (N, 3) [m], rotation (N, 3, 3) base to world, velocity (N, 3) [m/s], turning_b (N, 3) base axes [rad/s]; shuttle, speed
        (N, 3) [m, m/s] the truth; flying (N,): there is one to see; height (N,) [m] at which it is to be met.
        """
        to_world = rotation @ self.axes
        centre = position + rotation @ self.lens
        moving = velocity + np.einsum("nij,nj->ni", rotation, np.cross(turning_b, self.lens))
        points = np.einsum("nji,nj->ni", to_world, shuttle - centre)
        relative = np.einsum("nji,nj->ni", to_world, speed - moving)
        self.bias = step_bias(self.cfg.noise, self.bias, self.period, self.rng)
        measurement, reported = sample(self.cfg.noise, self.rig, points, relative, np.linalg.norm(turning_b, axis=1), self.bias, self.rng)
        self.in_view = flying & self._inside(points)
        self._slot = (self._slot + 1) % len(self._exposed)
        slot, turn = self._slot, np.ascontiguousarray(to_world.transpose(0, 2, 1))
        self._measured[slot], self._reported[slot] = measurement, reported & flying
        self._turn[slot], self._shift[slot] = turn, -np.einsum("nij,nj->ni", turn, centre)
        self._exposed[slot] = now
        then = (slot - self.late) % len(self._exposed)
        rows = np.arange(self.count)
        z, turn, shift = self._measured[then, rows], self._turn[then, rows], self._shift[then, rows]
        self.seen = self._reported[then, rows].copy()
        self.tracker.step(np.maximum(self._exposed[then], self.tracker.time), z, self.seen, turn, shift)
        self._triangulate(z, turn, shift)
        self._foretell(now, height)

    def _inside(self, points: Array) -> Array:
        camera = self.rig.left
        depth = np.maximum(points[:, 2], 1e-3)
        u, v = camera.fx * points[:, 0] / depth + camera.cx, camera.fy * points[:, 1] / depth + camera.cy
        right = u - camera.fx * self.rig.baseline / depth
        return (points[:, 2] > 0.05) & (right >= 0) & (u <= camera.width - 1) & (v >= 0) & (v <= camera.height - 1)

    def _triangulate(self, z: Array, turn: Array, shift: Array) -> None:
        """Where the measured shuttles are; where none is measured, the last place stays and `seen` is False."""
        camera, ids = self.rig.left, np.flatnonzero(self.seen)
        depth = camera.fx * self.rig.baseline / np.maximum(z[ids, 2], 1.0)
        point = np.column_stack([(z[ids, 0] - camera.cx) / camera.fx * depth, (z[ids, 1] - camera.cy) / camera.fy * depth, depth])
        self.shuttle[ids] = np.einsum("nji,nj->ni", turn[ids], point - shift[ids])

    def _foretell(self, now: float, height: Array) -> None:
        t = self.tracker
        gone, place, arrival = come_down(t.state, height, t.valid)
        when = t.time + gone
        with np.errstate(invalid="ignore"):
            ahead = t.valid & (when > now)
        p = t.covariance
        spread = sum(p[:, a, a] + 2 * gone * p[:, a, 3 + a] + gone**2 * p[:, 3 + a, 3 + a] for a in (0, 1))
        good = ahead & (np.nan_to_num(spread, nan=np.inf) < self.cfg.sigma**2)
        self.place[good], self.arrival[good], self.when[good], self.fresh[good] = place[good], arrival[good], when[good], now
        self.known = (good | (self.known & (now - self.fresh <= self.cfg.hold))) & ~self.left
