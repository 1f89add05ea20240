"""The synthetic shop with made-up content, and a learner small enough to train in a second."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import graph.build
from data import synthetic
from data.artifacts import ArtifactRef, OutputDir, Store
from data.context import RunContext
from data.schema import to_micros
from hierarchy import embed, train
from hierarchy.kmeans import unit
from hierarchy.optimizer import descend as descend_along
from hierarchy.trainer import Trainer
from tests.fixtures import worlds
from tests.fixtures.artifacts import make_ref

CONTENT_DIM = 12
T0, T1, T2 = synthetic.cuts()
CONFIG: dict[str, Any] = {
    "t0": T0,
    "levels": [{"k": 4, "top": 2}, {"k": 8, "top": 2}],
    "dim": 16,
    "heads": 2,
    "user_budget": {"recent": 4, "uniform": 4, "two_hop": 0, "links": 1},
    "item_budget": {"recent": 2, "uniform": 0, "two_hop": 2, "links": 3},
    "steps": 12,
    "warmup_steps": 4,
    "batch_size": 24,
    "negatives": 16,
    "advertiser_negatives": 4,
    "distillation": {"seeds": 12, "queue": 64, "every": 1},
    "reseed_every": 5,
    "log_every": 1,
    "checkpoint_every": 5,
}


def shop(
    store: Store,
    until: int | None = None,
    key: str = "test",
    edit: Callable[[pa.Table], pa.Table] | None = None,
) -> dict[str, ArtifactRef]:
    """Artifacts `graph` and `features` of the synthetic shop; `until` [us] drops what happened from then on.

    `edit` changes the events beforehand.
    """
    tables = worlds.world()
    whole = until is None and edit is None
    built = worlds.begin(store, key)["graph"] if whole else _graph(store, _changed(tables, until, edit), key)
    return {
        "graph": built,
        "features": make_ref(store, "features", lambda out: write_features(tables["products"].to_pylist(), out), key),
    }


def _changed(
    tables: dict[str, pa.Table], until: int | None, edit: Callable[[pa.Table], pa.Table] | None
) -> dict[str, pa.Table]:
    events = tables["events"] if edit is None else edit(tables["events"])
    if until is not None:
        events = events.filter(pc.less(events["known_at"], until))
    return {**tables, "events": events}


def _graph(store: Store, tables: dict[str, pa.Table], key: str) -> ArtifactRef:
    events = make_ref(store, "events", lambda out: synthetic.write_events(tables, out), key)
    config, ctx = graph.build.Config(), RunContext(threads=1)
    return make_ref(store, "graph", lambda out: graph.build.run(config, {"events": events}, out, ctx), key)


def trained(store: Store, inputs: dict[str, ArtifactRef], key: str = "test", **changes: Any) -> ArtifactRef:
    """A learner trained for a dozen steps."""
    config = train.Config(**{**CONFIG, **changes})
    return make_ref(store, "learner", lambda out: train.run(config, inputs, out, RunContext(threads=1)), key)


def prepared(inputs: dict[str, ArtifactRef], **changes: Any) -> Trainer:
    """Its trainer before the first step."""
    return train.prepare(train.Config(**{**CONFIG, **changes}), inputs, RunContext(threads=1))[0]


def descend(trainer: Trainer, terms: dict[str, Any]) -> None:
    """One step against loss terms."""
    descend_along(trainer.optimizer, trainer.student, trainer._gradients(terms), trainer.config.clip_norm)


@contextmanager
def killed(at: int) -> Iterator[None]:
    """Within it a training dies when step `at` is due, as if interrupted, and that it does is asserted."""
    step = Trainer.step

    def dies(self: Trainer, number: int, given: Any) -> Any:
        if number == at:
            raise KeyboardInterrupt
        return step(self, number, given)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Trainer, "step", dies)
        with pytest.raises(KeyboardInterrupt):
            yield


def embedded(store: Store, inputs: dict[str, ArtifactRef], key: str = "test", **changes: Any) -> ArtifactRef:
    """Embeddings on the weekly grid; `inputs` holds graph, features and learner."""
    config = embed.Config(t0=T0, **changes)
    return make_ref(store, "embeddings", lambda out: embed.run(config, inputs, out, RunContext(threads=1)), key)


def before(moment: Any) -> int:
    """`moment` in microseconds."""
    return to_micros(moment)


def write_features(products: list[dict[str, Any]], out: OutputDir) -> None:
    """Content of a product: its department and type, with a little of its own. Nothing depends on the events.

    Its parts are two halves of that content, one as text and one as pictures.
    """
    content = {row["product_id"]: sum(_direction(part) for part in row["category"]) for row in products}
    content = {name: vector + 0.3 * _direction(name) for name, vector in content.items()}
    owned: dict[str, list[np.ndarray]] = {}
    for row in products:
        owned.setdefault(row["advertiser_id"], []).append(content[row["product_id"]])
    paths = {" > ".join(row["category"][: depth + 1]) for row in products for depth in range(len(row["category"]))}
    vectors = {
        "product": content,
        "advertiser": {name: np.mean(parts, axis=0) for name, parts in owned.items()},
        "category": {path: sum(_direction(part) for part in path.split(" > ")) for path in paths},
    }
    for kind, found in vectors.items():
        names = sorted(found)
        out.write_table(f"entities_{kind}.parquet", pa.table({"entity_id": pa.array(names, pa.string())}))
        vectors_of = unit(np.array([found[name] for name in names], np.float32))
        first = np.arange(CONTENT_DIM) < CONTENT_DIM // 2
        out.write_array(f"content_{kind}.npy", vectors_of)
        out.write_array(f"parts_{kind}.npy", np.stack([vectors_of * first, vectors_of * ~first], axis=1))
        out.write_array(f"mask_{kind}.npy", np.tile([True, True, False, False], (len(names), 1)))
    out.write_json("encoder.json", {"modalities": ["text", "image"], "weights": {"text": 1.0, "image": 1.0}})


def _direction(name: str) -> np.ndarray:
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    return np.random.default_rng(seed).standard_normal(CONTENT_DIM)
