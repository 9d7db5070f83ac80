"""What `birdie track` leaves behind: the track and its interceptions as CSV, and one HTML page that shows whether to trust them."""

import base64
import csv
import html
import io
from pathlib import Path
from typing import Any

import numpy as np

from perception.errors import UserError
from perception.interception import FlightNoise, Interception, at_height
from perception.track import Hit, Track, TrackerCfg
from perception.tracking import TrackLog

Array = np.ndarray


def interceptions(log: TrackLog, height: float, cfg: TrackerCfg) -> list[tuple[float, Track, Interception]]:
    """(time of the forecast [s], track, where it will come down through height [m]) of every exposure that has one."""
    out = []
    for time, track in zip(log.times, log.tracks, strict=True):
        if track is None or track.last_seen != time:
            continue
        noise = FlightNoise(cfg.acceleration_noise, cfg.drift_noise, track.height_scale_sigma)
        crossing = at_height(track.time, track.state, track.covariance, height, noise=noise)
        if crossing is not None:
            out.append((time, track, crossing))
    return out


def write_track(path: Path, log: TrackLog) -> None:
    """One row per exposure with a track: time [s], flight (its birth [s]), state, and sigmas of place and velocity; metric heights."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["t_s", "flight_born_s", "x_m", "y_m", "z_m", "vx_m_s", "vy_m_s", "vz_m_s", "drag_per_m", "drift_m_s2",
                         *(f"sigma_{n}" for n in ("x_m", "y_m", "z_m", "vx_m_s", "vy_m_s", "vz_m_s")), "height_scale", "seen"])
        for time, track in zip(log.times, log.tracks, strict=True):
            if track is not None:
                sigma = np.sqrt(np.maximum(np.diag(track.covariance)[:6], 0))
                writer.writerow([f"{time:.5f}", f"{track.born:.5f}", *(f"{v:.4f}" for v in (*track.state, *sigma)),
                                 f"{track.height_scale:.4f}", int(track.last_seen == time)])


def write_interceptions(path: Path, found: list[tuple[float, Track, Interception]]) -> None:
    """One row per forecast: when it was made, where and when the shuttle comes down through the height, how fast, how sure."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["made_at_s", "flight_born_s", "t_s", "x_m", "y_m", "z_m", "vx_m_s", "vy_m_s", "vz_m_s", "sigma_x_m", "sigma_y_m",
                         "sigma_t_s"])
        for time, track, c in found:
            sigma = np.sqrt(np.maximum(np.diag(c.covariance), 0))
            writer.writerow([f"{time:.5f}", f"{track.born:.5f}", f"{c.time:.5f}", *(f"{v:.4f}" for v in (*c.place, *c.velocity, sigma[0], sigma[1])),
                             f"{sigma[6]:.5f}"])


def hits_of(track: Track) -> list[Hit]:
    """The candidates a track took, the oldest first."""
    out, hit = [], track.newest
    while hit is not None:
        out.append(hit)
        hit = hit.earlier
    return out[::-1]


def _picture(figure: Any) -> str:
    from matplotlib import pyplot

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    pyplot.close(figure)
    return f'<img src="data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}">'


