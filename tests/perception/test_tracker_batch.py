"""The tracker in a batch: the same answers for one and for many, and the rules of the single tracker in their simplest form."""

import numpy as np
import pytest

from perception.camera import project
from perception.flight import fly, sample_coefficients
from perception.tracker_batch import TrackerBatch, TrackerBatchCfg
from tests.perception.flights import robot_rig

RATE = 60.0
CFG = TrackerBatchCfg(pixel_sigma=0.5, disparity_sigma=0.5)


def shots(rng, count, steps=45):
    p = np.stack([rng.uniform(-1, 1, count), np.full(count, 3.0), rng.uniform(1, 2, count)], axis=1)
    v = np.stack([rng.uniform(-2, 2, count), rng.uniform(-16, -11, count), rng.uniform(5, 8, count)], axis=1)
    return fly(p, v, *sample_coefficients(rng, count), 1 / RATE, steps)


def measured(rig, points, rng=None, four=False):
    pixels = project(rig, points)
    if not four:
        pixels = np.stack([pixels[:, 0], pixels[:, 1], pixels[:, 0] - pixels[:, 2]], axis=1)
    inside = rig.left.inside(pixels[:, :2])
    return pixels + (0.0 if rng is None else 0.5 * rng.normal(size=pixels.shape)), inside


def run(rig, path, rng, steps=None, four=False, cfg=CFG):
    batch = TrackerBatch(len(path), rig, cfg)
    for n in range(steps or path.shape[1]):
        batch.step(n / RATE, *measured(rig, path[:, n, :3], rng, four))
    return batch


@pytest.mark.parametrize("four", [False, True], ids=["u v disparity", "uL vL uR vR"])
def test_follows_shots_and_knows_how_well(rng, four):
    rig, path = robot_rig(), shots(rng, 200)
    batch = run(rig, path, rng, 30, four)
    assert batch.valid.mean() > 0.97
    off = (batch.state[:, :6] - path[:, 29])[batch.valid]
    assert np.median(np.linalg.norm(off[:, :3], axis=1)) < 0.1
    nees = np.einsum("ni,nij,nj->n", off, np.linalg.inv(batch.covariance[batch.valid][:, :6, :6]), off)
    assert 2.5 < np.median(nees) < 8.0  # chi-square with six freedoms: 5.3; under it, since these flights have no flip after the hit


def test_covariances_are_symmetric_and_positive(rng):
    batch = run(robot_rig(), shots(rng, 100), rng)
    np.testing.assert_array_equal(batch.covariance, batch.covariance.transpose(0, 2, 1))
    scale = np.sqrt(np.einsum("nii->ni", batch.covariance))
    assert np.linalg.eigvalsh(batch.covariance / scale[:, :, None] / scale[:, None, :]).min() > -1e-9


def test_one_is_tracked_as_in_a_batch(rng):
    rig, path = robot_rig(), shots(rng, 40)
    measurements = [measured(rig, path[:, n, :3], rng) for n in range(25)]
    many, alone = TrackerBatch(40, rig, CFG), TrackerBatch(1, rig, CFG)
    for n, (z, seen) in enumerate(measurements):
        many.step(n / RATE, z, seen)
        alone.step(n / RATE, z[17:18], seen[17:18])
    np.testing.assert_array_equal(many.state[17], alone.state[0])
    np.testing.assert_array_equal(many.covariance[17], alone.covariance[0])


def test_moving_cameras_are_taken_where_they_were(rng):
    from perception.camera import Pose

    rig, path = robot_rig(), shots(rng, 1)
    batch = TrackerBatch(1, rig, CFG)
    for n in range(30):
        angle = 0.1 * np.sin(0.4 * n)
        tip = np.array([[1, 0, 0], [0, np.cos(angle), -np.sin(angle)], [0, np.sin(angle), np.cos(angle)]])
        rotation = tip @ rig.pose.rotation
        pose = Pose(rotation, -rotation @ (rig.pose.centre + [0, 0.01 * n, 0]))
        pixels = project(rig, path[:, n, :3], pose)
        z = np.stack([pixels[:, 0], pixels[:, 1], pixels[:, 0] - pixels[:, 2]], axis=1)
        batch.step(n / RATE, z, np.array([True]), pose.rotation[None], pose.translation[None])
    assert batch.valid[0] and np.linalg.norm(batch.state[0, :3] - path[0, 29, :3]) < 0.05


def test_a_stray_measurement_is_gated(rng):
    rig, path = robot_rig(), shots(rng, 50)
    batch = run(rig, path, rng, 25)
    followed, before = batch.valid.copy(), batch.state.copy()
    z, seen = measured(rig, path[:, 25, :3], rng)
    batch.step(25 / RATE, z + [150.0, 0, 0], seen)
    assert (batch.valid == followed).all()
    assert np.linalg.norm(batch.state[:, :3] - path[:, 25, :3], axis=1)[followed].max() < 1.0
    assert not np.array_equal(before, batch.state)  # it flew on


def test_hit_starts_anew_within_four_frames(rng):
    rig, path = robot_rig(), shots(rng, 30, 25)
    back = fly(path[:, -1, :3], np.tile([[0.0, 12.0, 8.0]], (30, 1)), np.full(30, 0.25), np.full(30, 0.5), 1 / RATE, 12)
    batch = run(rig, np.concatenate([path, back[:, 1:]], axis=1), rng)
    assert batch.valid.all()
    assert (batch.state[:, 4] > 0).mean() > 0.95
    assert np.abs(batch.born - 24 / RATE).max() < 3 / RATE


def test_coasts_a_little_and_no_longer(rng):
    rig, path = robot_rig(), shots(rng, 20, 60)
    batch = run(rig, path, rng, 25)
    for n in range(25, 50):
        batch.step(n / RATE, np.zeros((20, 3)), np.zeros(20, bool))
        assert batch.valid.all() == (n / RATE - 24 / RATE <= CFG.coast + 1e-9)
        assert batch.valid.any() == batch.valid.all()


def test_not_finite_counts_as_not_seen_and_noise_makes_no_flight(rng):
    rig = robot_rig()
    batch = TrackerBatch(30, rig, CFG)
    for n in range(60):
        z = rng.uniform([0, 0, 3], [960, 600, 30], (30, 3))
        z[:10] = np.nan
        batch.step(n / RATE, z, np.ones(30, bool))
        assert not batch.valid[:10].any()
    assert np.isfinite(batch.state).all() and batch.valid.mean() < 0.1


def test_reset_forgets_flights(rng):
    batch = run(robot_rig(), shots(rng, 4), rng, 20)
    batch.reset(np.array([True, False, True, False]))
    assert batch.valid.tolist() == [False, True, False, True]


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match=r"\(4, 3\) or \(4, 4\)"):
        TrackerBatch(4, robot_rig()).step(0.0, np.zeros((3, 3)), np.ones(4, bool))
