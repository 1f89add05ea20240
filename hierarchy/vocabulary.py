"""Words for primitives: what the products of a primitive are called that those of the others are not.

Class-based TF-IDF (Grootendorst, 2022, arXiv:2203.05794): all titles of a primitive are one document, each product
counting with its token weight. A category, at whatever depth, names a primitive by what it adds to the divergence of
the primitive from the catalogue (Kullback and Leibler, 1951): it has to cover much of the one and little of the other.
Abbreviations are written out first (abbreviations.py), so that "frzn" and "frozen" are one word.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from string import capwords
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from data.categories import SEPARATOR, category_ids
from hierarchy.abbreviations import Abbreviations
from hierarchy.bags import Bags

_WORD = re.compile(r"[^\W\d_]{3,}")
_STOP = frozenset(["and", "the", "for", "with", "from", "per", "pack", "each", "ounce", "count"])
_WHOLE = 0.5  # a category with this share of a primitive names it alone
_BROAD = 1 / 3  # a category with more than this share of the catalogue, and more than two primitives', tells nothing
_CONSIDERED = 8  # telling categories and terms among which a label finds its words
_NUMERALS = ((10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))


class Catalogue(NamedTuple):
    """n products: ids, titles, category paths (joined, None where unknown) and engagement float64 (n,)."""

    ids: Sequence[str]
    titles: Sequence[str | None]
    categories: Sequence[str | None]
    engagement: NDArray[np.float64]


class Words(NamedTuple):
    """What is said of a primitive: a label unique in its level; terms and product ids, the most telling first."""

    label: str
    top_terms: list[str]
    top_products: list[str]


class Counts(NamedTuple):
    """How much each of `names` (sorted) occurs in each document or class: sparse float64 (rows, names)."""

    names: list[str]
    matrix: sparse.csr_array

    def within(self, member: sparse.csr_array) -> Counts:
        """The same names counted in classes, given the membership (rows, k) of the documents."""
        return Counts(self.names, sparse.csr_array(member.T @ self.matrix))

    def rows(self, chosen: Sequence[int]) -> Counts:
        """The counts of some rows."""
        return Counts(self.names, self.matrix[np.asarray(chosen, np.int64)])

    def telling(self, limit: int) -> list[list[str]]:
        """The names of largest c-TF-IDF of each row, largest first, at most `limit`."""
        return self.first(c_tf_idf(self.matrix), limit)

    def first(self, scores: sparse.csr_array, limit: int) -> list[list[str]]:
        """The names of largest score in each row of `scores` (rows, names), largest first, at most `limit`.

        Of equal ones the last by name comes first: of nested categories with the same members, the deepest.
        """
        found = []
        for start, stop in zip(scores.indptr[:-1], scores.indptr[1:], strict=True):
            places = scores.indices[start:stop]
            order = np.lexsort((-places, -scores.data[start:stop]))[:limit]
            found.append([self.names[place] for place in places[order]])
        return found


class Describer:
    """Finds words for primitives; the catalogue's titles and paths are counted once for all levels."""

    def __init__(self, catalogue: Catalogue, terms: int = 8, products: int = 8) -> None:
        self.catalogue, self.terms, self.products = catalogue, terms, products
        titles = [words_of(title) for title in catalogue.titles]
        self._whole = Abbreviations(_uses(titles, catalogue.categories))
        self._titles = count([sorted({self._whole.word(word) for word in words}) for words in titles])
        self._paths = count([category_ids((path or "").split(SEPARATOR)) for path in catalogue.categories])
        self._shelf = np.unique([path or "" for path in catalogue.categories], return_inverse=True)[1]

    def describe(self, bags: Bags, k: int) -> list[Words]:
        """Words of the `k` primitives of one level, from the bags of the catalogue's products.

        A primitive in no product's bag is "Unnamed". Time grows with the tokens times the words of a title.
        """
        member = membership(bags, k)
        weight = np.asarray(member.sum(axis=0)).ravel()
        titles, paths = self._titles.within(member), self._paths.within(member)
        terms = titles.telling(max(self.terms, 2))
        names = [
            self._whole.text(name) or " & ".join(map(capwords, words[:2])) or "Unnamed"
            for name, words in zip(category_names(paths, weight), terms, strict=True)
        ]
        labels = unique_labels(names, titles, weight)
        examples = self._examples(sparse.csc_array(member))
        return [Words(*said) for said in zip(labels, (row[: self.terms] for row in terms), examples, strict=True)]

    def _examples(self, member: sparse.csc_array) -> list[list[str]]:
        """Products that belong to each primitive, are of a category that makes up much of it and are known to many; no
        title twice."""
        known = np.log(2.0 + self.catalogue.engagement)
        found = []
        for start, stop in zip(member.indptr[:-1], member.indptr[1:], strict=True):
            rows = member.indices[start:stop]
            weight, shelf = member.data[start:stop], np.unique(self._shelf[rows], return_inverse=True)[1]
            typical = np.bincount(shelf, weight)[shelf] if len(rows) else weight
            ranked = rows[np.lexsort((rows, -weight * typical * known[rows]))]
            by_title: dict[str, str] = {}
            for row in ranked.tolist():
                if len(by_title) == self.products:
                    break
                identity = self.catalogue.ids[row]
                by_title.setdefault(self.catalogue.titles[row] or identity, identity)
            found.append(list(by_title.values()))
        return found


