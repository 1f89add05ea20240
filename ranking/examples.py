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
from pydantic import Field

from data.artifacts import ArtifactRef, OutputDir
from data.context import Metrics, RunContext, StageConfig, UtcTime
from data.errors import BadDataError, UsageError
from data.parts import EVENT_PARTS
from data.schema import EVENT_TYPES, MICROS_PER_DAY, to_micros
from ranking.external import to_external as to_external
from ranking.hashing import stable_hash
from ranking.histories import encode_ids
from ranking.joins import Joins, Row, fill_content, id_hashes
from ranking.labels import Purchases
from ranking.reader import COLUMNS, JOINS, MISSING, STALE

_EVENT_COLUMNS = [
    "event_id", "user_id", "product_id", "advertiser_id", "event_type", "ts", "known_at", "surface", "request_id",
    "sample_prob",
]  # fmt: skip
BATCH_ROWS = 65_536
"""Events read and joined at a time."""


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
    impressions = Impressions.open(config, inputs, surfaces, ctx)
    columns = {name: out.open_array(f"rows/{name}.npy", (total,), kind) for name, kind in COLUMNS.items()}
    counts = {"rows": total, **{f"{join}_{state}": 0 for join in JOINS for state in ("missing", "stale")}}
    conversions: list[pa.Table] = []
    with ctx.progress.step("join examples", total, "rows") as step:

        def joined() -> Iterator[pa.Table]:
            done = 0
            for batch in _impressions(config, inputs["events"]):
                row = impressions.rows(batch)
                for name, column in columns.items():
                    column[done : done + len(batch)] = row[name]
                _count(counts, row)
                conversions.append(impressions.conversions(batch, row))
                done += len(batch)
                step.advance(len(batch))
                yield pa.table({"event_id": batch["event_id"]})

        out.write_batches("ids.parquet", pa.schema([("event_id", pa.string())]), joined())
    out.write_table("conversions.parquet", pa.concat_tables(conversions).combine_chunks())
    splits = [int(np.count_nonzero(columns["split"] == split)) for split in range(3)]
    positives = int(np.count_nonzero(columns["label"]))
    for column in columns.values():
        column.flush()
    _write_joined(config, inputs, impressions, end, out)
    return {**counts, "split_rows": splits, "positives": positives, "conversions": out.rows["conversions.parquet"]}


CONVERSIONS = pa.schema([("event_id", pa.string()), ("label_ts", pa.int64()), ("known_at", pa.int64())])
"""The delayed label, kept apart from the rows because it is known later: first repurchase of a positive row."""


@dataclass(frozen=True)
class Impressions:
    """Impressions as rows: the joins of their time, and what only training knows, labels and splits."""

    config: Config
    surfaces: pa.Array
    joins: Joins
    purchases: Purchases

    @classmethod
    def open(
        cls, config: Config, inputs: Mapping[str, ArtifactRef], surfaces: pa.Array, ctx: RunContext
    ) -> Impressions:
        """Read the four inputs and index them by entity and time."""
        joins = Joins.open(inputs, config.stale_days, ctx)
        bought = _of_types(inputs["events"], config.label_types)
        users, products = joins.vocabularies["user"], joins.vocabularies["product"]
        return cls(config, surfaces, joins, Purchases.build(bought, users, products))

    def rows(self, batch: pa.RecordBatch) -> Row:
        """All columns of `COLUMNS` for a batch of impressions; each reads only what was visible at its time."""
        ts = batch["ts"].to_numpy()
        user, product, advertiser = (
            encode_ids(batch[f"{name}_id"], self.joins.vocabularies[name]) for name in ("user", "product", "advertiser")
        )
        return {
            **self.joins.rows(user, product, advertiser, ts),
            "surface": encode_ids(batch["surface"], self.surfaces),
            "sample_prob": batch["sample_prob"].to_numpy(),
            "event_hash": stable_hash(batch["event_id"]),
            "label": self.purchases.on_visit(batch["request_id"], user, product),
            "split": np.digitize(ts, [to_micros(self.config.t1), to_micros(self.config.t2)]),
        }

    def conversions(self, batch: pa.RecordBatch, row: Row) -> pa.Table:
        """First repurchase within `deep_days` of each positive row that has one."""
        positive = np.flatnonzero(row["label"])
        again, known_at = self.purchases.next_after(
            row["user"][positive], row["product"][positive], row["ts"][positive], self.config.deep_days * MICROS_PER_DAY
        )
        rebought = again >= 0
        ids = batch["event_id"].take(pa.array(positive[rebought]))
        return pa.table({"event_id": ids, "label_ts": again[rebought], "known_at": known_at[rebought]}, CONVERSIONS)


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


def _count(counts: dict[str, int], row: Row) -> None:
    for join in JOINS:
        for state, code in (("missing", MISSING), ("stale", STALE)):
            counts[f"{join}_{state}"] += int(np.count_nonzero(row[f"{join}_status"] == code))


def _write_joined(
    config: Config, inputs: Mapping[str, ArtifactRef], impressions: Impressions, end: int, out: OutputDir
) -> None:
    """Everything the rows point into, so that the artifact stands alone."""
    histories, features, joins = inputs["histories"], inputs["features"], impressions.joins
    for name in ("product", "advertiser", "event_type", "ts", "visible_from", "offsets"):
        out.write_array(f"history/{name}.npy", histories.array(f"{name}.npy"))
    for name in ("users", "products", "advertisers"):
        out.write_table(f"{name}.parquet", histories.table(f"{name}.parquet"))
    for name, hashes in id_hashes(joins, histories, impressions.surfaces).items():
        out.write_array(f"hash/{name}.npy", hashes)
    out.write_array("owner.npy", joins.owner.astype(np.int32))
    shape = (len(joins.owner), features.array("content_product.npy").shape[1])
    target = out.open_array("content.npy", shape, np.float32)
    fill_content(target, features, joins.vocabularies["product"])
    target.flush()
    tokens = joins.tokens
    out.adopt(inputs["user_states"], "states.npy", "user_states.npy")
    out.write_array("tokens/primitive.npy", tokens.primitive)
    out.write_array("tokens/weight.npy", tokens.weight)
    out.write_array("tokens/as_of.npy", tokens.as_of)
    out.write_array("tokens/first_product.npy", tokens.first_rows("product", len(joins.owner)))
    out.write_table("tokens/primitives.parquet", tokens.vocabulary)
    user_model = inputs["user_states"].version("model.safetensors")
    out.write_json("examples.json", _description(config, impressions, end, user_model))


def _description(config: Config, impressions: Impressions, end: int, user_model: str) -> dict[str, Any]:
    tokens = impressions.joins.tokens
    sizes = tokens.vocabulary["level"].to_numpy()
    return {
        "cuts": [to_micros(config.t0), to_micros(config.t1), to_micros(config.t2)],
        "end": end,
        "deep_days": config.deep_days,
        "surfaces": impressions.surfaces.to_pylist(),
        "event_types": list(EVENT_TYPES),
        "user_model": user_model,
        "levels": [
            {"level": level, "start": start, "stop": stop, "size": int(np.count_nonzero(sizes == level))}
            for level, (start, stop) in tokens.levels.items()
        ],
    }
