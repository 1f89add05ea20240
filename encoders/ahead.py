"""Work handed to a pool ahead of need, in order and in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

_In = TypeVar("_In")
_Out = TypeVar("_Out")


def ahead(pool: Executor, function: Callable[[_In], _Out], items: Iterable[_In], depth: int) -> Iterator[_Out]:
    """`function` of each item, in their order; at most `depth` are under way or ready beyond the one handed out.

    What has not begun is given up when the reader stops or an item raises.
    """
    waiting: deque[Future[_Out]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > depth:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
