"""Everything that is measured of one method's artifacts: (what, metric, value) for each level and for the whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from data.artifacts import ArtifactRef, Store
from data.schema import MICROS_PER_DAY
from graph.store import Csr, Relation
from hierarchy.baselines.division import membership_space
from hierarchy.baselines.emission import emit, mapped, pooled
from hierarchy.cooccurrence import co_engagement
from hierarchy.drift import density, drift
from hierarchy.level_quality import duplicate_share, level_quality
from hierarchy.levels import published
from hierarchy.supergraph import Config
from hierarchy.token_retrieval import read_profiles
from tests.benchmarks.hierarchy_levels.ground import Ground
from tests.benchmarks.hierarchy_levels.methods import Fitted, Method

Figure = tuple[str, str, float]

METRICS = {
    "nmi_category": "NMI with categories",
    "homogeneity": "homogeneity",
    "completeness": "completeness",
    "active_share": "active",
    "perplexity_share": "perplexity / K",
    "duplicates": "duplicates",
    "nesting": "nesting",
}
MONTH = 28 * MICROS_PER_DAY
_SHARP = 0.05  # temperature at which an own primitive takes nearly all of a bag in the space of memberships


def emitted(
    method: Method, fitted: Fitted, ground: Ground, refs: Mapping[str, ArtifactRef], store: Store, key: str
) -> dict[str, ArtifactRef]:
    """The artifacts of a fitted baseline, its tokens made by the ordinary stage."""
    tops = [level.top for level in ground.levels]
    dates = sorted(set(ground.dates))
    inputs = {stage: refs[stage] for stage in ("events", "graph", "features")}
    if fitted.division.nearest:
        learned = method.space == "learner"
        entities = mapped(ground.learned_entities(refs) if learned else ground.content_entities, fitted.image)
        levels, tau = fitted.division.vectors, ()
    else:
        assigned = fitted.division.assign(fitted.image(ground.content))
        members, levels = membership_space(assigned, ground.sizes)
        entities = pooled(ground.store, members, ground.event_type, dates)
        tau = (_SHARP,) * len(levels)
    config = Config(t0=ground.config.cuts.t0, tau=tau)
    return emit(store, key, inputs, entities, list(zip(levels, tops, strict=True)), config)


def quality(ground: Ground, refs: Mapping[str, ArtifactRef], fitted: Fitted | None) -> Iterator[Figure]:
    """Figures of each level on the half that is reported. Duplicates are counted by what primitives stand for, which
    a `fitted` baseline knows where the published vectors are axes."""
    rows = level_quality(refs["supergraph"], refs["tokens"], ground.refs["features"], ground.asked)
    for place, row in enumerate(rows):
        if fitted is not None:
            row["duplicates"] = duplicate_share(fitted.division.vectors[place])
        what = f"level {row['level']}, K {row['k']}, categories at depth {row['category_depth']}"
        for name, metric in METRICS.items():
            if row[name] is not None:
                yield what, metric, row[name]


def primitive_graph(ground: Ground, refs: Mapping[str, ArtifactRef]) -> Iterator[Figure]:
    """Density and drift of the graph between primitives, by level."""
    events, window = _events(ground), _window(ground)
    levels = published(refs["supergraph"])
    sizes = [len(level.ids) for level in levels]
    at_t0 = _strongest(ground, refs, ground.dates[0])
    counted = co_engagement(events, at_t0, sizes, ground.cuts[0], window)
    links = refs["supergraph"].table("primitive_edges.parquet", ["level", "relation"])
    names, relation = np.asarray(links["level"]), f"co_{ground.event_type}"
    published_links = (names[:, None] == [level.level for level in levels]) & (
        np.asarray(links["relation"].to_pylist())[:, None] == relation
    )
    newest = _strongest(ground, refs, np.iinfo(np.int64).max)
    for place, (level, together) in enumerate(zip(levels, counted, strict=True)):
        what = f"primitive graph, level {level.level}, K {sizes[place]}"
        yield what, "density", density(together)
        yield what, "density of published links", published_links[:, place].sum() / (sizes[place] * (sizes[place] - 1))
        yield from _drift(ground, events, newest[place], sizes[place], what)


def product_graph(ground: Ground) -> Iterator[Figure]:
    """The same of the graph between products, which no method changes. Its density is among products with events."""
    events, window, count = _events(ground), _window(ground), ground.store.num_nodes["product"]
    itself = np.arange(count, dtype=np.int32)
    (together,) = co_engagement(events, [itself], [count], ground.cuts[0], window)
    yield "product graph", "density", density(together, np.flatnonzero(together.counts.diagonal() > 0))
    yield from _drift(ground, events, itself, count, "product graph")


def _drift(ground: Ground, events: Csr, primitive: NDArray[np.int32], k: int, what: str) -> Iterator[Figure]:
    if not ground.clock:
        return  # an order has no months
    first, last = int(events.visible_from.min()), int(events.visible_from.max())
    months = list(range(last - (last - first) // MONTH * MONTH, last + 1, MONTH))
    found = drift(events, primitive, k, months, _window(ground))
    yield what, "drift, JS a month", float(found.divergence.mean())
    yield what, "drift, floor by chance", float(found.floor.mean())
    yield what, "drift beyond chance", found.beyond_chance()


def _events(ground: Ground) -> Csr:
    return ground.store.csr(Relation("user", ground.event_type, "product"))


def _window(ground: Ground) -> int:
    return int(ground.config.supergraph.window_days * MICROS_PER_DAY)


def _strongest(ground: Ground, refs: Mapping[str, ArtifactRef], time: int) -> list[NDArray[np.int32]]:
    """By level the strongest primitive of each product (products,) at `time` [us], -1 where it has no tokens."""
    levels = published(refs["supergraph"])
    ids, weights = read_profiles(refs["tokens"], "product", levels, time)
    place, first, found = ground.store.encode("product", ids), 0, []
    for level in levels:
        own = np.full(ground.store.num_nodes["product"], -1, np.int32)
        own[place] = weights[:, first : first + len(level.ids)].argmax(axis=1)
        found.append(own)
        first += len(level.ids)
    return found
