"""How much bags of meaning change between two vocabularies, entity by entity."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int64]


class Coded(NamedTuple):
    """Bags of n entities at one level: numbers of primitives int64 (n, s), strongest first, and weights float32 (n, s).

    Equal numbers mean equal primitives, also between two bags of different vocabularies; an empty slot weighs 0.
    """

    code: Codes
    weight: NDArray[np.float32]


def strongest_changed(old: Coded, new: Coded) -> NDArray[np.bool_]:
    """Whether the strongest primitive of each entity is another one, (n,)."""
    return np.asarray(old.code[:, 0] != new.code[:, 0])


def bag_change(old: Coded, new: Coded) -> NDArray[np.float64]:
    """1 - weighted Jaccard of the two bags of each entity, float64 (n,): 0 equal, 1 nothing in common.

    sum min / sum max over primitives (Ruzicka 1958). Memory: n times the product of the bag sizes.
    """
    same = old.code[:, :, None] == new.code[:, None, :]
    lower = np.minimum(old.weight[:, :, None], new.weight[:, None, :]).astype(np.float64)
    shared = (lower * same).sum(axis=(1, 2))
    whole = old.weight.sum(axis=1, dtype=np.float64) + new.weight.sum(axis=1, dtype=np.float64) - shared
    return np.asarray(1.0 - shared / np.maximum(whole, 1e-30))


class Change(NamedTuple):
    """Entities counted, those whose strongest primitive changed, and the sum of bag changes; adds up over groups."""

    entities: int = 0
    strongest: int = 0
    bag: float = 0.0

    def plus(self, other: Change) -> Change:
        """Both together."""
        return Change(self.entities + other.entities, self.strongest + other.strongest, self.bag + other.bag)

    def shares(self, prefix: str = "") -> dict[str, float | None]:
        """`strongest_changed` [0-1] and mean `bag_change` [0-1] to four digits; None without entities."""
        strongest = round(self.strongest / self.entities, 4) if self.entities else None
        bag = round(self.bag / self.entities, 4) if self.entities else None
        return {f"{prefix}strongest_changed": strongest, f"{prefix}bag_change": bag}


def change(old: Coded, new: Coded) -> Change:
    """The change of n entities at one level."""
    return Change(len(old.code), int(strongest_changed(old, new).sum()), float(bag_change(old, new).sum()))


def shared_codes(old: list[str], new: list[str]) -> tuple[Codes, Codes]:
    """Numbers of two lists of ids under one numbering: equal numbers for equal ids."""
    place = {identity: number for number, identity in enumerate(dict.fromkeys([*old, *new]))}
    first, second = (np.array([place[identity] for identity in ids], np.int64) for ids in (old, new))
    return first, second
