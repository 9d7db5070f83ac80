"""A recording as a page in the browser: a court to walk around in, a timeline with the hits on it, curves under it.

Served by viser (https://viser.studio). Geometry is MuJoCo's, one mesh per body; poses come from the recording.
"""

import contextlib
import io
import threading
import time
from typing import Any

import mujoco
import numpy as np
import trimesh
import viser
import viser.uplot

from sim.court import HALF_LENGTH, HALF_WIDTH_DOUBLES, HALF_WIDTH_SINGLES, NET_MIDDLE, SHORT_SERVICE
from sim.replay import Poser
from sim.robot import Robot
from sim.rollout_reader import Rollout
from sim.scene import NET_DEPTH, facing_frame

Array = np.ndarray
FPS = 30  # poses sent a second
SPEEDS = ("0.1", "0.25", "0.5", "1", "2")
CURVE = 1500  # points of a curve


def geom_mesh(model: mujoco.MjModel, geom: int) -> trimesh.Trimesh | None:
    """A geom's surface in its body's frame, in its colour; None for planes and what is not to be seen."""
    size, kind = model.geom_size[geom], model.geom_type[geom]
    shapes = mujoco.mjtGeom
    if kind == shapes.mjGEOM_BOX:
        mesh = trimesh.creation.box(2 * size)
    elif kind == shapes.mjGEOM_SPHERE:
        mesh = trimesh.creation.icosphere(2, size[0])
    elif kind == shapes.mjGEOM_CAPSULE:
        mesh = trimesh.creation.capsule(2 * size[1], size[0], count=(12, 12))
    elif kind == shapes.mjGEOM_CYLINDER:
        mesh = trimesh.creation.cylinder(size[0], 2 * size[1], sections=24)
    elif kind == shapes.mjGEOM_ELLIPSOID:
        mesh = trimesh.creation.icosphere(2, 1.0)
        mesh.apply_scale(size)
    elif kind == shapes.mjGEOM_MESH:
        k = model.geom_dataid[geom]
        v, f = model.mesh_vertadr[k], model.mesh_faceadr[k]
        mesh = trimesh.Trimesh(model.mesh_vert[v:v + model.mesh_vertnum[k]], model.mesh_face[f:f + model.mesh_facenum[k]], process=False)
    else:
        return None
    colour = model.mat_rgba[model.geom_matid[geom]] if model.geom_matid[geom] >= 0 else model.geom_rgba[geom]
    if colour[3] == 0 or model.geom_group[geom] > 2:
        return None
    place = np.eye(4)
    turn = np.zeros(9)
    mujoco.mju_quat2Mat(turn, model.geom_quat[geom])
    place[:3, :3], place[:3, 3] = turn.reshape(3, 3), model.geom_pos[geom]
    mesh.apply_transform(place)
    mesh.visual = trimesh.visual.ColorVisuals(mesh, vertex_colors=np.tile((255 * colour).astype(np.uint8), (len(mesh.vertices), 1)))
    return mesh


