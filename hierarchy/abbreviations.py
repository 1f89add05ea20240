"""Abbreviations of a catalogue written out, where the catalogue itself knows the whole word.

Shops shorten by leaving vowels out: "frzn", "drnks", "refrgratd". Such a word is taken for the one word of the same
catalogue with the same consonants in the same order, doubled ones counted once; where no word or no single one fits, it
is left alone. Only words in plain Latin letters are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_WORD = re.compile(r"[^\W\d_]{3,}")
_VOWELS = re.compile("[aeiou]")
_DOUBLED = re.compile(r"(.)\1+")
_FEW, _LONG = 0.25, 8  # a word of that many letters with fewer vowels is no whole word; a shorter one has none at all
_SHORT = 3  # an abbreviation of so few letters fits many words, so it must be rarer than the one it is taken for
_CLEAR = 0.8  # share of the uses of all fitting words that the best must have


class Abbreviations:
    """Writes out abbreviations by the words (lower case) of a catalogue and how often each is used."""

    def __init__(self, uses: Mapping[str, float]) -> None:
        fitting: dict[str, list[str]] = {}
        for word in sorted(uses):
            if not abbreviated(word):
                fitting.setdefault(_consonants(word), []).append(word)
        self._whole = {}
        for word in filter(abbreviated, uses):
            whole = self._best(word, fitting.get(_consonants(word), []), uses)
            if whole is not None:
                self._whole[word] = whole

    @staticmethod
    def _best(word: str, fitting: list[str], uses: Mapping[str, float]) -> str | None:
        least = uses[word] if len(word) <= _SHORT else 0
        fitting = [
            whole for whole in fitting if whole[0] == word[0] and len(whole) > len(word) and uses[whole] >= least
        ]
        total = sum(uses[whole] for whole in fitting)
        best = max(fitting, key=lambda whole: uses[whole], default=None)
        return best if best is not None and uses[best] >= _CLEAR * total else None

    def word(self, word: str) -> str:
        """The whole word for a lower-case abbreviation, any other word as it is."""
        return self._whole.get(word, word)

    def text(self, text: str) -> str:
        """The same for every word of a text; a capital letter stays one."""
        return _WORD.sub(lambda found: self._like(found.group()), text)

    def _like(self, word: str) -> str:
        whole = self._whole.get(word.lower())
        if whole is None:
            return word
        return whole.upper() if word.isupper() else whole.capitalize() if word[0].isupper() else whole


def abbreviated(word: str) -> bool:
    """Whether a lower-case word has too few vowels to be whole; y counts as one, as in "dry" and "rye"."""
    vowels = len(_VOWELS.findall(word)) + word.count("y")
    return word.isascii() and len(word) >= _SHORT and (not vowels or (len(word) >= _LONG and vowels < _FEW * len(word)))


def _consonants(word: str) -> str:
    """The consonants in their order, doubled ones once: what an abbreviation keeps."""
    return _DOUBLED.sub(r"\1", _VOWELS.sub("", word))
