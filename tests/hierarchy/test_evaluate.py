"""Evaluation: recall as defined, settings chosen before the test, no look ahead, and level figures that are right."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from scipy import sparse

from data.artifacts import Store
from data.schema import to_micros
from data.timegrid import date_file
from hierarchy import evaluate, supergraph, tokens
from hierarchy.level_quality import duplicate_share, nmi
from hierarchy.recall import Question, best, recall_at
from tests.fixtures import worlds
from tests.hierarchy.planted import T0, T1, T2, Shop

INPUTS = ("events", "graph", "features", "learner", "embeddings", "supergraph", "tokens")
CONFIG = evaluate.Config(t1=T1, t2=T2)


def evaluated(store, world, **options):
    shop = Shop(store, world, **options)
    shop.run("supergraph", supergraph, supergraph.Config(t0=T0), INPUTS[:5])
    shop.run("tokens", tokens, tokens.Config(), ("embeddings", "supergraph"))
    shop.run("evaluation", evaluate, CONFIG, INPUTS)
    return shop


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    return evaluated(Store(tmp_path_factory.mktemp("evaluate")), worlds.world(), heads=2)


class Fixed:
    """A scorer that holds its scores."""

    def __init__(self, scores):
        self.all = np.array(scores, np.float32)

    def scores(self, users):
        return self.all[users].copy()

    def with_popularity(self, factor):
        return self

    def with_history(self, history):
        return self


def matrix(rows):
    return sparse.csr_array(np.array(rows, bool))


def test_recall_counts_hits_among_the_best_k_over_what_could_be_hit():
    scores = Fixed([[9, 8, 7, 6, 5], [9, 8, 7, 6, 5], [1, 2, 3, 4, 5]])
    targets = matrix([[1, 0, 1, 0, 0], [1, 1, 1, 1, 0], [0, 0, 0, 0, 0]])
    question = Question("all", targets, np.ones(5, bool))
    ((recall, positives),) = recall_at(scores, [question], np.arange(3), k=2, chunk=2)
    assert recall[:2].tolist() == [0.5, 1.0]
    assert np.isnan(recall[2])
    assert positives == 6


def test_what_is_barred_or_not_allowed_is_neither_ranked_nor_counted():
    scores = Fixed([[9, 8, 7, 6, 10]])
    targets, seen = matrix([[1, 0, 1, 1, 1]]), matrix([[1, 0, 0, 0, 0]])
    allowed = np.array([True, True, True, True, False])
    questions = [Question("new", targets, allowed, barred=seen), Question("all", targets, allowed)]
    (new, wanted), (every, all_wanted) = recall_at(scores, questions, np.array([0]), k=2)
    assert (new.tolist(), wanted) == ([0.5], 2), "ranked 1, 2: of 2, 3 one is found"
    assert (every.tolist(), all_wanted) == ([0.5], 3)


@pytest.mark.parametrize(("width", "k"), [(1000, 20), (1000, 1), (64, 3), (130, 20), (7, 20)])
def test_the_best_are_those_of_a_full_sort_and_ties_go_to_the_first(width, k):
    rng = np.random.default_rng(width + k)
    for scores in (rng.normal(size=(9, width)), rng.poisson(0.2, size=(9, width)), np.zeros((9, width))):
        scores = scores.astype(np.float32)
        scores[4, width // 2 :] = -np.inf
        row, column = best(scores, k)
        want = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        assert column.reshape(9, -1).tolist() == want.tolist()
        assert (row.reshape(9, -1) == np.arange(9)[:, None]).all()


def test_recall_equals_brute_force_whatever_the_chunk():
    rng = np.random.default_rng(0)
    scores, targets = rng.normal(size=(23, 41)), rng.random((23, 41)) < 0.1
    question = Question("all", matrix(targets), np.ones(41, bool))
    want = []
    for user in range(23):
        first = np.argsort(-scores[user])[:20]
        want.append(targets[user][first].sum() / min(20, targets[user].sum()) if targets[user].any() else np.nan)
    for chunk in (1, 5, 128):
        ((found, _),) = recall_at(Fixed(scores), [question], np.arange(23), chunk=chunk)
        np.testing.assert_allclose(found, want)


def rows_of(shop):
    return {(r["method"], r["protocol"], r["split"]): r for r in shop.refs["evaluation"].json("retrieval.json")}


def test_every_method_is_asked_every_question_it_can_answer(shop):
    rows = rows_of(shop)
    methods = {"popularity", "own frequency", "item-kNN", "content only", "learner"}
    warm = {
        (method, protocol, split)
        for method in methods
        for protocol in ("all", "new")
        for split in ("validation", "test")
    }
    cold = {(method, "cold", split) for method in ("content only", "learner") for split in ("validation", "test")}
    assert rows.keys() == warm | cold
    for key in warm:
        assert 0 < rows[key]["recall@20"] < 1
        assert rows[key]["users"] > 20
    for key in cold:
        assert rows[key]["recall@20"] is None, "a handful of cold purchases carries no claim"
        assert rows[key]["note"].startswith("too few: ")


def test_methods_that_know_the_planted_interests_find_more_than_popularity(shop):
    rows = rows_of(shop)
    for split in ("validation", "test"):
        floor = rows["popularity", "all", split]["recall@20"]
        for method in ("own frequency", "item-kNN", "content only", "learner"):
            assert rows[method, "all", split]["recall@20"] > 1.2 * floor


def test_test_figures_come_from_the_settings_that_were_best_in_validation(shop):
    chosen = {key: row["setting"] for key, row in rows_of(shop).items()}
    for (method, protocol, split), setting in chosen.items():
        assert setting == chosen[method, protocol, "validation"], split
    alone = {}
    for days in evaluate.Config(t1=T1, t2=T2).windows:
        config = evaluate.Config(t1=T1, t2=T2, windows=(days,))
        shop.run(f"evaluation-{days}", evaluate, config, INPUTS)
        made = shop.refs[f"evaluation-{days}"].json("retrieval.json")
        alone[days] = {
            r["split"]: r["recall@20"] for r in made if r["method"] == "popularity" and r["protocol"] == "all"
        }
    better = max(alone, key=lambda days: alone[days]["validation"])
    row = rows_of(shop)["popularity", "all", "test"]
    assert row["setting"] == {"window": better}
    assert row["recall@20"] == alone[better]["test"]


def test_events_after_a_window_change_nothing_in_it(shop, world, tmp_path):
    past = evaluated(Store(tmp_path), world, until=T2, heads=2)
    whole = rows_of(shop)
    for key, row in rows_of(past).items():
        if key[2] == "validation":
            assert row == whole[key]
        else:
            assert (row["recall@20"], row["users"], row["positives"]) == (None, 0, 0)


def test_a_learner_that_sees_the_future_would_show(shop, monkeypatch):
    """The canary: scores made of the targets themselves find everything, so the harness can see a leak."""
    real = evaluate._window

    def leaking(event_type, store, inputs, start, end):
        window = real(event_type, store, inputs, start, end)
        return window._replace(learned=Fixed(window.questions[0].targets.toarray()))

    monkeypatch.setattr(evaluate, "_window", leaking)
    shop.run("evaluation-leak", evaluate, CONFIG, INPUTS)
    rows = {(r["method"], r["protocol"], r["split"]): r for r in shop.refs["evaluation-leak"].json("retrieval.json")}
    assert rows["learner", "all", "validation"]["recall@20"] == 1.0
    assert rows_of(shop)["learner", "all", "validation"]["recall@20"] < 0.99


def test_history_and_embeddings_are_those_of_the_last_date_before_the_window(shop):
    window = evaluate._window("purchase", shop.nodes, shop.refs, to_micros(T1), to_micros(T2))
    assert window.history.age.min() >= 0
    dates = shop.refs["embeddings"].table("embeddings/")["as_of"].to_numpy()
    as_of = dates[dates <= to_micros(T1)].max()
    assert as_of < to_micros(T1), "the grid and the cut differ in this shop"
    rows = shop.refs["embeddings"].table("embeddings/").to_pylist()
    vectors = {
        r["entity_id"]: r["vector"]
        for r in rows
        if r["as_of"] == as_of and r["head"] == 0 and r["entity_type"] == "user"
    }
    user = shop.nodes.encode("user", ["u010"])[0]
    np.testing.assert_array_equal(window.learned.users[user, 0], np.array(vectors["u010"], np.float32))
    seen = window.history.matrix()[user].toarray().ravel() > 0
    new = next(question for question in window.questions if question.name == "new")
    assert not seen[new.wanted(np.array([user]))[1]].any()


def test_cold_products_are_those_no_event_named_and_only_they_are_ranked(shop, monkeypatch):
    named = np.ones(80, bool)
    cold = shop.nodes.encode("product", ["p001", "p017", "p033"])
    named[cold] = False
    monkeypatch.setattr(evaluate, "products_with_events", lambda *_: named)
    monkeypatch.setattr(evaluate, "_CLAIM", 1)
    window = evaluate._window("purchase", shop.nodes, shop.refs, to_micros(T1), to_micros(T2))
    learner = next(method for method in evaluate._methods(CONFIG) if method.name == "learner")
    _, row = evaluate._measure(learner, {0: ("cold",)}, window, 32)["cold"]
    asked = window.questions[0].targets[window.users].toarray()[:, cold]
    assert row == {"recall@20": 1.0, "users": asked.any(axis=1).sum(), "positives": asked.sum()}
    assert 0 < row["positives"] < window.questions[0].targets.nnz / 4


def test_the_best_head_scores_and_popularity_is_added():
    users = np.array([[[1.0, 0.0], [0.0, 1.0]]], np.float32)
    products = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], np.float32)
    learned = evaluate.Learned(users, products, np.array([0.0, 0.5, 0.0], np.float32))
    assert learned.scores(np.array([0])).tolist() == [[1.0, 1.5, 0.0]]


def test_more_popularity_never_touches_the_cosines():
    users, products = np.eye(2, dtype=np.float32)[:, None], np.eye(2, dtype=np.float32)
    learned = evaluate.Learned(users, products, np.array([0.5, 0.0], np.float32)).with_popularity(4.0)
    np.testing.assert_allclose(learned.scores(np.array([1])), [[2.0, 1.0]])


def test_planted_levels_agree_with_the_category_tree(shop):
    coarse, fine = shop.refs["evaluation"].json("levels.json")
    assert (coarse.pop("level"), coarse.pop("k"), coarse.pop("category_depth")) == (1, 4, 1)
    assert coarse == {
        **{"active_share": 1.0, "perplexity": 4.0, "perplexity_share": 1.0},
        **{"nmi_category": 1.0, "homogeneity": 1.0, "completeness": 1.0},
        **{"nesting": None, "duplicates": 0.0},
    }
    assert (fine["k"], fine["category_depth"], fine["nmi_category"], fine["perplexity"]) == (16, 3, 1.0, 16.0)
    assert fine["nesting"] == 1.0


def test_nmi_is_twice_the_mutual_information_over_both_entropies():
    rng = np.random.default_rng(0)
    one = rng.integers(0, 7, 300)
    two = np.where(rng.random(300) < 0.6, one, rng.integers(0, 5, 300)) + 3
    joint = np.array([[np.mean((one == a) & (two == b)) for b in range(10)] for a in range(7)])
    rows, columns = joint.sum(axis=1), joint.sum(axis=0)
    mutual = sum(
        joint[a, b] * np.log(joint[a, b] / rows[a] / columns[b]) for a, b in zip(*np.nonzero(joint), strict=True)
    )
    entropies = [-sum(p * np.log(p) for p in side if p) for side in (rows, columns)]
    assert nmi(one, two) == pytest.approx(2 * mutual / sum(entropies))
    assert nmi(one, 5 - one) == pytest.approx(1)
    assert nmi(one, np.zeros(300, int)) == 0
    assert nmi(one[:0], two[:0]) == 0


def test_duplicates_are_primitives_with_a_near_twin():
    vectors = np.eye(4, dtype=np.float32)
    vectors[1] = vectors[0] + 0.1 * vectors[1]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert duplicate_share(vectors) == 0.5


def test_a_product_counts_by_its_newest_bag(shop, tmp_path):
    from data.schema import TOKENS
    from hierarchy.level_quality import _strongest
    from hierarchy.levels import published
    from tests.fixtures.artifacts import make_ref

    level = published(shop.refs["supergraph"])[0]
    said = {"level": 1, "weight": 1.0, "residual": 0.0, "vocab_version": "", "model_version": ""}
    names = ("entity_id", "entity_type", "primitive_id", "rank", "as_of")
    bags = [
        ("p1", "product", "L1-0000", 0, 1),
        ("p1", "product", "L1-0002", 0, 2),
        ("p1", "product", "L1-0001", 1, 2),
        ("p2", "product", "L1-0003", 0, 1),
        ("p2", "user", "L1-0001", 0, 1),
    ]
    rows = [said | dict(zip(names, bag, strict=True)) for bag in bags]
    table = pa.Table.from_pylist(rows, schema=TOKENS)

    def by_date(out):
        for day in (1, 2):
            out.write_table(date_file("tokens/", day), table.filter(pc.equal(table["as_of"], day)))

    ref = make_ref(Store(tmp_path), "tokens", by_date)
    ids, primitive = _strongest(ref, level)
    assert (ids.to_pylist(), primitive.tolist()) == (["p1", "p2"], [2, 3])
