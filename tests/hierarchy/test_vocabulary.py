"""Words for primitives: the right depth of category, labels that are never equal, terms that tell apart."""

import math

import numpy as np
import pytest
from scipy import sparse

from hierarchy.bags import Bags
from hierarchy.vocabulary import Catalogue, Describer, c_tf_idf, count, divergence, unique_labels, words_of


def hard(primitives):
    """Bags of products that belong to one primitive each."""
    rows = np.array(primitives, np.int32)[:, None]
    return Bags(rows, np.ones(rows.shape, np.float32), np.zeros(len(rows), np.float32))


def describe(primitives, titles, categories, k=None, engagement=None, **limits):
    ids = [f"p{row}" for row in range(len(titles))]
    known = np.ones(len(titles)) if engagement is None else np.array(engagement, float)
    catalogue = Catalogue(ids, titles, categories, known)
    return Describer(catalogue, **limits).describe(hard(primitives), k or max(primitives) + 1)


def test_the_label_takes_the_category_at_the_depth_that_fits_the_primitive():
    paths = ["Food > Cereal > Kids", "Food > Cereal > Adult", "Food > Dairy > Milk", "Food > Dairy > Milk"]
    words = describe([0, 0, 1, 1], ["Rings", "Flakes", "Milk", "Milk"], paths)
    assert [word.label for word in words] == ["Cereal", "Milk"]


def test_a_primitive_of_two_categories_is_named_after_both():
    paths = ["Home > Candles"] * 3 + ["Toys > Kites"] * 2 + ["Food > Jam", "Food > Tea"] + ["Food > Rice"] * 3
    words = describe([0] * 7 + [1] * 3, ["x"] * 10, paths)
    assert words[0].label == "Candles & Kites"


def test_primitives_of_one_category_are_told_apart_by_a_term_of_their_own():
    titles = ["Kids Cereal", "Kids Rings Cereal", "Adult Cereal", "Adult Flakes Cereal"]
    words = describe([0, 0, 1, 1], titles, ["Food > Cereal"] * 4)
    assert [word.label for word in words] == ["Cereal (Kids)", "Cereal (Adult)"]


def test_labels_are_numbered_when_nothing_tells_them_apart_and_never_equal():
    words = describe([0, 1, 2, 3, 4], ["Milk"] * 5, ["Food > Milk"] * 5)
    assert [word.label for word in words] == ["Milk", "Milk II", "Milk III", "Milk IV", "Milk V"]


def test_a_numbered_label_does_not_take_the_name_of_another_class():
    titles = count([["milk"]] * 3)
    assert unique_labels(["Milk", "Milk", "Milk II"], titles, np.array([3.0, 1.0, 2.0])) == [
        "Milk",
        "Milk III",
        "Milk II",
    ]


def test_without_categories_the_terms_make_the_label_and_without_words_nothing_does():
    words = describe([0, 0, 1], ["espresso beans", "espresso beans dark", None], [None, None, None], k=3)
    assert words[0].label == "Espresso & Beans"
    assert {words[1].label, words[2].label} == {"Unnamed", "Unnamed II"}
    assert words[2].top_terms == words[2].top_products == []


@pytest.mark.parametrize(
    ("name", "shown"), [("COLD CEREAL", "Cold Cereal"), ("dry soup", "Dry Soup"), ("BBQ Sauce", "BBQ Sauce")]
)
def test_labels_are_in_readable_title_case(name, shown):
    assert describe([0, 1], ["x", "y"], [f"A > {name}", "A > Other"])[0].label == shown


def test_terms_leave_out_numbers_units_and_stop_words_but_keep_other_alphabets():
    assert words_of("The 12 Oz Kids' Müsli, with Nüsse 500ml") == ["kids", "müsli", "nüsse"]
    assert words_of(None) == []


def test_scores_are_class_based_tf_idf():
    scores = c_tf_idf(sparse.csr_array(np.array([[3.0, 1.0, 0.0], [0.0, 1.0, 1.0]]))).toarray()
    assert scores[0, 0] == pytest.approx(3 / 4 * math.log(1 + 3 / 3))
    assert scores[0, 1] == pytest.approx(1 / 4 * math.log(1 + 3 / 2))
    assert scores[1, 2] == pytest.approx(1 / 2 * math.log(1 + 3 / 1))


def test_a_category_names_what_it_covers_much_of_not_a_rarity_in_it():
    paths = ["Food > Tea"] * 8 + ["Food > Rare", "Food > Cups"] + ["Food > Tea"] * 4 + ["Food > Rice"] * 6
    words = describe([0] * 10 + [1] * 10, ["x"] * 20, paths)
    assert words[0].label.startswith("Tea")


def test_a_category_of_half_the_catalogue_names_nothing_as_long_as_another_can():
    paths = [
        "Food > Tea",
        "Food > Rice",
        "Food > Jam",
        "Food > Nuts",
        "Toys > Kites",
        "Home > Mats",
        "Pets > Toys",
        "x",
    ]
    words = describe([0, 0, 0, 0, 1, 2, 3, 4, 5, 6], ["x"] * 10, [*paths[:4], *paths[4:], "y", "z"], k=7)
    assert "Food" not in words[0].label


def test_divergence_is_share_times_log_of_lift():
    counts = sparse.csr_array(np.array([[3.0, 1.0, 0.0, 4.0], [0.0, 1.0, 4.0, 4.0], [0.0, 0.0, 2.0, 6.0]]))
    scores = divergence(counts, np.array([4.0, 6.0, 10.0])).toarray()
    assert scores[0, 0] == pytest.approx(3 / 4 * math.log((3 / 4) / (3 / 20)))
    assert scores[1, 1] == pytest.approx(1 / 6 * math.log((1 / 6) / (2 / 20)))
    assert scores[2, 2] == pytest.approx(2 / 10 * math.log((2 / 10) / (6 / 20)))
    assert scores[:, 3].tolist() == [0, 0, 0], "14 of 20 is more than two of three classes"


def test_typical_products_are_of_the_categories_that_make_up_the_primitive():
    paths = ["A > Tea"] * 4 + ["B > Soap"]
    words = describe([0] * 5, [f"t{n}" for n in range(5)], paths, engagement=[1, 2, 3, 4, 9], products=3)
    assert words[0].top_products == ["p3", "p2", "p1"]


def test_typical_products_are_those_many_know_and_no_title_comes_twice():
    titles = ["Tea", "Tea", "Herbal Tea", "Green Tea"]
    words = describe([0, 0, 0, 0], titles, [None] * 4, k=2, engagement=[5, 9, 100, 0], products=2)
    assert words[0].top_products == ["p2", "p1"]
    assert words[1].top_products == []


def test_a_product_counts_with_its_token_weight():
    bags = Bags(
        np.array([[0, 1], [1, 0]], np.int32), np.array([[0.9, 0.1], [0.6, 0.4]], np.float32), np.zeros(2, np.float32)
    )
    words = Describer(Catalogue(["a", "b"], ["apple", "bread"], [None, None], np.ones(2))).describe(bags, 2)
    assert [word.top_terms[0] for word in words] == ["apple", "bread"]
