"""Sampling in other processes, here or on many machines, with Ray; the learner stays where it is.

Weights go out with their version, rollouts come back with the version that made them. A worker starts its next rollout the moment
its last one is fetched, so the learner and all workers are busy at once; no worker is ever more than two rollouts ahead of what the
learner has seen. The normaliser, the curriculum and the adaptive reward widths live in the learner alone: workers report what they
saw and did (`Rollout.log`), and are sent the level of the curriculum together with the weights.

Workers may be killed, leave and join. A lost rollout is lost; the others' fill its place.
"""

import hashlib
import importlib.metadata
import os
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perception.errors import UserError
from policy.rollout import Rollout
from policy.sampler import Behaviour

if TYPE_CHECKING:
    from policy.training import Session, TrainCfg

LOOK_EVERY = 20.0  # [s] between two looks for machines that have joined
PATIENCE = 120.0  # [s] without a single rollout before the run gives up


def fingerprint(robot: str) -> dict[str, str]:
    """What must be the same on learner and worker: code, robot files, and the versions of what simulates and computes."""
    from policy.provenance import robot_hash

    code = hashlib.sha256()
    here = Path(__file__).parent.parent
    for package in ("perception", "sim", "policy"):
        for path in sorted((here / package).glob("*.py")):
            code.update(path.name.encode() + path.read_bytes())
    versions = {name: importlib.metadata.version(name) for name in ("mujoco", "torch", "numpy")}
    return {"code": code.hexdigest()[:12], "robot": robot_hash(robot), **versions}


class RobotWorker:
    """Robots of one worker; becomes a Ray actor. cfg: of the run; robots: of this worker; number: unlike any other worker's, its seed."""

    def __init__(self, cfg: "TrainCfg", robots: int, number: int) -> None:
        self.cfg = replace(cfg, robots=robots, minibatch=robots * cfg.horizon, seed=cfg.seed + 7919 * (number + 1))
        self.session: Session | None = None

    def whoami(self) -> dict[str, Any]:
        """Process, machine and fingerprint."""
        return {"pid": os.getpid(), "host": socket.gethostname(), "fingerprint": fingerprint(self.cfg.robot)}

    def collect(self, behaviour: Behaviour, level: dict[str, Any]) -> Rollout:
        """The next rollout at this level of the curriculum."""
        from policy.sources import Sequential
        from policy.training import build

        if self.session is None:  # not before the learner has let this worker in
            self.session = build(self.cfg, threads=1)
            source = self.session.algorithm.source
            assert isinstance(source, Sequential)
            self.sampler = source.sampler
        curriculum = self.session.curriculum
        if level != curriculum.state():
            curriculum.restore(level)
            self.session.env.task.widths = curriculum.widths
            self.session.set_level()
        return self.sampler.collect(behaviour)


