"""One log with and without its bots, through the real stages to the products that people would be shown."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data.artifacts import ArtifactRef, Store
from data.context import RunContext
from data.generator import write
from data.generator.config import Config
from data.parts import EVENT_PARTS
from data.schema import to_micros
from graph import build, guards
from graph.store import DEFAULT_ENGAGEMENT, index_in
from hierarchy import embed, train
from hierarchy.asof import read_as_of
from tests.fixtures.artifacts import make_ref
from tests.hierarchy.small_learner import write_features

TOP = 20
_FOUND = ("click", "cart", "purchase")
_LEARNER: dict[str, Any] = {
    "levels": [{"k": 8, "top": 2}, {"k": 32, "top": 4}],
    "dim": 32,
    "heads": 2,
    "layers": 1,
    "user_budget": {"recent": 8, "uniform": 8, "two_hop": 0, "links": 0},
    "item_budget": {"recent": 4, "uniform": 0, "two_hop": 4, "links": 3},
    "warmup_steps": 40,
    "batch_size": 256,
    "negatives": 128,
    "distillation": {"seeds": 32, "queue": 512, "every": 10},
}


@dataclass(frozen=True)
class Figures:
    """Of people as of T0: `exposure`, the share of their top-20 slots that hold a target; `recall`, Recall@20 of what
    they click, cart or buy in the week after."""

    exposure: float
    recall: float


BEHAVIOURS: dict[str, dict[str, Any]] = {
    "burst": {"bot_behaviours": ("burst",), "bot_events": 150, "bot_days": 0.4, "bot_minutes": 4.0},
    "slow burst": {"bot_behaviours": ("burst",), "bot_events": 80, "bot_days": 0.7, "bot_minutes": 15.0},
    "focused": {"bot_behaviours": ("focused",), "bot_events": 90, "bot_days": 0.8, "bot_target_share": 0.8},
    "sleepless": {"bot_behaviours": ("focused",), "bot_events": 70, "bot_days": 0.8, "bot_hours": 22.0},
    "quiet": {"bot_behaviours": ("focused",), "bot_events": 30, "bot_days": 0.8, "bot_target_share": 0.8},
}
"""What bots do for their ten targets. The quiet ones keep below every limit: the price of judging single days."""


def log_config(seed: int, **changes: Any) -> Config:
    """A month of a shop in which 1 % of the users are bots, as yet idle."""
    size = {"users": 2000, "products": 1000, "advertisers": 80, "events": 250_000, "days": 28, "user_skew": 0.5}
    return Config(**{**size, "bots": 0.01, "bot_events": 0, "seed": seed, **changes})


class World:
    """The artifacts of one log below `folder`; made on first use and kept."""

    def __init__(self, config: Config, folder: Path, steps: int = 100) -> None:
        self.config, self.steps = config, steps
        self.store = Store(folder)
        self.t0 = config.start + timedelta(days=config.days - 7)

    def figures(self, behaviour: str | None, limits: guards.Config | None, seed: int = 0) -> Figures:
        """Build, train with `seed` and embed, with bots of one of BEHAVIOURS or without any."""
        events, graph = self._events(behaviour), self._graph(behaviour, limits)
        inputs = {"graph": graph, "features": self._features(events)}
        key = f"{_content(graph)}-{seed}"  # equal graphs are learned from once
        learner = train.Config(t0=self.t0, steps=self.steps, **_LEARNER)
        inputs["learner"] = self._stage("learner", key, train, learner, inputs, seed)
        embeddings = self._stage("embeddings", key, embed, embed.Config(t0=self.t0, every_days=365), inputs, seed)
        return _figures(self._events(None), embeddings, to_micros(self.t0))

    def cut(self, behaviour: str | None, limits: guards.Config) -> float:
        """Share of all engaged events of the log that the guards cut."""
        counts = self._graph(behaviour, limits).metrics["guards"]
        cut = sum(rule.get(name, 0) for rule in counts["cut"].values() for name in DEFAULT_ENGAGEMENT)
        return float(cut / sum(counts["seen"].get(name, 0) for name in DEFAULT_ENGAGEMENT))

    def _graph(self, behaviour: str | None, limits: guards.Config | None) -> ArtifactRef:
        events = self._events(behaviour)
        key = f"{events.key}-{'unguarded' if limits is None else 'guarded'}"
        return self._stage("graph", key, build, build.Config(guards=limits), {"events": events})

    def _events(self, behaviour: str | None) -> ArtifactRef:
        config = Config(**{**self.config.model_dump(), **(BEHAVIOURS[behaviour] if behaviour else {})})
        key = (behaviour or "clean").replace(" ", "-")
        return self._made("events", key, lambda out: write.artifact(config, out))

    def _features(self, events: ArtifactRef) -> ArtifactRef:
        products = events.table("products.parquet", ["product_id", "advertiser_id", "category"]).to_pylist()
        return self._made("features", "all", lambda out: write_features(products, out))

    def _stage(
        self, stage: str, key: str, module: Any, config: Any, inputs: dict[str, ArtifactRef], seed: int = 0
    ) -> ArtifactRef:
        ctx = RunContext(seed=seed, threads=1)
        return self._made(stage, key, lambda out: module.run(config, inputs, out, ctx))

    def _made(self, stage: str, key: str, writer: Any) -> ArtifactRef:
        return self.store.find(stage, key) or make_ref(self.store, stage, writer, key)


def _content(ref: ArtifactRef) -> str:
    """A key that depends on the bytes of an artifact's arrays and tables alone."""
    files = {name: listed["sha256"] for name, listed in ref.manifest["files"].items() if not name.endswith(".json")}
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:20]


def _figures(people_alone: ArtifactRef, embeddings: ArtifactRef, t0: int) -> Figures:
    """`people_alone` is the log without the bots' events: what people really do next."""
    users, products = (read_as_of(embeddings, kind, t0) for kind in ("user", "product"))
    scores = np.max(users.vectors @ products.vectors[:, 0].T, axis=1) + products.popularity
    shown = np.argpartition(-scores, TOP, axis=1)[:, :TOP]
    targets = pa.array(people_alone.json("truth/facts.json")["targets"], pa.string())
    pushed = pc.is_in(products.entity_id, targets).to_numpy(zero_copy_only=False)
    bots = people_alone.table("truth/bots.parquet")["user_id"].combine_chunks()
    real = pc.invert(pc.is_in(users.entity_id, bots)).to_numpy(zero_copy_only=False)
    wanted = _next_week(people_alone, users.entity_id, products.entity_id, t0)
    asked = real & wanted.any(axis=1)
    hits = np.take_along_axis(wanted, shown, axis=1).sum(axis=1)[asked]
    recall = hits / np.minimum(wanted[asked].sum(axis=1), TOP)
    return Figures(exposure=float(pushed[shown[real]].mean()), recall=float(recall.mean()))


def _next_week(events: ArtifactRef, users: pa.Array, products: pa.Array, t0: int) -> NDArray[np.bool_]:
    """What each user clicks, carts or buys in the week from `t0` on, bool (users, products)."""
    wanted = np.zeros((len(users), len(products)), bool)
    for batch in events.batches(EVENT_PARTS, ["user_id", "product_id", "event_type", "ts"]):
        chosen = pc.and_(pc.is_in(batch["event_type"], pa.array(_FOUND)), pc.greater_equal(batch["ts"], t0))
        rows = batch.filter(chosen)
        user, product = index_in(rows["user_id"], users), index_in(rows["product_id"], products)
        known = (user >= 0) & (product >= 0)
        wanted[user[known], product[known]] = True
    return wanted
