"""Fit of the noise model to label recordings: what is left of flights about their smooth course, drawn again.

Sampled noise is put through the same smoother as the recorded labels, linearised about the flight (`smoothing.py`), before the
two are compared. Second differences of the residuals show mostly the white part; the rest wanders slowly, with the rig's local
errors and the model's own.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from perception.noise import CLEAR_SIZE, NoiseCfg, pixel_errors
from perception.smoothing import SmoothFlight

Array = np.ndarray

DRAWS = 3  # of the slow error for every recorded flight
ROUNDS = 2  # of white, blur and slow part in turn; a third changes nothing by 3 %
QUICK, LEAST_QUICK = 5.0, 200  # [px] streak above which a frame tells of blur, and so many such frames are enough
SPREADS = ("along", "across", "white_along", "white_across")  # of `Shape`
LAGS = (1, 2, 3, 5, 8, 12, 20)  # frames at which the slow error's memory is compared
TIMES = (0.06, 0.12, 0.25, 0.4, 0.6, 0.9, 1.4)  # [s] tried for it


def sampled_errors(cfg: NoiseCfg, flight: SmoothFlight, fps: float, rng: np.random.Generator, white: bool = True,
                   slow: bool = True) -> Array:
    """Errors (M, 2) [px] that the model draws for a flight's frames, before any smoother. The two cameras stand apart: their
    errors are independent. cfg.exposure_s counts in frames' times, as the flight's streaks do."""
    errors = np.zeros((len(flight.time), 2))
    alone = replace(cfg, eye_correlation=0.0)
    for side in (0, 1):
        rows = np.flatnonzero(flight.side == side)
        if white:
            errors[rows] += pixel_errors(alone, flight.streak[rows] * (cfg.exposure_s * fps), rng)[:, 0]
        if slow:
            keep = np.exp(-np.diff(flight.time[rows], prepend=-np.inf) / cfg.bias_time_s)
            draw = cfg.bias_sigma * rng.standard_normal((len(rows), 2)) * np.sqrt(1 - keep**2)[:, None]
            for n in range(1, len(rows)):
                draw[n] += keep[n] * draw[n - 1]
            errors[rows] += draw
    return errors


@dataclass(frozen=True, eq=False)
class Shape:
    """What residuals look like, all flights together: along, across (K,) the streak [px]; white_along, white_across (K,) of
    their second differences, scaled to one label's sigma; streak (K,) [px] of the latter; memory: autocorrelation at `LAGS`."""

    along: Array
    across: Array
    white_along: Array
    white_across: Array
    streak: Array
    memory: Array


def shape(flights: list[SmoothFlight], residuals: list[Array]) -> Shape:
    """Of residuals (M, 2) [px] by flight."""
    parts: list[list[Array]] = [[] for _ in range(5)]
    products, squares = np.zeros((len(LAGS), 2)), 0.0
    for flight, residual in zip(flights, residuals, strict=True):
        for side in (0, 1):
            rows = flight.side == side
            if rows.sum() < 5:
                continue
            off, speed = residual[rows], np.linalg.norm(flight.streak[rows], axis=1)
            way = flight.streak[rows] / np.maximum(speed, 1e-9)[:, None]
            normal = np.column_stack([-way[:, 1], way[:, 0]])
            second = (off[2:] - 2 * off[1:-1] + off[:-2]) / np.sqrt(6)
            columns = (np.sum(off * way, axis=1), np.sum(off * normal, axis=1), np.sum(second * way[1:-1], axis=1),
                       np.sum(second * normal[1:-1], axis=1), np.where(np.isfinite(second[:, 0]), speed[1:-1], np.nan))
            for part, values in zip(parts, columns, strict=True):
                part.append(values[np.isfinite(values)])
            held = np.clip(off, -5, 5)  # a few wild labels must not decide how long the rest remember
            squares += float(np.nanmean(held**2)) * len(off)
            for n, lag in enumerate(LAGS):
                if lag < len(off):
                    both = held[lag:] * held[:-lag]
                    products[n] += [np.nanmean(both) * len(off) if np.isfinite(both).any() else 0.0, len(off)]
    total = products[0, 1]
    along, across, white_along, white_across, streak = (np.concatenate(p) for p in parts)
    memory = products[:, 0] / np.maximum(products[:, 1], 1) / (squares / total)
    return Shape(along, across, white_along, white_across, streak, memory)


