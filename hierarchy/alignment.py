"""Public ids that outlive a retrain: primitives of a new run are matched to those of the previous vocabulary.

The old space is turned onto the new one (procrustes.py), old and new primitives are matched level by level, within
matched parents first (matching.py), and each new primitive keeps the public id of its counterpart or is given the next
number of its level (public_ids.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field

from data.artifacts import ArtifactRef
from data.context import StageConfig
from hierarchy.anchors import Anchors, anchors
from hierarchy.asof import AsOfVectors
from hierarchy.bags import Bags, Vectors, cosines
from hierarchy.churn import Change, Coded, change, shared_codes
from hierarchy.kmeans import unit
from hierarchy.levels import Level, bags_of_all, published
from hierarchy.matching import Likeness, Match, Rows, match, member_jaccard, nearest
from hierarchy.procrustes import Turn, procrustes
from hierarchy.public_ids import Ledger, mint_all


class Config(StageConfig):
    """How primitives of a retrain are matched to the previous vocabulary; no effect without one."""

    threshold: float = Field(
        default=0.5, gt=0, le=1, description="Least likeness at which an interest keeps its public id."
    )
    cosine_weight: float = Field(
        default=0.5, ge=0, le=1, description="Share of the cosine in the likeness; the rest is the members' overlap."
    )
    common: int = Field(
        default=100_000, ge=1, description="Entities of each type, known to both runs, by which they are compared."
    )
    exact_limit: int = Field(
        default=20_000, ge=0, description="Primitives of a level up to which the assignment is exact; then greedy."
    )


class Named(NamedTuple):
    """Levels under their public ids, the ledger of those ids, and what changed, JSON-able."""

    levels: list[Level]
    ledger: Ledger
    churn: dict[str, Any]


class Compared(NamedTuple):
    """One level of both vocabularies, seen by n common entities: their old and new bags, and how primitives match."""

    old: Level
    new: Level
    old_bags: Bags
    new_bags: Bags
    likeness: Likeness
    found: Match


def name_first(levels: Sequence[Level]) -> Named:
    """Ids of a vocabulary without a previous one: every level counts from 0."""
    ledger = Ledger()
    named = mint_all(ledger, levels, "first vocabulary")
    return Named(named, ledger, {"previous": None, "levels": _counted(ledger, named)})


def name_again(
    config: Config,
    levels: Sequence[Level],
    previous: ArtifactRef,
    embeddings: ArtifactRef,
    entities: Mapping[str, AsOfVectors],
    time: int,
) -> Named:
    """Ids of `levels` aligned to the supergraph artifact `previous` and the `embeddings` it was made with.

    `entities` are the new run's vectors by type at `time` [us]; nothing later is read of the old ones either. The ids
    in `levels` are not looked at. Where the runs have no entity in common nothing can be recognised and all is minted.
    Time: common entities x primitives for the bags, primitives^2 x dimension for cosines, at most primitives^3 for an
    exact assignment. Memory: see `anchors`, `member_jaccard` and `assign`; vectors are turned into bags in blocks.
    """
    ledger, before = Ledger.after(previous), published(previous)
    common = anchors(embeddings, entities, time, config.common)
    version = previous.metrics["vocab_version"]
    if not common:
        named = mint_all(ledger, levels, "no entity in common")
        for level in before:
            _retire_all(ledger, level, "no entity in common")
        return Named(named, ledger, {"previous": version, "levels": _counted(ledger, named)})
    turn = _turn(common)
    compared = _compare(config, levels, before, common, turn)
    named = [_name(config, ledger, level, compared.get(level.level)) for level in levels]
    for level in before:
        if level.level not in compared:
            _retire_all(ledger, level, "level dropped")
    fit = {"entities": sum(len(part.weight) for part in common), "residual": turn.residual, "cosine": turn.cosine}
    churn = [count | _changes(compared.get(count["level"]), named) for count in _counted(ledger, named)]
    return Named(named, ledger, {"previous": version, "procrustes": fit, "levels": churn})


def _turn(common: Sequence[Anchors]) -> Turn:
    """The turn from old to new, by the mean over heads of every anchor; each type counts as much as any other."""
    old, new = (np.concatenate([unit(vectors.mean(axis=1)) for vectors in side]) for side in _sides(common))
    return procrustes(old, new, np.concatenate([part.weight for part in common]))


def _sides(common: Sequence[Anchors]) -> tuple[list[Vectors], list[Vectors]]:
    return [part.old for part in common], [part.new for part in common]


def _compare(
    config: Config, levels: Sequence[Level], before: Sequence[Level], common: Sequence[Anchors], turn: Turn
) -> dict[int, Compared]:
    """The levels that both vocabularies have, coarse to fine, each matched under the one above it."""
    known = {level.level: level for level in before}
    new = [level for level in levels if level.level in known]
    old = [known[level.level] for level in new]
    old_bags, new_bags = (bags_of_all(side, *vectors) for side, vectors in zip((old, new), _sides(common), strict=True))
    weight = np.concatenate([part.weight for part in common])
    compared: dict[int, Compared] = {}
    above: Compared | None = None
    for pair in zip(old, new, old_bags, new_bags, strict=True):
        shared = member_jaccard(*pair[2:], (len(pair[0].ids), len(pair[1].vectors)), weight)
        likeness = Likeness(turn(pair[0].vectors), pair[1].vectors, shared, config.cosine_weight)
        found = match(likeness, *_families(above, *pair[:2]), config.threshold, config.exact_limit)
        above = compared[pair[0].level] = Compared(*pair, likeness, found)
    return compared


def _families(above: Compared | None, old: Level, new: Level) -> tuple[Rows, Rows]:
    """The parent of each old and new primitive as a row of the new level above; -1 where it has no counterpart."""
    if above is None:
        return np.full(len(old.ids), -1, np.int64), np.full(len(new.vectors), -1, np.int64)
    matched = np.flatnonzero(above.found.old >= 0)
    counterpart = np.full(len(above.old.ids), -1, np.int64)
    counterpart[above.found.old[matched]] = matched
    new_parent = cosines(new.vectors, above.new.vectors).argmax(axis=1)
    old_parent = cosines(old.vectors, above.old.vectors).argmax(axis=1)
    return counterpart[old_parent], np.where(above.found.old[new_parent] >= 0, new_parent, -1)


def _name(config: Config, ledger: Ledger, level: Level, compared: Compared | None) -> Level:
    """The level with the ids that its primitives keep or are given; old ids without a counterpart are retired."""
    if compared is None:
        return mint_all(ledger, [level], "no such level before")[0]
    found, old_ids = compared.found, compared.old.ids.to_pylist()
    lonely = np.flatnonzero(found.old < 0)
    near = dict(zip(lonely.tolist(), _nearest(compared.likeness.reversed(), lonely), strict=True))
    ids: list[str] = []
    for row, (old, likeness, within) in enumerate(zip(*(part.tolist() for part in found), strict=True)):
        if old >= 0:
            reason = "under the same parent" if within else "over the whole level"
            ids.append(ledger.keep(level.level, row, old_ids[old], likeness, reason))
        else:
            alike, place = near[row]
            ids.append(ledger.mint(level.level, row, _reason(config, alike), alike, old_ids[place]))
    left = np.setdiff1d(np.arange(len(old_ids)), found.old)
    for old, (alike, place) in zip(left.tolist(), _nearest(compared.likeness, left), strict=True):
        ledger.retire(level.level, old_ids[old], _reason(config, alike), alike, ids[place])
    return level._replace(ids=pa.array(ids))


def _nearest(likeness: Likeness, rows: Rows) -> list[tuple[float, int]]:
    best, alike = nearest(likeness, rows, np.arange(len(likeness.new)))
    return list(zip(alike.tolist(), best.tolist(), strict=True))


def _reason(config: Config, alike: float) -> str:
    return "counterpart taken" if alike >= config.threshold else "none alike"


def _retire_all(ledger: Ledger, level: Level, reason: str) -> None:
    for identity in level.ids.to_pylist():
        ledger.retire(level.level, identity, reason)


def _counted(ledger: Ledger, levels: Sequence[Level]) -> list[dict[str, Any]]:
    return [{"level": level.level, **ledger.counts(level.level)} for level in levels]


def _changes(compared: Compared | None, named: Sequence[Level]) -> dict[str, Any]:
    """How bags of the common entities change at a level under public ids, and `raw_`: under rows of the learners."""
    if compared is None:
        return {}
    ids = next(level.ids for level in named if level.level == compared.new.level).to_pylist()
    public = _change(compared, *shared_codes(compared.old.ids.to_pylist(), ids))
    raw = _change(compared, np.arange(len(compared.old.ids)), np.arange(len(ids)))
    return {"entities": public.entities, **public.shares(), **raw.shares("raw_")}


def _change(compared: Compared, old: NDArray[np.int64], new: NDArray[np.int64]) -> Change:
    bags = (compared.old_bags, old), (compared.new_bags, new)
    return change(*(Coded(code[found.primitive], found.weight) for found, code in bags))
