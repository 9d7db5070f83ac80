"""What the policy node sees and does is what training saw and did; and a bag, gone through again, gives the same to the last bit."""

import json
import subprocess
import sys
import time

import numpy as np
import yaml

from tests.ros_nodes.robots import ROOT, Bench

from nav_msgs.msg import Odometry  # isort: skip
from sensor_msgs.msg import Imu, JointState  # isort: skip
from std_msgs.msg import Float64MultiArray  # isort: skip

from policy.inference import OnnxPolicy  # isort: skip
from policy.swings import ShotPool, SwingRange, draw_swings  # isort: skip
from policy.task import BadmintonTask, TaskCfg  # isort: skip
from ros_nodes import topics  # isort: skip
from ros_nodes.bag import replay  # isort: skip
from ros_nodes.bringup import NodeSpec, Stack, random_domain  # isort: skip
from ros_nodes.conversions import imu, joint_state, odometry  # isort: skip
from ros_nodes.deploy import load_deploy, rotation  # isort: skip
from sim.recording import facing  # isort: skip
from ros_nodes.session import Session  # isort: skip

STEPS = 250  # 5 s: three swings with the waits between them
JOINTS = [{"policy": "LF_HAA", "robot": "left_front_hip", "sign": -1}, {"policy": "SH_ROT", "sign": -1, "offset": 0.3}, {"policy": "WRIST_2", "robot": "hand"}]
HOME = np.array([-4.0, 0.0, 0.0])
BEGIN = 10 * 10**9


def episode(robot):
    """What the training environment saw and did, step by step."""
    policy = OnnxPolicy()
    rng = np.random.default_rng(4)
    pool = ShotPool(rng, robot.scale, 64)
    span = SwingRange.box(robot.scale)
    span = SwingRange(span.x, span.y, span.height, span.speed, time=(50, 70), wait_share=0.7)
    task = BadmintonTask(robot, 1, lambda ids: draw_swings(rng, len(ids), span, pool), seed=3, cfg=TaskCfg(swings=10**6))
    observation = task.reset()
    rows = []
    for _ in range(STEPS):
        s, c = task.robot_state(), task.command()
        seen = observation[:, :task.actor_size]
        action = np.clip(task._mirror_action.where(policy(seen), task.side), -6, 6)
        rows.append({"q": s.q[0].copy(), "qd": s.qd[0].copy(), "base": task.physics.qpos[0, :7].copy(), "v": s.velocity[0].copy(), "w": s.angular_velocity[0].copy(),
                     "active": bool(c.active[0]), "position": c.position[0].copy(), "normal": c.normal[0].copy(), "velocity": c.velocity[0].copy(),
                     "steps": int(task.countdown[0]), "observation": seen[0].copy(), "action": action[0].copy(), "side": float(task.side[0])})
        observation = task.step(policy(seen)).observation
    assert sum(r["active"] for r in rows) > 60 and not all(r["active"] for r in rows) and {r["side"] for r in rows} == {1.0, -1.0}
    return rows, policy


