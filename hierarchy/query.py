"""Questions to a published snapshot: nearest things of an entity, a primitive, a vector or a text, and token bags.

Answers come in milliseconds and read only what they need; torch is imported for texts alone. Nothing here turns Python
or numpy values into Arrow ones: that would import pandas, which takes longer than any answer.
"""

from __future__ import annotations

import difflib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from data import vectors
from data.artifacts import ArtifactRef, Store
from data.errors import BadDataError, UsageError, nearest
from data.schema import ENTITY_TYPES
from data.snapshot import Snapshot
from data.timegrid import TOKENS, file_date

if TYPE_CHECKING:
    from data.device_search import DeviceIndex

INDEXED = (*ENTITY_TYPES, "primitive")
"""Types of things that can be asked for and found."""

_AROUND = 100  # ids in sorted order on either side of an unknown one, among which the likeliest are sought
_KEY = ["entity_type", "entity_id"]
_TOKEN = ["level", "rank", "primitive_id", "weight", "residual", "as_of", "vocab_version"]


@dataclass(frozen=True)
class Hit:
    """One answer. `score` is a cosine, or a weight where bags or links are asked; a primitive's title is its label and
    its category the label of its parent."""

    entity_id: str
    entity_type: str
    score: float
    title: str | None
    category: str | None
    advertiser_id: str | None

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, JSON-able."""
        return asdict(self)


class Shelf:
    """The indexed things of one type; each part is read on first use."""

    def __init__(self, ref: ArtifactRef, kind: str, device: str = "cpu") -> None:
        self.ref, self.kind, self.device = ref, kind, device

    def search(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Scores and rows (q, k) of the nearest things, -1 where fewer exist; exactly the nearest on a device."""
        if self.device == "cpu":
            return vectors.search(self.index, queries, k)
        return self._on_device.search(queries, k)

    @cached_property
    def _on_device(self) -> DeviceIndex:
        from data.device_search import DeviceIndex

        return DeviceIndex(np.asarray(self.vectors), np.arange(len(self.vectors)), self.device)

    @cached_property
    def index(self) -> Any:
        """The FAISS index; its ids are row numbers."""
        return vectors.load(self.ref.file(f"{self.kind}.faiss"))

    @cached_property
    def entities(self) -> pa.Table:
        """entity_id, title, advertiser_id and category by row, sorted by entity_id."""
        return read_table(self.ref, f"entities_{self.kind}.parquet")

    @cached_property
    def ids(self) -> list[str]:
        """entity_id by row, sorted."""
        return list(self.entities["entity_id"].to_pylist())

    @cached_property
    def vectors(self) -> NDArray[np.float32]:
        """Unit vectors (rows, d), memory-mapped."""
        return self.ref.array(f"vectors_{self.kind}.npy")

    @property
    def heads(self) -> int:
        """Rows that each entity has."""
        return int(self.ref.metrics[self.kind]["heads"])

    def rows(self, entity_id: str) -> slice:
        """Rows of an entity, one a head; raises BadDataError with the likeliest ids when there is none."""
        found = slice(bisect_left(self.ids, entity_id), bisect_right(self.ids, entity_id))
        if found.start == found.stop:
            raise _unknown(self.kind, entity_id, self.ids)
        return found

    def hit(self, row: int, score: float) -> Hit:
        """What is in a row, as an answer."""
        return Hit(entity_type=self.kind, score=score, **self.entities.slice(row, 1).to_pylist()[0])


