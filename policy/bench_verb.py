"""`birdie bench`: what each measurement is called with, and how its figures are printed. Imports are inside, as in `verbs.py`."""

import time
from pathlib import Path
from typing import Any, Literal

import tyro

from perception.errors import UserError
from perception.output import JsonPath, stamp, write_json
from policy.verbs import needs_training_extra


def bench(what: tyro.conf.Positional[Literal["sim", "train", "flight", "timestep", "perception", "stale"]], robots: int = 512, seconds: float = 8.0,
          threads: int = 0, data: Path | None = None, serves: int = 100, fps: float = 60.0, lens: Literal["2.2", "4"] = "2.2",
          shuttle: Literal["white", "orange"] = "white", steps: int = 1_050_000, seeds: int = 3, out: Path = Path("runs/stale"),
          json_path: JsonPath = None) -> None:
    """Measure this machine or the model: speed of the environment (sim), of one PPO iteration by phase and beside other learners (train),
    or how well the flight model foretells measured flights (flight), or what a longer physics step costs in truth (timestep), or what the
    robot's cameras make of rendered serves, and how fast (perception), or what learning from stale data does (stale).

    Args:
        what: sim, train, flight, timestep, perception or stale.
        data: for flight: folder with shots.csv and *_xyz.csv, or one file of t_s, x_m, y_m, z_m per flight.
        robots: in the batch.
        seconds: of each measurement.
        threads: 0 takes all cores.
        serves: for perception: how many, as the shipped policy plays them.
        fps: for perception: stereo frames per second; the camera does up to 120.
        lens: for perception: of the ZED X [mm]; the robot's is 2.2.
        shuttle: for perception: its colour.
        steps: for stale: of each run.
        seeds: for stale: runs per variant; a run that is in --out already is not made again.
        out: for stale: folder of the runs and the plot.
        json_path: write the figures to this file.
    """
    if what == "perception":
        write_json(json_path, _bench_perception(serves, fps, float(lens), shuttle, threads))
        return
    if what == "flight":
        write_json(json_path, _bench_flight(data))
        return
    if what == "timestep":
        write_json(json_path, _bench_timestep())
        return
    if what == "train":
        write_json(json_path, _bench_train(robots, seconds, threads))
        return
    if what == "stale":
        write_json(json_path, _bench_stale(out, steps, seeds, robots))
        return
    from policy.bench import bench_sim

    figures = bench_sim(robots, seconds, threads)
    table = figures.get("scaling", [])
    for name, value in figures.items():
        if name == "scaling":
            continue
        print(f"{name:32s} {value:.4g}" if isinstance(value, float) else f"{name:32s} {value}")
    for row in table:
        print(f"{row['robots']:6d} robots {row['env_steps_per_s']:9.0f} env steps/s {row['raw_physics_steps_per_s']:9.0f} raw  "
              f"ratio {row['ratio']:.2f}  {row['bytes_per_robot'] / 1024:.1f} KiB per robot")
    write_json(json_path, figures)


def _bench_train(robots: int, seconds: float, threads: int) -> dict[str, Any]:
    from rich.console import Console

    needs_training_extra("bench train")
    from policy.bench_train import bench_train

    console = Console(highlight=False, soft_wrap=True)
    with console.status("...") as status:
        f = bench_train(robots, seconds, threads, lambda what: status.update(f"measuring: {what} ..."))
    console.print(f"{f['robots']} robots on {f['cores']} cores; steps/s, all in one run")
    console.print(f"  raw physics {f['raw_physics_steps_per_s']:.0f}, whole environment {f['env_steps_per_s']:.0f}: {f['env_ratio']:.2f} of it")
    modes = ", ".join(f"{name.replace('_', ' ')} {'not measured' if rate is None else f'{rate:.0f}'}" for name, rate in f["modes_steps_per_s"].items())
    console.print(f"  our PPO {f['ppo_steps_per_s']:.0f} ({f['mode']}, the mode that train takes here; {modes})")
    console.print(f"  stock stable-baselines3 {f['stock_sb3_steps_per_s']:.0f} (" +
                  ", ".join(f"{n} processes {rate:.0f}" for n, rate in f["stock_by_processes"].items()) + f"): ours is {f['ppo_over_stock']:.1f} times as fast")
    console.print(f"  hand-written loop {f['handwritten_steps_per_s']:.0f}: {f['handwritten_over_ppo']:.2f} of ours")
    console.print(f"  two independent runs of one thread each {f['two_independent_steps_per_s']:.0f} together: ours is {f['ppo_over_two_independent']:.2f} of them")
    if f["cost"]:
        c = f["cost"]
        console.print("  Ray workers on this machine: " + ", ".join(f"{n}: {row['steps_per_s']:.0f}" for n, row in f["workers"].items()) +
                      f"; the learner alone takes {c['learner_steps_per_s']:.0f}, so {c['workers_to_saturate']:.1f} workers keep it busy: "
                      f"{c['bytes_per_step']:.0f} bytes a step, {c['megabytes_per_s_when_saturated']:.1f} MB/s, weights {c['weights_bytes'] / 1e6:.2f} MB")
    console.print(f"one sequential iteration, {f['iteration_ms']:.0f} ms:")
    for name, value in f["phases_ms"].items():
        console.print(f"  {name:32s} {value:7.1f} ms  {value / f['iteration_ms']:4.0%}")
    return f


