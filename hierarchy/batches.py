"""The sampling half of a training step: which edges, which candidates, and the token sets of all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from data.context import derive_seed
from graph.sampler import Budget, TemporalSampler, TokenSet
from graph.store import GraphStore, Relation
from hierarchy.candidates import Candidates
from hierarchy.content import ContentTable
from hierarchy.edges import Batch, TrainingEdges
from hierarchy.engaged import Engaged
from hierarchy.popularity import log_popularity
from hierarchy.seeds import Seeds, sample_seeds
from hierarchy.transfer import on_device
from kernels.captured import Captured

DISLIKES = Relation("user", "not_interested", "product")
_NONE = np.zeros(0, np.int64)
_NO_EDGES = Batch(_NONE, _NONE, _NONE, _NONE, np.zeros(0, np.float32), 0)


@dataclass(frozen=True)
class Dislikes:
    """Products that users of the batch had said no to: rows int64 (R,) of the batch; seeds and log1p degree of each."""

    rows: torch.Tensor
    seeds: Seeds
    log_degree: torch.Tensor


@dataclass(frozen=True)
class StepInput:
    """All a step computes on; tensors are on the training device, `edges` is the host's.

    user int64, weight float32 and owned bool (B,): the edges' users, their place in the funnel, whether the product has
    an advertiser. `advertisers` is None when no edge of the batch has one; `dislikes` when nobody disliked anything.
    `engaged` holds (row, product) pairs that are no negatives, when all products are candidates. `asked` bool (B, T):
    products of `user_tokens` that a row is to find beside its edge's, having been taken out of the user; None: none.
    """

    edges: Batch
    user: torch.Tensor
    weight: torch.Tensor
    owned: torch.Tensor
    users: Seeds
    user_tokens: TokenSet
    products: Candidates
    advertisers: Candidates | None
    dislikes: Dislikes | None = None
    engaged: tuple[torch.Tensor, torch.Tensor] | None = None
    asked: torch.Tensor | None = None

    def on_device(self) -> StepInput:
        """The same without what only the host reads, so that steps of one form differ in their tensors alone."""
        advertisers = self.advertisers and dataclasses.replace(self.advertisers, known=0)
        products = dataclasses.replace(self.products, known=0)
        return dataclasses.replace(self, edges=_NO_EDGES, products=products, advertisers=advertisers)


class BatchMaker:
    """Draws the input of any step from (seed, step) alone, so a resumed run continues as if it had never stopped.

    The host draws edges and negatives, which are the same for every device; token sets are sampled on the samplers'
    device, where `table` must be. Nothing waits for that device.
    """

    def __init__(
        self,
        store: GraphStore,
        table: ContentTable,
        edges: TrainingEdges,
        samplers: Mapping[str, TemporalSampler],
        visible: Mapping[str, int],
        seed: int,
        full: bool = False,
        engaged: Engaged | None = None,
        disliked: bool = False,
        asked_share: float = 0.0,
        popularity_days: float | None = None,
    ) -> None:
        """`samplers` by node type; `visible`: how many products and advertisers were known when training ends.

        `full`: all products are candidates of every step, instead of sampled ones. `engaged`: whose other products are
        no negatives of theirs. `disliked`: draw explicit negatives. `asked_share`: mean part of a user's history that a
        row is to find, together with its edge; it differs from row to row by up to half of that. `popularity_days`: as
        in `log_popularity`.
        """
        self.store, self.table, self.edges, self.samplers, self.seed = store, table, edges, samplers, seed
        self.visible, self.full, self.engaged, self.asked_share = visible, full, engaged, asked_share
        self.popularity_days = popularity_days
        self.device = samplers["product"].device
        self._known = {kind: store.known_at(kind)[: visible[kind]] for kind in ("product", "advertiser")}
        named = {"product": edges.product, "advertiser": edges.advertiser[edges.advertiser >= 0]}
        counts = {kind: np.bincount(rows, minlength=visible[kind]) for kind, rows in named.items()}
        self._share = {kind: on_device(count / len(edges), self.device) for kind, count in counts.items()}
        # What nobody engaged with is not known to be unwanted, and as a negative it would teach that new is bad.
        self._with_edges = {kind: np.flatnonzero(count) for kind, count in counts.items()}
        self._no = store.csr(DISLIKES) if disliked else None
        self._tokenless: Candidates | None = None
        self._seeds = Captured(self._sampled, self.device, fresh=True)
        self.steady = self.device.type != "cpu"
        """Whether advertisers are filled up to one number, so that steps have one form and can be recorded."""

    def draw(self, step: int, size: int, negatives: int, advertiser_negatives: int, hide_target: float) -> StepInput:
        """Input of 0-based `step`: `size` edges, as many in-batch candidates and `negatives` uniform ones.

        `hide_target` is the share of rows whose user does not get to see earlier events with the same product; with a
        history of "others" nobody does.
        """
        rng = np.random.default_rng(derive_seed(self.seed, "step", step))
        edges = self.edges.batch(step, size)
        others = self.edges.history == "others"
        hidden = np.where((rng.random(len(edges.user)) < hide_target) | others, edges.product, -1)
        user, at, hides = (on_device(column, self.device) for column in (edges.user, edges.ts, hidden))
        users, user_tokens = self._seeds("user", user, at, hides, self._draw_seed(step))
        asked = self._asked(users, user_tokens, step) if self.asked_share else None
        if asked is not None:
            users = dataclasses.replace(users, mask=users.mask & ~asked, history=users.history & ~asked)
        products = self._all(edges, step) if self.full else self._products(edges, negatives, step, rng)
        weight, owned = (on_device(column, self.device) for column in (edges.weight, edges.advertiser >= 0))
        return StepInput(
            edges,
            user,
            weight,
            owned,
            users,
            user_tokens,
            products,
            self._advertisers(edges, advertiser_negatives, step, rng),
            self._dislikes(edges, step),
            self.engaged.pairs(edges.user) if self.full and self.engaged else None,
            asked,
        )

    def _asked(self, users: Seeds, tokens: TokenSet, step: int) -> torch.Tensor:
        """Which history tokens (B, T) rows are to find; never all of a row's, and of a product all tokens or none."""
        generator = torch.Generator(self.device).manual_seed(derive_seed(self.seed, "asked", step))
        product = torch.rand(self.visible["product"], generator=generator, device=self.device)
        row, part = torch.rand((2, len(users), 1), generator=generator, device=self.device)
        draws = (product[tokens.node.clamp(0, len(product) - 1)] + row) % 1.0
        asked = users.history & (draws < self.asked_share * (0.5 + part))
        left = (users.history & ~asked).any(dim=1, keepdim=True)
        return torch.logical_and(asked, left)

    def share(self, kind: str) -> torch.Tensor:
        """The part of the edges that each visible entity has, float64 (N,)."""
        return self._share[kind]

    def known(self, kind: str, as_of: int) -> int:
        """How many visible entities were known at `as_of` [us]; internal ids are in that order."""
        return int(np.searchsorted(self._known[kind], as_of, side="right"))

    def expected(self, kind: str, nodes: torch.Tensor, known: int, size: int, negatives: int) -> torch.Tensor:
        """How often each of `nodes` (C,) is drawn in a batch of `size`, given a positive that it is not; float64 (C,).

        The other size - 1 edges bring it with its share of the edges each, and `negatives` uniform draws are spread
        over those of the `known` entities that have edges. Products come once per edge, advertisers once per batch
        however many edges name them.
        """
        share = self._share[kind][nodes]
        in_batch = (size - 1) * share if kind == "product" else 1.0 - (1.0 - share) ** (size - 1)
        drawable = self._drawable(kind, known)
        return in_batch + torch.where((nodes < known) & (share > 0), negatives / max(drawable, 1), 0.0)

    def candidates(
        self,
        kind: str,
        nodes: torch.Tensor,
        as_of: int,
        step: int,
        barred: torch.Tensor | None = None,
        varying: bool = False,
    ) -> Candidates:
        """Seeds of `nodes` (C,) as of `as_of` [us], each expected once and no row's positive; for others to complete.

        `barred` (C,): the user whose edges a product must not see, -1 for none. `varying`: C differs from step to step,
        so that the call is not worth recording.
        """
        times = torch.full_like(nodes, as_of)
        barred = torch.full_like(nodes, -1) if barred is None else barred
        sample = self._sampled if varying else self._seeds
        seeds, tokens = sample(kind, nodes, times, barred, self._draw_seed(step))
        degree = log_popularity(self.samplers[kind], kind, nodes, times, self.popularity_days)
        known = self.known(kind, as_of)
        return Candidates(nodes, seeds, tokens, degree, torch.zeros_like(degree), nodes.new_zeros(0), known)

    def _sampled(
        self, kind: str, nodes: torch.Tensor, times: torch.Tensor, barred: torch.Tensor, seed: torch.Tensor
    ) -> tuple[Seeds, TokenSet]:
        return sample_seeds(self.table, self.samplers[kind], kind, nodes, times, seed, barred)

    def _draw_seed(self, step: int) -> torch.Tensor:
        """Of the token sets of a step, int64 ()."""
        return on_device(np.array([derive_seed(self.seed, step)]), self.device)[0]

    def _products(self, edges: Batch, negatives: int, step: int, rng: np.random.Generator) -> Candidates:
        barred = np.full(len(edges.user) + negatives, -1)
        if self.edges.history == "others":
            barred[: len(edges.user)] = edges.user
        targets = np.arange(len(edges.user))
        return self._drawn("product", edges.product, targets, len(targets), negatives, edges.as_of, step, rng, barred)

    def _advertisers(self, edges: Batch, negatives: int, step: int, rng: np.random.Generator) -> Candidates | None:
        owners = np.unique(edges.advertiser[edges.advertiser >= 0])
        if not len(owners):
            return None
        targets = np.searchsorted(owners, np.maximum(edges.advertiser, owners[0]))
        most = min(len(edges.user), len(self._with_edges["advertiser"]))
        filled = most - len(owners) if self.steady else 0
        barred = np.full(len(owners) + negatives + filled, -1)
        size, as_of = len(edges.user), edges.as_of
        return self._drawn("advertiser", owners, targets, size, negatives, as_of, step, rng, barred, filled)

    def _drawn(
        self,
        kind: str,
        present: NDArray[np.int64],
        targets: NDArray[np.int64],
        size: int,
        negatives: int,
        as_of: int,
        step: int,
        rng: np.random.Generator,
        barred: NDArray[np.int64],
        filled: int = 0,
    ) -> Candidates:
        """Those of edges, uniform draws, and `filled` that are none and only make up a number."""
        known = self.known(kind, as_of)
        drawable = self._drawable(kind, known)
        drawn = self._with_edges[kind][rng.integers(0, max(drawable, 1), negatives if drawable else 0)]
        nodes = on_device(np.concatenate([present, drawn, np.repeat(present[:1], filled)]), self.device)
        found = self.candidates(kind, nodes, as_of, step, on_device(barred[: len(nodes)], self.device))
        log_expected = torch.log(self.expected(kind, nodes, known, size, negatives) + 1e-12).float()
        log_expected[len(nodes) - filled :].fill_(torch.inf)
        return found.replaced(log_expected, on_device(targets, self.device))

    def _all(self, edges: Batch, step: int) -> Candidates:
        """All products known as of the batch that have edges; others are there, but expected infinitely often."""
        nodes = torch.arange(self.visible["product"], device=self.device)
        found = self._static(nodes, edges.as_of) or self.candidates("product", nodes, edges.as_of, step)
        log_expected = torch.where((nodes < found.known) & (self._share["product"] > 0), 0.0, torch.inf)
        whole = found.replaced(log_expected, on_device(edges.product, self.device))
        return dataclasses.replace(whole, distinct=True)

    def _drawable(self, kind: str, known: int) -> int:
        """How many of the first `known` entities have training edges: those that uniform negatives are drawn from."""
        return int(np.searchsorted(self._with_edges[kind], known))

    def _static(self, nodes: torch.Tensor, as_of: int) -> Candidates | None:
        """All products where they have no tokens, so that only their degrees differ from step to step; else None."""
        sampler = self.samplers["product"]
        if sampler.budget.total:
            return None
        if self._tokenless is None:
            self._tokenless = self.candidates("product", nodes, as_of, 0)
        degree = log_popularity(sampler, "product", nodes, torch.full_like(nodes, as_of), self.popularity_days)
        known = self.known("product", as_of)
        return dataclasses.replace(self._tokenless, log_degree=degree, known=known)

    def _dislikes(self, edges: Batch, step: int) -> Dislikes | None:
        """For each row whose user had said no to products before the edge, one of them."""
        if self._no is None or not self._no.num_edges:
            return None
        rng = np.random.default_rng(derive_seed(self.seed, "dislikes", step))
        count = self._no.visible(edges.user, edges.ts)
        place = (rng.random(len(count)) * count).astype(np.int64)
        rows = np.flatnonzero(count)
        if not len(rows):
            return None
        nodes = self._no.col[self._no.rowptr[edges.user[rows]] + place[rows]].astype(np.int64)
        found = self.candidates("product", on_device(nodes, self.device), edges.as_of, step, varying=True)
        return Dislikes(on_device(rows, self.device), found.seeds, found.log_degree)


def make_samplers(
    store: GraphStore, user_budget: Budget, item_budget: Budget, device: torch.device | str = "cpu"
) -> dict[str, TemporalSampler]:
    """Samplers by entity type on `device`; products and advertisers share one."""
    items = TemporalSampler(store, item_budget, device)
    return {"user": TemporalSampler(store, user_budget, device), "product": items, "advertiser": items}
