"""Verbs of the command line that need neither simulator nor policy. Imports are inside, so that `--help` is instant."""

from pathlib import Path
from typing import Any

import tyro

from perception.errors import UserError
from perception.output import JsonPath, stamp, write_json


def track(paths: tyro.conf.Positional[tuple[Path, ...]], rig: Path | None = None, height: float = 1.2, offset: float | None = None,
          height_scale: float = 0.0, out: Path | None = None, json_path: JsonPath = None) -> None:
    """Track the shuttle through recordings, as they would have arrived, and foretell where it can be hit.

    A folder is scored: label files with shots.csv and *_xyz.csv, or files of measured points (t_s, x_m, y_m, z_m; no rig). Two
    label files or two videos, left and right, give the track and its interceptions as CSV and a report, in runs/track/<time>.

    Args:
        paths: a folder, or the left and the right label file, or videos of a rig that stands still.
        rig: the cameras: rig.yaml, or rig.json of the recordings.
        height: for two files: interceptions are where the shuttle comes down through it [m].
        offset: for two files: frames of the right camera minus frames of the left; found from the labels if left out.
        height_scale: true metres per metre of the rig's heights; 0 learns it, flight by flight; 1 for rigs calibrated on a board.
        out: folder to write to.
        json_path: write the figures to this file.
    """
    from perception.points import is_points

    if len(paths) == 1 and paths[0].is_dir():
        folder = paths[0]
        if not list(folder.glob("*_camera1.csv")) and any(is_points(p) for p in folder.glob("*.csv")):
            write_json(json_path, _track_points(folder))
            return
        write_json(json_path, _track_folder(folder, rig, height_scale))
    elif len(paths) == 2:
        write_json(json_path, _track_pair(paths[0], paths[1], rig, height, offset, height_scale, out))
    else:
        raise UserError("track takes one folder, or two label files or videos: left, then right"
                        + (f"; there is no folder {paths[0]}" if len(paths) == 1 else ""))


def _rig_and_scale(path: Path | None, height_scale: float) -> tuple[Any, Any]:
    from perception.camera import StereoRig
    from perception.height_scale import HeightScale

    if path is None:
        raise UserError("track needs --rig FILE: the cameras' rig.yaml or rig.json")
    if height_scale and not 0.8 <= height_scale <= 1.25:
        raise UserError(f"--height-scale {height_scale:g} is no scale of a usable rig; give 0.8 to 1.25, or 0 to learn it")
    return StereoRig.load(path), HeightScale(height_scale, 0.0) if height_scale else HeightScale()


def _track_folder(folder: Path, rig: Path | None, height_scale: float) -> dict[str, Any]:
    from rich.console import Console

    from perception.track_score import score_folder

    console = Console(highlight=False, soft_wrap=True, markup=False)
    loaded, scale = _rig_and_scale(rig, height_scale)
    with console.status(f"tracking {folder} ..."):
        figures, _ = score_folder(folder, loaded, scale=scale)

    def shown(value: float | None, unit: float) -> str:
        return "  none" if value is None else f"{value * unit:6.1f}"

    console.print(f"{figures['flights']} flights scored, {figures['tracks']} tracked; rig heights times {figures['height_scale']:.3f} "
                  f"+- {figures['height_scale_sigma']:.3f} by the end")
    console.print("foretold end of the flight against the measured one: median / 90 % [cm], median time [ms], flights never foretold")
    for h in figures["median_m"]:
        console.print(f"  {h} s before ({figures['scored'][h]} flights) {shown(figures['median_m'][h], 100)} / {shown(figures['p90_m'][h], 100)}"
                      f"  {shown(figures['median_time_error_ms'][h], 1)}  {figures['missed'][h]}")
    console.print(f"68 % ellipsoids hold {100 * figures['coverage_68']:.0f} %, 95 % ones {100 * figures['coverage_95']:.0f} %; first usable forecast "
                  f"{shown(figures['first_prediction_ms'], 1).strip()} ms after the hit (90 %: {shown(figures['first_prediction_p90_ms'], 1).strip()})")
    for note in figures["notes"]:
        console.print(f"  note: {note}")
    return figures


