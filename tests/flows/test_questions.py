"""`strata query`: every kind of question on the planted shop, as JSON and as a person reads it."""

import json

import pytest

from data import snapshot
from data.artifacts import Store
from data.errors import BadDataError, UsageError
from flows import questions
from flows.questions import Question, ask
from hierarchy import index, supergraph, tokens
from hierarchy.interests import Interests
from tests.fixtures import worlds
from tests.fixtures.command_line import strata_process
from tests.hierarchy.planted import T0, Shop


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    shop = Shop(Store(tmp_path_factory.mktemp("questions")), worlds.world())
    shop.run(
        "supergraph", supergraph, supergraph.Config(t0=T0), ("events", "graph", "features", "learner", "embeddings")
    )
    shop.run("tokens", tokens, tokens.Config(), ("embeddings", "supergraph"))
    shop.run("index", index, index.Config(), ("events", "embeddings", "supergraph"))
    snapshot.publish(shop.store, shop.refs, "vocabulary", "model", 0)
    return shop


@pytest.fixture(scope="module")
def asked(shop):
    return Interests(shop.store, snapshot.load(shop.store))


def dicts(hits):
    return [hit.as_dict() for hit in hits]


def test_each_question_is_the_operation_it_names(shop, asked):
    one, two = "Chew Toy", "Dog Biscuits"
    for question, expected in (
        (Question("product", "p005", k=3), dicts(asked.index.by_entity("product", "p005", 3))),
        (
            Question("advertiser", "a01", find="primitive", by="tokens"),
            dicts(asked.of_entity("advertiser", "a01", "tokens")),
        ),
        (
            Question("user", "u003", find="primitive", level=2, k=4),
            dicts(asked.of_entity("user", "u003", k=4, level=2)),
        ),
        (Question("primitive", one, k=3), dicts(asked.index.by_primitive("L2-0005", 3))),
        (Question("primitive", one, find="user", by="tokens", k=3), dicts(asked.entities(one, "user", k=3))),
        (Question("primitive", one, find="primitive", k=3), dicts(asked.near(one, k=3))),
        (Question("primitive", one, find="primitive", level=2, k=3), dicts(asked.near(one, k=3))),
        (Question("primitive", "L2-0005", find="primitive", level=1), dicts(asked.near(one, level=1))),
        (Question("primitive", one, find="primitive", by="then_purchase"), dicts(asked.near(one, "then_purchase"))),
        (Question("between", one, two, rank="product", k=3), dicts(asked.between(one, two, rank="product", k=3))),
        (Question("between", one, two, by="vector", k=3), dicts(asked.midpoint(one, two, k=3))),
        (Question("between", one, two, find="product", k=3), dicts(asked.between(one, two, "product", k=3))),
        (Question("path", "Pets"), asked.path("Pets").as_dict()),
        (Question("distance", one, two), asked.distance(one, two).as_dict()),
        (Question("distance", one, two, find="user"), asked.distance(one, two, "user").as_dict()),
    ):
        assert ask(shop.store, None, question) == expected, question
        assert expected, question
        json.dumps(expected)


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (
            Question("between", "Chew Toy"),
            "between: expected two interests, such as strata query between L2-0001 L2-0007",
        ),
        (Question("path", "Chew Toy", "Pets"), "path: expected one value, such as strata query path L2-0001"),
        (Question("text", "tea", by="tokens"), "--by tokens has no meaning for text --find product"),
        (Question("primitive", "Pets", by="co_purchase"), "unknown --by 'co_purchase'.*need --find primitive"),
        (Question("primitive", "Pets", find="primitive", by="co_purchas"), "did you mean 'co_purchase'"),
        (Question("between", "Chew Toy", "Pets", rank="max"), "unknown rank 'max'"),
        (Question("betwen", "Chew Toy", "Pets"), "did you mean 'between'"),
    ],
)
def test_words_that_do_not_go_together_are_refused_with_what_does(shop, question, words):
    with pytest.raises(UsageError, match=words):
        ask(shop.store, None, question)


def test_an_unknown_interest_is_answered_with_the_nearest_label(shop):
    with pytest.raises(BadDataError, match=r"did you mean L2-0005 \(Chew Toy\)"):
        ask(shop.store, None, Question("distance", "Chew Toi", "Pets"))


def test_answers_are_readable(shop, capsys):
    for question, words in (
        (Question("between", "Chew Toy", "Dog Biscuits"), ("score", "first", "second", "u0")),
        (Question("path", "Chew Toy"), ("Pets (L1-0001", "  Chew Toy (L2-0005", "siblings", "parents", "of level 2")),
        (Question("path", "Pets"), ("Pets (L1-0001", "  Chew Toy (L2-0005", "siblings")),
        (
            Question("distance", "Chew Toy", "Dog Biscuits"),
            ("L2-0005 and L2-0004, by the products", "centroid", "overlap", "then_purchase"),
        ),
        (Question("primitive", "Pets", find="primitive"), ("score", "L1-000")),
    ):
        questions.render(ask(shop.store, None, question))
        printed = capsys.readouterr().out
        assert all(word in printed for word in words), printed


def test_the_command_line_answers_by_label_in_json(shop):
    asked = ("query", "between", "chew toy", "dog biscuits", "--k", 2, "--json")
    done = strata_process(*asked, "--store", shop.store.root)
    assert done.returncode == 0, done.stderr
    hits = json.loads(done.stdout)
    assert len(hits) == 2
    assert all(hit["score"] == min(hit["weights"]) for hit in hits)
