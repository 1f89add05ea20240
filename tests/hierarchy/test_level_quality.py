"""Figures of levels: agreement as others compute it, use of the codebook, children within their parents."""

import numpy as np
import pytest
from sklearn.metrics import completeness_score, homogeneity_score, v_measure_score

from hierarchy.level_quality import agreement, agreement_row, category_tree, nesting, use


def test_agreement_is_the_v_measure_and_its_halves():
    rng = np.random.default_rng(0)
    primitive = rng.integers(0, 12, 400)
    category = np.where(rng.random(400) < 0.7, primitive // 3, rng.integers(0, 4, 400))
    found = agreement(primitive, category)
    assert found.homogeneity == pytest.approx(homogeneity_score(category, primitive))
    assert found.completeness == pytest.approx(completeness_score(category, primitive))
    assert found.nmi == pytest.approx(v_measure_score(category, primitive))
    assert agreement(primitive, primitive // 3).homogeneity == pytest.approx(1.0)
    assert agreement(primitive[:0], category[:0]) == (0.0, 0.0, 0.0)


def test_products_without_a_category_are_not_asked():
    primitive, category = np.array([0, 0, 1, 1, 1]), np.array([0, 0, 1, -1, -1])
    row = agreement_row(primitive, category, 1)
    assert row == {"nmi_category": 1.0, "homogeneity": 1.0, "completeness": 1.0, "category_depth": 2}


def test_use_counts_primitives_with_products_and_how_even_they_are():
    assert use(np.array([0, 0, 1, 1]), 4) == {"active_share": 0.5, "perplexity": 2.0, "perplexity_share": 0.5}
    assert use(np.array([2, 2, 2]), 4)["perplexity"] == 1.0


def test_nesting_is_the_share_of_products_whose_primitive_is_a_child_of_the_one_above():
    parent = np.array([0, 0, 1])
    assert nesting(np.array([0, 1, 2, 2]), np.array([0, 0, 1, 0]), parent) == 0.75
    assert nesting(np.zeros(0, int), np.zeros(0, int), parent) is None


def test_the_matching_depth_has_the_nearest_number_of_categories():
    tree = category_tree(["a > x > 1", "a > x > 2", "a > y", "b > z > 3", None])
    assert [depth.tolist() for depth in tree.depths] == [[0, 0, 0, 1, -1], [0, 0, 1, 2, -1], [0, 1, 2, 3, -1]]
    assert [tree.matching(k) for k in (1, 3, 9)] == [0, 1, 2]
