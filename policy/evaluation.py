"""`birdie eval`: the policy against drilled targets on fixed seeds, with the true interception given."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from perception.errors import UserError
from policy.inference import OnnxPolicy
from policy.rewards import HIT_RADIUS
from policy.swings import ShotPool, SwingRange, Swings, draw_swings
from policy.task import BadmintonTask, Step, TaskCfg
from sim.randomize import RandomizeCfg
from sim.robot import Robot, load_robot

Array = np.ndarray


@dataclass(frozen=True)
class EvalCfg:
    """swings: at least so many are counted; robots: evaluated side by side; spread, speed_max: see `SwingRange.box`;
    randomize: how the robots differ, None for the nominal one."""

    swings: int = 1000
    robots: int = 100
    seed: int = 7
    spread: float = 1.0
    speed_max: float | None = None
    randomize: RandomizeCfg | None = None


class Tally:
    """Counts over the control steps of the robots that still play. over (J,): steps with the drive above its limit."""

    def __init__(self, joints: int) -> None:
        self.position: list[Array] = []
        self.velocity: list[Array] = []
        self.angle: list[Array] = []
        self.speed: list[Array] = []
        self.place: list[Array] = []
        self.over, self.peak = np.zeros(joints), np.zeros(joints)
        self.current: list[Array] = []
        self.over_any = self.steps = self.falls = self.blown = self.episodes = 0

    def add(self, task: BadmintonTask, step: Step, command: Swings, playing: Array) -> None:
        """Take in one step; command: what was asked before it; playing (N,): who counts."""
        speed = np.abs(task.drive_speed[playing])
        excess = speed > task.speed_limit
        self.over += excess.sum(axis=0)
        self.over_any += int(excess.any(axis=1).sum())
        self.peak = np.maximum(self.peak, speed.max(axis=0, initial=0.0))
        self.steps += int(playing.sum())
        self.current.append(step.arm_current[playing])
        ours = playing[step.struck]
        ids = step.struck[ours]
        self.position.append(step.strike_position_error[ours])
        self.velocity.append(step.strike_velocity_error[ours])
        self.angle.append(np.arccos(np.clip(step.strike_cosine[ours], -1, 1)))
        self.speed.append(np.linalg.norm(command.velocity[ids], axis=1))
        self.place.append(command.position[ids])
        self.falls += int((step.terminated & ~step.blown & playing).sum())
        self.blown += int((step.blown & playing).sum())
        self.episodes += int((step.done & playing).sum())


def evaluate(policy: OnnxPolicy, cfg: EvalCfg | None = None, threads: int = 0, robot_name: str = "") -> dict[str, Any]:
    """Figures of a deterministic policy. Rates are shares of swings, episodes (falls) or control steps (speed).

    An episode is five swings; every robot plays the same number of episodes, and swings lost to a fall count as missed.
    robot_name: name or folder of the robot, where it does not ship under the name in the policy's contract. Raises UserError
    for sizes that make no sense, and when not one swing was reached before a fall.
    """
    cfg = cfg or EvalCfg()
    robot = load_robot(robot_name or policy.contract.robot)
    span = SwingRange.box(robot.scale, cfg.spread, cfg.speed_max)
    if cfg.swings < 1 or cfg.robots < 1 or span.speed[1] <= span.speed[0]:
        raise UserError(f"swings and robots must be at least 1 and the top speed above {span.speed[0]:g} m/s; "
                        f"they are {cfg.swings}, {cfg.robots} and {span.speed[1]:g}")
    rng = np.random.default_rng(cfg.seed)
    pool = ShotPool(rng, robot.scale)
    task = BadmintonTask(robot, cfg.robots, lambda ids: draw_swings(rng, len(ids), span, pool),
                         seed=cfg.seed, threads=threads, cfg=TaskCfg(randomize=cfg.randomize))
    policy.contract.check_same(task.contract)
    per_episode = TaskCfg().swings
    episodes = -(-cfg.swings // (cfg.robots * per_episode))  # of each robot
    left = np.full(cfg.robots, episodes)
    tally = Tally(len(robot.joint_names))
    observation = task.reset()
    while left.any():
        command = task.current.take(np.arange(cfg.robots))
        step = task.step(policy(observation[:, : task.actor_size]))
        tally.add(task, step, command, left > 0)
        left -= step.done & (left > 0)
        observation = step.observation
    if not any(len(p) for p in tally.position):
        raise UserError(f"{policy.path} fell in all {tally.episodes} episodes before its first strike; there is nothing to measure")
    return _figures(tally, robot, episodes * cfg.robots * per_episode, policy, cfg, span.speed[1])


def _figures(t: Tally, robot: Robot, swings: int, policy: OnnxPolicy, cfg: EvalCfg, top_speed: float) -> dict[str, Any]:
    errors, velocity, angle = np.concatenate(t.position), np.concatenate(t.velocity), np.concatenate(t.angle)
    speed, place = np.concatenate(t.speed), np.concatenate(t.place)
    hit = errors < HIT_RADIUS

    def by(values: Array, edges: list[float]) -> list[dict[str, float]]:
        rows = []
        for low, high in pairwise(edges):
            inside = (values >= low) & (values < high)
            if inside.any():
                rows.append({"from": low, "to": high, "swings": int(inside.sum()), "hit_rate": float(hit[inside].mean()),
                             "median_position_error_m": float(np.median(errors[inside])),
                             "median_velocity_error_mps": float(np.median(velocity[inside]))})
        return rows

    over, current = t.over / t.steps, np.concatenate(t.current)
    return {
        "swings": swings, "hit_rate": float(hit.sum() / swings), "hit_radius_m": HIT_RADIUS,
        "median_position_error_m": float(np.median(errors)), "p90_position_error_m": float(np.percentile(errors, 90)),
        "median_velocity_error_mps": float(np.median(velocity)), "p90_velocity_error_mps": float(np.percentile(velocity, 90)),
        "median_normal_error_deg": float(np.rad2deg(np.median(angle))), "fall_rate": t.falls / t.episodes, "episodes": t.episodes,
        "over_speed_rate": t.over_any / t.steps, "over_speed_rate_by_joint": dict(zip(robot.joint_names, over.tolist(), strict=True)),
        "peak_speed_by_joint_radps": dict(zip(robot.joint_names, t.peak.round(2).tolist(), strict=True)), "blown_up": t.blown,
        "arm_current_limit_a": robot.arm_current_limit, "arm_over_current_rate": float((current > robot.arm_current_limit).mean()),
        "arm_current_p99_a": float(np.percentile(current, 99)), "arm_current_peak_a": float(current.max()),
        "by_distance_m": by(np.linalg.norm(place[:, :2], axis=1), [0.0, 0.3, 0.6, 0.9, 1.2, 2.5]),
        "by_speed_mps": by(speed, [*(e for e in (2.0, 4.0, 6.0) if e < top_speed), float(np.ceil(top_speed))]), "seed": cfg.seed, "randomized": cfg.randomize is not None,
        "training": {k: policy.training.get(k) for k in ("steps", "minutes", "commit")},
    }
