"""Products nobody had, as retrieval sets: what is withheld, who knows it, and methods side by side on them."""

import csv
import sys
from datetime import UTC, datetime

import numpy as np
import pytest

from data.artifacts import Store
from data.errors import BadDataError
from data.schema import MICROS_PER_DAY, to_micros
from data.sources.splits import load_split
from graph.store import GraphStore
from hierarchy.purchases import bought_between, history_at, products_with_events
from tests.benchmarks import retrieval, rows
from tests.benchmarks.retrieval_quality import panel, protocols, withheld
from tests.benchmarks.retrieval_quality.panel import Panel
from tests.benchmarks.retrieval_quality.protocols import ALL, COLD, COLD_OF_ALL, NEW, protocol
from tests.fixtures import public_sets
from tests.hierarchy import small_learner as small

T1, T2 = (to_micros(datetime(2017, 11, day, tzinfo=UTC)) for day in (13, 27))


def day(start, days):
    return start + days * MICROS_PER_DAY


def shop():
    """Products 0 and 1 sell all the time; 2 is first named between T1 and T2, 3 after T2, 4 is shown before, 5 is new
    to the catalogue after T2."""
    bought = [
        (0, 0, day(T1, -9)), (0, 1, day(T1, -8)), (0, 2, day(T1, 3)), (0, 3, day(T2, 5)), (0, 5, day(T2, 6)),
        (1, 1, day(T1, -7)), (1, 4, day(T1, 2)), (1, 0, day(T2, 3)), (2, 3, day(T2, 1)), (2, 0, day(T2, 30)),
    ]  # fmt: skip
    user, product, ts = (np.array(column) for column in zip(*bought, strict=True))
    named = np.array([day(T1, -9), day(T1, -8), day(T1, 3), day(T2, 1), day(T1, -20), day(T2, 6)])
    known = np.array([0, 0, 0, 0, 0, day(T2, 5)])
    return Panel(user, product, ts, ts + 1, named, known, 3, None)


def wanted(exam, place):
    question = exam.questions[place]
    row, product = question.wanted(exam.users)
    return {(int(exam.users[r]), int(p)) for r, p in zip(row, product, strict=True)}


@pytest.fixture
def planted(monkeypatch):
    monkeypatch.setattr(protocols.panel, "read", lambda place: shop())


def test_completejourney_asks_for_what_is_new_to_a_user_and_nothing_later_is_known(planted):
    asked = protocol("completejourney", None, graph=panel.Path("x"))
    assert [question.name for question in asked.valid.questions] == [NEW, ALL]
    (test,) = asked.tests
    for exam, start in ((asked.valid, T1), (test, T2)):
        assert (exam.known.history.age > 0).all()
        assert len(exam.known.history.age) == (shop().ts < start).sum()
    assert wanted(asked.valid, 0) == {(0, 2), (1, 4)}
    assert wanted(test, 0) == {(0, 3), (1, 0), (2, 3)}, "28 days; product 5 was not listed at T2"


def test_cold_on_completejourney_is_what_no_event_had_named(planted):
    asked = protocol("completejourney-cold", None, graph=panel.Path("x"))
    (test,) = asked.tests
    assert [question.name for question in test.questions] == [COLD, COLD_OF_ALL]
    assert wanted(asked.valid, 0) == {(0, 2)}, "product 4 had been shown"
    assert test.questions[0].allowed.tolist() == [False, False, False, True, False, False]
    assert test.questions[1].allowed.tolist() == [True] * 5 + [False]
    for place in (0, 1):
        assert wanted(test, place) == {(0, 3)}, "user 2 has no history"


def test_a_panel_is_what_the_graph_says_and_survives_its_file(tmp_path):
    ref = small.shop(Store(tmp_path / "store"))["graph"]
    store, found = GraphStore.open(ref), panel.read(ref.path)
    panel.write(found, tmp_path / "out")
    again = panel.read(tmp_path / "out")
    for t in (to_micros(small.T0), to_micros(small.T1)):
        history = history_at(store, "purchase", t)
        for one in (found, again):
            mine = one.history(t)
            assert len(mine.age) == len(history.age) > 10
            assert (mine.matrix() != history.matrix()).nnz == 0
            np.testing.assert_array_equal(one.named <= t, products_with_events(store, t))
            other = bought_between(store, "purchase", t, day(t, 7))
            assert (one.bought(t, day(t, 7)) != other).nnz == 0
    with pytest.raises(BadDataError, match="give one to --graph"):
        panel.read(tmp_path)


