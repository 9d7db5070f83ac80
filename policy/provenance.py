"""Facts about the running code that go into recordings."""

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

from policy.inference import OnnxPolicy
from sim.robot import available_robots


def git_commit() -> str:
    """Commit of the code that runs, with + when it has changes; "unknown" outside a repository."""
    where = Path(__file__).parent
    try:
        head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=where, check=True)
        dirty = subprocess.run(["git", "status", "--porcelain", "-uno"], capture_output=True, text=True, cwd=where, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + ("+" if dirty.stdout.strip() else "")


def robot_hash(robot: str) -> str:
    """Of the files in a robot's folder, given by its name or path: the same robot gives the same twelve digits on every machine."""
    files = hashlib.sha256()
    for path in sorted(available_robots().get(robot, Path(robot)).glob("*.*")):
        files.update(path.name.encode() + path.read_bytes())
    return files.hexdigest()[:12]


def session_facts(policy: OnnxPolicy, seed: int, robot: str = "") -> dict[str, Any]:
    """Metadata of a recording: robot, hash of its folder, contract, training record, seed, commit."""
    name = str(Path(robot).resolve()) if robot else policy.contract.robot
    return {"robot": name, "robot_hash": robot_hash(name), "seed": seed, "commit": git_commit(), "training": policy.training,
            "contract": json.loads(policy.contract.to_json())}
