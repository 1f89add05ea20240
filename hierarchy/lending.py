"""Id residuals lent to entities that have none, by those whose content is most like theirs.

What nobody engaged with has content alone, and among things of which more is known that is not enough to be found: the
residuals of its neighbours in content say who such things are for. A loan is the weighted mean of the residuals of the
k nearest (a k-nearest-neighbour regression of what engagement taught on content; that a cold item takes the place of
its neighbours is as old as Schein et al., 2002, "Methods and metrics for cold-start recommendations").
"""

from __future__ import annotations

import copy
import dataclasses

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import nn
from torch.nn.functional import normalize

from graph.store import NODE_TYPES
from hierarchy.content import WITH_ID, ContentTable
from hierarchy.transformer import InterestEncoder

_ROWS = 1024  # borrowers that look for neighbours at once
_LENDERS = 100_000  # of a type, at most


class Lending(BaseModel):
    """Who lends to entities without an id residual, and how much."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    neighbours: int = Field(default=20, ge=0, description="Nearest entities by content that lend; 0: nobody does.")
    power: float = Field(default=4.0, ge=0, description="A neighbour's weight is its cosine to this power.")


@torch.no_grad()
def lent(config: Lending, encoder: InterestEncoder, table: ContentTable) -> tuple[InterestEncoder, ContentTable]:
    """The encoder and the table with a residual for each product and advertiser that has content but none of its own.

    Lenders are those with residuals, so a loan does not depend on who else borrows; of more than 100,000 of a type
    every n-th lends. Time: borrowers x lenders x content dim; memory: 1,024 borrowers x lenders, and the residuals
    twice. What is given stays as it is.
    """
    if not config.neighbours:
        return encoder, table
    id_rows, loans = table.id_rows.clone(), []
    first = len(encoder.source_ids)
    for kind in WITH_ID:
        own = _of(table, kind)
        content = normalize(table.content[own, : -len(NODE_TYPES)], dim=1)
        has, told = table.id_rows[own] > 0, content.abs().amax(dim=1) > 0
        lenders = torch.nonzero(has & told)[:, 0]
        lenders = lenders[:: -(-len(lenders) // _LENDERS) or 1]
        borrowers = torch.nonzero(~has & told)[:, 0]
        if not len(lenders) or not len(borrowers):
            continue
        rows = table.id_rows[own][lenders]
        for start in range(0, len(borrowers), _ROWS):
            # Always as many rows: with equal shapes a loan's bits do not depend on who else borrows.
            some = borrowers[torch.arange(start, start + _ROWS, device=rows.device).clamp(max=len(borrowers) - 1)]
            place, weight = _nearest(config, content[some], content[lenders])
            kept = min(_ROWS, len(borrowers) - start)
            loans.append([(ids[rows[place]] * weight[..., None]).sum(dim=1)[:kept] for ids in _roles(encoder)])
        id_rows[own.start + borrowers] = torch.arange(first, first + len(borrowers), device=id_rows.device)
        first += len(borrowers)
    if not loans:
        return encoder, table
    grown = copy.copy(encoder)
    grown._parameters = dict(encoder._parameters)
    for name, ids, more in zip(("source_ids", "target_ids"), _roles(encoder), zip(*loans, strict=True), strict=True):
        grown._parameters[name] = nn.Parameter(torch.cat([ids, *more]), requires_grad=False)
    return grown, dataclasses.replace(table, id_rows=id_rows)


def _nearest(config: Lending, content: torch.Tensor, lenders: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Places int64 (b, k) of the nearest lenders, and weights (b, k) that sum to 1, or are 0 where nothing is near."""
    cosine, place = (content @ lenders.t()).topk(min(config.neighbours, len(lenders)), dim=1)
    weight = cosine.clamp_min(0.0) ** config.power * (cosine > 0)
    return place, weight / weight.sum(dim=1, keepdim=True).clamp_min(1e-12)


def _roles(encoder: InterestEncoder) -> tuple[torch.Tensor, torch.Tensor]:
    return encoder.source_ids.detach(), encoder.target_ids.detach()


def _of(table: ContentTable, kind: str) -> slice:
    code = NODE_TYPES.index(kind)
    last = table.offsets[code + 1] if code + 1 < len(NODE_TYPES) else len(table.id_rows)
    return slice(int(table.offsets[code]), int(last))
