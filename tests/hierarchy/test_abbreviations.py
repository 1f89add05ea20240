"""Abbreviations are written out by the catalogue's own words, and whole words never touched."""

import numpy as np
import pytest

from hierarchy.abbreviations import Abbreviations, abbreviated
from tests.hierarchy.test_vocabulary import describe

USES = {"frzn": 90, "frozen": 40, "refrgratd": 5, "refrigerated": 9, "btl": 50, "bottle": 4, "sft": 3, "soft": 8}


@pytest.mark.parametrize(
    ("word", "whole"),
    [
        ("frzn", "frozen"),
        ("refrgratd", "refrigerated"),
        ("sft", "soft"),
        ("btl", "btl"),  # three letters, and commoner than the only word that fits
        ("frozen", "frozen"),
        ("unheard", "unheard"),
    ],
)
def test_an_abbreviation_is_its_one_fitting_word(word, whole):
    assert Abbreviations(USES).word(word) == whole


def test_where_two_words_fit_neither_is_taken_unless_one_is_far_commoner():
    assert Abbreviations({"brdm": 1, "bordeem": 5, "boredam": 5}).word("brdm") == "brdm"
    assert Abbreviations({"brdm": 1, "bordeem": 50, "boredam": 5}).word("brdm") == "bordeem"


def test_capitals_stay_as_they_are_and_text_around_words_too():
    assert (
        Abbreviations(USES).text("Frzn Meat/FRZN-Dinners, 12 sft drinks")
        == "Frozen Meat/FROZEN-Dinners, 12 soft drinks"
    )


@pytest.mark.parametrize("word", ["dry", "rye", "glass", "sports", "plush", "broth", "chunks", "über", "мрт", "tv"])
def test_whole_words_are_not_abbreviations(word):
    assert not abbreviated(word)


def test_labels_and_terms_are_written_out_and_stay_unlike():
    titles = ["Frzn Peas", "Frozen Peas", "Frozen Corn", "Soft Cheese", "Sft Cheese", "Soft Cheese"]
    paths = ["Food > Frzn Meat/Meat Dinners"] * 3 + ["Food > Soft Drnks"] * 3
    words = describe([0, 0, 1, 2, 2, 2], titles, paths)
    assert [word.label for word in words] == [
        "Frozen Meat/Meat Dinners (Peas)",
        "Frozen Meat/Meat Dinners (Corn)",
        "Soft Drnks",
    ]
    assert "frzn" not in words[0].top_terms
    assert "frozen" in words[0].top_terms
    assert len({word.label for word in words}) == len(words)
    assert np.all([word.label == word.label.strip() for word in words])
