"""Stage graph: the user / advertiser / product / campaign / category graph of the events and catalogue tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.artifacts import ArtifactRef, OutputDir, read_parquet
from data.context import Metrics, RunContext
from data.engine import session
from data.parts import days
from graph.arrays import ArrayFile, load
from graph.assembly import Assembly, Made
from graph.catalogue import Catalogue
from graph.csr import to_csr
from graph.guards import add_counts
from graph.history import History, Nodes, causes, config_hash
from graph.ids import SQL
from graph.merge import EVENT_RELATIONS
from graph.runs import write_csr
from graph.segments import plan
from graph.settings import Config
from graph.statistics import degrees_of, statistics
from graph.store import DERIVED, LINKS, RELATIONS, Relation

__all__ = ["Config", "run"]


def run(config: Config, inputs: Mapping[str, ArtifactRef], out: OutputDir, ctx: RunContext) -> Metrics:
    """Write nodes/, segments/, links/ and their figures; input `previous`, an earlier graph, only saves time.

    Time O(E log(chunk)). Memory grows with the nodes (their ids, one rowptr a thread) and with `chunk_rows`, not with
    the events; disk beside the result: about 200 bytes an event of one segment. A killed run goes on in `out.work`.
    """
    events, label = inputs["events"], config_hash(config)
    catalogue = Catalogue(events)
    history = History.of(inputs.get("previous"), events, catalogue, label)
    with session(out.work / "spill", ctx.threads, config.memory_limit, SQL, "graph") as engine:
        work = Assembly(config, events, history, engine, out.work, ctx.threads, catalogue)
        nodes, made = work.build(plan(days(events)), ctx.progress)
    for part in made:
        _take(out, part, work.history)
    records, last = [], None
    for part in made:
        own = part.segment.days
        records.append(part.record or _record(part, causes(events, catalogue, label, own, last), nodes))
        last = own[-1]
    out.write_json("segments.json", records)
    counts = _edges(out, records, _write_links(out, catalogue, nodes))
    figures = statistics(nodes.totals, lambda r: _degrees(out, r, nodes.totals[r.src]), ctx.threads)
    out.write_json("statistics.json", figures)
    return {
        "nodes": nodes.totals,
        "edges": counts,
        "degrees": figures,
        "guards": _total(records),
        "co_engagement": work.together.write(out) if work.together else {},
        "increment": _increment(made, work.seconds),
    }


def _total(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    counts: dict[str, Any] = {}
    for record in records:
        counts = add_counts(counts, record["guards"])
    return counts


def _take(out: OutputDir, part: Made, history: History) -> None:
    """Link the files of a segment into the artifact."""
    for path in sorted(part.folder.rglob("*.npy")):
        name = path.relative_to(part.folder).as_posix()
        if part.record is not None and history.previous is not None:
            out.adopt(history.previous, f"segments/{part.segment.name}/{name}")
        else:
            out.take(path, f"segments/{part.segment.name}/{name}", ArrayFile(path).length)


def _record(part: Made, cause: Mapping[str, Any], nodes: Nodes) -> dict[str, Any]:
    """What a segment was made of and what it holds: a later graph takes it only if it would make the same."""
    columns = {r: part.folder / r.folder / "col.npy" for r in EVENT_RELATIONS}
    return {
        "name": part.segment.name,
        **cause,
        "nodes": nodes.sizes(part.segment.days[-1]),
        "edges": {"-".join(r): ArrayFile(column).length for r, column in columns.items() if column.exists()},
        "guards": part.facts["guards"],
    }


def _write_links(out: OutputDir, catalogue: Catalogue, nodes: Nodes) -> dict[str, int]:
    """Write the node tables and the links of the catalogue, both directions; returns edges by name."""
    ids = {}
    for kind, file in nodes.files.items():
        out.take(file, f"nodes/{kind}.parquet", nodes.totals[kind])
        if kind != "user":
            ids[kind] = read_parquet(file, ["entity_id"])["entity_id"].combine_chunks()
    counts = {}
    for forward, edges in catalogue.edges(ids).items():
        for relation, found in ((forward, edges), (forward.reverse, edges.reverse)):
            csr = to_csr(found, nodes.totals[relation.src], nodes.totals[relation.dst])
            write_csr(out.path / "links", relation, csr)
            counts["-".join(relation)] = csr.num_edges
    return counts


def _edges(out: OutputDir, records: Sequence[Mapping[str, Any]], links: Mapping[str, int]) -> dict[str, int]:
    """Write edges.json; returns the edges of all relations that have any, by name and in their order."""
    counts = Counter(links)
    for record in records:
        counts.update(record["edges"])
    found = {relation: counts["-".join(relation)] for relation in (*RELATIONS, *DERIVED) if counts["-".join(relation)]}
    rows = [{"src": r.src, "relation": r.name, "dst": r.dst, "num_edges": count} for r, count in found.items()]
    out.write_json("edges.json", rows)
    return {"-".join(relation): count for relation, count in found.items()}


def _degrees(out: OutputDir, relation: Relation, rows: int) -> NDArray[np.int64]:
    where = "links" if relation in LINKS else "segments/*"
    return degrees_of((load(path) for path in sorted(out.path.glob(f"{where}/{relation.folder}/rowptr.npy"))), rows)


def _increment(made: Sequence[Made], seconds: Mapping[str, float]) -> dict[str, Any]:
    """What this run itself did, and how long it took by step [s]; compaction of earlier segments apart."""
    fresh = [part for part in made if part.record is None]
    return {
        "segments": len(made),
        "linked_segments": len(made) - len(fresh),
        "new_rows": sum(part.facts["new_rows"] for part in fresh),
        "merged_edges": sum(part.facts.get("merge", 0) for part in fresh),
        "compacted_edges": sum(part.facts.get("compact", 0) for part in fresh),
        "seconds": {step: round(value, 3) for step, value in sorted(seconds.items())},
    }
