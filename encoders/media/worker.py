"""One decoding process at a time, watched from outside: replaced when it hangs or dies, and the run goes on."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np

from data.errors import SystemStateError
from encoders.media import wire
from encoders.media.caps import Caps
from encoders.media.reasons import Reason, Refused
from encoders.media.sniff import Kind
from encoders.pixels import Geometry, Pixels

PROGRAM = "encoders.media.child"
_START_SECONDS = 120.0
_FILES_A_PROCESS = 1000
"""Then a new one takes over, so that leaks of the decoders stay small."""

_INHERITED = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LANG", "LC_ALL")
"""All of the environment that a decoding process needs; what else stands there is none of a stranger's business."""

_OWN_DOING = (Reason.CRASHED, Reason.MEMORY)
"""Outcomes that an earlier file may have caused; a file gets them from a new process only."""


class Worker:
    """Decodes files one by one in a process of its own. Not for use by two threads at once."""

    def __init__(self, geometry: Geometry, caps: Caps) -> None:
        self._geometry, self._caps = geometry, caps
        self._process: _Process | None = None

    def decode(self, data: bytes, kind: Kind, frames: int) -> Pixels:
        """Pixels uint8 (F, size, size, 3) of the file `data`; raises Refused, or SystemStateError when no decoding
        process can be started."""
        process = self._ready(kind)
        is_new = process.files == 0
        try:
            return process.decode(data, kind, frames)
        except Refused as refused:
            if is_new or refused.reason not in _OWN_DOING:
                raise
        self.close()
        return self._ready(kind).decode(data, kind, frames)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def _ready(self, kind: Kind) -> _Process:
        process = self._process
        if process is not None and process.fit_for(kind):
            return process
        self.close()
        self._process = _Process(self._geometry, self._caps, kind.film)
        return self._process


class _Process:
    """A running decoding process and the line to it."""

    def __init__(self, geometry: Geometry, caps: Caps, films: bool) -> None:
        if films and importlib.util.find_spec("av") is None:
            raise SystemStateError(
                "expected PyAV for a film, found none: pip install -e '.[video]', or leave films out"
            )
        self._shape = (geometry.size, geometry.size, 3)
        self._caps, self._films, self.files = caps, films, 0
        self._line, theirs = socket.socketpair()
        with theirs:
            told = {"geometry": vars(geometry), "caps": vars(caps), "films": films}
            self._running = _start(json.dumps(told), theirs)
        self._greet()

    def fit_for(self, kind: Kind) -> bool:
        """Whether it can take one more file of `kind`."""
        alive = self._running.poll() is None
        return alive and self.files < _FILES_A_PROCESS and (self._films or not kind.film)

    def decode(self, data: bytes, kind: Kind, frames: int) -> Pixels:
        """Pixels of the file `data`; raises Refused."""
        self.files += 1
        deadline = time.monotonic() + self._caps.seconds
        size = int(np.prod(self._shape))
        most = frames if kind.film else 1
        try:
            wire.send(self._line, wire.Message(kind, frames, data), deadline)
            answer = wire.receive(self._line, most * size, deadline)
        except TimeoutError as error:
            self.end()
            raise Refused(Reason.TIMEOUT) from error
        except wire.Broken as error:
            raise Refused(self._cause_of_death()) from error
        return self._pixels(answer, most, size)

    def end(self) -> None:
        """Kill it and wait for it to be gone."""
        self._line.close()
        self._running.kill()
        self._running.wait()
        if self._running.stderr is not None:
            self._running.stderr.close()

    def _pixels(self, answer: wire.Message, most: int, size: int) -> Pixels:
        """What the answer holds. A process that a file has taken over may say anything: then it is as good as dead."""
        for reason in Reason:
            if answer.word == reason:
                raise Refused(reason)
        if answer.word != wire.PIXELS or not 0 < answer.number <= most or len(answer.body) != answer.number * size:
            self.end()
            raise Refused(Reason.CRASHED)
        return np.frombuffer(answer.body, np.uint8).reshape(answer.number, *self._shape)

    def _cause_of_death(self) -> Reason:
        self.end()
        return Reason.TIMEOUT if self._running.returncode == -signal.SIGXCPU else Reason.CRASHED

    def _greet(self) -> None:
        """Wait until it has started; raises SystemStateError when it does not."""
        try:
            ready = wire.receive(self._line, 0, time.monotonic() + _START_SECONDS).word == wire.READY
        except (TimeoutError, wire.Broken):
            ready = False
        if not ready:
            self._running.kill()
            said = self._running.communicate()[1].decode("utf-8", "replace").strip().rpartition("\n")[2]
            self.end()
            raise SystemStateError(
                f"expected a decoding process to start in {self._caps.memory:,} bytes of memory, it ended with code "
                f"{self._running.returncode} ({said}): install pillow, or raise the memory cap"
            )


def _start(told: str, line: socket.socket) -> subprocess.Popen[bytes]:
    """A fresh interpreter, which neither forks our threads nor imports the program that started us."""
    environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", PROGRAM, told],
        stdin=line.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,  # an interrupt from the keyboard is the run's to handle
    )
