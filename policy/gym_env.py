"""The task with one robot as a registered Gymnasium environment: `import policy.gym_env`, then
`gymnasium.make("birdie/Badminton-v0")`."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from policy.swings import ShotPool, SwingRange, draw_swings
from policy.task import ACTION_CLIP, BadmintonTask
from sim.robot import load_robot

OBSERVATION_BOUND = 1e3  # no sensed value comes near it; infinite bounds make Gymnasium's own checks warn


class BadmintonEnv(gymnasium.Env):
    """One robot, targets of the evaluation's range. Observation: actor and critic parts as in training, float32."""

    metadata = {"render_modes": []}  # noqa: RUF012, Gymnasium's own convention

    def __init__(self, robot: str = "anymal_dynaarm", span: SwingRange | None = None) -> None:
        self._robot = load_robot(robot)
        self._span = span or SwingRange.box(self._robot.scale)
        self._rng = np.random.default_rng()
        self._pool = ShotPool(np.random.default_rng(0), self._robot.scale, count=256)
        self._task = BadmintonTask(self._robot, 1, self._draw, threads=1)
        size, joints = self._task.observation_size, len(self._robot.joint_names)
        self.observation_space = spaces.Box(-OBSERVATION_BOUND, OBSERVATION_BOUND, (size,), np.float32)
        self.action_space = spaces.Box(-ACTION_CLIP, ACTION_CLIP, (joints,), np.float32)

    def _draw(self, ids: np.ndarray) -> Any:
        return draw_swings(self._rng, len(ids), self._span, self._pool)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self._rng = np.random.default_rng(seed)
            self._task.rng = np.random.default_rng(seed)
        return self._task.reset()[0], {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        step = self._task.step(np.asarray(action)[None])
        observation = step.terminal_observation[0] if step.done[0] else step.observation[0]
        info = {"racket_error_m": float(step.strike_position_error[0])} if len(step.struck) else {}
        return observation, float(step.reward[0]), bool(step.terminated[0]), bool(step.truncated[0]), info


gymnasium.register("birdie/Badminton-v0", entry_point="policy.gym_env:BadmintonEnv")
