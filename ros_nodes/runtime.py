"""How every node is run: own signal handlers, one loop, an end that is told to the robot.

rclpy's own handlers invalidate the context before a stop command can be sent; `EventsExecutor.spin` runs nothing in the wheels that PyPI has,
`spin_once` in a loop does. Watchdogs read the monotonic clock. Time stamps are nanoseconds of the robot's clock.
"""

import contextlib
import ctypes
import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

from perception.errors import UserError
from ros_nodes import topics

try:
    from rclpy.experimental import EventsExecutor
except ImportError:  # before Kilted
    EventsExecutor = None  # type: ignore[assignment, unused-ignore]

OK, WARN, ERROR = DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR
PR_SET_PDEATHSIG = 1
PRIORITY = 20  # of SCHED_FIFO, where allowed; our choice: above all ordinary work, below the kernel's own threads


class Diagnostics:
    """A node's statuses on /diagnostics, once a second. collect gives (name, level, message, values) of each."""

    def __init__(self, node: Node, collect: Callable[[], list[tuple[str, Any, str, dict[str, Any]]]], hardware: str = "") -> None:
        self.node, self.collect, self.hardware = node, collect, hardware
        self.publisher = node.create_publisher(DiagnosticArray, topics.DIAGNOSTICS, topics.EVENTS)
        self.timer = node.create_timer(1.0, self.publish)

    def publish(self) -> None:
        """Send them now."""
        message = DiagnosticArray()
        message.header.stamp = self.node.get_clock().now().to_msg()
        for name, level, text, values in self.collect():
            message.status.append(DiagnosticStatus(
                level=level, name=f"{self.node.get_fully_qualified_name().lstrip('/')}: {name}", message=text, hardware_id=self.hardware,
                values=[KeyValue(key=k, value=f"{v:.6g}" if isinstance(v, float) else str(v)) for k, v in values.items()]))
        self.publisher.publish(message)


def parameter(node: Node, name: str, default: Any) -> Any:
    """A parameter with its default, whose type it must have. UserError otherwise."""
    try:
        value = node.declare_parameter(name, default).value
    except Exception as error:  # rclpy's parameter exceptions share no base class
        raise UserError(f"parameter {name}: {error}") from error
    return value


def priority(wanted: bool) -> str:
    """Real-time scheduling for this process and the threads it begins, where allowed; one line saying what came of it."""
    if not wanted:
        return "ordinary priority"
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
        return f"SCHED_FIFO {PRIORITY}"
    except (OSError, AttributeError) as error:
        return f"ordinary priority: real-time scheduling was refused ({error}); see docs/deploy.md"


@contextlib.contextmanager
def calm() -> Iterator[None]:
    """Ordinary priority for work that takes long, such as compiling: with SCHED_FIFO it would starve the nodes that are already at work."""
    if not hasattr(os, "sched_getscheduler") or os.sched_getscheduler(0) != os.SCHED_FIFO:
        yield
        return
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))


def run(create: Callable[[], Any], argv: Sequence[str] | None = None) -> int:
    """Run one node until SIGINT, SIGTERM, the death of the process that started it, or an exception; returns the exit code.

    The node may have `tick()` and `next_tick` (monotonic [s], absolute), and `finish(why)`, called last, while it can still publish.
    """
    if sys.platform == "linux" and os.environ.get("BIRDIE_PARENT"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if str(os.getppid()) != os.environ["BIRDIE_PARENT"]:
            return 1  # it died in the meantime
    note = priority(os.environ.get("BIRDIE_REALTIME") == "1")  # before rclpy: its threads inherit it
    stopping: list[str] = []

    def stop(number: int, _frame: Any) -> None:
        stopping.append(signal.Signals(number).name)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    rclpy.init(args=list(sys.argv if argv is None else argv), signal_handler_options=SignalHandlerOptions.NO)
    code, node = 0, None
    try:
        node = create()
        node.get_logger().info(f"up, {note}")
        executor = SingleThreadedExecutor() if EventsExecutor is None else EventsExecutor()
        executor.add_node(node)
        gc.collect()
        gc.freeze()  # a collection over everything imported takes 17 ms
        ticks = hasattr(node, "tick")
        while not stopping and not getattr(node, "done", False):
            wait = max(node.next_tick - time.monotonic(), 0.0) if ticks else 0.1
            executor.spin_once(timeout_sec=min(wait, 0.1))
            if ticks and time.monotonic() >= node.next_tick:
                node.tick()
        code = getattr(node, "exit_code", 0)
    except UserError as error:
        print(f"birdie: {error}", file=sys.stderr)
        code = 2
    except Exception:
        traceback.print_exc()
        code = 1
    finally:
        if node is not None and hasattr(node, "finish"):
            try:
                node.finish(stopping[0] if stopping else "exception" if code else "done")
            except Exception:
                traceback.print_exc()
                code = code or 1
        rclpy.try_shutdown()
    return code


def next_deadline(deadline: float, period: float, now: float) -> tuple[float, int]:
    """The next absolute deadline after `deadline`, and how many were missed altogether."""
    missed = max(int((now - deadline) // period), 0)
    return deadline + (missed + 1) * period, missed
