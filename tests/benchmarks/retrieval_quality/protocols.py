"""What is known and what is asked on each public set: a validation exam to choose settings by, and the tests.

Leave-one-out sets: the last item of a user is the test, the one before it validation. "strict" tests a model fitted
without the validation items, of which only the user's own history is told; "refit" fits again with them. Gowalla is
tuned on its validation part and fitted again with it. RetailRocket comes in two forms: as published, where others'
later events are in the log and all clocks are therefore taken away, and cut in time, where nothing after the cut is
known. "-cold" sets ask for products that nobody had yet, among themselves and among all: on amazon-scientific a stored
seeded tenth of the items, on completejourney what no event had named before the cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from data.errors import UsageError
from data.schema import EVENT_TYPES, MICROS_PER_DAY, to_micros
from data.sources.splits import Part, Split, load_split
from hierarchy.purchases import History
from hierarchy.recall import Question
from tests.benchmarks.retrieval_quality import panel, withheld
from tests.benchmarks.retrieval_quality.content import content_of

FOLDERS = {
    "gowalla": "gowalla",
    "amazon-beauty": "amazon-s3rec",
    "amazon-sports": "amazon-s3rec",
    "amazon-toys": "amazon-s3rec",
    "amazon-instruments": "amazon-instruments",
    "amazon-scientific": "amazon-scientific",
    "amazon-scientific-cold": "amazon-scientific",
    "retailrocket": "retailrocket-mb",
    "retailrocket-cut": "retailrocket-mb",
}
"""Folder of each protocol's set below the folder of public sets."""

PANEL = ("completejourney", "completejourney-cold")
"""Protocols of the grocer's panel, which is made by the pipeline."""
NAMES = (*FOLDERS, *PANEL)

_VALID_USERS = 4_000
SEEN, ALL, BOUGHT, NEW = "seen masked", "nothing masked", "bought masked", "new to the user"
COLD, COLD_OF_ALL = "cold among cold", "cold among all"


@dataclass(frozen=True)
class Known:
    """What a method may see: events, content float32 (products, D) or None, and what ages mean (clock, order, none)."""

    history: History
    content: NDArray[np.float32] | None
    time_kind: str


@dataclass(frozen=True)
class Exam:
    """Fit on `known`; then, told `grown` (None: no more than that), answer `questions` for `users` int64 (u,)."""

    name: str
    known: Known
    grown: History | None
    questions: tuple[Question, ...]
    users: NDArray[np.int64]


@dataclass(frozen=True)
class Protocol:
    """A set's exams and measures; settings are chosen by recall@`k` on `valid`, for each question its own."""

    name: str
    valid: Exam
    tests: tuple[Exam, ...]
    k: int
    ks: tuple[int, ...]
    over: Literal["targets", "reachable"] = "targets"


def protocol(name: str, data: Path, valid_users: int | None = None, graph: Path | None = None) -> Protocol:
    """The protocol called `name`, from the public sets below `data`, or completejourney from what `panel.read` reads.

    Validation asks at most `valid_users` users (default 4,000), drawn once.
    Raises UsageError for an unknown name.
    """
    if name in PANEL:
        if graph is None:
            raise UsageError("expected --graph, the folder of a graph artifact made from completejourney, got none")
        found = _completejourney(panel.read(graph), name.endswith("-cold"))
    elif name in FOLDERS:
        root = data / FOLDERS[name]
        split = load_split(name.removesuffix("-cut").removesuffix("-cold"), root)
        found = _FORMS.get(name, _leave_one_out)(split)
    else:
        raise UsageError(f"no retrieval set {name!r}: known are {', '.join(NAMES)}")
    most = valid_users or _VALID_USERS
    asked = found.valid.users
    if len(asked) > most:
        asked = np.sort(np.random.default_rng(0).choice(asked, most, replace=False))
    return replace(found, name=name, valid=replace(found.valid, users=asked))


def _gowalla(split: Split) -> Protocol:
    def known(*parts: Part) -> Known:
        history = _together(split, parts)
        return Known(replace(history, age=np.zeros(len(history.age))), None, "none")

    train, whole = known(split.train), known(split.train, split.valid)
    valid = _exam("valid", train, None, split, split.valid, (SEEN,))
    return Protocol("", valid, (_exam("test", whole, None, split, split.test, (SEEN,)),), 20, (10, 20, 40))


