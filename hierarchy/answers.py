"""What operations on interests answer with."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from hierarchy.query import Hit


@dataclass(frozen=True)
class Interest:
    """A primitive of the vocabulary; `mass` is its share of all engagement at its level."""

    primitive_id: str
    level: int
    label: str
    parent_id: str | None
    mass: float
    top_terms: list[str]
    top_products: list[str]


@dataclass(frozen=True)
class Both(Hit):
    """An entity whose bag holds two interests with `weights`; `score` is what ranks it."""

    weights: tuple[float, float]


@dataclass(frozen=True)
class Path:
    """Where an interest stands: `ancestors` from the coarsest down to its parent, `children` and `siblings` heaviest
    first, and `parents`: the soft links to the level above, whose score is a weight."""

    interest: Interest
    ancestors: list[Interest]
    children: list[Interest]
    siblings: list[Interest]
    parents: list[Hit]

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, JSON-able."""
        return asdict(self)


@dataclass(frozen=True)
class Distance:
    """How far apart two interests are, as points and as the sets of entities that hold them.

    `cosine` is that of their vectors, `centroid` that of the weighted means of their members, `pairwise` the mean over
    all pairs of members (all in [-1, 1]), `overlap` the weighted Jaccard index of the sets [0-1]. `flow` holds, by
    relation, the weights (first to second, second to first) where either is linked; links never cross levels. What
    needs members is None where an interest has none.
    """

    first: str
    second: str
    kind: str
    members: tuple[int, int]
    cosine: float
    centroid: float | None
    pairwise: float | None
    overlap: float | None
    flow: dict[str, tuple[float, float]]

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, JSON-able."""
        return asdict(self)
