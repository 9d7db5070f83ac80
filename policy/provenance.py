"""Facts about the running code that go into recordings."""

import json
import subprocess
from pathlib import Path
from typing import Any

from policy.inference import OnnxPolicy


def git_commit() -> str:
    """Commit of the code that runs, with + when it has changes; "unknown" outside a repository."""
    where = Path(__file__).parent
    try:
        head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=where, check=True)
        dirty = subprocess.run(["git", "status", "--porcelain", "-uno"], capture_output=True, text=True, cwd=where, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + ("+" if dirty.stdout.strip() else "")


def session_facts(policy: OnnxPolicy, seed: int, robot: str = "") -> dict[str, Any]:
    """Metadata of a recording: robot, contract, training record, seed, commit."""
    return {"robot": str(Path(robot).resolve()) if robot else policy.contract.robot, "seed": seed, "commit": git_commit(), "training": policy.training,
            "contract": json.loads(policy.contract.to_json())}
