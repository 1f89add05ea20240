"""Levels of primitives: as the learner leaves them, and as the supergraph publishes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from safetensors import safe_open

from data.artifacts import ArtifactRef
from graph.store import index_in
from hierarchy.bags import Bags, Vectors, cosines, cut, hold, softmax
from hierarchy.kmeans import group_sums

_TOGETHER = 4096  # entities
PARENT_TAU = 0.1
"""Temperature of the softmax over cosines that links a primitive to those of the level above, learning as published."""


class Level(NamedTuple):
    """One level of a vocabulary, and how it makes tokens.

    level (1 = coarsest), primitive ids string (k,), unit vectors float32 (k, d), top (primitives kept in a bag), tau
    (temperature of the softmax over cosines). united int64: of a level of unions, the row here of each primitive of the
    next finer one, whose memberships its own are the sums of; None: memberships are those of its own vectors.
    """

    level: int
    ids: pa.Array
    vectors: Vectors
    top: int
    tau: float
    united: NDArray[np.int64] | None = None


def primitive_id(level: int, index: int) -> str:
    """The public id of primitive `index` of `level`."""
    return f"L{level}-{index:04d}"


def learned(learner: ArtifactRef) -> list[tuple[Vectors, int]]:
    """Vectors (k, d) and bag size of each level, coarse to fine, as a learner artifact holds them; needs no torch."""
    sizes = [level["top"] for level in learner.json("learner.json")["config"]["levels"]]
    with safe_open(learner.file("model.safetensors"), framework="numpy") as tensors:
        return [(tensors.get_tensor(f"prototypes.vectors_{index}"), top) for index, top in enumerate(sizes)]


def are_unions(learner: ArtifactRef) -> bool:
    """Whether the coarser levels of a learner artifact are unions of the finest (hierarchy.unions)."""
    return bool(learner.json("learner.json")["config"].get("distillation", {}).get("evenness", 0.0))


def published(supergraph: ArtifactRef) -> list[Level]:
    """The levels of a supergraph artifact, coarse to fine."""
    rows = supergraph.table("primitives.parquet", ["level", "primitive_id", "parent_id", "vector"])
    levels: list[Level] = []
    entries = supergraph.json("levels.json")
    for place, entry in enumerate(entries):
        own = rows.filter(pc.equal(rows["level"], entry["level"])).combine_chunks()
        vectors = own["vector"].combine_chunks().flatten().to_numpy().reshape(len(own), -1)
        ids = own["primitive_id"].combine_chunks()
        if place and entries[place - 1].get("united"):
            levels[-1] = levels[-1]._replace(united=index_in(own["parent_id"].combine_chunks(), levels[-1].ids))
        levels.append(Level(entry["level"], ids, vectors, entry["top"], entry["tau"]))
    return levels


def memberships(levels: Sequence[Level], vectors: Vectors) -> list[Vectors]:
    """Memberships float32 (n, k) of unit `vectors` (n, d) at each of `levels`, coarse to fine; rows sum to 1.

    An entity's share of a union is the sum of its shares of what was united: cosines to the union's own vector would
    call it a member of a neighbour where a union is no ball.
    """
    found: list[Vectors] = []
    for level in reversed(levels):
        if level.united is None or not found:
            found.insert(0, softmax(cosines(vectors, level.vectors) / np.float32(level.tau)))
        else:
            found.insert(0, np.ascontiguousarray(group_sums(found[0].T, level.united, len(level.ids)).T))
    return found


def bags_of(
    levels: Sequence[Level],
    vectors: Vectors,
    first: NDArray[np.int64],
    held: Sequence[NDArray[np.int64]] = (),
    margin: float = 0.0,
) -> list[Bags]:
    """Bags by level of entities with several heads: `first` (entities + 1,) says which of `vectors` (n, d) are whose.

    A bag is the mean of the heads' memberships, cut. `held`, by level the primitive (entities,) that was an entity's
    strongest before, or -1, stays so where another wins by less than `margin` (hierarchy.hysteresis). Memory: 4 bytes
    x n x primitives of the finest level.
    """
    heads = np.diff(first)
    found = []
    for number, (level, share) in enumerate(zip(levels, memberships(levels, vectors), strict=True)):
        if len(heads) < len(vectors):
            share = np.asarray(np.add.reduceat(share, first[:-1], axis=0) / heads[:, None], np.float32)
        if held:
            hold(share, held[number], margin)
        found.append(cut(share, level.top))
    return found


def bags_of_all(levels: Sequence[Level], *vectors: NDArray[np.float32]) -> list[Bags]:
    """Bags by level of entities with vectors (n, heads, d), those of several arrays one after the other, by blocks."""
    parts = []
    for own in vectors:
        for start in range(0, max(len(own), 1), _TOGETHER):
            block = own[start : start + _TOGETHER]
            first = np.arange(len(block) + 1) * own.shape[1]
            parts.append(bags_of(levels, block.reshape(-1, own.shape[2]), first))
    return [Bags(*map(np.concatenate, zip(*level, strict=True))) for level in zip(*parts, strict=True)]
