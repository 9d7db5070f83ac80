"""`birdie bench train`: one PPO iteration by phase, and our speed beside what else one could do on the same machine and task.

Everything is measured in one run, in turns, since machines differ and are shared: read the ratios.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from policy.bench import bench_environment
from policy.networks import mlp
from policy.swings import ShotPool, SwingRange, draw_swings
from policy.task import BadmintonTask, TaskCfg
from policy.training import PRESETS, How, Mode, Session, TrainCfg, build, choose_mode
from sim.randomize import RandomizeCfg
from sim.robot import load_robot

STOCK_PROCESSES = (2, 4, 8)
WORKERS = (1, 2, 4)
ROUNDS = 2  # turns that each contender gets


def bench_train(robots: int = 512, seconds: float = 8.0, threads: int = 0, told: Callable[[str], None] = lambda what: None) -> dict[str, Any]:
    """Steps/s of raw physics, our PPO in each mode, stock stable-baselines3, a hand-written loop and two independent runs.

    seconds: of each measurement of ours; told: called with the name of what is measured next.
    """
    cfg = replace(PRESETS["default"], robots=robots, minibatch=8 * robots, total_steps=10**9)
    cores = threads or len(os.sched_getaffinity(0))
    told("environment and raw physics")
    env = bench_environment(robots, seconds, threads)
    contenders: dict[str, Callable[[], float]] = {
        "sequential": lambda: _ours(cfg, How("sequential", threads), seconds / ROUNDS),
        "overlapped": lambda: _ours(cfg, How("overlapped", threads), seconds / ROUNDS),
        "handwritten": lambda: _handwritten(cfg, threads, seconds / ROUNDS),
        "two_independent": lambda: _independent(cfg, seconds / ROUNDS),
    }
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, measure in contenders.items():
            told(name)
            rates[name].append(measure())
    mean = {name: float(np.mean(values)) for name, values in rates.items()}
    cluster: dict[str, dict[str, float]] = {}
    for count in WORKERS:
        told(f"{count} workers")
        if (row := _workers(cfg, count, seconds)) is not None:
            cluster[str(count)] = row
    told("phases")
    phases = _phases(cfg, threads, seconds)
    stock = {}
    for processes in STOCK_PROCESSES:
        told(f"stock stable-baselines3, {processes} processes")
        stock[str(processes)] = _stock(cfg, processes)
    mode: Mode = choose_mode(cores)
    ours, best = mean[mode], max(stock.values())
    return {
        "robots": robots, "cores": cores, "mode": mode, "raw_physics_steps_per_s": env["raw_physics_steps_per_s"],
        "env_steps_per_s": env["env_steps_per_s"], "env_ratio": env["ratio"], "ppo_steps_per_s": ours, "stock_sb3_steps_per_s": best,
        "handwritten_steps_per_s": mean["handwritten"], "two_independent_steps_per_s": mean["two_independent"],
        "ppo_over_stock": ours / best, "handwritten_over_ppo": mean["handwritten"] / ours, "ppo_over_two_independent": ours / mean["two_independent"],
        "modes_steps_per_s": {"sequential": mean["sequential"], "overlapped": mean["overlapped"], "workers_2": cluster["2"]["steps_per_s"] if cluster else None},
        "workers": cluster, "cost": _cost(cluster),
        "stock_by_processes": stock, "phases_ms": phases, "iteration_ms": sum(phases.values()),
    }


@contextmanager
def _running(cfg: TrainCfg, how: How) -> Iterator[tuple[Session, Callable[[], None]]]:
    """A session that is warm, and a function that makes one iteration of it."""
    session = build(cfg, how=how)
    algorithm = session.algorithm
    _, callback = algorithm._setup_learn(10**9)

    def iterate() -> None:
        algorithm.collect_rollouts(session.env, callback, None, algorithm.n_steps)
        algorithm.train()

    try:
        for _ in range(2):
            iterate()
        algorithm.phase_seconds = dict.fromkeys(algorithm.phase_seconds, 0.0)
        yield session, iterate
    finally:
        algorithm.source.close()


def _rate(iterate: Callable[[], None], samples: int, seconds: float) -> float:
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        iterate()
        count += 1
    return count * samples / (time.perf_counter() - start)


def _ours(cfg: TrainCfg, how: How, seconds: float) -> float:
    with _running(cfg, how) as (_, iterate):
        return _rate(iterate, cfg.robots * cfg.horizon, seconds)


def _workers(cfg: TrainCfg, count: int, seconds: float) -> dict[str, float] | None:
    """Ray workers on this machine: steps/s of the run, of the learner alone, and bytes that travel; None where Ray is not installed."""
    try:
        import ray  # noqa: F401
    except ModuleNotFoundError:
        return None
    with _running(cfg, How(threads=1, workers=count, told=lambda line: None)) as (session, iterate):
        rate = _rate(iterate, cfg.robots * cfg.horizon, seconds)
        algorithm = session.algorithm
        r, spent = algorithm.rollout, algorithm.phase_seconds
        total = sum(spent[phase] for phase in ("wait", "values", "learn"))
        tensors = (r.observation, r.action, r.log_prob, r.reward, r.done, r.load)
        return {"steps_per_s": rate, "learner_steps_per_s": rate * total / (spent["values"] + spent["learn"]),
                "bytes_per_step": sum(t.numel() * t.element_size() for t in tensors) / r.samples,
                "weights_bytes": float(algorithm.behaviour().nbytes)}


def _cost(cluster: dict[str, dict[str, float]]) -> dict[str, float] | None:
    """What one worker gives, what the learner takes, and so how many workers keep it busy; network traffic then. On a machine with few cores
    workers and learner share them: the worker's own rate is that of the run with one, the learner's the best of all runs."""
    if not cluster:
        return None
    learner, worker = max(row["learner_steps_per_s"] for row in cluster.values()), cluster["1"]["steps_per_s"]
    one = cluster["1"]
    return {"worker_steps_per_s": worker, "learner_steps_per_s": learner, "workers_to_saturate": learner / worker,
            "bytes_per_step": one["bytes_per_step"], "weights_bytes": one["weights_bytes"],
            "megabytes_per_s_when_saturated": learner * one["bytes_per_step"] / 1e6}


def _alone(cfg: TrainCfg, seconds: float, barrier: Any, results: Any) -> None:
    with _running(cfg, How("sequential", 1)) as (_, iterate):
        barrier.wait()
        results.put(_rate(iterate, cfg.robots * cfg.horizon, seconds))


def _independent(cfg: TrainCfg, seconds: float) -> float:
    """Two runs that know nothing of each other, one thread each: what two cores can give."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2), context.Queue()
    runs = [context.Process(target=_alone, args=(replace(cfg, seed=k), seconds, barrier, results)) for k in (1, 2)]
    for run in runs:
        run.start()
    total = sum(results.get(timeout=120 + 10 * seconds) for _ in runs)
    for run in runs:
        run.join()
    return total