def sampled_shape(cfg: NoiseCfg, flights: list[SmoothFlight], fps: float, rng: np.random.Generator, **parts: bool) -> Shape:
    """Shape of what the model draws for these flights, after the smoother; not labelled frames stay so."""
    out = []
    for flight in flights:
        left = flight.smoothed(sampled_errors(cfg, flight, fps, rng, **parts))
        out.append(np.where(np.isfinite(flight.residual), left, np.nan))
    return shape(flights, out)


def _middle(values: Array) -> float:
    """Median magnitude, the robust size of an error."""
    return float(np.median(np.abs(values)))


def fit_noise(flights: list[SmoothFlight], fps: float, prior: NoiseCfg = NoiseCfg(), slow: bool = True,
              seed: int = 1) -> tuple[NoiseCfg, dict[str, str], Shape]:
    """Noise model of recorded flights, where each number is from (by key), and the recorded residuals' shape.

    slow False keeps the prior's slow error: for a noise model of another rig than the one recorded, whose lens is not its own.
    A label's streak is taken over the whole frame time, since recordings do not say their exposure; exposure_s stays the prior's.
    """
    seen = shape(flights, [f.residual for f in flights])
    count = f"{len(flights)} recorded flights"
    sources = {}
    quick = seen.streak > QUICK
    sources["pixel_sigma"] = sources["tail_share"] = f"fitted to {count}"
    sources["blur_share"] = (f"fitted to {count}, the whole frame time taken as exposure" if quick.sum() >= LEAST_QUICK
                             else f"prior; {quick.sum()} quick frames are too few")
    sources["bias_sigma"] = sources["bias_time_s"] = (
        f"fitted to {count}; holds that rig's local errors and the flight model's" if slow
        else "prior; the recorded rig's is its own")
    cfg = replace(prior, bias_sigma=0.0) if slow else prior
    for _ in range(ROUNDS):  # the slow error shows in second differences too, and the white one in the size
        cfg = _fit_white(cfg, seen, fps, seed)
        if quick.sum() >= LEAST_QUICK:
            cfg = replace(cfg, blur_share=_fit_blur(cfg, seen, quick))
        if slow:
            cfg = _fit_slow(cfg, flights, fps, seed)
    rows = np.concatenate([np.isfinite(f.pixels[:, 0]) for f in flights])
    false = np.concatenate([f.false for f in flights])
    size = np.concatenate([f.size for f in flights])
    miss = float(np.mean(~rows))
    small = size < CLEAR_SIZE / 1.5
    if small.sum() >= 1000 and np.mean(~rows[small]) > 2 * miss:
        sources["miss_small"] = f"fitted to {count}"
        miss_small = float((np.mean(~rows[small]) - miss) / np.mean(CLEAR_SIZE / size[small] - 1))
    else:
        sources["miss_small"] = f"prior; {small.sum()} frames with a shuttle under {CLEAR_SIZE / 1.5:.1f} px show no growth"
        miss_small = prior.miss_small
    streaks = np.concatenate([np.linalg.norm(f.streak, axis=1) for f in flights]) > QUICK
    sources["miss_base"], sources["false_rate"] = f"fitted to {count}, {len(rows)} frames", f"fitted to {count}"
    for key, why in (("bias_correlation", "the eyes' errors were not seen in one view"), ("bias_flat", "not told apart"), ("bias_growth", "recorded shuttles were of one size"),
                     ("eye_correlation", "the eyes' errors were not seen in one view"),
                     ("exposure_s", "recordings do not say it"), ("timing_sigma_s", "the cameras stood still"),
                     ("miss_blur", f"{np.sum(~rows & streaks)} of {streaks.sum()} quick frames were missed, too few to tell"),
                     ("miss_turn", "the cameras stood still"), ("drop_rate", "labels have every frame"),
                     ("latency_s", "labels have no arrival time"),
                     ("latency_sigma_s", "labels have no arrival time")):
        sources[key] = f"prior; {why}"
    cfg = replace(cfg, miss_base=round(miss, 5), miss_small=round(miss_small, 4),
                  false_rate=round(float(false.sum() / max(rows.sum(), 1)), 5))
    return cfg, sources, seen