class InterestIndex:
    """The indexes of a snapshot, ready for questions. Every answer lists each thing once, best first."""

    def __init__(self, store: Store, snapshot: Snapshot, device: str = "cpu") -> None:
        self.store, self.snapshot = store, snapshot
        ref = snapshot.ref(store, "index")
        self._shelves = {kind: Shelf(ref, kind, device) for kind in INDEXED}

    @classmethod
    def open(cls, store: Store, snapshot: Snapshot, device: str = "cpu") -> InterestIndex:
        """Open the snapshot's index; raises BadDataError when it has none or it is torn.

        `device`: where vectors are searched; on another than the CPU they are held and searched exactly.
        """
        return cls(store, snapshot, device)

    def by_entity(self, entity_type: str, entity_id: str, k: int = 10, kind: str = "product") -> list[Hit]:
        """The `k` things of type `kind` nearest to an entity, itself left out; for a user, nearest to any of its heads.

        Raises UsageError for an unknown type, BadDataError for an unknown id.
        """
        shelf = self.shelf(entity_type)
        queries = shelf.vectors[shelf.rows(entity_id)]
        return self._nearest(queries, k, kind, entity_id if kind == entity_type else None)

    def by_primitive(self, primitive_id: str, k: int = 10, kind: str = "product") -> list[Hit]:
        """The `k` things nearest to a primitive such as L2-0007; raises BadDataError when there is no such one."""
        return self.by_entity("primitive", primitive_id, k, kind)

    def by_vector(self, vector: NDArray[np.float32], k: int = 10, kind: str = "product") -> list[Hit]:
        """The `k` things nearest to a vector (d,) of any length; raises BadDataError when it has no direction."""
        given = np.asarray(vector, np.float32)
        dim, norm = self.shelf(kind).index.d, float(np.linalg.norm(given))
        if given.shape != (dim,) or not 0 < norm < np.inf:
            came = f"shape {given.shape} and length {norm:g}"
            raise BadDataError(f"expected a vector of {dim} finite numbers, not all of them zero, got {came}")
        return self._nearest(given[None, :] / norm, k, kind)

    def by_text(self, text: str, k: int = 10, kind: str = "product") -> list[Hit]:
        """The `k` things nearest to a product of which only `text` is known; the first call loads the encoders.

        Raises UsageError for a text without words.
        """
        from encoders.encode import embed_texts

        content = embed_texts(self.snapshot.ref(self.store, "features"), [text])
        return self._nearest(self._learner.encode_content(content), k, kind)

    def shelf(self, kind: str) -> Shelf:
        """The indexed things of a type; raises UsageError when there is no such type."""
        if kind not in self._shelves:
            raise UsageError(f"unknown type {kind!r}: {nearest(kind, INDEXED)}")
        return self._shelves[kind]

    @cached_property
    def _learner(self) -> Any:
        from hierarchy.inference import FrozenLearner

        return FrozenLearner.open(self.snapshot.ref(self.store, "learner"))

    def _nearest(self, queries: NDArray[np.float32], k: int, kind: str, without: str | None = None) -> list[Hit]:
        if k < 1:
            raise UsageError(f"expected k of at least 1, got {k}")
        shelf = self.shelf(kind)
        # An entity may be found once for each of its heads, and the one that was asked about is left out.
        wanted = min((k + 1) * shelf.heads, len(shelf.vectors))
        scores, rows = shelf.search(queries, max(wanted, 1))
        order = np.lexsort((rows.ravel(), -scores.ravel()))
        best: dict[str, Hit] = {}
        for row, score in zip(rows.ravel()[order].tolist(), scores.ravel()[order].tolist(), strict=True):
            if len(best) < k and row >= 0 and shelf.ids[row] not in (without, *best):
                best[shelf.ids[row]] = shelf.hit(row, score)
        return list(best.values())


def entities_of(
    store: Store, snapshot: Snapshot, primitive_id: str, kind: str, k: int = 10, as_of: int | None = None
) -> list[dict[str, Any]]:
    """The `k` entities of a type whose bags at `as_of` [us] (the newest if left out) hold a primitive, heaviest first.

    Each with entity_id, weight, as_of. Raises UsageError for an unknown type, BadDataError for an unknown primitive.
    """
    from hierarchy import postings

    known = read_table(snapshot.ref(store, "supergraph"), "primitives.parquet", ["primitive_id"])[
        "primitive_id"
    ].to_pylist()
    if primitive_id not in known:
        raise _unknown("primitive", primitive_id, sorted(known))
    return postings.entities_of(snapshot.ref(store, "postings"), primitive_id, kind, k, as_of)


