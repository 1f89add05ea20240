"""Recall and NDCG for several k from one pass, against values worked out by hand."""

import numpy as np
import pytest
from scipy import sparse

from hierarchy.recall import Question, rank, recall_at
from tests.hierarchy.test_evaluate import Fixed, matrix


def asked(scores, targets, barred=None, allowed=None, depth=4):
    allowed = np.ones(len(scores[0]), bool) if allowed is None else np.array(allowed, bool)
    question = Question("all", matrix(targets), allowed, None if barred is None else matrix(barred))
    return rank(Fixed(scores), [question], np.arange(len(scores)), depth, chunk=2)[0]


def test_recall_has_two_denominators_and_ndcg_is_binary_with_an_ideal_of_k():
    found = asked([[9, 8, 7, 6, 5]] * 3, [[1, 0, 1, 0, 0], [1, 1, 1, 0, 1], [0, 0, 0, 0, 0]])
    assert found.place.tolist() == [0, 2, 0, 1, 2, 4]
    assert found.recall(2, "targets").tolist()[:2] == [0.5, 0.5]
    assert found.recall(2, "reachable").tolist()[:2] == [0.5, 1.0]
    half = 1 / np.log2(3)
    np.testing.assert_allclose(found.ndcg(2)[:2], [1 / (1 + half), 1.0])
    np.testing.assert_allclose(found.ndcg(4)[0], 1.5 / (1 + half))
    np.testing.assert_allclose(found.ndcg(4)[1], (1 + half + 0.5) / (1 + half + 0.5 + 1 / np.log2(5)))
    assert np.isnan(found.ndcg(2)[2])
    assert np.isnan(found.recall(2, "targets")[2])


def test_what_is_barred_or_not_allowed_moves_the_others_up_and_does_not_count():
    found = asked([[9, 8, 7, 6, 10]], [[1, 0, 1, 1, 1]], barred=[[1, 0, 0, 0, 0]], allowed=[1, 1, 1, 1, 0])
    assert dict(zip(found.product.tolist(), found.place.tolist(), strict=True)) == {2: 1, 3: 2}


def test_of_equal_scores_the_first_product_wins_so_a_constant_finds_nothing_by_luck():
    found = asked([[1, 1, 1, 1, 1]], [[0, 0, 1, 0, 1]], depth=3)
    assert found.place.tolist() == [2, 3]


def test_a_part_of_the_products_is_asked_about_within_the_same_ranking():
    found = asked([[9, 8, 7, 6, 5]], [[1, 0, 1, 1, 0]]).only(np.array([False, False, True, True, True]))
    assert found.place.tolist() == [2, 3]
    assert found.recall(3, "targets").tolist() == [0.5]


@pytest.mark.parametrize("k", [1, 5, 20])
def test_one_pass_gives_what_a_pass_for_each_k_gives(k):
    rng = np.random.default_rng(k)
    scores = Fixed(rng.normal(size=(40, 90)))
    question = Question("all", sparse.csr_array(rng.random((40, 90)) < 0.1), rng.random(90) < 0.8)
    found = rank(scores, [question], np.arange(40), 20, chunk=7)[0]
    ((recall, positives),) = recall_at(scores, [question], np.arange(40), k)
    np.testing.assert_allclose(found.recall(k, "reachable"), recall)
    assert positives == len(found.row)
    order = np.argsort(-np.where(question.allowed, scores.all, -np.inf), axis=1)[:, :k]
    hits = np.take_along_axis(question.targets.toarray() & question.allowed, order, 1)
    np.testing.assert_allclose(found.recall(k, "targets"), hits.sum(1) / found.targets())
