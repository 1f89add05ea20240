"""What the encoder is asked about: seeds with their token sets as tensors, and the views students see of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from graph.sampler import Integers, TemporalSampler, TokenSet
from graph.store import NODE_TYPES
from graph.views import content_only, early_window, engagement_only
from hierarchy.bias import TOKEN_BIASES, bias_index
from hierarchy.content import ContentTable

_PRODUCT = NODE_TYPES.index("product")


@dataclass(frozen=True)
class Seeds:
    """B seeds with T tokens each. Dx = content dim + number of node types.

    content (B, Dx) and id_row int64 (B,) of the seed itself; token_content (B, T, Dx), token_id_row (B, T); bias int64
    (B, T, 6); mask bool (B, T): tokens to attend to; history bool (B, T): tokens whose mean is the query of a user.
    """

    content: torch.Tensor
    id_row: torch.Tensor
    token_content: torch.Tensor
    token_id_row: torch.Tensor
    bias: torch.Tensor
    mask: torch.Tensor
    history: torch.Tensor

    def __len__(self) -> int:
        return len(self.content)

    def to(self, device: torch.device | str) -> Seeds:
        """The same seeds on `device`."""
        return Seeds(*(getattr(self, field.name).to(device) for field in dataclasses.fields(self)))

    def masked(self, mask: torch.Tensor) -> Seeds:
        """The same seeds attending only where `mask` (B, T); their history, which is what they are, stays."""
        return dataclasses.replace(self, mask=mask)

    def without_ids(self) -> Seeds:
        """The same seeds as if no entity had an id residual."""
        return dataclasses.replace(
            self, id_row=torch.zeros_like(self.id_row), token_id_row=torch.zeros_like(self.token_id_row)
        )

    def without_own_content(self) -> Seeds:
        """The same seeds with nothing known of themselves but their tokens."""
        return dataclasses.replace(self, content=torch.zeros_like(self.content))

    def with_ids_dropped(self, share: float, generator: torch.Generator, loans: int = 0) -> Seeds:
        """Each id residual, of seeds and tokens, dropped with chance `share` (DropoutNet: Volkovs et al., 2017).

        With `loans` > 0 the loan, so many rows further on, takes its place.
        """
        if not share:
            return self

        def dropped(row: torch.Tensor) -> torch.Tensor:
            kept = torch.rand(row.shape, generator=generator, device=generator.device) >= share
            return torch.where(kept | (row == 0), row, row + loans if loans else 0)

        return dataclasses.replace(self, id_row=dropped(self.id_row), token_id_row=dropped(self.token_id_row))


def gather(table: ContentTable, kind: str, nodes: Integers, tokens: TokenSet) -> Seeds:
    """Seeds of one node type from a sampled token set; memory O(B T D)."""
    own = table.rows(kind, nodes)
    others = table.rows(tokens.node_type, tokens.node)
    flat = others.flatten()
    history = tokens.mask & (tokens.node_type == _PRODUCT) & (tokens.hop == 1) & (kind == "user")
    return Seeds(
        content=table.content[own],
        id_row=table.id_rows[own],
        token_content=table.content.index_select(0, flat).view(*others.shape, table.content.shape[1]),
        token_id_row=table.id_rows[others],
        bias=bias_index(tokens),
        mask=tokens.mask,
        history=history,
    )


def sample_seeds(
    table: ContentTable,
    sampler: TemporalSampler,
    kind: str,
    nodes: Integers,
    times: Integers,
    seed: int | torch.Tensor,
    exclude: Integers | None = None,
) -> tuple[Seeds, TokenSet]:
    """Sample token sets strictly before `times` [us] and gather them; the token set comes along for its views."""
    tokens = sampler.sample(kind, nodes, times, seed, exclude=exclude)
    return gather(table, kind, nodes, tokens), tokens


def from_content(content: NDArray[np.float32], kind: str) -> Seeds:
    """Seeds known by `content` (n, D) alone, such as a text query: no id, no tokens. The cold path of the encoder."""
    count = len(content)
    types = np.zeros((count, len(NODE_TYPES)), np.float32)
    types[:, NODE_TYPES.index(kind)] = 1.0
    full = torch.from_numpy(np.concatenate([content.astype(np.float32), types], axis=1))
    none = torch.zeros((count, 0), dtype=torch.bool)
    empty = none.long()
    return Seeds(
        full,
        torch.zeros(count, dtype=torch.int64),
        full.new_zeros((count, 0, full.shape[1])),
        empty,
        empty[..., None].expand(count, 0, len(TOKEN_BIASES)),
        none,
        none,
    )


View = Callable[[Seeds, TokenSet], Seeds]


def content_view(seeds: Seeds, tokens: TokenSet) -> Seeds:
    """Student view (a): content alone, no ids and no engagement but the products a user is made of."""
    return seeds.masked(content_only(tokens).mask).without_ids()


def engagement_view(seeds: Seeds, tokens: TokenSet) -> Seeds:
    """Student view (b): who engaged with what, without the seed's own content and without catalogue links."""
    return seeds.masked(engagement_only(tokens).mask).without_own_content()


def early_view(seeds: Seeds, tokens: TokenSet) -> Seeds:
    """Student view (c): the older half of the engagement; a user's history shrinks with it."""
    early = early_window(tokens).mask
    return dataclasses.replace(seeds, mask=early, history=seeds.history & early)


VIEWS: dict[str, View] = {"content": content_view, "engagement": engagement_view, "early": early_view}
"""Student views by their name in the configuration."""
