"""PPO on stable-baselines3, fitted to a batched task on a CPU.

What differs from its PPO: rollouts stay torch tensors and are permuted once per epoch; values are computed once per rollout
instead of once per step; truncated episodes are bootstrapped in one call; the learning rate follows the KL divergence;
exploration widths are bounded by a schedule; the normaliser inside the policy learns after each update, so that it
never moves between sampling and learning.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor
from torch.nn import functional as F

from perception.errors import UserError
from policy.networks import BadmintonPolicy
from policy.vec_env import BatchVecEnv


@dataclass(frozen=True)
class AnnealCfg:
    """Schedules over the share of the run that is done: constant until `begin`, linear to the end value at `end`.

    kl: target of the adaptive learning rate; std_max: ceiling of the exploration widths; std_floor, leg_floor: floors, the
    legs' only until `begin`: an arm that hits well lets the legs fall asleep otherwise.
    """

    begin: float = 0.5
    end: float = 0.95
    kl: tuple[float, float] = (0.03, 0.01)
    std_max: tuple[float, float] = (0.5, 0.10)
    std_floor: float = 0.04
    leg_floor: float = 0.3

    def at(self, done: float, pair: tuple[float, float]) -> float:
        """Value of one schedule when the share done of the run is over."""
        x = np.clip((done - self.begin) / (self.end - self.begin), 0.0, 1.0)
        return float(pair[0] + x * (pair[1] - pair[0]))


@torch.no_grad()
def generalised_advantage(rewards: Tensor, values: Tensor, last_value: Tensor, dones: Tensor, gamma: float, lam: float) -> Tensor:
    """Advantages (T, N) of Schulman et al. 2016 (arXiv 1506.02438, eq. 16). rewards, values (T, N); last_value (N,); dones
    (T, N): the episode ended at this step, so nothing after it counts. Truncation is bootstrapped in the rewards."""
    advantages = torch.empty_like(rewards)
    running = torch.zeros_like(last_value)
    following = last_value
    for t in range(len(rewards) - 1, -1, -1):
        alive = 1.0 - dones[t]
        delta = rewards[t] + gamma * following * alive - values[t]
        running = delta + gamma * lam * alive * running
        advantages[t] = running
        following = values[t]
    return advantages


def adapt_rate(rate: float, kl: float, target: float) -> float:
    """Next learning rate: less when the last epoch moved the policy more than twice the target KL, more under half of it."""
    if kl > 2 * target:
        rate /= 1.5
    elif kl < 0.5 * target:
        rate *= 1.5
    return float(np.clip(rate, 1e-5, 2e-3))


class BatchPPO(PPO):
    """PPO over a BatchVecEnv. legs: (J,) bool, joints whose exploration has its own floor. total_steps: length of the run
    that the schedules are spread over. phase_seconds: wall time spent by phase."""

    policy: BadmintonPolicy
    env: BatchVecEnv

    def __init__(self, env: VecEnv, legs: np.ndarray, total_steps: int, anneal: AnnealCfg = AnnealCfg(), **kwargs: Any) -> None:
        super().__init__(BadmintonPolicy, env, device="cpu", **kwargs)
        self.legs, self.anneal, self.total_steps = legs, anneal, total_steps
        self.rate = float(self.learning_rate) if not callable(self.learning_rate) else 5e-4
        self.last_losses: dict[str, float] = {}
        self.phase_seconds = {"policy": 0.0, "task": 0.0, "values": 0.0, "learn": 0.0}
        self.task_step: Callable = self.env.step_arrays
        n, t = env.num_envs, self.n_steps
        size, joints = env.observation_space.shape[0], env.action_space.shape[0]  # type: ignore[index]
        self._obs, self._act = torch.empty(t, n, size), torch.empty(t, n, joints)
        self._logp, self._rew, self._done = torch.empty(t, n), torch.empty(t, n), torch.empty(t, n)

    @property
    def done_share(self) -> float:
        """How much of the run is over, 0 to 1."""
        return self.num_timesteps / self.total_steps

    def collect_rollouts(self, env: VecEnv, callback: BaseCallback, rollout_buffer: Any, n_rollout_steps: int) -> bool:
        """Fill the tensors with n_rollout_steps steps of every robot, then compute values and advantages in one go."""
        policy, clock = self.policy, time.perf_counter
        policy.set_training_mode(False)
        callback.on_rollout_start()
        std = torch.exp(policy.log_std.detach())
        last_obs = torch.as_tensor(self._last_obs)
        bootstraps: list[tuple[int, np.ndarray, np.ndarray]] = []
        for t in range(n_rollout_steps):
            start = clock()
            with torch.no_grad():
                mean = policy.action_net(policy.mlp_extractor.forward_actor(last_obs))
                noise = torch.randn_like(mean)
                action = mean + std * noise
                self._logp[t] = (-0.5 * noise**2 - torch.log(std) - 0.9189385332).sum(1)  # log N(action; mean, std)
            self._obs[t], self._act[t] = last_obs, action
            mid = clock()
            step = self.task_step(action.numpy())
            self._rew[t] = torch.from_numpy(step.reward)
            self._done[t] = torch.from_numpy(step.done)
            if step.truncated.any():
                bootstraps.append((t, np.flatnonzero(step.truncated), step.terminal_observation[step.truncated[step.done]]))
            last_obs = torch.from_numpy(step.observation)
            self.phase_seconds["policy"] += mid - start
            self.phase_seconds["task"] += clock() - mid
            self.num_timesteps += env.num_envs
            if not callback.on_step():
                return False
        start = clock()
        self._last_obs = last_obs.numpy()
        with torch.no_grad():
            for t, rows, terminal in bootstraps:
                self._rew[t, rows] += self.gamma * policy.predict_values(torch.from_numpy(terminal)).flatten()
            self._values = policy.predict_values(self._obs.flatten(0, 1)).view(n_rollout_steps, -1)
            last_value = policy.predict_values(last_obs).flatten()
        self._adv = generalised_advantage(self._rew, self._values, last_value, self._done, self.gamma, self.gae_lambda)
        self.phase_seconds["values"] += clock() - start
        callback.on_rollout_end()
        return True

    def train(self) -> None:
        """Clipped PPO epochs over the rollout (Schulman et al. 2017, arXiv 1707.06347), then schedules and normaliser."""
        start = time.perf_counter()
        policy = self.policy
        policy.set_training_mode(True)
        obs, act = self._obs.flatten(0, 1), self._act.flatten(0, 1)
        logp, adv = self._logp.flatten(), self._adv.flatten()
        returns = adv + self._values.flatten()
        clip = float(self.clip_range(1.0))  # type: ignore[operator]
        target = self.anneal.at(self.done_share, self.anneal.kl)
        sums = {"policy_loss": 0.0, "value_loss": 0.0, "entropy": 0.0, "kl": 0.0, "clip_fraction": 0.0}
        batches = 0
        for _ in range(self.n_epochs):
            for group in policy.optimizer.param_groups:
                group["lr"] = self.rate
            epoch_kl, parts = 0.0, 0
            order = torch.randperm(len(obs))
            p_obs, p_act, p_logp, p_adv, p_ret = obs[order], act[order], logp[order], adv[order], returns[order]
            for i in range(0, len(obs), self.batch_size):
                part = slice(i, i + self.batch_size)
                values, new_logp, entropy = policy.evaluate_actions(p_obs[part], p_act[part])
                advantage = p_adv[part]
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                log_ratio = new_logp - p_logp[part]
                ratio = torch.exp(log_ratio)
                surrogate = torch.min(advantage * ratio, advantage * torch.clamp(ratio, 1 - clip, 1 + clip)).mean()
                value_loss = F.mse_loss(values.flatten(), p_ret[part])
                mean_entropy = entropy.mean()  # type: ignore[union-attr]
                loss = -surrogate - self.ent_coef * mean_entropy + self.vf_coef * value_loss
                policy.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(policy.parameters(), self.max_grad_norm)
                policy.optimizer.step()
                with torch.no_grad():
                    kl = float((ratio - 1 - log_ratio).mean())  # Schulman's k3 estimate, http://joschu.net/blog/kl-approx.html
                    clipped = float(((ratio - 1).abs() > clip).float().mean())
                epoch_kl, parts, batches = epoch_kl + kl, parts + 1, batches + 1
                for name, value in zip(sums, (-surrogate, value_loss, mean_entropy, kl, clipped), strict=True):
                    sums[name] += float(value.detach()) if isinstance(value, Tensor) else value
            self.rate = adapt_rate(self.rate, epoch_kl / parts, target)
            self._n_updates += 1
        self.apply_schedules()
        policy.mlp_extractor.normaliser.update(obs)  # type: ignore[union-attr, operator]
        self.last_losses = {name: value / batches for name, value in sums.items()}
        spread = torch.var(returns)
        self.last_losses["explained_variance"] = float(1 - torch.var(returns - self._values.flatten()) / spread)
        if not np.isfinite(list(self.last_losses.values())).all():
            raise UserError(f"PPO losses are not finite ({self.last_losses}); this usually means a reward or an observation "
                            "is: look at the last rewards in TensorBoard; the last checkpoint is from before")
        for name, value in self.last_losses.items():
            self.logger.record(f"train/{name}", value)
        self.logger.record("train/learning_rate", self.rate)
        self.phase_seconds["learn"] += time.perf_counter() - start

    def apply_schedules(self) -> None:
        """Bound the exploration widths for the present share of the run."""
        a = self.anneal
        ceiling = a.at(self.done_share, a.std_max)
        leg_floor = a.leg_floor if self.done_share < a.begin else a.std_floor
        floor = np.where(self.legs, min(leg_floor, ceiling), a.std_floor)
        self.policy.clamp_std(floor, ceiling)
