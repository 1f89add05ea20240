"""Stage graph: the user / advertiser / product / campaign / category graph of the events and catalogue tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import Field

from data.artifacts import ArtifactRef, OutputDir
from data.context import Metrics, RunContext, StageConfig, execution
from data.parts import EVENT_PARTS, days, part_name
from data.schema import EVENT_TYPES, visible_from
from graph.catalogue import catalogue_edges, catalogue_mentions
from graph.csr import EdgeList, to_csr, write_csr
from graph.ids import first_mention, number
from graph.statistics import statistics
from graph.store import (
    DEFAULT_ENGAGEMENT,
    DERIVED,
    ENGAGED,
    ENGAGED_THROUGH,
    EVENT_TARGETS,
    LINKS,
    NODE_TYPES,
    RELATIONS,
    Relation,
    index_in,
)

_COLUMNS = ["user_id", "product_id", "advertiser_id", "campaign_id", "event_type", "ts", "known_at", "sample_prob"]


class Config(StageConfig):
    """Options of the stage."""

    event_types: tuple[str, ...] = Field(default=EVENT_TYPES, description="Event types that become edges, by name.")
    engagement: tuple[str, ...] = Field(
        default=DEFAULT_ENGAGEMENT, description="Event types that show interest, by name: what neighbourhoods are of."
    )
    batch_rows: int = execution(131_072, "Event rows held as strings at a time.", gt=0)


def run(config: Config, inputs: Mapping[str, ArtifactRef], out: OutputDir, ctx: RunContext) -> Metrics:
    """Read the events twice (number the nodes, then encode the edges) and write nodes/, edges/, statistics.json.

    Time O(E log E) for the sorts. Memory: about 40 bytes an event for the encoded edges, plus one relation's sort
    (about 80 bytes an edge of the largest relation), plus the distinct ids as strings; never the events as strings.
    """
    nodes = _number_nodes(inputs["events"], config, ctx)
    ids = {kind: table["entity_id"].combine_chunks() for kind, table in nodes.items()}
    edges = _event_edges(inputs["events"], config, ids, ctx)
    edges.update(catalogue_edges(inputs["events"], ids))
    counts = _write(out, inputs["events"], nodes, edges)
    figures = statistics(nodes, {relation: found for relation, found in edges.items() if relation not in DERIVED})
    out.write_json("statistics.json", figures)
    return {"nodes": {kind: table.num_rows for kind, table in nodes.items()}, "edges": counts, "degrees": figures}


def _write(
    out: OutputDir, events: ArtifactRef, nodes: Mapping[str, pa.Table], edges: Mapping[Relation, EdgeList]
) -> dict[str, int]:
    for kind in NODE_TYPES:
        out.write_table(f"nodes/{kind}.parquet", nodes[kind])
    span = [part_name(day).removeprefix(EVENT_PARTS).removesuffix(".parquet") for day in days(events)]
    segments = [{"name": f"{span[0]}_{span[-1]}"}] if span else []
    out.write_json("segments.json", segments)
    counts = {}
    for relation in (*RELATIONS, *DERIVED):
        turned = edges.get(relation.reverse) if relation.reverse in (*RELATIONS, *DERIVED) else None
        found = edges.get(relation) or (turned and turned.reverse)
        if found is not None and len(found.src):
            csr = to_csr(found, nodes[relation.src].num_rows, nodes[relation.dst].num_rows)
            folder = "links" if relation in LINKS else f"segments/{segments[0]['name']}"
            write_csr(out, f"{folder}/{relation.folder}", csr)
            counts[relation] = csr.num_edges
    rows = [{"src": r.src, "relation": r.name, "dst": r.dst, "num_edges": n} for r, n in counts.items()]
    out.write_json("edges.json", rows)
    return {"-".join(relation): count for relation, count in counts.items()}


def _event_batches(events: ArtifactRef, config: Config) -> Iterator[pa.RecordBatch]:
    for batch in events.batches(EVENT_PARTS, columns=_COLUMNS, rows=config.batch_rows):
        yield batch.filter(pc.is_in(batch["event_type"], value_set=pa.array(config.event_types, pa.string())))


def _number_nodes(events: ArtifactRef, config: Config, ctx: RunContext) -> dict[str, pa.Table]:
    first = catalogue_mentions(events)
    with ctx.progress.step("number nodes", _rows(events), "events") as step:
        for batch in _event_batches(events, config):
            seen = _visible(batch)
            for kind in ("user", *EVENT_TARGETS):
                named = first_mention(batch[f"{kind}_id"], seen)
                first[kind].append((named["entity_id"], named["known_at"].to_numpy()))
            step.advance(batch.num_rows)
    return {kind: number(first[kind]) for kind in NODE_TYPES}


def _event_edges(
    events: ArtifactRef, config: Config, ids: Mapping[str, pa.Array], ctx: RunContext
) -> dict[Relation, EdgeList]:
    parts: dict[Relation, list[EdgeList]] = {}
    with ctx.progress.step("encode edges", _rows(events), "events") as step:
        for batch in _event_batches(events, config):
            for relation, found in _encode(batch, ids, config.engagement):
                parts.setdefault(relation, []).append(found)
            step.advance(batch.num_rows)
    return {relation: _concatenate(parts.pop(relation)) for relation in list(parts)}


def _encode(
    batch: pa.RecordBatch, ids: Mapping[str, pa.Array], engagement: tuple[str, ...]
) -> Iterator[tuple[Relation, EdgeList]]:
    codes = {kind: index_in(batch[f"{kind}_id"], ids[kind]) for kind in ("user", *EVENT_TARGETS)}
    owner, alone = codes["advertiser"], codes["product"] < 0
    codes["advertiser"] = np.where(alone, codes["advertiser"], -1)
    kinds = index_in(batch["event_type"], pa.array(EVENT_TYPES, pa.string()))
    ts, seen = batch["ts"].to_numpy(), _visible(batch)
    weight = (1 / batch["sample_prob"].to_numpy()).astype(np.float32)

    def edges(src: NDArray[np.int64], dst: NDArray[np.int64], these: NDArray[np.bool_], kind: bool) -> EdgeList:
        rows = np.flatnonzero(these & (src >= 0) & (dst >= 0))
        ends = src[rows], dst[rows], ts[rows], seen[rows], weight[rows]
        return EdgeList(*ends, kinds[rows].astype(np.int8) if kind else None)

    for code, name in enumerate(EVENT_TYPES):
        for target in EVENT_TARGETS:
            yield Relation("user", name, target), edges(codes["user"], codes[target], kinds == code, False)
    engaged = np.isin(kinds, [EVENT_TYPES.index(name) for name in engagement])
    for target, relation in ENGAGED.items():
        yield relation, edges(codes["user"], codes[target], engaged, True)
    yield ENGAGED_THROUGH, edges(owner, codes["product"], engaged, True)


def _concatenate(parts: list[EdgeList]) -> EdgeList:
    columns: dict[str, Any] = {name: [getattr(part, name) for part in parts] for name in EdgeList.__dataclass_fields__}
    whole: dict[str, Any] = {}
    for name, arrays in columns.items():
        whole[name] = None if arrays[0] is None else np.concatenate(arrays)
    return EdgeList(**whole)


def _visible(batch: pa.RecordBatch) -> NDArray[np.int64]:
    return visible_from(batch["ts"].to_numpy(), batch["known_at"].to_numpy())


def _rows(events: ArtifactRef) -> int:
    return events.rows(EVENT_PARTS)
