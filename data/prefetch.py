"""Items made ahead of need by a thread, so that a loop finds its next input ready."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Prefetched(Iterator[Item], Generic[Item]):
    """Iterates over `items`, up to `depth` of them made ahead in one background thread, in order and none twice.

    An exception of `items` is raised where its item was due. With depth 0 there is no thread. To be used in a `with`
    statement, whose end stops the thread after the item it is at; `wait_share` is the share of the time between
    entering and leaving (or now) that the reader spent waiting for items.
    """

    def __init__(self, items: Iterable[Item], depth: int) -> None:
        self._items, self._depth = iter(items), depth
        self._ready: queue.Queue[tuple[bool, Item | BaseException]] = queue.Queue(max(1, depth))
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._waited, self._began, self._ended = 0.0, 0.0, 0.0

    def __enter__(self) -> Prefetched[Item]:
        """Begin to make items."""
        self._began = time.perf_counter()
        if self._depth:
            self._thread = threading.Thread(target=self._fill, name="prefetch", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop the thread and wait for it."""
        self._ended = time.perf_counter()
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def __next__(self) -> Item:
        """The next item, waited for if need be."""
        start = time.perf_counter()
        try:
            if self._thread is None:
                return next(self._items)
            fine, item = self._ready.get()
        finally:
            self._waited += time.perf_counter() - start
        if not fine:
            # The thread has ended: asked again, it must not be waited for.
            self._ready.put((fine, item))
            assert isinstance(item, BaseException)
            raise item
        return item  # type: ignore[return-value]

    @property
    def wait_share(self) -> float:
        """Waiting as a share of the time, 0 to 1."""
        passed = (self._ended or time.perf_counter()) - self._began
        return self._waited / passed if passed > 0 else 0.0

    def _fill(self) -> None:
        try:
            for item in self._items:
                if not self._offer((True, item)):
                    return
            self._offer((False, StopIteration()))
        except BaseException as error:
            self._offer((False, error))

    def _offer(self, entry: tuple[bool, Item | BaseException]) -> bool:
        """Put an entry where the reader finds it, unless it has gone."""
        while not self._closed.is_set():
            try:
                self._ready.put(entry, timeout=0.05)
            except queue.Full:
                continue
            return True
        return False
