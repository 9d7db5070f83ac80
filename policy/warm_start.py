"""Begin a run with the weights of another: a policy that knows less grows into a task that shows more.

Inputs that the older policy did not have start with zero weights, so that the new policy does at first exactly what the old one did. What
has no counterpart, such as the critic of a cost, starts fresh, and so do the optimiser and all schedules. The normaliser keeps all
it has counted: statistics that move quickly to the new task's move the old policy with them. New inputs start with mean 0 and variance 1.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from perception.errors import UserError
from policy.checkpoint import newest_checkpoint, read_record
from policy.contract import PolicyContract

if TYPE_CHECKING:
    from policy.training import Session

Columns = list[tuple[int, int, int]]  # (place in the old observation, place in the new one, length)


def begin_with(session: "Session", source: Path) -> str:
    """Copy the weights of the newest checkpoint of `source` into a session; returns a line that says what was taken.

    Raises UserError where the robot is another one, or the network has another shape than that of its inputs.
    """
    checkpoint = newest_checkpoint(source)
    record, task, policy = read_record(checkpoint), session.env.task, session.algorithm.policy
    old, new = PolicyContract.from_json(json.dumps(record["contract"])), task.contract
    if old.robot != new.robot or old.joint_names != new.joint_names:
        raise UserError(f"{checkpoint} is of robot {old.robot} with other joints; begin with a run of {new.robot}")
    try:
        state: dict[str, Tensor] = torch.load(checkpoint / "state.pt", weights_only=True)["policy"]
    except Exception as error:  # torch raises half a dozen types for a bad file
        raise UserError(f"{checkpoint / 'state.pt'} cannot be read: {str(error).splitlines()[0]}") from error
    actor = _columns(old, new)
    own = policy.state_dict()
    old_actor, new_actor = sum(t.size for t in old.observation), sum(t.size for t in new.observation)
    old_size, new_size = len(state["mlp_extractor.normaliser.mean"]), len(own["mlp_extractor.normaliser.mean"])
    extra = min(old_size - old_actor, new_size - new_actor)
    whole = [*actor, (old_actor, new_actor, extra)]
    taken, fresh = 0, []
    for name, value in own.items():
        given = state.get(name)
        if given is None:
            fresh.append(name.split(".")[0])
        elif given.shape == value.shape:
            value.copy_(given)
            taken += value.numel()
        elif name in ("mlp_extractor.normaliser.mean", "mlp_extractor.normaliser.variance"):
            _place(given[None], value[None], whole)
        elif name in ("mlp_extractor.actor.0.weight", "mlp_extractor.critic.0.weight") and given.shape[0] == value.shape[0]:
            value.zero_()
            _place(given, value, actor if "actor" in name else whole)
            taken += given.numel()
        else:
            raise UserError(f"{checkpoint}: {name} has shape {tuple(given.shape)}, here it is {tuple(value.shape)}; the networks must be of one size")
    policy.load_state_dict(own)
    if "curriculum" in record:
        session.curriculum.restore({**record["curriculum"], "spread": session.curriculum.spread, "steps_at_update": 0})
        task.widths = session.curriculum.widths
    session.algorithm.apply_schedules()
    unknown = [t.name for t in new.observation if t.name not in {o.name for o in old.observation}]
    return (f"begins with {checkpoint} ({record['steps'] / 1e6:.1f} M steps): {taken} weights"
            + (f"; new inputs {', '.join(unknown)}" if unknown else "") + (f"; fresh {', '.join(sorted(set(fresh)))}" if fresh else ""))


def _columns(old: PolicyContract, new: PolicyContract) -> Columns:
    """Where the terms of the old observation are in the new one, by name."""
    places, start = {}, 0
    for term in new.observation:
        places[term.name] = (start, term)
        start += term.size
    out: Columns = []
    start = 0
    for term in old.observation:
        at = places.get(term.name)
        if at is None or at[1] != term:
            raise UserError(f"the older policy is told of {term}, and this task says nothing like it")
        out.append((start, at[0], term.size))
        start += term.size
    return out


def _place(given: Tensor, value: Tensor, columns: Columns) -> None:
    for old, new, size in columns:
        value[:, new : new + size] = given[:, old : old + size]
