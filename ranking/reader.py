"""Reading the examples artifact: memory-mapped columns, and the arrays their integers point into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.artifacts import ArtifactRef
from ranking.asof import at_rows

HISTORY = ("product", "event_type", "ts", "visible_from")
"""Arrays of the events of all users, end to end; `offsets` (users + 1,) says whose they are."""

OK, MISSING, STALE = 0, 1, 2
"""Status of a joined feature: there, never made before the row's time, or made long before it."""

JOINS = ("history", "content", "user_tokens", "product_tokens", "advertiser_tokens", "user_states")
"""Features with a column `<name>_status`."""

CATEGORY_DEPTH = 4
"""Prefixes of a category path that get an id of their own; deeper levels are ignored."""

TRAIN, VALIDATION, TEST = 0, 1, 2
"""Values of column `split`."""

COLUMNS: dict[str, Any] = {
    "user": np.int32,
    "product": np.int32,
    "advertiser": np.int32,
    "ts": np.int64,
    "surface": np.int16,
    "sample_prob": np.float32,
    "event_hash": np.uint64,
    "label": np.uint8,
    "split": np.uint8,
    "hour": np.uint8,
    "weekday": np.uint8,
    "history_start": np.int64,
    "history_end": np.int64,
    "product_events": np.int32,
    "pair_events": np.int32,
    "visit_age": np.float32,
    "pair_age": np.float32,
    "content": np.int32,
    "user_tokens": np.int32,
    "product_tokens": np.int32,
    "advertiser_tokens": np.int32,
    "user_states": np.int32,
    **{f"{name}_status": np.uint8 for name in JOINS},
}
"""Columns of a row, -1 where an integer or an age [days] is absent. `history_start:history_end` is the user's
engagement visible at `ts`; `*_tokens` is a row of tokens/primitive.npy; `content` and `user_states` are rows of
content.npy and user_states.npy."""


@dataclass(frozen=True)
class Level:
    """One level of the vocabulary: its slots in a token row, and how many primitives it has."""

    level: int
    start: int
    stop: int
    size: int


@dataclass(frozen=True)
class Examples:
    """An open examples artifact; every array is memory-mapped. `cuts` and `end` (the last row) are times [us]."""

    ref: ArtifactRef
    columns: dict[str, NDArray]
    history: dict[str, NDArray]
    hashes: dict[str, NDArray[np.uint64]]
    offsets: NDArray[np.int64]
    owner: NDArray[np.int32]
    content: NDArray[np.float32]
    primitive: NDArray[np.int32]
    weight: NDArray[np.float32]
    first_tokens: NDArray[np.int32]
    tokens_as_of: NDArray[np.int64]
    user_states: NDArray[np.float16]
    levels: tuple[Level, ...]
    cuts: tuple[int, int, int]
    end: int
    deep_days: int
    surfaces: tuple[str, ...]

    @classmethod
    def open(cls, ref: ArtifactRef) -> Examples:
        """Open by reference; raises BadDataError when a file is absent or torn."""
        about = ref.json("examples.json")
        return cls(
            ref=ref,
            columns={name: ref.array(f"rows/{name}.npy") for name in COLUMNS},
            history={name: ref.array(f"history/{name}.npy") for name in HISTORY},
            offsets=ref.array("history/offsets.npy"),
            hashes={
                name: ref.array(f"hash/{name}.npy") for name in ("user", "product", "advertiser", "surface", "category")
            },
            owner=ref.array("owner.npy"),
            content=ref.array("content.npy"),
            primitive=ref.array("tokens/primitive.npy"),
            weight=ref.array("tokens/weight.npy"),
            first_tokens=ref.array("tokens/first_product.npy"),
            tokens_as_of=ref.array("tokens/as_of.npy"),
            user_states=ref.array("user_states.npy"),
            levels=tuple(Level(**level) for level in about["levels"]),
            cuts=tuple(about["cuts"]),
            end=about["end"],
            deep_days=about["deep_days"],
            surfaces=tuple(about["surfaces"]),
        )

    def __len__(self) -> int:
        return len(self.columns["ts"])

    def rows(self, split: int) -> NDArray[np.int64]:
        """Row numbers of a split."""
        return np.flatnonzero(self.columns["split"] == split)

    def tokens_made(self, products: NDArray[np.int64]) -> NDArray[np.int64]:
        """When the first tokens of each product (n,) were made [us]; 0 for one that has none, or is none."""
        return at_rows(self.tokens_as_of, at_rows(self.first_tokens, products, -1))

    def surface_kinds(self) -> tuple[str, ...]:
        """Kind of each surface: 'display:9+mailer:A' is of kind 'display+mailer'."""
        return tuple("+".join(sorted({part.split(":")[0] for part in name.split("+")})) for name in self.surfaces)