def _leave_one_out(split: Split) -> Protocol:
    content = content_of(split.items)
    train = Known(_together(split, (split.train,)), content, "order")
    later = Known(_together(split, (split.train, split.valid)), content, "order")
    masks = (SEEN, ALL)
    tests = (
        _exam("strict", train, later.history, split, split.test, masks),
        _exam("refit", later, None, split, split.test, masks),
    )
    return Protocol("", _exam("valid", train, None, split, split.valid, masks), tests, 10, (5, 10, 20))


def _retailrocket(split: Split) -> Protocol:
    """Validation holds out the last purchase of users with two or more, with every event of that pair."""
    events = _timeless(_events(split))
    held = _last_purchase(split)
    pair = events.user * split.num_items + events.product
    kept = ~np.isin(pair, np.flatnonzero(held >= 0) * split.num_items + held[held >= 0])
    before = History(events.user[kept], events.product[kept], events.age[kept], split.num_users, split.num_items)
    bought = _purchased(split, np.ones(len(events.user), bool))
    asked = _pairs(held, split)
    others = sparse.csr_array((bought.astype(np.int8) - asked.astype(np.int8)) > 0)
    valid = _retail_exam("valid", before, others, asked)
    test = _retail_exam("test", events, bought, _matrix(split, split.test))
    return Protocol("", valid, (test,), 10, (10, 20, 40))