class WebReplay:
    """The page. robot: whose model is drawn; port: 0 takes a free one. `url` is where it is; it is served until `close`."""

    def __init__(self, rollout: Rollout, robot: Robot, title: str, port: int = 8012, host: str = "127.0.0.1", speed: float = 1.0,
                 play: bool = True) -> None:
        self.rollout, self.robot = rollout, robot
        self.poser = Poser(rollout, robot)
        self.hits = rollout.of("strike")
        self.begin = float(rollout.time[0])
        with contextlib.redirect_stdout(io.StringIO()):  # its banner; the address is ours to say
            self.server = viser.ViserServer(host=host, port=port, label=title, verbose=False)
        self.url = f"http://{host}:{self.server.get_port()}"
        self._lock = threading.Lock()
        self._court()
        self._bodies = self._robot()
        self._markers()
        self._panel(title, speed, play)
        self._alive = True
        self.show(0.0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._alive = False
        self._thread.join(timeout=2)
        with contextlib.redirect_stdout(io.StringIO()):
            self.server.stop()

    def wait(self) -> None:
        """Serve until interrupted."""
        try:
            while True:
                time.sleep(1.0)
        except KeyboardInterrupt:
            self.close()

    # -- scene ------------------------------------------------------------------------------------------------------
    def _court(self) -> None:
        scene = self.server.scene
        scene.set_up_direction("+z")
        scene.add_box("/court/floor", color=(70, 110, 90), dimensions=(2 * HALF_LENGTH + 3, 2 * HALF_WIDTH_DOUBLES + 3, 0.02), position=(0, 0, -0.012))
        lines = []
        for x in (-HALF_LENGTH, -SHORT_SERVICE, SHORT_SERVICE, HALF_LENGTH):
            lines.append(((x, -HALF_WIDTH_DOUBLES, 0), (x, HALF_WIDTH_DOUBLES, 0)))
        for y in (-HALF_WIDTH_DOUBLES, -HALF_WIDTH_SINGLES, HALF_WIDTH_SINGLES, HALF_WIDTH_DOUBLES):
            lines.append(((-HALF_LENGTH, y, 0), (HALF_LENGTH, y, 0)))
        scene.add_line_segments("/court/lines", np.array(lines), (255, 255, 255), thickness=0.04)
        scene.add_box("/court/net", color=(40, 40, 40), opacity=0.45, dimensions=(0.01, 2 * HALF_WIDTH_DOUBLES, NET_DEPTH), position=(0, 0, NET_MIDDLE - NET_DEPTH / 2))
        scene.add_box("/court/tape", color=(250, 250, 250), dimensions=(0.012, 2 * HALF_WIDTH_DOUBLES, 0.06), position=(0, 0, NET_MIDDLE - 0.03))
        self.server.initial_camera.position = (-7.5, -4.5, 2.4)
        self.server.initial_camera.look_at = (-2.5, 0.0, 1.1)

    def _robot(self) -> dict[int, Any]:
        model, bodies = self.poser.model, {}
        for body in range(1, model.nbody):
            geoms = np.flatnonzero(model.geom_bodyid == body)
            meshes = [m for m in (geom_mesh(model, int(g)) for g in geoms) if m is not None]
            if meshes:
                bodies[body] = self.server.scene.add_mesh_trimesh(f"/robot/{model.body(body).name or body}", trimesh.util.concatenate(meshes))  # type: ignore[arg-type]
        return bodies

    def _markers(self) -> None:
        scene = self.server.scene
        self._shuttle = scene.add_icosphere("/shuttle", 0.05, (255, 140, 26))
        self._commanded = scene.add_cylinder("/commanded", 0.1, 0.008, (51, 191, 255), opacity=0.5)
        self._actual = scene.add_cylinder("/racket", 0.1, 0.006, (255, 220, 120), opacity=0.6)
        self._meeting = scene.add_icosphere("/interception", 1.0, (90, 230, 100), opacity=0.35)
        fx_over = np.deg2rad(78.0)
        self._view = scene.add_camera_frustum("/view", fov=float(fx_over), aspect=1.6, scale=0.35, color=(120, 120, 120), visible=False)

    # -- panel ------------------------------------------------------------------------------------------------------
    def _panel(self, title: str, speed: float, play: bool) -> None:
        gui, r = self.server.gui, self.rollout
        seconds = r.seconds
        gui.add_markdown(f"**{title}**\n\n{seconds:.1f} s, {len(self.hits)} swings, {len(r.of('touch'))} touched" + "".join(f"\n\n{n}" for n in (*r.notes, *self.poser.notes)))
        self._clock = gui.add_markdown("")
        self._slider = gui.add_slider("time [s]", 0.0, round(seconds, 2), 0.01, 0.0, marks=tuple(round(float(t - self.begin), 2) for t in self.hits[:200]))
        self._play = gui.add_checkbox("play", play)
        self._speed = gui.add_dropdown("speed", SPEEDS, initial_value=min(SPEEDS, key=lambda s: abs(float(s) - speed)))
        jump = gui.add_button_group("hit", ("previous", "next"))
        step = gui.add_button_group("step", ("back", "on"))
        view = gui.add_checkbox("camera's field of view", False)
        names = [n for n in r.joint_names]
        self._joint = gui.add_dropdown("joint", tuple(names), initial_value=names[-1])
        seconds_axis: Any = {"x": viser.uplot.Scale(time=False)}
        self._curve = gui.add_uplot(self._joint_data(), self._joint_series(), scales=seconds_axis, height=180, aspect=1.6)
        rewards = r.series.get("/rewards")
        if rewards is not None and rewards.names:
            self._term = gui.add_dropdown("reward", rewards.names, initial_value=rewards.names[0])
            self._reward = gui.add_uplot(self._reward_data(), (viser.uplot.Series(label="s"), viser.uplot.Series(label="reward", stroke="green", width=1)),
                                         scales=seconds_axis, height=150, aspect=1.6)
            self._term.on_update(lambda _: setattr(self._reward, "data", self._reward_data()))
        self._slider.on_update(lambda event: self.show(self._slider.value) if event.client is not None else None)
        self._joint.on_update(lambda _: setattr(self._curve, "data", self._joint_data()))
        view.on_update(lambda _: setattr(self._view, "visible", view.value))

        @jump.on_click
        def _(_: Any) -> None:
            self.jump(1 if jump.value == "next" else -1)

        @step.on_click
        def _(_: Any) -> None:
            self._play.value = False  # type: ignore[misc]
            self.move_to(self.now + (0.02 if step.value == "on" else -0.02))

    def _joint_series(self) -> tuple[Any, ...]:
        return (viser.uplot.Series(label="s"), viser.uplot.Series(label="is", stroke="blue", width=1),
                viser.uplot.Series(label="asked for", stroke="orange", width=1))

    def _joint_data(self) -> tuple[Array, ...]:
        r, j = self.rollout, self.rollout.joint_names.index(self._joint.value)
        step = max(1, len(r.time) // CURVE)
        return (r.time - self.begin)[::step].copy(), r.q[::step, j].copy(), np.nan_to_num(r.target[::step, j])

    def _reward_data(self) -> tuple[Array, ...]:
        s = self.rollout.series["/rewards"]
        step = max(1, len(s.time) // CURVE)
        return (s.time - self.begin)[::step].copy(), s.values[::step, s.names.index(self._term.value)].copy()

    # -- time -------------------------------------------------------------------------------------------------------
    def move_to(self, now: float) -> None:
        """Go to so many seconds after the start, slider included."""
        now = float(np.clip(now, 0.0, self.rollout.seconds))
        self._slider.value = round(now, 2)  # type: ignore[misc]
        self.show(now)

    def jump(self, way: int) -> None:
        """To the next hit (1) or the one before (-1), and stop there."""
        self._play.value = False  # type: ignore[misc]
        times = self.hits - self.begin
        others = times[times > self.now + 0.011] if way > 0 else times[times < self.now - 0.011]
        if len(others):
            self.move_to(float(others[0] if way > 0 else others[-1]))

    def show(self, now: float) -> None:
        """Put everything where it was at `now` [s] after the start."""
        with self._lock, self.server.atomic():
            self.now = now
            t = self.begin + now
            self.poser.pose(t)
            data, model, r = self.poser.data, self.poser.model, self.rollout
            for body, handle in self._bodies.items():
                handle.position, handle.wxyz = data.xpos[body].copy(), data.xquat[body].copy()
            i = int(np.clip(np.searchsorted(r.time, t + 1e-9) - 1, 0, len(r.time) - 1))
            trail = self.poser.trail(t)
            self._shuttle.visible = len(trail) > 0
            if len(trail):
                self._shuttle.position = trail[-1]
            self._line("/trail", trail, (255, 160, 60), 0.015)
            path, radius = self.poser.forecast(t)
            self._line("/forecast", path, (90, 230, 100), float(2 * radius.mean()) if len(radius) else 0.02)
            self._disc(self._commanded, r.strike[i])
            self._disc(self._actual, r.racket[i])
            met = r.interception[i]
            self._meeting.visible = bool(np.isfinite(met).all())
            if self._meeting.visible:
                spread = np.sqrt(np.clip(np.diag(met[3:].reshape(3, 3)), 4e-4, 1.0))
                self._meeting.position, self._meeting.scale = met[:3], (float(spread[0]), float(spread[1]), float(spread[2]))
            camera = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, "camera_left")
            if camera >= 0:
                turn = np.zeros(4)
                axes = data.cam_xmat[camera].reshape(3, 3) @ np.diag([1.0, -1.0, -1.0])
                mujoco.mju_mat2Quat(turn, axes.ravel())
                self._view.position, self._view.wxyz = data.cam_xpos[camera].copy(), turn
            passed = int(np.sum(self.hits - self.begin <= now + 1e-6))
            self._clock.content = f"{now:.2f} s, swing {passed} of {len(self.hits)}"

    def _line(self, name: str, path: Array, colour: tuple[int, int, int], thickness: float) -> None:
        if len(path) < 2:
            path = np.full((2, 3), -50.0)
        self.server.scene.add_line_segments(name, np.stack([path[:-1], path[1:]], axis=1).astype(np.float32), colour, thickness=thickness)

    @staticmethod
    def _disc(handle: Any, face: Array) -> None:
        handle.visible = bool(np.isfinite(face).all())
        if handle.visible:
            turn = np.zeros(4)
            mujoco.mju_mat2Quat(turn, facing_frame(face[3:] / np.linalg.norm(face[3:])).ravel())
            handle.position, handle.wxyz = face[:3], turn

    def _run(self) -> None:
        last = time.monotonic()
        while self._alive:
            time.sleep(1 / FPS)
            here = time.monotonic()
            if self._play.value and self.server.get_clients():
                now = self.now + (here - last) * float(self._speed.value)
                self.move_to(0.0 if now > self.rollout.seconds else now)
            last = here
