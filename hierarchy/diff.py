"""What changed between two sets of tokens: how many entities, of which kind, moved to which interests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from data.artifacts import ArtifactRef
from data.engine import Engine, session
from data.errors import BadDataError
from data.schema import from_micros
from data.timegrid import EMBEDDINGS, TOKENS
from hierarchy.churn import Change

QUERIES = Path(__file__).parent / "sql"
_WORDS = ["level", "primitive_id", "label"]


class Side(NamedTuple):
    """One of the two: its tokens, the vocabulary they are of, and the embeddings they were made from."""

    tokens: ArtifactRef
    supergraph: ArtifactRef
    embeddings: ArtifactRef


def diff(
    old: Side, new: Side, spill: Path, as_of: int | None = None, moves: int = 5, memory_limit: str = "1GB"
) -> dict[str, Any]:
    """What changed from `old` to `new`, JSON-able; every figure also with `raw_`, under rows of the learners, as if
    nothing had been aligned.

    Compared are the newest bags at or before `as_of` [us] of entities that both know; if left out, the last date that
    both reach, or the first date of the one that begins later. `levels`: ids kept, minted, retired, and the share of
    entities whose strongest primitive changed and the mean change of a bag (1 - weighted Jaccard); `groups`: the same
    by type and degree (new: no event by then; rare: 1-20; rest); `moves`: the commonest changes with labels; `gone`,
    `come`: entities that only one knows. Time: one pass over each token file, and joins; memory: `memory_limit`, what
    is more spills to the folder `spill`, which is emptied first. Raises BadDataError when one has no date by `as_of`.
    """
    with session(spill, 1, memory_limit, QUERIES, "the command") as engine:
        time = _time(engine, old, new, as_of)
        vocabularies = [side.supergraph.table("primitives.parquet", _WORDS) for side in (old, new)]
        for name, words in zip(("old_words", "new_words"), vocabularies, strict=True):
            engine.connection.register(name, words.append_column("place", _places(words)))
        files = {"old": old.tokens.paths(TOKENS), "new": new.tokens.paths(TOKENS)}
        engine.run("diff_load", **files, embeddings=new.embeddings.paths(EMBEDDINGS), time=time)
        groups = engine.records("diff_groups")
        return {
            "compared_at": str(from_micros(time).date()),
            **engine.record("diff_alone"),
            "levels": [_ids(level, *vocabularies) | _shares(groups, level=level) for level in _levels(*vocabularies)],
            "groups": [
                {name: group[name] for name in ("level", "entity_type", "bucket")} | _shares([group])
                for group in groups
            ],
            "moves": engine.records("diff_moves", most=moves),
        }


def _time(engine: Engine, old: Side, new: Side, as_of: int | None) -> int:
    spans = [engine.record("diff_dates", tokens=side.tokens.paths(TOKENS)) for side in (old, new)]
    if any(span["first"] is None for span in spans):
        raise BadDataError("expected tokens on both sides, got none: run the pipeline again")
    begin, end = max(span["first"] for span in spans), min(span["last"] for span in spans)
    if as_of is not None and as_of < begin:
        first, given = from_micros(begin).date(), from_micros(as_of).date()
        raise BadDataError(f"expected a date from {first} on, when both have tokens, got {given}")
    return max(begin, end) if as_of is None else as_of


def _places(words: pa.Table) -> pa.Array:
    """The row of each primitive within its level: its number where nothing is aligned."""
    levels = words["level"].to_numpy()
    places = np.zeros(len(levels), np.int64)
    for level in np.unique(levels):
        own = levels == level
        places[own] = np.arange(own.sum())
    return pa.array(places)


def _levels(old: pa.Table, new: pa.Table) -> list[int]:
    return sorted({*old["level"].to_pylist(), *new["level"].to_pylist()})


def _ids(level: int, old: pa.Table, new: pa.Table) -> dict[str, int]:
    """How many public ids of a level are in both vocabularies, only in the new and only in the old one."""
    before, after = (_of_level(words, level) for words in (old, new))
    sizes = {"kept": len(before & after), "minted": len(after - before), "retired": len(before - after)}
    return {"level": level, **sizes}


def _of_level(words: pa.Table, level: int) -> set[str]:
    rows = zip(words["level"].to_pylist(), words["primitive_id"].to_pylist(), strict=True)
    return {identity for own, identity in rows if own == level}


def _shares(groups: Sequence[dict[str, Any]], level: int | None = None) -> dict[str, Any]:
    """Entities of the groups together (of one level, if named) and the shares of them that changed."""
    own = [group for group in groups if level is None or group["level"] == level]
    named = _sum(Change(group["entities"], group["strongest"], group["bag"]) for group in own)
    raw = _sum(Change(group["entities"], group["raw_strongest"], group["raw_bag"]) for group in own)
    return {"entities": named.entities, **named.shares(), **raw.shares("raw_")}


def _sum(changes: Iterable[Change]) -> Change:
    total = Change()
    for found in changes:
        total = total.plus(found)
    return total
