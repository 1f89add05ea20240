"""Operations on interests: who holds them, who stands between two, what is above, below and beside, and how far apart.

Where entities are asked for, `tokens` means published bags (weights that explain themselves) and `vector` means cosines
in the common space (which also finds entities whose bags had no room for the interest). No torch, no pandas.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.artifacts import Store
from data.errors import BadDataError, UsageError, nearest
from data.schema import ENTITY_TYPES
from data.snapshot import Snapshot
from hierarchy.answers import Both, Distance, Interest, Path
from hierarchy.holders import Held, holders
from hierarchy.query import Hit, InterestIndex, read_table, tokens_of

RANKS = ("min", "product")
"""How two weights become one: `min` asks for both, `product` also lets a strong one make up for a weak one."""

_COLUMNS = ["primitive_id", "level", "label", "parent_id", "mass", "top_terms", "top_products"]
_COSINE = "cosine"


class Interests:
    """The interests of a snapshot, ready for questions. An interest is named by its id or its label everywhere."""

    def __init__(self, store: Store, snapshot: Snapshot) -> None:
        self.store, self.snapshot = store, snapshot
        self.index = InterestIndex.open(store, snapshot)
        self._supergraph = snapshot.ref(store, "supergraph")

    @cached_property
    def all(self) -> dict[str, Interest]:
        """Every interest by id, coarse levels first."""
        rows = read_table(self._supergraph, "primitives.parquet", _COLUMNS).to_pylist()
        return {row["primitive_id"]: Interest(**row) for row in rows}

    @cached_property
    def edges(self) -> list[dict[str, Any]]:
        """The rows of primitive_edges.parquet."""
        rows: list[dict[str, Any]] = read_table(self._supergraph, "primitive_edges.parquet").to_pylist()
        return rows

    def find(self, name: str, level: int | None = None) -> Interest:
        """The interest with this id, or else with this label in any case of letters (at `level`, if given).

        Raises BadDataError with the nearest names when there is none, UsageError when several levels use the label.
        """
        if name in self.all:
            return self.all[name]
        within = [known for known in self.all.values() if level in (None, known.level)]
        found = [known for known in within if known.label == name]
        found = found or [known for known in within if known.label.casefold() == name.casefold()]
        if len(found) > 1:
            ids = " and ".join(known.primitive_id for known in found)
            raise UsageError(f"{name!r} is the label of {ids}: name the id, or the level")
        if not found:
            raise BadDataError(
                f"no interest {name!r}{'' if level is None else f' at level {level}'}: {_likely(name, within)}"
            )
        return found[0]

    def near(self, name: str, relation: str = _COSINE, k: int = 10, level: int | None = None) -> list[Hit]:
        """The `k` interests nearest to one: by cosine, at its own level or at `level`; or by a relation of the graph,
        such as then_purchase: those it leads to, by falling weight. A relation `parent` leads one level up.

        Raises UsageError for an unknown relation.
        """
        interest = self.find(name)
        if relation == _COSINE:
            vectors = self._vectors([interest.primitive_id])
            return self._by_cosine(vectors, k, interest.level if level is None else level, interest.primitive_id)
        known = {edge["relation"] for edge in self.edges}
        if relation not in known:
            raise UsageError(f"unknown relation {relation!r}: {nearest(relation, [_COSINE, *known])}")
        own = [e for e in self.edges if e["relation"] == relation and e["source"] == interest.primitive_id]
        return self._hits("primitive", {edge["target"]: edge["weight"] for edge in own}, k)

    def of_entity(
        self, entity_type: str, entity_id: str, by: str = "vector", k: int = 10, level: int | None = None
    ) -> list[Hit]:
        """The interests of an entity: `vector` ranks all by cosine to (the nearest head of) it, `tokens` gives the
        weights of its newest bag. At one `level`, or at all.

        Raises UsageError for an unknown type, BadDataError for an unknown id.
        """
        if _ways(by) == "vector":
            shelf = self.index.shelf(entity_type)
            return self._by_cosine(shelf.vectors[shelf.rows(entity_id)], k, level)
        bag = tokens_of(self.store, self.snapshot, entity_type, entity_id)
        kept = {row["primitive_id"]: row["weight"] for row in bag if level in (None, row["level"])}
        return self._hits("primitive", kept, k)

    def entities(self, name: str, kind: str = "product", by: str = "tokens", k: int = 10) -> list[Hit]:
        """The `k` users, products or advertisers of an interest: those whose newest bags hold most of it, or those
        nearest to its vector. `tokens` is one pass over the tokens of that type."""
        interest = self.find(name)
        if _ways(by) == "vector":
            return self.index.by_primitive(interest.primitive_id, k, kind)
        held = self._holders(kind, [interest])
        return self._hits(kind, {entity: weights[interest.primitive_id] for entity, weights in held.items()}, k)

    def between(self, first: str, second: str, kind: str = "user", rank: str = "min", k: int = 10) -> list[Both]:
        """The `k` entities whose newest bags hold both interests, ranked by the smaller weight or by the product.

        One pass over the tokens of that type. Raises UsageError for an unknown rank or when both are one interest.
        """
        if rank not in RANKS:
            raise UsageError(f"unknown rank {rank!r}: {nearest(rank, RANKS)}")
        pair = self._pair(first, second)
        ids = [interest.primitive_id for interest in pair]
        both = {
            entity: tuple(held[i] for i in ids) for entity, held in self._holders(kind, pair).items() if len(held) == 2
        }
        scores = {entity: min(held) if rank == "min" else held[0] * held[1] for entity, held in both.items()}
        hits = self._hits(kind, scores, k)
        return [Both(**hit.as_dict(), weights=(both[hit.entity_id][0], both[hit.entity_id][1])) for hit in hits]

    def midpoint(self, first: str, second: str, kind: str = "user", k: int = 10) -> list[Hit]:
        """The geometric alternative to `between`: the `k` entities nearest to the direction halfway between two
        interests. It always answers, but with entities that may hold neither in their bags."""
        vectors = self._vectors([interest.primitive_id for interest in self._pair(first, second)])
        return self.index.by_vector(vectors.sum(axis=0), k, kind)

    def path(self, name: str) -> Path:
        """The way up and down from an interest."""
        interest = self.find(name)
        ancestors, above = list[Interest](), interest.parent_id
        while above is not None:
            ancestors.insert(0, self.all[above])
            above = self.all[above].parent_id
        beside = [
            known
            for known in self.all.values()
            if (known.level, known.parent_id) == (interest.level, interest.parent_id) and known is not interest
        ]
        below = [known for known in self.all.values() if known.parent_id == interest.primitive_id]
        soft = self.near(interest.primitive_id, "parent") if ancestors else []
        return Path(interest, ancestors, _heaviest(below), _heaviest(beside), soft)

    def distance(self, first: str, second: str, kind: str = "product") -> Distance:
        """How far apart two interests are, as points and as the sets of entities of type `kind` that hold them.

        The mean over pairs costs no more than the means: it is their inner product. One pass over the tokens.
        """
        pair = self._pair(first, second)
        one, two = (interest.primitive_id for interest in pair)
        held = self._holders(kind, pair)
        points = self._vectors([one, two])
        means = [self._mean(kind, held, primitive) for primitive in (one, two)]
        pairwise = None if means[0] is None or means[1] is None else float(means[0] @ means[1])
        lengths = float(np.prod([np.linalg.norm(mean) for mean in means if mean is not None]))
        shares = np.array([[weights.get(one, 0.0), weights.get(two, 0.0)] for weights in held.values()]).reshape(-1, 2)
        return Distance(
            one,
            two,
            kind,
            (int((shares[:, 0] > 0).sum()), int((shares[:, 1] > 0).sum())),
            float(points[0] @ points[1]),
            None if pairwise is None else pairwise / max(lengths, 1e-30),
            pairwise,
            None if pairwise is None else float(shares.min(axis=1).sum() / shares.max(axis=1).sum()),
            self._flow(one, two),
        )

    def _flow(self, one: str, two: str) -> dict[str, tuple[float, float]]:
        ways = {(one, two): 0, (two, one): 1}
        found: dict[str, list[float]] = {}
        for edge in self.edges:
            way = ways.get((edge["source"], edge["target"]))
            if way is not None and edge["relation"] != "parent":
                found.setdefault(edge["relation"], [0.0, 0.0])[way] = edge["weight"]
        return {relation: (there, back) for relation, (there, back) in sorted(found.items())}

    def _mean(self, kind: str, held: Held, primitive_id: str) -> NDArray[np.float64] | None:
        """Weighted mean vector (d,) of the entities that hold a primitive; None without any."""
        shelf = self.index.shelf(kind)
        weights = {entity: found[primitive_id] for entity, found in held.items() if primitive_id in found}
        rows = [(row, weight) for entity, weight in weights.items() for row in _range(shelf.rows(entity))]
        if not rows:
            return None
        places, share = (np.array(column) for column in zip(*rows, strict=True))
        return np.asarray(share @ shelf.vectors[places].astype(np.float64) / share.sum())

    def _pair(self, first: str, second: str) -> tuple[Interest, Interest]:
        pair = self.find(first), self.find(second)
        if pair[0] is pair[1]:
            raise UsageError(f"expected two interests, got {pair[0].primitive_id} twice")
        return pair

    def _holders(self, kind: str, interests: Iterable[Interest]) -> Held:
        if kind not in ENTITY_TYPES:
            raise UsageError(f"unknown entity type {kind!r}: {nearest(kind, ENTITY_TYPES)}")
        wanted = {interest.primitive_id for interest in interests}
        return holders(self.snapshot.ref(self.store, "tokens"), kind, wanted)

    def _vectors(self, ids: list[str]) -> NDArray[np.float32]:
        shelf = self.index.shelf("primitive")
        return np.concatenate([shelf.vectors[shelf.rows(primitive_id)] for primitive_id in ids])

    def _by_cosine(
        self, queries: NDArray[np.float32], k: int, level: int | None, without: str | None = None
    ) -> list[Hit]:
        """Interests by cosine to the nearest of `queries` (q, d), exactly: there are few interests."""
        shelf = self.index.shelf("primitive")
        scores = (shelf.vectors @ queries.T).max(axis=1).tolist()
        kept = {
            identity: score
            for identity, score in zip(shelf.ids, scores, strict=True)
            if identity != without and level in (None, self.all[identity].level)
        }
        return self._hits("primitive", kept, k)

    def _hits(self, kind: str, scores: dict[str, float], k: int) -> list[Hit]:
        """The `k` largest scores as answers; of equal ones the lower id first."""
        if k < 1:
            raise UsageError(f"expected k of at least 1, got {k}")
        shelf = self.index.shelf(kind)
        best = sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:k]
        return [shelf.hit(shelf.rows(identity).start, score) for identity, score in best]


def _ways(by: str) -> str:
    if by not in ("vector", "tokens"):
        raise UsageError(f"expected by vector or by tokens, got {by!r}")
    return by


def _range(rows: slice) -> range:
    return range(rows.start, rows.stop)


def _heaviest(interests: list[Interest]) -> list[Interest]:
    return sorted(interests, key=lambda known: (-known.mass, known.primitive_id))


def _likely(name: str, known: list[Interest]) -> str:
    """A hint for an unknown name: the nearest labels, with their ids, or ids."""
    names = {text.casefold(): interest for interest in known for text in (interest.primitive_id, interest.label)}
    close = [names[found] for found in difflib.get_close_matches(name.casefold(), names, n=3, cutoff=0.4)]
    if not close:
        return "name an id such as L1-0000, or a label"
    said = dict.fromkeys(f"{interest.primitive_id} ({interest.label})" for interest in close)
    return f"did you mean {' or '.join(said)}?"
