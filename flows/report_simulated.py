"""How a page about a log that nobody lived says so: in its header, and on every chart and table of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flows.report_tables import Table

NOTICE = (
    "Simulated events: the catalogue is real, but nobody did what this log says. The figures below show that the "
    "pipeline finds what the simulation planted, not how well it would do on the traffic of real people."
)


def mark_of(summary: Mapping[str, Any]) -> str:
    """What titles end in: nothing for a log of real events."""
    return " (simulated events)" if summary.get("simulated") else ""


def marked(tables: Iterable[Table], mark: str) -> list[Table]:
    """`tables` with `mark` at the end of their titles and captions."""
    return [{**table, **{name: table[name] + mark for name in ("title", "caption")}} for table in tables]
