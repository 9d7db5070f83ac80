"""`birdie train`: presets, run folders, progress, checkpoints, resume."""

import copy
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger, TensorBoardOutputFormat

from perception.errors import UserError
from perception.noise import NoiseCfg
from policy.checkpoint import load_state, newest_checkpoint, read_record, save_checkpoint
from policy.constraint import ConstraintCfg
from policy.contract import BEFORE_SCALES, PolicyContract
from policy.curriculum import UPDATE_EVERY, Curriculum, CurriculumCfg
from policy.health import BlackBox, Watch
from policy.networks import ActorForExport, BadmintonPolicy
from policy.off_policy import BapoCfg, OffPolicyCfg
from policy.perceive import PerceptionCfg
from policy.ppo import AnnealCfg, BatchPPO
from policy.provenance import git_commit
from policy.rewards import HIT_RADIUS
from policy.rollout import StrikeLog
from policy.sampler import Sampler
from policy.sources import Late, Overlapped, Sequential, Source
from policy.swings import ShotPool, Swings, draw_swings
from policy.task import BadmintonTask, TaskCfg
from policy.vec_env import BatchVecEnv
from policy.warm_start import begin_with
from sim.randomize import RandomizeCfg
from sim.robot import Robot, load_robot


@dataclass(frozen=True)
class TrainCfg:
    """Settings of a run. robots: in the batch; horizon: steps per iteration; std_arm, std_leg: first exploration widths; lag: sample
    with the policy of so many updates ago, for studies of stale data; constraint: on the arm's supply current; perception: what robots
    see with, None tells them the truth; weights: of rewards, where they are not those of the table in `rewards.py`."""

    total_steps: int = 16_000_000
    robots: int = 512
    horizon: int = 24
    minibatch: int = 4096
    epochs: int = 4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    learning_rate: float = 5e-4
    entropy: float = 0.001
    std_arm: float = 0.5
    std_leg: float = 0.35
    seed: int = 1
    robot: str = "anymal_dynaarm"
    randomize: RandomizeCfg | None = field(default_factory=RandomizeCfg)
    curriculum: CurriculumCfg = field(default_factory=CurriculumCfg)
    anneal: AnnealCfg = field(default_factory=AnnealCfg)
    off_policy: OffPolicyCfg = field(default_factory=OffPolicyCfg)
    lag: int = 0
    constraint: ConstraintCfg | None = None
    perception: PerceptionCfg | None = None
    weights: dict[str, float] = field(default_factory=dict)


PRESETS: dict[str, TrainCfg] = {
    "default": TrainCfg(),
    # near targets only: shows a learner in five minutes on two cores
    "quick": TrainCfg(total_steps=2_700_000, curriculum=CurriculumCfg(top=0.5, top_share=0.5)),
    # sees for itself, farther and faster targets, arm current limited: begins where the default preset ends (`--begin-with`)
    "seeing": TrainCfg(
        total_steps=45_000_000,
        curriculum=CurriculumCfg(start=1.5, top=2.0, step=0.025, top_share=1.1, seen_share=0.6, rush_share=0.1, wait_share=0.5, tail=75.0),
        anneal=AnnealCfg(begin=0.4, end=0.95, kl=(0.01, 0.005), std_max=(0.12, 0.05), leg_floor=0.1, arm_floor=0.08), constraint=ConstraintCfg(weight_max=0.3),
        perception=PerceptionCfg(), weights={"foot_slip": -0.12, "away": -0.1, "strike_normal": 5.0, "strike_velocity": 4.0}),
}


@dataclass
class Session:
    """Everything one training process holds."""

    cfg: TrainCfg
    robot: Robot
    env: BatchVecEnv
    algorithm: BatchPPO
    curriculum: Curriculum

    def set_level(self) -> None:
        """Let robots differ as much as the curriculum's present level says, from their next episode on."""
        cfg, task = self.cfg.randomize, self.env.task
        task.randomize = cfg and cfg.scaled(self.curriculum.randomization(), self.robot.command_delay)


