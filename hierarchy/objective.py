"""The torch half of a training step: link prediction, and distillation between views at every level."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field

from graph.sampler import TokenSet
from hierarchy.batches import StepInput
from hierarchy.candidates import Candidates, taken
from hierarchy.losses.by_rows import RowLoss
from hierarchy.losses.consistency import consistency_loss
from hierarchy.losses.dislike import dislike_loss
from hierarchy.losses.distillation import distillation_loss, sinkhorn, tempered_prior
from hierarchy.losses.link import LogPartition, link_loss
from hierarchy.losses.several import SeveralPositives
from hierarchy.losses.view_distillation import ViewDivergence, view_scores, view_sides
from hierarchy.memory import VectorMemory
from hierarchy.model import Learner
from hierarchy.passes import Passes
from hierarchy.prototypes import Prototypes
from hierarchy.repeats import history_share
from hierarchy.scoring import LinkScores
from hierarchy.seeds import VIEWS, Seeds

_STEPS = 24  # halvings of the range in which a temperature is looked for


class LossWeights(BaseModel):
    """Weight of each loss term; 0 turns it off."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    link: float = Field(default=1.0, ge=0, description="User-product link prediction.")
    advertiser: float = Field(default=0.3, ge=0, description="User-advertiser link prediction.")
    distillation: float = Field(default=1.0, ge=0, description="Cross-view distillation at every level.")
    consistency: float = Field(default=0.05, ge=0, description="Agreement of neighbouring levels.")
    dislike: float = Field(default=0.0, ge=0, description="Products that a user said not to want are made unlikely.")
    teachers: float = Field(default=1.0, ge=0, description="Closed-form views as teachers, where any is named.")
    spread: float = Field(default=0.02, ge=0, description="Step of primitives away from their nearest neighbour.")


class Distillation(BaseModel):
    """Settings of cross-view distillation; without effect when its loss weight is 0."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    views: tuple[str, ...] = Field(default=("content", "engagement", "early"), description="Student views, in turn.")
    every: int = Field(default=2, ge=1, description="Steps from one distillation to the next.")
    seeds: int = Field(default=128, ge=1, description="Users and products (and half as many advertisers) per step.")
    uniform: float = Field(
        default=0.5, ge=0, le=1, description="Part of those products that are drawn from all alike, not from edges."
    )
    student_temp: float = Field(default=0.1, gt=0, description="Temperature of the student's softmax.")
    teacher_temp: float = Field(default=0.05, gt=0, description="Temperature of the teacher's assignment.")
    iterations: int = Field(default=3, ge=1, description="Sinkhorn rounds.")
    prior_exponent: float = Field(default=0.5, ge=0, le=1, description="0: equal shares, 1: shares as found.")
    queue: int = Field(default=2048, ge=1, description="Teacher vectors remembered for balancing.")
    momentum: float = Field(default=0.98, ge=0, lt=1, description="Share of its old place a primitive keeps per step.")
    settle: int = Field(default=5, ge=0, description="Rounds of EM over all products after the last step; 0: none.")
    content: float = Field(
        default=0.0,
        ge=0,
        description="After that, the finest primitives divide the products by vector and content, which weighs so "
        "much; 0: by vector alone.",
    )
    evenness: float = Field(
        default=0.65,
        ge=0,
        lt=1,
        description="After that, coarser levels become unions of the finest primitives of like content, as uneven as "
        "content is but with a perplexity of at least this share of k; 0: they stay as they settled.",
    )


class Teaching(BaseModel):
    """Closed-form views as teachers of the link logits; without effect when none is named or its weight is 0."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    views: tuple[str, ...] = Field(default=(), description="Names of the views, all in each step.")
    perplexity: float = Field(
        default=100.0, gt=1, description="Products that a teacher's softmax spreads over, in effect, on average."
    )
    student_temp: float = Field(default=1.0, gt=0, description="Divides the student's link logits.")


class Teacher(NamedTuple):
    """The arrays of a TeacherView on the training device: what products say as history, and as candidates (N, D).

    `temperature` [standard deviations of its scores] gives its softmax the perplexity that is asked for.
    """

    source: torch.Tensor
    target: torch.Tensor
    temperature: float = 1.0

    def scores(self, given: StepInput) -> tuple[torch.Tensor, torch.Tensor]:
        """What the teacher says of the products (B, C), and log_expected (B, C), infinite for what a user is made of:
        that something resembles itself is no lesson."""
        history, products = given.users.history, given.products
        nodes = given.user_tokens.node
        had = history_share(nodes, history, products.nodes) > 0
        found = view_scores(self.source, self.target, nodes, history, products.nodes)
        return found, torch.where(had, torch.inf, products.log_expected)

    def calibrated(self, given: StepInput, perplexity: float) -> Teacher:
        """The same teacher at the temperature that gives the users of a step `perplexity`, as t-SNE sets its bandwidth
        (van der Maaten & Hinton, 2008), to three digits; waits for the device."""
        scores, log_expected = self.scores(given)
        scores, log_expected = scores[given.users.history.any(dim=1)], log_expected[given.users.history.any(dim=1)]
        low, high = math.log(1e-3), math.log(1e2)
        for _ in range(_STEPS):
            middle = (low + high) / 2
            log_prob = torch.log_softmax(scores / math.exp(middle) - log_expected, dim=1)
            entropy = -(log_prob.exp() * log_prob.clamp_min(-1e4)).sum(dim=1).mean()
            low, high = (middle, high) if float(entropy) < math.log(perplexity) else (low, middle)
        return self._replace(temperature=float(f"{math.exp(low):.3g}"))


