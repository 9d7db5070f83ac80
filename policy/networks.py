"""Actor and critic for stable-baselines3, with the observation normaliser inside.

The normaliser is part of the module, so it is saved, resumed and exported with the weights; there is no VecNormalize.
The observation is one vector: actor part, then what only the critic may see.
"""

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import Tensor, nn

HALF_LOG_TWO_PI = 0.9189385332


class Normaliser(nn.Module):
    """Running mean and variance of each input, applied with a clip.

    Parallel update of Chan, Golub and LeVeque 1983 (doi 10.1080/00031305.1983.10483115). mean, variance: (D,); count: ().
    """

    def __init__(self, size: int, clip: float) -> None:
        super().__init__()
        self.clip = clip
        self.mean: Tensor
        self.variance: Tensor
        self.count: Tensor
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("variance", torch.ones(size))
        self.register_buffer("count", torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:
        return torch.clamp((x - self.mean) * torch.rsqrt(self.variance + 1e-4), -self.clip, self.clip)

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Take in a batch (B, D)."""
        count = float(len(x))
        variance, mean = torch.var_mean(x, dim=0, correction=0)
        total = self.count + count
        delta = mean - self.mean
        self.mean += delta * count / total
        self.variance.copy_((self.variance * self.count + variance * count + delta**2 * self.count * count / total) / total)
        self.count.copy_(total)


def mlp(sizes: list[int]) -> nn.Sequential:
    """Linear layers with ELU between and after: 15 to 25 % faster than tanh on a CPU, and as good."""
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ELU()]
    return nn.Sequential(*layers)


class AsymmetricMlp(nn.Module):
    """Separate actor and critic trunks; the actor is cut off from the critic's part of the observation."""

    def __init__(self, size: int, actor_size: int, hidden: list[int], clip: float) -> None:
        super().__init__()
        self.actor_size = actor_size
        self.normaliser = Normaliser(size, clip)
        self.actor, self.critic = mlp([actor_size, *hidden]), mlp([size, *hidden])
        self.latent_dim_pi = self.latent_dim_vf = hidden[-1]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.normaliser(x)
        return self.actor(x[:, : self.actor_size]), self.critic(x)

    def forward_actor(self, x: Tensor) -> Tensor:
        """Latent (B, H) of the action head."""
        return self.actor(self.normaliser(x)[:, : self.actor_size])

    def forward_critic(self, x: Tensor) -> Tensor:
        """Latent (B, H) of the value head."""
        return self.critic(self.normaliser(x))


class BadmintonPolicy(ActorCriticPolicy):
    """ActorCriticPolicy with an AsymmetricMlp and one exploration width per joint.

    std_init: (J,) initial standard deviations. actor_size: length of the actor part. clip: of the normaliser. constrained: with a
    critic of its own for the cost that `constraint.py` limits.
    """

    def __init__(self, *args: Any, actor_size: int, std_init: np.ndarray, clip: float, hidden: tuple[int, ...] = (256, 128),
                 constrained: bool = False, **kwargs: Any) -> None:
        self._build_args = (actor_size, list(hidden), clip)
        self.constrained = constrained
        super().__init__(*args, **kwargs)
        with torch.no_grad():
            self.log_std.copy_(torch.log(torch.as_tensor(std_init, dtype=torch.float32)))

    def _build_mlp_extractor(self) -> None:
        actor_size, hidden, clip = self._build_args
        # the type of SB3's attribute is its own MlpExtractor; this one offers the same calls
        self.mlp_extractor = AsymmetricMlp(self.features_dim, actor_size, hidden, clip)  # type: ignore[assignment]
        if self.constrained:
            self.cost_critic = nn.Sequential(mlp([self.features_dim, hidden[-1]]), nn.Linear(hidden[-1], 1))

    def predict_costs(self, observation: Tensor) -> Tensor:
        """(B,) expected discounted cost, for observations (B, D)."""
        return self.cost_critic(self.mlp_extractor.normaliser(observation)).flatten()  # type: ignore[operator]

    def judge(self, observation: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Values (B,), log probabilities of actions (B,) and entropy () for observations (B, D): `evaluate_actions` of
        stable-baselines3 in closed form, without its distribution objects and their checks, which raise on NaN instead of telling."""
        actor, critic = self.mlp_extractor(observation)
        z = (action - self.action_net(actor)) * torch.exp(-self.log_std)
        spread, joints = self.log_std.sum(), len(self.log_std)
        return self.value_net(critic).flatten(), -0.5 * (z * z).sum(1) - spread - joints * HALF_LOG_TWO_PI, spread + joints * (0.5 + HALF_LOG_TWO_PI)

    @torch.no_grad()
    def clamp_std(self, low: np.ndarray, high: float) -> None:
        """Keep the exploration widths inside low (J,) and high."""
        floor = torch.as_tensor(np.log(low), dtype=torch.float32)
        self.log_std.copy_(torch.maximum(torch.clamp(self.log_std, max=float(np.log(high))), floor))


class ActorForExport(nn.Module):
    """Actor part of the observation (N, A) -> mean action (N, J), normaliser inside."""

    def __init__(self, policy: BadmintonPolicy) -> None:
        super().__init__()
        trunk: AsymmetricMlp = policy.mlp_extractor  # type: ignore[assignment]
        norm, size = trunk.normaliser, policy._build_args[0]
        self.normaliser = Normaliser(size, norm.clip)
        self.normaliser.mean.copy_(norm.mean[:size])
        self.normaliser.variance.copy_(norm.variance[:size])
        self.actor, self.head = trunk.actor, policy.action_net

    def forward(self, observation: Tensor) -> Tensor:
        return self.head(self.actor(self.normaliser(observation)))