def _draw(log: TrackLog, found: list[tuple[float, Track, Interception]], height: float) -> list[tuple[str, str]]:
    from matplotlib import pyplot

    out = []
    figure = pyplot.figure(figsize=(9, 6.2), layout="constrained")
    axes: Any = figure.add_subplot(projection="3d")
    path: dict[float, list[Array]] = {}
    for track in log.tracks:
        if track is not None:
            path.setdefault(track.born, []).append(track.state[:3])
    for points in path.values():
        p = np.array(points)
        line = axes.plot(*p.T, linewidth=1.2)[0]
        axes.plot(p[:, 0], p[:, 1], 0 * p[:, 2], linewidth=0.5, color=line.get_color(), alpha=0.4)
    spans = np.ptp(np.concatenate([np.array(p) for p in path.values()]), axis=0) if path else np.ones(3)
    axes.set_box_aspect(np.maximum(spans, 0.3 * spans.max()))  # a narrow court would hide its own ticks
    axes.set(xlabel="x [m]", ylabel="y [m]", zlabel="z [m]")
    out.append((f"{len(path)} flights in space, with their shadows on the floor", _picture(figure)))

    hits = [h for flight in log.flights for h in hits_of(flight)]
    figure, rows = pyplot.subplots(3, 1, figsize=(10, 7), layout="constrained", sharex=True)
    for side, colour in ((0, "tab:blue"), (1, "tab:orange")):
        some = [h for h in hits if h.sight.side == side]
        when = [h.sight.time for h in some]
        rows[0].plot(when, [h.residual[0] for h in some], ".", markersize=2, color=colour, label=("left", "right")[side])
        rows[1].plot(when, [h.residual[1] for h in some], ".", markersize=2, color=colour)
        rows[2].plot(when, [h.nis for h in some], ".", markersize=2, color=colour)
    rows[0].legend(frameon=False, ncols=2)
    rows[0].set(ylabel="u, seen less foretold [px]")
    rows[1].set(ylabel="v, seen less foretold [px]")
    rows[2].axhline(2, color="black", linewidth=0.6)
    rows[2].axhline(13.8, color="black", linewidth=0.6, linestyle=":")
    rows[2].set(ylabel="NIS (mean should be 2)", xlabel="time [s]", yscale="symlog", ylim=(0, None))
    mean = np.mean([h.nis for h in hits]) if hits else np.nan
    out.append((f"Residuals by camera. Mean NIS {mean:.2f}: under 2, noise is set wider than it is; over 2, too tight. Dotted: 99.9 %", _picture(figure)))

    figure, sides = pyplot.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    last = {track.born: c for _, track, c in found}
    for time, track, c in found:
        end = last[track.born]
        ahead = end.time - time
        sides[0].plot(ahead, 100 * np.hypot(*(c.place - end.place)[:2]), ".", markersize=2, color="tab:blue")
        sides[1].plot(ahead, 1e3 * (c.time - end.time), ".", markersize=2, color="tab:blue")
        sides[2].plot(ahead, 100 * np.sqrt(max(np.linalg.eigvalsh(c.covariance[:2, :2])[-1], 0)), ".", markersize=2, color="tab:blue")
    sides[0].set(xlabel="time before the crossing [s]", ylabel="place, off the last forecast [cm]", ylim=(0, 60))
    sides[1].set(xlabel="time before the crossing [s]", ylabel="time, off the last forecast [ms]", ylim=(-60, 60))
    sides[2].set(xlabel="time before the crossing [s]", ylabel="sigma of the place [cm]", ylim=(0, 60))
    for axis in sides:
        axis.invert_xaxis()
    out.append((f"Interceptions at {height:g} m: how each forecast compares with the last one before the shuttle came down", _picture(figure)))
    return out


def write_report(path: Path, name: str, log: TrackLog, found: list[tuple[float, Track, Interception]], height: float,
                 overlays: list[tuple[str, Array]] | None = None) -> None:
    """One self-contained HTML page: flights in space, residuals, NIS, interceptions, notes; overlays: (caption, BGR image)."""
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise UserError(f"the report needs {error.name}: run `make setup-train`, or pip install 'birdie[train]'") from error
    matplotlib.use("Agg")
    figures = _draw(log, found, height)
    for caption, image in overlays or []:
        import cv2

        data = base64.b64encode(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 80])[1].tobytes()).decode()
        figures.append((caption, f'<img src="data:image/jpeg;base64,{data}">'))
    table = "".join(f"<tr><td>{f.born:.2f}</td><td>{f.last_seen - f.born:.2f}</td><td>{f.hits}</td><td>{f.state[6]:.3f}</td><td>{f.state[7]:.2f}</td></tr>"
                    for f in log.flights)
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in log.notes)
    body = "".join(f"<figure><figcaption>{html.escape(caption)}</figcaption>{picture}</figure>" for caption, picture in figures)
    scale = log.height_scale
    path.write_text(f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(name)}</title>
<style>body{{font:15px/1.45 sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#222}}img{{max-width:100%}}
figure{{margin:2em 0}}figcaption{{font-weight:600;margin-bottom:.4em}}td,th{{padding:.15em 1em .15em 0;text-align:right}}</style>
<h1>{html.escape(name)}</h1>
<p>{len(log.times)} exposures, {sum(t is not None for t in log.tracks)} with a track, {len(log.flights)} flights.
Height scale of the rig, true over its own metres: {scale.value:.3f} &plusmn; {scale.sigma:.3f}.</p>
{f"<ul>{notes}</ul>" if notes else ""}{body}
<table><tr><th>begins [s]</th><th>lasts [s]</th><th>candidates</th><th>drag [1/m]</th><th>drift [m/s&sup2;]</th></tr>{table}</table></html>
""")
