"""The learner as a retrieval method of the benchmark: the pipeline's own stages on a history, one recipe for all sets.

A history becomes an event log, the log a graph, graph and content train the learner; users and products are encoded
once, at the end of what is known. What differs between sets is what differs in the data: whether there is an order.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

import graph.build
from data import parts
from data.artifacts import ArtifactRef, OutputDir, Store
from data.context import RunContext
from data.schema import ADVERTISERS, CAMPAIGNS, EVENTS, MICROS_PER_DAY, PRODUCTS, QUARANTINE, USERS, from_micros
from hierarchy import train
from hierarchy.evaluate import Learned
from hierarchy.inference import EntityEncoder, FrozenLearner
from hierarchy.prototypes import Level
from hierarchy.purchases import History

END = 1_577_836_800_000_000
"""2020-01-01, the end of what is known [us]; ages count back from there."""
WARM = 0.4
"""Share of the steps before primitives are born; they then join the tokens and views are distilled."""
_TABLES = {"products": PRODUCTS, "advertisers": ADVERTISERS, "campaigns": CAMPAIGNS, "users": USERS}


class LearnedRetrieval:
    """Cosine plus learned popularity, from vectors of the frozen learner, whose artifact is `learner`."""

    def __init__(
        self,
        folder: Path,
        learner: ArtifactRef,
        features: ArtifactRef,
        graph: ArtifactRef,
        history: History,
        device: str,
    ) -> None:
        self._folder, self.learner, self._features, self._device = folder, learner, features, device
        self.learned = self._encoded(graph, history)

    def grown(self, history: History) -> LearnedRetrieval:
        """The same weights for what users had by a later date; products stay as they were."""
        later = copy(self)
        store = Store(Path(tempfile.mkdtemp(dir=self._folder)))
        found, before = later._encoded(graph_of(store, history), history), self.learned
        later.learned = found.with_products(before.products, before.popularity)
        return later

    def with_popularity(self, factor: float) -> LearnedRetrieval:
        """The same with the learned popularity scale times `factor`."""
        changed = copy(self)
        changed.learned = self.learned.with_popularity(factor)
        return changed

    def scores(self, users: NDArray[np.int64]) -> NDArray[np.float32]:
        """Scores (B, products) of users (B,)."""
        return self.learned.scores(users)

    def discard(self) -> None:
        """Remove the artifacts that it was made from; it still scores."""
        shutil.rmtree(self._folder)

    def _encoded(self, graph: ArtifactRef, history: History) -> Learned:
        frozen = FrozenLearner.open(self.learner, self._device)
        encoder = EntityEncoder(frozen, graph, self._features)
        vectors = {}
        for kind in ("user", "product"):
            nodes = encoder.store.encode(kind, pa.array(names(kind, encoder.store.num_nodes[kind])))
            vectors[kind] = encoder.encode(kind, nodes, END)
            degree = encoder.degree(kind, nodes, END)
        link = frozen.model.link
        popularity = (link.popularity_in_cosine() * np.log1p(degree)).astype(np.float32)
        products = vectors["product"][:, 0]
        return Learned(vectors["user"], products, popularity, history.matrix(), link.repeats_in_cosine())


def fit(
    history: History,
    content: NDArray[np.float32] | None,
    time_kind: str,
    setting: Mapping[str, Any],
    seed: int,
    device: str,
    owners: Sequence[str | None] | None = None,
) -> LearnedRetrieval:
    """Train a learner on a history; `setting` holds fields of `hierarchy.train.Config` over the recipe of the set.

    `owners`: the advertiser of each product, for the advertiser loss; None: there are no advertisers.

    Everything lies in a temporary folder that goes with the process.
    """
    folder = Path(tempfile.mkdtemp(prefix="strata-learner-"))
    store = Store(folder)
    graph = graph_of(store, history, owners)
    features = _features_of(store, history.num_products, content)
    config = config_of(time_kind, {**_small(history), **setting}, len(history.user))
    ctx = RunContext(seed=seed, device=device, threads=torch.get_num_threads())
    learner = _published(
        store, "learner", lambda out: train.run(config, {"graph": graph, "features": features}, out, ctx)
    )
    return LearnedRetrieval(folder, learner, features, graph, history, device)


def config_of(time_kind: str, setting: Mapping[str, Any], events: int = 0) -> train.Config:
    """The recipe for sets with a clock, with an order alone, or without either, under `setting`.

    Given the number of events, primitives are born after WARM of the steps where there is an order; else never.
    """
    ordered = time_kind != "none"
    recipe: dict[str, Any] = {
        "t0": from_micros(END),
        "dim": 256,
        "item_budget": {"recent": 0, "uniform": 0, "two_hop": 0, "links": 0},
        "full_softmax": 100_000,
        "advertiser_negatives": 0,
        "batch_size": 4096,
        "epochs": 8.0,
        "warmup_steps": 1_000_000,
        "lr": 2e-3,
        "id_lr": 5e-4,
        "bias_lr": 5e-3,
        "dropout": 0.5,
        "id_dropout": 0.0,
        "id_floor": 1,
        "temperature": 0.07,
        "precision": "bf16",
        "teacher_momentum": 0.99,
    }
    if time_kind == "clock":
        # Baskets of many products: all that follows all would be too much, and few of them say who somebody is. Most
        # products sell seldom, so they are made of their buyers' other products and of content beside their ids.
        recipe |= {
            "item_budget": {"recent": 8, "uniform": 0, "two_hop": 8, "links": 4},
            "full_softmax": 0,
            "negatives": 4096,
            "id_dropout": 0.1,
            "blend": 20.0,
            "user_budget": {"recent": 32, "uniform": 96, "two_hop": 0, "links": 0},
            "history_decay": 0.97,
            "structure": {
                "spectral": 256,
                "user_power": 0.4,
                "item_power": 0.4,
                "source_power": 0.3,
                "target_power": 0.3,
                "teacher_dim": 512,
            },
            "teaching": {"views": ("spectral",)},
            "weights": {"teachers": 1.0},
            "epochs": 1.0,
            "popularity_days": 14.0,
        }
    elif ordered:
        recipe |= {
            "user_budget": {"recent": 20, "uniform": 0, "two_hop": 0, "links": 0},
            "history_decay": 0.75,
            "layers": 1,
            # Shorter than content, so that training can still turn them before it knows its edges by heart.
            "structure": {"spectral": 192, "directional": 64, "gain": 0.3},
        }
    else:
        recipe |= {
            # With the popularity of a product beside them, vectors of users and products have 253 components.
            "dim": 252,
            "history": "others",
            "rows": "users",
            "asked_share": 0.3,
            "user_budget": {"recent": 128, "uniform": 0, "two_hop": 0, "links": 0},
            "batch_size": 1024,
            "epochs": 60.0,
            "lr": 3e-4,
            "id_lr": 3e-4,
            "dropout": 0.3,
            "weights": {"teachers": 3.0},
            "layers": 0,
            "repeats": False,
            "bias_off": ("rank", "age"),
            "structure": {
                "spectral": 252,
                "user_power": 0.4,
                "item_power": 0.4,
                "source_power": 0.3,
                "target_power": 0.3,
                "spectrum_power": 0.5,
            },
            "teaching": {"views": ("spectral",)},
        }
    for name, value in setting.items():
        recipe[name] = {**recipe.get(name, {}), **value} if isinstance(value, Mapping) else value
    config = train.Config(**recipe)
    if ordered and events and "warmup_steps" not in setting:
        config = config.model_copy(update={"warmup_steps": warm_up(config, events)})
    return config


def warm_up(config: train.Config, events: int) -> int:
    """Steps before primitives are born, of those that `config` takes on so many events with edges as rows."""
    steps = round(config.epochs * max(1, events // config.batch_size)) if config.epochs else config.steps
    return int(WARM * steps)


def _small(history: History) -> dict[str, Any]:
    """Levels where the default ones have more primitives than half of the entities with events."""
    entities = len(np.unique(history.user)) + len(np.unique(history.product))
    kept = [level for level in train.Config(t0=from_micros(END)).levels if level.k <= entities // 2]
    return {"levels": kept or [Level(k=2, top=1)]}


def names(kind: str, count: int) -> list[str]:
    """External ids of the rows of a history, in order."""
    return [f"{kind[0]}{row:07d}" for row in range(count)]


def graph_of(store: Store, history: History, owners: Sequence[str | None] | None = None) -> ArtifactRef:
    """The graph of a history whose events are purchases of products that `owners` sell."""
    events = _published(store, "events", lambda out: _write_events(out, history, owners))
    config = graph.build.Config(guards=None)
    return _published(store, "graph", lambda out: graph.build.run(config, {"events": events}, out, RunContext()))


def _write_events(out: OutputDir, history: History, owners: Sequence[str | None] | None) -> dict[str, Any]:
    user, product = (np.array(names(*of)) for of in (("user", history.num_users), ("product", history.num_products)))
    ts = END - 1 - np.round(history.age * MICROS_PER_DAY).astype(np.int64)
    count = len(ts)
    given = {
        "event_id": [f"e{row:09d}" for row in range(count)],
        "user_id": user[history.user],
        "product_id": product[history.product],
        "event_type": ["purchase"] * count,
        "ts": ts,
        "known_at": ts,
        "sample_prob": np.ones(count, np.float32),
        "source": ["benchmark"] * count,
    }
    rows = parts.write_events(out, [parts.in_order(_table(EVENTS, given, count))])
    first = int(ts.min()) - 8 * MICROS_PER_DAY  # a training block may begin a week before its first event
    known: dict[str, Any] = {
        "product_id": product,
        "first_seen": np.full(len(product), first),
        "known_at": np.full(len(product), first),
    }
    people = {"user_id": user, "known_at": np.full(len(user), first)}
    shops: dict[str, Any] = {}
    if owners is not None:
        known["advertiser_id"] = pa.array(owners, pa.string())
        sellers = sorted({owner for owner in owners if owner})
        shops = {"advertiser_id": sellers, "known_at": np.full(len(sellers), first)}
    for name, schema in _TABLES.items():
        filled = {"products": known, "users": people, "advertisers": shops}.get(name, {})
        out.write_table(f"{name}.parquet", _table(schema, filled, len(next(iter(filled.values()), []))))
    out.write_table("quarantine.parquet", QUARANTINE.empty_table())
    summary = {"name": "benchmark", "time_kind": "clock", "first_ts": int(ts.min()), "last_ts": int(ts.max())}
    summary |= {"counts": {"purchase": count}, "rows": {"events": rows}, "sample_prob": {}}
    out.write_json("summary.json", summary)
    return summary


def _features_of(store: Store, num_products: int, content: NDArray[np.float32] | None) -> ArtifactRef:
    vectors = np.zeros((num_products, 1), np.float32) if content is None else content

    def write(out: OutputDir) -> dict[str, Any]:
        out.write_table("entities_product.parquet", pa.table({"entity_id": pa.array(names("product", num_products))}))
        out.write_array("content_product.npy", vectors)
        return {}

    return _published(store, "features", write)


def _table(schema: pa.Schema, given: Mapping[str, Any], count: int) -> pa.Table:
    columns = [
        pa.array(given[field.name], field.type) if field.name in given else pa.nulls(count, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _published(store: Store, stage: str, writer: Any) -> ArtifactRef:
    with store.publish(stage, "benchmark", {"inputs": {}, "config": {}, "seed": 0}) as (out, extras):
        extras["metrics"] = writer(out) or {}
    return store.get(stage, "benchmark")
