"""Stage histories: each user's engagement in the order in which it became visible, as memory-mapped jagged arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import Field

from data.artifacts import ArtifactRef, OutputDir
from data.context import Metrics, RunContext, StageConfig
from data.errors import UsageError, nearest
from data.parts import EVENT_PARTS
from data.schema import EVENT_TYPES, visible_from

_COLUMNS = ["user_id", "product_id", "advertiser_id", "event_type", "ts", "known_at"]
_CODES = {"user": np.int32, "product": np.int32, "advertiser": np.int32, "event_type": np.int8}


class Config(StageConfig):
    """Which events make a history."""

    event_types: tuple[str, ...] = Field(
        default=("view", "click", "cart", "purchase", "conversion", "interested"),
        description="event types that enter a history; impressions are left out because the user did not act",
    )


def run(config: Config, inputs: Mapping[str, ArtifactRef], out: OutputDir, ctx: RunContext) -> Metrics:
    """Write offsets.npy (users + 1) and product, advertiser, event_type, ts, visible_from .npy (events,), with id maps.

    Row i of users.parquet, products.parquet and advertisers.parquet is internal id i; -1 stands for none. A
    user's events are sorted by visible_from, ties as in `events`. Memory: about 40 bytes per event kept; time
    grows with the events read. Raises UsageError for an unknown event type.
    """
    for name in config.event_types:
        if name not in EVENT_TYPES:
            raise UsageError(f"histories: unknown event type {name!r}: {nearest(name, EVENT_TYPES)}")
    events = inputs["events"]
    vocabularies = _write_vocabularies(events, out)
    columns = _encode(events, config.event_types, vocabularies, ctx)
    order = np.lexsort((columns["visible_from"], columns["user"]))
    offsets = np.searchsorted(columns["user"][order], np.arange(len(vocabularies["user"]) + 1))
    out.write_array("offsets.npy", offsets.astype(np.int64))
    for name in ("product", "advertiser", "event_type", "ts", "visible_from"):
        out.write_array(f"{name}.npy", columns[name][order])
    longest = int(np.diff(offsets).max(initial=0))
    return {"users": len(offsets) - 1, "events": len(order), "longest": longest}


def encode_ids(ids: pa.Array | pa.ChunkedArray, vocabulary: pa.Array) -> NDArray[np.int64]:
    """int64 (n,): row of each id in `vocabulary`, -1 for a null or unknown one."""
    found = pc.index_in(ids, value_set=vocabulary, skip_nulls=True).fill_null(-1)
    codes: NDArray[np.int64] = found.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def read_vocabularies(ref: ArtifactRef) -> dict[str, pa.Array]:
    """Ids by entity type in the order of internal ids, of an artifact of histories or of examples."""
    kinds = ("user", "product", "advertiser")
    return {kind: ref.table(f"{kind}s.parquet", [f"{kind}_id"])[f"{kind}_id"].combine_chunks() for kind in kinds}


def _write_vocabularies(events: ArtifactRef, out: OutputDir) -> dict[str, pa.Array]:
    users = events.table("users.parquet", ["user_id"]).sort_by("user_id")
    advertisers = events.table("advertisers.parquet", ["advertiser_id"]).sort_by("advertiser_id")
    products = events.table("products.parquet", ["product_id", "advertiser_id", "category", "known_at"])
    products = products.sort_by("product_id")
    out.write_table("users.parquet", users)
    out.write_table("advertisers.parquet", advertisers)
    out.write_table("products.parquet", products)
    return {
        "user": users["user_id"].combine_chunks(),
        "product": products["product_id"].combine_chunks(),
        "advertiser": advertisers["advertiser_id"].combine_chunks(),
        "event_type": pa.array(EVENT_TYPES),
    }


def _encode(
    events: ArtifactRef, kinds: tuple[str, ...], vocabularies: Mapping[str, pa.Array], ctx: RunContext
) -> dict[str, NDArray]:
    wanted = pa.array(kinds, pa.string())
    parts: dict[str, list[NDArray]] = {name: [] for name in (*_CODES, "ts", "visible_from")}
    total = events.rows(EVENT_PARTS)
    with ctx.progress.step("read histories", total, "events") as step:
        for batch in events.batches(EVENT_PARTS, _COLUMNS):
            kept = batch.filter(pc.is_in(batch["event_type"], value_set=wanted))
            for name, kind in _CODES.items():
                column = name if name == "event_type" else f"{name}_id"
                parts[name].append(encode_ids(kept[column], vocabularies[name]).astype(kind))
            ts = kept["ts"].to_numpy()
            parts["ts"].append(ts)
            parts["visible_from"].append(visible_from(ts, kept["known_at"].to_numpy()))
            step.advance(len(batch))
    return {name: np.concatenate(pieces) for name, pieces in parts.items()}
