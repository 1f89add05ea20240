"""What every content encoder offers, whatever it reads: text now, pictures and films beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

MODALITIES = ("text", "image", "video", "attributes")
"""Columns of every presence mask, in this order."""

Vectors = NDArray[np.float32]
"""Row vectors, float32 (n, d)."""

Identity = dict[str, str]
"""What makes two encoders the same: equal identities mean equal vectors. Keys: modality, model, revision, licence,
preprocessing, dtype, normalisation."""

Item = TypeVar("Item", contravariant=True)


class Encoder(Protocol[Item]):
    """Turns items of one modality into unit-norm vectors."""

    @property
    def identity(self) -> Identity:
        """The identity record written beside the vectors."""
        ...

    @property
    def dim(self) -> int:
        """Components of a vector."""
        ...

    def encode(self, batch: Sequence[Item]) -> Vectors:
        """Unit-norm float32 (len(batch), dim); the vector of an item does not depend on the items around it."""
        ...


def unit(vectors: NDArray) -> Vectors:
    """Rows scaled to norm 1 as float32 (n, d); a zero row stays zero."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    scaled: Vectors = (vectors / np.where(norms > 0, norms, 1)).astype(np.float32)
    return scaled
