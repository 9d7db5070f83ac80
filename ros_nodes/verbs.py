"""The verbs that speak ROS: `birdie up` and `birdie ros`. rclpy is imported only once it is known to be there."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro

from perception.errors import UserError
from perception.output import stamp, write_json
from policy import SHIPPED

JsonPath = Annotated[Path | None, tyro.conf.arg(name="json")]


def up(robot: str = "sim", serves: int = 20, vision: bool = False, lock_step: bool = False, bag: Path | None = None, policy: Path = SHIPPED,
       seed: int = 11, record: bool = True, realtime: bool = False, deadman: bool = False, domain: int = -1, seconds: float = 0.0,
       out: Path | None = None, json_path: JsonPath = None) -> None:
    """Start the nodes of a robot, watch them and stop them: in the simulator, dry, or on hardware.

    Args:
        robot: sim: the simulator as a robot; dry: computes everything and commands nothing, on --bag or on whatever robot is on the network;
            or the folder of a robot, with its deploy.yaml.
        serves: with --robot sim: shots to be thrown, those of `birdie play` with the same seed.
        vision: images instead of detections; with --robot sim rendered ones, in lock-step, slow.
        lock_step: with --robot sim: the simulator waits for every answer instead of keeping real time.
        bag: with --robot dry: a recording in place of a robot.
        policy: ONNX file with its contract inside.
        seed: of shots and places.
        record: everything into a bag in the session's folder.
        realtime: SCHED_FIFO for the nodes, where it is allowed.
        deadman: a joystick's button must be held.
        domain: ROS domain id; -1: $ROS_DOMAIN_ID, or with --robot sim and --bag one of its own.
        seconds: with hardware or dry: how long; 0: until Ctrl-C, or the end of the bag.
        out: folder to write to.
        json_path: write the figures to this file.
    """
    from rich.console import Console

    from ros_nodes.bringup import check_started, random_domain, robot_stack, ros_is_here
    from ros_nodes.deploy import CONFIG, load_deploy

    if serves < 1 or seconds < 0 or not -1 <= domain <= 232:
        raise UserError(f"serves must be at least 1, seconds not negative, domain -1 to 232; they are {serves}, {seconds:g}, {domain}")
    if bag is not None and robot != "dry":
        raise UserError("--bag takes the place of a robot; give --robot dry with it")
    if lock_step and robot != "sim":
        raise UserError("--lock-step is of the simulator; leave it out")
    if vision and bag is not None:
        raise UserError("bags hold detections, not images; leave --vision out")
    from policy.inference import OnnxPolicy
    from policy.provenance import session_facts

    if bag is not None:
        from ros_nodes.bag import sensor_messages

        sensor_messages(bag)
    network = OnnxPolicy(policy)
    deploy_path = str(CONFIG / "anymal_dynaarm.yaml") if robot in ("sim", "dry") else robot
    deploy = load_deploy(deploy_path)
    deploy.limits(network.contract)
    deploy.joint_map(network.contract)
    missing = ros_is_here()
    if missing:
        raise UserError(missing)
    stepped = robot == "sim" and (lock_step or vision)
    if vision and robot == "sim":
        from sim.display import choose_offscreen

        display = choose_offscreen()
        if display.backend is None:
            raise UserError(display.note.replace("no video", "nothing can be seen"))
    console = Console(highlight=False, soft_wrap=True)
    alone = robot == "sim" or bag is not None
    chosen = domain if domain >= 0 else None if os.environ.get("ROS_DOMAIN_ID") or not alone else random_domain()
    folder = (out or Path("runs/up") / stamp()).resolve()
    facts = json.dumps(session_facts(network, seed, ""))
    stack = robot_stack(folder, str(deploy.path.resolve()), str(policy.resolve()), "sim" if robot == "sim" else "dry" if robot == "dry" else "", chosen,
                        stepped, vision, seed, (serves + 36) // 37, bag.resolve() if bag else None, folder / "bag" if record else None, realtime,
                        deadman, facts)
    stack.adopt_environment()
    figures: dict[str, Any] = {}
    stopping: list[int] = []
    previous = {n: signal.signal(n, lambda number, _: stopping.append(number)) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        for name in stack.specs:
            stack.start(name)
        console.print(f"{', '.join(stack.specs)} started on domain {stack.env.get('ROS_DOMAIN_ID', '0')}; logs in {folder}")
        from ros_nodes.session import Session

        with Session() as session:
            def alive() -> bool:
                check_started(stack)
                return not stopping

            if robot == "sim":
                figures = _serve(session, serves, stepped, alive, console)
            else:
                _watch(session, seconds, alive, stack, console)
            session.spin(1.2 if not stopping else 0.0)  # one more round of diagnostics
            figures |= latencies(session)
            faults = session.faults
    finally:
        codes = stack.stop(silent=True)
        for number, handler in previous.items():
            signal.signal(number, handler)
    figures |= {"exit_codes": codes, "faults": faults, "seed": seed, "robot": robot, "vision": vision, "lock_step": stepped,
                "bag": str(folder / "bag") if record else None}
    write_json(folder / "figures.json", figures)
    write_json(json_path, figures)
    _print(console, figures, folder)
    bad = {n: c for n, c in codes.items() if c not in (0,)}
    if stopping:
        raise KeyboardInterrupt
    if bad:
        raise UserError(f"nodes did not end well: {bad}; see the logs in {folder}")


def _serve(session: Any, serves: int, patient: bool, alive: Any, console: Any) -> dict[str, Any]:
    """Get up, and return shots one after the other; after a fault back on its feet, as a person would put it."""
    begin = time.monotonic()
    interruptions: list[dict[str, Any]] = []
    ok, why = False, ""
    while alive() and time.monotonic() - begin < (120.0 if patient else 60.0) and not ok:
        ok, why = session.bring_to("PLAY", 20.0)
    if not ok and alive():
        raise UserError(f"the robot does not play: {why}; faults: {session.faults or 'none'}")
    thrown = 0
    while alive() and thrown < serves:
        before = len(session.outcomes)
        served, why = session.ask("sim/serve", 10.0)
        if not served and "at its end" in why:
            break
        if not served:
            raise UserError(f"no serve: {why}")
        thrown += 1
        until = time.monotonic() + (600.0 if patient else 20.0)
        while alive() and len(session.outcomes) == before and time.monotonic() < until and session.state == "PLAY":
            session.spin(0.05)
        if session.state != "PLAY" and alive():
            interruptions.append({"serve": thrown, "faults": session.faults})
            console.print(f"  serve {thrown}: {session.safety.get('why', '')}")
            session.wait_for(lambda before=before: len(session.outcomes) > before, 12.0)
            session.call("sim/reset")
            session.spin(0.3)
            ok, why = session.bring_to("PLAY", 60.0)
            if not ok:
                raise UserError(f"the robot does not play again: {why}")
        elif len(session.outcomes) > before:
            o = session.outcomes[-1]
            error = "" if o["position_error_m"] is None else f", racket {o['position_error_m'] * 100:.1f} cm from the strike"
            console.print(f"  serve {thrown} of {serves}: {'returned' if o['returned'] else 'touched' if o['touched'] else 'missed'}{error}")
    outcomes = session.outcomes
    n = max(thrown, 1)

    def median(key: str) -> float | None:
        known = [o[key] for o in outcomes if o.get(key) is not None]
        return float(np.median(known)) if known else None

    return {"serves": thrown, "hit_rate": sum(o["hit"] for o in outcomes) / n, "touched_rate": sum(o["touched"] for o in outcomes) / n,
            "returned_rate": sum(o["returned"] for o in outcomes) / n, "commanded_rate": sum(o["commanded"] for o in outcomes) / n,
            "falls": sum(o["fell"] for o in outcomes), "median_position_error_m": median("position_error_m"), "median_place_error_m": median("place_error_m"),
            "median_time_error_s": median("time_error_s"), "interruptions": interruptions, "each": outcomes, "seconds": time.monotonic() - begin}


def _watch(session: Any, seconds: float, alive: Any, stack: Any, console: Any) -> None:
    """On a robot: say what the supervisor says, until it is enough. Arming, standing and playing are asked for by a person."""
    console.print("ask for it with: birdie ros arm, stand, play, damp; Ctrl-C damps and ends")
    until, said = time.monotonic() + (seconds or np.inf), ""
    while alive() and time.monotonic() < until:
        session.spin(0.2)
        now = f"{session.state}{', armed' if session.safety.get('armed') else ''} {session.faults or ''}"
        if now != said and session.state:
            said = now
            console.print(f"  {now}")
        if stack.ended().get("bag_player") is not None:
            session.spin(1.2)
            return


def latencies(session: Any) -> dict[str, Any]:
    """Percentiles of every stage, from the nodes' own diagnostics; None where nothing was measured."""
    def value(status: str, key: str = "p50_ms") -> float | None:
        x = session.number(status, key)
        return x if np.isfinite(x) else None

    ticks, missed = session.number("policy: deadlines", "ticks"), session.number("policy: deadlines", "missed")
    stages = {"exposure_to_arrival": "perception: latency exposure_to_arrival", "detect": "perception: latency detect", "track": "perception: latency track",
              "arrival_to_flight": "perception: latency arrival_to_flight", "detection_to_policy": "policy: latency detection_to_flight",
              "wait_for_tick": "policy: latency wait_for_tick", "policy": "policy: latency policy", "total": "policy: latency exposure_to_command"}
    return {
        "state_to_command_p50_ms": value("policy: latency state_to_command"), "state_to_command_p99_ms": value("policy: latency state_to_command", "p99_ms"),
        "state_to_supervisor_p50_ms": value("safety: state to command"), "state_to_drives_p50_ms": value("sim_robot: latency state_to_drives"),
        "detection_to_command_p50_ms": value("policy: latency detection_to_command"),
        "detection_to_command_p99_ms": value("policy: latency detection_to_command", "p99_ms"),
        "missed_deadline_rate": float(missed / ticks) if ticks > 0 else None, "policy_ticks": int(ticks) if np.isfinite(ticks) else 0,
        "image_to_command_ms": {name: value(status) for name, status in stages.items()},
    }