def words_of(title: str | None) -> list[str]:
    """The words of a title that can tell interests apart: no numbers, no stop words, in lower case, each once."""
    return sorted(set(_WORD.findall((title or "").lower())) - _STOP)


def _uses(titles: Sequence[Sequence[str]], categories: Sequence[str | None]) -> Counter[str]:
    """How many titles and category paths use each word."""
    uses = Counter(word for words in titles for word in words)
    for path, times in Counter(path for path in categories if path).items():
        uses.update(dict.fromkeys(words_of(path), times))
    return uses


def count(documents: Sequence[Sequence[str]]) -> Counts:
    """Occurrences of every name in every document."""
    names = sorted({name for document in documents for name in document})
    place = {name: index for index, name in enumerate(names)}
    columns = np.array([place[name] for document in documents for name in document], np.int64)
    offsets = np.concatenate([[0], np.cumsum([len(document) for document in documents])]).astype(np.int64)
    matrix = sparse.csr_array((np.ones(len(columns)), columns, offsets), shape=(len(documents), len(names)))
    return Counts(names, matrix)


def membership(bags: Bags, k: int) -> sparse.csr_array:
    """Bags of n entities as a sparse matrix (n, k) of weights."""
    offsets = np.arange(len(bags.primitive) + 1) * bags.primitive.shape[1]
    data = bags.weight.ravel().astype(np.float64)
    return sparse.csr_array((data, bags.primitive.ravel(), offsets), shape=(len(bags.primitive), k))


def c_tf_idf(totals: sparse.csr_array) -> sparse.csr_array:
    """Scores tf * log(1 + A / f) of counts by class (k, m): tf is the share of a name in its class, f its count over
    all classes, A the mean count of a class."""
    size = np.asarray(totals.sum(axis=1)).ravel()
    frequency = np.asarray(totals.sum(axis=0)).ravel()
    scores = totals.copy()
    row = np.repeat(np.arange(len(size)), np.diff(totals.indptr))
    scores.data = totals.data / size[row] * np.log1p(size.mean() / frequency[totals.indices])
    return scores


def divergence(totals: sparse.csr_array, weight: NDArray[np.float64]) -> sparse.csr_array:
    """Scores p * log(p / q) of counts by class (k, m): p is the share of a class's `weight` (k,) that has a name, q its
    share of all weight. A name with more than a third of all weight, and more than two classes' worth, scores 0."""
    row = np.repeat(np.arange(len(weight)), np.diff(totals.indptr))
    share = np.asarray(totals.sum(axis=0)).ravel() / max(float(weight.sum()), 1e-30)
    scores, common = totals.copy(), share[totals.indices]
    own = np.maximum(totals.data / np.maximum(weight[row], 1e-30), 1e-30)
    scores.data = np.where(common > max(_BROAD, 2 / len(weight)), 0.0, own * np.log(own / np.maximum(common, 1e-30)))
    return scores


def category_names(paths: Counts, weight: NDArray[np.float64]) -> list[str]:
    """The last name of the most telling category of each class, joined with a second one when the first holds less
    than half of the class's `weight` (k,); empty where no category is known."""
    place = {path: index for index, path in enumerate(paths.names)}
    names = []
    for row, ranked in enumerate(paths.first(divergence(paths.matrix, weight), _CONSIDERED)):
        if not ranked:
            names.append("")
            continue
        first = ranked[0]
        share = paths.matrix[row, place[first]] / weight[row]
        others = [path for path in ranked[1:] if not _nested(path, first) and _leaf(path) != _leaf(first)]
        names.append(_leaf(first) if share >= _WHOLE or not others else f"{_leaf(first)} & {_leaf(others[0])}")
    return names


def unique_labels(names: Sequence[str], titles: Counts, weight: NDArray[np.float64]) -> list[str]:
    """The names; those that several classes share are followed by the term that tells each from the rest, or numbered.

    Heavy classes choose first. `titles` are word counts by class (k, m), `weight` (k,).
    """
    sharing: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        sharing.setdefault(name, []).append(row)
    wanted: dict[int, list[str]] = {}
    for name, rows in sharing.items():
        if len(rows) == 1:
            wanted[rows[0]] = [name]
            continue
        for row, terms in zip(rows, titles.rows(rows).telling(_CONSIDERED), strict=True):
            new = [term for term in terms if term not in name.lower()]
            wanted[row] = [f"{name} ({capwords(term)})" for term in new] or [name]
    taken: set[str] = set()
    labels = list(names)
    for row in sorted(wanted, key=lambda row: (-weight[row], row)):
        free = [label for label in wanted[row] if label not in taken]
        labels[row] = free[0] if free else _numbered(wanted[row][0], taken)
        taken.add(labels[row])
    return labels


def _numbered(label: str, taken: set[str]) -> str:
    number = 2
    while f"{label} {_roman(number)}" in taken:
        number += 1
    return f"{label} {_roman(number)}"


def _roman(number: int) -> str:
    written = ""
    for value, numeral in _NUMERALS:
        written += numeral * (number // value)
        number %= value
    return written


def _leaf(path: str) -> str:
    name = path.rpartition(SEPARATOR)[2]
    return capwords(name) if name.islower() or name.isupper() else name


def _nested(path: str, other: str) -> bool:
    short, long = sorted((path, other), key=len)
    return long == short or long.startswith(short + SEPARATOR)
