"""Is a source of messages alive, on time and on one clock? Judged at the receiving end, on monotonic time."""

from dataclasses import dataclass, field

import numpy as np

DRIFT = 1e-3  # [s/s] by which the best seen offset may grow: clocks drift by 75 us/s (realsense-ros#419), this is ten times that


@dataclass
class Source:
    """One source. timeout: silence [s] that counts as stale; late: [s] beyond its best transport time that a stamp may be old, at most; jump: [s]
    that its clock may leap ahead. Stamps are on the sender's clock; only their differences to ours are read."""

    name: str
    timeout: float
    late: float = 0.1
    jump: float = 0.1
    latched: bool = True  # whether `fault` stays until `reset`, or goes with the next message that is well
    received: int = 0
    last: float = -np.inf  # monotonic [s]
    stamp: float = -np.inf
    fault: str = ""  # the latest thing wrong with the stamps, until `reset`
    repeats: int = 0
    _offset: float = np.inf
    _gaps: list[float] = field(default_factory=list)

    def reset(self) -> None:
        """Forget what was wrong, and begin to learn the clock's offset anew."""
        self.fault, self._offset, self.repeats = "", np.inf, 0
        self.stamp = -np.inf

    def take(self, now: float, stamp: float) -> bool:
        """A message with `stamp` [s] arrived at monotonic `now` [s]; False where it is not to be used: not newer than the last, or not on time."""
        if not np.isfinite(stamp):
            self.fault = "stamp is not finite"
            return False
        if stamp == self.stamp:  # a driver that repeats itself is as good as silent
            self.repeats += 1
            return False
        if self.stamp - 0.5 * self.jump <= stamp < self.stamp:  # overtaken on the way
            return False
        if np.isfinite(self.last):
            self._gaps.append(now - self.last)
            del self._gaps[:-200]
        passed = now - self.last
        self.last, self.received = now, self.received + 1
        offset = now - stamp
        if stamp < self.stamp:
            self.fault = f"clock stepped back by {self.stamp - stamp:.3f} s"
            self.stamp = stamp
            return False
        if not self.latched:
            self.fault = ""
        if np.isfinite(self._offset):
            if offset < self._offset - self.jump:
                self.fault = f"clock leapt ahead by {self._offset - offset:.3f} s"
            elif offset > self._offset + self.late:
                self.fault = f"late by {offset - self._offset:.3f} s"
        self._offset = min(offset, self._offset + DRIFT * max(passed, 0.0) if np.isfinite(self._offset) else offset)
        self.stamp = stamp
        return not self.fault

    def problem(self, now: float) -> str:
        """What is wrong at monotonic `now` [s], or an empty string."""
        if not self.received:
            return "nothing received"
        silent = now - self.last
        if silent > self.timeout:
            return f"silent for {silent * 1e3:.0f} ms"
        return self.fault

    @property
    def rate(self) -> float:
        """Messages per second of the last two hundred, 0 before there are two."""
        mean = float(np.mean(self._gaps)) if self._gaps else 0.0
        return 1.0 / mean if mean > 0 else 0.0

    @property
    def jitter(self) -> float:
        """[s] standard deviation of the last two hundred gaps."""
        return float(np.std(self._gaps)) if self._gaps else 0.0
