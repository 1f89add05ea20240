"""What a step's input does not get to see: id residuals and tokens dropped at random."""

from __future__ import annotations

import dataclasses

import torch

from hierarchy.batches import StepInput
from hierarchy.candidates import Candidates
from hierarchy.seeds import Seeds


def with_dropped(given: StepInput, ids: float, tokens: float, generator: torch.Generator) -> StepInput:
    """`given` with each id residual dropped with chance `ids` and each token with chance `tokens`.

    `generator` lives on the seeds' device and belongs to the step, so that a resumed run drops the same.
    """
    users = dropped(given.users, ids, tokens, generator)
    products = candidates_dropped(given.products, ids, tokens, generator)
    advertisers = given.advertisers
    if advertisers is not None:
        advertisers = candidates_dropped(advertisers, ids, tokens, generator)
    return dataclasses.replace(given, users=users, products=products, advertisers=advertisers)


def candidates_dropped(given: Candidates, ids: float, tokens: float, generator: torch.Generator) -> Candidates:
    """The same for candidates."""
    return dataclasses.replace(given, seeds=dropped(given.seeds, ids, tokens, generator))


def dropped(seeds: Seeds, ids: float, tokens: float, generator: torch.Generator) -> Seeds:
    """The same for seeds. A dropped token is attended to by nobody and is no part of a user's history."""
    seeds = seeds.with_ids_dropped(ids, generator)
    if not tokens:
        return seeds
    kept = torch.rand(seeds.mask.shape, generator=generator, device=generator.device) >= tokens
    return dataclasses.replace(seeds, mask=seeds.mask & kept, history=seeds.history & kept)
