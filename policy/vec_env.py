"""The task as a stable-baselines3 VecEnv: one object for N robots, nothing per robot in Python on the hot path."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv

from policy.health import BlackBox
from policy.rollout import StrikeLog
from policy.task import ACTION_CLIP, BadmintonTask, Step


class BatchVecEnv(VecEnv):
    """N robots. `step_arrays` is the fast path; `step` keeps the VecEnv promise (infos, terminal observations) for any
    stable-baselines3 algorithm."""

    def __init__(self, task: BadmintonTask) -> None:
        self.task = task
        self.log = StrikeLog()
        self.black_box: BlackBox | None = None  # a run sets it
        joints = len(task.robot.joint_names)
        observation = spaces.Box(-np.inf, np.inf, (task.observation_size,), np.float32)
        super().__init__(task.count, observation, spaces.Box(-ACTION_CLIP, ACTION_CLIP, (joints,), np.float32))
        self._quiet: list[dict] = [{} for _ in range(task.count)]
        self._actions = np.zeros((task.count, joints), np.float32)

    def reset(self) -> np.ndarray:
        return self.task.reset()

    def step_arrays(self, actions: np.ndarray, log: StrikeLog | None = None) -> Step:
        """One step of all robots, results as arrays, counted in `log`, the environment's own if left out."""
        step = self.task.step(actions)
        (self.log if log is None else log).add(step)
        if self.black_box is not None:
            self.black_box.add(self.task, step)
        return step

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> Any:
        step = self.step_arrays(self._actions)
        infos = self._quiet
        done = step.done
        if done.any():
            infos = list(infos)
            for row, i in enumerate(np.flatnonzero(done)):
                infos[i] = {"terminal_observation": step.terminal_observation[row], "TimeLimit.truncated": bool(step.truncated[i])}
        return step.observation, step.reward, done, infos

    def close(self) -> None:
        pass

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self, attr_name, None)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError(f"{attr_name} belongs to the whole batch; set it on env.task")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise NotImplementedError(f"there are no single environments to call {method_name} on; use env.task")

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        return [False] * len(list(self._get_indices(indices)))

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        self.task.rng = np.random.default_rng(seed)
        return [seed] * self.num_envs
