"""Artifacts up to the embeddings for the synthetic shop, with planted vectors: one direction a department, turned a
little for each type of product. What later stages must find in them is known beforehand."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

import graph.build
from data import synthetic
from data.artifacts import ArtifactRef, OutputDir, Store
from data.context import RunContext
from data.schema import embeddings_schema, to_micros
from data.timegrid import EMBEDDINGS, as_of_grid, date_file
from graph.store import GraphStore, Relation
from hierarchy.kmeans import unit
from hierarchy.model import Learner
from hierarchy.prototypes import Prototypes
from hierarchy.transformer import EncoderShape
from tests.fixtures import worlds
from tests.fixtures.artifacts import make_ref

DIM = 16
T0, T1, T2 = synthetic.cuts()
DEPARTMENTS = list(synthetic.TREE)
TYPES = [(dept, leaf) for dept, groups in synthetic.TREE.items() for leaves in groups.values() for leaf in leaves]
LEVELS = [{"k": 4, "top": 2}, {"k": 16, "top": 4}]


class Shop:
    """Artifacts `events`, `graph`, `features`, `learner`, `embeddings` in `store`, under key `key`.

    `until` drops the events from then on; `heads` is how many vectors a user has.
    """

    def __init__(
        self, store: Store, world: dict[str, pa.Table], key: str = "shop", until: datetime | None = None, heads: int = 1
    ):
        self.store, self.key, self.heads = store, key, heads
        self.world = dict(world)
        if until is not None:
            events = world["events"]
            self.world["events"] = events.filter(pc.less(events["ts"], to_micros(until)))
        self.refs: dict[str, ArtifactRef] = {}
        if self.world["events"] is worlds.world()["events"]:
            self.refs |= worlds.begin(store, key)
        else:
            self._add("events", lambda out: synthetic.write_events(self.world, out))
            self.run("graph", graph.build, graph.build.Config(), ("events",))
        self.nodes = GraphStore.open(self.refs["graph"])
        self.direction = _directions()
        for stage in ("features", "learner", "embeddings"):
            self._add(stage, getattr(self, f"_{stage}"))

    def run(self, stage: str, module: Any, config: Any, inputs: tuple[str, ...], threads: int = 1) -> ArtifactRef:
        """Run a stage on the artifacts so far and keep what it wrote."""
        given = {name: self.refs[name] for name in inputs}
        return self._add(stage, lambda out: module.run(config, given, out, RunContext(threads=threads)))

    def product_vector(self, category: list[str], product_id: str) -> np.ndarray:
        """The planted unit vector of a product: its type's direction and a little of its own."""
        noise = np.random.default_rng(int(product_id[1:])).normal(size=DIM)
        return unit((self.direction[category[-1]] + 0.05 * noise)[None])[0]

    def _add(self, stage: str, writer: Any) -> ArtifactRef:
        self.refs[stage] = make_ref(self.store, stage, writer, self.key)
        return self.refs[stage]

    def _products(self) -> tuple[list[dict[str, Any]], np.ndarray]:
        rows = self.world["products"].to_pylist()
        return rows, np.array([self.product_vector(row["category"], row["product_id"]) for row in rows], np.float32)

    def _features(self, out: OutputDir) -> None:
        rows, vectors = self._products()
        ids, paths = [row["product_id"] for row in rows], [" > ".join(row["category"]) for row in rows]
        out.write_table("entities_product.parquet", pa.table({"entity_id": ids, "category": paths}))
        out.write_array("content_product.npy", vectors)

    def _learner(self, out: OutputDir) -> None:
        """An untrained encoder, which leaves content as it is, with the planted directions as primitives."""
        sizes = tuple(level["k"] for level in LEVELS)
        config = {"levels": LEVELS, "temperature": 0.1, "dim": DIM, "hub_parents": 1, "hub_children": 4}
        shape = {
            "content_dim": DIM,
            "dim": DIM,
            "layers": 1,
            "heads": 2,
            "id_rows": 0,
            "user_heads": 1,
            "num_levels": 2,
        }
        torch.manual_seed(0)
        learner, prototypes = Learner(EncoderShape(**shape), 0.1), Prototypes(sizes, DIM, 1, 4)
        for level, names in enumerate((DEPARTMENTS, [leaf for _, leaf in TYPES])):
            prototypes.get_buffer(f"vectors_{level}").copy_(
                torch.from_numpy(np.array([self.direction[n] for n in names]))
            )
        prototypes.join()
        prototypes.refresh()
        tensors = {f"learner.{name}": value for name, value in learner.state_dict().items()}
        out.write_tensors(
            "model.safetensors", tensors | {f"prototypes.{n}": v for n, v in prototypes.state_dict().items()}
        )
        out.write_json("learner.json", {"config": config, "shape": shape})

    def _embeddings(self, out: OutputDir) -> dict[str, Any]:
        grid = as_of_grid(T0, int(self.world["events"]["ts"][-1].as_py()))
        count, before = 0, None
        for as_of in grid:
            tables = [self._rows(kind, as_of, before) for kind in ("advertiser", "product", "user")]
            count += out.write_batches(date_file(EMBEDDINGS, as_of), embeddings_schema(DIM), tables)
            before = as_of
        return {"rows": count, "last_as_of": grid[-1], "model_version": "planted"}

    def _rows(self, kind: str, as_of: int, before: int | None) -> pa.Table:
        """Users at every date; what else there is when it becomes known. A user is the mean of what they bought."""
        rows, vectors = self._products()
        if kind == "user":
            return self._table(kind, *self._users(vectors, as_of), as_of)
        products = [
            r for r, row in enumerate(rows) if row["known_at"] <= as_of and (before is None or row["known_at"] > before)
        ]
        if kind == "product":
            return self._table(kind, [rows[r]["product_id"] for r in products], vectors[products][:, None], as_of)
        owners = sorted({row["advertiser_id"] for row in rows}) if before is None else []
        pooled = [unit(vectors[[row["advertiser_id"] == owner for row in rows]].sum(axis=0)[None]) for owner in owners]
        return self._table(kind, owners, np.array(pooled).reshape(-1, 1, DIM), as_of)

    def _users(self, vectors: np.ndarray, as_of: int) -> tuple[list[str], np.ndarray]:
        events = self.nodes.csr(Relation("user", "purchase", "product"))
        place = self.nodes.encode("product", self.world["products"]["product_id"])
        by_node = np.zeros((self.nodes.num_nodes["product"], DIM), np.float32)
        by_node[place] = vectors
        names, found = self.nodes.entity_ids("user").to_pylist(), []
        for user in range(len(names)):
            own = slice(events.rowptr[user], events.rowptr[user + 1])
            bought = events.col[own][events.visible_from[own] <= as_of]
            mean = unit(by_node[bought].sum(axis=0)[None]) if len(bought) else by_node[:1]
            # A second head stands for the newest purchase alone.
            found.append(np.concatenate([mean, by_node[bought[-1:]] if len(bought) else by_node[:1]])[: self.heads])
        order = np.argsort(names)
        return [names[user] for user in order], np.array(found)[order]

    def _table(self, kind: str, ids: list[str], vectors: np.ndarray, as_of: int) -> pa.Table:
        count, heads = len(ids), vectors.shape[1] if len(ids) else 1
        columns = [
            [entity for entity in ids for _ in range(heads)],
            [kind] * (count * heads),
            list(range(heads)) * count,
            list(vectors.reshape(-1, DIM).astype(np.float32)),
            [0.0] * (count * heads),
            [0] * (count * heads),
            ["planted"] * (count * heads),
            [as_of] * (count * heads),
        ]
        schema = embeddings_schema(DIM)
        return pa.table(
            [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
        )


def _directions() -> dict[str, np.ndarray]:
    """Unit directions of departments, orthogonal, and of types, each near that of its department."""
    axes, _ = np.linalg.qr(np.random.default_rng(5).normal(size=(DIM, DIM)))
    found = {dept: axes[place].astype(np.float32) for place, dept in enumerate(DEPARTMENTS)}
    for place, (dept, leaf) in enumerate(TYPES):
        other = axes[4 + place % 4 + 4 * (DEPARTMENTS.index(dept) % 3)]
        found[leaf] = unit((0.8 * found[dept] + 0.6 * other)[None].astype(np.float32))[0]
    return found