@dataclass(frozen=True)
class Distilled:
    """What a step learned about primitives: teacher vectors (N, d) and their assignments, one (N, K) a level."""

    vectors: torch.Tensor
    targets: list[torch.Tensor]


def link_losses(
    model: Learner,
    passes: Passes,
    given: StepInput,
    weights: LossWeights,
    absent: torch.Tensor | tuple[torch.Tensor, torch.Tensor] | None = None,
    teaching: Teaching | None = None,
    teachers: Sequence[Teacher] = (),
    repeats: bool = False,
) -> dict[str, torch.Tensor]:
    """User-product and user-advertiser sampled softmax, explicit negatives and views as teachers; scalars by term.

    `absent`: product candidates that are no negatives of a row beside its own positive, bool (B, C), or as pairs (row,
    column) where all products are candidates. `repeats`: products that a user had are told apart. Terms of weight 0 are
    not computed. Memory does not grow with B C but for by_rows.AT_ONCE of it.
    """
    on = {name for name, weight in weights.model_dump().items() if weight}
    if given.advertisers is None:
        on -= {"advertiser"}
    if given.dislikes is None:
        on -= {"dislike"}
    if not teachers:
        on -= {"teachers"}
    losses: dict[str, torch.Tensor] = {}
    if not on & {"link", "advertiser", "dislike", "teachers"}:
        return losses
    users = passes.encode(model.encoder, given.users, model.encoder.shape.user_heads)
    if on & {"link", "dislike", "teachers"}:
        scores = _scores(model, passes, users, given.products, given, repeats)
        terms: dict[str, RowLoss] = {}
        if given.asked is None or "dislike" in on:
            terms["others"] = LogPartition(scores.barred(absent))
        if given.asked is not None:
            terms["several"] = _several(scores, given)
        if "teachers" in on and teaching is not None:
            terms |= {f"view_{n}": _taught(teaching, each, given, scores) for n, each in enumerate(teachers)}
        found = dict(zip(terms, scores.losses(list(terms.values())), strict=True))
    if "link" in on and given.asked is not None:
        positives = given.weight * (1 + given.asked.sum(dim=1))
        losses["link"] = (given.weight * found["several"]).sum() / positives.sum().clamp_min(1e-12)
    elif "link" in on:
        losses["link"] = link_loss(scores.positive(), found["others"], given.weight)
    if "advertiser" in on and given.advertisers is not None:
        scored = _scores(model, passes, users, given.advertisers, given)
        losses["advertiser"] = _link(scored, given.weight * given.owned)
    if "dislike" in on and given.dislikes is not None:
        losses["dislike"] = _dislike(model, passes, users, given, found["others"][given.dislikes.rows])
    if "teachers" in on and teaching is not None:
        rows = given.weight * given.users.history.any(dim=1)
        divergence = torch.stack([values for name, values in found.items() if name.startswith("view_")]).mean(dim=0)
        losses["teachers"] = (divergence * rows).sum() / rows.sum().clamp_min(1e-12)
    return losses


def distil(
    config: Distillation,
    weights: LossWeights,
    student: Learner,
    teacher: Learner,
    prototypes: Prototypes,
    memory: VectorMemory,
    passes: Passes,
    given: StepInput,
    view: str,
    others: torch.Tensor | None = None,
) -> tuple[dict[str, torch.Tensor], Distilled]:
    """The student sees `view` of some seeds of each type, the teacher all of their past; loss terms and assignments.

    `others` int64 (o,): columns of the product candidates that take the place of as many products of edges. Edges name
    what sells; without others, primitives would follow the few best sellers and leave the rest of a catalogue to share
    what remains.
    Without a weight on what the student learns here only the teacher looks, so that primitives still follow it.
    """
    pairs = _seed_groups(given, config.seeds, others)
    with torch.no_grad():
        known = torch.cat([passes.encode(teacher.encoder, seeds)[:, 0] for seeds, _ in pairs])
    remembered = torch.cat([known, memory.stored()])
    targets = []
    for level in range(prototypes.num_levels):
        similarity = remembered @ prototypes.vectors(level).t()
        targets.append(balanced(config, similarity, prototypes.mass(level))[: len(known)])
    found = Distilled(known, targets)
    if not (weights.distillation or weights.consistency):
        return {}, found
    guessed = torch.cat([passes.encode(student.encoder, VIEWS[view](*pair))[:, 0] for pair in pairs])
    return _distillation_terms(config, weights, guessed, prototypes, targets), found


