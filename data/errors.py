"""Errors a user can act on. Each carries the exit code of the command line (DESIGN: 2, 3, 4, else 1)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_SHOWN = 30


class StrataError(Exception):
    """Base of all expected failures: the message says what was expected, what came and what to do."""

    exit_code = 1


class UsageError(StrataError):
    """A wrong command, option or configuration key (exit code 2)."""

    exit_code = 2


class BadDataError(StrataError):
    """Input rows, files or artifacts that break their contract (exit code 3)."""

    exit_code = 3


class SystemStateError(StrataError):
    """The machine is in the way: full disk, missing library, another run at work (exit code 4)."""

    exit_code = 4


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a misspelt `name`: the closest of `known`, else the first 30 of them in order."""
    options = sorted(known)
    close = difflib.get_close_matches(name, options, n=1, cutoff=0.5)
    more = f" and {len(options) - _SHOWN:,} more" if len(options) > _SHOWN else ""
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(options[:_SHOWN])}{more}"