def _bench_stale(out: Path, steps: int, seeds: int, robots: int) -> dict[str, Any]:
    from rich.console import Console

    needs_training_extra("bench stale")
    from policy.stale_study import plot, study

    console, start = Console(highlight=False, soft_wrap=True), time.monotonic()

    def told(done: int, total: int) -> None:
        console.print(f"{done} of {total} runs, {(time.monotonic() - start) / 60:.1f} min")

    figures = study(out, steps, tuple(range(1, seeds + 1)), robots, told)
    plot(figures, out / "stale.png")
    console.print("after the last report, median of the seeds (lowest to highest):")
    for row in figures["variants"]:
        hit, error, entropy = (row[k] for k in ("hit_rate", "median_position_error_m", "entropy"))
        console.print(f"  {row['variant']:18s} hit {hit['median'][-1]:6.1%} ({hit['low'][-1]:.1%} to {hit['high'][-1]:.1%})  racket error "
                      f"{error['median'][-1] * 100:5.1f} cm ({error['low'][-1] * 100:.1f} to {error['high'][-1] * 100:.1f})  entropy {entropy['median'][-1]:5.2f}  "
                      f"{row['minutes']['median'][-1]:.1f} min")
    console.print(f"plot: {out / 'stale.png'}")
    return figures


def _bench_timestep() -> dict[str, Any]:
    from sim.robot import load_robot
    from sim.timestep import study

    figures = study(load_robot())
    b = figures["bounds"]
    print(f"bounds: feet creep at most {b['foot_creep_mm_per_s']:g} mm/s, a free arm's energy {b['energy_error']:.0%}, "
          f"a swing's speed {b['swing_speed_error']:.0%} against the finest step")
    for r in figures["rows"]:
        print(f"{r['step_s'] * 1000:5.0f} ms  creep {r['foot_creep_mm_per_s']:.2f} mm/s  energy {r['energy_error']:.1%}  "
              f"swing {r['swing_speed_mps']:.1f} m/s, off by {r['swing_speed_error']:.1%}  {r['real_time_factor']:4.0f} x real time  "
              f"{'within' if r['within'] else 'outside'}")
    print(f"longest within: {figures['chosen_s'] * 1000:g} ms; the model's: {figures['model_s'] * 1000:g} ms" if figures["chosen_s"]
          else "no step is within the bounds")
    return figures


def _bench_flight(data: Path | None) -> dict[str, Any]:
    from rich.console import Console

    try:
        from perception.flight_fit import bench_flights, plot_errors, read_flights
    except ModuleNotFoundError as error:
        raise UserError(f"birdie bench flight needs {error.name}: run `make setup-train`, or pip install 'birdie[train]'") from error
    if data is None:
        raise UserError("bench flight needs --data DIR: a folder with measured flights")
    try:
        flights = read_flights(data)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{data} cannot be read as measured flights: {error}") from error
    console = Console(highlight=False, soft_wrap=True)
    with console.status(f"fitting {len(flights)} flights at four horizons, with and without drift ..."):
        figures = bench_flights(flights)
    console.print(f"{figures['flights']} flights; heights of this recording put to scale by {figures['height_scale']:.3f}")
    console.print("foretold end of the flight against the measured one, median / 90 % in cm: drag and drift; drag alone")
    for horizon in figures["drag_only"]["median_m"]:
        row = [f"{figures[m]['median_m'][horizon] * 100:5.1f} / {figures[m]['p90_m'][horizon] * 100:5.1f}" for m in ("drag_and_drift", "drag_only")]
        console.print(f"  {horizon} s before ({figures['drag_only']['flights'][horizon]} flights)  {row[0]};  {row[1]}")
    picture = Path("runs") / "bench" / f"flight_{stamp()}.png"
    plot_errors(figures, picture)
    console.print(f"plot: {picture}")
    return figures


