"""What an ablation is asked, on validation only: warm products, products nobody had, and the categories of all.

One fit answers everything: withheld products are in nobody's history, so they are no answer to the warm question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse

from data.categories import SEPARATOR
from data.errors import BadDataError, UsageError, nearest
from data.schema import to_micros
from data.sources.splits import Part, Split, load_split
from hierarchy.level_quality import Tree, category_tree
from hierarchy.purchases import History
from hierarchy.recall import Question
from tests.benchmarks.retrieval_quality import panel, withheld
from tests.benchmarks.retrieval_quality.content import content_of
from tests.benchmarks.retrieval_quality.protocols import COLD, COLD_OF_ALL, Known

SETS = ("amazon-scientific", "completejourney")
WARM = "warm"
COLD_K = 20


@dataclass(frozen=True)
class Asked:
    """A question, the users it is put to int64 (u,), and the depth of the recall."""

    question: Question
    users: NDArray[np.int64]
    k: int

    @property
    def metric(self) -> str:
        """Name of the measure."""
        return f"recall@{self.k}, {self.question.name}"


@dataclass(frozen=True)
class Ground:
    """A set: what is known, the questions, categories and advertisers of the products, what its recipe changes."""

    name: str
    known: Known
    asked: tuple[Asked, ...]
    tree: Tree
    owners: Sequence[str | None]
    changes: Mapping[str, Any]

    @property
    def shape(self) -> str:
        """The set in words."""
        history, counts = self.known.history, {one.question.name: _positives(one) for one in self.asked}
        asked = ", ".join(f"{count} {name}" for name, count in counts.items())
        return f"{self.name}, validation, {history.num_users} users x {history.num_products} products, asked {asked}"


def opened(name: str, data: Path, graph: Path | None, most: int = 4_000) -> Ground:
    """A set of SETS; each question is put to at most `most` users, drawn once.

    Raises UsageError for another name, or for completejourney without `graph`, which `panel.read` reads.
    """
    if name == "completejourney":
        if graph is None:
            raise UsageError("expected --graph, the folder of a graph artifact made from completejourney, got none")
        return _completejourney(panel.read(graph), most)
    if name not in SETS:
        raise UsageError(f"no set to ablate {name!r}: {nearest(name, SETS)}")
    return _scientific(load_split(name, data / name), most)


def _scientific(split: Split, most: int) -> Ground:
    """What the test withholds is gone altogether; of the rest another part is withheld, and each user's last item but
    one is asked for."""
    gone = withheld.withheld(split.item_ids, withheld.TEST)
    cold = withheld.withheld(split.item_ids, withheld.VALID) & ~gone
    train = _of(split, split.train)
    known = withheld.without(train, cold | gone)
    before, after = train.matrix(), _of(split, split.valid).matrix()
    warm = Question(WARM, after.astype(bool), ~(cold | gone), known.matrix())
    questions = (warm, *_cold(sparse.csr_array(before + after).astype(bool), cold, ~gone))
    content = Known(known, content_of(split.items), "order")
    return Ground(
        "amazon-scientific", content, _asked(questions, known, 10, most), _tree(split.items), _owners(split.items), {}
    )


def _completejourney(shop: panel.Panel, most: int) -> Ground:
    """The two weeks before the test window; warm is what is new to the user of what an event had named before."""
    start, end = (to_micros(datetime(2017, 11, day, tzinfo=UTC)) for day in (13, 27))
    if shop.items is None:
        raise BadDataError("expected the events artifact beside the graph, got none: content and categories are there")
    history, targets = shop.history(start), shop.bought(start, end)
    listed, cold = shop.known <= start, (shop.known <= start) & (shop.named > start)
    warm = Question(WARM, targets, listed & ~cold, history.matrix())
    questions = (warm, *_cold(targets, cold, listed))
    levels = {"levels": ({"k": 16, "top": 2}, {"k": 128, "top": 4}, {"k": 512, "top": 8})}
    known = Known(history, shop.content, "clock")
    asked = _asked(questions, history, 20, most)
    return Ground("completejourney", known, asked, _tree(shop.items), _owners(shop.items), levels)


def _cold(targets: sparse.csr_array, cold: NDArray[np.bool_], allowed: NDArray[np.bool_]) -> tuple[Question, Question]:
    found = targets.tocoo()
    kept = cold[found.col]
    wanted = sparse.csr_array((found.data[kept], (found.row[kept], found.col[kept])), shape=targets.shape)
    return Question(COLD, wanted, cold), Question(COLD_OF_ALL, wanted, allowed)


def _asked(questions: tuple[Question, ...], known: History, k: int, most: int) -> tuple[Asked, ...]:
    there = np.bincount(known.user, minlength=known.num_users) > 0
    found = []
    for question in questions:
        users = np.flatnonzero((np.diff(question.targets.indptr) > 0) & there)
        users = users[np.unique(question.wanted(users)[0])]
        if len(users) > most:
            users = np.sort(np.random.default_rng(0).choice(users, most, replace=False))
        found.append(Asked(question, users, k if question.name == WARM else COLD_K))
    return tuple(found)


def _positives(asked: Asked) -> int:
    return len(asked.question.wanted(asked.users)[0])


def _of(split: Split, part: Part) -> History:
    """A part as a history; ages are places from a user's newest event in it."""
    user = np.repeat(np.arange(split.num_users), np.diff(part.offsets))
    age = (part.offsets[user + 1] - 1 - np.arange(len(user))).astype(np.float64)
    return History(user, part.items, age, split.num_users, split.num_items)


def _owners(items: pa.Table) -> list[str | None]:
    return [name or None for name in items["advertiser_id"].to_pylist()]


def _tree(items: pa.Table) -> Tree:
    paths = [SEPARATOR.join(name for name in path if name) if path else None for path in items["category"].to_pylist()]
    return category_tree(paths)