def _fit_white(cfg: NoiseCfg, seen: Shape, fps: float, seed: int) -> NoiseCfg:
    """pixel_sigma and tail_share at which second differences across the streak have the recorded middle and 98 % quantile."""
    rng = np.random.default_rng(seed)
    keep = np.exp(-1 / (fps * cfg.bias_time_s))
    # second differences of the slow error: its own three-step innovations
    a, b = rng.standard_normal((2, 20000)) * cfg.bias_sigma * np.sqrt(1 - keep**2) / np.sqrt(6)
    slow = b - (2 - keep) * a
    middle, far = _middle(seen.white_across), float(np.percentile(np.abs(seen.white_across), 98))
    best = (np.inf, cfg.pixel_sigma, cfg.tail_share)
    for share in np.linspace(0, 0.4, 21):
        trial, again = replace(cfg, pixel_sigma=1.0, tail_share=float(share)), np.random.default_rng(seed + 1)
        draw = pixel_errors(trial, np.zeros((20002, 2)), again)[:, 0, 0]
        white = (draw[2:] - 2 * draw[1:-1] + draw[:-2]) / np.sqrt(6)
        low, high = 0.0, 10.0
        for _ in range(20):
            sigma = 0.5 * (low + high)
            low, high = (sigma, high) if _middle(sigma * white + slow) < middle else (low, sigma)
        best = min(best, (abs(float(np.percentile(np.abs(sigma * white + slow), 98)) - far), sigma, float(share)))
    return replace(cfg, pixel_sigma=round(best[1], 4), tail_share=round(best[2], 4))


def _fit_blur(cfg: NoiseCfg, seen: Shape, quick: Array) -> float:
    """blur_share at which quick frames scatter along the streak as much as across it, once blur is taken out."""
    across = _middle(seen.white_across[quick])
    low, high = 0.0, 1.0
    for _ in range(30):
        share = 0.5 * (low + high)
        rest = seen.white_along[quick] / np.sqrt(1 + (share * seen.streak[quick] / (across * 1.4826)) ** 2)
        low, high = (share, high) if _middle(rest) > across else (low, share)
    return round(share, 4)


def _fit_slow(cfg: NoiseCfg, flights: list[SmoothFlight], fps: float, seed: int) -> NoiseCfg:
    """bias_sigma and bias_time_s at which samples have the recorded size and memory, once smoothed."""
    rng = np.random.default_rng(seed)
    whole = replace(cfg, exposure_s=1 / fps, bias_sigma=1.0)
    flights = flights * DRAWS  # a slow error is nearly one number a flight: one draw of it would say little
    labelled = [np.isfinite(f.residual[:, 0]) for f in flights]
    target = _middle(np.concatenate([f.residual[good] for f, good in zip(flights, labelled, strict=True)]))
    seen = shape(flights, [f.residual for f in flights]).memory
    white = [f.smoothed(sampled_errors(whole, f, fps, rng, slow=False)) for f in flights]
    best = (np.inf, 0.0, cfg.bias_time_s)
    for memory in TIMES:
        again = np.random.default_rng(seed + 1)
        unit = [f.smoothed(sampled_errors(replace(whole, bias_time_s=memory), f, fps, again, white=False)) for f in flights]
        whites, units = (np.concatenate([x[good] for x, good in zip(xs, labelled, strict=True)]) for xs in (white, unit))
        low, high = 0.0, 20.0
        for _ in range(20):
            bias = 0.5 * (low + high)
            low, high = (bias, high) if _middle(whites + bias * units) < target else (low, bias)
        both = zip(white, unit, labelled, strict=True)
        drawn = shape(flights, [np.where(good[:, None], w + bias * u, np.nan) for w, u, good in both])
        best = min(best, (float(np.sum((drawn.memory - seen) ** 2)), bias, memory))
    return replace(cfg, bias_sigma=round(best[1], 4), bias_time_s=best[2])


def figures(cfg: NoiseCfg, sources: dict[str, str], seen: Shape, drawn: Shape, flights: int) -> dict[str, Any]:
    """What `birdie calibrate --noise --json` writes."""
    def size(s: Shape) -> dict[str, Any]:
        spreads = {f"{name}_px": 1.4826 * _middle(getattr(s, name)) for name in SPREADS}  # sigma of a Gaussian with that median
        return {**spreads, "memory_by_frames": dict(zip(map(str, LAGS), s.memory.tolist(), strict=True))}

    return {"flights": flights, "noise": asdict(cfg), "sources": sources, "recorded": size(seen), "sampled": size(drawn),
            "largest_difference_of_distributions": {name: distance(getattr(seen, name), getattr(drawn, name))
                                                    for name in SPREADS}}


def distance(a: Array, b: Array) -> float:
    """Largest difference of two samples' distribution functions (Kolmogorov-Smirnov)."""
    a, b = np.sort(a), np.sort(b)
    grid = np.concatenate([a, b])
    return float(np.abs(np.searchsorted(a, grid, "right") / len(a) - np.searchsorted(b, grid, "right") / len(b)).max())
