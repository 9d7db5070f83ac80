"""Recordings: round trip, cut-off files, files that are something else."""

import json

import numpy as np
import pytest
from mcap.reader import make_reader

from perception.errors import UserError
from sim.recording import RolloutWriter, facing
from sim.rollout_reader import read_rollout


def write(path, steps=200):
    names = ("a", "b")
    with RolloutWriter(path, {"robot": "test", "seed": 3}) as w:
        for i in range(steps):
            t = 0.02 * (i + 1)
            w.joints(t, "/joint_states", names, np.array([i, -i]), np.zeros(2), np.ones(2))
            w.odometry(t, "/odom", "base", np.array([i * 0.01, 0, 0.6]), np.array([1.0, 0, 0, 0]), np.zeros(3), np.zeros(3))
            if i >= 50:
                w.odometry(t, "/shuttle/odom", "shuttle", np.array([1.0, 2, 3]), np.array([1.0, 0, 0, 0]), np.zeros(3), np.zeros(3))
                w.pose(t, "/strike/pose", np.array([0.0, 1, 2]), np.array([0.6, 0, 0.8]))
        w.event(1.0, event="strike", position_error_m=0.01)
    return path


def test_round_trip(tmp_path):
    r = read_rollout(write(tmp_path / "r.mcap"))
    assert r.complete and r.metadata == {"robot": "test", "seed": 3}
    assert r.joint_names == ("a", "b") and r.q.shape == (200, 2) and r.q[7, 1] == -7
    assert np.isnan(r.shuttle[:50]).all() and (r.shuttle[50:] == [1, 2, 3]).all()
    np.testing.assert_allclose(r.strike[60], [0, 1, 2, 0.6, 0, 0.8], atol=1e-12)
    assert r.events == [(1.0, {"event": "strike", "position_error_m": 0.01})]


def test_file_is_plain_ros2_mcap(tmp_path):
    with write(tmp_path / "r.mcap").open("rb") as file:
        reader = make_reader(file)
        assert reader.get_header().profile == "ros2"
        summary = reader.get_summary()
        topics = {(c.topic, summary.schemas[c.schema_id].name, c.message_encoding) for c in summary.channels.values()}
        assert topics >= {("/joint_states", "sensor_msgs/msg/JointState", "cdr"), ("/odom", "nav_msgs/msg/Odometry", "cdr")}


def test_cut_file_is_read_up_to_the_cut(tmp_path):
    whole = write(tmp_path / "r.mcap", steps=2000)
    cut = tmp_path / "cut.mcap"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    r = read_rollout(cut)
    assert not r.complete
    assert 100 < len(r.time) < 2000
    np.testing.assert_array_equal(r.q[:, 0], np.arange(len(r.time)))


@pytest.mark.parametrize("content", [b"", b"not a recording at all, only text", b"\x89MCAP0\r\n"])
def test_something_else_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "x.mcap"
    path.write_bytes(content)
    with pytest.raises(UserError) as error:
        read_rollout(path)
    assert "x.mcap" in str(error.value) and "\n" not in str(error.value)


def test_missing_file_says_where_recordings_come_from(tmp_path):
    with pytest.raises(UserError, match="birdie play"):
        read_rollout(tmp_path / "none.mcap")


def test_facing_turns_x_onto_the_normal(rng):
    for n in [*rng.normal(size=(20, 3)), np.array([-1.0, 0, 0])]:
        n = n / np.linalg.norm(n)
        w, x, y, z = facing(n)
        got = [1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y)]
        np.testing.assert_allclose(got, n, atol=1e-9)


def test_metadata_is_json(tmp_path):
    path = tmp_path / "m.mcap"
    with RolloutWriter(path, {"a": [1, 2]}) as w:
        w.joints(0.0, "/joint_states", ("a",), np.zeros(1))
        w.odometry(0.0, "/odom", "base", np.zeros(3), np.array([1.0, 0, 0, 0]), np.zeros(3), np.zeros(3))
    assert json.dumps(read_rollout(path).metadata) == '{"a": [1, 2]}'