def _track_points(folder: Path) -> dict[str, Any]:
    from perception.points import score_points

    figures = score_points(folder)
    print("each point against its own forecast: rms, mean NIS (95 % bounds), drag")
    for name, f in figures["flights"].items():
        low, high = f["nis_bounds"]
        print(f"  {name:24s} {f['points']:4d} points at {f['rate_hz']:3.0f}/s  {1e3 * f['residual_rms_m']:6.2f} mm  NIS {f['nis_mean']:.2f} "
              f"({low:.2f} to {high:.2f}){'' if f['consistent'] else ' NOT consistent'}  k {f['drag']:.3f}")
    if "nis_mean" in figures:
        low, high = figures["nis_bounds"]
        print(f"  motion capture together: {1e3 * figures['residual_rms_m']:.2f} mm, NIS {figures['nis_mean']:.2f} ({low:.2f} to {high:.2f})")
    return figures


def _track_pair(left: Path, right: Path, rig: Path | None, height: float, offset: float | None, height_scale: float,
                out: Path | None) -> dict[str, Any]:
    from rich.console import Console

    from perception.track_report import interceptions, write_interceptions, write_report, write_track
    from perception.track_video import SUFFIXES, track_videos
    from perception.tracker import TrackerCfg
    from perception.tracking import Recording, read_labels, track_recording, with_offset

    console = Console(highlight=False, soft_wrap=True, markup=False)
    loaded, scale = _rig_and_scale(rig, height_scale)
    videos = [path.suffix.lower() in SUFFIXES for path in (left, right)]
    if any(videos) and not all(videos):
        raise UserError(f"{left.name} and {right.name}: one is a video and one is not; give two videos or two label files")
    overlays = None
    with console.status("tracking ..."):
        if all(videos):
            log, overlays = track_videos(loaded, left, right)
            offset = 0.0
        else:
            recording = with_offset(loaded, Recording(left.stem, read_labels(left), read_labels(right), offset))
            log, offset = track_recording(loaded, recording, TrackerCfg(), scale), recording.offset
        found = interceptions(log, height, TrackerCfg())
    folder = out or Path("runs/track") / stamp()
    folder.mkdir(parents=True, exist_ok=True)
    write_track(folder / "track.csv", log)
    write_interceptions(folder / "interceptions.csv", found)
    write_report(folder / "report.html", f"{left.name} and {right.name}", log, found, height, overlays)
    console.print(f"{len(log.times)} exposures, {len(log.flights)} flights, {len(found)} forecasts of the crossing at {height:g} m")
    for note in log.notes:
        console.print(f"  note: {note}")
    if not log.flights:
        console.print("  no flight found: candidates of the two cameras never agreed with one for long enough")
    console.print(f"wrote {folder}/track.csv, interceptions.csv and report.html")
    return {"exposures": len(log.times), "flights": len(log.flights), "forecasts": len(found), "offset_frames": offset,
            "height_scale": log.height_scale.value, "notes": log.notes, "folder": str(folder)}


def calibrate(images: tyro.conf.Positional[Path | None] = None, board: str = "9x6", square_mm: float = 0.0, name: str = "", fps: float = 0.0,
              check: tuple[Path, Path] | None = None, noise: Path | None = None, rig: Path | None = None, out: Path | None = None,
              json_path: JsonPath = None) -> None:
    """Calibrate two cameras from pictures of a chessboard, check a rig against recordings, or fit the noise model to them.

    IMAGES writes rig.yaml and report.html to runs/calibrate/<time>. --check tells a rig that fits from one that does not, and
    finds the time offset between the cameras of every recording. --noise writes noise.yaml, what training sees through.

    Args:
        images: folder with left*.jpg and right*.jpg, or with folders left and right.
        board: inner corners of the board; one count odd, one even.
        square_mm: side of a square [mm]; measure it: every length that the rig reports hangs on it. 25 is taken if left out.
        name: of the rig; that of the folder if left out.
        fps: rate of the cameras, written into the rig [1/s].
        check: a rig file, and a folder with NAME_camera1.csv and NAME_camera2.csv (frame, visible, u_px, v_px).
        noise: a folder like that one; needs --rig.
        rig: for --noise: the cameras' file.
        out: folder to write to.
        json_path: write the figures to this file.
    """
    if sum(x is not None for x in (images, check, noise)) != 1:
        raise UserError("calibrate takes one of: a folder of images, --check RIG TRACKS, --noise TRACKS --rig RIG; see --help")
    if check is not None:
        _check_rig(*check, json_path)
    elif noise is not None:
        _fit_noise(noise, rig, out, json_path)
    elif images is not None:
        _calibrate(images, board, square_mm, name, fps, out, json_path)


