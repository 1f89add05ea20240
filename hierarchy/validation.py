"""Recall on edges held out of training, by which the best teacher is kept and a run that gains nothing more stopped."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from graph.sampler import TemporalSampler
from hierarchy.content import ContentTable
from hierarchy.edges import Batch
from hierarchy.engaged import Engaged
from hierarchy.inference import encode_nodes
from hierarchy.model import Learner
from hierarchy.popularity import log_popularity
from hierarchy.prototypes import Prototypes
from hierarchy.transfer import on_device

RECALL_AT = 20
_USERS = 512


class Validation(BaseModel):
    """Validation while training, on edges before t0 that training does not see."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    every: int = Field(default=0, ge=0, description="Steps from one validation to the next; 0: none is held out.")
    users: int = Field(default=1000, ge=1, description="Users of whom one edge each, the newest, is held out.")
    patience: int = Field(
        default=0, ge=0, description="Validations in a row without a new best after which training stops; 0: never."
    )


class HeldOut:
    """Questions for a model: which product comes next for each of some users.

    Products are ranked as of the earliest week of the questions; users see what came before their own edge (with a
    history of "others", all but the product asked for). Other products that a user engaged with are passed over when
    `engaged` is given. A product not known yet cannot be found.
    """

    def __init__(
        self,
        edges: Batch,
        samplers: Mapping[str, TemporalSampler],
        table: ContentTable,
        known: int,
        hide: bool,
        seed: int,
        engaged: Engaged | None = None,
        popularity_days: float | None = None,
    ) -> None:
        """`known`: products there were as of the questions. `hide`: users do not see the product asked for."""
        self.edges, self.samplers, self.table, self.seed = edges, samplers, table, seed
        self.known, self.hide, self.engaged, self.popularity_days = known, hide, engaged, popularity_days

    @torch.no_grad()
    def recall(self, model: Learner, prototypes: Prototypes) -> float:
        """Share of the questions whose product is among the first RECALL_AT; ties count against it.

        Time: an encoder pass over all known products, and users x products.
        """
        device, edges = self.samplers["product"].device, self.edges
        nodes, times = np.arange(self.known), np.full(self.known, edges.as_of, np.int64)
        products = self._vectors(model, prototypes, "product", nodes, times)[:, 0]
        users = self._vectors(model, prototypes, "user", edges.user, edges.ts, edges.product if self.hide else None)
        degree = log_popularity(self.samplers["product"], "product", nodes, times, self.popularity_days)
        hits = torch.zeros((), dtype=torch.int64, device=device)
        person, asked = on_device(edges.user, device), on_device(edges.product, device)
        for start in range(0, len(users), _USERS):
            part = slice(start, start + _USERS)
            scores = model.link(users[part], products, degree)
            hits += self._hits(scores, person[part], asked[part])
        return int(hits) / max(1, len(edges.user))

    def _hits(self, scores: torch.Tensor, users: torch.Tensor, asked: torch.Tensor) -> torch.Tensor:
        own = scores.gather(1, asked.clamp(max=self.known - 1)[:, None])
        better = scores >= own
        if self.engaged is not None:
            better &= ~self.engaged.mask(users, torch.arange(self.known, device=scores.device))
        better.scatter_(1, asked.clamp(max=self.known - 1)[:, None], False)
        return ((better.sum(dim=1) < RECALL_AT) & (asked < self.known)).sum()

    def _vectors(
        self,
        model: Learner,
        prototypes: Prototypes | None,
        kind: str,
        nodes: NDArray[np.int64],
        times: NDArray[np.int64],
        exclude: NDArray[np.int64] | None = None,
    ) -> torch.Tensor:
        sampler = self.samplers[kind]
        found = encode_nodes(model.encoder, prototypes, self.table, sampler, kind, nodes, times, self.seed, exclude)
        return on_device(found, sampler.device)


class Best:
    """The best state so far by recall, as a copy of its tensors, and for how many validations it has stood."""

    def __init__(self) -> None:
        self.recall, self.stood = -1.0, 0
        self.tensors: dict[str, torch.Tensor] = {}

    def offer(self, recall: float, tensors: Mapping[str, torch.Tensor]) -> None:
        """Keep `tensors` if `recall` is a new best."""
        self.stood += 1
        if recall > self.recall:
            self.recall, self.stood = recall, 0
            self.tensors = {name: tensor.detach().clone() for name, tensor in tensors.items()}