def _retailrocket_cut(split: Split) -> Protocol:
    """Purchases of the last fifth of the time against all events before it; the fifth before that is validation."""
    first, last = int(split.train.ts.min()), int(split.train.ts.max())
    cuts = [first + (last - first) * share // 5 for share in (3, 4, 5)]
    exams = [_cut(split, name, *span) for name, span in (("valid", cuts[:2]), ("test", cuts[1:]))]
    return Protocol("", exams[0], (exams[1],), 10, (10, 20, 40))


def _cut(split: Split, name: str, start: int, end: int) -> Exam:
    events, ts = _events(split), split.train.ts
    seen = ts < start
    age = (start - ts[seen]) / MICROS_PER_DAY
    history = History(events.user[seen], events.product[seen], age, split.num_users, split.num_items)
    targets = _purchased(split, (ts >= start) & (ts <= end))
    return _retail_exam(name, history, _purchased(split, seen), targets, "clock")


def _completejourney(shop: panel.Panel, cold: bool) -> Protocol:
    """The pipeline's own windows: two weeks of validation, four of test; repeat purchases are another question."""
    t1, t2 = (to_micros(datetime(2017, 11, day, tzinfo=UTC)) for day in (13, 27))
    exams = []
    for name, start, end in (("valid", t1, t2), ("test", t2, t2 + 28 * MICROS_PER_DAY)):
        history, listed, targets = shop.history(start), shop.known <= start, shop.bought(start, end)
        known = Known(history, shop.content, "clock")
        if cold:
            exams.append(_cold_exam(name, known, targets, listed & (shop.named > start), listed))
            continue
        questions = (Question(NEW, targets, listed, history.matrix()), Question(ALL, targets, listed))
        exams.append(Exam(name, known, None, questions, _asked(targets)))
    return Protocol("", exams[0], (exams[1],), 20, (10, 20, 50), "reachable")


def _scientific_cold(split: Split) -> Protocol:
    """Validation knows neither the items of the test nor the last event of any user."""
    content, nobody = content_of(split.items), np.zeros(split.num_items, bool)
    of_test = withheld.withheld(split.item_ids, withheld.TEST)
    of_valid = withheld.withheld(split.item_ids, withheld.VALID) & ~of_test
    exams = []
    for name, parts, cold, gone in (
        ("valid", (split.train, split.valid), of_valid, of_test),
        ("test", (split.train, split.valid, split.test), of_test, nobody),
    ):
        events = _together(split, parts)
        these = cold[events.product]
        targets = _bool(events.user[these], events.product[these], split)
        known = Known(withheld.without(events, cold | gone), content, "order")
        exams.append(_cold_exam(name, known, targets, cold, ~gone))
    return Protocol("", exams[0], (exams[1],), 20, (10, 20), "reachable")


def _cold_exam(
    name: str, known: Known, targets: sparse.csr_array, cold: NDArray[np.bool_], allowed: NDArray[np.bool_]
) -> Exam:
    """Asks users with a history for `cold` products, among themselves and among all that are `allowed` (products,)."""
    wanted = targets.tocoo()
    kept = cold[wanted.col]
    wanted = sparse.csr_array((wanted.data[kept], (wanted.row[kept], wanted.col[kept])), shape=targets.shape)
    there = np.bincount(known.history.user, minlength=known.history.num_users) > 0
    users = np.flatnonzero((np.diff(wanted.indptr) > 0) & there)
    questions = (Question(COLD, wanted, cold), Question(COLD_OF_ALL, wanted, allowed))
    return Exam(name, known, None, questions, users)


_FORMS: dict[str, Callable[[Split], Protocol]] = {
    "gowalla": _gowalla,
    "amazon-scientific-cold": _scientific_cold,
    "retailrocket": _retailrocket,
    "retailrocket-cut": _retailrocket_cut,
}


def _together(split: Split, parts: Sequence[Part]) -> History:
    """The events of parts one after the other; ages are places from a user's newest event."""
    user = np.concatenate([_owners(part) for part in parts])
    product = np.concatenate([part.items for part in parts])
    order = np.argsort(user, kind="stable")  # within a user: the earlier part first, each in its order
    user, product = user[order], product[order]
    ends = np.cumsum(np.bincount(user, minlength=split.num_users))
    age = (ends[user] - 1 - np.arange(len(user))).astype(np.float64)
    return History(user, product, age, split.num_users, split.num_items)


def _events(split: Split) -> History:
    return History(
        _owners(split.train), split.train.items, np.zeros(len(split.train.items)), split.num_users, split.num_items
    )


def _timeless(events: History) -> History:
    """The same events sorted by what they are, all of one age: no method can tell what came first."""
    order = np.lexsort((events.product, events.user))
    return replace(events, user=events.user[order], product=events.product[order], age=np.zeros(len(order)))


def _last_purchase(split: Split) -> NDArray[np.int64]:
    """Product of the newest purchase of each user with two or more (users,), else -1."""
    bought = split.train.event_types == EVENT_TYPES.index("purchase")
    user, product = _owners(split.train)[bought], split.train.items[bought]
    last = np.full(split.num_users, -1)
    last[user] = product  # in order of time within a user, so the newest stays
    last[np.bincount(user, minlength=split.num_users) < 2] = -1
    return last


def _purchased(split: Split, these: NDArray[np.bool_]) -> sparse.csr_array:
    """Users by products, True where one of `these` rows of train is a purchase."""
    kept = np.flatnonzero(these & (split.train.event_types == EVENT_TYPES.index("purchase")))
    return _bool(_owners(split.train)[kept], split.train.items[kept], split)


def _pairs(product: NDArray[np.int64], split: Split) -> sparse.csr_array:
    user = np.flatnonzero(product >= 0)
    return _bool(user, product[user], split)


def _matrix(split: Split, part: Part) -> sparse.csr_array:
    return _bool(_owners(part), part.items, split)


def _bool(user: NDArray[np.int64], product: NDArray[np.int64], split: Split) -> sparse.csr_array:
    shape = (split.num_users, split.num_items)
    return sparse.csr_array(sparse.csr_array((np.ones(len(user), np.int32), (user, product)), shape=shape).astype(bool))


def _owners(part: Part) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(part.offsets) - 1), np.diff(part.offsets))


def _exam(name: str, known: Known, grown: History | None, split: Split, target: Part, masks: tuple[str, ...]) -> Exam:
    targets, everything = _matrix(split, target), np.ones(split.num_items, bool)
    seen = (grown or known.history).matrix()
    questions = tuple(Question(mask, targets, everything, seen if mask == SEEN else None) for mask in masks)
    return Exam(name, known, grown, questions, _asked(targets))


def _retail_exam(
    name: str, history: History, bought: sparse.csr_array, targets: sparse.csr_array, time_kind: str = "none"
) -> Exam:
    everything = np.ones(history.num_products, bool)
    questions = (Question(BOUGHT, targets, everything, bought), Question(SEEN, targets, everything, history.matrix()))
    return Exam(name, Known(history, None, time_kind), None, questions, _asked(targets))


def _asked(targets: sparse.csr_array) -> NDArray[np.int64]:
    return np.flatnonzero(np.diff(targets.indptr) > 0)
