"""Pictures and films of a catalogue, decoded by several processes, in order, in bounded memory."""

from __future__ import annotations

import hashlib
import queue
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from data.errors import UsageError
from encoders.ahead import ahead
from encoders.media.caps import Caps
from encoders.media.paths import Root
from encoders.media.reasons import Reason, Refused
from encoders.media.sniff import sniff
from encoders.media.worker import Worker
from encoders.pixels import Geometry, Picture, Pixels

_AHEAD = 2
"""Pictures per worker that may be ready or in work before their turn."""


class Decoder:
    """Decodes files below `root` in `workers` processes; to be used in a `with` statement.

    Memory: this process holds at most `workers` files of `caps.bytes` each and 2 x `workers` + 1 pictures of
    frames x size x size x 3 bytes; each of the `workers` processes has at most `caps.memory` of address space.
    Raises BadDataError without the folder, UsageError for a geometry that cuts more than it scales.
    """

    def __init__(self, root: Path, geometry: Geometry, caps: Caps, workers: int) -> None:
        if not 0 < geometry.size <= geometry.resize:
            raise UsageError(f"expected 0 < size <= resize, got {geometry}: a cut cannot be larger than the picture")
        if workers < 1:
            raise UsageError(f"expected at least one worker, got {workers}")
        self._caps, self._size = caps, workers
        self._root = Root(root)
        self._threads = ThreadPoolExecutor(workers, "decode")
        self._workers = [Worker(geometry, caps) for _ in range(workers)]
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)

    def __enter__(self) -> Decoder:
        """The decoder itself; processes start when they are first needed."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Let files in work end (within `caps.seconds`) and stop all processes."""
        self._threads.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.close()
        self._root.__exit__(kind, error, at)

    def pictures(
        self, names: Iterable[str], frames: int = 0, hashes: Mapping[str, str] | None = None
    ) -> Iterator[Picture]:
        """A picture for each of `names`, in order: pixels uint8 (1, size, size, 3), or for a film (F, size, size, 3)
        with 1 <= F <= `frames`, or the reason why there are none. With `frames` 0 films are refused.
        `hashes` by name, as `listing` gives them: a file that has another sha256 by now is refused.

        Raises UsageError when `frames` is above its cap, SystemStateError when no decoding process can be started or a
        film needs the extra `video`.
        """
        if not 0 <= frames <= self._caps.frames:
            raise UsageError(f"expected 0 to {self._caps.frames} frames a film, got {frames}")
        expected = hashes or {}
        yield from ahead(
            self._threads, lambda name: self._picture(name, frames, expected.get(name)), names, _AHEAD * self._size
        )

    def _picture(self, name: str, frames: int, sha256: str | None) -> Picture:
        try:
            return Picture(name, pixels=self._pixels(name, frames, sha256))
        except Refused as refused:
            return Picture(name, reason=refused.reason)

    def _pixels(self, name: str, frames: int, sha256: str | None) -> Pixels:
        data = self._root.read(name, self._caps.bytes)
        if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
            raise Refused(Reason.CHANGED)
        kind = sniff(data)
        if kind.film and not frames:
            raise Refused(Reason.NOT_A_PICTURE)
        worker = self._idle.get()
        try:
            return worker.decode(data, kind, frames)
        finally:
            self._idle.put(worker)
