"""From the vectors of texts, pictures, films and attributes to one content vector an entity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data.errors import BadDataError
from encoders.base import MODALITIES, Vectors, unit
from encoders.entities import Entities
from encoders.fuse import Fusion, Whitening, fit_whitening, turned_onto

Presence = NDArray[np.bool_]

OF_USERS = "user_attributes"
"""Name of the whitening of users' attributes: they share no values with products', so they have one of their own."""


class Source(NamedTuple):
    """What is known of n entities in one modality: distinct raw `vectors` float32 (U, d), and the row of each entity,
    int32 (n,), -1 for none."""

    vectors: Vectors
    rows: NDArray[np.int32]

    @property
    def present(self) -> Presence:
        """Which entities have one, bool (n,)."""
        return self.rows >= 0

    def distinct(self, these: Presence) -> Vectors:
        """The distinct vectors of the entities `these` (n,)."""
        return self.vectors[np.unique(self.rows[these & self.present])]


Sources = Mapping[str, Source]
"""Sources by modality; those without any vector are left out."""


def fit_fusion(
    products: Sources,
    early: Presence,
    users: Source,
    early_users: Presence,
    dim: int,
    power: float,
    regularisation: float,
    weights: Mapping[str, float],
) -> Fusion:
    """Whitenings to `dim` components, fitted on the distinct rows of those entities that are `early`.

    A modality is turned onto the first one before it that it shares entities with. Raises BadDataError when there are
    products but no early one.
    """
    if len(early) and not early.any():
        raise BadDataError("no product is known before t0, so nothing can be fitted: choose a later t0")
    fitted: dict[str, Whitening] = {}
    for name in MODALITIES:
        if name in products:
            own = fit_whitening(products[name].distinct(early), dim, power, regularisation)
            fitted[name] = _turned(name, own, fitted, products, early)
    fitted[OF_USERS] = fit_whitening(users.distinct(early_users), dim, power, regularisation)
    return Fusion(fitted, {**weights, OF_USERS: 1.0})


def _turned(
    name: str, own: Whitening, fitted: Mapping[str, Whitening], products: Sources, early: Presence
) -> Whitening:
    """`own` turned onto the first modality that early products have beside `name`."""
    for reference, whitening in fitted.items():
        both = early & products[name].present & products[reference].present
        if both.any():
            rows = np.stack([products[name].rows[both], products[reference].rows[both]], axis=1)
            pairs = np.unique(rows, axis=0)
            mine = own.apply(products[name].vectors[pairs[:, 0]])
            return turned_onto(own, mine, whitening.apply(products[reference].vectors[pairs[:, 1]]))
    return own


def whitened(sources: Iterable[Sources], fusion: Fusion) -> dict[str, Vectors]:
    """All raw vectors of each modality whitened, float32 (U, D): once, however many entity types have them."""
    raw = {name: source.vectors for kind in sources for name, source in kind.items()}
    return {name: fusion.whitenings[name].apply(vectors) for name, vectors in raw.items()}


def parts_of(
    sources: Sources, white: Mapping[str, Vectors], modalities: Sequence[str], entities: int
) -> tuple[Vectors, Presence]:
    """Vectors float32 (n, P, D) by `modalities`, zero where there is none, and which there are, bool (n, P); `white` as
    `whitened` gives them."""
    dim = next(iter(white.values())).shape[1]
    parts = np.zeros((entities, len(modalities), dim), np.float32)
    present = np.zeros((entities, len(modalities)), np.bool_)
    for name, source in sources.items():
        column = modalities.index("attributes" if name == OF_USERS else name)
        present[:, column] = source.present
        parts[present[:, column], column] = white[name][source.rows[source.present]]
    return parts, present


def mask_of(present: Presence, fusion: Fusion) -> Presence:
    """Presence by MODALITIES, bool (n, M), of presence by `fusion.modalities` (n, P)."""
    mask = np.zeros((len(present), len(MODALITIES)), np.bool_)
    mask[:, [MODALITIES.index(name) for name in fusion.modalities]] = present
    return mask


class Shelf(NamedTuple):
    """Products as their advertisers see them: `owner` (n,) is a row among the advertisers, -1 for none or one that does
    not count; content (n, D), parts (n, P, D), present (n, P)."""

    owner: NDArray[np.int64]
    content: Vectors
    parts: Vectors
    present: Presence


def owners(advertisers: Entities, products: Entities, before: int) -> NDArray[np.int64]:
    """The advertiser's row of each product that counts for it, int64 (n,), -1 for the others.

    Those count that were known before `before` [us] or, for an advertiser that came later, by the time it was known
    itself: what joins its catalogue afterwards changes nothing.
    """
    number: dict[str | None, int] = {identity: row for row, identity in enumerate(advertisers.ids)}
    owner = np.array([number.get(identity, -1) for identity in products.owner], np.int64)
    until = np.maximum(advertisers.known_at, before - 1)
    return np.where((owner >= 0) & (products.known_at <= until[owner]), owner, -1) if len(until) else owner


def with_products(own: Vectors, shelf: Shelf, own_weight: float) -> Vectors:
    """Advertisers' content (n, D): the mean content of their products plus `own_weight` times their own (n, D)."""
    return unit(unit(_summed(shelf.content, shelf.owner, len(own))) + own_weight * own)


def parts_with_products(parts: Vectors, present: Presence, shelf: Shelf, own_weight: float) -> tuple[Vectors, Presence]:
    """The same for each modality apart: parts (n, P, D), present (n, P)."""
    together, rows = present.copy(), shelf.owner >= 0
    np.logical_or.at(together, shelf.owner[rows], shelf.present[rows])
    pooled = [
        unit(unit(_summed(shelf.parts[:, place], shelf.owner, len(parts))) + own_weight * parts[:, place])
        for place in range(parts.shape[1])
    ]
    return np.stack(pooled, axis=1), together


def _summed(vectors: Vectors, owner: NDArray[np.int64], rows: int) -> NDArray[np.float64]:
    total = np.zeros((rows, vectors.shape[1]))
    np.add.at(total, owner[owner >= 0], vectors[owner >= 0])
    return total
