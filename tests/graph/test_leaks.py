"""Canaries planted in the future of the seed times: nothing read as of those times may know of them."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from torch import Tensor

from data.artifacts import Store
from data.context import RunContext
from data.generator import write
from data.generator.config import Config
from graph import build
from graph.asof import RELATIONS_OF, NodeStatistics
from graph.sampler import Budget, TemporalSampler, TokenSet
from graph.store import CO_ENGAGED, DERIVED, NODE_TYPES, RELATIONS, SHARES_USERS, GraphStore, Relation
from kernels.visible_count.api import visible_count
from tests.fixtures.artifacts import make_ref

CONFIG = Config(
    users=600, products=300, advertisers=40, campaigns=20, events=120_000, days=30, canaries=6000, canary_day=20
)
LIMIT = CONFIG.midnight(CONFIG.canary_day)
"""No canary is readable before this time [us]."""

SAMPLES = 1_000_000
BUDGET = Budget(recent=12, uniform=12, two_hop=12, links=6, related=6, ppr=6)


@pytest.fixture(scope="module")
def stores(tmp_path_factory) -> tuple[GraphStore, GraphStore]:
    """The graph of a log with canaries, and of the same log without."""
    store = Store(tmp_path_factory.mktemp("leaks"))

    def made(config: Config, key: str) -> GraphStore:
        events = make_ref(store, "events", lambda out: write.artifact(config, out), key)
        options = build.Config()
        inputs = {"events": events}
        return GraphStore.open(
            make_ref(store, "graph", lambda out: build.run(options, inputs, out, RunContext(threads=1)), key)
        )

    return made(CONFIG, "planted"), made(CONFIG.model_copy(update={"canaries": 0}), "clean")


def canaries(store: GraphStore, kind: str) -> np.ndarray:
    """Whether each node of a type is a canary, bool (n,)."""
    return pc.starts_with(store.entity_ids(kind), "canary").to_numpy(zero_copy_only=False)


def draws(store: GraphStore, limit: int, seed: int):
    """Token sets of seeds of every type at times before `limit`, in turn."""
    sampler, rng = TemporalSampler(store, BUDGET), np.random.default_rng(seed)
    while True:
        for kind in NODE_TYPES:
            known = np.searchsorted(store.known_at(kind), limit)
            nodes = rng.integers(0, known, 3000)
            # Half of the seeds stand just before the canaries, where a late cut would show first.
            times = np.where(rng.random(3000) < 0.5, limit - 1, rng.integers(CONFIG.first_micros, limit, 3000))
            yield sampler.sample(kind, nodes, times, seed)


def leaked(store: GraphStore, samples: int) -> tuple[int, int]:
    """Of at least `samples` token samples, how many name a canary; and how many were looked at."""
    flags = [canaries(store, kind) for kind in NODE_TYPES]
    found = seen = 0
    for tokens in draws(store, LIMIT, seed=1):
        mask, node, kind = (np.asarray(values) for values in (tokens.mask, tokens.node, tokens.node_type))
        seen += int(mask.sum())
        found += sum(int(flag[node[mask & (kind == code)]].sum()) for code, flag in enumerate(flags))
        if seen >= samples:
            return found, seen
    raise AssertionError("draws never end")


def everything(rowptr: Tensor, visible_from: Tensor, rows: Tensor, times: Tensor) -> Tensor:
    """`visible_count` with the time mask removed."""
    last = len(rowptr) - 1
    return rowptr[(rows + 1).clamp(0, last)] - rowptr[rows.clamp(0, last)]


def test_no_token_is_a_canary_in_a_million_samples(stores):
    found, seen = leaked(stores[0], SAMPLES)
    assert found == 0
    assert seen >= SAMPLES


def test_without_the_mask_the_same_check_fails(stores, monkeypatch):
    monkeypatch.setattr("graph.rows.visible_count", everything)
    found, seen = leaked(stores[0], SAMPLES)
    assert found > seen / 100


def test_a_mask_that_is_microseconds_late_fails_too(stores, monkeypatch):
    monkeypatch.setattr("graph.rows.visible_count", lambda *given: visible_count(*given[:3], given[3] + 2))
    assert leaked(stores[0], SAMPLES)[0] > 0


def test_the_future_changes_no_token_at_all(stores):
    """Stronger than looking for names: ages, degrees, weights and choices are those of the log without canaries."""
    planted, clean = (draws(store, LIMIT, seed=2) for store in stores)
    for _ in NODE_TYPES:
        one, other = next(planted), next(clean)
        for field in fields(TokenSet):
            np.testing.assert_array_equal(np.asarray(getattr(one, field.name)), np.asarray(getattr(other, field.name)))


def test_no_degree_counts_a_canary(stores):
    for kind in NODE_TYPES:
        known = np.searchsorted(stores[1].known_at(kind), LIMIT)
        times = np.full(known, LIMIT - 1)
        one, other = (np.asarray(TemporalSampler(store).degree(kind, np.arange(known), times)) for store in stores)
        np.testing.assert_array_equal(one, other)
    later = np.full(known := stores[0].num_nodes["product"], LIMIT + 10**13)
    assert TemporalSampler(stores[0]).degree("product", np.arange(known), later)[canaries(stores[0], "product")].min()


@pytest.mark.parametrize("kind", list(RELATIONS_OF))
def test_no_statistic_as_of_a_time_knows_of_a_canary(stores, kind):
    rng = np.random.default_rng(3)
    nodes = rng.integers(0, np.searchsorted(stores[1].known_at(kind), LIMIT), 20_000)
    times = np.where(rng.random(20_000) < 0.5, LIMIT - 1, rng.integers(CONFIG.first_micros, LIMIT, 20_000))
    planted, clean = (NodeStatistics(store).at(kind, nodes, times) for store in stores)
    for name, figures in clean.items():
        np.testing.assert_array_equal(planted[name], figures, err_msg=name)
    assert clean["degree"].sum() > 1000


def test_what_is_visible_of_every_relation_is_that_of_the_log_without_canaries(stores):
    """Recency and popularity are read from these edges, co-engagement is among them."""
    compared = 0
    for relation in (*RELATIONS, *DERIVED):
        one, other = (visible_edges(store, relation) for store in stores)
        assert one.equals(other), relation
        compared += len(one)
    assert compared > 200_000


def visible_edges(store: GraphStore, relation: Relation) -> pa.Table:
    """Edges of a relation visible before the limit, by external id and with all that is kept of them."""
    csr = store.csr(relation)
    src = np.repeat(np.arange(len(csr.rowptr) - 1), np.diff(csr.rowptr))
    seen = csr.visible_from < LIMIT
    columns = {
        "src": store.entity_ids(relation.src).take(pa.array(src[seen])),
        "dst": store.entity_ids(relation.dst).take(pa.array(csr.col[seen])),
        "time": pa.array(csr.times[seen]),
        "visible_from": pa.array(csr.visible_from[seen]),
        "weight": pa.array(csr.weights[seen]),
    }
    return pa.table(columns)


@pytest.mark.parametrize("relation", [CO_ENGAGED, SHARES_USERS])
def test_derived_edges_exist_before_the_canaries(stores, relation):
    assert len(visible_edges(stores[0], relation)) > 100