def tokens_of(
    store: Store, snapshot: Snapshot, entity_type: str, entity_id: str, as_of: int | None = None
) -> list[dict[str, Any]]:
    """The bag of an entity at its newest date not after `as_of` [us]; empty when it was not known by then.

    Rows by level and rank with level, rank, primitive_id, label, weight, residual, as_of, vocab_version. Reads only the
    row groups that can hold the entity. Raises UsageError for an unknown type, BadDataError for an unknown id.
    """
    if entity_type not in ENTITY_TYPES:
        raise UsageError(f"unknown entity type {entity_type!r}: {nearest(entity_type, ENTITY_TYPES)}")
    known = _token_rows(snapshot.ref(store, "tokens"), entity_type, entity_id, as_of)
    words = read_table(snapshot.ref(store, "supergraph"), "primitives.parquet", ["primitive_id", "label"])
    labels = dict(zip(words["primitive_id"].to_pylist(), words["label"].to_pylist(), strict=True))
    return [{**row, "label": labels[row["primitive_id"]]} for row in known]


def _token_rows(tokens: ArtifactRef, entity_type: str, entity_id: str, as_of: int | None) -> list[dict[str, Any]]:
    """The token rows of an entity at its newest date not after `as_of` [us], in the order of the file; newest first is
    where most entities are found soon."""
    late = False
    for name in reversed(tokens.names(TOKENS)):
        rows = _rows_in(tokens.file(name), entity_type, entity_id)
        if rows and (as_of is None or file_date(name) <= as_of):
            return rows
        late |= bool(rows)
    if not late:
        raise _unknown(entity_type, entity_id, _known_ids(tokens, entity_type))
    return []


def _rows_in(path: Path, entity_type: str, entity_id: str) -> list[dict[str, Any]]:
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        table = file.read_row_groups(_groups(file, entity_type, entity_id), [*_KEY, *_TOKEN])
        rows = [row for row, key in enumerate(_keys(table)) if key == (entity_type, entity_id)]
        # The file is sorted, so they lie one after the other.
        return list(table.select(_TOKEN).slice(rows[0], len(rows)).to_pylist()) if rows else []


def _known_ids(tokens: ArtifactRef, entity_type: str) -> list[str]:
    tables = [read_table(tokens, name, _KEY) for name in tokens.names(TOKENS)]
    return sorted({identity for table in tables for kind, identity in _keys(table) if kind == entity_type})


def _keys(table: pa.Table) -> Iterator[tuple[str, str]]:
    return zip(*(table[name].to_pylist() for name in _KEY), strict=True)


def _groups(file: pq.ParquetFile, entity_type: str, entity_id: str) -> list[int]:
    """Row groups that can hold an entity, by the bounds in the file's statistics."""
    names = file.schema_arrow.names
    kind, identity = names.index("entity_type"), names.index("entity_id")
    found = []
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        kinds, ids = group.column(kind).statistics, group.column(identity).statistics
        if kinds.min <= entity_type <= kinds.max and ids.min <= entity_id <= ids.max:
            found.append(number)
    return found


def read_table(ref: ArtifactRef, name: str, columns: list[str] | None = None) -> pa.Table:
    """A small Parquet file, without Arrow's dataset machinery, which takes longer to import than the file to read."""
    with pq.ParquetFile(ref.file(name), page_checksum_verification=True) as file:
        return file.read(columns)


def _unknown(kind: str, entity_id: str, ids: Sequence[str]) -> BadDataError:
    """The error for an id that is not among `ids` (sorted), naming the likeliest ones."""
    place = bisect_left(ids, entity_id)
    around = list(dict.fromkeys(ids[max(place - _AROUND, 0) : place + _AROUND]))
    likely = difflib.get_close_matches(entity_id, around, n=3, cutoff=0.0)
    hint = f"did you mean {' or '.join(map(repr, likely))}?" if likely else "there are none of this type."
    return BadDataError(f"no {kind} {entity_id!r} in this snapshot: {hint} Ids are those of the ingested data.")
