"""Reading bags, and putting one through perception and policy again: what was commanded must come out, to the last bit. No ROS needed."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mcap.exceptions import McapError
from mcap.reader import NonSeekingReader
from rosbags.typesys import Stores, get_typestore

from perception.errors import UserError
from policy.commander import Flight
from policy.inference import OnnxPolicy
from ros_nodes.deploy import Deploy
from ros_nodes.perception_core import PerceptionCore
from ros_nodes.policy_core import PolicyCore, Report

Array = np.ndarray
SENSORS = ("/joint_states", "/imu/data", "/odom", "/shuttle/detection")
EPOCH = 10**12  # [ns] policies count their seconds from a multiple of it


def bag_file(path: Path) -> Path:
    """The .mcap of a bag's folder, or the file itself. UserError where there is none."""
    found = sorted(path.glob("*.mcap")) if path.is_dir() else [path]
    if not found or not found[0].is_file():
        raise UserError(f"no bag at {path}: give a folder with a .mcap, or the file")
    return found[0]


def raw_messages(path: Path) -> Iterator[tuple[str, str, int, bytes]]:
    """(topic, type, log time [ns], CDR) in the order written; ends where a file was cut off."""
    with bag_file(path).open("rb") as file:
        try:
            for schema, channel, message in NonSeekingReader(file).iter_messages(log_time_order=False):
                assert schema is not None
                yield channel.topic, schema.name, message.log_time, message.data
        except (McapError, EOFError, ValueError):
            return


def sensor_messages(path: Path) -> list[tuple[str, str, int, bytes]]:
    """Those of the robot's sensors, by time. UserError for a bag that has none."""
    out = sorted((m for m in raw_messages(path) if m[0] in SENSORS), key=lambda m: m[2])
    if not any(m[0] == "/joint_states" for m in out):
        raise UserError(f"{path} holds no /joint_states; is it a recording of a robot?")
    return out


@dataclass(frozen=True)
class Again:
    """A bag gone through again. commands: compared; different: those that were not the same to the last bit; worst [rad]; flights, flights_different:
    the same for perception; left_out: commands whose report or predecessor is not in the bag."""

    commands: int
    different: int
    worst: float
    flights: int
    flights_different: int
    left_out: int


def replay(path: Path, deploy: Deploy, policy: OnnxPolicy) -> Again:
    """Put a bag's sensors through perception and policy again and compare with what it holds. Reads the log once."""
    store = get_typestore(Stores.ROS2_KILTED)
    by: dict[str, list[tuple[int, Any]]] = {}
    for topic, kind, when, data in raw_messages(path):
        if topic in (*SENSORS, "/shuttle/flight", "/policy/trace", "/policy/command"):
            by.setdefault(topic, []).append((when, store.deserialize_cdr(data, kind)))
    joint_map = deploy.joint_map(policy.contract)
    joints = {_ns(m.header.stamp): m for _, m in by.get("/joint_states", [])}
    odoms = {_ns(m.header.stamp): m for _, m in by.get("/odom", [])}
    imus = {_ns(m.header.stamp): m for _, m in by.get("/imu/data", [])}
    flights = {_join(m.data[:2]): np.asarray(m.data) for _, m in by.get("/shuttle/flight", [])}
    seen = _perceive(by, deploy, odoms)
    differ = sum(1 for ns, data in seen.items() if ns in flights and not np.array_equal(data, flights[ns][4:]))
    commands = {_ns(m.header.stamp): np.asarray(m.position) for _, m in by.get("/policy/command", [])}
    core, epoch = PolicyCore(policy, deploy.court), -1
    count = wrong = lost = 0
    worst, before = 0.0, -1
    for _, message in by.get("/policy/trace", []):
        head = np.asarray(message.data[:9])
        ns, odom_ns, imu_ns, flight_ns = (_join(head[i:i + 2]) for i in (0, 2, 4, 6))
        if ns not in joints or odom_ns not in odoms or imu_ns not in imus or ns not in commands:
            lost += 1
            continue
        new = before < 0 or not 0 < ns - before < 10**9  # the recording begins, or the policy did
        if new:
            core.reset()
            epoch = ns // EPOCH * EPOCH
        known = not new and ns - before < 1.5e9 * policy.contract.period  # else its previous action is not in the bag: take up from here
        before = ns
        j, o, i = joints[ns], odoms[odom_ns], imus[imu_ns]
        order = joint_map.order_of(j.name)
        p, q, v, w = o.pose.pose.position, o.pose.pose.orientation, o.twist.twist.linear, i.angular_velocity
        report = Report(joint_map.position(j.position, order), joint_map.rate(j.velocity, order), np.array([p.x, p.y, p.z]),
                        np.array([q.w, q.x, q.y, q.z]), np.array([v.x, v.y, v.z]), np.array([w.x, w.y, w.z]))
        flight: Flight | None = None
        if flight_ns in flights and flights[flight_ns][4]:
            d = flights[flight_ns]
            flight = core.flight((flight_ns - epoch) * 1e-9, d[6:14], d[14:].reshape(8, 8))
        targets = core.tick((ns - epoch) * 1e-9, report, flight).targets
        if not known:
            lost += 1
            core.previous, core.commander.side = np.asarray(message.data[-len(targets):])[None].copy(), head[8:9].copy()
            continue
        off = float(np.abs(targets - commands[ns]).max())
        count, wrong, worst = count + 1, wrong + (off != 0.0), max(worst, off)
    return Again(count, wrong, worst, len(seen), differ, lost)


def _perceive(by: dict[str, list[tuple[int, Any]]], deploy: Deploy, odoms: dict[int, Any]) -> dict[int, Array]:
    """Flights (valid, birth, state, covariance) by exposure, from a bag's detections."""
    if deploy.camera is None:
        return {}
    core, out, poses = PerceptionCore(deploy.camera), {}, sorted(odoms.items())
    at = 0
    for _, message in by.get("/shuttle/detection", []):
        ns = _ns(message.header.stamp)
        while at < len(poses) and poses[at][0] <= ns:
            p, q = poses[at][1].pose.pose.position, poses[at][1].pose.pose.orientation
            core.base(poses[at][0], np.array([p.x, p.y, p.z]), np.array([q.w, q.x, q.y, q.z]))
            at += 1
        points = np.array([[x.position.x, x.position.y, x.position.z] for x in message.poses]).reshape(-1, 3)
        track = core.detections(ns, points).track
        data = np.zeros(2 + 8 + 64)
        if track is not None:
            data[:2], data[2:10], data[10:] = (1.0, track.born), track.state, track.covariance.ravel()
        out[ns] = data
    return out


def _ns(stamp: Any) -> int:
    return stamp.sec * 10**9 + stamp.nanosec


def _join(two: Any) -> int:
    return int(two[0]) * 10**9 + int(two[1])
