"""What sampling hands to learning: the steps of a batch of robots, the version of the policy that made them, and their results."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from policy.task import Step


@dataclass
class StrikeLog:
    """Results since the last clear: strike errors, episodes, falls, rewards by term, and faults by name."""

    position: list[np.ndarray] = field(default_factory=list)
    velocity: list[np.ndarray] = field(default_factory=list)
    cosine: list[np.ndarray] = field(default_factory=list)
    seen: list[np.ndarray] = field(default_factory=list)
    episodes: int = 0
    falls: int = 0
    steps: int = 0
    overloads: float = 0.0  # share of robots over the limit of the arm's supply, summed over steps
    known: list[float] = field(default_factory=list)  # share of robots with an interception while a shuttle is in the air
    off: list[float] = field(default_factory=list)  # and its mean error [m]
    reward: float = 0.0
    terms: dict[str, float] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)

    def add(self, step: Step) -> None:
        """Take in one step of the batch."""
        if len(step.struck):  # their errors are finite: whoever had a fault does not count as struck
            self.position.append(step.strike_position_error)
            self.velocity.append(step.strike_velocity_error)
            self.cosine.append(step.strike_cosine)
            self.seen.append(step.strike_seen)
        self.episodes += int(step.done.sum())
        self.falls += int((step.terminated & ~step.blown).sum())
        self.steps += 1
        self.overloads += float((step.load > 1).mean())
        if step.watched is not None and step.watched[0].any():
            due, known, off = step.watched
            self.known.append(float(known[due].mean()))
            if (due & known).any():
                self.off.append(float(off[due & known].mean()))
        self.reward += float(step.reward.mean())
        for name, values in step.reward_terms.items():
            value = float(values.mean())
            if np.isfinite(value):  # a fault of one robot must not hide the others' mean for good
                self.terms[name] = self.terms.get(name, 0.0) + value
        for name, ids in step.faults.items():
            self.faults[name] = self.faults.get(name, 0) + len(ids)

    def merge(self, other: "StrikeLog") -> None:
        """Take in what another log holds."""
        self.position += other.position
        self.velocity += other.velocity
        self.cosine += other.cosine
        self.seen += other.seen
        self.known += other.known
        self.off += other.off
        for name in ("episodes", "falls", "steps", "overloads", "reward"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for mine, others in ((self.terms, other.terms), (self.faults, other.faults)):
            for key, value in others.items():
                mine[key] = mine.get(key, 0) + value  # type: ignore[assignment, operator]

    def errors(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """All position errors [m], velocity errors [m/s] and normal cosines since the last clear, and of which strikes the robot knew what it
        saw, not the truth."""
        empty = [np.zeros(0)]
        position, velocity, cosine = (np.concatenate(x or empty) for x in (self.position, self.velocity, self.cosine))
        return position, velocity, cosine, np.concatenate(self.seen or [np.zeros(0, bool)])


@dataclass
class Rollout:
    """T steps of N robots.

    observation (T, N, D) before each step; action (T, N, J); log_prob (T, N) of the action under the policy that chose it;
    reward, done (T, N); load (T, N): current that the arm drew, in shares of its limit; last_observation (N, D) after the last step; truncated (K, 2): (step, robot) of episodes that ended by their
    length, with the observation they ended in (K, D). version: how many updates the policy that chose had seen. seconds: wall time
    by phase.
    """

    observation: Tensor
    action: Tensor
    log_prob: Tensor
    reward: Tensor
    done: Tensor
    load: Tensor
    last_observation: Tensor
    truncated: Tensor
    truncated_observation: Tensor
    version: int = 0
    log: StrikeLog = field(default_factory=StrikeLog)
    seconds: dict[str, float] = field(default_factory=dict)

    @staticmethod
    def empty(steps: int, robots: int, observations: int, joints: int) -> "Rollout":
        """Room for a rollout, to be filled in place again and again."""
        return Rollout(torch.empty(steps, robots, observations), torch.empty(steps, robots, joints), torch.empty(steps, robots),
                       torch.empty(steps, robots), torch.empty(steps, robots), torch.empty(steps, robots), torch.empty(robots, observations),
                       torch.empty(0, 2, dtype=torch.long), torch.empty(0, observations))

    @property
    def samples(self) -> int:
        """Steps times robots."""
        return self.reward.numel()

    @staticmethod
    def join(parts: "list[Rollout]") -> "Rollout":
        """Rollouts of equal length side by side, as one of all their robots. The version is that of the oldest."""
        if len(parts) == 1:
            return parts[0]
        first, log = 0, StrikeLog()
        rows = []
        for part in parts:
            rows.append(part.truncated + torch.tensor([0, first]))
            first += part.reward.shape[1]
            log.merge(part.log)
        observation, action, log_prob, reward, done, load = (
            torch.cat([getattr(p, name) for p in parts], dim=1) for name in ("observation", "action", "log_prob", "reward", "done", "load"))
        seconds: dict[str, float] = {}
        for part in parts:
            for key, value in part.seconds.items():
                seconds[key] = seconds.get(key, 0.0) + value / len(parts)
        return Rollout(observation, action, log_prob, reward, done, load, torch.cat([p.last_observation for p in parts]), torch.cat(rows),
                       torch.cat([p.truncated_observation for p in parts]), min(p.version for p in parts), log, seconds)
