"""Attributes as vectors without training: signed feature hashing (Weinberger et al., 2009, arXiv:0902.2206).

A category path is the sum of the hashed vectors of its prefixes, so siblings share all but their last one. A number
lies between the hashed vectors of its two neighbouring quantiles, so close numbers have close vectors.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from data.categories import category_ids
from data.errors import UsageError
from encoders.base import Identity, Vectors, unit
from encoders.describe import Facts

Term = tuple[str, float]
"""A hashed feature and its weight."""

_NUMBER = re.compile(r"\s*([-+]?\d+(?:\.\d+)?)\s*([A-Za-z%]*)\s*")
_STEPS = 8
_MAX_DIM = 512


def quantity(name: str, value: str) -> tuple[str, float] | None:
    """A value such as "14.5 OZ" as (name with its unit, number); None when it is no number with at most a unit."""
    found = _NUMBER.fullmatch(value)
    return (f"{name} [{found[2].casefold()}]", float(found[1])) if found else None


def numbers(facts: Facts, labels: frozenset[str]) -> dict[str, float]:
    """The numeric attributes and the price of `facts`; attributes named in `labels` are never read as numbers."""
    pairs = (quantity(name, value) for name, value in facts.attributes if name not in labels)
    found = dict(pair for pair in pairs if pair is not None)
    return found if facts.price is None else found | {"price": float(facts.price)}


def fit_knots(rows: Sequence[Facts], labels: frozenset[str] = frozenset()) -> dict[str, list[float]]:
    """The distinct octiles of every numeric attribute over `rows`, by name, ascending."""
    seen: dict[str, list[float]] = {}
    for facts in rows:
        for name, number in numbers(facts, labels).items():
            seen.setdefault(name, []).append(number)
    marks = np.linspace(0, 1, _STEPS + 1)
    return {name: np.unique(np.quantile(values, marks)).tolist() for name, values in sorted(seen.items())}


class AttributeEncoder:
    """Encodes `Facts`; `knots` come from `fit_knots` on rows that may be looked at. dim at most 512."""

    def __init__(
        self,
        knots: Mapping[str, Sequence[float]],
        dim: int = 128,
        category_decay: float = 0.8,
        labels: frozenset[str] = frozenset(),
    ) -> None:
        if not 0 < dim <= _MAX_DIM:
            raise UsageError(f"expected an attribute dimension from 1 to {_MAX_DIM}, got {dim}")
        self.dim, self.category_decay = dim, category_decay
        self.knots, self._labels = knots, labels
        self.identity: Identity = {
            "modality": "attributes",
            "model": f"signed feature hashing, blake2b, {dim} components",
            "revision": "1",
            "licence": "own",
            "preprocessing": f"category prefixes decayed by {category_decay}, numbers between octiles",
            "dtype": "float32",
            "normalisation": "l2",
        }

    def encode(self, batch: Sequence[Facts]) -> Vectors:
        """Unit-norm float32 (n, dim): half of a vector's length is its category, half its other attributes."""
        terms: dict[str, int] = {}
        rows: list[int] = []
        columns: list[int] = []
        weights: list[float] = []
        for row, facts in enumerate(batch):
            for term, weight in self._terms(facts):
                rows.append(row)
                columns.append(terms.setdefault(term, len(terms)))
                weights.append(weight)
        # In order of name: the terms of a record are added up in an order that other records have no part in.
        names = sorted(terms)
        place = np.empty(len(terms), np.int64)
        place[[terms[name] for name in names]] = np.arange(len(terms))
        signs = np.stack([_signs(term, self.dim) for term in names]) if names else np.zeros((0, self.dim))
        return unit(csr_matrix((weights, (rows, place[columns])), shape=(len(batch), len(terms))) @ signs)

    def _terms(self, facts: Facts) -> Iterator[Term]:
        path = category_ids(facts.category)
        decayed = self.category_decay ** np.arange(len(path))
        yield from zip((f"category={prefix}" for prefix in path), decayed / np.linalg.norm(decayed), strict=True)
        found = numbers(facts, self._labels)
        plain = [(n, v) for n, v in facts.attributes if n in self._labels or quantity(n, v) is None]
        share = 1 / np.sqrt(max(len(found) + len(plain), 1))
        for name, value in plain:
            yield f"{name}={value.casefold()}", share
        for name, number in found.items():
            for term, weight in self._between(name, number):
                yield term, share * weight

    def _between(self, name: str, number: float) -> Iterator[Term]:
        knots = self.knots.get(name, (number,))
        position = float(np.interp(number, knots, np.arange(len(knots))))
        low = int(position)
        yield f"{name}#{low}", 1 - (position - low)
        if position > low:
            yield f"{name}#{low + 1}", position - low


def _signs(term: str, dim: int) -> NDArray[np.float64]:
    """The hashed vector of a feature: dim signs, scaled to norm 1."""
    bits = np.unpackbits(np.frombuffer(hashlib.blake2b(term.encode()).digest(), np.uint8))[:dim]
    signs: NDArray[np.float64] = (bits * 2.0 - 1) / np.sqrt(dim)
    return signs