def make_swing_source(rng: np.random.Generator, curriculum: Curriculum, robot: Robot) -> Callable[[np.ndarray], Swings]:
    """What the task asks for new swings: drawn at the curriculum's present level."""
    pool = ShotPool(rng, robot.scale)
    return lambda ids: draw_swings(rng, len(ids), curriculum.span(robot.scale), pool)


Mode = Literal["sequential", "overlapped"]


def choose_mode(cores: int) -> Mode:
    """What is fastest on a machine with so many cores, as measured: see docs/performance.md."""
    return "overlapped" if cores > 1 else "sequential"


@dataclass(frozen=True)
class How:
    """How a run uses machines. mode: on this one; threads: for physics and torch, 0 for all cores; workers: sample in so many other
    processes; ray: address of the cluster they live in, "" for this machine; told: gets a line when workers come or go."""

    mode: Mode = "sequential"
    threads: int = 0
    workers: int = 0
    ray: str = ""
    told: Callable[[str], None] = print

    @property
    def cores(self) -> int:
        """Threads to use."""
        return self.threads or len(os.sched_getaffinity(0))


def build(cfg: TrainCfg, threads: int = 0, how: How | None = None) -> Session:
    """Robot, task, environment and algorithm of a run, seeded. threads: for physics and torch, 0 for all cores; how: more than that."""
    how = how or How(threads=threads)
    cores, away = how.cores, bool(how.workers or how.ray)
    robot = load_robot(cfg.robot)
    torch.manual_seed(cfg.seed)
    torch.set_num_threads(cores if how.mode == "sequential" and not away else max(1, cores // 2))
    curriculum = Curriculum(cfg.curriculum, spread=cfg.curriculum.start)
    source = make_swing_source(np.random.default_rng(cfg.seed + 1000), curriculum, robot)
    task = BadmintonTask(robot, cfg.robots, source, seed=cfg.seed, threads=cores, cfg=TaskCfg(perception=cfg.perception, weights=cfg.weights),
                         widths=curriculum.widths)
    env = BatchVecEnv(task)
    legs = np.ones(len(robot.joint_names), bool)
    legs[robot.arm_index] = False

    def make_source(policy: BadmintonPolicy) -> Source:
        if away:
            from policy.workers import Workers

            return Workers(cfg, how.workers, how.ray, curriculum.state, how.told)
        sampler = Sampler(env, copy.deepcopy(ActorForExport(policy)), cfg.horizon, cfg.seed + 2000)
        if cfg.lag:
            return Late(sampler, cfg.lag)
        return Sequential(sampler) if how.mode == "sequential" else Overlapped(sampler, 1)

    algorithm = BatchPPO(
        env, make_source, legs, cfg.total_steps, cfg.anneal, cfg.off_policy, cfg.constraint, learning_rate=cfg.learning_rate, n_steps=cfg.horizon,
        batch_size=cfg.minibatch, n_epochs=cfg.epochs, gamma=cfg.gamma, gae_lambda=cfg.gae_lambda, clip_range=0.2, ent_coef=cfg.entropy,
        vf_coef=1.0, max_grad_norm=1.0, seed=cfg.seed,
        policy_kwargs={"actor_size": task.actor_size, "std_init": np.where(legs, cfg.std_leg, cfg.std_arm),
                       "clip": task.contract.observation_clip, "constrained": cfg.constraint is not None},
    )
    session = Session(cfg, robot, env, algorithm, curriculum)
    session.set_level()
    return session


class Reporter(BaseCallback):
    """After each rollout: counts, curriculum, TensorBoard, progress line, checkpoints.

    reports: one dict per report, as written to --json.
    """

    def __init__(self, session: Session, run: Path, minutes_before: float, checkpoint_minutes: float, progress: Progress,
                 json_path: Path | None = None) -> None:
        super().__init__()
        self.session, self.run, self.minutes_before = session, run, minutes_before
        self.checkpoint_minutes, self.progress = checkpoint_minutes, progress
        self.commit = git_commit()  # of the code that was loaded: the folder may move on during a run
        self.report_files = [run / "reports.jsonl"]
        if json_path is not None:
            json_path.parent.mkdir(parents=True, exist_ok=True)
            json_path.write_text("")
            self.report_files.append(json_path)
        self.reports: list[dict[str, Any]] = []
        self.start = self.last_save = time.monotonic()
        self.start_steps = self.last_report = session.algorithm.num_timesteps
        self.last_report_time = self.start
        self.watch = Watch(session.algorithm.anneal.std_floor)
        self.bar = progress.add_task("training", total=session.algorithm.total_steps, completed=self.start_steps, note="warming up")

    @property
    def minutes(self) -> float:
        """Training time so far, earlier sessions of the run included."""
        return self.minutes_before + (time.monotonic() - self.start) / 60

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        s = self.session
        algorithm, curriculum, log = s.algorithm, s.curriculum, s.env.log
        self.progress.update(self.bar, completed=algorithm.num_timesteps)
        if algorithm.num_timesteps - curriculum.steps_at_update >= UPDATE_EVERY:
            position, velocity, cosine, seen = log.errors()
            if len(position) >= 100:
                self._report(position, velocity, cosine, seen)
                told = ~seen  # what a robot did not see well says nothing about its motion
                curriculum.update(algorithm.num_timesteps, position[told], velocity[told], cosine[told], log.falls / max(log.episodes, 1))
                s.set_level()
                s.env.log = StrikeLog()
        if time.monotonic() - self.last_save > 60 * self.checkpoint_minutes:
            self.save()

    def _report(self, position: np.ndarray, velocity: np.ndarray, cosine: np.ndarray, seen: np.ndarray) -> None:
        s = self.session
        algorithm, log = s.algorithm, s.env.log
        now = time.monotonic()
        rate = (algorithm.num_timesteps - self.last_report) / (now - self.last_report_time)
        self.last_report, self.last_report_time = algorithm.num_timesteps, now
        std = torch.exp(algorithm.policy.log_std.detach()).numpy()
        report: dict[str, Any] = {
            "steps": algorithm.num_timesteps, "minutes": round(self.minutes, 3), "steps_per_s": round(rate),
            "hit_rate": float(np.mean(position < HIT_RADIUS)), "median_position_error_m": float(np.median(position)),
            "p90_position_error_m": float(np.percentile(position, 90)), "median_velocity_error_mps": float(np.median(velocity)),
            "median_normal_angle_deg": float(np.rad2deg(np.arccos(np.clip(np.median(cosine), -1, 1)))),
            "fall_rate": log.falls / max(log.episodes, 1), "spread": s.curriculum.spread, "faults": dict(log.faults), "too_old": algorithm.too_old,
            "reward": log.reward / max(log.steps, 1), "std_leg": float(std[algorithm.legs].mean()),
            "std_arm": float(std[~algorithm.legs].mean()), "learning_rate": algorithm.rate,
            "over_current_rate": log.overloads / max(log.steps, 1), **algorithm.last_losses,
        }
        if log.known:
            hit = position < HIT_RADIUS
            report |= {"known_share": float(np.mean(log.known)), "interception_error_m": float(np.mean(log.off)) if log.off else None,
                       "hit_rate_told": float(hit[~seen].mean()) if (~seen).any() else None, "hit_rate_seen": float(hit[seen].mean()) if seen.any() else None,
                       "median_position_error_told_m": float(np.median(position[~seen])) if (~seen).any() else None}
        self.reports.append(report)
        for path in self.report_files:
            with path.open("a") as file:
                file.write(json.dumps(report) + "\n")
        for name, value in report.items():
            if name == "faults":
                for kind, count in log.faults.items():
                    algorithm.logger.record(f"faults/{kind}", count)
            elif name not in ("steps", "minutes"):
                algorithm.logger.record(f"birdie/{name}", value)
        for name, value in log.terms.items():
            algorithm.logger.record(f"reward/{name}", value / max(log.steps, 1))
        algorithm.logger.dump(step=algorithm.num_timesteps)
        note = f"{rate / 1000:.1f} k steps/s  hit {report['hit_rate']:.0%}  racket error {report['median_position_error_m'] * 100:.1f} cm"
        self.progress.update(self.bar, note=note)
        self.progress.console.print(
            f"{algorithm.num_timesteps / 1e6:5.2f} M {self.minutes:5.1f} min {rate / 1000:4.1f} k/s  spread {report['spread']:.2f}  "
            f"hit {report['hit_rate']:6.1%} {report['median_position_error_m'] * 100:5.1f} cm {report['median_velocity_error_mps']:5.2f} m/s "
            f"{report['median_normal_angle_deg']:2.0f} deg  falls {report['fall_rate']:.1%}  over current {report['over_current_rate']:.1%}"
            + (f"  told {report['hit_rate_told'] or 0:.1%} {(report['median_position_error_told_m'] or 0) * 100:.1f} cm, seen {report['hit_rate_seen'] or 0:.1%} "
               f"(known {report['known_share']:.0%}, off {(report['interception_error_m'] or 0) * 100:.0f} cm)" if "known_share" in report else ""), highlight=False, soft_wrap=True)
        anneal = algorithm.anneal
        for line in self.watch.look(report, algorithm.done_share, anneal.at(algorithm.done_share, anneal.kl), anneal.begin):
            self.progress.console.print(f"warning: {line}", highlight=False, soft_wrap=True)

    def save(self) -> Path:
        """Write a checkpoint now."""
        s = self.session
        extra = {"minutes": self.minutes, "curriculum": s.curriculum.state(), "cfg": asdict(s.cfg), "commit": self.commit}
        self.last_save = time.monotonic()
        return save_checkpoint(self.run / "checkpoints", s.algorithm, s.env.task.contract, extra)


def cfg_from_dict(data: dict[str, Any]) -> TrainCfg:
    """Inverse of dataclasses.asdict for TrainCfg."""
    data = dict(data)
    curriculum = dict(data["curriculum"])
    if "top_speed" in curriculum and "top_share" not in curriculum:  # m/s in runs from before the task took its scale from the robot
        curriculum["top_share"] = curriculum.pop("top_speed") / BEFORE_SCALES.swing_speed
    data["curriculum"] = CurriculumCfg(**curriculum)
    if data.setdefault("randomize", None) is not None:  # runs before there was any have no such key
        data["randomize"] = RandomizeCfg(**{k: (v[0], v[1]) for k, v in data["randomize"].items()})
    anneal: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data["anneal"].items()}
    data["anneal"] = AnnealCfg(**anneal)
    off = dict(data.get("off_policy") or asdict(OffPolicyCfg()))  # runs from before there was a choice have no such key
    bapo: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in off["bapo"].items()}
    data["off_policy"] = OffPolicyCfg(**{**off, "bapo": BapoCfg(**bapo)})
    if data.get("constraint") is not None:
        data["constraint"] = ConstraintCfg(**{k: v for k, v in data["constraint"].items() if k != "most"})  # until 279ea6b costs ended there
    if data.get("perception") is not None:
        seen = dict(data["perception"])
        data["perception"] = PerceptionCfg(**{**seen, "noise": NoiseCfg(**seen["noise"]), "steps_late": tuple(seen["steps_late"])})
    return TrainCfg(**data)


