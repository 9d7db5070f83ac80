"""How many true metres a rig's metre of height is, learned online from the flights it has already seen.

A rig calibrated on court lines knows the floor well and heights to about 3 %; its shuttles then fall at 9.5 or 10.1 m/s^2
(seen: 9.56). Gravity is the yardstick. When a flight ends its candidates are filtered again under a few scales, and their
likelihoods give a scale with its error. No flight has a say in its own forecast: only past ones do. Rigs calibrated on a
board are metric and skip this.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit

from perception.filter import STATES, correct, innovation, predict, see, whitened, workspace
from perception.track import Track, TrackerCfg

Array = np.ndarray

SPREAD = 0.015  # scatter of single flights about their rig's scale, on recorded rallies: wind, spin, the rig's own warp
LEAST_TIME = 0.5  # [s] a shorter flight does not show gravity to 3 %
_TRIALS = np.linspace(0.94, 1.10, 9)  # scales tried; a rig further off needs a new calibration


@dataclass(frozen=True)
class HeightScale:
    """Scale (true over the rig's own heights) and its sigma."""

    value: float = 1.0
    sigma: float = 0.03

    def learn(self, flight: Track, cfg: TrackerCfg) -> "HeightScale":
        """With one more finished flight taken in; unchanged by flights too short to tell."""
        found = scale_of(flight, cfg)
        if found is None or self.sigma <= 0.0:
            return self
        value, sigma = found
        noise2 = sigma**2 + SPREAD**2
        gain = self.sigma**2 / (self.sigma**2 + noise2)
        # one odd flight (a shuttle off the frame, a bounce) may not move the scale by more than two of its sigmas
        step = float(np.clip(value - self.value, -2 * np.sqrt(self.sigma**2 + noise2), 2 * np.sqrt(self.sigma**2 + noise2)))
        return HeightScale(self.value + gain * step, float(np.sqrt(1 - gain) * self.sigma))


@njit(cache=True)
def _likelihood(x, cov, times, eyes, pixels, noises, scale, quiet, flip, flip_time, drift, soft, work):
    """Log-likelihood of candidates (M, 2) under a height scale; x (8,), cov (8, 8) at times[0], used up."""
    slope, pixel, residual, white = np.empty((2, 3)), np.empty(2), np.empty(2), np.empty(2)
    chol, pht, gain, rest = np.empty((2, 2)), np.empty((2, STATES)), np.empty((2, STATES)), np.empty((STATES, STATES))
    left = np.empty((3, STATES))
    total = 0.0
    for n in range(len(times)):
        if n > 0:
            predict(x, cov, times[n] - times[n - 1], flip if times[n - 1] - times[0] < flip_time else quiet, drift, work)
        if not see(eyes[n], x, scale, pixel, slope):
            return -np.inf
        residual[:] = pixels[n] - pixel
        noise = noises[n].copy()
        for _ in range(2):
            logdet = innovation(cov, slope, noise, 2, chol, pht)
            nis = whitened(chol, residual, 2, white)
            if nis <= soft:
                break
            noise *= nis / soft
        total -= 0.5 * (nis + logdet)
        correct(x, cov, slope, noise, 2, chol, pht, white, gain, rest, left)
    return total


def scale_of(flight: Track, cfg: TrackerCfg) -> tuple[float, float] | None:
    """Height scale that makes one flight fall as it should, and its sigma; None where the flight is too short to tell."""
    hits = []
    hit = flight.newest
    while hit is not None:
        hits.append(hit)
        hit = hit.earlier
    hits.reverse()
    if len(hits) < 40 or hits[-1].sight.time - hits[0].sight.time < LEAST_TIME:
        return None
    times = np.array([h.sight.time for h in hits])
    eyes = np.array([h.sight.eye for h in hits])
    pixels = np.array([h.sight.pixels[h.index] for h in hits])
    noises = np.array([h.sight.noise[h.index] for h in hits])
    work = workspace()
    logs = np.empty(len(_TRIALS))
    for n, scale in enumerate(_TRIALS):
        x, cov = flight.start_state.copy(), flight.start_covariance.copy()
        x[2] *= scale / flight.height_scale
        x[5] *= scale / flight.height_scale
        logs[n] = _likelihood(x, cov, times, eyes, pixels, noises, scale, cfg.acceleration_noise, cfg.flip_noise, cfg.flip_time,
                              cfg.drift_noise, cfg.soft, work)
    if not np.isfinite(logs).all():
        return None
    best = int(np.argmax(logs))
    if best in (0, len(logs) - 1):
        return None  # no maximum inside what a usable rig can be off by
    a, b, _ = np.polyfit(_TRIALS[best - 1:best + 2] - _TRIALS[best], logs[best - 1:best + 2], 2)
    return float(_TRIALS[best] - b / (2 * a)), float(np.sqrt(-0.5 / a))
