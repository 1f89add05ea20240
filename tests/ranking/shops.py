"""A small shop whose events, features and tokens are written as artifacts, for the ranker's tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data import parts
from data.artifacts import ArtifactRef, Store
from data.context import RunContext
from data.schema import ADVERTISERS, EVENTS, MICROS_PER_DAY, PRODUCTS, TOKENS, USERS, conform, to_micros
from ranking import examples, histories, user_states
from ranking.user_model import UserArchitecture
from ranking.user_training import UserSchedule

T0 = datetime(2024, 3, 4, tzinfo=UTC)
T1, T2 = T0 + timedelta(days=40), T0 + timedelta(days=50)
CUTS = {"t0": T0, "t1": T1, "t2": T2}
DAY = MICROS_PER_DAY
START = to_micros(T0) - 30 * DAY
CONTENT_DIM = 5
SMALL_MODEL = UserArchitecture(
    width=8, layers=1, seeds=2, max_events=12, product_buckets=64, advertiser_buckets=16, dropout=0.0
)
SHORT = UserSchedule(epochs=1, batch_users=32, negatives=8, valid_users=16, checks=1)


@dataclass(frozen=True)
class Shop:
    """Tables of a shop; `publish` writes them sorted as the events stage does."""

    events: pa.Table
    products: pa.Table
    users: pa.Table
    advertisers: pa.Table
    tokens: pa.Table
    content: dict[str, np.ndarray]

    def before(self, t: int) -> Shop:
        """The shop as it was at t: later events are gone, and so is what only they mention."""
        events = self.events.filter(pc.less(self.events["ts"], t))
        products = self.products.filter(pc.is_in(self.products["product_id"], events["product_id"].combine_chunks()))
        users = self.users.filter(pc.is_in(self.users["user_id"], events["user_id"].combine_chunks()))
        tokens = self.tokens.filter(pc.less(self.tokens["as_of"], t))
        return replace(self, events=events, products=products, users=users, tokens=tokens)

    def permuted(self, seed: int) -> Shop:
        """The same rows in another order."""
        rng = np.random.default_rng(seed)
        names = ("events", "products", "users", "advertisers", "tokens")
        tables = {name: getattr(self, name) for name in names}
        return replace(self, **{name: table.take(rng.permutation(len(table))) for name, table in tables.items()})


def event(
    kind: str, user: str, product: str | None, ts: int, request: str | None = None, **more: Any
) -> dict[str, Any]:
    """One event row; `known_at` is `ts` unless given."""
    row: dict[str, Any] = dict.fromkeys(EVENTS.names)
    row |= {"event_id": f"{kind[0]}-{user}-{product}-{ts}", "user_id": user, "product_id": product, "event_type": kind}
    row |= {"ts": ts, "known_at": ts, "request_id": request, "sample_prob": 1.0, "source": "test"}
    return row | more


def token(kind: str, entity: str, as_of: int, bag: Mapping[str, float]) -> list[dict[str, Any]]:
    """Token rows of one entity at one date; keys such as "L2-0003" name level and primitive."""
    ranks: dict[int, int] = {}
    rows = []
    for primitive, weight in sorted(bag.items(), key=lambda item: (item[0][:2], -item[1])):
        level = int(primitive[1])
        ranks[level] = ranks.get(level, -1) + 1
        row = {"entity_id": entity, "entity_type": kind, "level": level, "primitive_id": primitive, "weight": weight}
        rows.append(
            row | {"residual": 0.0, "rank": ranks[level], "vocab_version": "v", "model_version": "m", "as_of": as_of}
        )
    return rows


def shop_of(events: list[dict[str, Any]], tokens: list[dict[str, Any]], seed: int = 0) -> Shop:
    """A shop of the products and users that the events mention; product p-<i> belongs to advertiser a-<i mod 4>."""
    products = sorted({row["product_id"] for row in events if row["product_id"]})
    users = sorted({row["user_id"] for row in events})
    listed = [
        {"product_id": p, "advertiser_id": _owner(p), "title": p, "category": ["Food", f"Shelf {int(p[2:]) % 3}"]}
        | {"first_seen": START, "known_at": START}
        for p in products
    ]
    names = {f"a-{i}" for i in range(4)} | {row["advertiser_id"] for row in events if row["advertiser_id"]}
    rng = np.random.default_rng(seed)
    return Shop(
        events=conform(pa.Table.from_pylist(events, EVENTS), EVENTS),
        products=pa.Table.from_pylist(listed, PRODUCTS),
        users=pa.Table.from_pylist([{"user_id": u, "known_at": START} for u in users], USERS),
        advertisers=pa.Table.from_pylist([{"advertiser_id": a, "known_at": START} for a in sorted(names)], ADVERTISERS),
        tokens=pa.Table.from_pylist(tokens, TOKENS),
        content={p: rng.normal(size=CONTENT_DIM).astype(np.float32) for p in products},
    )


def _owner(product: str) -> str:
    return f"a-{int(product[2:]) % 4}"


def random_shop(users: int = 24, products: int = 30, days: int = 90, seed: int = 0) -> Shop:
    """Visits at random: each shows some products and buys a few; new products at days 65 and 80; tokens from T0 on."""
    rng = np.random.default_rng(seed)
    events: list[dict[str, Any]] = []
    for user in range(users):
        for visit in sorted(rng.choice(days * 24, size=14, replace=False)):
            ts = START + int(visit) * DAY // 24
            request = f"r-{user}-{visit}"
            listed = products if visit > 80 * 24 else products - 3 if visit > 65 * 24 else products // 2
            for known in rng.choice(listed, size=5, replace=False).tolist():
                bought = rng.random() < (0.8 if known % 3 == 0 else 0.1)
                if bought:
                    events.append(event("purchase", f"u-{user}", f"p-{known}", ts, request))
                if not bought or rng.random() < 0.8:
                    prob = 1.0 if bought else 0.25
                    surface = ("display:1", "mailer:A", "display:2+mailer:A")[int(rng.integers(3))]
                    shown = event(
                        "impression", f"u-{user}", f"p-{known}", ts, request, sample_prob=prob, surface=surface
                    )
                    events.append(shown)
    tokens = []
    for as_of in range(to_micros(T0), START + days * DAY, 14 * DAY):
        for kind, letter, count in (("user", "u", users), ("product", "p", products), ("advertiser", "a", 4)):
            for number in range(count):
                if rng.random() < 0.7:
                    bag = {
                        f"L1-{number % 3:04d}": 0.75,
                        f"L1-{(number + 1) % 3:04d}": 0.25,
                        f"L2-{number % 5:04d}": 1.0,
                    }
                    tokens += token(kind, f"{letter}-{number}", as_of, bag)
    return shop_of(events, tokens, seed)


def publish(store: Path, stage: str, write: Callable[[Any], Any], key: str = "k") -> ArtifactRef:
    """Write one artifact of a stage into `store`."""
    with Store(store).publish(stage, key, {"inputs": {}}) as (out, extras):
        extras["metrics"] = write(out)
    return Store(store).get(stage, key)


def publish_shop(shop: Shop, store: Path) -> dict[str, ArtifactRef]:
    """The artifacts `events`, `features` and `tokens` of a shop."""

    def events(out: Any) -> None:
        parts.write_events(out, [parts.in_order(shop.events)])
        keys = {"products": ("product_id",), "users": ("user_id",)}
        for name, key in (keys | {"advertisers": ("advertiser_id",)}).items():
            out.write_table(f"{name}.parquet", getattr(shop, name).sort_by([(column, "ascending") for column in key]))

    def features(out: Any) -> None:
        ids = sorted(shop.content)
        out.write_table("entities_product.parquet", pa.table({"entity_id": pa.array(ids, pa.string())}))
        vectors = np.array([shop.content[p] for p in ids], np.float32).reshape(len(ids), CONTENT_DIM)
        out.write_array("content_product.npy", vectors)
        shown = np.array([int(p[2:]) % 7 != 6 for p in ids], bool)
        out.write_array("mask_product.npy", np.stack([shown, *3 * [np.zeros(len(ids), bool)]], axis=1))

    def tokens(out: Any) -> None:
        out.write_table("tokens/all.parquet", shop.tokens)

    return {write.__name__: publish(store, write.__name__, write) for write in (events, features, tokens)}


def run_stage(
    store: Path, stage: str, module: ModuleType, config: Any, inputs: Mapping[str, ArtifactRef], seed: int = 0
) -> ArtifactRef:
    """Run one stage function into `store`."""
    ctx = RunContext(seed=seed, threads=1)
    return publish(store, stage, lambda out: module.run(config, inputs, out, ctx))


def make_examples(shop: Shop, store: Path, **config: Any) -> ArtifactRef:
    """Histories, user states and examples of a shop."""
    inputs = publish_shop(shop, store)
    inputs["histories"] = run_stage(store, "histories", histories, histories.Config(), inputs)
    model = user_states.Config(t0=config.get("t0", T0), architecture=SMALL_MODEL, schedule=SHORT)
    inputs["user_states"] = run_stage(store, "user_states", user_states, model, inputs)
    return run_stage(store, "examples", examples, examples.Config(**(CUTS | config)), inputs)
