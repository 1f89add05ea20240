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
from hierarchy.bags import Bags, Vectors, cosines, cut, hold, softmax

PARENT_TAU = 0.1
"""Temperature of the softmax over cosines that links a primitive to those of the level above, learning as published."""


class Level(NamedTuple):
    """One level of a vocabulary, and how it makes tokens.

    level (1 = coarsest), primitive ids string (k,), unit vectors float32 (k, d), top (primitives kept in a bag), tau
    (temperature of the softmax over cosines).
    """

    level: int
    ids: pa.Array
    vectors: Vectors
    top: int
    tau: float


def primitive_id(level: int, index: int) -> str:
    """The public id of primitive `index` of `level`."""
    return f"L{level}-{index:04d}"


def learned(learner: ArtifactRef) -> list[tuple[Vectors, int]]:
    """Vectors (k, d) and bag size of each level, coarse to fine, as a learner artifact holds them; needs no torch."""
    sizes = [level["top"] for level in learner.json("learner.json")["config"]["levels"]]
    with safe_open(learner.file("model.safetensors"), framework="numpy") as tensors:
        return [(tensors.get_tensor(f"prototypes.vectors_{index}"), top) for index, top in enumerate(sizes)]


def published(supergraph: ArtifactRef) -> list[Level]:
    """The levels of a supergraph artifact, coarse to fine."""
    rows = supergraph.table("primitives.parquet", ["level", "primitive_id", "vector"])
    levels = []
    for entry in supergraph.json("levels.json"):
        own = rows.filter(pc.equal(rows["level"], entry["level"])).combine_chunks()
        vectors = own["vector"].combine_chunks().flatten().to_numpy().reshape(len(own), -1)
        ids = own["primitive_id"].combine_chunks()
        levels.append(Level(entry["level"], ids, vectors, entry["top"], entry["tau"]))
    return levels


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
    for number, level in enumerate(levels):
        share = softmax(cosines(vectors, level.vectors) / np.float32(level.tau))
        if len(heads) < len(vectors):
            share = np.asarray(np.add.reduceat(share, first[:-1], axis=0) / heads[:, None], np.float32)
        if held:
            hold(share, held[number], margin)
        found.append(cut(share, level.top))
    return found
