"""Robots driven by a frozen copy of the policy: what fills rollouts, in this thread, in another one or on another machine."""

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from policy.networks import HALF_LOG_TWO_PI, ActorForExport, BadmintonPolicy
from policy.rollout import Rollout, StrikeLog
from policy.vec_env import BatchVecEnv


@dataclass(frozen=True)
class Behaviour:
    """Copy of what chooses actions. actor: state of an `ActorForExport`, normaliser included; log_std (J,); version: updates it has seen."""

    actor: dict[str, Tensor]
    log_std: Tensor
    version: int

    @staticmethod
    def of(policy: BadmintonPolicy, version: int) -> "Behaviour":
        """The policy as it is now; later updates do not reach the copy."""
        state = ActorForExport(policy).state_dict()
        return Behaviour({k: v.detach().clone() for k, v in state.items()}, policy.log_std.detach().clone(), version)

    @property
    def nbytes(self) -> int:
        """Bytes that travel to a worker."""
        return sum(v.numel() * v.element_size() for v in [*self.actor.values(), self.log_std])


class Sampler:
    """Fills rollouts of `horizon` steps with robots that go on from one rollout to the next.

    Two rollouts are filled in turn: the one handed out last stays whole while the next is made.
    """

    def __init__(self, env: BatchVecEnv, actor: ActorForExport, horizon: int, seed: int) -> None:
        self.env, self.actor, self.horizon = env, actor.eval(), horizon
        self.generator = torch.Generator().manual_seed(seed)
        size, joints = env.observation_space.shape[0], env.action_space.shape[0]  # type: ignore[index]
        self.actor_size = env.task.actor_size
        self._rooms = [Rollout.empty(horizon, env.num_envs, size, joints) for _ in range(2)]
        self._last: Tensor | None = None

    @torch.no_grad()
    def collect(self, behaviour: Behaviour) -> Rollout:
        """The next rollout, by this policy."""
        self._rooms.reverse()
        out, clock = self._rooms[0], time.perf_counter
        self.actor.load_state_dict(behaviour.actor)
        log_std = behaviour.log_std
        std, offset = torch.exp(log_std), float(log_std.sum()) + len(log_std) * HALF_LOG_TWO_PI
        if self._last is None:
            self._last = torch.from_numpy(self.env.reset())
        last = self._last
        log, spent = StrikeLog(), {"policy": 0.0, "task": 0.0}
        truncated, terminal = [], []
        for t in range(self.horizon):
            start = clock()
            noise = torch.randn(out.action.shape[1:], generator=self.generator)
            action = self.actor(last[:, : self.actor_size]) + std * noise
            out.log_prob[t] = -0.5 * (noise * noise).sum(1) - offset  # log N(action; mean, std)
            out.observation[t], out.action[t] = last, action
            mid = clock()
            step = self.env.step_arrays(action.numpy(), log)
            out.reward[t] = torch.from_numpy(step.reward)
            out.done[t] = torch.from_numpy(step.done)
            out.load[t] = torch.from_numpy(step.load)
            if step.truncated.any():
                rows = torch.from_numpy(step.truncated).nonzero()
                truncated.append(torch.cat([torch.full_like(rows, t), rows], dim=1))
                terminal.append(torch.from_numpy(step.terminal_observation[step.truncated[step.done]]))
            last = torch.from_numpy(step.observation)
            spent["policy"] += mid - start
            spent["task"] += clock() - mid
        self._last = last
        out.last_observation = last
        none = Rollout.empty(0, 0, last.shape[1], 0)
        out.truncated = torch.cat(truncated or [none.truncated])
        out.truncated_observation = torch.cat(terminal or [none.truncated_observation])
        out.version, out.log, out.seconds = behaviour.version, log, spent
        return out
