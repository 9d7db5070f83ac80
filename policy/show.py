"""What `birdie replay` does: reads, cuts, says what is odd about a recording, and shows it the way that was asked for or that works here."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perception.errors import UserError
from sim.display import choose_offscreen, has_window_system
from sim.rollout_reader import Rollout, describe, read_rollout

SIXTEEN_NINE = 16 / 9


@dataclass(frozen=True)
class Wanted:
    """What was asked for; see the arguments of `birdie replay`."""

    recording: Path
    window: bool = False
    web: bool = False
    video: Path | None = None
    report: Path | None = None
    rerun: Path | None = None
    resim: bool = False
    compare: Path | None = None
    begin: float | None = None
    end: float | None = None
    swing: int = 0
    speed: float = 1.0
    height: int = 1080
    seconds: float = 0.0
    robot: str = ""
    port: int = 8012


def _load(path: Path, w: Wanted, console: Any) -> tuple[Rollout, Any]:
    """Rollout and robot, what is odd about them said."""
    from sim.robot import load_robot

    whole = read_rollout(path)
    if not whole.complete:
        console.print(f"{path} was cut off; showing the {whole.seconds:.1f} s that are there")
    for note in whole.notes:
        console.print(f"note: {note}")
    rollout = whole.swing(w.swing) if w.swing else whole
    if w.begin is not None or w.end is not None:
        rollout = rollout.cut(w.begin, w.end)
    name = w.robot or whole.metadata.get("robot", "anymal_dynaarm")
    try:
        robot = load_robot(name)
    except UserError as error:
        raise UserError(f"{path} is of robot {name}, which is not here: give its folder with --robot ({error})") from error
    return rollout, robot


def show(w: Wanted, console: Any) -> dict[str, Any]:
    """Do what was asked for; returns what the recording holds, and what a comparison with the simulator found."""
    if w.speed <= 0 or w.height < 90 or w.seconds < 0:
        raise UserError(f"speed must be above 0, height at least 90, seconds not negative; they are {w.speed:g}, {w.height}, {w.seconds:g}")
    if w.compare is not None and w.video is None:
        raise UserError("--compare puts two recordings side by side in a film: give --video FILE too")
    display = choose_offscreen() if w.video is not None else None  # before anything imports MuJoCo
    if display is not None and display.backend is None:
        raise UserError(display.note)
    for target in (w.video, w.report, w.rerun):
        if target is not None and not target.parent.is_dir():
            raise UserError(f"there is no folder {target.parent} to write {target.name} to")
    rollout, robot = _load(w.recording, w, console)
    facts = describe(rollout)
    from sim.replay import Poser, VideoCfg

    for note in Poser(rollout, robot).notes:
        console.print(f"note: {note}")
    found = None
    if w.resim:
        found = _resim(rollout, robot, console)
        facts["resim"] = found.figures()
    if w.report is not None:
        _needs("matplotlib", "--report", "train")
        from sim.rollout_report import write_report

        w.report.write_text(write_report(rollout, robot, w.recording.name, found))
        console.print(f"wrote {w.report}")
    if w.rerun is not None:
        _needs("rerun", "--rerun", "rerun")
        from sim.rerun_export import write_rerun

        poses = write_rerun(rollout, robot, w.rerun, w.recording.name)
        console.print(f"wrote {w.rerun}: {poses} poses; open it with: rerun {w.rerun}")
    if w.video is not None:
        assert display is not None
        console.print(display.note)
        cfg = VideoCfg(round(w.height * SIXTEEN_NINE / 2) * 2, w.height // 2 * 2, speed=w.speed, seconds=w.seconds)
        if w.compare is None:
            film([rollout], [robot], w.video, console, cfg)
        else:
            other, its_robot = _load(w.compare, w, console)
            film([rollout, other], [robot, its_robot], w.video, console, cfg, [w.recording.stem, w.compare.stem])
    if w.window or w.web or not (w.video or w.report or w.rerun or w.resim):
        _live(rollout, robot, w, console)
    return facts


def _live(rollout: Rollout, robot: Any, w: Wanted, console: Any) -> None:
    if w.window and not has_window_system():
        raise UserError("there is no display for --window (DISPLAY is not set); --web shows a page, --video FILE writes a film")
    if w.window or (has_window_system() and not w.web):
        console.print("showing in a window" + ("" if w.window else ", since a display was found; --web shows a page instead"))
        from sim.replay import show_window

        show_window(rollout, robot, w.speed)
        return
    _needs("viser", "a page", "view", " (without it: --video FILE writes a film)")
    from sim.web_replay import WebReplay

    page = WebReplay(rollout, robot, w.recording.name, w.port, speed=w.speed)
    console.print(f"{page.url} shows {w.recording.name}" + ("" if w.web else ", since there is no display for a window") + "; Ctrl-C ends it")
    page.wait()


def _resim(rollout: Rollout, robot: Any, console: Any) -> Any:
    from sim.resim import WINDOW, resimulate

    found = resimulate(rollout, robot)
    console.print(f"the recorded commands in the simulator, put back into the recorded state every {WINDOW:g} s; apart by (root mean square):")
    for h, f in found.figures()["horizons"].items():
        worst = sorted(f["joints_rad"].items(), key=lambda item: -item[1])[:3]
        console.print(f"  after {h} s: joints {f['all_joints_rad']:.4f} rad, base {100 * f['base_m']:.1f} cm ({f['starts']} starts); most in "
                      + ", ".join(f"{n} {v:.3f}" for n, v in worst))
    return found


def film(rollouts: list[Rollout], robots: list[Any], target: Path, console: Any, cfg: Any, titles: list[str] | None = None) -> None:
    """Write a film, with a bar and the time left."""
    from rich.progress import track

    from sim.replay import frame_times, write_video

    if not target.parent.is_dir():
        raise UserError(f"there is no folder {target.parent} to write {target.name} to")
    total, start = len(frame_times(rollouts[0], cfg)), time.monotonic()
    steps = iter(track(range(total), "filming", console=console))
    write_video(rollouts, robots, target, cfg, titles, lambda _: next(steps, None))
    next(steps, None)
    console.print(f"wrote {target}: {total / cfg.fps:.1f} s in {time.monotonic() - start:.1f} s")


def _needs(module: str, what: str, extra: str, hint: str = "") -> None:
    import importlib.util

    if importlib.util.find_spec(module) is None:
        raise UserError(f"{what} needs {module}: pip install 'birdie[{extra}]'{hint}")
