"""Stage tokens: every entity at every date as a bag of meaning, a few weighted primitives at each level."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field

from data.artifacts import ArtifactRef, OutputDir
from data.context import Metrics, RunContext, StageConfig
from data.errors import UsageError
from data.schema import TOKENS
from data.timegrid import EMBEDDINGS, date_file, file_date
from data.timegrid import TOKENS as DATES
from hierarchy.bags import Bags, Vectors, entropy
from hierarchy.dates import Dates, cause_of, content_of
from hierarchy.hysteresis import Held
from hierarchy.levels import Level, bags_of, published

_ROWS = 16_384  # tokens of a row group: small, so that one entity is found without reading many others
_BAG = ["entity_type", "entity_id", "as_of"]


class Config(StageConfig):
    """How many primitives an entity keeps; how sharp its bag is belongs to the vocabulary."""

    top: tuple[int, ...] = Field(
        default=(), description="Primitives kept by level, coarse to fine; empty: as the vocabulary says."
    )
    hysteresis: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="After a retrain an entity keeps its strongest primitive of before where another leads it by less "
        "than this share of the bag; 0: off. No effect without an earlier vocabulary.",
    )


def run(config: Config, inputs: Mapping[str, ArtifactRef], out: OutputDir, ctx: RunContext) -> Metrics:
    """Write tokens/<date>.parquet, each sorted by (entity_type, entity_id, level, rank), and dates.json; ranks start
    at 0.

    Several heads of a user are one bag: the mean of their memberships. With `previous`, tokens of an earlier day, dates
    of equal vectors and vocabulary are taken as they are. With `previous_tokens`, those of the vocabulary before, what
    was strongest may stay so (config.hysteresis). Time: new embeddings x primitives. Memory: keys of a date, about 60
    bytes each; its vectors lie in a file of the work folder. A killed run goes on with the next date.
    """
    embeddings, levels = inputs["embeddings"], _with_tops(published(inputs["supergraph"]), config.top)
    version = inputs["supergraph"].metrics["vocab_version"]
    made_by: list[Any] = [content_of(inputs["supergraph"]), [level.top for level in levels]]
    held = None
    if config.hysteresis and "previous_tokens" in inputs:
        held = Held(inputs["previous_tokens"], levels, config.hysteresis)
        made_by.append([content_of(inputs["previous_tokens"]), config.hysteresis])
    dates, names = Dates(out, inputs.get("previous")), embeddings.names(EMBEDDINGS)
    with ctx.progress.step("tokens", len(names), "dates") as step:
        for name in names:
            cause = cause_of(embeddings.manifest["files"][name]["sha256"], *made_by)
            make = partial(_write_date, embeddings=embeddings, name=name, levels=levels, version=version, held=held)
            dates.add(date_file(DATES, file_date(name)), cause, make)
            step.advance()
    facts = dates.write()
    bags = sum(fact["bags"] for fact in facts)
    means = np.round(np.sum([fact["sums"] for fact in facts], axis=0) / max(bags, 1), 4).tolist()
    shapes = [
        {"level": level.level, "top": level.top, "tau": level.tau, "mean_entropy": spread, "mean_residual": dropped}
        for level, (spread, dropped) in zip(levels, means, strict=True)
    ]
    figures = {"lent_dates": dates.lent, "last_as_of": file_date(names[-1]), "levels": shapes}
    return {"tokens": dates.rows, "bags": bags, "vocab_version": version, **figures}


def _write_date(
    path: Path, embeddings: ArtifactRef, name: str, levels: Sequence[Level], version: str, held: Held | None
) -> tuple[int, dict[str, Any]]:
    """Bags of one date; returns their rows, and by level the sums of entropies and of dropped mass."""
    keys = embeddings.table(name, [*_BAG, "model_version"]).combine_chunks()
    vectors = _spill(embeddings, name, path.with_suffix(".npy"))
    first, sums = _starts(keys.select(_BAG)), np.zeros((len(levels), 2))
    count = 0
    if held is not None:
        held.read_until(file_date(name))
    with pq.ParquetWriter(path, TOKENS, compression="zstd", write_page_checksum=True) as writer:
        for start, stop in _spans(len(first) - 1, _ROWS // sum(level.top for level in levels)):
            own, offsets = keys.take(pa.array(first[start:stop])), first[start : stop + 1] - first[start]
            before = ((), 0.0) if held is None else (held.of(own), held.margin)
            found = bags_of(levels, vectors[first[start] : first[stop]], offsets, *before)
            for number, part in enumerate(found):
                sums[number] += entropy(part.weight).sum(), part.residual.sum(dtype=np.float64)
            table = token_table(levels, found, own, version)
            writer.write_table(table)
            count += table.num_rows
    return count, {"bags": len(first) - 1, "sums": sums.tolist()}


def _with_tops(levels: Sequence[Level], tops: tuple[int, ...]) -> list[Level]:
    """The levels, keeping `tops` primitives where given and never more than there are."""
    if tops and len(tops) != len(levels):
        raise UsageError(f"tokens.top: expected one number for each of {len(levels)} levels, got {tops}")
    wanted = tops or [level.top for level in levels]
    return [level._replace(top=min(top, len(level.ids))) for level, top in zip(levels, wanted, strict=True)]


def _spill(embeddings: ArtifactRef, name: str, path: Path) -> Vectors:
    """The vectors (n, d) of a date in file order as a memory map, so that few are in memory at a time."""
    count, start = embeddings.rows(name), 0
    mapped: Vectors = np.zeros((0, 1), np.float32)
    for batch in embeddings.batches(name, ["vector"]):
        part = batch["vector"].flatten().to_numpy().reshape(batch.num_rows, -1)
        if start == 0:
            mapped = np.lib.format.open_memmap(path, "w+", np.dtype(np.float32), (count, part.shape[1]))
        mapped[start : start + len(part)] = part
        start += len(part)
    return mapped


def _starts(keys: pa.Table) -> NDArray[np.int64]:
    """Where each bag starts, int64 (bags + 1,): the heads of a user lie one after the other."""
    changed = np.zeros(len(keys), bool)
    changed[:1] = True
    for column in keys.columns:
        values = column.combine_chunks().dictionary_encode().indices.to_numpy()
        changed[1:] |= values[1:] != values[:-1]
    return np.append(np.flatnonzero(changed), len(keys)).astype(np.int64)


def _spans(count: int, size: int) -> Iterator[tuple[int, int]]:
    size = max(size, 1)
    return ((start, min(start + size, count)) for start in range(0, count, size))


def token_table(levels: Sequence[Level], found: Sequence[Bags], keys: pa.Table, version: str) -> pa.Table:
    """Token rows of the bags whose `keys` are given, bag by bag, level by level, strongest first."""
    tops = [level.top for level in levels]
    bag = pa.array(np.repeat(np.arange(len(keys)), sum(tops)))
    offsets = np.cumsum([0, *(len(level.ids) for level in levels)])[:-1]
    places = np.concatenate([part.primitive + offset for part, offset in zip(found, offsets, strict=True)], axis=1)
    rank = np.concatenate([np.arange(top) for top in tops])
    columns = {
        "entity_id": keys["entity_id"].combine_chunks().take(bag),
        "entity_type": keys["entity_type"].combine_chunks().take(bag),
        "level": np.tile(np.repeat([level.level for level in levels], tops), len(keys)),
        "primitive_id": pa.concat_arrays([level.ids for level in levels]).take(pa.array(places.ravel())),
        "weight": np.concatenate([part.weight for part in found], axis=1).ravel(),
        "residual": np.repeat(np.stack([part.residual for part in found], axis=1), tops, axis=1).ravel(),
        "rank": np.tile(rank, len(keys)),
        "vocab_version": pa.repeat(version, len(bag)),
        "model_version": keys["model_version"].combine_chunks().take(bag),
        "as_of": keys["as_of"].combine_chunks().take(bag),
    }
    return pa.table([pa.array(columns[field.name], field.type) for field in TOKENS], schema=TOKENS)
