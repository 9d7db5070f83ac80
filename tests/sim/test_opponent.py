"""The opponent: reaches what a person could, lets go what is out, and hits towards the robot as people hit."""

import numpy as np
import pytest

from perception.flight import fly
from sim.court import HOME_X, is_in
from sim.opponent import Opponent, OpponentCfg
from sim.serves import GRID, height_over_net, human_like_shots, meet


def returns(rng, count, speed=(7.0, 12.0)):
    """Shuttles on their way back over the net from around the robot's home."""
    speed, rise, course = rng.uniform(*speed, count), rng.uniform(0.5, 1.1, count), rng.uniform(-0.2, 0.2, count)
    velocity = speed[:, None] * np.stack([np.cos(rise) * np.cos(course), np.cos(rise) * np.sin(course), np.sin(rise)], axis=1)
    position = np.tile([HOME_X + 0.5, 0.0, 1.8], (count, 1))
    return position, velocity, np.full(count, 0.248), np.full(count, 0.6)


def test_it_hits_where_and_when_the_return_is(rng):
    player = Opponent(rng, 1.8)
    r = returns(rng, 300, (9.0, 13.0))
    a = player.answer(*r)
    assert 0.3 < a.reached.mean() < 1
    path = fly(*r, GRID, 121)
    hit = np.flatnonzero(a.reached)
    np.testing.assert_allclose(a.shots.position[hit], path[hit, a.steps[hit], :3])
    assert (a.shots.position[hit, 0] > 0).all()
    assert (a.steps[hit] * GRID >= player.cfg.reaction).all()
    ran = np.hypot(*(a.shots.position[hit, :2] - player.cfg.home).T) - player.cfg.reach
    assert (ran <= player.cfg.speed * (a.steps[hit] * GRID - player.cfg.reaction) + 1e-9).all()


def test_what_lands_out_is_left(rng):
    r = returns(rng, 400, (6.0, 25.0))
    a = Opponent(rng, 1.8).answer(*r)
    path = fly(*r, 0.005, 1200)
    down = np.argmax(path[:, :, 2] <= 0, axis=1)
    landing = path[np.arange(400), down, :2]
    inside = is_in(landing[:, 0], landing[:, 1])
    near_a_line = np.abs(np.abs(landing[:, 0]) - 6.7) < 0.2
    assert not (a.reached & ~inside & ~near_a_line).any()
    assert (~inside).any() and inside.any()


def test_a_faster_player_reaches_more(rng):
    r = returns(rng, 400, (9.0, 14.0))
    slow, fast = (Opponent(np.random.default_rng(0), 1.8, OpponentCfg(speed=s)).answer(*r).reached.mean() for s in (0.5, 4.0))
    assert fast > slow + 0.1


def test_it_has_run_while_the_return_was_on_its_way(rng):
    r = returns(rng, 400, (9.0, 14.0))
    late, early = (Opponent(np.random.default_rng(0), 1.8, OpponentCfg(speed=1.0)).answer(*r, t).reached.mean() for t in (0.0, 0.6))
    assert early > late + 0.05


def test_its_shots_come_down_near_the_robot_and_most_pass_the_net(rng):
    player = Opponent(rng, 1.8)
    a = player.answer(*returns(rng, 400, (9.0, 13.0)))
    shots = a.shots.take(np.flatnonzero(a.reached))
    over = height_over_net(shots) > 1.55
    met = meet(shots, 1.8)
    assert over.mean() > 0.85  # people hit the net too
    good = over & (met.steps > 0)
    off = met.meeting[good, :2] - [HOME_X, 0.0]
    assert np.percentile(np.abs(off), 90, axis=0) == pytest.approx([0.5, 0.9], abs=0.4)


def test_its_shots_are_as_fast_as_peoples(rng):
    a = Opponent(rng, 1.8).answer(*returns(rng, 400, (9.0, 13.0)))
    speed = np.linalg.norm(a.shots.velocity[a.reached], axis=1)
    people = np.linalg.norm(human_like_shots(rng, 1000).velocity, axis=1)
    assert people.min() <= speed.min() and speed.max() <= people.max()


def test_same_seed_same_player():
    a, b = (Opponent(np.random.default_rng(4), 1.8).serve(5).velocity for _ in range(2))
    np.testing.assert_array_equal(a, b)


def test_impossible_players_are_refused():
    with pytest.raises(ValueError, match="x > 0"):
        OpponentCfg(home=(-1.0, 0.0))