def test_withheld_items_are_those_of_the_encoders_benchmark():
    names = [str(number) for number in range(30)]
    order = sorted(names)
    drawn = np.random.default_rng(0).random(30) < withheld.SHARE
    assert {name for name, held in zip(order, drawn, strict=True) if held} == {
        name for name, held in zip(names, withheld.withheld(names, withheld.TEST), strict=True) if held
    }


def test_the_stored_hold_out_is_drawn_again_from_the_published_set(monkeypatch):
    split = load_split("amazon-scientific", public_sets.real("amazon-scientific"))
    assert split.num_items == withheld.ITEMS
    assert withheld.withheld(split.item_ids, withheld.TEST).sum() == 457
    monkeypatch.setattr(withheld, "SHARE", 0.11)
    with pytest.raises(BadDataError, match="not those stored"):
        withheld.withheld(split.item_ids, withheld.TEST)


def test_nobody_is_told_of_withheld_items(tmp_path, monkeypatch):
    choose(monkeypatch)
    split = load_split("amazon-scientific", public_sets.write("amazon-scientific", tmp_path))
    of_test, of_valid = np.arange(5) == 2, np.arange(5) == 1
    asked = protocol("amazon-scientific-cold", tmp_path)
    (test,) = asked.tests
    assert not (of_test | of_valid)[asked.valid.known.history.product].any()
    assert not of_test[test.known.history.product].any()
    assert not asked.valid.questions[1].allowed[of_test].any()
    assert test.known.history.num_products == 5
    for exam, parts, cold in ((asked.valid, PARTS[:2], of_valid), (test, PARTS, of_test)):
        own = {
            (user, int(item))
            for name in parts
            for user in range(split.num_users)
            for item in getattr(split, name).of(user)
            if cold[item]
        }
        told = set(exam.known.history.user.tolist())
        expected = {pair for pair in own if pair[0] in told}
        assert wanted(exam, 0) == wanted(exam, 1) == expected
        assert len(expected) > 0
        ages = [np.sort(exam.known.history.age[exam.known.history.user == user]) for user in told]
        assert all(np.array_equal(age, np.arange(len(age))) for age in ages)


PARTS = ("train", "valid", "test")


def choose(monkeypatch):
    """Item 2 is the test's; validation draws items 1 and 2."""
    masks = {withheld.TEST: np.arange(5) == 2, withheld.VALID: np.isin(np.arange(5), [1, 2])}
    monkeypatch.setattr(withheld, "withheld", lambda ids, seed: masks[seed])


def test_content_dropoutnet_and_the_learner_are_rows_of_one_table(tmp_path, monkeypatch):
    choose(monkeypatch)
    for module, name in ((rows, "versions_of"), (rows, "commit"), (retrieval.rows, "commit")):
        monkeypatch.setattr(module, name, lambda: "")
    monkeypatch.setattr("tests.benchmarks.rows._commit", lambda: "")
    public_sets.write("amazon-scientific", tmp_path)
    file = tmp_path / "out" / "retrieval.csv"
    methods = "content,dropoutnet,learner,popularity,lightgcn,sasrec"
    options = ["--sets", "amazon-scientific-cold", "--methods", methods, "--trials", "2"]
    monkeypatch.setattr(sys, "argv", ["retrieval", "--data", str(tmp_path), "--csv", str(file), *options])
    retrieval.main()
    with open(file, newline="", encoding="utf-8") as stream:
        table = list(csv.DictReader(stream))
    for question in (COLD, COLD_OF_ALL):
        own = [row for row in table if row["what"] == f"amazon-scientific-cold, test, {question}"]
        assert {row["peer"] for row in own if row["metric"] == "recall@20"} == set(methods.split(","))
