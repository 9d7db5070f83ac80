"""`birdie play`: the policy returns shots that people hit, and every shot is accounted for."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perception.errors import UserError
from policy.inference import OnnxPolicy
from policy.rewards import HIT_RADIUS
from policy.swings import Swings, swings_for_shots
from policy.task import BadmintonTask, Step, TaskCfg
from sim.court import is_in
from sim.robot import Robot, load_robot
from sim.scale import TaskScale
from sim.serves import human_shots, launcher_shots
from sim.shuttle import DOWN, IDLE

Array = np.ndarray
REST = 80  # [control steps] between a strike and the next shot: 1.6 s, time for the return to land
PATIENCE = 2  # times a shot is put back because the robot fell before it was served; then it is lost
SWING_TIME = 0.4  # [s] of the swing itself, after or during the last step


@dataclass(frozen=True)
class PlayCfg:
    """repeats: times each shot is served; as_hit: leave the shots where they were hit; spread_x, spread_y: half widths of the
    places around home where moved shots come down [m], None for the robot's box of targets; robots: courts side by side."""

    shots: str = "human"
    repeats: int = 10
    as_hit: bool = False
    spread_x: float | None = None
    spread_y: float | None = None
    robots: int = 37
    seed: int = 11


@dataclass
class Outcome:
    """What became of N shots. All (N,) but landing (N, 2) [m] and place (N, 2) [m, relative to home]; scale: of the robot."""

    scale: TaskScale
    label: Array
    place: Array
    flight: Array  # [s] from the hit to the meeting point
    touched: Array = field(init=False)
    crossed: Array = field(init=False)
    netted: Array = field(init=False)
    landing: Array = field(init=False)
    error: Array = field(init=False)  # [m] racket to commanded point at the commanded time; nan: it never came to that
    fell: Array = field(init=False)  # the robot fell while it was at this shot, or from its swing
    falls: int = 0  # in all
    blown_up: int = 0  # simulations that had to be reset
    left: Array = field(init=False)  # no command was given: the robot had better stay where it is

    def __post_init__(self) -> None:
        n = len(self.label)
        self.touched, self.crossed, self.netted, self.fell = (np.zeros(n, bool) for _ in range(4))
        self.left = ~self.in_reach()
        self.landing, self.error = np.full((n, 2), np.nan), np.full(n, np.nan)

    @property
    def returned(self) -> Array:
        """(N,) touched, over the net, and in by the doubles lines."""
        return self.touched & self.crossed & is_in(self.landing[:, 0], self.landing[:, 1])

    def reason(self, i: int) -> str:
        """Why shot i was not touched."""
        if self.left[i]:
            return "too little time" if self.near()[i] else "too far"
        if self.netted[i]:
            return "into the net"  # the shot itself: it never came over
        return "fell" if self.fell[i] else "missed"

    def near(self) -> Array:
        """(N,) not too far to be tried."""
        return (np.abs(self.place) <= (self.scale.far_x, self.scale.far_y)).all(axis=1)

    def in_reach(self) -> Array:
        """(N,) near enough and slow enough to be tried."""
        distance = np.hypot(self.place[:, 0], self.place[:, 1])
        return self.near() & ((distance - self.scale.no_step) / self.scale.walk_speed <= self.flight - SWING_TIME)


Watcher = Callable[[BadmintonTask, Step, int], None]


def play(policy: OnnxPolicy, cfg: PlayCfg = PlayCfg(), threads: int = 0, watch: Watcher | None = None,
         robot_name: str = "") -> tuple[dict[str, Any], Outcome]:
    """Serve every shot cfg.repeats times; returns the score card and what became of each shot.

    Shots out of reach are left: they count as not touched, the robot is not told of them and they are not simulated.

    watch(task, step, number of the control step) is called after every control step, for recording robot 0. robot_name: name
    or folder of the robot, where it is not one that ships under the name in the policy's contract.
    """
    robot = load_robot(robot_name or policy.contract.robot)
    swings, outcome, order, not_falling = serves(robot, cfg)
    queue = deque(order.tolist())

    def source(ids: Array) -> Swings:
        given = Swings.idle(len(ids))
        for row in range(len(ids)):
            if queue:
                number = queue.popleft()
                given.put(np.array([row]), swings.take(np.array([number])))
        return given

    task = BadmintonTask(robot, cfg.robots, source, seed=cfg.seed, threads=threads, cfg=TaskCfg(swings=10**9))
    policy.contract.check_same(task.contract)
    observation = task.reset()
    number = 0
    last_struck, returned_to_queue = np.full(cfg.robots, -1), np.zeros(len(outcome.label), int)
    while True:
        command, upcoming, waiting = task.current.tag.copy(), task.upcoming.tag.copy(), task.wait > 0
        step = task.step(policy(observation[:, : task.actor_size]))
        observation = step.observation
        tags = command[step.struck]
        outcome.error[tags[tags >= 0]] = step.strike_position_error[tags >= 0]
        last_struck[step.struck] = tags
        for i in np.flatnonzero(step.done):
            outcome.falls += int(not step.blown[i])
            outcome.blown_up += int(step.blown[i])
            guilty = last_struck[i] if waiting[i] else command[i]  # while it waits, the next shot has not been served
            if guilty >= 0:
                outcome.fell[guilty] = True
            for tag in (command[i] if waiting[i] else -1, upcoming[i]):
                if tag >= 0 and returned_to_queue[tag] < PATIENCE:
                    returned_to_queue[tag] += 1
                    queue.append(int(tag))
                elif tag >= 0:
                    outcome.fell[tag] = True
            last_struck[i] = -1
        _refill(task, source, queue)
        _note(outcome, task)
        if watch is not None:
            watch(task, step, number)
        number += 1
        busy = (task.current.tag >= 0) | ((task.shuttles.phase != IDLE) & (task.shuttles.phase != DOWN))
        if not busy.any() and not queue:
            break
    return score_card(outcome, cfg, not_falling, policy), outcome


