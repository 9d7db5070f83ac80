"""How well flights were foretold while they were recorded: `birdie track DIR` on a folder with shots.csv and *_xyz.csv.

Scoring alone may look at where flights begin and end, and at the 3-D files. Everything is compared in the rig's own metres, those
of the 3-D files: the tracker's heights are divided by its height scale first.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perception.camera import StereoRig
from perception.errors import UserError
from perception.height_scale import HeightScale
from perception.interception import FlightNoise, at_plane, forecast
from perception.track import Track, TrackerCfg
from perception.tracking import TrackLog, read_folder, track_recording, with_offset

Array = np.ndarray

HORIZONS = (0.2, 0.4, 0.6, 1.0)  # [s] before the end of a flight
LEAST_TIME = 8 / 119.12  # [s] of a flight must have been seen before a horizon for it to count, as in `birdie bench flight`
POINT_SIGMA = 0.013  # [m] of a measured end point: 5 to 7 mm an axis about a smooth flight, and the rig's local error of 1 to 2 px
USABLE_SIGMA = 0.3  # [m] a forecast 0.5 s ahead that is better than this can send a robot; our choice: half a step and a reach
USABLE_AHEAD = 0.5  # [s]
_CHI2 = {"68": 3.506, "95": 7.815}  # three freedoms


@dataclass(frozen=True, eq=False)
class EndForecast:
    """A flight's end as foretold `horizon` [s] before it. error [m]; time_error [s]; distance2: squared Mahalanobis distance.
    All inf where no track of the flight was given out."""

    label: str
    horizon: float
    error: float
    time_error: float
    distance2: float


def end_forecast(log: TrackLog, label: str, time: Array, position: Array, horizon: float, cfg: TrackerCfg) -> EndForecast:
    """Score one measured flight, time (T,) [s] and position (T, 3) [m] in the rig's metres, at one horizon."""
    end = float(time[-1])
    track = _given_out(log, end - horizon)
    if track is None:
        return EndForecast(label, horizon, np.inf, np.inf, np.inf)
    noise = FlightNoise(cfg.acceleration_noise, cfg.drift_noise, track.height_scale_sigma)
    flat = np.array([1.0, 1.0, 1.0 / track.height_scale])
    x, cov = forecast(track.time, track.state, track.covariance, end, noise)
    off = position[-1] - x[:3] * flat
    spread = cov[:3, :3] * flat * flat[:, None] + np.eye(3) * POINT_SIGMA**2
    crossing = at_plane(track.time, track.state, track.covariance, position[-1] / flat, x[3:6], horizon + 1.0, noise)
    time_error = abs(crossing.time - end) if crossing else np.inf
    return EndForecast(label, horizon, float(np.linalg.norm(off)), float(time_error), float(off @ np.linalg.solve(spread, off)))


def first_usable(log: TrackLog, start: float, end: float, cfg: TrackerCfg) -> float:
    """Time [s] from the hit to the first forecast of this flight, USABLE_AHEAD ahead, that knows its place to USABLE_SIGMA.

    start, end [s]: of the measured flight. The hit is its first point or the track's own birth, whichever is earlier, since the cut
    may begin after the hit. inf where there is none.
    """
    for time, track in zip(log.times, log.tracks, strict=True):
        if track is None or not start <= time <= end or track.born < start - 0.15:
            continue
        noise = FlightNoise(cfg.acceleration_noise, cfg.drift_noise, track.height_scale_sigma)
        _, cov = forecast(track.time, track.state, track.covariance, track.time + USABLE_AHEAD, noise)
        if np.sqrt(np.linalg.eigvalsh(cov[:3, :3])[-1]) <= USABLE_SIGMA:
            return time - min(start, track.born)
    return np.inf


def _given_out(log: TrackLog, time: float) -> Track | None:
    last = int(np.searchsorted(log.times, time + 1e-9)) - 1
    return log.tracks[last] if last >= 0 else None


def _number(value: float) -> float | None:
    """A figure JSON can hold; None for what was never foretold."""
    return float(value) if np.isfinite(value) else None


