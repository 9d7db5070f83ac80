"""Does stale data hurt, and do BAPO or a proximal policy help? `birdie bench stale`: runs of every variant with several seeds.

Runs are single-threaded, as many side by side as there are cores, each in a folder of its own; a run that is finished is not made
again, so the study can be stopped and taken up.
"""

import json
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from policy.off_policy import OffPolicyCfg


@dataclass(frozen=True)
class Variant:
    """name; lag: updates that the sampling policy is behind; off_policy: options of the learner."""

    name: str
    lag: int
    off_policy: OffPolicyCfg


PLAIN, BAPO, PROXIMAL = OffPolicyCfg(proximal=False), OffPolicyCfg(clip="bapo", proximal=False), OffPolicyCfg(proximal=True)
VARIANTS = (
    *(Variant(f"plain, {lag} late", lag, PLAIN) for lag in (0, 1, 4)),
    *(Variant(f"BAPO, {lag} late", lag, BAPO) for lag in (0, 1, 4)),
    *(Variant(f"proximal, {lag} late", lag, PROXIMAL) for lag in (1, 4)),
)


def _run(variant: Variant, seed: int, steps: int, robots: int, folder: Path) -> None:
    from rich.console import Console

    from policy.ppo import AnnealCfg
    from policy.training import TrainCfg, train

    os.nice(10)
    whole = AnnealCfg(begin=10.0, end=20.0)  # widths and KL stay where a long run has them at its beginning
    cfg = TrainCfg(total_steps=steps, robots=robots, minibatch=robots * 8, seed=seed, anneal=whole, off_policy=variant.off_policy, lag=variant.lag)
    draft = folder / "draft.jsonl"
    train(cfg, folder, threads=1, json_path=draft, console=Console(quiet=True), mode="sequential")
    draft.rename(folder / "done.jsonl")


def study(out: Path, steps: int, seeds: tuple[int, ...], robots: int = 512, told: Callable[[int, int], None] = lambda done, total: None,
          variants: tuple[Variant, ...] = VARIANTS) -> dict[str, Any]:
    """Make all runs that are missing in out, then sum up: by variant the median, lowest and highest of the seeds at each report.

    told(done, total) is called after every run.
    """
    jobs = [(v, s, out / f"{v.name.replace(', ', '_').replace(' ', '_')}_seed{s}") for s in seeds for v in variants]
    missing = [j for j in jobs if not (j[2] / "done.jsonl").is_file()]
    done = len(jobs) - len(missing)
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        for future in as_completed([pool.submit(_fresh, v, s, steps, robots, folder) for v, s, folder in missing]):
            future.result()
            done += 1
            told(done, len(jobs))
    rows = []
    for v in variants:
        reports = [[json.loads(line) for line in (f / "done.jsonl").read_text().splitlines()] for w, _, f in jobs if w == v]
        rows.append({"variant": v.name, "lag": v.lag, "seeds": list(seeds), "steps": [r["steps"] for r in reports[0]],
                     **{key: _spread(reports, key) for key in FIGURES}})
    return {"steps": steps, "robots": robots, "variants": rows}


FIGURES = ("minutes", "hit_rate", "median_position_error_m", "entropy", "kl", "learning_rate", "clip_fraction", "clip_low", "clip_high", "fall_rate")


def _fresh(variant: Variant, seed: int, steps: int, robots: int, folder: Path) -> None:
    """One run in its folder, without what a run that was cut off left there."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
    _run(variant, seed, steps, robots, folder)


def _spread(reports: list[list[dict[str, float]]], key: str) -> dict[str, list[float]]:
    values = np.array([[r[key] for r in run] for run in reports])
    return {"median": np.median(values, axis=0).tolist(), "low": values.min(axis=0).tolist(), "high": values.max(axis=0).tolist()}


def plot(figures: dict[str, Any], target: Path) -> None:
    """Hit rate, racket error and entropy over steps, a line per variant, a band over its seeds."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    panels = (("hit_rate", "hit rate"), ("median_position_error_m", "racket error [m]"), ("entropy", "entropy [nat]"))
    figure, axes = pyplot.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
    colours = {"plain": "tab:blue", "BAPO": "tab:orange", "proximal": "tab:green"}
    for row in figures["variants"]:
        style = {0: "-", 1: "--", 4: ":"}.get(row["lag"], "-.")
        colour = colours.get(row["variant"].split(",")[0], "tab:gray")
        for axis, (key, label) in zip(axes, panels, strict=True):
            x = np.array(row["steps"]) / 1e6
            axis.plot(x, row[key]["median"], style, color=colour, label=row["variant"])
            axis.fill_between(x, row[key]["low"], row[key]["high"], color=colour, alpha=0.08, linewidth=0)
            axis.set(xlabel="million steps", ylabel=label)
    axes[0].legend(fontsize=8)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=110)
    pyplot.close(figure)