def serves(robot: Robot, cfg: PlayCfg) -> tuple[Swings, Outcome, Array, int]:
    """The shots of a session: a swing for each, an empty account of them, the order in which those in reach are served, and how many never
    come down through the height at which they are met. The same seed gives the same shots."""
    scale = robot.scale
    spread = (scale.box_x if cfg.spread_x is None else cfg.spread_x, scale.box_y if cfg.spread_y is None else cfg.spread_y)
    if cfg.repeats < 1 or cfg.robots < 1 or min(spread) < 0:
        raise UserError(f"repeats and robots must be at least 1, spreads not negative; they are {cfg.repeats}, {cfg.robots}, {spread}")
    rng = np.random.default_rng(cfg.seed)
    base = human_shots() if cfg.shots == "human" else launcher_shots(rng, 37)
    shots = base.take(np.tile(np.arange(len(base)), cfg.repeats))
    place = None if cfg.as_hit else rng.uniform(-1, 1, (len(shots), 2)) * spread
    swings, served = swings_for_shots(shots, scale.meet_height, REST, place)
    swings.tag = np.arange(len(served))
    outcome = Outcome(scale, shots.label[served], swings.position[:, :2].copy(), swings.launch * 0.02)
    return swings, outcome, rng.permutation(np.flatnonzero(~outcome.left)), len(shots) - len(served)


def _refill(task: BadmintonTask, source: Callable[[Array], Swings], queue: deque[int]) -> None:
    """Give robots without a shot their next one: their own upcoming one, or one that a fallen robot left in the queue."""
    idle = np.flatnonzero(task.current.tag < 0)
    own = idle[task.upcoming.tag[idle] >= 0]
    if len(own):
        task.give(own, task.upcoming.take(own))
        task.upcoming.put(own, source(own))
    free = np.flatnonzero(task.current.tag < 0)[: len(queue)]
    if len(free):
        task.give(free, source(free))


def _note(outcome: Outcome, task: BadmintonTask) -> None:
    """Copy what the shuttles in the scene have done so far to the shots they belong to."""
    s = task.shuttles
    here = np.flatnonzero((s.phase != IDLE) & (s.tag >= 0))
    tag = s.tag[here]
    outcome.touched[tag], outcome.crossed[tag], outcome.netted[tag] = s.touched[here], s.crossed[here], s.netted[here]
    outcome.landing[tag] = s.landing[here]


def score_card(outcome: Outcome, cfg: PlayCfg, not_falling: int, policy: OnnxPolicy) -> dict[str, Any]:
    """Figures of a session. Rates are shares of all shots served; *_in_reach of those that a fair judge calls reachable."""
    reach = outcome.in_reach()
    known = outcome.error[np.isfinite(outcome.error)]

    def share(mask: Array, of: Array | None = None) -> float:
        chosen = mask if of is None else mask[of]
        return float(chosen.mean()) if len(chosen) else float("nan")

    return {
        "source": cfg.shots, "as_hit": cfg.as_hit, "shots": len(outcome.label) + not_falling, "in_reach": int(reach.sum()),
        "touched_rate": share(outcome.touched), "returned_rate": share(outcome.returned), "over_net_rate": share(outcome.crossed),
        "touched_rate_in_reach": share(outcome.touched, reach), "returned_rate_in_reach": share(outcome.returned, reach),
        "netted": int((outcome.touched & outcome.netted).sum()), "falls": outcome.falls, "blown_up": outcome.blown_up,
        "hit_rate": float((known < HIT_RADIUS).sum() / len(outcome.label)),
        "median_position_error_m": float(np.median(known)) if len(known) else float("nan"),
        "out_of_reach": [
            {"shot": str(outcome.label[i]), "x_m": round(float(outcome.place[i, 0]), 2), "y_m": round(float(outcome.place[i, 1]), 2),
             "time_s": round(float(outcome.flight[i]), 2), "why": outcome.reason(int(i))}
            for i in np.flatnonzero(~outcome.touched)
        ],
        "seed": cfg.seed, "training": {k: policy.training.get(k) for k in ("steps", "minutes", "commit")},
    }
