"""What closed-form views say of products and advertisers, as the place where their id residuals start and as teachers.

Spectral vectors say who goes with whom, directional co-occurrence what follows what; both take seconds and are strong
(see their modules). An id residual that starts there knows from the first step what training would have to find out,
and moves on. Each view has two roles, a thing that somebody had and a thing that may be next, so residuals have two as
well. An entity without engagement has no row, hence no residual: cold stays content.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from data.context import derive_seed
from data.errors import UsageError
from data.schema import MICROS_PER_DAY
from hierarchy.content import ContentTable
from hierarchy.directional import DirectionalSettings, directional_vectors, transitions
from hierarchy.edges import TrainingEdges
from hierarchy.kmeans import group_sums
from hierarchy.losses.view_distillation import TeacherView
from hierarchy.purchases import History
from hierarchy.spectral import SpectralSettings, spectral_vectors

Vectors = NDArray[np.float32]


class Structure(BaseModel):
    """Closed-form views at the start of id residuals; without effect when both have 0 dimensions."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    spectral: int = Field(default=0, ge=0, description="Dimensions of spectral vectors.")
    directional: int = Field(default=0, ge=0, description="Dimensions of directional co-occurrence.")
    teacher_dim: int = Field(default=1024, ge=1, description="Dimensions of a view as teacher, if it is one.")
    gain: float = Field(default=1.0, gt=0, description="Root mean square length of a view's vectors; content has 1.")
    user_power: float = Field(default=0.25, description="Spectral: exponent on a user's degree.")
    item_power: float = Field(default=0.35, description="Spectral: exponent on a product's degree.")
    source_power: float = Field(default=0.25, description="Spectral: exponent on the degree of what a user had.")
    target_power: float = Field(default=0.0, description="Spectral, as teacher: exponent on that of what is next.")
    teacher_spectrum: float = Field(default=1.0, description="Spectral, as teacher: exponent on the singular values.")
    spectrum_power: float = Field(default=0.0, description="Spectral: exponent on the singular values.")
    window: int = Field(default=20, ge=1, description="Directional: occasions apart, at most.")
    decay: float = Field(default=0.8, gt=0, le=1, description="Directional: factor for each occasion further apart.")
    rho: float = Field(default=0.2, ge=0, description="Directional: share of the opposite direction.")
    row_power: float = Field(default=0.35, ge=0, description="Directional: exponent on the sum of a row.")
    user_share: float = Field(default=0.0, ge=0, description="Directional: a user counts 1 / events to this power.")


class IdTables(NamedTuple):
    """Where id residuals start, float32 (rows + 1, d) in each role; row 0 is that of entities without one."""

    source: Vectors
    target: Vectors


def history_of(edges: TrainingEdges, end: int, num_users: int, num_products: int) -> History:
    """The training edges as a history at `end` [us]; each counts once, whatever its place in the funnel."""
    age = (end - edges.ts) / MICROS_PER_DAY
    return History(edges.user, edges.product, age, num_users, num_products)


def starting_views(
    config: Structure, history: History, seed: int, device: torch.device | str = "cpu"
) -> list[TeacherView]:
    """The views that residuals start from, each with the dimensions asked for (fewer on small data)."""
    dims = {"spectral": config.spectral, "directional": config.directional}
    return list(_views(config, history, seed, device, dims))


def teacher_views(
    config: Structure, history: History, names: Sequence[str], seed: int, device: torch.device | str = "cpu"
) -> tuple[TeacherView, ...]:
    """The views named in `names` with `teacher_dim` dimensions, for `hierarchy.losses.view_distillation`."""
    return tuple(_views(config, history, seed, device, dict.fromkeys(names, config.teacher_dim), teacher=True))


def id_tables(
    config: Structure, views: Sequence[TeacherView], edges: TrainingEdges, table: ContentTable, rows: int, dim: int
) -> IdTables:
    """Views side by side in `dim` dimensions, after those of the content where there is room, else from the first on.

    An advertiser starts at the mean of what was engaged with of it. `rows`: of the id tables, without the empty one.
    Raises UsageError when the views need more than `dim` dimensions. Memory: two tables.
    """
    width = sum(view.product_source.shape[1] for view in views)
    if width > dim:
        raise UsageError(f"expected views of at most dim = {dim} dimensions together, got {width}: lower structure.*")
    at = table.content_dim if table.content_dim + width <= dim else 0
    tables = IdTables(*(np.zeros((rows + 1, dim), np.float32) for _ in range(2)))
    for view in views:
        own = slice(at, at + view.product_source.shape[1])
        for placed, vectors in zip(tables, (view.product_source, view.product_target), strict=True):
            for kind, found in (("product", vectors), ("advertiser", _of_owners(vectors, edges, table))):
                row = _rows(table, kind, len(found))
                placed[row[row > 0], own] = _scaled(found, config.gain)[row > 0]
        at = own.stop
    return tables


def _views(
    config: Structure,
    history: History,
    seed: int,
    device: torch.device | str,
    dims: dict[str, int],
    teacher: bool = False,
) -> Iterator[TeacherView]:
    if dims.get("spectral"):
        settings = SpectralSettings(
            dim=dims["spectral"],
            user_power=config.user_power,
            item_power=config.item_power,
            source_power=config.source_power,
            target_power=config.target_power,
            spectrum_power=config.teacher_spectrum if teacher else config.spectrum_power,
        )
        spectral = spectral_vectors(history, settings, derive_seed(seed, "spectral"), device)
        yield TeacherView("spectral", spectral.source, spectral.target if teacher else spectral.direction)
    if dims.get("directional"):
        counted = DirectionalSettings(config.window, config.decay, config.rho, config.row_power, 0.0, config.user_share)
        follows = transitions(history, counted)
        drawn = derive_seed(seed, "directional")
        directional = directional_vectors(follows, dims["directional"], drawn, device=device)
        yield TeacherView("directional", directional.source, directional.target)


def _of_owners(vectors: Vectors, edges: TrainingEdges, table: ContentTable) -> Vectors:
    """Mean of the vectors of the products that each advertiser's edges lead to (advertisers, D)."""
    place = table.place("advertiser")
    count = place.stop - place.start
    owned = edges.advertiser >= 0
    pairs, times = np.unique(np.stack([edges.advertiser[owned], edges.product[owned]]), axis=1, return_counts=True)
    sums = group_sums(vectors[pairs[1]] * times[:, None].astype(np.float32), pairs[0], count)
    total = np.bincount(edges.advertiser[owned], minlength=count)[:count]
    return np.asarray(sums / np.maximum(total, 1)[:, None], np.float32)


def _scaled(vectors: Vectors, length: float) -> Vectors:
    """`vectors` times what makes the root mean square length of those that are not zero `length`."""
    squares = (vectors.astype(np.float64) ** 2).sum(axis=1)
    mean = squares[squares > 0].mean() if (squares > 0).any() else 1.0
    return vectors * np.float32(length / np.sqrt(mean))


def _rows(table: ContentTable, kind: str, count: int) -> NDArray[np.int64]:
    first = table.place(kind).start
    return np.asarray(table.id_rows[first : first + count].cpu().numpy())
