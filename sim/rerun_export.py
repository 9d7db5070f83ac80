"""A recording for the Rerun viewer (https://rerun.io): the robot's bodies, the shuttle, the strike, and curves of all joints."""

from pathlib import Path

import numpy as np
import rerun as rr

from sim.replay import Poser
from sim.robot import Robot
from sim.rollout_reader import Rollout
from sim.web_replay import geom_mesh

RATE = 50.0  # poses a second: what the control loop makes


def write_rerun(rollout: Rollout, robot: Robot, path: Path, title: str) -> int:
    """Write an .rrd file; returns the number of poses in it."""
    import trimesh

    poser = Poser(rollout, robot)
    model = poser.model
    recording = rr.RecordingStream("birdie", recording_id=title)
    recording.save(path)
    recording.log("court", rr.ViewCoordinates.RIGHT_HAND_Z_UP, static=True)
    names = {}
    for body in range(1, model.nbody):
        meshes = [m for m in (geom_mesh(model, int(g)) for g in np.flatnonzero(model.geom_bodyid == body)) if m is not None]
        if meshes:
            mesh: trimesh.Trimesh = trimesh.util.concatenate(meshes)  # type: ignore[assignment]
            names[body] = f"court/{robot.name}/{model.body(body).name or body}"
            recording.log(names[body], rr.Mesh3D(vertex_positions=mesh.vertices, triangle_indices=mesh.faces, vertex_normals=mesh.vertex_normals,
                                                 vertex_colors=mesh.visual.vertex_colors), static=True)  # type: ignore[union-attr]
    times = np.arange(rollout.time[0], rollout.time[-1], 1 / RATE)
    place, turn = {b: np.empty((len(times), 3)) for b in names}, {b: np.empty((len(times), 4)) for b in names}
    for k, t in enumerate(times):
        poser.pose(t)
        for body in names:
            place[body][k], turn[body][k] = poser.data.xpos[body], poser.data.xquat[body][[1, 2, 3, 0]]
    clock = [rr.TimeColumn("time", duration=times - rollout.time[0])]
    for body, name in names.items():
        recording.send_columns(name, clock, rr.Transform3D.columns(translation=place[body], quaternion=turn[body]))
    own = [rr.TimeColumn("time", duration=rollout.time - rollout.time[0])]
    flying = np.isfinite(rollout.shuttle[:, 0])
    if flying.any():
        seen = [rr.TimeColumn("time", duration=(rollout.time - rollout.time[0])[flying])]
        recording.log("court/shuttle", rr.Points3D.from_fields(colors=[255, 140, 26], radii=0.05), static=True)
        recording.send_columns("court/shuttle", seen, rr.Points3D.columns(positions=rollout.shuttle[flying]))
    for j, name in enumerate(rollout.joint_names):
        for what, values in (("angle", rollout.q), ("asked_for", rollout.target)):
            if np.isfinite(values[:, j]).any():
                recording.send_columns(f"joints/{name}/{what}", own, rr.Scalars.columns(scalars=values[:, j]))
    recording.flush()
    return len(times)
