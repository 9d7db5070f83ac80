"""`birdie bench sim`: speed of the environment, as ratios inside one run, since machines differ and are shared."""

import time
from dataclasses import replace
from typing import Any

import numpy as np
from mujoco.batch import MODEL_FIELDS

from policy.swings import ShotPool, SwingRange, draw_swings
from policy.task import BadmintonTask, TaskCfg
from sim.batch import SUBSTEPS
from sim.randomize import RandomizeCfg
from sim.robot import load_robot

SCALING = (64, 256, 1024, 4096)  # robots


def bench_sim(robots: int = 512, seconds: float = 8.0, threads: int = 0, scaling: tuple[int, ...] = SCALING) -> dict[str, Any]:
    """Control steps/s of the whole environment and of its physics alone, and how both grow with the number of robots."""
    figures = bench_environment(robots, seconds, threads)
    figures["scaling"] = []
    for count in scaling:
        row = bench_environment(count, max(1.0, seconds / 4), threads)
        figures["scaling"].append({k: row[k] for k in ("robots", "env_steps_per_s", "raw_physics_steps_per_s", "ratio", "bytes_per_robot")})
    return figures


def _bytes(task: BadmintonTask) -> int:
    """Memory that grows with the number of robots: arrays that the task, its shuttles, swings and physics hold between steps,
    and the model values that each robot has of its own."""
    arrays = {}
    for owner in (task, task.shuttles, task.current, task.upcoming, task.physics, task.physics.batch, task.physics.variation):
        for value in vars(owner).values():
            if isinstance(value, np.ndarray):
                whole = value if not isinstance(value.base, np.ndarray) else value.base
                arrays[id(whole)] = whole.nbytes
    own = [task.physics.batch.expanded(name) for name in MODEL_FIELDS]
    return sum(arrays.values()) + sum(a.nbytes for a in own if a is not None) + task.count * task.physics.batch.nstate * 8


def bench_environment(robots: int, seconds: float, threads: int) -> dict[str, Any]:
    """Environment and raw physics of one batch size, same model, same controls, alternating in one run."""
    robot = load_robot()
    rng = np.random.default_rng(0)
    pool = ShotPool(rng, robot.scale)
    span = replace(SwingRange.box(robot.scale), wait_share=0.4, planned_share=0.4)
    task = BadmintonTask(robot, robots, lambda ids: draw_swings(rng, len(ids), span, pool), threads=threads,
                         cfg=TaskCfg(randomize=RandomizeCfg()))
    task.reset()
    joints = len(robot.joint_names)
    actions = 0.3 * rng.standard_normal((64, robots, joints))
    for action in actions[:3]:
        task.step(action)  # compiles
    spent = {"env": 0.0, "raw": 0.0}
    steps = {"env": 0, "raw": 0}
    while spent["env"] + spent["raw"] < seconds:
        for what in ("env", "raw"):
            start = time.perf_counter()
            for action in actions[:16]:
                if what == "env":
                    task.step(action)
                else:
                    task.physics.step(task.contract.joint_targets(action))
            spent[what] += time.perf_counter() - start
            steps[what] += 16 * robots
        task.reset()
    env, raw = steps["env"] / spent["env"], steps["raw"] / spent["raw"]
    return {"robots": robots, "threads": task.physics.batch.nthread, "substeps": SUBSTEPS, "env_steps_per_s": env,
            "raw_physics_steps_per_s": raw, "ratio": env / raw, "bytes_per_robot": _bytes(task) // robots}
