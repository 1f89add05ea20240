"""Stage examples: one row per product impression from T0 on, with every feature joined as of the impression's time.

Internal ids live in this artifact only; `to_external` writes the same rows in the ids of the outside world.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import Field

from data.artifacts import ArtifactRef, OutputDir
from data.context import Metrics, RunContext, StageConfig, UtcTime
from data.errors import BadDataError, UsageError
from data.parts import EVENT_PARTS
from data.schema import EVENT_TYPES, MICROS_PER_DAY, to_micros
from ranking.asof import AsOf, Ints
from ranking.external import to_external as to_external
from ranking.hashing import stable_hash
from ranking.histories import encode_ids
from ranking.labels import Purchases
from ranking.reader import CATEGORY_DEPTH, COLUMNS, JOINS, MISSING, OK, STALE
from ranking.tokens_asof import TokenRows, read_tokens

_EVENT_COLUMNS = [
    "event_id", "user_id", "product_id", "advertiser_id", "event_type", "ts", "known_at", "surface", "request_id",
    "sample_prob",
]  # fmt: skip
BATCH_ROWS = 65_536
"""Events read and joined at a time."""

_MICROS_PER_HOUR = 3_600_000_000
_EPOCH_WEEKDAY = 3
Row = dict[str, NDArray]


class Config(StageConfig):
    """Cuts, labels and the age at which a joined feature counts as stale."""

    t0: UtcTime = Field(description="rows start here (UTC): the learner has seen nothing later")
    t1: UtcTime = Field(description="validation starts here (UTC)")
    t2: UtcTime = Field(description="the test starts here (UTC)")
    label_types: tuple[str, ...] = Field(
        default=("purchase",), description="event types that, under the impression's request_id, make it a positive"
    )
    deep_days: int = Field(default=28, ge=1, description="window of the deep label 'bought again' [days]")
    stale_days: int = Field(default=28, ge=1, description="age from which a joined feature is marked stale [days]")


def run(config: Config, inputs: Mapping[str, ArtifactRef], out: OutputDir, ctx: RunContext) -> Metrics:
    """Write rows/<column>.npy sorted by (ts, event_id), the arrays they point into, and conversions.parquet.

    Two passes over the events. Memory grows with purchases, histories and token rows (about 60, 40 and 40 bytes
    each), not with impressions, which stream through in batches. Raises UsageError unless t0 < t1 < t2.
    """
    if not config.t0 < config.t1 < config.t2:
        raise UsageError(f"expected t0 < t1 < t2, got {config.t0}, {config.t1}, {config.t2}")
    total, surfaces, end = _survey(config, inputs["events"])
    joins = Joins.open(config, inputs, surfaces, ctx)
    columns = {name: out.open_array(f"rows/{name}.npy", (total,), kind) for name, kind in COLUMNS.items()}
    counts = {"rows": total, **{f"{join}_{state}": 0 for join in JOINS for state in ("missing", "stale")}}
    conversions: list[pa.Table] = []
    with ctx.progress.step("join examples", total, "rows") as step:

        def joined() -> Iterator[pa.Table]:
            done = 0
            for batch in _impressions(config, inputs["events"]):
                row = joins.rows(batch)
                for name, column in columns.items():
                    column[done : done + len(batch)] = row[name]
                _count(counts, row)
                conversions.append(joins.conversions(batch, row))
                done += len(batch)
                step.advance(len(batch))
                yield pa.table({"event_id": batch["event_id"]})

        out.write_batches("ids.parquet", pa.schema([("event_id", pa.string())]), joined())
    out.write_table("conversions.parquet", pa.concat_tables(conversions).combine_chunks())
    splits = [int(np.count_nonzero(columns["split"] == split)) for split in range(3)]
    positives = int(np.count_nonzero(columns["label"]))
    for column in columns.values():
        column.flush()
    _write_joined(config, inputs, joins, end, out)
    return {**counts, "split_rows": splits, "positives": positives, "conversions": out.rows["conversions.parquet"]}


CONVERSIONS = pa.schema([("event_id", pa.string()), ("label_ts", pa.int64()), ("known_at", pa.int64())])
"""The delayed label, kept apart from the rows because it is known later: first repurchase of a positive row."""


@dataclass(frozen=True)
class Joins:
    """Every index a row is joined against; built once, then read by batch."""

    config: Config
    vocabularies: dict[str, pa.Array]
    surfaces: pa.Array
    owner: Ints
    product_known: Ints
    has_content: NDArray[np.bool_]
    history: AsOf
    history_ts: Ints
    product_events: AsOf
    pair_events: AsOf
    pair_ts: Ints
    tokens: TokenRows
    states: AsOf
    state_row: Ints
    purchases: Purchases

    @classmethod
    def open(cls, config: Config, inputs: Mapping[str, ArtifactRef], surfaces: pa.Array, ctx: RunContext) -> Joins:
        """Read the inputs and index them by entity and time."""
        histories = inputs["histories"]
        products = histories.table("products.parquet")
        vocabularies = {
            "user": histories.table("users.parquet")["user_id"].combine_chunks(),
            "product": products["product_id"].combine_chunks(),
            "advertiser": histories.table("advertisers.parquet")["advertiser_id"].combine_chunks(),
        }
        offsets, visible = histories.array("offsets.npy"), histories.array("visible_from.npy")
        item, ts = histories.array("product.npy").astype(np.int64), histories.array("ts.npy")
        user = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        with_item = np.flatnonzero(item >= 0)
        product_events, _ = AsOf.build(item[with_item], visible[with_item])
        pair = user[with_item] * len(products) + item[with_item]
        pair_events, pair_order = AsOf.build(pair, visible[with_item])
        made = inputs["user_states"].table("rows.parquet")
        states, state_order = AsOf.build(encode_ids(made["user_id"], vocabularies["user"]), made["as_of"].to_numpy())
        return cls(
            config=config,
            vocabularies=vocabularies,
            surfaces=surfaces,
            owner=encode_ids(products["advertiser_id"], vocabularies["advertiser"]),
            product_known=products["known_at"].to_numpy(),
            has_content=_content_rows(inputs["features"], vocabularies["product"])[1],
            history=AsOf(np.arange(len(offsets) - 1), offsets, visible),
            history_ts=ts,
            product_events=product_events,
            pair_events=pair_events,
            pair_ts=ts[with_item][pair_order],
            tokens=read_tokens(inputs["tokens"], vocabularies, ctx),
            states=states,
            state_row=made["row"].to_numpy()[state_order],
            purchases=Purchases.build(
                _of_types(inputs["events"], config.label_types), vocabularies["user"], vocabularies["product"]
            ),
        )

    def rows(self, batch: pa.RecordBatch) -> Row:
        """All columns of `COLUMNS` for a batch of impressions; each reads only what was visible at its time."""
        ts = batch["ts"].to_numpy()
        user, product = (encode_ids(batch[f"{name}_id"], self.vocabularies[name]) for name in ("user", "product"))
        named = encode_ids(batch["advertiser_id"], self.vocabularies["advertiser"])
        advertiser = np.where(named >= 0, named, np.where(product >= 0, self.owner[product], -1))
        row: Row = {
            "user": user,
            "product": product,
            "advertiser": advertiser,
            "ts": ts,
            "surface": encode_ids(batch["surface"], self.surfaces),
            "sample_prob": batch["sample_prob"].to_numpy(),
            "event_hash": stable_hash(batch["event_id"]),
            "label": self.purchases.on_visit(batch["request_id"], user, product),
            "split": np.digitize(ts, [to_micros(self.config.t1), to_micros(self.config.t2)]),
            "hour": ts // _MICROS_PER_HOUR % 24,
            "weekday": (ts // MICROS_PER_DAY + _EPOCH_WEEKDAY) % 7,
        }
        row |= self._history(user, product, ts)
        row |= self._content(product, ts)
        row |= self._states(user, ts)
        for entity_type, entity in (("user", user), ("product", product), ("advertiser", advertiser)):
            row |= self._tokens(entity_type, entity, ts)
        return row

    def conversions(self, batch: pa.RecordBatch, row: Row) -> pa.Table:
        """First repurchase within `deep_days` of each positive row that has one."""
        positive = np.flatnonzero(row["label"])
        again, known_at = self.purchases.next_after(
            row["user"][positive], row["product"][positive], row["ts"][positive], self.config.deep_days * MICROS_PER_DAY
        )
        rebought = again >= 0
        ids = batch["event_id"].take(pa.array(positive[rebought]))
        return pa.table({"event_id": ids, "label_ts": again[rebought], "known_at": known_at[rebought]}, CONVERSIONS)

    def _history(self, user: Ints, product: Ints, ts: Ints) -> Row:
        start, end = self.history.spans(user, ts)
        last_ts = _at(self.history_ts, np.where(end > start, end - 1, -1))
        _, product_count = _span_count(self.product_events, product, ts)
        pair = np.where((user >= 0) & (product >= 0), user * len(self.owner) + product, -1)
        pair_end, pair_count = _span_count(self.pair_events, pair, ts)
        pair_last = _at(self.pair_ts, np.where(pair_count > 0, pair_end - 1, -1))
        return {
            "history_start": start,
            "history_end": end,
            "product_events": product_count,
            "pair_events": pair_count,
            "visit_age": _days(ts, last_ts),
            "pair_age": _days(ts, pair_last),
            "history_status": self._status(end > start, ts, last_ts),
        }

    def _content(self, product: Ints, ts: Ints) -> Row:
        there = (product >= 0) & self.has_content[product] & (self.product_known[product] <= ts)
        return {"content": np.where(there, product, -1), "content_status": np.where(there, OK, MISSING)}

    def _states(self, user: Ints, ts: Ints) -> Row:
        found = self.states.latest(user, ts)
        status = self._status(found >= 0, ts, _at(self.states.times, found))
        row = np.where(found >= 0, _at(self.state_row, found), -1)
        return {"user_states": row, "user_states_status": status}

    def _tokens(self, entity_type: str, entity: Ints, ts: Ints) -> Row:
        found = self.tokens.find(entity_type, entity, ts)
        status = self._status(found >= 0, ts, _at(self.tokens.as_of, found))
        return {f"{entity_type}_tokens": found, f"{entity_type}_tokens_status": status}

    def _status(self, found: NDArray[np.bool_], ts: Ints, made: Ints) -> NDArray:
        old = ts - made > self.config.stale_days * MICROS_PER_DAY
        return np.where(found, np.where(old, STALE, OK), MISSING)


def _at(values: Ints, rows: Ints) -> Ints:
    """values[rows], 0 where rows is -1."""
    if len(values) == 0:
        return np.zeros(len(rows), np.int64)
    return np.where(rows >= 0, values[rows], 0)


def _days(ts: Ints, before: Ints) -> NDArray[np.float32]:
    age: NDArray[np.float32] = np.where(before != 0, (ts - before) / MICROS_PER_DAY, -1).astype(np.float32)
    return age


def _span_count(index: AsOf, keys: Ints, ts: Ints) -> tuple[Ints, Ints]:
    start, end = index.spans(keys, ts)
    return end, end - start


def _survey(config: Config, events: ArtifactRef) -> tuple[int, pa.Array, int]:
    """Number of rows, their surfaces, and the time [us] of the last; raises BadDataError when there is none."""
    total, end, surfaces = 0, 0, pa.array([], pa.string())
    for batch in _impressions(config, events, ["event_type", "ts", "product_id", "surface"]):
        total += len(batch)
        end = max(end, pc.max(batch["ts"]).as_py())
        surfaces = pa.concat_arrays([surfaces, batch["surface"].unique()]).unique()
    if not total:
        raise BadDataError(f"expected product impressions from {config.t0} on, got none: move t0 or check the events")
    surfaces = surfaces.drop_null()
    return total, surfaces.take(pc.sort_indices(surfaces)), end


def _impressions(config: Config, events: ArtifactRef, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    start = to_micros(config.t0)
    for batch in events.batches(EVENT_PARTS, columns or _EVENT_COLUMNS, BATCH_ROWS):
        chosen = pc.and_(pc.equal(batch["event_type"], "impression"), pc.is_valid(batch["product_id"]))
        kept = batch.filter(pc.and_(chosen, pc.greater_equal(batch["ts"], start)))
        if len(kept):
            yield kept


def _of_types(events: ArtifactRef, types: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    names = ["user_id", "product_id", "request_id", "ts", "known_at"]
    for batch in events.batches(EVENT_PARTS, [*names, "event_type"]):
        yield batch.filter(pc.is_in(batch["event_type"], value_set=pa.array(types, pa.string()))).select(names)


def _content_rows(features: ArtifactRef, products: pa.Array) -> tuple[Ints, NDArray[np.bool_]]:
    """Row of each product in content_product.npy, and whether any modality of it is present."""
    rows = encode_ids(products, features.table("entities_product.parquet", ["entity_id"])["entity_id"].combine_chunks())
    mask = np.asarray(features.array("mask_product.npy")).any(axis=1).astype(bool)
    return rows, (rows >= 0) & mask[rows]


def _count(counts: dict[str, int], row: Row) -> None:
    for join in JOINS:
        for state, code in (("missing", MISSING), ("stale", STALE)):
            counts[f"{join}_{state}"] += int(np.count_nonzero(row[f"{join}_status"] == code))


def _write_joined(config: Config, inputs: Mapping[str, ArtifactRef], joins: Joins, end: int, out: OutputDir) -> None:
    """Everything the rows point into, so that the artifact stands alone."""
    histories, features, tokens = inputs["histories"], inputs["features"], joins.tokens
    for name in ("product", "advertiser", "event_type", "ts", "visible_from"):
        out.write_array(f"history/{name}.npy", histories.array(f"{name}.npy"))
    for name in ("users", "products", "advertisers"):
        out.write_table(f"{name}.parquet", histories.table(f"{name}.parquet"))
    for name, ids in joins.vocabularies.items():
        out.write_array(f"hash/{name}.npy", stable_hash(ids))
    out.write_array("hash/surface.npy", stable_hash(joins.surfaces))
    out.write_array(
        "hash/category.npy", _category_hashes(histories.table("products.parquet", ["category"])["category"])
    )
    out.write_array("owner.npy", joins.owner.astype(np.int32))
    content, (rows, there) = (
        features.array("content_product.npy"),
        _content_rows(features, joins.vocabularies["product"]),
    )
    target = out.open_array("content.npy", (len(rows), content.shape[1]), np.float32)
    target[there] = content[rows[there]]
    target.flush()
    out.adopt(inputs["user_states"], "states.npy", "user_states.npy")
    out.write_array("tokens/primitive.npy", tokens.primitive)
    out.write_array("tokens/weight.npy", tokens.weight)
    out.write_array("tokens/as_of.npy", tokens.as_of)
    out.write_table("tokens/primitives.parquet", tokens.vocabulary)
    out.write_json("examples.json", _description(config, joins, end))


def _description(config: Config, joins: Joins, end: int) -> dict[str, Any]:
    sizes = joins.tokens.vocabulary["level"].to_numpy()
    return {
        "cuts": [to_micros(config.t0), to_micros(config.t1), to_micros(config.t2)],
        "end": end,
        "deep_days": config.deep_days,
        "surfaces": joins.surfaces.to_pylist(),
        "event_types": list(EVENT_TYPES),
        "levels": [
            {"level": level, "start": start, "stop": stop, "size": int(np.count_nonzero(sizes == level))}
            for level, (start, stop) in joins.tokens.levels.items()
        ],
    }


def _category_hashes(paths: pa.ChunkedArray) -> NDArray[np.uint64]:
    """uint64 (products, CATEGORY_DEPTH): a hash per prefix of the category path, 0 below its end."""
    hashes = np.zeros((len(paths), CATEGORY_DEPTH), np.uint64)
    listed = [path or [] for path in paths.to_pylist()]
    for depth in range(CATEGORY_DEPTH):
        deep = [row for row, path in enumerate(listed) if len(path) > depth]
        prefixes = pa.array([" > ".join(listed[row][: depth + 1]) for row in deep], pa.string())
        hashes[deep, depth] = stable_hash(prefixes)
    return hashes
