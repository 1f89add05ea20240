"""A lease on one artifact key: one writer at a time, and a dead writer's work goes on under a higher number.

The lease file holds owner, heartbeat and fencing number. On one host a dead owner is known by its process id
and start time, so a killed run can be continued at once; across hosts by a heartbeat older than `TTL_S`.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from data.errors import SystemStateError

TTL_S = 60.0
HEARTBEAT_S = 10.0


@dataclass(frozen=True)
class Lease:
    """Who writes a key. `fence` grows by one with every new owner; `started` is the owner's start tick."""

    host: str
    pid: int
    started: str
    fence: int
    heartbeat: float

    def alive(self) -> bool:
        """Whether the owner still works: its process on this host, a fresh heartbeat on another."""
        if self.host == socket.gethostname():
            return _start_tick(self.pid) == self.started
        return time.time() - self.heartbeat < TTL_S


def _start_tick(pid: int) -> str:
    """Start time of process `pid` in kernel ticks, '' when it is gone or a zombie; tells a reused pid apart."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def read_lease(folder: Path) -> Lease | None:
    """The lease written in `folder`, or None when there is none or it was torn by a crash."""
    try:
        return Lease(**json.loads((folder / "lease.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _write(folder: Path, lease: Lease) -> None:
    draft = folder / f"lease.{lease.pid}.{threading.get_ident()}.tmp"
    draft.write_text(json.dumps(asdict(lease)))
    os.replace(draft, folder / "lease.json")


@contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    with open(folder / "lease.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def hold(folder: Path, what: str) -> Iterator[Lease]:
    """Hold the lease of `folder` (made if absent) for `what`.

    Raises SystemStateError when a living owner holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _exclusive(folder):
        before = read_lease(folder)
        if before is not None and before.alive():
            raise SystemStateError(
                f"{what} is being written by process {before.pid} on {before.host} (fence {before.fence}).\n"
                "Wait for that run to end, or stop it and start this command again: its finished work is kept."
            )
        fence = before.fence + 1 if before else 1
        mine = Lease(socket.gethostname(), os.getpid(), _start_tick(os.getpid()), fence, time.time())
        _write(folder, mine)
    stop = threading.Event()
    beat = threading.Thread(target=_beat, args=(folder, mine, stop), daemon=True)
    beat.start()
    try:
        yield mine
    finally:
        stop.set()
        beat.join()
        with _exclusive(folder):
            current = read_lease(folder)
            if current is not None and current.fence == mine.fence:
                # The file stays so that fencing numbers keep growing; a dead start tick marks it free.
                _write(folder, Lease(mine.host, mine.pid, "released", mine.fence, mine.heartbeat))


def _beat(folder: Path, mine: Lease, stop: threading.Event) -> None:
    while not stop.wait(HEARTBEAT_S):
        with _exclusive(folder):
            current = read_lease(folder)
            if current is None or current.fence != mine.fence:
                return
            _write(folder, Lease(mine.host, mine.pid, mine.started, mine.fence, time.time()))


def check_fence(folder: Path, mine: Lease) -> None:
    """Raise SystemStateError unless `mine` is still the newest lease of `folder`; called just before publishing."""
    current = read_lease(folder)
    if current is None or current.fence != mine.fence:
        newer = "none" if current is None else f"fence {current.fence}, process {current.pid} on {current.host}"
        raise SystemStateError(f"expected to hold fence {mine.fence} of {folder}, found {newer}: nothing was published")
