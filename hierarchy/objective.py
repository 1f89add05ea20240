"""The torch half of a training step: link prediction, and distillation between views at every level."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from graph.sampler import TokenSet
from hierarchy.batches import Candidates, StepInput
from hierarchy.losses.consistency import consistency_loss
from hierarchy.losses.distillation import distillation_loss, sinkhorn, tempered_prior
from hierarchy.losses.link import sampled_softmax
from hierarchy.memory import VectorMemory
from hierarchy.model import Learner
from hierarchy.prototypes import Prototypes
from hierarchy.seeds import VIEWS, Seeds


class LossWeights(BaseModel):
    """Weight of each loss term; 0 turns it off."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    link: float = Field(default=1.0, ge=0, description="User-product link prediction.")
    advertiser: float = Field(default=0.3, ge=0, description="User-advertiser link prediction.")
    distillation: float = Field(default=1.0, ge=0, description="Cross-view distillation at every level.")
    consistency: float = Field(default=0.05, ge=0, description="Agreement of neighbouring levels.")
    spread: float = Field(default=0.02, ge=0, description="Step of primitives away from their nearest neighbour.")


class Distillation(BaseModel):
    """Settings of cross-view distillation; without effect when its loss weight is 0."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    views: tuple[str, ...] = Field(default=("content", "engagement", "early"), description="Student views, in turn.")
    every: int = Field(default=2, ge=1, description="Steps from one distillation to the next.")
    seeds: int = Field(default=128, ge=1, description="Users and products (and half as many advertisers) per step.")
    student_temp: float = Field(default=0.1, gt=0, description="Temperature of the student's softmax.")
    teacher_temp: float = Field(default=0.05, gt=0, description="Temperature of the teacher's assignment.")
    iterations: int = Field(default=3, ge=1, description="Sinkhorn rounds.")
    prior_exponent: float = Field(default=0.5, ge=0, le=1, description="0: equal shares, 1: shares as found.")
    queue: int = Field(default=2048, ge=1, description="Teacher vectors remembered for balancing.")
    momentum: float = Field(default=0.98, ge=0, lt=1, description="Share of its old place a primitive keeps per step.")


@dataclass(frozen=True)
class Distilled:
    """What a step learned about primitives: teacher vectors (N, d) and their assignments, one (N, K) a level."""

    vectors: torch.Tensor
    targets: list[torch.Tensor]


def link_losses(model: Learner, prototypes: Prototypes, given: StepInput) -> dict[str, torch.Tensor]:
    """User-product and user-advertiser sampled softmax; scalars by term."""
    users = model.encoder(given.users, prototypes, latents=model.encoder.shape.user_heads)
    weights = torch.from_numpy(given.edges.weight)
    losses = {"link": _link(model, prototypes, users, given.products, given.edges.product, weights)}
    if given.advertisers is not None:
        owned = weights * torch.from_numpy(given.edges.advertiser >= 0)
        losses["advertiser"] = _link(model, prototypes, users, given.advertisers, given.edges.advertiser, owned)
    return losses


def distil(
    config: Distillation,
    student: Learner,
    teacher: Learner,
    prototypes: Prototypes,
    memory: VectorMemory,
    given: StepInput,
    view: str,
) -> tuple[dict[str, torch.Tensor], Distilled]:
    """The student sees `view` of some seeds of each type, the teacher all of their past; loss terms and assignments."""
    pairs = [_first(seeds, tokens, count) for seeds, tokens, count in _seed_groups(given, config.seeds)]
    with torch.no_grad():
        known = torch.cat([teacher.encoder(seeds, prototypes)[:, 0] for seeds, _ in pairs])
    guessed = torch.cat([student.encoder(VIEWS[view](*pair), prototypes)[:, 0] for pair in pairs])
    remembered = torch.cat([known, memory.stored()])
    targets, losses, log_probs = [], [], []
    for level in range(prototypes.num_levels):
        vectors, mass = prototypes.vectors(level), prototypes.mass(level)
        prior = tempered_prior(mass, config.prior_exponent)
        targets.append(sinkhorn(remembered @ vectors.t(), prior, config.teacher_temp, config.iterations)[: len(known)])
        similarity = guessed @ vectors.t()
        losses.append(distillation_loss(similarity, targets[-1], config.student_temp))
        log_probs.append(torch.log_softmax(similarity / config.student_temp, dim=1))
    terms = {"distillation": torch.stack(losses).mean()}
    if prototypes.num_levels > 1:
        agreement = [
            consistency_loss(log_probs[level - 1], log_probs[level], prototypes.parents(level))
            for level in range(1, prototypes.num_levels)
        ]
        terms["consistency"] = torch.stack(agreement).mean()
    terms.update({f"distillation_{level + 1}": loss.detach() for level, loss in enumerate(losses)})
    return terms, Distilled(known, targets)


def _link(
    model: Learner,
    prototypes: Prototypes,
    users: torch.Tensor,
    candidates: Candidates,
    targets: NDArray[np.int64],
    weights: torch.Tensor,
) -> torch.Tensor:
    vectors = model.encoder(candidates.seeds, prototypes)[:, 0]
    logits = model.link(users, vectors, candidates.log_degree)
    same = candidates.nodes[None, :] == targets[:, None]
    # A row without a target (no advertiser) has weight 0; its column is arbitrary.
    positive = logits.gather(1, torch.from_numpy(same.argmax(axis=1))[:, None])[:, 0]
    return sampled_softmax(positive, logits, candidates.log_expected, torch.from_numpy(same), weights)


def _seed_groups(given: StepInput, count: int) -> list[tuple[Seeds, TokenSet, int]]:
    groups = [(given.users, given.user_tokens, count), (given.products.seeds, given.products.tokens, count)]
    if given.advertisers is not None:
        groups.append((given.advertisers.seeds, given.advertisers.tokens, max(1, count // 2)))
    return groups


def _first(seeds: Seeds, tokens: TokenSet, count: int) -> tuple[Seeds, TokenSet]:
    cut = {field.name: getattr(seeds, field.name)[:count] for field in dataclasses.fields(Seeds)}
    return Seeds(**cut), tokens.first(count)
