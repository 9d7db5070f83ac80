"""What a camera pair would report of a true shuttle: noise, misses, false reports and delay, drawn in a batch.

Training sees through this, so that a policy and its tracker meet on the robot what they learned with. Errors are those of an
image: white noise with tails, more along the streak that an exposure smears, and a slow error that wanders (the lens where
the board never was, a blob's leading edge). The two eyes' errors are alike in part: the common part turns the ray, the
differential part is an error of depth. `noise_fit.py` fits the numbers to recordings; `data/noise.yaml` is the fit that ships.
"""

from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import yaml
from numba import njit

from perception.camera import StereoRig
from perception.errors import UserError
from perception.triangulation import SHUTTLE_SIZE

Array = np.ndarray

SHIPPED = Path(__file__).parent / "data" / "noise.yaml"
ZEDX = Path(__file__).parent / "data" / "noise_zedx.yaml"  # of this detector on a robot's own pair, fitted to rendered images
TAIL_FACTOR = 3.0  # a report out of the tail is so many times as noisy; the share of them is fitted, the factor is our choice
CLEAR_SIZE = 8.0  # [px] from here on a shuttle is not missed more often for being small; ours and the recordings' usual size
FALSE_DEPTH = (1.0, 15.0)  # [m] where false pairs seem to be: what a stereo gate lets through; our choice
_NEAR = 0.05  # [m] nothing nearer to the lens, or behind it, is seen

UNITS = {
    "pixel_sigma": "px, each axis of each eye, white",
    "tail_share": f"of reports with {TAIL_FACTOR:g} times the noise",
    "eye_correlation": "of the two eyes' errors; what is left is disparity",
    "blur_share": "of the streak, sigma along it",
    "exposure_s": "s",
    "timing_sigma_s": "s, jitter of the stamp; times body rate it turns the ray",
    "bias_sigma": "px, each eye, slow error of a shuttle 8 px across",
    "bias_flat": "slow error across the image over that up and down it: shuttles seen from a robot stand upright in it, and err along themselves",
    "bias_growth": f"share of the slow error that grows with the shuttle's image, 1: as its size over {CLEAR_SIZE:g} px",
    "bias_correlation": "of the two eyes' slow errors; what is left is disparity",
    "bias_time_s": "s, in which the slow error forgets itself",
    "miss_base": "chance to miss a large, slow shuttle in view",
    "miss_small": f"added at half of {CLEAR_SIZE:g} px across; in proportion to range from there on",
    "miss_blur": "added per shuttle size that the streak is long",
    "miss_turn": "added per rad/s of body rate",
    "false_rate": "chance that a report is something else in the image",
    "drop_rate": "chance that a frame never arrives",
    "latency_s": "s, exposure to measurement, mean",
    "latency_sigma_s": "s",
}


@dataclass(frozen=True)
class NoiseCfg:
    """Numbers of the noise model; units in `UNITS`. The defaults are priors for what recordings do not tell: mean and spread
    of the latency, dropped frames, correlation and body-rate terms are working values from the field's reports (25 ms end to end,
    1 to 3 % of frames), to be measured on a robot; `data/noise.yaml` says of each number where it is from."""

    pixel_sigma: float = 0.6
    tail_share: float = 0.05
    eye_correlation: float = 0.3
    blur_share: float = 0.05
    exposure_s: float = 0.002
    timing_sigma_s: float = 0.001
    bias_sigma: float = 0.2
    bias_flat: float = 1.0
    bias_growth: float = 0.0
    bias_correlation: float = 0.3
    bias_time_s: float = 0.2
    miss_base: float = 0.01
    miss_small: float = 0.1
    miss_blur: float = 0.05
    miss_turn: float = 0.03
    false_rate: float = 0.005
    drop_rate: float = 0.02
    latency_s: float = 0.025
    latency_sigma_s: float = 0.005

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not np.isfinite(value) or value < 0:
                raise UserError(f"noise: {field.name} is {value}; it must be a number that is not negative")
        for name in ("tail_share", "miss_base", "false_rate", "drop_rate", "bias_growth"):
            if getattr(self, name) > 1:
                raise UserError(f"noise: {name} is {getattr(self, name):g}; a chance is at most 1")
        for name in ("eye_correlation", "bias_correlation"):
            if getattr(self, name) >= 1:
                raise UserError(f"noise: {name} is {getattr(self, name):g}; it must be below 1, else depth would be exact")
        if self.bias_time_s <= 0:
            raise UserError("noise: bias_time_s must be above 0")

    @property
    def measurement_sigma(self) -> tuple[float, float]:
        """sigma [px] of u or v, and of the disparity, of a slow shuttle: white, tail and slow part together. For a filter."""
        white, slow = self.pixel_sigma**2 * (1 + self.tail_share * (TAIL_FACTOR**2 - 1)), self.bias_sigma**2
        return float(np.sqrt(white + slow)), float(np.sqrt(2 * (white * (1 - self.eye_correlation) + slow * (1 - self.bias_correlation))))

    @staticmethod
    def load(path: Path = SHIPPED) -> "NoiseCfg":
        """Read YAML; what it leaves out keeps its prior. UserError names a wrong key or value."""
        try:
            data = yaml.safe_load(path.read_text())
            if not isinstance(data, dict):
                raise ValueError("it holds no keys")
            unknown = data.keys() - UNITS.keys()
            if unknown:
                raise ValueError(f"unknown key {sorted(unknown)[0]}; known are {', '.join(UNITS)}")
            return NoiseCfg(**{key: float(value) for key, value in data.items()})
        except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
            raise UserError(f"{path} is no noise model: {error}") from error

    def save(self, path: Path, sources: dict[str, str], title: str) -> None:
        """Write YAML with unit and source (by key) beside each number; sources: where a key is missing, "prior" is said."""
        lines = [f"# {line}" for line in title.splitlines()]
        lines += [f"{key}: {value!r}  # {UNITS[key]}; {sources.get(key, 'prior')}" for key, value in asdict(self).items()]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n")


