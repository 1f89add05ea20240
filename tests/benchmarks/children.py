"""Work measured in a process of its own: seconds, CPU seconds and peak memory that nothing else can add to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.errors import StrataError

THREADS = 2


@dataclass(frozen=True)
class Measured:
    """Seconds and CPU seconds of the work without imports, peak resident memory [MB] of its whole process."""

    seconds: float
    cpu: float
    peak_mb: float
    said: Any = None


def run(module: str, arguments: Sequence[str]) -> Measured:
    """Run `python -m module arguments...` and measure it; raises StrataError with its last words when it fails."""
    environment = os.environ | {"POLARS_MAX_THREADS": str(THREADS), "OMP_NUM_THREADS": str(THREADS)}
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, text=True)
    if done.returncode:
        raise StrataError(f"{' '.join(command)} ended with {done.returncode}: {done.stdout[-2000:]}")
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def measured(work: Callable[..., Any]) -> None:
    """The child's side: call `work` with the command line's arguments as paths, then print its figures."""
    started, used = time.monotonic(), time.process_time()
    said = work(*map(Path, sys.argv[1:]))
    seconds, cpu = time.monotonic() - started, time.process_time() - used
    print(json.dumps({"seconds": seconds, "cpu": cpu, "peak_mb": _peak_mb(), "said": said}))


def _peak_mb() -> float:
    """Peak resident memory of this program; ru_maxrss would start from that of the process it was started by."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise StrataError("expected VmHWM in /proc/self/status: memory is measured on Linux only")
