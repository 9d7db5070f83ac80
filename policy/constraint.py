"""N-P3O: PPO with a limit that is not to be passed, here on the current that the arm draws from its supply.

Lee et al. 2023 (arXiv 2309.15430), in the form of the public implementation that the facts on the paper quote: a critic of its own
for the cost, advantages of the cost normalised, and their clipped surrogate plus the present violation as a penalty that counts only where
it is positive. Unlike a soft penalty its weight does not compete with the rewards once the limit is kept.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

LEAST_SPREAD = 0.02  # of cost advantages: our choice; where nothing violates any more, dividing by less would blow up noise


@dataclass(frozen=True)
class ConstraintCfg:
    """margin: share of the limit at which cost begins, our choice: a policy is late by a step; budget: discounted cost allowed, 0 as in the paper; weight, growth, weight_max: of the penalty, grown by
    `growth` per update: next to nothing while wide exploration draws most of the current, all of it after 2,000 updates."""

    margin: float = 0.9
    budget: float = 0.0
    weight: float = 0.002
    growth: float = 1.003
    weight_max: float = 1.0

    def cost(self, load: Tensor) -> Tensor:
        """Cost of a load in shares of the limit: the logarithm of how far it is beyond the margin. A wild step does not rule a batch, and less is
        better however far off the limit is: a cost that ends at twice the limit tells a swing of 60 A nothing about one of 20."""
        return torch.log1p(torch.clamp(load - self.margin, min=0.0))

    def weight_at(self, updates: int) -> float:
        """Of the penalty after so many updates."""
        most = math.log(self.weight_max / self.weight)  # the power itself overflows in a long run
        return self.weight * math.exp(min(updates * math.log(self.growth), most))


def normalised_cost(advantage: Tensor, returns: Tensor, gamma: float, budget: float) -> tuple[Tensor, Tensor]:
    """Normalised advantages (B,) of the cost and the violation (): ((1 - gamma)(J - d) + mean) / std, with J the mean return."""
    mean, spread = advantage.mean(), advantage.std().clamp(min=LEAST_SPREAD)
    return (advantage - mean) / spread, ((1 - gamma) * (returns.mean() - budget) + mean) / spread


def penalty(ratio: Tensor, advantage: Tensor, violation: Tensor, clip: float) -> Tensor:
    """ReLU of the pessimistic surrogate of the cost plus the violation: zero once the limit is kept and not being left."""
    surrogate = torch.maximum(ratio * advantage, torch.clamp(ratio, 1 - clip, 1 + clip) * advantage).mean()
    return torch.relu(surrogate + violation)
