"""Token ids of many texts, and the batches in which an encoder reads them: by length, so that little is padded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Batch:
    """Texts read together: positions int64 (n,), token ids int32 (n, longest) and lengths int64 (n,) in tokens.

    Ids beyond a text's length are padding.
    """

    index: NDArray[np.int64]
    ids: NDArray[np.int32]
    lengths: NDArray[np.int64]


@dataclass(frozen=True)
class Tokens:
    """Token ids int32 (T,) of all texts one after another; text i has those from offsets[i] to offsets[i + 1]."""

    values: NDArray[np.int32]
    offsets: NDArray[np.int64]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each text, int64 (n,)."""
        return np.diff(self.offsets)

    def batch(self, index: NDArray[np.int64], padding: int) -> Batch:
        """The texts at `index` as one batch, filled up with the id `padding`."""
        lengths = self.lengths[index]
        place = np.arange(lengths.max())
        real = place < lengths[:, None]
        ids = np.full(real.shape, padding, np.int32)
        ids[real] = self.values[(self.offsets[index, None] + place)[real]]
        return Batch(index, ids, lengths)


def tokenize(tokenizer: Any, texts: Sequence[str]) -> Tokens:
    """Token ids of `texts` by a `tokenizers.Tokenizer`, on all cores; its own truncation holds."""
    found = [np.asarray(encoding.ids, np.int32) for encoding in tokenizer.encode_batch_fast(list(texts))]
    offsets = np.zeros(len(found) + 1, np.int64)
    np.cumsum([len(ids) for ids in found], out=offsets[1:])
    return Tokens(np.concatenate(found) if found else np.zeros(0, np.int32), offsets)


def group_by_length(lengths: NDArray[np.int64], batch_tokens: int, padding: float) -> list[NDArray[np.int64]]:
    """Positions of texts to read together, the longest first, equal ones in the order they came.

    A group has at most `batch_tokens` tokens (or one text) and at most the share `padding` of them is filled up.
    """
    order = np.argsort(-lengths, kind="stable")
    groups, start, real = [], 0, 0
    for end, length in enumerate(lengths[order].tolist()):
        shape = (end - start + 1) * int(lengths[order[start]])
        if end > start and (shape > batch_tokens or shape - real - length > padding * shape):
            groups.append(order[start:end])
            start, real = end, 0
        real += length
    return [*groups, order[start:]] if len(order) else []
