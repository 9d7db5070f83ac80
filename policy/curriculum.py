"""How hard the task is now. All of its state is in the checkpoint, so that resuming does not start it again."""

from dataclasses import asdict, dataclass, field

import numpy as np

from policy.rewards import Widths
from policy.swings import SLOWEST, SwingRange
from sim.scale import TaskScale

UPDATE_EVERY = 250_000  # [steps] between two looks at the results
FORWARD = 0.05  # [m] middle of the targets ahead of home: our choice, most of the swing lies before the shoulder


@dataclass(frozen=True)
class CurriculumCfg:
    """start, top: spread of targets, 1 is the box that evaluation draws from; step: growth per update; top_share: fastest racket, of the
    robot's swing speed; seen_share: of swings of which the robot knows what it sees, where it has a camera; rush_share: of swings with no more
    time than 0.6 to 1.5 s, wherever the target is; wait_share: of swings that begin with a wait; tail: percentile of the errors that must be good too, and that widths go by."""

    start: float = 0.3
    top: float = 1.5
    step: float = 0.1
    top_share: float = 0.75
    seen_share: float = 0.0
    rush_share: float = 0.0
    wait_share: float = 0.3
    tail: float = 90.0


@dataclass
class Curriculum:
    """Spread of the targets and widths of the rewards, both led by the results of the current policy."""

    cfg: CurriculumCfg = field(default_factory=CurriculumCfg)
    spread: float = 0.3
    widths: Widths = field(default_factory=Widths)
    steps_at_update: int = 0

    def span(self, scale: TaskScale) -> SwingRange:
        """What to draw swings from at this level: wider, faster, with waits, planned shots and less time as it grows."""
        d = self.spread
        ease = min(1.0, d + 0.2)
        later = float(np.clip((d - 0.6) / 0.6, 0.0, 1.0))
        x, y, middle, up = scale.box_x * d, scale.box_y * d, scale.strike_middle, 0.5 * (scale.strike_high - scale.strike_low) * ease
        return SwingRange(
            x=(FORWARD - x, FORWARD + x), y=(-y, y), height=(middle - up, middle + up),
            hurry=later, wait_share=self.cfg.wait_share * later, wait=(5, 70),
            speed=(SLOWEST, SLOWEST + (self.cfg.top_share * scale.swing_speed - SLOWEST) * ease),
            elevation=(0.55 - 0.45 * ease, 0.55 + 0.45 * ease), planned_share=0.5 * later,
            seen_share=self.cfg.seen_share * later, rush_share=self.cfg.rush_share * later,
        )

    def randomization(self) -> float:
        """Share of the ranges in `sim/randomize.py` that robots are drawn from: none until near targets are hit, all from spread 1."""
        return float(np.clip((self.spread - 0.4) / 0.6, 0.0, 1.0))

    def update(self, steps: int, position_errors: np.ndarray, velocity_errors: np.ndarray, cosines: np.ndarray,
               fall_rate: float) -> None:
        """Move the level after `steps` environment steps in all, from the strikes since the last update."""
        self.steps_at_update = steps
        if len(position_errors) < 100:
            return
        median, high = np.percentile(position_errors, [50, self.cfg.tail])
        w = self.widths
        w.position += 0.2 * (np.clip(0.4 * (median + high), 0.04, 0.3) - w.position)
        w.track += 0.2 * (np.clip(median + high, 0.1, 0.3) - w.track)
        w.velocity += 0.2 * (np.clip(0.4 * np.median(velocity_errors), 0.25, 1.0) - w.velocity)
        w.normal += 0.2 * (np.clip(0.6 * np.arccos(np.clip(np.median(cosines), -1, 1)), 0.08, 0.3) - w.normal)
        if median < 0.13 and high < 0.4 and fall_rate < 0.15:
            self.spread = min(self.cfg.top, self.spread + self.cfg.step)
        elif median > 0.33 or fall_rate > 0.4:
            self.spread = max(self.cfg.start, self.spread - self.cfg.step)

    def state(self) -> dict:
        """Plain numbers for the checkpoint."""
        return {"spread": self.spread, "widths": asdict(self.widths), "steps_at_update": self.steps_at_update}

    def restore(self, state: dict) -> None:
        """Inverse of `state`."""
        self.spread, self.widths = state["spread"], Widths(**state["widths"])
        self.steps_at_update = state["steps_at_update"]
