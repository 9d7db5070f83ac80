"""Which OpenGL can this machine do? Decided before MuJoCo is imported, since MuJoCo reads the choice at import."""

import os
import subprocess
import sys
from dataclasses import dataclass

INSTALL_HINT = "no video: headless OpenGL is missing; install it with: apt install libegl1 libgl1-mesa-dri (or libosmesa6)"
_PROBE = """
import mujoco
model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")
mujoco.Renderer(model, 16, 16).render()
"""


@dataclass(frozen=True)
class Display:
    """backend: egl, osmesa or None; note: one line saying what was chosen and why."""

    backend: str | None
    note: str


def has_window_system() -> bool:
    """Whether a window could open: always on macOS and Windows, on Linux where a display server is named."""
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def choose_offscreen() -> Display:
    """Try EGL, then OSMesa, each in a process of its own, and set MUJOCO_GL for this one. A set MUJOCO_GL is respected."""
    preset = os.environ.get("MUJOCO_GL")
    for backend in [preset] if preset else ["egl", "osmesa"]:
        trial = subprocess.run([sys.executable, "-c", _PROBE], env={**os.environ, "MUJOCO_GL": backend}, capture_output=True)
        if trial.returncode == 0:
            os.environ["MUJOCO_GL"] = backend
            os.environ.setdefault("PYOPENGL_PLATFORM", backend)
            return Display(backend, f"rendering off screen with {backend}")
    os.environ["MUJOCO_GL"] = "disable"
    return Display(None, INSTALL_HINT)
