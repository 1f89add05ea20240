"""Arms of a model by name: which interest tokens it reads. All arms have the same tables and do the same work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from data.errors import UsageError, nearest
from ranking.batch import Bags, hashed_bags, learned_bags
from ranking.reader import Examples

BASELINE = "baseline"
"""The arm of a model that reads no interest tokens at all."""


def bags_of(examples: Examples, arm: str) -> Bags:
    """`tokens` learned, `no_tokens` hashed from ids, `level_<n>` learned but of that level alone.

    A baseline that reads none gets the hashed ones, which it ignores. Raises UsageError for any other name.
    """
    known: dict[str, Callable[[], Bags]] = {
        "tokens": lambda: learned_bags(examples),
        "no_tokens": lambda: hashed_bags(examples),
        BASELINE: lambda: hashed_bags(examples),
    }
    for level in examples.levels:
        known[f"level_{level.level}"] = lambda number=level.level: _one_level(examples, number)  # type: ignore[misc]
    if arm not in known:
        raise UsageError(f"no arm {arm!r}: {nearest(arm, known)}")
    return known[arm]()


def _one_level(examples: Examples, number: int) -> Bags:
    """The learned tokens with those of all other levels absent."""
    bags = learned_bags(examples)
    (level,) = (level for level in examples.levels if level.level == number)
    primitive, weight = np.full_like(examples.primitive, -1), np.zeros_like(examples.weight)
    primitive[:, level.start : level.stop] = examples.primitive[:, level.start : level.stop]
    weight[:, level.start : level.stop] = examples.weight[:, level.start : level.stop]
    return replace(bags, slots=dict.fromkeys(bags.slots, primitive), weight=dict.fromkeys(bags.weight, weight))
