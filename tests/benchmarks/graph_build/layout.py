"""What every builder is asked for: the relations of events, in both directions, as CSR arrays and node tables.

<out>/nodes/<kind>.parquet holds column entity_id, whose row is the node number in the arrays beside it;
<out>/<src>__<name>__<dst>/{rowptr,col,visible_from}.npy hold its edges, each row in order of (visible_from, time), with
time.npy where it is not visible_from - 1 everywhere and weight.npy where it is not 1 everywhere. A builder may number
nodes as it likes and may order ties as it likes; an advertiser is a target only of events that name no product.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

KINDS = ("user", "product", "advertiser", "campaign")
TARGETS = KINDS[1:]
COLUMNS = ("user_id", "product_id", "advertiser_id", "campaign_id", "event_type", "ts", "known_at", "sample_prob")
"""What a builder needs of the log."""


def names(event_type: str, target: str) -> tuple[str, str]:
    """Folders of a relation of events: from the user, and back."""
    return f"user__{event_type}__{target}", f"{target}__rev_{event_type}__user"


def rowptr_of(sources: NDArray[Any], rows: int) -> NDArray[np.int64]:
    """Row bounds int64 (rows + 1,) of edges whose sources int (E,) are sorted."""
    bounds = np.zeros(rows + 1, np.int64)
    np.cumsum(np.bincount(sources, minlength=rows), out=bounds[1:])
    return bounds


def save(folder: Path, **arrays: NDArray[Any]) -> None:
    """Write the arrays of one relation."""
    folder.mkdir(parents=True)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