def _percentile(values: list[float], share: float) -> float:
    """Linear percentile that lets missed flights (inf) stand at the end instead of turning all to NaN."""
    ordered = np.sort(values)
    place = share / 100 * (len(ordered) - 1)
    low, high = ordered[int(np.floor(place))], ordered[int(np.ceil(place))]
    return float(low if low == high else low + (place % 1) * (high - low))


def summarise(scores: list[EndForecast], firsts: list[float]) -> dict[str, Any]:
    """Figures by horizon; flights that were not foretold count as infinitely wrong."""
    out: dict[str, Any] = {"median_m": {}, "p90_m": {}, "median_time_error_ms": {}, "scored": {}, "missed": {}, "coverage_by_horizon": {}}
    for horizon in HORIZONS:
        some = [s for s in scores if s.horizon == horizon]
        if not some:
            continue
        key = f"{horizon:.1f}"
        errors = [s.error for s in some]
        out["median_m"][key], out["p90_m"][key] = _number(_percentile(errors, 50)), _number(_percentile(errors, 90))
        out["median_time_error_ms"][key] = _number(1e3 * _percentile([s.time_error for s in some], 50))
        out["scored"][key], out["missed"][key] = len(some), int(np.sum(~np.isfinite(errors)))
        out["coverage_by_horizon"][key] = {n: float(np.mean([s.distance2 <= c for s in some])) for n, c in _CHI2.items()}
    for name, bound in _CHI2.items():
        out[f"coverage_{name}"] = float(np.mean([s.distance2 <= bound for s in scores]))
    out["first_prediction_ms"] = _number(1e3 * _percentile(firsts, 50))
    out["first_prediction_p90_ms"] = _number(1e3 * _percentile(firsts, 90))
    return out


def score_folder(folder: Path, rig: StereoRig, cfg: TrackerCfg = TrackerCfg(), scale: HeightScale = HeightScale()) -> tuple[dict[str, Any], dict[str, TrackLog]]:
    """Track every recording of a folder, in the order of their names, and score the flights that shots.csv names.

    The rig's height scale is carried from one recording to the next, never back. A recording without flights to score is
    tracked too; one that rig or offset do not fit is noted, not scored. Returns the figures and the logs by name.
    """
    try:
        from perception.flight_fit import read_flights
    except ModuleNotFoundError as error:
        raise UserError(f"scoring a folder needs {error.name}: run `make setup-train`, or pip install 'birdie[train]'") from error
    recordings = read_folder(folder)
    try:
        flights = read_flights(folder)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{folder} cannot be scored: {error}") from error
    scored = {f.label.split("/")[0] for f in flights}
    logs: dict[str, TrackLog] = {}
    notes: list[str] = []
    for recording in recordings:
        try:
            logs[recording.name] = track_recording(rig, with_offset(rig, recording), cfg, scale)
        except UserError as error:
            if recording.name in scored:
                raise
            notes.append(str(error))
            continue
        scale = logs[recording.name].height_scale
        notes += [f"{recording.name}: {note}" for note in logs[recording.name].notes]
    scores, firsts = [], []
    for flight in flights:
        log = logs.get(flight.label.split("/")[0])
        if log is None:
            raise UserError(f"{folder}: shots.csv names {flight.label}, but its label files are not there")
        firsts.append(first_usable(log, float(flight.time[0]), float(flight.time[-1]), cfg))
        scores += [end_forecast(log, flight.label, flight.time, flight.position, h, cfg) for h in HORIZONS
                   if flight.time[-1] - h - flight.time[0] >= LEAST_TIME]
    figures = {"flights": len(flights), **summarise(scores, firsts), "height_scale": scale.value, "height_scale_sigma": scale.sigma,
               "tracks": sum(len(log.flights) for log in logs.values()), "notes": notes,
               "forecasts": [{"flight": s.label, "horizon_s": s.horizon, "error_m": _number(s.error),
                              "time_error_ms": _number(1e3 * s.time_error), "distance2": _number(s.distance2)} for s in scores]}
    return figures, logs
