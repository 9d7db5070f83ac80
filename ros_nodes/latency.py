"""Latencies by stage: a bounded sample of the latest, and its percentiles."""

from collections import deque

import numpy as np


class Stage:
    """Milliseconds of one stage; the latest 20,000."""

    def __init__(self) -> None:
        self.samples: deque[float] = deque(maxlen=20_000)

    def add(self, ms: float) -> None:
        """One more."""
        self.samples.append(ms)

    def clear(self) -> None:
        """Begin anew."""
        self.samples.clear()

    def values(self) -> dict[str, float]:
        """p50, p99, max [ms] and count; nan where there is nothing."""
        if not self.samples:
            return {"p50_ms": float("nan"), "p99_ms": float("nan"), "max_ms": float("nan"), "count": 0}
        s = np.array(self.samples)
        return {"p50_ms": float(np.median(s)), "p99_ms": float(np.quantile(s, 0.99)), "max_ms": float(s.max()), "count": len(s)}