def balanced(config: Distillation, similarity: torch.Tensor, mass: torch.Tensor) -> torch.Tensor:
    """Assignments (N, K) for cosines (N, K) to primitives whose shares so far are `mass` (K,); rows sum to 1."""
    prior = tempered_prior(mass, config.prior_exponent)
    return sinkhorn(similarity, prior, config.teacher_temp, config.iterations)


def _distillation_terms(
    config: Distillation,
    weights: LossWeights,
    guessed: torch.Tensor,
    prototypes: Prototypes,
    targets: list[torch.Tensor],
) -> dict[str, torch.Tensor]:
    similarities = [guessed @ prototypes.vectors(level).t() for level in range(prototypes.num_levels)]
    terms = {}
    if weights.distillation:
        losses = [
            distillation_loss(found, target, config.student_temp)
            for found, target in zip(similarities, targets, strict=True)
        ]
        terms["distillation"] = torch.stack(losses).mean()
        terms.update({f"distillation_{level + 1}": loss.detach() for level, loss in enumerate(losses)})
    if weights.consistency and prototypes.num_levels > 1:
        log_probs = [torch.log_softmax(found / config.student_temp, dim=1) for found in similarities]
        agreement = [
            consistency_loss(log_probs[level - 1], log_probs[level], prototypes.parents(level))
            for level in range(1, prototypes.num_levels)
        ]
        terms["consistency"] = torch.stack(agreement).mean()
    return terms


def _scores(
    model: Learner,
    passes: Passes,
    users: torch.Tensor,
    candidates: Candidates,
    given: StepInput,
    repeats: bool = False,
) -> LinkScores:
    """Link logits of users (B, Q, d); `repeats`: what a user had is told apart."""
    vectors = passes.encode_all(model.encoder, candidates.seeds)[:, 0]
    return LinkScores(model.link, users, vectors, candidates, (given.user_tokens.node, given.users.history), repeats)


def _link(scores: LinkScores, weights: torch.Tensor) -> torch.Tensor:
    return link_loss(scores.positive(), scores.losses([LogPartition(scores.barred())])[0], weights)


def _several(scores: LinkScores, given: StepInput) -> SeveralPositives:
    """All products are candidates, so a node is its column: the edge's product and those asked beside it are found."""
    assert given.asked is not None
    nodes = given.user_tokens.node.clamp(0, len(given.products.nodes) - 1)
    positives = torch.cat([given.products.targets[:, None], nodes], dim=1)
    there = torch.cat([torch.ones_like(given.asked[:, :1]), given.asked], dim=1)
    return SeveralPositives(positives, there, scores.log_expected, scores.had)


def _dislike(
    model: Learner, passes: Passes, users: torch.Tensor, given: StepInput, log_partition: torch.Tensor
) -> torch.Tensor:
    assert given.dislikes is not None
    rows, seeds, log_degree = given.dislikes.rows, given.dislikes.seeds, given.dislikes.log_degree
    vectors = passes.encode(model.encoder, seeds)[:, 0]
    cosine = torch.einsum("rqd,rd->rq", users[rows], vectors).amax(dim=1)
    disliked = cosine * model.link.log_scale.exp() + model.link.popularity * log_degree
    return dislike_loss(disliked, log_partition, torch.ones_like(disliked))


def _taught(teaching: Teaching, teacher: Teacher, given: StepInput, scores: LinkScores) -> ViewDivergence:
    users, products = view_sides(teacher.source, teacher.target, *scores.history, given.products.nodes)
    users = users / teacher.temperature
    return ViewDivergence(users, products, scores.log_expected, teaching.student_temp, scores.had)


def _seed_groups(given: StepInput, count: int, others: torch.Tensor | None) -> list[tuple[Seeds, TokenSet]]:
    """Some users, products, and half as many advertisers, with the token sets behind their seeds."""
    first, products = slice(count), given.products.targets[:count]
    if others is not None:
        products = torch.cat([products[: count - len(others)], others])
    groups = [
        (taken(given.users, first), taken(given.user_tokens, first)),
        (taken(given.products.seeds, products), taken(given.products.tokens, products)),
    ]
    if given.advertisers is not None:
        half = slice(max(1, count // 2))
        groups.append((taken(given.advertisers.seeds, half), taken(given.advertisers.tokens, half)))
    return groups
