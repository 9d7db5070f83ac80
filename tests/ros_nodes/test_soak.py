"""An hour and more in the simulator: opt in with BIRDIE_SOAK=<seconds>. No growth of memory, file descriptors or latency."""

import os
import time

import numpy as np
import pytest

SECONDS = float(os.environ.get("BIRDIE_SOAK", "0"))


@pytest.mark.skipif(not SECONDS, reason="set BIRDIE_SOAK to the seconds it may take, 3600 for the hour")
def test_an_hour_leaves_no_trace_in_memory_files_or_latency(tmp_path):
    from tests.ros_nodes.robots import Bench

    def kilobytes(pid):
        return int(next(x for x in open(f"/proc/{pid}/status") if x.startswith("VmRSS")).split()[1])

    b = Bench(tmp_path, relay=False, record=True, repeats=100)
    rows = []
    try:
        s = b.session
        b.to("PLAY")
        end, number = time.monotonic() + SECONDS, 0
        while time.monotonic() < end:
            before = len(s.outcomes)
            if s.state != "PLAY":
                b.to("PLAY")
            if s.ask("sim/serve", 5)[0]:
                s.wait_for(lambda before=before: len(s.outcomes) > before or s.state != "PLAY", 12)
            number += 1
            s.spin(1.0)
            rows.append((time.monotonic(), *((kilobytes(p.pid), len(os.listdir(f"/proc/{p.pid}/fd"))) for p in b.stack.processes.values()),
                         s.number("policy: latency state_to_command", "p50_ms")))
            del s.modes[:], s.commands[:]
        names = list(b.stack.processes)
    finally:
        b.close()
    quarter = max(len(rows) // 4, 1)
    for i, name in enumerate(names, 1):
        memory, files = (np.array([r[i][k] for r in rows]) for k in (0, 1))
        early, late = np.median(memory[quarter:2 * quarter]), np.median(memory[-quarter:])
        print(f"{name}: {early / 1024:.0f} MB, {late / 1024:.0f} MB at the end; {files[quarter]} and {files[-1]} files")
        assert late < 1.05 * early + 4096, f"{name} grew from {early} to {late} kB"
        assert files[-1] <= files[quarter] + 2, name
    latency = np.array([r[-1] for r in rows])
    print(f"state to command: {np.nanmedian(latency[quarter:2 * quarter]):.2f} ms, {np.nanmedian(latency[-quarter:]):.2f} ms at the end; {number} serves")
    assert np.nanmedian(latency[-quarter:]) < 1.5 * np.nanmedian(latency[quarter:2 * quarter])