class Workers:
    """A source of rollouts made by Ray actors.

    count: workers wanted, 0 for one per CPU of the cluster but one, looked at again every LOOK_EVERY seconds. address: of a Ray cluster,
    "" starts one on this machine. level(): state of the curriculum. told: called with one line when workers come, go or are refused.
    Raises UserError when there is no cluster, or when no worker is left that may work.
    """

    def __init__(self, cfg: "TrainCfg", count: int, address: str, level: Callable[[], dict[str, Any]], told: Callable[[str], None]) -> None:
        try:
            import ray
        except ModuleNotFoundError as error:
            raise UserError("workers need Ray: pip install 'birdie[ray]'") from error
        self.ray, self.cfg, self.count, self.level, self.told = ray, cfg, count, level, told
        self.elastic = bool(address) and not count
        host, _, port = address.partition(":")
        if port.isdecimal():  # Ray itself tries for a minute
            try:
                socket.create_connection((host, int(port)), timeout=5).close()
            except OSError as error:
                raise UserError(f"no Ray cluster at {address}: {error.strerror or error}; start one with: ray start --head") from error
        if ray.is_initialized():
            ray.shutdown()
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        try:
            if address:
                ray.init(address=address, **quiet)
            else:
                ray.init(num_cpus=max(count, 1), include_dashboard=False, object_store_memory=512 * 2**20, **quiet)
        except Exception as error:  # Ray raises many kinds
            raise UserError(f"Ray does not start at {address or 'this machine'}: {str(error).splitlines()[0]}; "
                            "a cluster is started with: ray start --head") from error
        if self.elastic:
            self.count = self._cluster_size()
        self.robots = -(-cfg.robots // self.count)
        self._expected = fingerprint(cfg.robot)
        self._actor = ray.remote(num_cpus=1, max_restarts=0)(RobotWorker)
        self._number, self._refused = 0, 0
        self._names: dict[Any, str] = {}  # actor -> how it is called in messages
        self._pending: dict[Any, Any] = {}  # reference of a rollout -> actor
        self._greeting: dict[Any, Any] = {}  # reference of whoami -> actor
        self._idle: list[Any] = []
        self._looked = time.monotonic()
        self._hire()

    def _cluster_size(self) -> int:
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)) - 1)

    def _hire(self) -> None:
        """Start as many workers as are missing."""
        if self.elastic and time.monotonic() - self._looked > LOOK_EVERY:
            self._looked = time.monotonic()
            size = self._cluster_size()
            if size != self.count:
                self.told(f"the cluster now has room for {size} workers, was {self.count}")
                self.count = size
        for _ in range(self.count - self._refused - len(self._names)):
            actor = self._actor.remote(self.cfg, self.robots, self._number)
            self._names[actor] = f"worker {self._number}"
            self._number += 1
            self._greeting[actor.whoami.remote()] = actor  # type: ignore[attr-defined]

    def _greet(self, ref: Any) -> None:
        """Let a new worker in, or refuse it by name."""
        actor = self._greeting.pop(ref)
        who = self.ray.get(ref)
        name = f"{self._names[actor]} (process {who['pid']} on {who['host']})"
        other = {k: (v, self._expected[k]) for k, v in who["fingerprint"].items() if v != self._expected[k]}
        if other:
            what = ", ".join(f"{k} {theirs} instead of {ours}" for k, (theirs, ours) in other.items())
            self.told(f"{name} refused: it has {what}; install the same birdie and robot there")
            self._refused += 1
            self.ray.kill(actor)
            del self._names[actor]
            if self._refused >= self.count:
                raise UserError(f"no worker may work: the last one has {what}; install the same birdie and robot on all machines")
        else:
            self._names[actor] = name
            self.told(f"{name} joined with {self.robots} robots")
            self._idle.append(actor)

    def take(self, behaviour: Callable[[], Behaviour]) -> Rollout:
        """A rollout of as many robots as the run has, from whichever workers are ready first."""
        parts: list[Rollout] = []
        weights = self.ray.put(behaviour())
        level = self.level()
        start = time.monotonic()
        while sum(p.reward.shape[1] for p in parts) < self.cfg.robots:
            self._hire()
            for actor in self._idle:
                self._pending[actor.collect.remote(weights, level)] = actor
            self._idle.clear()
            ready, _ = self.ray.wait([*self._pending, *self._greeting], num_returns=1, timeout=1.0)
            for ref in ready:
                actor = self._pending.get(ref) or self._greeting[ref]
                try:
                    if ref in self._greeting:
                        self._greet(ref)
                    else:
                        parts.append(self.ray.get(ref))
                        self._idle.append(self._pending.pop(ref))
                        start = time.monotonic()
                except self.ray.exceptions.RayError as error:
                    self._pending.pop(ref, None)
                    self._greeting.pop(ref, None)
                    self.told(f"{self._names.pop(actor)} is gone ({type(error).__name__}: {_cause(error)}); a new one takes its place")
            if time.monotonic() - start > PATIENCE:
                raise UserError(f"no rollout for {PATIENCE:.0f} s from {len(self._names)} workers; is the cluster still there? The last "
                                "checkpoint is whole: go on with --resume")
        for actor in self._idle:  # at once, while the learner learns
            self._pending[actor.collect.remote(weights, level)] = actor
        self._idle.clear()
        return Rollout.join(parts)

    def ahead(self, behaviour: Callable[[], Behaviour]) -> None:
        pass

    def close(self) -> None:
        """Let all workers go."""
        self.ray.shutdown()


def _cause(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else "no reason given")[:160]
