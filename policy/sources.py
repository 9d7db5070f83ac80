"""Where rollouts come from on one machine: one after the other with learning, beside it, or late on purpose.

All of them are asked the same way: `take` gives the next rollout; `ahead` may start the one after it, once everything that
belongs to the last one (curriculum, counts) has been seen to, so that no order of threads can change a result.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import torch

from policy.rollout import Rollout
from policy.sampler import Behaviour, Sampler


class Source(Protocol):
    """Gives rollouts. behaviour() copies the policy as it is at that moment."""

    def take(self, behaviour: Callable[[], Behaviour]) -> Rollout:
        """The next rollout; waits for it."""
        ...

    def ahead(self, behaviour: Callable[[], Behaviour]) -> None:
        """Called after `take` and before learning: a source that samples beside the learner starts now."""
        ...

    def close(self) -> None:
        """Stop whatever runs."""
        ...


class Sequential:
    """Samples when asked, with the newest policy: data is never stale, and a seed gives the same bytes."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler

    def take(self, behaviour: Callable[[], Behaviour]) -> Rollout:
        return self.sampler.collect(behaviour())

    def ahead(self, behaviour: Callable[[], Behaviour]) -> None:
        pass

    def close(self) -> None:
        pass


class Overlapped:
    """Samples in a second thread while the learner learns from the rollout before: data is one update old, both cores are busy."""

    def __init__(self, sampler: Sampler, threads: int) -> None:
        self.sampler = sampler
        self._pool = ThreadPoolExecutor(1, "sampler", lambda: torch.set_num_threads(threads))
        self._pending: Future[Rollout] | None = None

    def take(self, behaviour: Callable[[], Behaviour]) -> Rollout:
        pending = self._pending or self._pool.submit(self.sampler.collect, behaviour())
        self._pending = None
        return pending.result()

    def ahead(self, behaviour: Callable[[], Behaviour]) -> None:
        self._pending = self._pool.submit(self.sampler.collect, behaviour())

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._pending = None


class Late:
    """Samples with the policy of `lag` updates ago: staleness by itself, for studies; the wall time stays that of `Sequential`."""

    def __init__(self, sampler: Sampler, lag: int) -> None:
        self.sampler = sampler
        self._past: deque[Behaviour] = deque(maxlen=lag + 1)

    def take(self, behaviour: Callable[[], Behaviour]) -> Rollout:
        self._past.append(behaviour())
        return self.sampler.collect(self._past[0])

    def ahead(self, behaviour: Callable[[], Behaviour]) -> None:
        pass

    def close(self) -> None:
        pass
