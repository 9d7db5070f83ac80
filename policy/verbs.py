"""What each verb of the command line does, in a few lines each. Imports are inside: OpenGL must be chosen before MuJoCo is
imported, playing must work without torch, and `--help` should be instant."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from perception.errors import UserError
from perception.output import JsonPath, stamp, write_json
from policy import SHIPPED


def needs_training_extra(verb: str) -> None:
    try:
        import stable_baselines3  # noqa: F401
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        raise UserError(f"birdie {verb} needs {error.name}: run `make setup-train`, or pip install 'birdie[train]'") from error


def train(preset: Literal["default", "quick", "seeing"] = "default", out: Path | None = None, resume: Path | None = None,
          total_steps: int | None = None, seed: int = 1, robot: str = "anymal_dynaarm", randomize: bool = True,
          mode: Literal["auto", "sequential", "overlapped"] = "auto", threads: int = 0, checkpoint_minutes: float = 3.0, workers: int = 0, ray: str = "",
          begin_with: Path | None = None, json_path: JsonPath = None) -> None:
    """Train a policy from scratch with PPO, or go on with a run.

    Ctrl-C stops after writing a checkpoint. Curves: tensorboard --logdir runs/train.

    Args:
        preset: default reaches the README's figures in about 30 minutes on two cores; quick shows a learner on near targets in 5; seeing
            goes on from a default run (--begin-with): the robot knows of shuttles what its cameras tell, and limits its arm's current.
        out: run folder; default runs/train/<time>, or the run that is resumed.
        resume: run folder, or checkpoint, to go on from with its settings.
        total_steps: length of the whole run in environment steps, instead of the preset's.
        seed: of everything random.
        robot: a robot of sim/models, or a folder with robot.xml and robot.yaml.
        randomize: let robots, rackets, motors and delays differ from episode to episode (sim/randomize.py).
        mode: sequential: sample, then learn. overlapped: both at once on two cores or more, from data one update old. auto takes the
            faster one for this machine. In both a seed gives the same bytes for the same number of threads.
        threads: for physics and learning; 0 takes all cores.
        checkpoint_minutes: between two checkpoints.
        workers: sample in so many processes of this machine instead (needs Ray).
        ray: sample on a Ray cluster: its address, such as 10.0.0.1:6379 or auto; one worker per CPU unless --workers says how many.
        begin_with: run folder or checkpoint whose weights a new run begins with; inputs it did not have start with no influence.
        json_path: write one JSON line per report to this file.
    """
    needs_training_extra("train")
    from policy.training import PRESETS
    from policy.training import train as run_training

    default = resume if resume is not None and (resume / "checkpoints").is_dir() else Path("runs/train") / stamp()
    cfg = replace(PRESETS[preset], seed=seed, robot=robot)
    run_training(cfg if randomize else replace(cfg, randomize=None), out or default, resume, total_steps, checkpoint_minutes, threads,
                 json_path, mode=None if mode == "auto" else mode, workers=workers, ray=ray, begin=begin_with)


def play(policy: Path = SHIPPED, shots: Literal["human", "launcher", "opponent"] = "human", as_hit: bool = False, repeats: int = 10,
         spread_x: float | None = None, spread_y: float | None = None, rallies: int = 50, vision: bool = False, vision_shots: int = 10,
         robot: str = "", seed: int = 11, video: bool = True, out: Path | None = None, threads: int = 0, json_path: JsonPath = None) -> None:
    """Let the policy return shots that people hit; score card, recording and video go to runs/play/<time>.

    Args:
        policy: ONNX file with its contract inside.
        shots: human: 37 measured flights of amateurs; launcher: drawn from the ETH paper's launcher; opponent: rallies with a
            model of a person (sim/opponent.py).
        as_hit: leave each shot where it was hit instead of moving it around the robot's home.
        repeats: times each shot is served.
        spread_x: moved shots come down within this of home, fore and aft [m]; the robot's box of targets if left out.
        spread_y: the same sideways [m].
        rallies: with --shots opponent: how many.
        vision: the robot is told nothing: it sees human shots with its own rendered cameras, tracks them and plans its strikes. Slow.
        vision_shots: with --vision: how many.
        robot: folder of your robot, if the policy is for one that does not ship.
        seed: of places and order.
        video: write rally.mp4 where headless OpenGL works.
        out: folder to write to.
        threads: for physics; 0 takes all cores.
        json_path: write the score card to this file too.
    """
    from rich.console import Console

    from sim.display import choose_offscreen

    console = Console(highlight=False, soft_wrap=True)
    display = choose_offscreen() if video or vision else None
    if vision and (shots != "human" or as_hit):
        raise UserError("--vision plays human shots moved around home; leave --shots and --as-hit out")
    if vision and display is not None and display.backend is None:
        raise UserError(display.note.replace("no video", "nothing can be seen"))
    from policy.inference import OnnxPolicy
    from policy.play import PlayCfg
    from policy.play import play as run_play
    from policy.provenance import session_facts
    from policy.rally import RallyCfg, play_rallies
    from policy.recorder import TaskRecorder
    from policy.reports import print_play, print_rallies
    from sim.robot import load_robot

    network = OnnxPolicy(policy)
    folder = out or Path("runs/play") / stamp()
    cfg = PlayCfg(shots, repeats, as_hit, spread_x, spread_y, seed=seed)
    load_robot(robot or network.contract.robot)  # before anything is written
    recorder = TaskRecorder(folder / "rollout.mcap", session_facts(network, seed, robot))
    start = time.monotonic()
    try:
        with console.status("playing ...") as status:
            if vision:
                figures = _play_vision(network, vision_shots, seed, recorder, robot, status)
            elif shots == "opponent":
                figures = play_rallies(network, RallyCfg(rallies, seed=seed), threads, recorder, robot)
            else:
                figures, _ = run_play(network, cfg, threads, recorder, robot)
    finally:
        recorder.close()
    write_json(folder / "scores.json", figures)
    write_json(json_path, figures)
    if vision:
        _print_vision(console, figures, time.monotonic() - start)
    else:
        (print_rallies if shots == "opponent" else print_play)(console, figures, time.monotonic() - start)
    console.print(f"wrote {folder / 'rollout.mcap'} and scores.json")
    if display is not None and display.backend is None:
        console.print(display.note)
    elif display is not None and video:
        _video(folder / "rollout.mcap", folder / "rally.mp4", console, {"width": 960, "height": 540, "fps": 25, "seconds": 14.0})


def _play_vision(network: Any, shots: int, seed: int, recorder: Any, robot: str, status: Any) -> dict[str, Any]:
    from policy.vision_play import VisionCfg, play_with_vision

    start = time.monotonic()

    def told(done: int, total: int) -> None:
        left = (time.monotonic() - start) / done * (total - done) / 60
        status.update(f"playing from pixels ... {done} of {total} shots, {left:.1f} min left")

    return play_with_vision(network, VisionCfg(shots, seed=seed), recorder, told, robot)


def _print_vision(console: Any, f: dict[str, Any], seconds: float) -> None:
    def shown(value: float | None, unit: float, name: str) -> str:
        return "none" if value is None else f"{value * unit:.1f} {name}"

    console.print(f"{f['shots']} human shots in reach, seen by the robot's own cameras ({f['frames']} pairs at {f['fps']:g} fps, known {f['latency_s'] * 1e3:g} ms later)")
    console.print(f"  touched {f['touched_rate']:.0%}, returned into court {f['returned_rate']:.0%}, falls {f['falls']}; commanded in {f['commanded_rate']:.0%}")
    console.print(f"  first command {shown(f['first_command_median_s'], 1e3, 'ms')} after the opponent's hit; strike commanded at the end "
                  f"{shown(f['place_error_median_m'], 100, 'cm')} from the shuttle (medians)")
    for note in f["notes"]:
        console.print(f"  note: {note}")
    console.print(f"  played in {seconds / 60:.1f} min")


def _video(recording: Path, target: Path, console: Any, settings: dict[str, Any]) -> None:
    from policy.show import film
    from sim.replay import VideoCfg
    from sim.robot import load_robot
    from sim.rollout_reader import read_rollout

    rollout = read_rollout(recording)
    film([rollout], [load_robot(rollout.metadata.get("robot", "anymal_dynaarm"))], target, console, VideoCfg(**settings))


def evaluate(policy: Path = SHIPPED, swings: int = 1000, robots: int = 100, seed: int = 7, spread: float = 1.0, speed_max: float | None = None,
             randomize: bool = False, card: bool = True, compare: tuple[Path, Path] | None = None, robot: str = "", out: Path | None = None, threads: int = 0,
             json_path: JsonPath = None) -> None:
    """Measure a policy on fixed seeds: drilled targets, then the score card (scores.json and scores.html in runs/eval/<time>).

    Args:
        policy: ONNX file with its contract inside.
        swings: at least so many of each kind.
        robots: side by side.
        seed: of targets and start states.
        spread: 1 is the robot's box of targets (+-0.6 m fore-aft and +-1.0 m sideways, 0.9 to 1.4 m above the base for
            anymal_dynaarm); scales its floor plan. The score card has regions of its own.
        speed_max: commanded racket speeds go from 2 m/s to this; two thirds of the robot's swing speed if left out.
        randomize: let robots, rackets, motors and delays differ from episode to episode (sim/randomize.py).
        card: with the score card: level I and II, far and fast targets, human shots; needs matplotlib.
        compare: two ONNX files instead: their score cards side by side.
        robot: folder of your robot, if the policy is for one that does not ship.
        out: folder to write to.
        threads: for physics; 0 takes all cores.
        json_path: write the figures to this file too.
    """
    from rich.console import Console

    from policy.evaluation import EvalCfg
    from policy.evaluation import evaluate as run_evaluation
    from policy.inference import OnnxPolicy
    from policy.reports import print_evaluation
    from sim.randomize import RandomizeCfg

    console = Console(highlight=False, soft_wrap=True)
    folder = out or Path("runs/eval") / stamp()
    if compare is not None:
        write_json(json_path, _compare_cards(compare, swings, seed, threads, robot, folder, console))
        return
    network = OnnxPolicy(policy)
    with console.status("evaluating ..."):
        figures = run_evaluation(network, EvalCfg(swings, robots, seed, spread, speed_max, RandomizeCfg() if randomize else None), threads, robot)
    print_evaluation(console, figures)
    if card:
        figures = {**_score_card(network, policy.name, swings, seed, threads, robot, folder, console), **figures}
    write_json(json_path, figures)


def _score_card(network: Any, name: str, swings: int, seed: int, threads: int, robot: str, folder: Path, console: Any) -> dict[str, Any]:
    """Run, print and write a score card; its figures."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        raise UserError("the score card needs matplotlib: pip install 'birdie[view]', or --no-card") from error
    from policy.score_card import CardCfg, page, public, rows, run

    with console.status("score card ...") as status:
        found = run(network, CardCfg(swings, seed, threads), robot, lambda what: status.update(f"score card: {what} ..."))
    console.print(f"score card of {name}, 95 % intervals in brackets; on the right the paper's, of another test")
    for what, ours, paper in rows(found):
        console.print(f"  {what:76s} {ours}" + (f"   | {paper}" if paper else ""))
    figures = public(found)
    write_json(folder / "scores.json", figures)
    (folder / "scores.html").write_text(page(found, f"Score card of {name}"))
    console.print(f"wrote {folder / 'scores.json'} and scores.html")
    return figures


