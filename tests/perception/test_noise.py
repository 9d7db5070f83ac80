"""The noise model: what is drawn has the spread that was asked for, and looks like what was recorded."""

import shutil
import time
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from perception import verbs
from perception.camera import StereoRig, zedx
from perception.errors import UserError
from perception.noise import SHIPPED, UNITS, NoiseCfg, draw_bias, draw_latency, sample, step_bias

RECORDED = Path(__file__).parents[3] / "shared" / "data" / "stereo_rallies"
needs_recordings = pytest.mark.skipif(not RECORDED.is_dir(), reason=f"the recorded rallies are not at {RECORDED}")
CLEAN = NoiseCfg(**{f.name: 0.0 for f in fields(NoiseCfg) if f.name != "bias_time_s"})
RIG = zedx("SVGA", 4)


def report(cfg, rng, point=(0.3, -0.2, 4.0), velocity=(0.0, 0.0, 0.0), body_rate=0.0, count=20000, rig=RIG):
    points, speeds = (np.tile(np.array(x, float), (count, 1)) for x in (point, velocity))
    return sample(cfg, rig, points, speeds, np.full(count, float(body_rate)), np.zeros((count, 3)), rng)


def test_without_noise_the_truth_is_reported(rng):
    out, seen = report(CLEAN, rng)
    f, c = RIG.left.fx, RIG.left
    assert seen.all()
    np.testing.assert_allclose(out[0], [f * 0.075 + c.cx, -f * 0.05 + c.cy, f * 0.12 / 4])


@pytest.mark.parametrize("point", [(0, 0, -3), (0, 0, 0), (9, 0, 4), (0, -8, 4), (-3.05, 0, 4)])
def test_nothing_is_seen_behind_beside_or_by_one_eye_only(rng, point):
    out, seen = report(CLEAN, rng, point, count=10)
    assert not seen.any() and np.isnan(out).all()


def test_spread_is_what_a_filter_is_told(rng):
    cfg = replace(CLEAN, pixel_sigma=0.6, tail_share=0.1, eye_correlation=0.4)
    out, _ = report(cfg, rng)
    pixel, disparity = cfg.measurement_sigma
    np.testing.assert_allclose(out.std(axis=0), [pixel, pixel, disparity], rtol=0.03)


def test_eyes_that_err_alike_know_depth_better_and_direction_no_better(rng):
    alone, alike = (report(replace(CLEAN, pixel_sigma=0.6, eye_correlation=rho), rng)[0].std(axis=0) for rho in (0.0, 0.8))
    assert alike[2] == pytest.approx(alone[2] * np.sqrt(0.2), rel=0.05) and alike[0] == pytest.approx(alone[0], rel=0.05)


def test_blur_adds_noise_along_the_streak_only(rng):
    cfg = replace(CLEAN, pixel_sigma=0.1, blur_share=0.1, exposure_s=0.004)
    out, _ = report(cfg, rng, velocity=(0, 20, 0))
    streak = RIG.left.fy * 20 / 4 * 0.004
    assert out[:, 1].std() == pytest.approx(np.hypot(0.1, 0.1 * streak), rel=0.04)
    assert out[:, 0].std() == pytest.approx(0.1, rel=0.04)


def test_a_shuttle_coming_straight_at_the_lens_leaves_no_streak(rng):
    out, _ = report(replace(CLEAN, pixel_sigma=0.1, blur_share=0.5, exposure_s=0.004), rng, point=(0, 0, 4), velocity=(0, 0, -20))
    assert out[:, 1].std() == pytest.approx(0.1, rel=0.04)


def test_a_turning_body_shakes_both_eyes_together(rng):
    out, _ = report(replace(CLEAN, timing_sigma_s=0.002), rng, body_rate=1.5)
    np.testing.assert_allclose(out[:, :2].std(axis=0), RIG.left.fx * 0.002 * 1.5, rtol=0.04)
    assert np.ptp(out[:, 2]) < 1e-9


@pytest.mark.parametrize(("worse", "better"), [
    ({"point": (0, 0, 12)}, {"point": (0, 0, 5)}), ({"velocity": (25, 0, 0)}, {"velocity": (2, 0, 0)}),
    ({"body_rate": 3.0}, {"body_rate": 0.0}),
])
def test_misses_grow_with_range_blur_and_body_rate(rng, worse, better):
    cfg = NoiseCfg(false_rate=0.0)
    assert report(cfg, rng, **worse)[1].mean() < report(cfg, rng, **better)[1].mean() - 0.02


def test_dropped_frames_and_false_reports_come_at_their_rates(rng):
    _, seen = report(replace(CLEAN, drop_rate=0.1), rng)
    assert seen.mean() == pytest.approx(0.9, abs=0.01)
    out, seen = report(replace(CLEAN, false_rate=0.05), rng, point=(0, 0, -1))
    assert seen.mean() == pytest.approx(0.05, abs=0.006) and np.isfinite(out[seen]).all()
    assert out[seen, 0].std() == pytest.approx(RIG.left.width / np.sqrt(12), rel=0.1)


def test_slow_error_keeps_its_spread_and_forgets_itself_in_its_time(rng):
    cfg = replace(CLEAN, bias_sigma=0.5, bias_flat=1.0, bias_correlation=0.5, bias_time_s=0.2)
    start = draw_bias(cfg, 20000, rng)
    later = start
    for _ in range(12):
        later = step_bias(cfg, later, 1 / 60, rng)
    np.testing.assert_allclose(start.std(axis=0), [0.5, 0.5, 0.5], rtol=0.03)
    np.testing.assert_allclose(later.std(axis=0), [0.5, 0.5, 0.5], rtol=0.03)
    assert np.corrcoef(start[:, 0], later[:, 0])[0, 1] == pytest.approx(np.exp(-1), abs=0.03)