def _bench_perception(serves: int, fps: float, lens_mm: float, shuttle: str, threads: int) -> dict[str, Any]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from sim.display import choose_offscreen

    display = choose_offscreen()
    if display.backend is None:
        raise UserError(display.note.replace("no video", "nothing can be rendered"))
    from policy.perception_bench import bench_perception

    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{display.note}; the policy plays {serves} serves first, then each is rendered and watched")
    with Progress(TextColumn("serves"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}"), console=console) as bar:
        task = bar.add_task("serves", total=serves, left="")

        def told(done: int, total: int, left: float) -> None:
            bar.update(task, completed=done, total=total, left=f"{left / 60:.1f} min left")
            if not console.is_terminal and done % max(total // 10, 1) == 0:  # a log has no bar
                console.print(f"{done} of {total} serves, {left / 60:.1f} min left")

        figures = bench_perception(serves, fps, lens_mm, shuttle, threads, progress=told)

    def shown(value: float | None, unit: float = 1.0) -> str:
        return "none" if value is None else f"{value * unit:.1f}"

    console.print(f"{figures['serves']} serves, {figures['seconds']:.0f} s, camera turning at up to {figures['turn_rate_max_rad_s']:.1f} rad/s")
    console.print(f"found in both eyes: {shown(figures['recall'], 100)} % of {figures['frames_in_view']} frames in view within 7 m; "
                  f"false tracks: {figures['false_tracks']}, {figures['false_tracks_per_100_s']:.2f} in 100 s "
                  f"({figures['empty_false_tracks']} of them in {figures['empty_seconds']:.0f} s with no shuttle in the hall)")
    for h, error in figures["interception_median_m"].items():
        console.print(f"  {h} s before the hit: foretold place off by {shown(error, 100)} cm, time by {shown(figures['interception_time_median_s'][h], 1e3)} ms (median); "
                      f"{shown(figures['interception_fresh_median_m'][h], 100)} cm in the {figures['interception_fresh_serves'][h]} serves in view within 0.2 s before")
    console.print(f"processor time of a pair: tracking {shown(figures['p50_ms'])} ms (99 %: {shown(figures['p99_ms'])}), searching {shown(figures['search_p50_ms'])}, "
                  f"tracker and forecast {shown(figures['tracker_ms'])}; 4096 filters {shown(figures['batch_4096_tick_ms'])} ms a tick")
    _print_noise(console, figures["noise"], lens_mm)
    for note in figures["notes"]:
        console.print(f"  note: {note}")
    return figures


def _print_noise(console: Any, noise: dict[str, Any] | None, lens_mm: float) -> None:
    from perception.noise import NoiseCfg

    if noise is None:
        console.print("noise model against the images: too few serves to fit one to each half")
        return
    apart = ", ".join(f"{name} {value:.3f} ({noise['halves'][name]:.3f})" for name, value in noise["distance"].items())
    console.print(f"noise model fitted to one half of the serves, drawn for the other: distributions of errors differ by {apart} at most "
                  f"(in brackets: the halves of the images from each other); {noise['reports']} reports")
    console.print("  missed, images and model: " + ", ".join(f"{name} {m['images']:.1%} and {m['model']:.1%} of {m['frames']}" for name, m in noise["missed"].items()))
    target = Path("runs") / "bench" / f"noise_rendered_{stamp()}.yaml"
    NoiseCfg(**noise["noise"]).save(target, noise["sources"], f"Noise of a shuttle in rendered images, {lens_mm:g} mm lens, from `birdie bench perception`.")
    console.print(f"  its numbers: {target}")
