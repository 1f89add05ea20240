"""Stage tokens: every entity at every date as a bag of meaning, a few weighted primitives at each level."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import Field

from data.artifacts import ArtifactRef, OutputDir
from data.context import Metrics, RunContext, StageConfig
from data.errors import UsageError
from data.schema import TOKENS
from hierarchy.bags import Bags, Vectors, entropy
from hierarchy.levels import Level, bags_of, published

_ROWS = 16_384  # tokens of a row group: small, so that one entity is found without reading many others
_BAG = ["entity_type", "entity_id", "as_of"]


class Config(StageConfig):
    """How many primitives an entity keeps; how sharp its bag is belongs to the vocabulary."""

    top: tuple[int, ...] = Field(
        default=(), description="Primitives kept by level, coarse to fine; empty: as the vocabulary says."
    )


def run(config: Config, inputs: Mapping[str, ArtifactRef], out: OutputDir, ctx: RunContext) -> Metrics:
    """Write tokens.parquet, sorted by (entity_type, entity_id, as_of, level, rank); ranks start at 0.

    Several heads of a user are one bag: the mean of their memberships. Time: embeddings x primitives. Memory: the keys
    of all embeddings, about 60 bytes each; vectors lie in a file of the work folder.
    """
    levels = _with_tops(published(inputs["supergraph"]), config.top)
    version = inputs["supergraph"].metrics["vocab_version"]
    keys = inputs["embeddings"].table("embeddings.parquet", [*_BAG, "head", "model_version"]).combine_chunks()
    vectors = _spill(inputs["embeddings"], out.work / "vectors.npy")
    order = pc.sort_indices(keys, [(name, "ascending") for name in (*_BAG, "head")]).to_numpy()
    first = _starts(keys.select(_BAG), order)
    sums = np.zeros((len(levels), 2))
    with ctx.progress.step("tokens", len(first) - 1, "bags") as step:

        def tables() -> Iterator[pa.Table]:
            for start, stop in _spans(len(first) - 1, _ROWS // sum(level.top for level in levels)):
                rows = order[first[start] : first[stop]]
                found = bags_of(levels, vectors[rows], first[start : stop + 1] - first[start])
                for number, part in enumerate(found):
                    sums[number] += entropy(part.weight).sum(), part.residual.sum(dtype=np.float64)
                yield _table(levels, found, keys.take(pa.array(order[first[start:stop]])), version)
                step.advance(stop - start)

        count = out.write_batches("tokens.parquet", TOKENS, tables())
    means = np.round(sums / max(len(first) - 1, 1), 4).tolist()
    shapes = [
        {"level": level.level, "top": level.top, "tau": level.tau, "mean_entropy": spread, "mean_residual": dropped}
        for level, (spread, dropped) in zip(levels, means, strict=True)
    ]
    return {"tokens": count, "bags": len(first) - 1, "vocab_version": version, "levels": shapes}


def _with_tops(levels: Sequence[Level], tops: tuple[int, ...]) -> list[Level]:
    """The levels, keeping `tops` primitives where given and never more than there are."""
    if tops and len(tops) != len(levels):
        raise UsageError(f"tokens.top: expected one number for each of {len(levels)} levels, got {tops}")
    wanted = tops or [level.top for level in levels]
    return [level._replace(top=min(top, len(level.ids))) for level, top in zip(levels, wanted, strict=True)]


def _spill(embeddings: ArtifactRef, path: Path) -> Vectors:
    """All vectors (n, d) in file order as a memory map, so that they can be read in another order."""
    count, start = embeddings.manifest["files"]["embeddings.parquet"]["rows"], 0
    mapped: Vectors = np.zeros((0, 1), np.float32)
    for batch in embeddings.batches("embeddings.parquet", ["vector"]):
        part = batch["vector"].flatten().to_numpy().reshape(batch.num_rows, -1)
        if start == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
            mapped = np.lib.format.open_memmap(path, "w+", np.dtype(np.float32), (count, part.shape[1]))
        mapped[start : start + len(part)] = part
        start += len(part)
    return mapped


def _starts(keys: pa.Table, order: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Where each bag starts in the sorted order, int64 (bags + 1,)."""
    changed = np.zeros(len(order), bool)
    changed[:1] = True
    for name in keys.column_names:
        column = keys[name].combine_chunks()
        values = (column.dictionary_encode().indices if column.type == pa.string() else column).to_numpy()[order]
        changed[1:] |= values[1:] != values[:-1]
    return np.append(np.flatnonzero(changed), len(order)).astype(np.int64)


def _spans(count: int, size: int) -> Iterator[tuple[int, int]]:
    size = max(size, 1)
    return ((start, min(start + size, count)) for start in range(0, count, size))


def _table(levels: Sequence[Level], found: Sequence[Bags], keys: pa.Table, version: str) -> pa.Table:
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
