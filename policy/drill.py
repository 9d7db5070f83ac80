"""Drilled swings for the score card: a policy against targets on fixed seeds, every swing kept with what it cost.

Level I tells the robot the true interception, level II leaves it to its own cameras (`perceive.py`); the paper's terms. An episode is six
swings; swings lost to a fall count as missed.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from perception.errors import UserError
from policy.inference import OnnxPolicy
from policy.perceive import PerceptionCfg
from policy.rewards import HIT_RADIUS
from policy.swings import ShotPool, SwingRange, draw_swings
from policy.task import BadmintonTask, Step, TaskCfg
from sim.randomize import RandomizeCfg
from sim.robot import load_robot
from sim.shuttle import INCOMING

Array = np.ndarray
SWINGS = 6  # per episode, as in the paper
TOUCHDOWN = 3  # control steps that a foot must have been up to count as a step: less is a foot that rolls


@dataclass(frozen=True, eq=False)
class Drill:
    """M swings. place (M, 2) [m] from home, height (M,) [m]; time (M,) [s] given; speed (M,) [m/s] commanded; error, speed_error (M,) [m, m/s], inf
    for those lost to a fall; reached (M,) [m/s] executed speed; angle (M,) [rad]; over (M,) any step over the arm's current; peak (M,) [A]; steps (M,)
    touchdowns; travelled (M,) [m] of the base; home (M,) [m] from home when the next command came, nan where none did. Over all
    steps: slip [m/s] mean speed of feet that carry; falls, episodes. sight: (time to hit [s], known, error [m]) columns of level II."""

    place: Array
    height: Array
    time: Array
    speed: Array
    error: Array
    speed_error: Array
    reached: Array
    angle: Array
    over: Array
    peak: Array
    steps: Array
    travelled: Array
    home: Array
    slip: float
    falls: int
    episodes: int
    sight: Array

    @property
    def hit(self) -> Array:
        """(M,) within the hit radius at the commanded time."""
        return self.error < HIT_RADIUS


class _Notes:
    """What the swing of each robot has cost so far."""

    def __init__(self, count: int, feet: int) -> None:
        self.over, self.peak = np.zeros(count, bool), np.zeros(count)
        self.steps, self.travelled = np.zeros(count, int), np.zeros(count)
        self.up = np.zeros((count, feet), int)

    def clear(self, ids: Array) -> None:
        self.over[ids], self.peak[ids], self.steps[ids], self.travelled[ids] = False, 0.0, 0, 0.0


def drill(policy: OnnxPolicy, span: SwingRange, swings: int, seed: int, seen: bool = False, randomize: RandomizeCfg | None = None, robots: int = 100,
          threads: int = 0, robot_name: str = "", perception: PerceptionCfg | None = None, watch: Callable[[BadmintonTask, Step, int], None] | None = None) -> Drill:
    """Let robots side by side play whole episodes until at least `swings` swings have been asked for. seen: level II.

    Raises UserError for sizes that make no sense.
    """
    if swings < 1 or robots < 1 or span.speed[1] <= span.speed[0]:
        raise UserError(f"swings and robots must be at least 1 and the top speed above {span.speed[0]:g} m/s; "
                        f"they are {swings}, {robots} and {span.speed[1]:g}")
    robot, rng = load_robot(robot_name or policy.contract.robot), np.random.default_rng(seed)
    pool = ShotPool(rng, robot.scale)
    sees = policy.contract.sees
    cfg = TaskCfg(swings=SWINGS, randomize=randomize, perception=(perception or PerceptionCfg()) if seen or sees else None, told_of_sight=sees)
    robots = min(robots, -(-swings // SWINGS))
    task = BadmintonTask(robot, robots, lambda ids: draw_swings(rng, len(ids), span, pool), seed=seed, threads=threads, cfg=cfg)
    policy.contract.check_same(task.contract)
    per = -(-swings // (robots * SWINGS))
    left, notes = np.full(robots, per), _Notes(robots, len(robot.feet))
    rows: dict[str, list[Any]] = {f.name: [] for f in fields(Drill)}
    slip = carried = 0.0
    falls = 0
    sight: list[Array] = []
    asked = np.zeros(robots, int)  # swings of the present episode that have been struck
    waiting_home: dict[int, int] = {}  # robot -> row of its last swing, whose way home is still open
    count = 0
    observation, number = task.reset(), 0
    foot_before = task.physics.foot.copy()
    while left.any():
        playing = left > 0
        command, given = task.current.take(np.arange(robots)), task.current.time.copy()
        base, waited = task.physics.qpos[:, :2].copy(), task.wait > 0
        step = task.step(policy(observation[:, : task.actor_size]))
        observation = step.observation
        if watch is not None:
            watch(task, step, number)
        number += 1
        notes.over |= step.load > 1
        notes.peak = np.maximum(notes.peak, step.arm_current)
        done = step.done
        moved = np.linalg.norm(task.physics.qpos[:, :2] - base, axis=1)
        notes.travelled += np.where(done, 0.0, moved)
        foot = task.physics.foot
        down = foot[:, :, 2] < task.contract.scale.foot_down
        notes.steps += np.sum(down & (notes.up >= TOUCHDOWN), axis=1)
        notes.up = np.where(down, 0, notes.up + 1)
        both = down & (foot_before[:, :, 2] < task.contract.scale.foot_down) & (playing & ~done)[:, None]
        slip += float(np.sum(np.linalg.norm((foot - foot_before)[:, :, :2], axis=2)[both]) / task.physics.period)
        carried += float(both.sum())
        foot_before = foot.copy()
        if seen and task.perception is not None:
            p = task.perception
            due = playing & ~done & (task.shuttles.phase == INCOMING) & (task.wait == 0)
            off = np.linalg.norm(p.place - task.physics.home - task.current.position, axis=1)
            sight.append(np.column_stack([task.countdown * task.physics.period, p.known, off])[due])
        struck = step.struck[playing[step.struck]]
        rank = np.flatnonzero(playing[step.struck])
        shown = np.flatnonzero(playing & waited & (task.wait == 0) & ~done)
        for i in np.intersect1d(list(waiting_home), np.concatenate([shown, struck]).astype(int)):
            rows["home"][waiting_home.pop(int(i))] = np.linalg.norm(base[i] - task.physics.home[:2])
        if len(struck):
            # what was reached, from the true racket just now: task.racket is after resets only for robots that are done
            velocity = task.racket.velocity[struck]
            for name, values in (("place", command.position[struck, :2]), ("height", command.position[struck, 2]), ("time", given[struck] * task.physics.period),
                                 ("speed", np.linalg.norm(command.velocity[struck], axis=1)), ("error", step.strike_position_error[rank]),
                                 ("speed_error", step.strike_velocity_error[rank]), ("reached", np.where(done[struck], np.nan, np.linalg.norm(velocity, axis=1))),
                                 ("angle", np.arccos(np.clip(step.strike_cosine[rank], -1, 1))), ("over", notes.over[struck].copy()),
                                 ("peak", notes.peak[struck].copy()), ("steps", notes.steps[struck].copy()), ("travelled", notes.travelled[struck].copy())):
                rows[name] += list(values)
            rows["home"] += [np.nan] * len(struck)
            for k, i in enumerate(struck):
                if not done[i]:
                    waiting_home[int(i)] = count + k
            count += len(struck)
            notes.clear(struck)
            asked[struck] += 1
        ended = np.flatnonzero(done & playing)
        for i in ended:
            waiting_home.pop(int(i), None)
            falls += int(step.terminated[i] and not step.blown[i])
            lost = SWINGS - asked[i]
            if lost > 0:  # fell: what it did not get to is missed
                for name in ("height", "time", "speed", "reached", "angle", "peak", "travelled", "home"):
                    rows[name] += [np.nan] * lost
                rows["place"] += [np.full(2, np.nan)] * lost
                rows["error"] += [np.inf] * lost
                rows["speed_error"] += [np.inf] * lost
                rows["over"] += [bool(notes.over[i])] * lost
                rows["steps"] += [0] * lost
                count += lost
            asked[i] = 0
        notes.clear(np.flatnonzero(done))
        left -= done & playing
    arrays = {name: np.array(values) for name, values in rows.items() if name not in ("slip", "falls", "episodes", "sight")}
    return Drill(**arrays, slip=slip / max(carried, 1.0), falls=falls, episodes=int(per * robots), sight=np.concatenate(sight) if sight else np.zeros((0, 3)))
