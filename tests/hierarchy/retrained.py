"""A retrain of the planted shop: the same meaning on other axes and in another order, with chosen changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from data.artifacts import ArtifactRef, OutputDir
from data.schema import embeddings_schema
from hierarchy import supergraph
from hierarchy.kmeans import unit
from hierarchy.levels import learned
from tests.fixtures.artifacts import make_ref, write_dates
from tests.hierarchy.planted import DIM, LEVELS, T0, Shop

STAGES = ("events", "graph", "features", "learner", "embeddings")


def rotation(seed: int, dim: int = DIM) -> np.ndarray:
    """A random orthogonal matrix (dim, dim)."""
    axes, signs = np.linalg.qr(np.random.default_rng(seed).normal(size=(dim, dim)))
    return np.asarray(axes * np.sign(np.diag(signs)), np.float32)


class Retrained:
    """Refs `learner` and `embeddings` of the shop turned by a random rotation, with prototypes in another order.

    `order[level]` says which planted prototype lies in each row; `drop` are rows of the finest level to leave out;
    `extra` are vectors (n, DIM), on the planted axes, of interests that nobody had before, added to the finest level;
    `noise` moves every entity a little.
    """

    def __init__(
        self,
        shop: Shop,
        key: str,
        seed: int,
        drop: Sequence[int] = (),
        extra: np.ndarray | None = None,
        noise: float = 0.0,
    ) -> None:
        self.shop, self.key = shop, key
        rng, self.turn = np.random.default_rng(seed), rotation(seed)
        planted = [vectors for vectors, _ in learned(shop.refs["learner"])]
        kept = [np.arange(len(planted[0])), np.setdiff1d(np.arange(len(planted[1])), drop)]
        self.order = [_none_in_place(rows, rng) for rows in kept]
        vectors = [level[order] for level, order in zip(planted, self.order, strict=True)]
        if extra is not None:
            vectors[1] = np.concatenate([vectors[1], extra])
        self.vectors = [np.asarray(level @ self.turn, np.float32) for level in vectors]
        table = shop.refs["embeddings"].table("embeddings/")
        flat = table["vector"].combine_chunks().flatten().to_numpy().reshape(-1, DIM)
        moved = unit((flat + noise * rng.normal(size=flat.shape)).astype(np.float32) @ self.turn)
        column = pa.FixedSizeListArray.from_arrays(pa.array(moved.ravel()), DIM)
        self.table = table.set_column(
            table.column_names.index("vector"), embeddings_schema(DIM).field("vector"), column
        )
        self.refs = {**shop.refs, "learner": self._make("learner"), "embeddings": self._make("embeddings")}

    def supergraph(self, previous: dict[str, ArtifactRef] | None = None, name: str = "", **config: Any) -> ArtifactRef:
        """The supergraph of this run, built on `previous` (a run's refs with its supergraph) if that is given."""
        inputs = {stage: self.refs[stage] for stage in STAGES}
        if previous is not None:
            inputs |= {"previous": previous["supergraph"], "previous_embeddings": previous["embeddings"]}
        made = supergraph.Config(t0=T0, alignment=config)
        key = f"{self.key}{name}{'-aligned' if previous else ''}"
        self.refs["supergraph"] = make_ref(
            self.shop.store, "supergraph", lambda out: supergraph.run(made, inputs, out, _context()), key
        )
        return self.refs["supergraph"]

    def _make(self, stage: str) -> ArtifactRef:
        return make_ref(self.shop.store, stage, getattr(self, f"_{stage}"), self.key)

    def _learner(self, out: OutputDir) -> None:
        tensors = {f"prototypes.vectors_{level}": torch.from_numpy(found) for level, found in enumerate(self.vectors)}
        out.write_tensors("model.safetensors", tensors)
        out.write_json("learner.json", {"config": {"levels": LEVELS}})

    def _embeddings(self, out: OutputDir) -> dict[str, Any]:
        write_dates(out, "embeddings/", self.table)
        return self.shop.refs["embeddings"].metrics


def _none_in_place(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A random order that is one cycle, so that no row stays where it was."""
    places, order = rng.permutation(len(rows)), np.empty_like(rows)
    order[places] = rows[np.roll(places, 1)]
    return order


def _context() -> Any:
    from data.context import RunContext

    return RunContext(threads=1)
