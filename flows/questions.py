"""What `strata query` answers: nearest things, interests of entities and entities of interests, ways and distances."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table

from data import snapshot
from data.artifacts import Store
from data.errors import UsageError, nearest
from data.schema import ENTITY_TYPES
from flows.summary import wide_console

KINDS = (*ENTITY_TYPES, "primitive", "text", "vector", "between", "path", "distance")
"""What can be asked about; the last three are about interests."""

_PAIRS = ("between", "distance")
_BY = ("vector", "tokens")
_FOUND = {"between": "user"}


@dataclass(frozen=True)
class Question:
    """The words of the command line; `find` and `by` None: as suits the kind."""

    kind: str
    value: str
    other: str | None = None
    find: str | None = None
    by: str | None = None
    rank: str = "min"
    level: int | None = None
    k: int = 10

    @property
    def wanted(self) -> str:
        """The type of thing to find."""
        return self.find or _FOUND.get(self.kind, "product")


def ask(store: Store, snapshot_id: str | None, question: Question) -> Any:
    """The answer, JSON-able: a list of hits best first, or an object for `path` and `distance`.

    Raises UsageError for words that do not go together, BadDataError for an unknown id.
    """
    vector = _check(question)
    opened = store, snapshot.load(store, snapshot_id)
    if question.kind in ("text", "vector"):
        from hierarchy.query import InterestIndex

        index = InterestIndex.open(*opened)
        if vector is not None:
            hits = index.by_vector(vector, question.k, question.wanted)
        else:
            hits = index.by_text(question.value, question.k, question.wanted)
        return [hit.as_dict() for hit in hits]
    from hierarchy.interests import Interests

    return _about_interests(Interests(*opened), question)


def _about_interests(interests: Any, question: Question) -> Any:
    kind, value, by, k = question.kind, question.value, question.by, question.k
    if kind in ENTITY_TYPES:
        if question.wanted == "primitive":
            hits = interests.of_entity(kind, value, by or "vector", k, question.level)
        else:
            hits = interests.index.by_entity(kind, value, k, question.wanted)
        return [hit.as_dict() for hit in hits]
    name = interests.find(value, question.level).primitive_id
    if kind == "path":
        return interests.path(name).as_dict()
    if kind == "primitive":
        if question.wanted == "primitive":
            hits = interests.near(name, "cosine" if by in (None, "vector") else by, k, question.level)
        else:
            hits = interests.entities(name, question.wanted, by or "vector", k)
        return [hit.as_dict() for hit in hits]
    other = interests.find(question.other, question.level).primitive_id
    if kind == "distance":
        return interests.distance(name, other, question.wanted).as_dict()
    if by == "vector":
        hits = interests.midpoint(name, other, question.wanted, k)
    else:
        hits = interests.between(name, other, question.wanted, question.rank, k)
    return [hit.as_dict() for hit in hits]


def _check(question: Question) -> Any:
    """Refuse what cannot be meant before anything is opened; the vector of a question by vector."""
    kind, wanted, by = question.kind, question.wanted, question.by
    for name, given, known in (("kind", kind, KINDS), ("--find", wanted, (*ENTITY_TYPES, "primitive"))):
        if given not in known:
            raise UsageError(f"unknown {name} {given!r}: {nearest(given, known)}")
    if (question.other is not None) != (kind in _PAIRS):
        raise UsageError(
            f"{kind}: expected {'two interests' if kind in _PAIRS else 'one value'}, such as {_example(kind)}"
        )
    if kind in _PAIRS and wanted == "primitive":
        raise UsageError(f"{kind}: expected --find {', '.join(ENTITY_TYPES)}, got primitive")
    relation = kind == "primitive" and wanted == "primitive"
    entities_only = kind in ENTITY_TYPES and wanted != "primitive"
    if by is not None and (kind in ("text", "vector", "path", "distance") or (entities_only and by != "vector")):
        raise UsageError(f"--by {by} has no meaning for {kind} --find {wanted}: leave it out")
    if by is not None and not relation and by not in _BY:
        raise UsageError(f"unknown --by {by!r}: {nearest(by, _BY)}; relations need --find primitive")
    return _parse_vector(question.value) if kind == "vector" else None


def _example(kind: str) -> str:
    return f"strata query {kind} L2-0001{' L2-0007' if kind in _PAIRS else ''}"


def _parse_vector(text: str) -> np.ndarray:
    try:
        vector = np.asarray(json.loads(text), dtype=np.float32)
    except (ValueError, TypeError) as error:
        raise UsageError(f"expected a JSON list of numbers such as '[0.1, 0.2]', got {text[:60]!r}") from error
    if vector.ndim != 1:
        raise UsageError(f"expected a flat JSON list of numbers, got shape {vector.shape}")
    return vector


def render(found: Any) -> None:
    """Print an answer for a person."""
    if isinstance(found, list):
        _render_hits(found)
    elif "ancestors" in found:
        _render_path(found)
    else:
        _render_distance(found)


def _render_hits(hits: list[dict[str, Any]]) -> None:
    both = bool(hits) and "weights" in hits[0]
    table = Table("score", *(("first", "second") if both else ()), "type", "id", "title", "category", box=SIMPLE)
    for hit in hits:
        weights = [f"{weight:.3f}" for weight in hit.get("weights", ())]
        texts = (hit["entity_type"], hit["entity_id"], hit["title"] or "", hit["category"] or "")
        table.add_row(f"{hit['score']:.3f}", *weights, *map(escape, texts))
    wide_console().print(table)


def _render_path(found: dict[str, Any]) -> None:
    for depth, interest in enumerate([*found["ancestors"], found["interest"]]):
        print(f"{'  ' * depth}{_named(interest)}")
    depth = len(found["ancestors"]) + 1
    for child in found["children"]:
        print(f"{'  ' * depth}{_named(child)}")
    if found["siblings"]:
        print(f"siblings  {', '.join(_short(sibling) for sibling in found['siblings'])}")
    if found["parents"]:
        said = (f"{hit['title']} ({hit['entity_id']}) {hit['score']:.2f}" for hit in found["parents"])
        print(f"parents   {', '.join(said)}")


def _named(interest: dict[str, Any]) -> str:
    return f"{interest['label']} ({interest['primitive_id']}, {interest['mass']:.1%} of level {interest['level']})"


def _short(interest: dict[str, Any]) -> str:
    return f"{interest['label']} ({interest['primitive_id']})"


def _render_distance(found: dict[str, Any]) -> None:
    one, two, kind = found["first"], found["second"], found["kind"]
    print(f"{one} and {two}, by the {kind}s that hold them ({found['members'][0]:,} and {found['members'][1]:,})")
    for name, said in (
        ("cosine", "of the two vectors"),
        ("centroid", f"cosine of the weighted means of their {kind}s"),
        ("pairwise", f"mean cosine over pairs of their {kind}s"),
        ("overlap", f"weighted share of {kind}s in common"),
    ):
        print(f"{name:<9} {'-' if found[name] is None else format(found[name], '.3f'):>6}   {said}")
    for relation, (there, back) in found["flow"].items():
        print(f"flow      {there:.3f} there, {back:.3f} back   {relation}")