def test_the_node_sees_and_does_what_training_did_whatever_the_robot_calls_its_joints(robot, tmp_path):
    rows, policy = episode(robot)
    deploy_path = tmp_path / "deploy.yaml"
    deploy_path.write_text(yaml.safe_dump({"robot": "anymal_dynaarm", "joints": JOINTS}))
    joints = load_deploy(deploy_path).joint_map(policy.contract)
    order = np.random.default_rng(2).permutation(len(joints.robot_names))
    assert not np.array_equal(order, np.arange(len(order))) and (joints.sign < 0).sum() == 2 and np.count_nonzero(joints.offset) == 1
    names = [joints.robot_names[i] for i in order]
    stack = Stack(tmp_path / "logs", random_domain(), {"deploy": str(deploy_path)})
    stack.start("policy", NodeSpec("policy_node", {"lock_step": True, "command_source": "strike"}))
    stack.adopt_environment()
    commands, traces = {}, {}
    try:
        with Session() as s:
            n = s.node
            n.create_subscription(JointState, topics.COMMAND, lambda m: commands.__setitem__(m.header.stamp.sec * 10**9 + m.header.stamp.nanosec, m), topics.COMMANDS)
            n.create_subscription(Float64MultiArray, topics.TRACE_TOPIC, lambda m: traces.__setitem__(int(m.data[0]) * 10**9 + int(m.data[1]), np.array(m.data)), topics.EVENTS)
            out = {"joints": n.create_publisher(JointState, topics.JOINTS, topics.SENSOR_OUT), "imu": n.create_publisher(Imu, topics.IMU, topics.SENSOR_OUT),
                   "odom": n.create_publisher(Odometry, topics.ODOM, topics.SENSOR_OUT), "strike": n.create_publisher(Odometry, topics.STRIKE, topics.FLIGHTS)}

            def say(k, r):
                ns = BEGIN + k * 20_000_000
                out["odom"].publish(odometry(ns, "odom", "base_link", r["base"][:3], r["base"][3:], rotation(r["base"][3:]).T @ r["v"], r["w"]))
                out["imu"].publish(imu(ns, r["base"][3:], r["w"]))
                out["joints"].publish(joint_state(ns, names, joints.to_robot(r["q"])[order], joints.rate_to_robot(r["qd"])[order]))
                return ns

            assert s.wait_for(lambda: all(p.get_subscription_count() for p in out.values()), 20), stack.log("policy")
            until = time.monotonic() + 20
            while not any("active" == text for _, text, _ in [s.status.get("policy: state", (0, "", {}))]) and time.monotonic() < until:
                out["joints"].publish(joint_state(1, names, joints.to_robot(rows[0]["q"])[order], joints.rate_to_robot(rows[0]["qd"])[order]))  # it waits for joints
                s.spin(0.1)
            asked = None
            for k, r in enumerate(rows):
                strike = (r["position"].tobytes(), k + r["steps"])
                if r["active"] and strike != asked:
                    asked = strike
                    q = facing(r["normal"])
                    out["strike"].publish(odometry(BEGIN + (k + r["steps"]) * 20_000_000, "odom", "racket_target", r["position"] + HOME, q,
                                                   rotation(q).T @ r["velocity"], np.zeros(3)))
                    s.spin(0.05)
                ns = say(k, r)
                assert s.wait_for(lambda ns=ns: ns in commands and ns in traces, 2.0), (k, stack.log("policy"))
    finally:
        codes = stack.stop()
    assert codes == {"policy": 0}
    size = len(rows[0]["observation"])
    for k, r in enumerate(rows):
        ns = BEGIN + k * 20_000_000
        head, observation, action = traces[ns][:topics.TRACE_HEAD], traces[ns][topics.TRACE_HEAD:-len(order)], traces[ns][-len(order):]
        assert len(observation) == size
        assert np.abs(observation - r["observation"]).max() <= 1e-6, f"step {k}, observation {int(np.argmax(np.abs(observation - r['observation'])))}"
        assert np.abs(action - r["action"]).max() <= 1e-6, f"step {k}"
        assert head[8] == r["side"] or not r["active"]
        targets = dict(zip(commands[ns].name, commands[ns].position, strict=True))
        assert np.abs([targets[j] for j in policy.contract.joint_names] - policy.contract.joint_targets(r["action"][None])[0]).max() <= 1e-6


def test_a_bag_gone_through_again_gives_the_same_commands_and_birdie_replay_opens_it(tmp_path):
    b = Bench(tmp_path / "robot", relay=False, record=True)
    try:
        s = b.session
        b.to("PLAY")
        for _ in range(2):
            before = len(s.outcomes)
            assert s.ask("sim/serve", 5)[0]
            assert s.wait_for(lambda before=before: len(s.outcomes) > before, 12)
        s.spin(0.3)
        assert s.state == "PLAY", s.safety
        commanded = [o["commanded"] for o in s.outcomes]
    finally:
        codes = b.close()
    assert set(codes.values()) == {0}, codes
    assert any(commanded)
    bag = tmp_path / "robot" / "bag"
    result = replay(bag, load_deploy(b.folder / "deploy.yaml"), OnnxPolicy())
    assert result.commands > 300 and result.different == 0, result
    assert result.flights > 300 and result.flights_different == 0, result
    assert result.left_out < 0.05 * result.commands, result
    out = subprocess.run([sys.executable, str(ROOT / "birdie.py"), "ros", "again", "--bag", str(bag), "--deploy", str(b.folder / "deploy.yaml"), "--json",
                          str(tmp_path / "again.json")], capture_output=True, text=True, cwd=ROOT)
    assert out.returncode == 0, out.stderr
    assert json.loads((tmp_path / "again.json").read_text())["different"] == 0
    from rosbags.highlevel import AnyReader

    with AnyReader([bag]) as reader:
        assert {"/joint_states", "/odom", "/imu/data", "/policy/command", "/joint_command", "/shuttle/flight", "/safety/state"} <= {c.topic for c in reader.connections}
    from sim.rollout_reader import read_rollout  # what birdie replay reads with

    rollout = read_rollout(bag)
    assert rollout.q.shape[1] == 18 and len(rollout.time) > 1000 and rollout.complete
    dry = subprocess.run([sys.executable, str(ROOT / "birdie.py"), "up", "--robot", "dry", "--bag", str(bag), "--seconds", "7", "--out", str(tmp_path / "dry"),
                          "--json", str(tmp_path / "dry.json")], capture_output=True, text=True, cwd=tmp_path)
    assert dry.returncode == 0, dry.stdout + dry.stderr
    figures = json.loads((tmp_path / "dry.json").read_text())
    assert figures["policy_ticks"] > 50 and set(figures["exit_codes"].values()) == {0}
    with AnyReader([tmp_path / "dry" / "bag"]) as reader:
        recorded = {c.topic: c.msgcount for c in reader.connections}
    assert recorded.get("/policy/command", 0) > 50 and "/joint_command" not in recorded, "a dry run has no publisher to the drives"