def _phases(cfg: TrainCfg, threads: int, seconds: float) -> dict[str, float]:
    """Milliseconds of one sequential iteration by phase."""
    with _running(cfg, How("sequential", threads)) as (session, iterate):
        task, algorithm = session.env.task, session.algorithm
        spent = {"physics": 0.0, "resets": 0.0}

        def timed(name: str, function: Callable) -> Callable:
            def wrapped(*args: Any) -> Any:
                begin = time.perf_counter()
                out = function(*args)
                spent[name] += time.perf_counter() - begin
                return out
            return wrapped

        task.physics.step = timed("physics", task.physics.step)  # type: ignore[method-assign]
        task._restart = timed("resets", task._restart)  # type: ignore[method-assign]
        start, count = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            iterate()
            count += 1
        total, p = time.perf_counter() - start, algorithm.phase_seconds
    parts = {"policy": p["policy"], **spent, "shuttle, rewards, observations": p["task"] - sum(spent.values()), "values": p["values"],
             "gradient steps": p["learn"]}
    parts["bookkeeping"] = total - sum(parts.values())
    return {name: 1e3 * value / count for name, value in parts.items()}


def _stock(cfg: TrainCfg, processes: int) -> float:
    """stable-baselines3 as it comes: its PPO and buffer, VecNormalize, SubprocVecEnv over our single environment; same network, same
    number of steps per iteration, same minibatch and epochs. One iteration, after a short one to warm up."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import SubprocVecEnv, VecNormalize

    from policy.gym_env import BadmintonEnv

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    samples = cfg.robots * cfg.horizon
    env = VecNormalize(SubprocVecEnv([BadmintonEnv] * processes))
    try:
        learner = PPO("MlpPolicy", env, n_steps=samples // processes, batch_size=cfg.minibatch, n_epochs=cfg.epochs, device="cpu",
                      policy_kwargs={"net_arch": {"pi": [256, 128], "vf": [256, 128]}, "activation_fn": nn.ELU})
        env.reset()
        for _ in range(20):
            env.step(np.zeros((processes, *env.action_space.shape)))  # type: ignore[misc]
        start = time.perf_counter()
        learner.learn(samples)
        return learner.num_timesteps / (time.perf_counter() - start)
    finally:
        env.close()


def _handwritten(cfg: TrainCfg, threads: int, seconds: float) -> float:
    """The shortest PPO loop that learns, on our batched task: no library, no logs, no schedules. The yardstick for our overhead."""
    torch.set_num_threads(threads or len(os.sched_getaffinity(0)))
    robot, rng = load_robot(cfg.robot), np.random.default_rng(0)
    pool, span = ShotPool(rng, robot.scale), SwingRange.box(robot.scale, 0.3)
    task = BadmintonTask(robot, cfg.robots, lambda ids: draw_swings(rng, len(ids), span, pool), threads=threads,
                         cfg=TaskCfg(randomize=RandomizeCfg()))
    obs = torch.from_numpy(task.reset())
    joints, size, actor_size = len(robot.joint_names), task.observation_size, task.actor_size
    actor, critic = nn.Sequential(mlp([actor_size, 256, 128]), nn.Linear(128, joints)), nn.Sequential(mlp([size, 256, 128]), nn.Linear(128, 1))
    log_std = nn.Parameter(torch.full((joints,), -1.0))
    optimiser = torch.optim.Adam([*actor.parameters(), *critic.parameters(), log_std], 5e-4)

    def log_prob(o: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        z = (a - actor(o[:, :actor_size])) * torch.exp(-log_std)
        return -0.5 * (z * z).sum(1) - log_std.sum()

    def iterate() -> None:
        nonlocal obs
        rows: list[tuple[torch.Tensor, ...]] = []
        with torch.no_grad():
            for _ in range(cfg.horizon):
                action = actor(obs[:, :actor_size]) + torch.exp(log_std) * torch.randn(cfg.robots, joints)
                step = task.step(action.numpy())
                rows.append((obs, action, torch.from_numpy(step.reward), torch.from_numpy(step.done).float()))
                obs = torch.from_numpy(step.observation)
            o, a, r, d = (torch.stack(x) for x in zip(*rows, strict=True))
            values = critic(torch.cat([o, obs[None]]).flatten(0, 1)).view(cfg.horizon + 1, -1)
            advantage, running = torch.empty_like(r), torch.zeros(cfg.robots)
            for t in reversed(range(cfg.horizon)):
                alive = 1 - d[t]
                running = r[t] + cfg.gamma * alive * values[t + 1] - values[t] + cfg.gamma * cfg.gae_lambda * alive * running
                advantage[t] = running
            o, a = o.flatten(0, 1), a.flatten(0, 1)
            advantage, target, old = advantage.flatten(), (advantage + values[:-1]).flatten(), log_prob(o, a)
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        for _ in range(cfg.epochs):
            for part in torch.randperm(len(o)).split(cfg.minibatch):
                ratio = torch.exp(log_prob(o[part], a[part]) - old[part])
                gain = torch.min(ratio * advantage[part], ratio.clamp(0.8, 1.2) * advantage[part]).mean()
                loss = (critic(o[part]).flatten() - target[part]).square().mean() - gain - cfg.entropy * log_std.sum()
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_([*actor.parameters(), *critic.parameters(), log_std], 1.0)
                optimiser.step()

    for _ in range(2):
        iterate()
    return _rate(iterate, cfg.robots * cfg.horizon, seconds)
