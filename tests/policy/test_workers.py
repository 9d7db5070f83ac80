"""Sampling by Ray workers: they may die, the learner may die, and strangers are refused by name."""

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

import policy.workers
from perception.errors import UserError
from policy.checkpoint import newest_checkpoint, read_record
from policy.ppo import BatchPPO
from policy.training import PRESETS, train

TINY = replace(PRESETS["default"], robots=32, minibatch=256, epochs=1, total_steps=32 * 24 * 25)


def test_run_outlives_a_killed_worker_and_says_so(tmp_path, monkeypatch):
    out = StringIO()
    versions, killed = [], []
    original = BatchPPO.train

    def spying(self):
        versions.append(self.version - self.rollout.version)
        if len(versions) == 5:
            victim = re.search(r"worker 0 \(process (\d+)", out.getvalue())
            os.kill(int(victim[1]), signal.SIGKILL)
            killed.append(victim[1])
        original(self)

    monkeypatch.setattr(BatchPPO, "train", spying)
    train(TINY, tmp_path, threads=1, workers=2, console=Console(file=out, width=400, force_terminal=False))
    text = out.getvalue()
    assert killed and re.search(rf"worker 0 \(process {killed[0]} on .*\) is gone", text)
    assert "worker 2 (process" in text or len(versions) == 25  # its replacement joined, unless the run was over before
    assert read_record(newest_checkpoint(tmp_path))["steps"] == TINY.total_steps and len(versions) == 25
    assert max(versions) <= 4 and sum(v > 0 for v in versions) > 10  # data is stale, within the limit


def test_workers_with_another_version_of_the_code_are_refused_by_name(tmp_path, monkeypatch):
    out = StringIO()
    honest = policy.workers.fingerprint(TINY.robot)
    monkeypatch.setattr(policy.workers, "fingerprint", lambda robot: {**honest, "code": "an-older-one"})
    with pytest.raises(UserError, match=f"code {honest['code']} instead of an-older-one"):
        train(TINY, tmp_path, threads=1, workers=2, console=Console(file=out, width=400))
    assert len(re.findall(r"worker \d \(process \d+ on .*\) refused: it has code", out.getvalue())) == 2


def test_fingerprint_tells_robots_apart():
    one, other = policy.workers.fingerprint("anymal_dynaarm"), policy.workers.fingerprint("go2_x5")
    assert one["robot"] != other["robot"] and one["code"] == other["code"]


RUN = """
import sys
from dataclasses import replace
from pathlib import Path
from policy.training import PRESETS, train
if __name__ == "__main__":
    cfg = replace(PRESETS["default"], robots=32, minibatch=256, epochs=1, total_steps=32 * 24 * 4000)
    train(cfg, Path(sys.argv[1]), threads=1, workers=2, checkpoint_minutes=0.02)
"""


def test_killed_learner_leaves_no_process_and_resumes(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(RUN)
    run = tmp_path / "run"
    learner = subprocess.Popen([sys.executable, str(script), str(run)], stdout=subprocess.PIPE, text=True)
    pids, end = [], time.monotonic() + 90
    assert learner.stdout is not None
    while time.monotonic() < end and len(pids) < 2:
        if found := re.search(r"process (\d+) on", learner.stdout.readline()):
            pids.append(int(found[1]))
    while time.monotonic() < end and not list(run.glob("checkpoints/step_*/checkpoint.json")):
        time.sleep(0.2)
    learner.kill()
    learner.wait()
    steps = read_record(newest_checkpoint(run))["steps"]
    while time.monotonic() < end and any(os.path.exists(f"/proc/{p}") for p in pids):
        time.sleep(0.2)
    assert steps > 0 and not any(os.path.exists(f"/proc/{p}") for p in pids)
    train(TINY, run, resume=run, total_steps=steps + 32 * 24 * 3, threads=1, console=Console(quiet=True))
    assert read_record(newest_checkpoint(run))["steps"] == steps + 32 * 24 * 3


def test_cluster_that_is_not_there_is_one_clear_line(tmp_path):
    with pytest.raises(UserError, match=r"no Ray cluster at 127.0.0.1:1"):
        train(TINY, tmp_path, threads=1, ray="127.0.0.1:1", console=Console(quiet=True))
