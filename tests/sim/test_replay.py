"""Replay: cut, swings, foreign bags, films, reports, the simulator driven with recorded commands, and the page in a browser."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rosbags.rosbag2 import StoragePlugin
from rosbags.rosbag2 import Writer as BagWriter
from rosbags.typesys import Stores, get_typestore

from perception.errors import UserError
from policy.inference import OnnxPolicy
from policy.play import PlayCfg, play
from policy.recorder import TaskRecorder
from sim.replay import Poser, VideoCfg, frame_times
from sim.resim import resimulate
from sim.robot import load_robot
from sim.rollout_reader import describe, read_rollout
from sim.rollout_report import write_report

ROOT = Path(__file__).parent.parent.parent
CHROMIUM = next((p for p in ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome") if os.path.exists(p)), None)


@pytest.fixture(scope="module")
def robot():
    return load_robot("anymal_dynaarm")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Seven seconds and more of play, one robot, several swings."""
    target = tmp_path_factory.mktemp("play") / "rollout.mcap"
    recorder = TaskRecorder(target, {"robot": "anymal_dynaarm", "seed": 5})
    play(OnnxPolicy(), PlayCfg(repeats=1, robots=10, seed=5), watch=recorder)
    recorder.close()
    return target


@pytest.fixture(scope="module")
def rollout(path):
    return read_rollout(path)


def birdie(*args):
    return subprocess.run([sys.executable, str(ROOT / "birdie.py"), *map(str, args)], capture_output=True, text=True, cwd=ROOT)


def test_a_recording_of_play_holds_all_that_simulation_knows(rollout):
    topics = set(rollout.series)
    assert {"/joint_states", "/joint_targets", "/odom", "/imu/data", "/feet", "/arm/supply", "/racket/pose", "/shuttle/odom", "/strike/pose",
            "/strike/twist", "/rewards"} <= topics
    assert len(rollout.of("strike")) >= 2 and np.isfinite(rollout.target).all() and np.isfinite(rollout.base).all()
    standing = rollout.series["/imu/data"].values[:, 5]
    assert np.median(standing) == pytest.approx(9.81, abs=0.5)
    rewards = rollout.series["/rewards"]
    assert {"strike_position", "torque"} <= set(rewards.names) and rewards.values[:, rewards.names.index("strike_position")].max() > 2
    facts = describe(rollout)
    assert facts["complete"] and facts["events"]["strike"] == len(rollout.of("strike"))


def test_cut_to_times_and_to_a_swing(rollout):
    part = rollout.cut(1.0, 2.0)
    assert part.seconds == pytest.approx(1.0, abs=0.03) and len(part.q) == len(part.time) == len(part.base)
    swing = rollout.swing(2)
    t = rollout.of("strike")[1]
    assert swing.time[0] <= t <= swing.time[-1] and t in swing.of("strike")
    with pytest.raises(UserError, match=f"no swing 99; the recording holds {len(rollout.of('strike'))}"):
        rollout.swing(99)
    with pytest.raises(UserError, match="nothing is left"):
        rollout.cut(500.0, None)


def test_frames_are_closer_around_hits_and_speed_stretches_the_rest(rollout):
    times = frame_times(rollout, VideoCfg(fps=30))
    near = np.min(np.abs(times[:, None] - rollout.of("strike")), axis=1) < 0.1
    gaps = np.diff(times)
    assert np.median(gaps[near[:-1]]) == pytest.approx(0.25 / 30) and np.median(gaps[~near[:-1]]) == pytest.approx(1 / 30)
    assert len(frame_times(rollout, VideoCfg(fps=30, speed=2.0))) < 0.7 * len(times)


def test_recorded_commands_in_the_simulator_give_the_recorded_motion(rollout, robot):
    found = resimulate(rollout.cut(0.0, 6.0), robot).figures()["horizons"]
    assert found["0.1"]["all_joints_rad"] < 0.03 and found["1"]["base_m"] < 0.05
    assert set(found["0.5"]["joints_rad"]) == set(robot.joint_names)


