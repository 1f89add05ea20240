"""The sampling half of a training step: which edges, which candidates, and the token sets of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from data.context import derive_seed
from graph.sampler import Budget, TemporalSampler, TokenSet
from graph.store import GraphStore
from hierarchy.content import ContentTable
from hierarchy.edges import Batch, TrainingEdges
from hierarchy.seeds import Seeds, sample_seeds


@dataclass(frozen=True)
class Candidates:
    """C entities of one type that users are scored against.

    nodes int64 (C,); seeds and tokens as of the batch; log_degree float32 (C,): log1p of as-of degree; log_expected
    float32 (C,): log of the expected number of draws of each.
    """

    nodes: NDArray[np.int64]
    seeds: Seeds
    tokens: TokenSet
    log_degree: torch.Tensor
    log_expected: torch.Tensor


@dataclass(frozen=True)
class StepInput:
    """All a step computes on. `advertisers` is None when no edge of the batch has one."""

    edges: Batch
    users: Seeds
    user_tokens: TokenSet
    products: Candidates
    advertisers: Candidates | None


class BatchMaker:
    """Draws the input of any step from (seed, step) alone, so a resumed run continues as if it had never stopped."""

    def __init__(
        self,
        store: GraphStore,
        table: ContentTable,
        edges: TrainingEdges,
        samplers: Mapping[str, TemporalSampler],
        visible: Mapping[str, int],
        seed: int,
    ) -> None:
        """`samplers` by node type; `visible`: how many products and advertisers were known when training ends."""
        self.store, self.table, self.edges, self.samplers, self.seed = store, table, edges, samplers, seed
        self.visible = visible
        products = np.bincount(edges.product, minlength=visible["product"])
        owned = edges.advertiser[edges.advertiser >= 0]
        advertisers = np.bincount(owned, minlength=visible["advertiser"])
        self._share = {"product": products / len(edges), "advertiser": advertisers / len(edges)}

    def draw(self, step: int, size: int, negatives: int, advertiser_negatives: int, hide_target: float) -> StepInput:
        """Input of 0-based `step`: `size` edges, as many in-batch candidates and `negatives` uniform ones.

        `hide_target` is the share of rows whose user does not get to see earlier events with the same product.
        """
        rng = np.random.default_rng(derive_seed(self.seed, "step", step))
        edges = self.edges.batch(step, size)
        hidden = np.where(rng.random(len(edges.user)) < hide_target, edges.product, -1)
        users, user_tokens = sample_seeds(
            self.table, self.samplers["user"], "user", edges.user, edges.ts, derive_seed(self.seed, step), hidden
        )
        products = self._candidates("product", edges.product, negatives, step, edges.as_of, rng, len(edges.user))
        owners = np.unique(edges.advertiser[edges.advertiser >= 0])
        advertisers = None
        if len(owners):
            advertisers = self._candidates(
                "advertiser", owners, advertiser_negatives, step, edges.as_of, rng, len(edges.user)
            )
        return StepInput(edges, users, user_tokens, products, advertisers)

    def _candidates(
        self,
        kind: str,
        present: NDArray[np.int64],
        negatives: int,
        step: int,
        as_of: int,
        rng: np.random.Generator,
        size: int,
    ) -> Candidates:
        known = int(np.searchsorted(self.store.known_at(kind)[: self.visible[kind]], as_of, side="right"))
        drawn = rng.integers(0, max(known, 1), negatives) if known else np.zeros(0, np.int64)
        nodes = np.concatenate([present, drawn])
        times = np.full(len(nodes), as_of, np.int64)
        sampler = self.samplers[kind]
        seeds, tokens = sample_seeds(self.table, sampler, kind, nodes, times, derive_seed(self.seed, step))
        degree = torch.log1p(sampler.degree(kind, nodes, times).to(torch.float64)).float()
        share = self._share[kind][nodes]
        # Products come once per edge, advertisers once per batch however many edges name them.
        in_batch = size * share if kind == "product" else 1.0 - (1.0 - share) ** size
        expected = in_batch + np.where(nodes < known, negatives / max(known, 1), 0.0)
        return Candidates(nodes, seeds, tokens, degree, torch.from_numpy(np.log(expected + 1e-12)).float())


def make_samplers(store: GraphStore, user_budget: Budget, item_budget: Budget) -> dict[str, TemporalSampler]:
    """Samplers by entity type; products and advertisers share one."""
    items = TemporalSampler(store, item_budget)
    return {"user": TemporalSampler(store, user_budget), "product": items, "advertiser": items}
