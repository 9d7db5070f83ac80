"""The pieces of `birdie bench train`: each contender runs on the same task, phases add up, the cost model is its own arithmetic."""

from dataclasses import replace

import pytest

import policy.bench_train as bench
from policy.training import PRESETS, How

CFG = replace(PRESETS["default"], robots=16, minibatch=128, epochs=1, total_steps=10**9)


def test_every_contender_of_ours_makes_steps():
    assert bench._ours(CFG, How("sequential", 1), 0.2) > 100
    assert bench._ours(CFG, How("overlapped", 1), 0.2) > 100
    assert bench._handwritten(CFG, 1, 0.2) > 100


def test_phases_of_an_iteration_are_all_there_and_none_is_negative():
    phases = bench._phases(CFG, 1, 0.3)
    assert {"policy", "physics", "resets", "values", "gradient steps", "bookkeeping"} <= set(phases)
    assert min(phases.values()) >= 0 and phases["physics"] > phases["bookkeeping"]


def test_stock_stable_baselines3_runs_the_same_task_in_processes():
    assert bench._stock(replace(CFG, robots=8), 2) > 10


def test_cost_of_workers_is_arithmetic_on_what_was_measured():
    row = {"steps_per_s": 5000.0, "learner_steps_per_s": 20000.0, "bytes_per_step": 600.0, "weights_bytes": 3e5}
    cost = bench._cost({"1": row, "2": {**row, "steps_per_s": 8000.0, "learner_steps_per_s": 30000.0}})
    assert cost == {"worker_steps_per_s": 5000.0, "learner_steps_per_s": 30000.0, "workers_to_saturate": 6.0, "bytes_per_step": 600.0,
                    "weights_bytes": 3e5, "megabytes_per_s_when_saturated": 18.0}
    assert bench._cost({}) is None


def test_figures_have_the_keys_that_were_promised(monkeypatch):
    monkeypatch.setattr(bench, "STOCK_PROCESSES", (2,))
    monkeypatch.setattr(bench, "WORKERS", ())
    monkeypatch.setattr(bench, "ROUNDS", 1)
    monkeypatch.setattr(bench, "_independent", lambda cfg, seconds: 1000.0)  # two processes that import torch: too slow for a test
    monkeypatch.setattr(bench, "_stock", lambda cfg, processes: 500.0)
    said = []
    f = bench.bench_train(16, 0.2, 1, said.append)
    for key in ("raw_physics_steps_per_s", "ppo_steps_per_s", "stock_sb3_steps_per_s", "handwritten_steps_per_s", "two_independent_steps_per_s",
                "env_ratio", "phases_ms", "mode"):
        assert key in f
    assert f["mode"] == "sequential" and f["ppo_over_stock"] == pytest.approx(f["ppo_steps_per_s"] / 500.0)
    assert f["iteration_ms"] == pytest.approx(sum(f["phases_ms"].values()))
    assert any("handwritten" in line for line in said)
