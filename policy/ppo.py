"""PPO on stable-baselines3, fitted to a batched task on a CPU.

What differs from its PPO: rollouts are torch tensors that a `Source` hands over, sampled before, beside or far from the learner,
and permuted once per epoch; values are computed once per rollout instead of once per step; truncated episodes are bootstrapped in
one call; the learning rate follows the KL divergence; exploration widths are bounded by a schedule; the normaliser inside the policy
learns after each update, so that it never moves within one; updates from data of an older policy, see `off_policy.py`.
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
from policy.constraint import ConstraintCfg, normalised_cost, penalty
from policy.networks import BadmintonPolicy
from policy.off_policy import OffPolicyCfg, balanced_bounds, behaviour_weight, clipped_objective
from policy.rollout import Rollout
from policy.sampler import Behaviour
from policy.sources import Source
from policy.vec_env import BatchVecEnv


@dataclass(frozen=True)
class AnnealCfg:
    """Schedules over the share of the run that is done: constant until `begin`, linear to the end value at `end`.

    kl: target of the adaptive learning rate; std_max: ceiling of the exploration widths; std_floor: floor; leg_floor, arm_floor: floors
    until `begin`: an arm that hits well lets the legs fall asleep otherwise, and a policy that is taken on to a new task hardly moves.
    """

    begin: float = 0.5
    end: float = 0.95
    kl: tuple[float, float] = (0.03, 0.01)
    std_max: tuple[float, float] = (0.5, 0.10)
    std_floor: float = 0.04
    leg_floor: float = 0.3
    arm_floor: float = 0.04

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


RATE_RANGE = (1e-5, 2e-3)  # of the learning rate; training-recipe value above, and below what still moves anything


def adapt_rate(rate: float, kl: float, target: float) -> float:
    """Next learning rate: less when the last epoch moved the policy more than twice the target KL, more under half of it."""
    if kl > 2 * target:
        rate /= 1.5
    elif kl < 0.5 * target:
        rate *= 1.5
    return float(np.clip(rate, *RATE_RANGE))


class BatchPPO(PPO):
    """PPO over rollouts from a source.

    env: the robots, or one of them where others sample: spaces and counts of results. source: where rollouts come from.
    legs: (J,) bool, joints whose exploration has its own floor. total_steps: length of the run that the schedules are spread over.
    phase_seconds: wall time spent by phase; what a source does beside the learner counts as its own, `wait` is what the learner
    spent on waiting for it. version: updates made.
    """

    policy: BadmintonPolicy
    env: BatchVecEnv
    rollout: Rollout

    def __init__(self, env: VecEnv, source: Callable[[BadmintonPolicy], Source], legs: np.ndarray, total_steps: int,
                 anneal: AnnealCfg = AnnealCfg(), off_policy: OffPolicyCfg = OffPolicyCfg(), constraint: ConstraintCfg | None = None,
                 **kwargs: Any) -> None:
        super().__init__(BadmintonPolicy, env, device="cpu", **kwargs)
        self.legs, self.anneal, self.total_steps, self.off_policy, self.constraint = legs, anneal, total_steps, off_policy, constraint
        self.source = source(self.policy)
        self.rate = float(self.learning_rate) if not callable(self.learning_rate) else 5e-4
        self.version = self.too_old = 0
        self.last_losses: dict[str, float] = {}
        self.phase_seconds = {"policy": 0.0, "task": 0.0, "wait": 0.0, "values": 0.0, "learn": 0.0}

    @property
    def done_share(self) -> float:
        """How much of the run is over, 0 to 1."""
        return self.num_timesteps / self.total_steps

    def behaviour(self) -> Behaviour:
        """A copy of what samplers need of the present policy."""
        return Behaviour.of(self.policy, self.version)

    def collect_rollouts(self, env: VecEnv, callback: BaseCallback, rollout_buffer: Any, n_rollout_steps: int) -> bool:
        """Take the next rollout that is not too old, then compute its values and advantages in one go."""
        self.policy.set_training_mode(False)
        callback.on_rollout_start()
        start = time.perf_counter()
        while True:
            self.rollout = self.source.take(self.behaviour)
            if self.version - self.rollout.version <= self.off_policy.max_staleness:
                break
            self.too_old += 1
        waited = time.perf_counter() - start
        for phase, seconds in self.rollout.seconds.items():
            self.phase_seconds[phase] += seconds
        self.phase_seconds["wait"] += waited
        self.env.log.merge(self.rollout.log)
        self.num_timesteps += self.rollout.samples
        if not callback.on_step():
            return False
        callback.on_rollout_end()
        self.source.ahead(self.behaviour)
        return True

    @torch.no_grad()
    def _advantages(self, r: Rollout) -> tuple[Tensor, Tensor]:
        """Values and advantages (T, N) of a rollout under the present critic."""
        rewards = r.reward
        if len(r.truncated):
            rewards = rewards.clone()
            rewards[r.truncated[:, 0], r.truncated[:, 1]] += self.gamma * self.policy.predict_values(r.truncated_observation).flatten()
        values = self.policy.predict_values(r.observation.flatten(0, 1)).view_as(rewards)
        last_value = self.policy.predict_values(r.last_observation).flatten()
        return values, generalised_advantage(rewards, values, last_value, r.done, self.gamma, self.gae_lambda)

    @torch.no_grad()
    def _cost_advantages(self, r: Rollout, limit: ConstraintCfg) -> tuple[Tensor, Tensor]:
        """Advantages and returns (T * N,) of the cost; an episode that ends by its length is taken to cost nothing more."""
        cost = limit.cost(r.load)
        values = self.policy.predict_costs(r.observation.flatten(0, 1)).view_as(cost)
        advantages = generalised_advantage(cost, values, self.policy.predict_costs(r.last_observation), r.done, self.gamma, self.gae_lambda)
        return advantages.flatten(), (advantages + values).flatten()

    def train(self) -> None:
        """Clipped PPO epochs over the rollout (Schulman et al. 2017, arXiv 1707.06347), then schedules and normaliser."""
        start = time.perf_counter()
        policy, r, off = self.policy, self.rollout, self.off_policy
        grid_values, grid_adv = self._advantages(r)
        mid = time.perf_counter()
        self.phase_seconds["values"] += mid - start
        policy.set_training_mode(True)
        obs, act = r.observation.flatten(0, 1), r.action.flatten(0, 1)
        logp, adv, old_values = r.log_prob.flatten(), grid_adv.flatten(), grid_values.flatten()
        returns = adv + old_values
        weight = None
        if off.proximal and r.version < self.version:
            with torch.no_grad():
                proximal = policy.judge(obs, act)[1]
            weight, logp = behaviour_weight(proximal, logp), proximal
        limit, cost_adv, cost_ret, weight_now = self.constraint, None, None, 0.0
        if limit is not None:
            cost_adv, cost_ret = self._cost_advantages(r, limit)
            cost_adv, violation = normalised_cost(cost_adv, cost_ret, self.gamma, limit.budget)
            weight_now = limit.weight_at(self._n_updates // self.n_epochs)
        clip = float(self.clip_range(1.0))  # type: ignore[operator]
        target = self.anneal.at(self.done_share, self.anneal.kl)
        sums = dict.fromkeys(("policy_loss", "value_loss", "entropy", "kl", "clip_fraction", "clip_low", "clip_high", "positive_share"), 0.0)
        batches = skipped = 0
        good = {k: v.clone() for k, v in policy.state_dict().items()}
        for _ in range(self.n_epochs):
            for group in policy.optimizer.param_groups:
                group["lr"] = self.rate
            epoch_kl, parts = 0.0, 0
            order = torch.randperm(len(obs))
            p_obs, p_act, p_logp, p_adv, p_ret = obs[order], act[order], logp[order], adv[order], returns[order]
            p_weight = None if weight is None else weight[order]
            p_cost = None if cost_adv is None or cost_ret is None else (cost_adv[order], cost_ret[order])
            for i in range(0, len(obs), self.batch_size):
                part = slice(i, i + self.batch_size)
                values, new_logp, mean_entropy = policy.judge(p_obs[part], p_act[part])
                advantage = p_adv[part]
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                log_ratio = new_logp - p_logp[part]
                ratio = torch.exp(log_ratio)
                low, high, share = 1 - clip, 1 + clip, float("nan")
                if off.clip == "bapo":
                    low, high, share = balanced_bounds(ratio.detach(), advantage, off.bapo)
                objective = clipped_objective(ratio, advantage, low, high)
                surrogate = (objective if p_weight is None else p_weight[part] * objective).mean()
                value_loss = F.mse_loss(values, p_ret[part])
                loss = -surrogate - self.ent_coef * mean_entropy + self.vf_coef * value_loss
                if p_cost is not None:
                    loss = loss + weight_now * penalty(ratio, p_cost[0][part], violation, clip)
                    loss = loss + F.mse_loss(policy.predict_costs(p_obs[part]), p_cost[1][part])
                policy.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                norm = torch.nn.utils.clip_grad_norm_(policy.parameters(), self.max_grad_norm)
                if not torch.isfinite(norm):  # of the loss, too: a step with it would spoil every weight
                    skipped += 1
                    continue
                policy.optimizer.step()
                with torch.no_grad():
                    kl = float((ratio - 1 - log_ratio).mean())  # Schulman's k3 estimate, http://joschu.net/blog/kl-approx.html
                    clipped = float(((ratio < low) | (ratio > high)).float().mean())
                epoch_kl, parts, batches = epoch_kl + kl, parts + 1, batches + 1
                figures = (-surrogate.item(), value_loss.item(), mean_entropy.item(), kl, clipped, low, high, share)
                for name, value in zip(sums, figures, strict=True):
                    sums[name] += value
            if parts:
                self.rate = adapt_rate(self.rate, epoch_kl / parts, target)
            self._n_updates += 1
        self._guard(good, skipped, batches)
        self.version += 1
        self.apply_schedules()
        if batches:
            policy.mlp_extractor.normaliser.update(obs)  # type: ignore[union-attr, operator]
            self.last_losses = {name: value / batches for name, value in sums.items()}
            self.last_losses["explained_variance"] = float(1 - torch.var(returns - old_values) / torch.var(returns))
            self.last_losses["staleness"] = float(self.version - 1 - r.version)
        if limit is not None and batches:
            self.last_losses |= {"cost": float(limit.cost(r.load).mean()), "violation": float(violation), "cost_weight": weight_now}
        if off.clip == "fixed":
            self.last_losses.pop("positive_share", None)
        for name, value in self.last_losses.items():
            self.logger.record(f"train/{name}", value)
        self.logger.record("train/learning_rate", self.rate)
        self.phase_seconds["learn"] += time.perf_counter() - mid

    def _guard(self, good: dict[str, Tensor], skipped: int, batches: int) -> None:
        """Undo an update that left the parameters sick; count what happened by name; give up when no update is possible any more."""
        faults = self.env.log.faults
        if skipped:
            faults["loss"] = faults.get("loss", 0) + skipped
        if not all(bool(torch.isfinite(p).all()) for p in self.policy.parameters()):
            faults["parameters"] = faults.get("parameters", 0) + 1
            self.policy.load_state_dict(good)
            self.policy.optimizer.state.clear()  # its moments may be what spoilt them
            self.rate = max(self.rate / 2, RATE_RANGE[0])
        self.barren = self.barren + 1 if not batches else 0
        if self.barren >= 3:
            raise UserError("three updates in a row had no finite loss; this usually means that a reward or an observation is not "
                            "finite: look at the last rewards in TensorBoard and at the recordings in the run's faults/; "
                            "the last checkpoint is from before")

    barren = 0  # updates in a row without one finite minibatch

    def apply_schedules(self) -> None:
        """Bound the exploration widths for the present share of the run."""
        a = self.anneal
        ceiling = a.at(self.done_share, a.std_max)
        early = self.done_share < a.begin
        leg, arm = (a.leg_floor, max(a.arm_floor, a.std_floor)) if early else (a.std_floor, a.std_floor)
        self.policy.clamp_std(np.where(self.legs, min(leg, ceiling), min(arm, ceiling)), ceiling)
