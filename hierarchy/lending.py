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
_LENDERS = 20_000  # of a type, at most


class Lending(BaseModel):
    """Who lends to entities without an id residual, and how much."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    neighbours: int = Field(default=20, ge=0, description="Nearest entities by content that lend; 0: nobody does.")
    power: float = Field(default=4.0, ge=0, description="A neighbour's weight is its cosine to this power.")
    gain: float = Field(default=1.0, gt=0, description="Factor on loans of what is served, none on those in training.")
    every: int = Field(default=50, ge=1, description="Steps of training between two reckonings of what is lent.")


@torch.no_grad()
def lent(config: Lending, encoder: InterestEncoder, table: ContentTable) -> tuple[InterestEncoder, ContentTable]:
    """The encoder and the table with a residual for each product and advertiser that has content but none of its own.

    Lenders are those with residuals, so a loan does not depend on who else borrows; of more than 20,000 of a type
    every n-th lends. Time: borrowers x lenders x content dim; memory: 1,024 borrowers x lenders, and the residuals
    twice. What is given stays as it is.
    """
    if not config.neighbours:
        return encoder, table
    id_rows, loans = table.id_rows.clone(), []
    first = len(encoder.source_ids)
    for kind in WITH_ID:
        content, lenders, borrowers = _sides(table, kind)
        own = table.place(kind)
        if not len(lenders) or not len(borrowers):
            continue
        rows = table.id_rows[own][lenders]
        for start in range(0, len(borrowers), _ROWS):
            # Always as many rows: with equal shapes a loan's bits do not depend on who else borrows.
            some = borrowers[torch.arange(start, start + _ROWS, device=rows.device).clamp(max=len(borrowers) - 1)]
            place, weight = _nearest(config, content[some], content[lenders])
            kept = min(_ROWS, len(borrowers) - start)
            weight = weight[..., None] * config.gain
            loans.append([(ids[rows[place]] * weight).sum(dim=1)[:kept] for ids in _roles(encoder)])
        id_rows[own.start + borrowers] = torch.arange(first, first + len(borrowers), device=id_rows.device)
        first += len(borrowers)
    if not loans:
        return encoder, table
    grown = copy.copy(encoder)
    grown._parameters = dict(encoder._parameters)
    for name, ids, more in zip(("source_ids", "target_ids"), _roles(encoder), zip(*loans, strict=True), strict=True):
        grown._parameters[name] = nn.Parameter(torch.cat([ids, *more]), requires_grad=False)
    return grown, dataclasses.replace(table, id_rows=id_rows)


def _sides(table: ContentTable, kind: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Unit content (n, D) of a type, and who of it lends and who borrows, int64."""
    own = table.place(kind)
    content = normalize(table.content[own, : -len(NODE_TYPES)], dim=1)
    has, told = table.id_rows[own] > 0, content.any(dim=1)
    lenders, borrowers = torch.nonzero(has & told)[:, 0], torch.nonzero(~has & told)[:, 0]
    return content, lenders[:: -(-len(lenders) // _LENDERS) or 1], borrowers


def _nearest(
    config: Lending, content: torch.Tensor, lenders: torch.Tensor, itself: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Places int64 (b, k) of the nearest lenders, and weights (b, k) that sum to 1, or are 0 where nothing is near.

    `itself` bool (b, lenders): who is the borrower.
    """
    cosine = content @ lenders.t()
    if itself is not None:
        cosine = cosine.masked_fill(itself, -1.0)
    cosine, place = cosine.topk(min(config.neighbours, len(lenders)), dim=1)
    weight = cosine.clamp_min(0.0) ** config.power * (cosine > 0)
    return place, weight / weight.sum(dim=1, keepdim=True).clamp_min(1e-12)


class Loans(nn.Module):
    """What the neighbours of each entity with a residual would lend it, for training: a dropped residual is replaced by
    its loan, as if the entity had never been seen. Without gradient, and as of the last `refresh`.

    source, target (R, d): the loan of row r of the id tables is in row r - 1, so beside tables of R + 1 rows it is row
    R + r. Memory: as two id tables, and k places and weights a row.
    """

    source: torch.Tensor
    target: torch.Tensor

    def __init__(self, config: Lending, table: ContentTable, rows: int, dim: int) -> None:
        """`rows`: R. Time as in `lent`, with every entity a borrower; nobody lends to itself."""
        super().__init__()
        device = table.content.device
        self._rows = torch.zeros((rows, max(1, config.neighbours)), dtype=torch.int64, device=device)
        self._weight = torch.zeros(self._rows.shape, device=device)
        for name in ("source", "target"):
            self.register_buffer(name, torch.zeros((rows, dim), device=device))
        for kind in WITH_ID:
            self._plan(config, table, kind)

    def _plan(self, config: Lending, table: ContentTable, kind: str) -> None:
        content, lenders, _ = _sides(table, kind)
        rows = table.id_rows[table.place(kind)]
        for some in torch.nonzero(rows > 0)[:, 0].split(_ROWS) if len(lenders) > 1 else ():  # type: ignore[no-untyped-call]
            place, weight = _nearest(config, content[some], content[lenders], itself=lenders[None, :] == some[:, None])
            own = rows[some] - 1
            self._rows[own, : place.shape[1]], self._weight[own, : place.shape[1]] = rows[lenders][place], weight

    @torch.no_grad()
    def refresh(self, encoder: InterestEncoder) -> None:
        """Reckon with the residuals as they are now."""
        for loans, ids in zip((self.source, self.target), _roles(encoder), strict=True):
            for start in range(0, len(loans), _ROWS):
                part = slice(start, start + _ROWS)
                loans[part] = (ids[self._rows[part]] * self._weight[part][..., None]).sum(dim=1)


def _roles(encoder: InterestEncoder) -> tuple[torch.Tensor, torch.Tensor]:
    return encoder.source_ids.detach(), encoder.target_ids.detach()