def test_latency_has_its_mean_and_is_never_negative(rng):
    late = draw_latency(NoiseCfg(latency_s=0.01, latency_sigma_s=0.02), 5000, rng)
    assert late.min() == 0.0
    assert draw_latency(NoiseCfg(), 5000, rng).mean() == pytest.approx(0.025, abs=0.001)


def test_the_same_seed_gives_the_same_bytes():
    a, b = (report(NoiseCfg(), np.random.default_rng(3), count=500) for _ in range(2))
    assert a[0].tobytes() == b[0].tobytes() and a[1].tobytes() == b[1].tobytes()


def test_a_pair_that_is_not_parallel_is_refused(rng):
    bent = replace(RIG, right_from_left_translation=np.array([-0.12, 0.01, 0.0]))
    with pytest.raises(ValueError, match="not parallel"):
        report(NoiseCfg(), rng, rig=bent)


def test_thousands_of_shuttles_cost_little(rng):
    n = 4096
    points, velocity = rng.uniform([-2, -1, 2], [2, 1, 9], (n, 3)), rng.normal(size=(n, 3)) * 8
    best = np.inf
    for _ in range(20):
        start = time.perf_counter()
        sample(NoiseCfg(), RIG, points, velocity, np.ones(n), np.zeros((n, 3)), rng)
        best = min(best, time.perf_counter() - start)
    assert best < 0.002  # half a millisecond on a quiet core


def test_file_round_trips_and_the_shipped_one_says_where_every_number_is_from(tmp_path):
    cfg = NoiseCfg.load()
    cfg.save(tmp_path / "noise.yaml", {"pixel_sigma": "measured"}, "two\nlines")
    assert NoiseCfg.load(tmp_path / "noise.yaml") == cfg
    lines = [x for x in SHIPPED.read_text().splitlines() if not x.startswith("#")]
    assert [x.split(":")[0] for x in lines] == list(UNITS) == [f.name for f in fields(NoiseCfg)]
    assert all(any(word in x for word in ("fitted", "prior", "chosen")) for x in lines)


@pytest.mark.parametrize(("text", "said"), [
    ("pixel_sigma: -1", "not negative"), ("pixels: 1", "unknown key pixels"), ("drop_rate: 1.5", "at most 1"),
    ("eye_correlation: 1", "below 1"),
    ("- 3", "holds no keys"), ("bias_time_s: 0", "above 0"), ("pixel_sigma: many", "no noise model"), (":\n\t", "no noise model"),
])
def test_files_that_are_no_noise_model_are_refused(tmp_path, text, said):
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(UserError, match=said):
        NoiseCfg.load(tmp_path / "bad.yaml")


def test_fitting_needs_a_rig_and_recordings(tmp_path):
    with pytest.raises(UserError, match="needs --rig"):
        verbs.calibrate(noise=tmp_path)
    RIG.save(tmp_path / "rig.yaml")
    with pytest.raises(UserError, match="no label files"):
        verbs.calibrate(noise=tmp_path, rig=tmp_path / "rig.yaml")
    replace(RIG, fps=0.0).save(tmp_path / "rig.yaml")
    with pytest.raises(UserError, match="says no fps"):
        verbs.calibrate(noise=tmp_path, rig=tmp_path / "rig.yaml")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    from perception.smoothing import smooth_folder

    folder = tmp_path_factory.mktemp("labels")
    for rally in ("11-46-04", "11-48-28", "11-47-02"):
        for camera in (1, 2):
            shutil.copy(RECORDED / f"{rally}_camera{camera}.csv", folder)
    rig = StereoRig.load(RECORDED / "rig.json")
    return smooth_folder(folder, rig)[0], rig.fps


@needs_recordings
def test_sampled_residuals_look_like_the_recorded_ones(recorded):
    from perception.noise_fit import distance, fit_noise, sampled_shape

    flights, fps = recorded
    cfg, _, seen = fit_noise(flights, fps)
    cfg = replace(cfg, exposure_s=1 / fps)
    drawn = sampled_shape(cfg, flights * 3, fps, np.random.default_rng(7))
    for what in ("along", "across", "white_along", "white_across"):
        # residuals of one flight are no independent samples, so the bar is on the distance itself, not on its p-value
        assert distance(getattr(seen, what), getattr(drawn, what)) < 0.07, what
    np.testing.assert_allclose(drawn.memory, seen.memory, atol=0.15)
    louder = sampled_shape(replace(cfg, pixel_sigma=2 * cfg.pixel_sigma), flights * 3, fps, np.random.default_rng(7))
    steadier = sampled_shape(replace(cfg, bias_sigma=0.5 * cfg.bias_sigma), flights * 3, fps, np.random.default_rng(7))
    assert distance(seen.white_across, louder.white_across) > 0.1 and distance(seen.across, steadier.across) > 0.1


@needs_recordings
def test_the_shipped_noise_is_that_of_the_recordings(recorded):
    from perception.noise_fit import fit_noise

    shipped = NoiseCfg.load()
    cfg, sources, _ = fit_noise(*recorded, slow=False)
    fitted = [key for key in UNITS if sources[key].startswith("fitted")]
    assert {"pixel_sigma", "tail_share", "blur_share", "false_rate"} <= set(fitted)
    assert cfg.measurement_sigma[0] == pytest.approx(shipped.measurement_sigma[0], rel=0.15)
    assert cfg.blur_share == pytest.approx(shipped.blur_share, abs=0.02)
    assert sources["latency_s"].startswith("prior") and cfg.latency_s == NoiseCfg().latency_s
