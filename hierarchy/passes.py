"""Passes of an encoder over seeds, in the precision of the run, and piece by piece where there are many."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from torch.utils.checkpoint import checkpoint

from hierarchy.candidates import taken
from hierarchy.prototypes import Prototypes
from hierarchy.seeds import Seeds
from hierarchy.transformer import InterestEncoder

Precision = Literal["fp32", "tf32", "bf16"]

PIECE = {"cpu": 1 << 18, "cuda": 1 << 20}
"""Candidates and their tokens encoded at once in training, by device; more are encoded by pieces, again when gradients
are due. A step by pieces cannot be recorded, and a GPU has the memory to need few of them."""


@dataclass(frozen=True)
class Passes:
    """How the encoders of a step are called. `prototypes` is None until they are born. `loans`: as of the encoder.

    precision: "fp32"; "tf32", where matrix products round their inputs to 10 bits on a GPU; "bf16", where in addition
    the encoder computes in bfloat16. Vectors come back in fp32, and what follows (logits, Sinkhorn, losses) is not
    autocast.
    """

    prototypes: Prototypes | None
    precision: Precision = "fp32"
    loans: tuple[torch.Tensor, torch.Tensor] | None = None

    def encode(self, encoder: InterestEncoder, seeds: Seeds, latents: int = 1) -> torch.Tensor:
        """Unit vectors (B, `latents`, d), fp32."""
        with self._autocast(seeds.content.device):
            vectors: torch.Tensor = encoder(seeds, self.prototypes, latents, self.loans)
        return vectors.float()

    def encode_all(self, encoder: InterestEncoder, seeds: Seeds) -> torch.Tensor:
        """`encode` of any number of seeds (B, 1, d): activations of one PIECE at a time are kept."""
        size = piece_rows(seeds)
        if len(seeds) <= size:
            return self.encode(encoder, seeds)
        pieces = []
        for start in range(0, len(seeds), size):
            part = taken(seeds, slice(start, start + size))
            random = encoder.training and encoder.shape.dropout > 0
            pieces.append(checkpoint(self.encode, encoder, part, use_reentrant=False, preserve_rng_state=random))
        return torch.cat(pieces)

    def _autocast(self, device: torch.device) -> AbstractContextManager[object]:
        return torch.autocast(device.type, torch.bfloat16) if self.precision == "bf16" else nullcontext()


def piece_rows(seeds: Seeds) -> int:
    """Seeds that are encoded at once."""
    return max(1, PIECE.get(seeds.mask.device.type, PIECE["cpu"]) // (1 + seeds.mask.shape[1]))


def allow_tf32(precision: Precision) -> AbstractContextManager[object]:
    """Within it, float32 matrix products on a GPU may round as `precision` says; afterwards as before."""
    return _Matmul("highest" if precision == "fp32" else "high")


class _Matmul(AbstractContextManager[object]):
    def __init__(self, setting: str) -> None:
        self._setting = setting

    def __enter__(self) -> object:
        self._before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(self._setting)
        return self

    def __exit__(self, *ignored: object) -> None:
        torch.set_float32_matmul_precision(self._before)
