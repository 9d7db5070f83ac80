"""The batched task: what arrives where and when, episodes, blow-ups, determinism."""

from dataclasses import replace

import numpy as np
import pytest

from policy.swings import ShotPool, SwingRange, Swings, draw_swings, swings_for_shots
from policy.task import BadmintonTask, TaskCfg
from sim.court import HOME_X
from sim.serves import human_shots

SPAN = {"wait_share": 0.5, "wait": (5, 20), "planned_share": 0.5}


@pytest.fixture(scope="module")
def robot(any_robot):
    return any_robot


@pytest.fixture(scope="module")
def pool(robot):
    return ShotPool(np.random.default_rng(0), robot.scale, count=200)


def make(robot, pool, count=6, seed=3, span=SPAN, swings=3, threads=1):
    rng, box = np.random.default_rng(seed), replace(SwingRange.box(robot.scale), **span)
    return BadmintonTask(robot, count, lambda ids: draw_swings(rng, len(ids), box, pool), seed=seed,
                         threads=threads, cfg=TaskCfg(swings=swings))


def test_shuttle_is_at_the_commanded_point_at_the_commanded_time(robot, pool):
    task = make(robot, pool)
    task.reset()
    checked = 0
    for _ in range(250):
        target, touched = task.current.position + [HOME_X, 0, 0], task.shuttles.touched.copy()
        due = (task.wait == 0) & (task.countdown == 1)
        step = task.step(np.zeros((6, 18)))
        for i in step.struck:
            assert due[i]
            if not task.shuttles.touched[i] and not touched[i] and not step.done[i]:
                assert np.linalg.norm(task.shuttles.position[i] - target[i]) < 1e-3
                checked += 1
    assert checked > 5


def test_measured_shot_arrives_with_its_own_speed(robot):
    swings, ids = swings_for_shots(human_shots(), robot.scale.meet_height, wait=4)
    assert len(ids) == 37
    order = iter(range(0, 37))

    def source(ids):
        given = Swings.idle(len(ids))
        for row in range(len(ids)):
            number = next(order, None)
            if number is not None:
                given.put(np.array([row]), swings.take(np.array([number])))
        return given

    task = BadmintonTask(robot, 37, source, threads=1, cfg=TaskCfg(swings=100))
    task.reset()
    start = np.linalg.norm(swings.shuttle_velocity, axis=1)
    np.testing.assert_allclose(start, np.linalg.norm(human_shots().velocity, axis=1))
    seen = np.zeros(37, bool)
    for _ in range(120):
        target = task.current.position + [HOME_X, 0, 0]
        step = task.step(np.zeros((37, 18)))
        for i in step.struck:
            if not task.shuttles.touched[i]:
                np.testing.assert_allclose(task.shuttles.position[i], target[i], atol=1e-4)
            seen[i] = True
    assert seen.sum() >= 30


def test_episode_ends_after_its_swings_and_hands_back_the_true_last_observation(robot, pool):
    task = make(robot, pool, count=4, swings=2)
    task.reset()
    ends = 0
    for _ in range(400):
        step = task.step(np.zeros((4, 18)))
        if step.truncated.any():
            ends += int(step.truncated.sum())
            row = np.flatnonzero(step.truncated)
            assert step.terminal_observation.shape == (len(row), task.observation_size)
            # the true last observation has a used robot, the new one a fresh one with no previous action and other joints
            assert (np.abs(step.terminal_observation - step.observation[row]).max(axis=1) > 1e-3).all()
    assert ends >= 4


@pytest.mark.parametrize("poison", [np.nan, np.inf, 1e8])
def test_blown_up_robot_is_reset_and_counted_and_leaves_the_others_alone(robot, pool, poison):
    calm, hurt = make(robot, pool), make(robot, pool)
    calm.reset()
    hurt.reset()
    action = np.zeros((6, 18))
    for k in range(30):
        if k == 10:
            hurt.physics.qvel[2, 7] = poison
        a, b = calm.step(action), hurt.step(action)
        if k == 10:
            assert b.blown.tolist() == [False, False, True, False, False, False]
            assert b.terminated[2] and b.reward[2] == 0
        assert np.isfinite(b.observation).all() and np.isfinite(b.reward).all()
        if k <= 10:  # afterwards the two draw different swings
            others = [0, 1, 3, 4, 5]
            np.testing.assert_array_equal(a.observation[others], b.observation[others])
    assert hurt.blown_total == 1 and calm.blown_total == 0
    assert np.isfinite(hurt.physics.qpos).all()


def test_not_a_number_as_action_does_no_harm(robot, pool):
    task = make(robot, pool)
    task.reset()
    step = task.step(np.full((6, 18), np.nan))
    assert np.isfinite(step.observation).all() and not step.blown.any()


def test_falling_ends_the_episode_with_a_penalty(robot, pool):
    task = make(robot, pool)
    task.reset()
    task.physics.qpos[1, 3:7] = np.cos(0.7), np.sin(0.7), 0, 0  # on its side, 80 degrees
    step = task.step(np.zeros((6, 18)))
    assert step.terminated[1] and not step.truncated[1] and step.reward[1] < -0.5


@pytest.mark.parametrize("threads", [1, 2])
def test_same_seed_same_bytes(robot, pool, threads):
    def roll(seed):
        task = make(robot, pool, seed=seed, threads=threads)
        first = task.reset()
        rng = np.random.default_rng(0)
        out = [first]
        for _ in range(60):
            out.append(task.step(0.3 * rng.normal(size=(6, 18))).observation)
        return np.concatenate(out)

    one = roll(3)
    assert one.tobytes() == roll(3).tobytes()
    assert one.tobytes() != roll(4).tobytes()


def test_waiting_robot_has_no_command(robot, pool):
    task = make(robot, pool, span={"wait_share": 1.0, "wait": (10, 11)})
    task.reset()
    active = []
    for _ in range(15):
        active.append(task.command().active.copy())
        task.step(np.zeros((6, 18)))
    active = np.array(active)
    assert not active[:10].any() and active[10:].all()


def test_single_environment_passes_the_gymnasium_checker():
    gymnasium = pytest.importorskip("gymnasium")
    from gymnasium.utils.env_checker import check_env

    import policy.gym_env  # noqa: F401

    env = gymnasium.make("birdie/Badminton-v0")
    check_env(env.unwrapped, skip_render_check=True)
