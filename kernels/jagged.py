"""Rows of unequal length stored end to end: `values[offsets[i]:offsets[i + 1]]` is row i.

Offsets are int64, so that a batch may hold more than 2^31 values.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Jagged:
    """`rows` sequences in one tensor: values (total, ...), offsets int64 (rows + 1,), none longer than `max_len`.

    Raises ValueError unless offsets start at 0, never fall, end at len(values) and no row exceeds `max_len`.
    Reading the offsets for these checks waits for the device that holds them.
    """

    values: Tensor
    offsets: Tensor
    max_len: int

    def __post_init__(self) -> None:
        """Check the invariants once, so that no later operation has to."""
        offsets = self.offsets
        if offsets.dtype != torch.int64 or offsets.ndim != 1 or len(offsets) == 0:
            raise ValueError(f"expected offsets int64 (rows + 1,), got {offsets.dtype} {tuple(offsets.shape)}")
        if self.values.ndim == 0 or self.values.device != offsets.device:
            came = f"{tuple(self.values.shape)} on {self.values.device}"
            raise ValueError(f"expected values (total, ...) on {offsets.device}, got {came}")
        first, last = int(offsets[0]), int(offsets[-1])
        if first != 0 or last != len(self.values):
            raise ValueError(f"expected offsets from 0 to {len(self.values)}, got {first} to {last}")
        lengths = offsets.diff()
        if len(lengths) and lengths.min() < 0:
            raise ValueError(f"expected offsets that never fall, got a fall after row {int(lengths.argmin())}")
        longest = int(lengths.max()) if len(lengths) else 0
        if not 0 <= longest <= self.max_len:
            raise ValueError(f"expected rows of at most max_len={self.max_len}, got one of {longest}")

    @classmethod
    def from_lengths(cls, values: Tensor, lengths: Tensor, max_len: int | None = None) -> Jagged:
        """From values (total, ...) and lengths int (rows,); `max_len` defaults to the longest row."""
        offsets = torch.zeros(len(lengths) + 1, dtype=torch.int64, device=lengths.device)
        torch.cumsum(lengths, 0, out=offsets[1:])
        longest = int(lengths.max()) if len(lengths) else 0
        return cls(values, offsets, longest if max_len is None else max_len)

    @classmethod
    def from_padded(cls, padded: Tensor, lengths: Tensor) -> Jagged:
        """From padded (rows, max_len, ...), keeping the first `lengths[i]` entries of row i."""
        if padded.ndim < 2 or len(padded) != len(lengths):
            raise ValueError(f"expected padded ({len(lengths)}, max_len, ...), got {tuple(padded.shape)}")
        kept = torch.arange(padded.shape[1], device=padded.device) < lengths[:, None]
        return cls.from_lengths(padded[kept], lengths, padded.shape[1])

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Tensor:
        """int64 (rows,): how many values each row holds."""
        return self.offsets.diff()

    @property
    def rows(self) -> Tensor:
        """int64 (total,): the row of each value."""
        return torch.repeat_interleave(torch.arange(len(self), device=self.offsets.device), self.lengths)

    def mask(self) -> Tensor:
        """bool (rows, max_len): True where `to_padded` holds a value."""
        return torch.arange(self.max_len, device=self.offsets.device) < self.lengths[:, None]

    def to_padded(self, fill: float = 0.0) -> Tensor:
        """(rows, max_len, ...) with values at the left and `fill` behind them; gradients flow to `values`."""
        padded = self.values.new_full((len(self), self.max_len, *self.values.shape[1:]), fill)
        rows = self.rows
        columns = torch.arange(len(self.values), device=rows.device) - self.offsets[rows]
        return padded.index_put((rows, columns), self.values)

    def with_values(self, values: Tensor) -> Jagged:
        """The same rows over other values (total, ...), for a function applied value by value."""
        return Jagged(values, self.offsets, self.max_len)
