"""What a step's input does not get to see: id residuals and tokens dropped at random."""

from __future__ import annotations

import dataclasses

import torch

from hierarchy.batches import StepInput
from hierarchy.candidates import Candidates
from hierarchy.seeds import Seeds


def with_dropped(given: StepInput, ids: float, tokens: float, generator: torch.Generator, loans: int = 0) -> StepInput:
    """`given` with each id residual dropped with chance `ids` and each token with chance `tokens`.

    `loans`: rows from a residual to the loan that takes its place; 0: nothing does.

    `generator` lives on the seeds' device and belongs to the step, so that a resumed run drops the same.
    """
    users = dropped(given.users, ids, tokens, generator, loans)
    products = candidates_dropped(given.products, ids, tokens, generator, loans)
    advertisers = given.advertisers
    if advertisers is not None:
        advertisers = candidates_dropped(advertisers, ids, tokens, generator, loans)
    return dataclasses.replace(given, users=users, products=products, advertisers=advertisers)


def candidates_dropped(
    given: Candidates, ids: float, tokens: float, generator: torch.Generator, loans: int
) -> Candidates:
    """The same for candidates."""
    return dataclasses.replace(given, seeds=dropped(given.seeds, ids, tokens, generator, loans))


def dropped(seeds: Seeds, ids: float, tokens: float, generator: torch.Generator, loans: int = 0) -> Seeds:
    """The same for seeds. A dropped token is attended to by nobody and is no part of a user's history."""
    seeds = seeds.with_ids_dropped(ids, generator, loans)
    if not tokens:
        return seeds
    kept = torch.rand(seeds.mask.shape, generator=generator, device=generator.device) >= tokens
    return dataclasses.replace(seeds, mask=seeds.mask & kept, history=seeds.history & kept)