def pixel_errors(cfg: NoiseCfg, streak: Array, rng: np.random.Generator) -> Array:
    """White errors (N, 2, 2) [px]: of the left and the right eye, u and v, for streaks (N, 2) [px] that the exposure smears."""
    out = np.empty((len(streak), 2, 2))
    _errors(rng.standard_normal((len(streak), 6)), rng.random(len(streak)), np.ascontiguousarray(streak, float),
            cfg.pixel_sigma, cfg.tail_share, cfg.eye_correlation, cfg.blur_share, out)
    return out


@njit(cache=True)
def _errors(draw, luck, streak, sigma, tail_share, rho, blur, out):
    own = np.sqrt(1 - rho * rho)
    for i in range(len(draw)):
        factor = TAIL_FACTOR if luck[i] < tail_share else 1.0
        for n in range(3):
            draw[i, 3 + n] = rho * draw[i, n] + own * draw[i, 3 + n]
        for eye in range(2):
            for axis in range(2):
                out[i, eye, axis] = factor * (sigma * draw[i, 3 * eye + axis] + blur * draw[i, 3 * eye + 2] * streak[i, axis])


@njit(cache=True)
def _miss(base, small, blur, turn, size, streak, body_rate):
    return min(base + small * max(CLEAR_SIZE / size - 1, 0.0) + blur * streak / size + turn * body_rate, 1.0)


def draw_bias(cfg: NoiseCfg, count: int, rng: np.random.Generator) -> Array:
    """Slow errors (count, 3) of u, v and disparity [px] at the start of flights."""
    return rng.standard_normal((count, 3)) * _bias_sigmas(cfg)


def step_bias(cfg: NoiseCfg, bias: Array, dt: float, rng: np.random.Generator) -> Array:
    """Slow errors (N, 3) dt [s] later: an Ornstein-Uhlenbeck step, which keeps `draw_bias`'s spread."""
    keep = np.exp(-dt / cfg.bias_time_s)
    return keep * bias + np.sqrt(1 - keep**2) * draw_bias(cfg, len(bias), rng)


def _bias_sigmas(cfg: NoiseCfg) -> Array:
    return cfg.bias_sigma * np.array([cfg.bias_flat, 1.0, cfg.bias_flat * np.sqrt(2 * (1 - cfg.bias_correlation))])


def draw_latency(cfg: NoiseCfg, count: int, rng: np.random.Generator) -> Array:
    """(count,) seconds from exposure to measurement, never negative."""
    return np.maximum(rng.normal(cfg.latency_s, cfg.latency_sigma_s, count), 0.0)