def _print(console: Any, f: dict[str, Any], folder: Path) -> None:
    def ms(key: str) -> str:
        return "not measured" if f.get(key) is None else f"{f[key]:.2f} ms"

    if "hit_rate" in f:
        console.print(f"{f['serves']} serves: racket within 10 cm of the strike {f['hit_rate']:.0%}, touched {f['touched_rate']:.0%}, "
                      f"returned into court {f['returned_rate']:.0%}; falls {f['falls']}, interruptions {len(f['interruptions'])}")
    if not f["lock_step"]:
        missed = f["missed_deadline_rate"]
        console.print(f"medians: state to command {ms('state_to_command_p50_ms')}, at the drives {ms('state_to_drives_p50_ms')}; detection to command "
                      f"{ms('detection_to_command_p50_ms')} and the wait for the next tick; deadlines missed "
                      f"{'not measured' if missed is None else f'{missed:.2%}'} of {f['policy_ticks']}")
    if f["faults"]:
        console.print(f"faults: {f['faults']}")
    console.print(f"wrote {folder}/figures.json" + (" and bag" if f["bag"] else ""))


ACTIONS = Literal["doctor", "arm", "stand", "play", "damp", "stop", "test", "again"]


def ros(action: tyro.conf.Positional[ACTIONS], joint: str = "", bag: Path | None = None, deploy: str = "anymal_dynaarm", policy: Path = SHIPPED,
        seconds: float = 3.0, json_path: JsonPath = None) -> None:
    """Look after the nodes of a robot: what is wrong with them, and what the supervisor is to do.

    Args:
        action: doctor: nodes, rates, quality of service, clocks, latencies; arm, stand, play, damp, stop: ask the supervisor; test: swing one
            joint gently; again: put a bag through perception and policy once more and compare the commands.
        joint: with test: its name.
        bag: with again: the recording.
        deploy: with again: the deploy file it was recorded under.
        policy: with again: the policy it was recorded with.
        seconds: with doctor: how long to listen.
        json_path: write what is printed to this file.
    """
    if action == "again":
        from policy.inference import OnnxPolicy
        from ros_nodes.bag import replay
        from ros_nodes.deploy import load_deploy

        if bag is None:
            raise UserError("again needs --bag: the recording to go through once more")
        result = replay(bag, load_deploy(deploy), OnnxPolicy(policy))
        write_json(json_path, vars(result))
        print(f"{result.commands} commands, {result.different} different (worst {result.worst:.1e} rad), {result.left_out} without their report or predecessor in the bag; "
              f"{result.flights} exposures, {result.flights_different} tracked differently")
        return
    from ros_nodes.bringup import CONFIG, ros_is_here

    missing = ros_is_here()
    if missing:
        raise UserError(missing)
    os.environ.setdefault("FASTDDS_DEFAULT_PROFILES_FILE", str(CONFIG / "fastdds.xml"))
    from ros_nodes.doctor import examine, test_joint
    from ros_nodes.session import Session

    with Session() as session:
        if action == "doctor":
            found = examine(session, seconds)
            write_json(json_path, found)
            for line in found["lines"]:
                print(line)
            if found["problems"]:
                raise UserError(f"{len(found['problems'])} to mend: " + "; ".join(found["problems"]))
            return
        if action == "test":
            ok, why = test_joint(session, joint)
        else:
            ok, why = session.call({"stop": "safety/estop_now"}.get(action, f"safety/{action}"), 3.0)
        if not ok:
            raise UserError(f"{action} refused: {why}")
        print(f"{action}: {why}")