def test_a_weaker_robot_parts_from_the_recording(rollout, robot):
    from dataclasses import replace

    part = rollout.cut(0.0, 4.0)
    lagging = replace(part, target=np.vstack([np.repeat(part.target[:1], 3, axis=0), part.target[:-3]]))
    same, late = (resimulate(r, robot).figures()["horizons"]["0.5"]["all_joints_rad"] for r in (part, lagging))
    assert late > 2 * same


def test_resim_says_what_is_missing(rollout, robot):
    from dataclasses import replace

    with pytest.raises(UserError, match="no /joint_targets"):
        resimulate(replace(rollout, target=np.full_like(rollout.q, np.nan)), robot)
    with pytest.raises(UserError, match="lacks joints of anymal_dynaarm: LF_HAA"):
        resimulate(replace(rollout, joint_names=("x", *rollout.joint_names[1:])), robot)


def test_report_is_one_small_file_with_nothing_to_fetch(rollout, robot):
    page = write_report(rollout, robot, "a <recording>", resimulate(rollout.cut(0.0, 4.0), robot))
    assert len(page) < 5e6 and page.count("data:image/png;base64,") >= 4
    assert "http" not in page.replace("data:image", "") and "a &lt;recording&gt;" in page
    assert page.count("<tr>") > len(rollout.of("strike"))


