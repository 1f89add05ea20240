"""Amazon reviews 2018, Musical Instruments, 5-core, in the leave-one-out form of LC-Rec and LETTER.

McAuley lab (UCSD); file of Wang et al., CIKM 2024: Instruments.inter.json, {user: [item, ...] in time order}, ids
from 0. Research use, no licence stated. Order only, no clock, no text.
"""

from __future__ import annotations

from typing import Any, ClassVar

from data.context import RunContext
from data.engine import Engine
from data.sources import published, texts
from data.sources.published import Published

_FILE = "Instruments.inter.json"


class Settings(published.Folder):
    """Where the set lies. A review counts as a purchase."""

    name: ClassVar[str] = "amazon-instruments"
    time_kind: ClassVar[str] = "order"


def identity(settings: Settings) -> list[str]:
    """Name and sha256 of the unpacked file."""
    return texts.identity(settings.root, [_FILE])


def load(engine: Engine, settings: Settings, ctx: RunContext) -> dict[str, Any]:
    """Fill the contract's tables; returns rows and first time of each part. Raises BadDataError for other files."""
    return published.load(engine, read(settings), settings.name, ctx)


def read(settings: Settings) -> Published:
    """The set as published; raises BadDataError for other files."""
    return Published(published.leave_one_out(texts.read_json(settings.root, _FILE)))
