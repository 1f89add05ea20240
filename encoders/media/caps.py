"""Limits on what one file of a catalogue may cost."""

from __future__ import annotations

from dataclasses import dataclass

from data.errors import UsageError

LEAST_MEMORY = 320 << 20


@dataclass(frozen=True)
class Caps:
    """`bytes` of a file; `pixels` of a picture or frame as its header says; `seconds` of wall and of processor time
    for decoding one file; `memory` [bytes] of address space of a decoding process, which takes up to 240 MB
    of it for itself; `frames` of a film that may be asked for; `duration` of a film [s].

    Raises UsageError for a cap that is not positive, or memory that no process could start in.
    """

    bytes: int = 20_000_000
    pixels: int = 50_000_000
    seconds: float = 10.0
    memory: int = 1 << 30
    frames: int = 64
    duration: float = 600.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value <= 0:
                raise UsageError(f"expected a positive cap on {name}, got {value}: set a larger one")
        if self.memory < LEAST_MEMORY:
            raise UsageError(f"expected at least {LEAST_MEMORY:,} bytes of memory, got {self.memory:,}: raise the cap")
