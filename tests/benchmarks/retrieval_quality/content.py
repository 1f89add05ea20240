"""Content vectors of a public set's items from whatever text it has: no network, no artifact, seconds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer

from hierarchy.kmeans import unit
from hierarchy.subspace import truncated_svd

DIM = 256


def content_of(items: pa.Table, dim: int = DIM) -> NDArray[np.float32] | None:
    """Unit vectors (items, <= dim), zero for an item without text; None where no item has any.

    The words of title, description, categories and attributes, weighted by TF-IDF and reduced by a truncated SVD
    (latent semantic analysis, Deerwester et al., 1990).
    """
    texts = [_words(row) for row in items.to_pylist()]
    if not any(texts):
        return None
    vectorizer = TfidfVectorizer(sublinear_tf=True, token_pattern=r"\b\w+\b", dtype=np.float32)
    weights = sparse.csr_array(vectorizer.fit_transform(texts))
    factors = truncated_svd(weights, dim, seed=0)
    return unit(factors.left * factors.values)


def _words(row: dict) -> str:
    plain = [row["advertiser_id"], row["title"], row["description"], *(row["category"] or [])]
    named = [f"{name} {value}".replace(" ", "_") for name, value in row["attributes"] or []]
    return " ".join(str(part) for part in [*plain, *named] if part)
