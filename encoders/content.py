"""From the vectors of texts and attributes to one content vector an entity."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from data.errors import BadDataError
from encoders.base import MODALITIES, Vectors, unit
from encoders.entities import Catalogue, Entities
from encoders.fuse import Fusion, Whitening, fit_whitening, turned_onto

Presence = NDArray[np.bool_]

OF_USERS = "user_attributes"
"""Name of the whitening of users' attributes: they share no values with products', so they have one of their own."""


def fit_fusion(
    catalogue: Catalogue,
    texts: Vectors,
    attributes: Vectors,
    before: int,
    dim: int,
    power: float,
    regularisation: float,
    weights: Mapping[str, float],
) -> Fusion:
    """Whitenings to `dim` components fitted on distinct rows of products (and users) known before `before` [us].

    Raises BadDataError when no product is known by then.
    """
    products, users = catalogue.entities["product"], catalogue.entities["user"]
    early, early_users = products.known_at < before, users.known_at < before
    if len(early) and not early.any():
        raise BadDataError(f"no product is known before t0 ({before} us), so nothing can be fitted: choose a later t0")

    def fitted(vectors: Vectors, rows: NDArray[np.int32]) -> Whitening:
        return fit_whitening(vectors[np.unique(rows[rows >= 0])], dim, power, regularisation)

    text = fitted(texts, products.text_row[early])
    own = fitted(attributes, products.facts_row[early])
    both = early & (products.text_row >= 0) & (products.facts_row >= 0)
    pairs = np.unique(np.stack([products.text_row[both], products.facts_row[both]], axis=1), axis=0)
    if len(pairs):
        own = turned_onto(own, own.apply(attributes[pairs[:, 1]]), text.apply(texts[pairs[:, 0]]))
    whitenings = {"text": text, "attributes": own, OF_USERS: fitted(attributes, users.facts_row[early_users])}
    return Fusion(whitenings, {**weights, OF_USERS: 1.0})


def content_of(entities: Entities, fusion: Fusion, texts: Vectors, attributes: Vectors, facts: str) -> Vectors:
    """Fused content float32 (n, D) of entities; `facts` names the whitening of their attributes."""
    parts = {
        "text": _whitened(fusion.whitenings["text"], texts, entities.text_row),
        facts: _whitened(fusion.whitenings[facts], attributes, entities.facts_row),
    }
    return fusion.fuse(parts)


def presence_of(entities: Entities) -> Presence:
    """Which of MODALITIES each entity has, bool (n, 4)."""
    mask = np.zeros((len(entities.ids), len(MODALITIES)), np.bool_)
    mask[:, MODALITIES.index("text")] = entities.text_row >= 0
    mask[:, MODALITIES.index("attributes")] = entities.facts_row >= 0
    return mask


def with_products(
    catalogue: Catalogue, own: Vectors, products: Vectors, before: int, own_weight: float
) -> tuple[Vectors, Presence]:
    """Advertisers' content (n, D) and presence (n, 4): their own text plus the mean content of their products.

    Only products count that were known before `before` [us] or, for an advertiser that came later, by the time it was
    known itself: what joins its catalogue afterwards changes nothing.
    """
    advertisers, shelf = catalogue.entities["advertiser"], catalogue.entities["product"]
    number: dict[str | None, int] = {identity: row for row, identity in enumerate(advertisers.ids)}
    owner = np.array([number.get(identity, -1) for identity in shelf.owner], np.int64)
    until = np.maximum(advertisers.known_at, before - 1)
    rows = np.flatnonzero(owner >= 0)
    rows = rows[shelf.known_at[rows] <= until[owner[rows]]]
    pooled = np.zeros(own.shape, np.float64)
    np.add.at(pooled, owner[rows], products[rows])
    presence = presence_of(advertisers)
    np.logical_or.at(presence, owner[rows], presence_of(shelf)[rows])
    return unit(unit(pooled) + own_weight * own), presence


def _whitened(whitening: Whitening, vectors: Vectors, rows: NDArray[np.int32]) -> tuple[Vectors, Presence]:
    """Whitened rows (n, D) by entity, and which entities have one."""
    present = rows >= 0
    found = np.zeros((len(rows), whitening.components.shape[1]), np.float32)
    if present.any():
        found[present] = whitening.apply(vectors)[rows[present]]
    return found, present