def _calibrate(images: Path, board: str, square_mm: float, name: str, fps: float, out: Path | None, json_path: Path | None) -> None:
    from rich.console import Console

    from perception.calibration import calibrate as run
    from perception.calibration import read_views
    from perception.calibration_report import verdicts, write_report
    from perception.chessboard import Board

    console = Console(highlight=False, soft_wrap=True)
    parsed = Board.parse(board, (square_mm or 25.0) / 1000)
    with console.status("looking for the board ...") as status:
        views = read_views(images, parsed, status.update)
        found = run(views, name or images.resolve().name, fps, status.update)
    folder = out or Path("runs/calibrate") / stamp()
    found.rig.save(folder / "rig.yaml")
    write_json(json_path, found.figures())
    console.print(f"{len(views.names)} pairs; rms {found.mono_rms[0]:.3f} px left, {found.mono_rms[1]:.3f} px right, {found.stereo_rms:.3f} px as a pair; "
                  f"rows match to {found.row_error_rms:.3f} px, {found.held_out_rms:.3f} px on views not fitted")
    console.print(f"baseline {found.rig.baseline * 1000:.2f} mm" + ("" if square_mm else ", if the squares are 25 mm: measure them and give --square-mm"))
    for good, text in verdicts(found):
        if not good:
            console.print(f"  look: {text}")
    if views.skipped:
        console.print(f"  board not found in: {', '.join(views.skipped)}")
    write_report(found, folder / "report.html")
    console.print(f"wrote {folder}/rig.yaml and report.html")


def _check_rig(rig: Path, tracks: Path, json_path: Path | None) -> None:
    from perception.camera import StereoRig
    from perception.rig_check import RIG_LIMIT, check_rig, read_tracks

    figures = check_rig(StereoRig.load(rig), read_tracks(tracks))
    write_json(json_path, figures)
    print("recording: right camera's frame less the left's, and how far their labels are from meeting")
    for label, one in figures["recordings"].items():
        offset = figures["time_offset_frames"][label]
        print(f"  {label:20s} " + (f"{offset:+7.2f} frames  {one['error_px']:5.1f} px" if offset is not None else one["problem"]))
    if not figures["rig_ok"]:
        raise UserError(f"{rig} does not fit these recordings: their labels miss each other by {figures['epipolar_error_px']:.0f} px "
                        f"(one that fits: under {RIG_LIMIT:g}); calibrate again")
    print(f"{rig} fits: {figures['epipolar_error_px']:.1f} px median epipolar distance (limit {RIG_LIMIT:g})")


def _fit_noise(tracks: Path, rig: Path | None, out: Path | None, json_path: Path | None) -> None:
    from dataclasses import replace

    import numpy as np
    from rich.console import Console

    from perception.camera import StereoRig
    from perception.noise import UNITS

    try:
        from perception.noise_fit import figures, fit_noise, sampled_shape
        from perception.smoothing import smooth_folder
    except ModuleNotFoundError as error:
        raise UserError(f"birdie calibrate --noise needs {error.name}: run `make setup-train`, or pip install 'birdie[train]'") from error
    if rig is None:
        raise UserError("--noise needs --rig FILE: the cameras' rig.yaml or rig.json")
    console = Console(highlight=False, soft_wrap=True)
    loaded = StereoRig.load(rig)
    with console.status("smoothing flights ...") as status:
        flights, notes = smooth_folder(tracks, loaded)
        status.update("fitting the noise model ...")
        cfg, sources, seen = fit_noise(flights, loaded.fps)
        drawn = sampled_shape(replace(cfg, exposure_s=1 / loaded.fps), flights, loaded.fps, np.random.default_rng(7))
    folder = out or Path("runs/calibrate") / stamp()
    cfg.save(folder / "noise.yaml", sources, f"Noise of the shuttle's image, rig {loaded.name}, {len(flights)} flights of {tracks}.")
    found = figures(cfg, sources, seen, drawn, len(flights))
    write_json(json_path, found)
    for note in notes:
        console.print(f"  left out: {note}")
    console.print("residuals about smooth flights in px: recorded, sampled from the fit")
    for key in ("along_px", "across_px", "white_along_px", "white_across_px"):
        console.print(f"  {key.removesuffix('_px'):14s} {found['recorded'][key]:.2f}  {found['sampled'][key]:.2f}")
    console.print(f"distributions differ by {max(found['largest_difference_of_distributions'].values()):.3f} at most")
    for key in UNITS:
        console.print(f"  {key:16s} {getattr(cfg, key):8.4g}  {sources[key]}")
    console.print(f"wrote {folder}/noise.yaml")