def _compare_cards(two: tuple[Path, Path], swings: int, seed: int, threads: int, robot: str, folder: Path, console: Any) -> dict[str, Any]:
    """Two score cards side by side."""
    from policy.inference import OnnxPolicy
    from policy.score_card import CardCfg, public, rows, run

    networks = [OnnxPolicy(path) for path in two]  # both are read before anything runs for a minute
    cards = []
    for path, network in zip(two, networks, strict=True):
        with console.status(f"{path.name} ...") as status:
            cards.append(run(network, CardCfg(swings, seed, threads), robot, lambda what, name=path.name: status.update(f"{name}: {what} ...")))  # type: ignore[misc]
    console.print(f"{'':76s} {two[0].name:44s} {two[1].name}")
    for (what, a, _), (_, b, _) in zip(rows(cards[0]), rows(cards[1]), strict=True):
        console.print(f"{what:76s} {a:44s} {b}")
    figures = {"a": {"policy": str(two[0]), **public(cards[0])}, "b": {"policy": str(two[1]), **public(cards[1])}}
    write_json(folder / "compare.json", figures)
    console.print(f"wrote {folder / 'compare.json'}")
    return figures


def replay(recording: tyro.conf.Positional[Path], window: bool = False, web: bool = False, video: Path | None = None, report: Path | None = None,
           rerun: Path | None = None, resim: bool = False, compare: Path | None = None, begin: Annotated[float | None, tyro.conf.arg(name="from")] = None,
           end: Annotated[float | None, tyro.conf.arg(name="to")] = None, swing: int = 0, speed: float = 1.0, height: int = 1080, seconds: float = 0.0,
           robot: str = "", port: int = 8012, json_path: JsonPath = None) -> None:
    """Show a recording: in a window where there is a display, else as a page for the browser; or write a film, a report or a Rerun file.

    Args:
        recording: a rollout.mcap, or a ROS 2 bag with /joint_states (a folder, an .mcap or a .db3).
        window: MuJoCo's viewer; needs a display.
        web: a page to walk around in; the address is printed, Ctrl-C ends it.
        video: write this .mp4: H.264, 30 frames a second, slow motion at the hits.
        report: write this .html: what happened, with curves; one file, nothing to fetch.
        rerun: write this .rrd for the Rerun viewer.
        resim: drive the simulator with the recorded commands and say where it parts from the recording, joint by joint.
        compare: a second recording, beside the first in the film; both from their start.
        begin: leave out what is before so many seconds.
        end: and what is after so many.
        swing: only this swing, 1 for the first.
        speed: of window, page and film, 1 is real time.
        height: of the film [px], 16:9.
        seconds: longest film, 0 for all of it.
        robot: name or folder of the robot, where the recording does not say it.
        port: of the page; another one is taken if it is in use.
        json_path: write what the recording holds (length, events, topics, notes, metadata) and what --resim found to this file.
    """
    from rich.console import Console

    from policy.show import Wanted, show

    console = Console(highlight=False, soft_wrap=True)
    write_json(json_path, show(Wanted(recording, window, web, video, report, rerun, resim, compare, begin, end, swing, speed, height, seconds,
                                      robot, port), console))