def sample(cfg: NoiseCfg, rig: StereoRig, points_l: Array, velocity_c: Array, body_rate: Array, flight_bias: Array,
           rng: np.random.Generator) -> tuple[Array, Array]:
    """What a parallel pair reports of N shuttles at one exposure: measurement (N, 3) of u, v (left), disparity [px]; seen (N,).

    points_l (N, 3) [m] and velocity_c (N, 3) [m/s] in the left camera's frame, velocity relative to the camera; body_rate (N,)
    [rad/s] of the camera; flight_bias (N, 3) [px] from `draw_bias`, moved on by `step_bias`. Rows not seen are nan. Raises
    ValueError for a pair that is not parallel: rectify it first (`calibration.rectified`).

    A shuttle in view of both eyes is missed at a chance linear in range and body rate, as measured for another robot with the
    same camera (ETH, arXiv 2505.22974), and in the streak; never seen outside. A false report is anywhere in the image.
    """
    if not rig.is_parallel:
        raise ValueError(f"rig {rig.name} is not parallel; sample its rectified pair")
    camera, count = rig.left, len(points_l)
    points, velocity = np.ascontiguousarray(points_l, float), np.ascontiguousarray(velocity_c, float)
    out, seen, streak = np.empty((count, 3)), np.empty(count, bool), np.empty((count, 2))
    _image(points, velocity, camera.fx, camera.fy, camera.cx, camera.cy, rig.baseline, cfg.exposure_s, out, streak)
    _report(out, seen, streak, pixel_errors(cfg, streak, rng), rng.standard_normal((count, 2)), rng.random((count, 3)),
            points[:, 2], np.asarray(body_rate, float), np.asarray(flight_bias, float), camera.fx, cfg.exposure_s,
            cfg.timing_sigma_s, camera.width, camera.height,
            (cfg.miss_base, cfg.miss_small, cfg.miss_blur, cfg.miss_turn), cfg.false_rate, cfg.drop_rate, cfg.bias_growth)
    false = np.flatnonzero(seen & np.isinf(out[:, 0]))
    nearest, farthest = (camera.fx * rig.baseline / d for d in FALSE_DEPTH)
    out[false] = rng.uniform([0, 0, farthest], [camera.width, camera.height, nearest], (len(false), 3))
    return out, seen


@njit(cache=True)
def _image(points, velocity, fx, fy, cx, cy, baseline, exposure, out, streak):
    for i in range(len(points)):
        z = max(points[i, 2], _NEAR)
        x, y = points[i, 0] / z, points[i, 1] / z
        out[i, 0], out[i, 1], out[i, 2] = fx * x + cx, fy * y + cy, fx * baseline / z
        streak[i, 0] = fx * (velocity[i, 0] - x * velocity[i, 2]) / z * exposure
        streak[i, 1] = fy * (velocity[i, 1] - y * velocity[i, 2]) / z * exposure


@njit(cache=True)
def _report(out, seen, streak, error, jitter, luck, depth, body_rate, bias, fx, exposure, timing, width, height, misses,
            false_rate, drop_rate, growth):
    """Turn true images `out` into reports, in place: nan where nothing is reported, inf where it is something else."""
    for i in range(len(out)):
        u, v, d = out[i, 0], out[i, 1], out[i, 2]
        if luck[i, 2] < drop_rate:
            seen[i] = False
        elif luck[i, 1] < false_rate:
            seen[i] = True
            out[i] = np.inf
            continue
        else:
            in_view = depth[i] > _NEAR and 0 <= u - d and u <= width - 1 and 0 <= v <= height - 1  # d > 0: the other sides follow
            # a turn of the body smears too, whichever way
            smear = np.sqrt(streak[i, 0] ** 2 + streak[i, 1] ** 2) + fx * exposure * body_rate[i]
            size = fx * SHUTTLE_SIZE / max(depth[i], _NEAR)
            seen[i] = in_view and luck[i, 0] >= _miss(misses[0], misses[1], misses[2], misses[3], size, smear, body_rate[i])
        if seen[i]:
            shake = fx * timing * body_rate[i]
            grown = 1.0 + growth * (fx * SHUTTLE_SIZE / max(depth[i], _NEAR) / CLEAR_SIZE - 1.0)
            out[i, 0] = u + error[i, 0, 0] + shake * jitter[i, 0] + grown * bias[i, 0]
            out[i, 1] = v + error[i, 0, 1] + shake * jitter[i, 1] + grown * bias[i, 1]
            out[i, 2] = d + error[i, 0, 0] - error[i, 1, 0] + grown * bias[i, 2]
        else:
            out[i] = np.nan
