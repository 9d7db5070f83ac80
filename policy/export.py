"""Trained weights to one ONNX file with the contract in its metadata, checked through onnxruntime before it is kept."""

import json
import logging
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

from perception.errors import UserError
from policy.checkpoint import load_state, newest_checkpoint, read_record
from policy.contract import PolicyContract
from policy.inference import METADATA_CONTRACT, METADATA_TRAINING, OnnxPolicy
from policy.networks import ActorForExport
from policy.training import build, cfg_from_dict

TOLERANCE = 1e-5  # largest difference between torch and onnxruntime allowed on an action


def export_policy(run: Path, out: Path) -> dict[str, Any]:
    """Export the newest checkpoint of a run (or a checkpoint folder) to out.

    The graph takes `observation` (N, A) as `build_observation` gives it, mirrored for the target's side, and returns
    `action` (N, J) before scale and offset; both names and the normaliser are in the graph, the rest in the contract.
    Returns the training record with the largest torch-onnxruntime difference. Raises UserError when that exceeds TOLERANCE.
    """
    checkpoint = newest_checkpoint(run)
    record = read_record(checkpoint)
    cfg = cfg_from_dict(record["cfg"])
    session = build(replace(cfg, robots=2, minibatch=2 * cfg.horizon))
    load_state(checkpoint, session.algorithm)
    contract = PolicyContract.from_json(json.dumps(record["contract"]))
    actor = ActorForExport(session.algorithm.policy).eval()
    training = {k: record[k] for k in ("steps", "minutes", "commit", "cfg")}
    return {**training, "onnx_difference": write_onnx(actor, contract, training, out)}


def write_onnx(actor: ActorForExport, contract: PolicyContract, training: dict[str, Any], out: Path) -> float:
    """Write actor and contract to out; returns the largest difference to torch over 256 observations within 6 sigma."""
    size = sum(t.size for t in contract.observation)
    example = torch.zeros(2, size)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it reports that torchvision, which nothing here needs, is missing
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # raised inside torch's own exporter
        program = torch.onnx.export(actor, (example,), input_names=["observation"], output_names=["action"], dynamo=True,
                                    dynamic_shapes=({0: torch.export.Dim("robots")},), verbose=False)
    assert program is not None  # only None when a file is written directly
    model = program.model_proto
    onnx.helper.set_model_props(model, {METADATA_CONTRACT: contract.to_json(), METADATA_TRAINING: json.dumps(training)})
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = out.with_suffix(".part")
    onnx.save_model(model, str(draft), save_as_external_data=False)
    deviation = torch.sqrt(actor.normaliser.variance)
    observation = actor.normaliser.mean + deviation * torch.empty(256, size).uniform_(-6, 6)
    with torch.no_grad():
        expected = actor(observation).numpy()
    difference = float(np.abs(OnnxPolicy(draft)(observation.numpy()) - expected).max())
    if difference > TOLERANCE * max(1.0, float(np.abs(expected).max())):
        draft.unlink()
        raise UserError(f"onnxruntime and torch differ by {difference:.2e} on {out.name}; nothing was written")
    draft.replace(out)
    return difference