def export(run: Path, out: Path = Path("policy.onnx"), json_path: JsonPath = None) -> None:
    """Turn the newest checkpoint of a run into one ONNX file with its contract, checked against torch.

    Args:
        run: run folder of `birdie train`, or a checkpoint folder.
        out: the ONNX file.
        json_path: write steps, minutes, commit, settings and the largest difference to torch to this file.
    """
    needs_training_extra("export")
    from policy.export import export_policy

    record = export_policy(run, out)
    write_json(json_path, record)
    print(f"wrote {out}: {record['steps'] / 1e6:.2f} M steps, {record['minutes']:.1f} min, commit {record['commit']}; "
          f"largest difference to torch {record['onnx_difference']:.1e}")


def robots(folder: tyro.conf.Positional[str] = "", json_path: JsonPath = None) -> None:
    """List the robots that ship, or check one: sizes, reach, and whether left and right are mirror images.

    Args:
        folder: name of a robot, or a folder with robot.xml and robot.yaml; all that ship if left out.
        json_path: write what is printed to this file.
    """
    from policy.curriculum import CurriculumCfg
    from sim.robot import available_robots, load_robot
    from sim.robot_check import describe

    found = [describe(load_robot(name)) for name in ([folder] if folder else available_robots())]
    write_json(json_path, found)
    for f in found:
        print(f"{f['name']}: {f['mass_kg']:.1f} kg, stands {f['standing_height_m']:.2f} m high, {f['joints']} joints ({f['arm_joints']} in the arm), "
              f"racket up to {f['reach_m']:.2f} m from the shoulder, {f['strike_range_m']:.2f} m ahead at strike height")
        s = f["scale"]
        print(f"  its task: targets +-{s['box_x']:.2f} x +-{s['box_y']:.2f} m around home, {s['standing_height'] + s['strike_low']:.2f} to "
              f"{s['standing_height'] + s['strike_high']:.2f} m high; racket to {CurriculumCfg().top_share * s['swing_speed']:.1f} m/s; fallen below {s['fall_height']:.2f} m")
        for line in f["problems"]:
            print(f"  to mend: {line}")
    if any(f["problems"] for f in found):
        raise UserError("not fit to train yet: see the lines above")