def resume_session(run: Path, total_steps: int | None, threads: int, how: How | None = None) -> tuple[Session, dict[str, Any]]:
    """The session of a run folder or checkpoint, as it was; total_steps, if given, makes the run longer or shorter."""
    checkpoint = newest_checkpoint(run)
    record = read_record(checkpoint)
    try:
        cfg = cfg_from_dict(record["cfg"])
    except (KeyError, TypeError) as error:
        raise UserError(f"{checkpoint}: its settings are not those of this birdie: {error}") from error
    if total_steps:
        cfg = replace(cfg, total_steps=total_steps)
    # other random draws than the first part's, the same ones whenever this checkpoint is resumed
    session = build(replace(cfg, seed=cfg.seed + record["steps"]), threads, how)
    session.cfg = cfg
    PolicyContract.from_json(json.dumps(record["contract"])).check_same(session.env.task.contract)
    load_state(checkpoint, session.algorithm)
    session.curriculum.restore(record["curriculum"])
    session.env.task.widths = session.curriculum.widths
    session.set_level()
    return session, record


def train(cfg: TrainCfg, run: Path, resume: Path | None = None, total_steps: int | None = None, checkpoint_minutes: float = 3.0,
          threads: int = 0, json_path: Path | None = None, console: Console | None = None, mode: Mode | None = None,
          workers: int = 0, ray: str = "", begin: Path | None = None) -> list[dict[str, Any]]:
    """Train until total_steps or Ctrl-C; returns the reports.

    run: folder for TensorBoard files, reports and checkpoints, made if missing. resume: run folder or checkpoint to go on
    from, with its settings. json_path: file for one JSON line per report. mode: how sampling and learning share the machine, None
    takes what is fastest on it. workers, ray: sample in other processes, see `How`. begin: run or checkpoint whose weights a new run begins with.
    """
    console = console or Console()
    if begin is not None and resume is not None:
        raise UserError("give either --resume, to go on with a run, or --begin-with, to start a new one from its weights")
    how = How(mode or choose_mode(threads or len(os.sched_getaffinity(0))), threads, workers, ray,
              lambda line: console.print(line, highlight=False, soft_wrap=True))
    minutes_before = 0.0
    if any((run / "checkpoints").glob("step_*")) and (resume is None or resume.resolve() != run.resolve()):
        raise UserError(f"{run} already holds a run; choose another --out, or go on with --resume {run}")
    if resume is not None:
        session, record = resume_session(resume, total_steps, threads, how)
        minutes_before = record["minutes"]
        if record["steps"] >= session.cfg.total_steps:
            raise UserError(f"{resume} is already at {record['steps']} of {session.cfg.total_steps} steps; "
                            "give --total-steps to train it further")
    else:
        session = build(cfg if total_steps is None else replace(cfg, total_steps=total_steps), threads, how)
        if begin is not None:
            console.print(begin_with(session, begin), highlight=False, soft_wrap=True)
    algorithm = session.algorithm
    run.mkdir(parents=True, exist_ok=True)
    algorithm.set_logger(Logger(str(run), [TensorBoardOutputFormat(str(run / "tensorboard"))]))
    if workers or ray:
        note = f"sampling by workers {f'of the cluster at {ray}' if ray else 'on this machine'}, learning on {torch.get_num_threads()} threads"
    else:
        note = (f"physics on {session.env.task.physics.batch.nthread} threads, learning on {torch.get_num_threads()}, "
                f"{'one after the other' if how.mode == 'sequential' else 'side by side: data is one update old'} "
                f"({'as asked' if mode else 'fastest here'}); bit by bit the same for a seed and a number of threads")
    console.print(f"{session.cfg.robots} robots; {note}; {session.cfg.total_steps / 1e6:g} M steps; writing to {run}", highlight=False, soft_wrap=True)
    columns = (TextColumn("{task.percentage:3.0f} %"), BarColumn(bar_width=24), TimeRemainingColumn(), TextColumn("{task.fields[note]}"))
    with Progress(*columns, console=console) as progress:
        session.env.black_box = BlackBox(session.env.task, run / "faults", {"robot": session.cfg.robot, "seed": session.cfg.seed},
                                         lambda line: progress.console.print(line, highlight=False, soft_wrap=True))
        reporter = Reporter(session, run, minutes_before, checkpoint_minutes, progress, json_path)
        try:
            algorithm.learn(session.cfg.total_steps - algorithm.num_timesteps, callback=reporter, reset_num_timesteps=False)
            stopped = False
        except KeyboardInterrupt:
            stopped = True
        finally:
            algorithm.source.close()
        saved = reporter.save()
    verb = "stopped; go on with: birdie train --resume" if stopped else "done; turn it into one file with: birdie export --run"
    console.print(f"saved {saved}\n{verb} {run}", highlight=False, soft_wrap=True)
    return reporter.reports
