"""The delayed label 'bought again within the window', as far as it is known at a given time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data.schema import MICROS_PER_DAY
from ranking.histories import encode_ids
from ranking.reader import Examples


@dataclass(frozen=True)
class Delayed:
    """`label` float32 (n,) and `known` bool (n,) of all rows: known at `cut`, and only for rows bought on the visit."""

    label: NDArray[np.float32]
    known: NDArray[np.bool_]


def delayed_labels(examples: Examples, cut: int) -> Delayed:
    """Labels as a reader at time `cut` [us] could know them.

    A row counts only when its whole window had passed by then. Taking early repurchases before their window has
    passed would over-count positives among the youngest rows (delayed feedback; Chapelle, KDD 2014).
    """
    table = examples.ref.table("conversions.parquet")
    ids = examples.ref.table("ids.parquet")["event_id"].combine_chunks()
    again = encode_ids(ids, table["event_id"].combine_chunks())
    readable = table["known_at"].to_numpy() <= cut
    label = np.zeros(len(examples), np.float32)
    label[again >= 0] = readable[again[again >= 0]]
    window = examples.deep_days * MICROS_PER_DAY
    known = (np.asarray(examples.columns["label"]) > 0) & (np.asarray(examples.columns["ts"]) + window <= cut)
    return Delayed(label * known, known)
