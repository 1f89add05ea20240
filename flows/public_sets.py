"""Presets of the public research sets: where each lies, and the cuts that are its published split.

Train lies before t0, valid in [t1, t2), test from t2 on; what the ranker would train on, [t0, t1), is empty in a set
without a clock.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

from data.schema import from_micros
from data.sources.published import TEST_FROM, VALID_FROM

FOLDER = "STRATA_DATA"
"""Environment variable: the folder that holds the sets' folders. Unset, it is the configuration file's own, or else the
working folder; a `root` in a configuration file goes before it."""

_HALF_DAY = 43_200_000_000
_MADE = {
    name: from_micros(at).isoformat()
    for name, at in (("t0", VALID_FROM - _HALF_DAY), ("t1", VALID_FROM), ("t2", TEST_FROM))
}
# RetailRocket: by time within the log, then the held-out purchases at its end. MovieLens has no split: by time.
_RETAILROCKET = {"t0": "2015-08-22T00:00:00Z", "t1": "2015-09-05T00:00:00Z", "t2": "2015-09-19T00:00:00Z"}
_MOVIELENS = {"t0": "1998-02-15T00:00:00Z", "t1": "1998-03-15T00:00:00Z", "t2": "1998-04-01T00:00:00Z"}


def root(folder: str) -> str:
    """Where a set's `folder` lies."""
    given = os.environ.get(FOLDER)
    return str(Path(given).absolute() / folder if given else Path(folder))


# Products with texts that say what they are: primitives go by them too. Chosen by agreement with the categories and by
# recall of cold products on validation.
_TOLD = {"blend": 5.0, "distillation": {"content": 2.0}}


def _preset(
    source: str, folder: str, cuts: dict[str, str], learner: dict[str, Any] | None = None, **options: str
) -> dict[str, Any]:
    events = {"source": source, source: {"root": root(folder), **options}}
    # A published figure is of every interaction: no limit on a day, which here may be a whole history, cuts one.
    preset: dict[str, Any] = {"cuts": cuts, "events": events, "graph": {"guards": None}}
    return preset if learner is None else {**preset, "learner": learner}


PRESETS = {
    "gowalla": partial(_preset, "gowalla", "gowalla", _MADE),
    "amazon-beauty": partial(_preset, "amazon_s3rec", "amazon-s3rec", _MADE, subset="beauty"),
    "amazon-sports": partial(_preset, "amazon_s3rec", "amazon-s3rec", _MADE, subset="sports"),
    "amazon-toys": partial(_preset, "amazon_s3rec", "amazon-s3rec", _MADE, subset="toys"),
    "amazon-instruments": partial(_preset, "amazon_instruments", "amazon-instruments", _MADE),
    "amazon-scientific": partial(_preset, "amazon_scientific", "amazon-scientific", _MADE, _TOLD),
    "retailrocket": partial(_preset, "retailrocket", "retailrocket-mb", _RETAILROCKET),
    "movielens-100k": partial(_preset, "movielens", "ml-100k", _MOVIELENS),
}
