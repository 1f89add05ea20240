"""Presets: whole configurations as functions, each saying only what differs from the stages' own defaults.

A TOML file given to `--config` overrides single fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from data.errors import UsageError, nearest
from flows import public_sets

# The log covers 2017. The learner sees eight months, the ranker learns on eleven weeks, is chosen on two
# and tested on the last five, which hold the holidays: a hard, honest shift.
_CUTS = {"t0": "2017-08-28T00:00:00Z", "t1": "2017-11-13T00:00:00Z", "t2": "2017-11-27T00:00:00Z"}

# Groceries: what sells changes with the season, and most products sell so seldom that their content says more than
# their buyers; slower maps keep more of it. Chosen on the validation window of the demo preset.
_GROCERIES: dict[str, Any] = {"popularity_days": 14.0, "lr": 1.5e-3, "blend": 20.0}


def demo() -> dict[str, Any]:
    """A fixed part of the households and products: minutes on two cores."""
    return {
        "cuts": _CUTS,
        "events": {"source": "completejourney", "completejourney": {"households": 800, "products_share": 0.3}},
        "learner": {**_GROCERIES},
    }


def full() -> dict[str, Any]:
    """Every household and product: 1.47 M purchases, 92 k products; more interests, longer training."""
    return {
        "cuts": _CUTS,
        "events": {
            "source": "completejourney",
            "completejourney": {"households": None, "products_share": 1.0},
            "memory_limit": "4GB",
        },
        "learner": {
            "levels": [{"k": 16, "top": 2}, {"k": 128, "top": 4}, {"k": 1024, "top": 8}],
            "steps": 3000,
            **_GROCERIES,
        },
        "ranker": {"max_rows": 500_000},
    }


def fashion() -> dict[str, Any]:
    """A catalogue of 2,906 fashion products with pictures, and people who are simulated: minutes on two cores."""
    # The log covers sixteen weeks from 2024-01-01: eight for the learner, four for the ranker, one to choose, three.
    cuts = {"t0": "2024-02-26T00:00:00Z", "t1": "2024-03-25T00:00:00Z", "t2": "2024-04-01T00:00:00Z"}
    return {
        "cuts": cuts,
        "events": {"source": "fashion", "fashion": {"root": public_sets.root("fashion-images")}},
        "learner": {"levels": [{"k": 8, "top": 2}, {"k": 32, "top": 4}, {"k": 128, "top": 8}]},
        "ranker": {"max_rows": 40_000},
    }


PRESETS: dict[str, Callable[[], dict[str, Any]]] = {
    "demo": demo,
    "full": full,
    "fashion": fashion,
    **public_sets.PRESETS,
}


def named(name: str) -> dict[str, Any]:
    """The preset called `name`; raises UsageError with the nearest name when there is none."""
    if name not in PRESETS:
        raise UsageError(f"unknown preset {name!r}: {nearest(name, PRESETS)}")
    return PRESETS[name]()