@pytest.fixture(params=[StoragePlugin.SQLITE3, StoragePlugin.MCAP], ids=["sqlite3", "mcap"])
def foreign(request, tmp_path, robot):
    """A bag of another system: its own joint order, one joint that is not ours, no /joint_targets; /odom at half the rate."""
    types = get_typestore(Stores.ROS2_JAZZY)
    t = types.types
    folder = tmp_path / "bag"
    names = [*reversed(robot.joint_names), "GRIPPER"]
    with BagWriter(folder, version=9, storage_plugin=request.param) as bag:
        joints = bag.add_connection("/joint_states", "sensor_msgs/msg/JointState", typestore=types)
        odom = bag.add_connection("/odom", "nav_msgs/msg/Odometry", typestore=types)
        for k in range(50):
            ns = 10**18 + k * 10**7
            header = t["std_msgs/msg/Header"](t["builtin_interfaces/msg/Time"](ns // 10**9, ns % 10**9), "")
            message = t["sensor_msgs/msg/JointState"](header, names, np.full(len(names), 0.01 * k), np.zeros(0), np.zeros(0))
            bag.write(joints, ns, types.serialize_cdr(message, "sensor_msgs/msg/JointState"))
            if k % 2 == 0:
                pose = t["geometry_msgs/msg/Pose"](t["geometry_msgs/msg/Point"](0.1 * k, 0.0, 0.6), t["geometry_msgs/msg/Quaternion"](0.0, 0.0, 0.0, 1.0))
                twist = t["geometry_msgs/msg/Twist"](t["geometry_msgs/msg/Vector3"](0.0, 0.0, 0.0), t["geometry_msgs/msg/Vector3"](0.0, 0.0, 0.0))
                message = t["nav_msgs/msg/Odometry"](header, "base", t["geometry_msgs/msg/PoseWithCovariance"](pose, np.zeros(36)),
                                                     t["geometry_msgs/msg/TwistWithCovariance"](twist, np.zeros(36)))
                bag.write(odom, ns, types.serialize_cdr(message, "nav_msgs/msg/Odometry"))
    return folder


def test_bags_of_others_replay_and_unknown_joints_are_named(foreign, robot):
    r = read_rollout(foreign)
    assert r.seconds == pytest.approx(0.49, abs=1e-3) and r.complete and r.base[21, 0] == pytest.approx(2.0)
    poser = Poser(r, robot)
    assert poser.notes == ["not joints of anymal_dynaarm, left out: GRIPPER"]
    poser.pose(r.time[30])
    assert poser.data.qpos[poser.model.joint("LF_KFE").qposadr[0]] == pytest.approx(0.3)
    single = next(p for p in foreign.iterdir() if p.suffix in (".db3", ".mcap"))
    assert len(read_rollout(single).time) == 50


def test_another_robots_joints_are_refused_in_one_line(rollout, robot):
    from dataclasses import replace

    with pytest.raises(UserError, match="no joint of robot anymal_dynaarm: it has a0"):
        Poser(replace(rollout, joint_names=tuple(f"a{n}" for n in range(18))), robot)


def test_without_a_base_the_robot_stands_at_home_and_it_is_said(tmp_path, robot):
    from sim.recording import RolloutWriter

    with RolloutWriter(tmp_path / "j.mcap", {}) as w:
        for k in range(20):
            w.joints(0.01 * k, "/joint_states", robot.joint_names, robot.default_pose)
    r = read_rollout(tmp_path / "j.mcap")
    assert any("standing at its home" in note for note in r.notes)
    poser = Poser(r, robot)
    poser.pose(0.1)
    assert poser.data.qpos[2] == pytest.approx(robot.standing_height)


@pytest.mark.parametrize(("name", "content", "said"), [
    ("empty.mcap", b"", "is empty"), ("text.mcap", b"not a recording", "no readable recording"), ("bag.db3", b"SQLite format 3\x00 broken", "no readable recording")])
def test_bad_files_get_one_line_and_nothing_is_written(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    out = birdie("replay", tmp_path / name, "--report", tmp_path / "r.html")
    assert out.returncode == 2 and said in out.stderr and len(out.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "r.html").exists()


def test_a_cut_file_is_shown_up_to_the_cut_and_says_so(path, tmp_path):
    whole = path.read_bytes()
    cut = tmp_path / "cut.mcap"
    cut.write_bytes(whole[: len(whole) * 2 // 3])
    out = birdie("replay", cut, "--report", tmp_path / "r.html")
    assert out.returncode == 0, out.stderr
    assert "was cut off; showing the" in out.stdout and (tmp_path / "r.html").exists()


def test_a_killed_writer_loses_less_than_a_second(tmp_path):
    code = f"""
import os, sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
import numpy as np
from sim.recording import RolloutWriter
w = RolloutWriter(Path({str(tmp_path)!r}) / "k.mcap", {{"robot": "x"}})
for k in range(500):
    w.joints(0.02 * (k + 1), "/joint_states", ("a",), np.array([float(k)]))
os._exit(9)
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    r = read_rollout(tmp_path / "k.mcap")
    assert not r.complete and r.metadata == {"robot": "x"} and r.time[-1] > 9.0


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt install chromium")
def test_the_page_loads_scrubs_and_jumps_to_a_hit(rollout, robot, tmp_path):
    sync = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    from sim.web_replay import WebReplay

    page_server = WebReplay(rollout, robot, "a rally", port=0, play=False)
    try:
        with sync.sync_playwright() as p:
            browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"])
            page = browser.new_page(viewport={"width": 1280, "height": 760})
            page.goto(page_server.url)
            page.get_by_text(f"{len(rollout.of('strike'))} swings").first.wait_for(timeout=30000)
            page.get_by_text("of").first.wait_for()
            page.get_by_role("button", name="next").click()
            first = rollout.of("strike")[0] - rollout.time[0]
            page.get_by_text(f"{first:.2f} s, swing 1 of").wait_for(timeout=15000)
            box = page.locator("input[type=text], input[inputmode=decimal]").first
            box.fill("2.5")
            box.press("Enter")
            page.get_by_text("2.50 s, swing").wait_for(timeout=15000)
            shot = tmp_path / "page.png"
            page.screenshot(path=str(shot))
            browser.close()
    finally:
        page_server.close()
    import cv2

    image = cv2.imread(str(shot))
    assert image.shape[:2] == (760, 1280) and image[:, :900].std() > 15  # a court with a robot, not an empty page


def test_film_of_two_recordings_side_by_side(path, tmp_path):
    target = tmp_path / "two.mp4"
    out = birdie("replay", path, "--compare", path, "--video", target, "--height", 180, "--to", 0.5)
    if "headless OpenGL is missing" in out.stderr:
        pytest.skip("no headless OpenGL")
    assert out.returncode == 0, out.stderr
    import cv2

    film = cv2.VideoCapture(str(target))
    ok, frame = film.read()
    assert ok and frame.shape == (180, 320, 3) and film.get(cv2.CAP_PROP_FRAME_COUNT) >= 14
    left, right = frame[:, :160].astype(int), frame[:, 160:].astype(int)
    assert np.abs(left - right).mean() < 6  # the same recording twice
