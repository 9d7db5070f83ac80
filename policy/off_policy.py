"""Learning from data that an older policy made: clip bounds that adapt (BAPO), a proximal policy of its own, a limit on age.

Three policies appear. *Behaviour* chose the actions; *proximal* is the policy at the start of the update, from which the clip
keeps the step small; *current* is being learnt. With fresh data behaviour and proximal are the same.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

WEIGHT_LIMIT = 2.0  # on proximal over behaviour: our choice; more lets single steps rule a minibatch, less throws old data away


@dataclass(frozen=True)
class BapoCfg:
    """Bounds of the ratio start at low[0], high[0] for every minibatch and move by low_step, high_step, at most to low[1],
    high[1], until positive advantages carry `share` of the objective. Figures of the paper (arXiv 2510.18927)."""

    low: tuple[float, float] = (0.6, 0.9)
    high: tuple[float, float] = (1.2, 3.0)
    low_step: float = 0.02
    high_step: float = 0.05
    share: float = 0.4


@dataclass(frozen=True)
class OffPolicyCfg:
    """clip: "fixed" is PPO's own, "bapo" balances; proximal: decouple the clip from the behaviour policy where data is stale, without which
    data one update old already learns at a fraction of the pace (docs/off-policy.md); max_staleness: rollouts whose policy is more
    updates old than this are thrown away."""

    clip: Literal["fixed", "bapo"] = "fixed"
    proximal: bool = True
    max_staleness: int = 4
    bapo: BapoCfg = BapoCfg()


@torch.no_grad()
def balanced_bounds(ratio: Tensor, advantage: Tensor, cfg: BapoCfg = BapoCfg()) -> tuple[float, float, float]:
    """Clip bounds (low, high) of BAPO for a minibatch, and the share that positive advantages carry with them.

    ratio, advantage (B,). Raises the upper bound first, then the lower one, as the paper does (its released code goes the other way
    round, and aims at positive over negative = 1 instead of positive over all = 0.4). A sample counts with ratio times |advantage|,
    its weight in the gradient, where the clip lets its gradient through, else not at all. The paper's formula takes the value of the
    clipped objective instead, in which a negative sample below the lower bound counts the more the higher that bound: raising it
    would move the share the wrong way. It also weights by the behaviour's probability; for continuous actions that is
    a density without upper bound, and samples already come in its proportion, so we leave it out, as the released code does.
    """
    weight = ratio * advantage.abs()
    good = advantage > 0
    r_good, w_good = ratio[good].sort()[0], weight[good][ratio[good].argsort()].cumsum(0)
    r_bad, order = ratio[~good].sort()
    w_bad = weight[~good][order].flip(0).cumsum(0).flip(0)  # from the highest ratio down

    def positive(high: float) -> float:
        n = int(torch.searchsorted(r_good, high, right=True))
        return float(w_good[n - 1]) if n else 0.0

    def negative(low: float) -> float:
        n = int(torch.searchsorted(r_bad, low))
        return float(w_bad[n]) if n < len(r_bad) else 0.0

    low, high = cfg.low[0], cfg.high[0]
    plus, minus = positive(high), negative(low)
    while plus < cfg.share * (plus + minus):
        if high < cfg.high[1] - 1e-9:
            high = min(high + cfg.high_step, cfg.high[1])
            plus = positive(high)
        elif low < cfg.low[1] - 1e-9:
            low = min(low + cfg.low_step, cfg.low[1])
            minus = negative(low)
        else:
            break
    return low, high, plus / max(plus + minus, 1e-12)


def behaviour_weight(proximal_logp: Tensor, behaviour_logp: Tensor) -> Tensor:
    """(B,) importance of samples for the proximal policy, cut at WEIGHT_LIMIT: the first factor of the decoupled objective of
    Hilton, Cobbe and Schulman 2021 (arXiv 2110.00641, eq. 4), as AReaL (arXiv 2505.24298) uses it on stale data."""
    return torch.exp(proximal_logp - behaviour_logp).clamp(max=WEIGHT_LIMIT)


def clipped_objective(ratio: Tensor, advantage: Tensor, low: float, high: float) -> Tensor:
    """(B,) min(r A, clip(r, low, high) A), Schulman et al. 2017 (arXiv 1707.06347, eq. 7) with bounds of their own."""
    return torch.min(advantage * ratio, advantage * ratio.clamp(low, high))
