"""What users are scored against in a training step, and how often each of it is drawn: the q of logQ correction."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TypeVar

import torch

from graph.sampler import TokenSet
from hierarchy.seeds import Seeds

Rows = TypeVar("Rows", Seeds, TokenSet)


@dataclass(frozen=True)
class Candidates:
    """C entities of one type that users are scored against, all tensors on the training device.

    nodes int64 (C,); seeds and tokens as of the batch; log_degree float32 (C,): log1p of as-of degree; log_expected
    float32 (C,) or (B, C): log of the expected number of draws of each, given each row's positive (infinite: it is no
    candidate); targets int64 (B,): the column of each row's positive, 0 where a row has none; known: how many entities
    of the type there were (internal ids are in that order). distinct: none of the nodes comes twice.
    """

    nodes: torch.Tensor
    seeds: Seeds
    tokens: TokenSet
    log_degree: torch.Tensor
    log_expected: torch.Tensor
    targets: torch.Tensor
    known: int
    distinct: bool = False

    @property
    def accidental(self) -> torch.Tensor:
        """Which candidates are a row's own positive, bool (B, C)."""
        return self.nodes[None, :] == self.nodes[self.targets][:, None]

    def replaced(self, log_expected: torch.Tensor, targets: torch.Tensor) -> Candidates:
        """The same candidates for rows whose positives are in the columns `targets` (B,)."""
        return dataclasses.replace(self, log_expected=log_expected, targets=targets)

    def extended(self, more: Candidates, log_expected: torch.Tensor) -> Candidates:
        """These and `more` candidates, under expected draws of all of them (B, C + C')."""
        return dataclasses.replace(
            self,
            nodes=torch.cat([self.nodes, more.nodes]),
            seeds=joined(self.seeds, more.seeds),
            tokens=joined(self.tokens, more.tokens),
            log_degree=torch.cat([self.log_degree, more.log_degree]),
            log_expected=log_expected,
            distinct=False,
        )


def taken(rows: Rows, index: torch.Tensor | slice) -> Rows:
    """Some rows of seeds or of a token set."""
    return type(rows)(*(getattr(rows, field.name)[index] for field in dataclasses.fields(rows)))


def joined(one: Rows, other: Rows) -> Rows:
    """The rows of two seeds or token sets of equal width, one after the other."""
    names = [field.name for field in dataclasses.fields(one)]
    return type(one)(*(torch.cat([getattr(one, name), getattr(other, name)]) for name in names))
