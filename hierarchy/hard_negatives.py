"""Mined hard negatives: products of the positive's parent primitive that belong to another child of it.

What is near but not the same teaches most; the hierarchy names it without a search. With one level the parent is the
whole, and a hard negative is any product of another primitive.

Expected draws. Let row i have a positive of leaf c under parent P. It draws m products uniformly from the n_P - n_c
products of P outside c: any of them m / (n_P - n_c) times, others never. All rows share all draws. So given the
positive of row i, product j of leaf l under P_l is drawn
    m [P_l = P_i and l != c_i] / (n_P - n_c_i)  +  (B - 1) m sum over siblings c of l, c != l, of q_c / (n_P - n_c)
times, with q_c the share of edges whose product has leaf c: the row's own draws, and those of B - 1 random others. The
sum is taken for a parent once and l's own part taken off. Added to the expected in-batch and uniform draws, this keeps
the partition sum of each row unbiased. Draws of products not yet known as of the batch are void.
"""

from __future__ import annotations

import torch

from graph.draws import below, counter_hash
from hierarchy.prototypes import Prototypes


class HardNegatives:
    """Draws from a product's cousins; `assign` first, and again when primitives have moved. Memory O(products)."""

    def __init__(self, share: torch.Tensor, per_row: int, seed: int) -> None:
        """`share` float64 (N,): the part of the edges that each product has. `per_row`: m, draws of each row."""
        self.share, self.per_row, self.seed = share, per_row, seed
        self.leaf = torch.zeros(0, dtype=torch.int64)

    @property
    def ready(self) -> bool:
        """Whether products have been assigned."""
        return len(self.leaf) > 0

    @torch.no_grad()
    def assign(self, vectors: torch.Tensor, prototypes: Prototypes) -> None:
        """Give each product, by its unit vector (N, d), its nearest finest primitive, and the parent of that."""
        finest = prototypes.vectors(prototypes.num_levels - 1)
        if prototypes.num_levels > 1:
            parent = (finest @ prototypes.vectors(prototypes.num_levels - 2).t()).argmax(dim=1)
        else:
            parent = torch.zeros(len(finest), dtype=torch.int64, device=finest.device)
        self.place(torch.cat([(part @ finest.t()).argmax(dim=1) for part in torch.split(vectors, 1 << 16)]), parent)

    def place(self, leaf: torch.Tensor, parent: torch.Tensor) -> None:
        """The same from known leaves int64 (N,) of products and parents int64 (K,) of leaves."""
        self.leaf, self.parent, k = leaf, parent, len(parent)
        self.order = torch.argsort(parent[leaf] * k + leaf, stable=True)
        in_leaf, in_parent = _counts(leaf, k), _counts(parent[leaf], k)
        by_parent = torch.argsort(parent * k + torch.arange(k, device=leaf.device))
        first = torch.empty_like(in_leaf)
        first[by_parent] = in_leaf[by_parent].cumsum(0) - in_leaf[by_parent]
        self.first, self.count = first, in_leaf
        self.parent_first = (in_parent.cumsum(0) - in_parent)[parent]
        self.others = in_parent[parent] - in_leaf
        share = torch.zeros(k, dtype=torch.float64, device=leaf.device).index_add_(0, leaf, self.share)
        pull = torch.where(self.others > 0, share / self.others.clamp_min(1), 0.0)
        of_parent = torch.zeros_like(pull).index_add_(0, parent, pull)
        self.from_siblings = of_parent[parent] - pull

    def draw(self, positives: torch.Tensor, known: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Products int64 (B m,) for positives (B,), and which of the draws count, bool (B m,).

        A draw is void where there is no other child, or where it hits a product with an internal id from `known` on.
        """
        leaf = self.leaf[positives].repeat_interleave(self.per_row, output_size=len(positives) * self.per_row)
        hashes = counter_hash(self.seed, step, torch.arange(len(leaf), device=leaf.device))
        place = self.parent_first[leaf] + below(hashes, self.others[leaf])
        place = place + torch.where(place >= self.first[leaf], self.count[leaf], 0)
        found = self.order[place.clamp(max=len(self.order) - 1)]
        return found, (self.others[leaf] > 0) & (found < known)

    def expected(self, positives: torch.Tensor, nodes: torch.Tensor, known: int) -> torch.Tensor:
        """How often each of `nodes` (C,) is drawn, given each row's positive (B,): float64 (B, C)."""
        own, leaf = self.leaf[positives], self.leaf[nodes]
        cousin = (self.parent[own][:, None] == self.parent[leaf][None, :]) & (own[:, None] != leaf[None, :])
        mine = torch.where(cousin, 1.0 / self.others[own].clamp_min(1).to(torch.float64)[:, None], 0.0)
        all_others = (len(positives) - 1) * self.from_siblings[leaf]
        return torch.where(nodes < known, self.per_row * (mine + all_others[None, :]), 0.0)


def _counts(labels: torch.Tensor, k: int) -> torch.Tensor:
    """How many of `labels` (n,) are 0, 1, ..., k - 1; int64 (k,)."""
    return torch.zeros(k, dtype=torch.int64, device=labels.device).index_add_(0, labels, torch.ones_like(labels))
