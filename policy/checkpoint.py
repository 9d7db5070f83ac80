"""Checkpoints: a folder with `state.pt` (tensors only) and `checkpoint.json` (contract, counters, curriculum, settings).

No pickled objects: the tensors load with `weights_only`, the rest is text. A checkpoint is written beside its final name
and moved into place, so an interrupted write never leaves half of one.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from perception.errors import UserError
from policy.contract import PolicyContract
from policy.ppo import BatchPPO

KEEP = 2  # newest checkpoints kept per run


def save_checkpoint(folder: Path, algorithm: BatchPPO, contract: PolicyContract, extra: dict[str, Any]) -> Path:
    """Write folder/step_<steps> and drop all but the newest KEEP. extra goes into the JSON. Returns the checkpoint."""
    final = folder / f"step_{algorithm.num_timesteps:011d}"
    draft = folder / (final.name + ".part")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    torch.save({"policy": algorithm.policy.state_dict(), "optimizer": algorithm.policy.optimizer.state_dict(),
                "torch_rng": torch.get_rng_state()}, draft / "state.pt")
    record = {"steps": algorithm.num_timesteps, "learning_rate": algorithm.rate, "updates": algorithm._n_updates,
              "total_steps": algorithm.total_steps, "contract": json.loads(contract.to_json()), **extra}
    (draft / "checkpoint.json").write_text(json.dumps(record, indent=1))
    shutil.rmtree(final, ignore_errors=True)
    draft.rename(final)
    for old in sorted(folder.glob("step_*[0-9]"))[:-KEEP]:
        if old != final:
            shutil.rmtree(old)
    return final


def newest_checkpoint(run: Path) -> Path:
    """The newest checkpoint of a run folder, or the folder itself when it is a checkpoint. Raises UserError if there is none."""
    if (run / "checkpoint.json").is_file():
        return run
    found = sorted((run / "checkpoints").glob("step_*[0-9]"))
    if not found:
        raise UserError(f"no checkpoint in {run}: give a run folder (runs/train/...) or a folder with checkpoint.json")
    return found[-1]


def read_record(checkpoint: Path) -> dict[str, Any]:
    """The JSON of a checkpoint. Raises UserError when it cannot be read."""
    try:
        return json.loads((checkpoint / "checkpoint.json").read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise UserError(f"{checkpoint / 'checkpoint.json'} cannot be read: {error}") from error


def load_state(checkpoint: Path, algorithm: BatchPPO) -> dict[str, Any]:
    """Put weights, optimiser and counters of a checkpoint into an algorithm; returns the JSON record."""
    record = read_record(checkpoint)
    try:
        state = torch.load(checkpoint / "state.pt", weights_only=True)
        algorithm.policy.load_state_dict(state["policy"])
        algorithm.policy.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["torch_rng"])
    except Exception as error:  # torch raises half a dozen types for a bad file
        raise UserError(f"{checkpoint / 'state.pt'} does not fit or is damaged: {str(error).splitlines()[0]}") from error
    algorithm.num_timesteps = record["steps"]
    algorithm.rate = record["learning_rate"]
    algorithm._n_updates = record["updates"]
    return record
