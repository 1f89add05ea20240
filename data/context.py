"""What every stage function receives beside its inputs: a frozen record, and the base of its configuration."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from data.progress import Progress

Metrics = dict[str, Any]
"""JSON-able figures a stage reports; they are stored in its manifest."""

_LOGGER = logging.getLogger("strata")


def _aware(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError(f"expected a time with a zone, such as {moment.isoformat()}Z")
    return moment


UtcTime = Annotated[datetime, AfterValidator(_aware)]
"""A config field holding a time with its zone; `data.schema.to_micros` makes it microseconds UTC."""


class StageConfig(BaseModel):
    """Base of every stage's `Config`: frozen, unknown keys refused, each field described with its unit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def result_fields(self) -> dict[str, Any]:
        """The JSON form of the fields that can change results; fields marked `execution` are left out."""
        return _without_execution(self)


def execution(default: Any, description: str, **constraints: Any) -> Any:
    """A config field that changes how a stage runs but never what it writes (batch size, workers, memory)."""
    return Field(default=default, description=description, json_schema_extra={"execution": True}, **constraints)


def _without_execution(model: BaseModel) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    dumped = model.model_dump(mode="json")
    for name, info in type(model).model_fields.items():
        extra = info.json_schema_extra
        if isinstance(extra, Mapping) and extra.get("execution"):
            continue
        value = getattr(model, name)
        kept[name] = _without_execution(value) if isinstance(value, BaseModel) else dumped[name]
    return kept


@dataclass(frozen=True)
class RunContext:
    """How a stage runs: nothing in it but `seed` may change what the stage writes.

    `now` [us] is the caller's clock when the run began, if it has one. Only ingest looks at it: rows dated after it
    cannot be true and are set aside.
    """

    seed: int = 0
    device: str = "cpu"
    rank: int = 0
    world_size: int = 1
    threads: int = 2
    now: int | None = None
    progress: Progress = field(default_factory=Progress)
    logger: logging.Logger = _LOGGER


def derive_seed(seed: int, *names: str | int) -> int:
    """A 63-bit seed that depends on `seed` and `names` only; equal on every machine and in every process."""
    text = "\x1f".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1
