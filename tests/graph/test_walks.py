"""Sampling policies on graphs made of arrays: hubs, empty rows, several segments."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data.schema import EVENT_TYPES
from graph.sampler import Budget, TemporalSampler, TokenSet
from graph.store import CO_ENGAGED, ENGAGED, NODE_TYPES, RELATIONS, SHARES_USERS, Csr
from tests.benchmarks.sampler import MadeGraph, made_graph, rows

PRODUCT = NODE_TYPES.index("product")
EVERYTHING = Budget(recent=4, uniform=4, two_hop=4, links=3, related=4, ppr=4)
FIELDS = [field.name for field in dataclasses.fields(TokenSet)]


def csr(edges, sources):
    """Edges (source, target, visible_from, weight) as a CSR."""
    edges = sorted(edges, key=lambda edge: edge[2])
    source, target, seen, weight = (np.array([edge[i] for edge in edges]) for i in range(4))
    made = rows(source.astype(np.int32), target.astype(np.int32), sources, seen.astype(np.int64))
    order = np.argsort(source, kind="stable")
    return dataclasses.replace(made, weight=weight[order].astype(np.float32))


def graph_of(related=(), shares=(), engaged=(), users=20, products=20, cuts=()):
    """A graph of (user, product, visible_from) events and of related lists, cut into segments at the times `cuts`."""
    graph = MadeGraph({"user": users, "product": products, "advertiser": 5, "campaign": 0, "category": 0})
    bounds = [-(10**9), *cuts, 10**9]
    for relation, edges, sources in (
        (CO_ENGAGED, related, products),
        (SHARES_USERS, shares, 5),
        (ENGAGED["product"], [(u, p, t, 1) for u, p, t in engaged], users),
        (ENGAGED["product"].reverse, [(p, u, t, 1) for u, p, t in engaged], products),
    ):
        parts = [[e for e in edges if low <= e[2] < high] for low, high in itertools.pairwise(bounds)]
        made = [csr(part, sources) for part in parts if part]
        if "engaged" in relation.name and relation != CO_ENGAGED:
            made = [dataclasses.replace(c, kind=np.full(c.num_edges, 4, np.int8)) for c in made]
        graph.edges[relation] = tuple(made)
    return graph


def real(tokens, row=0):
    return tokens.node[row][tokens.mask[row]].tolist()


def same(one, other, rows=slice(None)):
    for name in FIELDS:
        assert torch.equal(getattr(one, name)[rows], getattr(other, name)), name


def test_related_are_the_heaviest_of_the_newest_visible_list():
    old = [(0, target, 100, 9) for target in (1, 2, 3)]
    new = [(0, 4, 200, 1), (0, 5, 200, 7), (0, 6, 200, 3), (0, 7, 200, 7)]
    sampler = TemporalSampler(graph_of(related=old + new + [(0, 8, 300, 99)]), Budget(0, 0, 0, 0, related=3))
    tokens = sampler.sample("product", np.zeros(4, int), np.array([99, 100, 299, 300]), 0)
    assert [real(tokens, row) for row in range(4)] == [[], [1, 2, 3], [5, 7, 6], [8]]
    assert tokens.age[2].tolist() == [100] * 3
    assert tokens.weight[2].tolist() == [0.25] * 3
    assert set(tokens.relation[2].tolist()) == {RELATIONS.index(CO_ENGAGED)}
    assert set(tokens.hop[2].tolist()) == {1}


def test_related_of_advertisers_users_and_nodes_without_a_list():
    sampler = TemporalSampler(graph_of(shares=[(1, 2, 50, 1)]), Budget(0, 0, 0, 0, related=2))
    tokens = sampler.sample("advertiser", np.array([1, 0, -1, 4]), np.full(4, 60), 0)
    assert [real(tokens, row) for row in range(4)] == [[2], [], [], []]
    assert not sampler.sample("user", np.arange(3), np.full(3, 60), 0).mask.any()
    assert not sampler.sample("product", np.arange(3), np.full(3, 60), 0).mask.any()


def test_related_leave_out_an_excluded_node():
    graph = graph_of(related=[(0, target, 100, target) for target in (1, 2, 3)])
    sampler = TemporalSampler(graph, Budget(0, 0, 0, 0, related=3))
    tokens = sampler.sample("product", np.zeros(1, int), np.array([150]), 0, np.array([2]), "product")
    assert real(tokens) == [3, 1]


def test_walks_with_restart_find_the_products_of_like_users():
    # Users 0 and 1 share products 0 to 3; user 9 is elsewhere.
    engaged = [(user, product, 10 + product) for user in (0, 1) for product in range(4)]
    engaged += [(1, 4, 20), (9, 8, 20), (9, 9, 21)]
    sampler = TemporalSampler(graph_of(engaged=engaged), Budget(0, 0, 0, 0, ppr=8))
    tokens = sampler.sample("user", np.array([0, 9, 5]), np.full(3, 50), 0)
    assert set(real(tokens, 0)) <= {0, 1, 2, 3, 4}
    assert {0, 1, 2, 3} <= set(real(tokens, 0))
    assert set(real(tokens, 1)) == {8, 9}
    assert real(tokens, 2) == []
    shares = tokens.weight[0][tokens.mask[0]]
    assert shares.sum().item() == pytest.approx(1)
    assert (shares.diff() <= 0).all()
    assert len(set(real(tokens, 0))) == len(real(tokens, 0))


def test_walks_with_restart_approach_personalised_pagerank():
    rng = np.random.default_rng(0)
    engaged = [(int(u), int(p), 1) for u, p in zip(rng.integers(0, 20, 90), rng.integers(0, 20, 90), strict=True)]
    step = np.zeros((20, 20))  # user -> product
    for user, product, _ in engaged:
        step[user, product] += 1
    onward = (step / np.maximum(step.sum(0), 1)).T @ (step / np.maximum(step.sum(1, keepdims=True), 1))
    first = step[0] / step[0].sum()
    expected, here = np.zeros(20), first
    for _ in range(3):
        expected += here / 3
        here = 0.5 * first + 0.5 * here @ onward
    sampler = TemporalSampler(graph_of(engaged=engaged), Budget(0, 0, 0, 0, ppr=20))
    found = np.zeros(20)
    for seed in range(400):
        tokens = sampler.sample("user", np.zeros(1, int), np.array([5]), seed)
        np.add.at(found, real(tokens), tokens.weight[tokens.mask].numpy() / 400)
    # A walk never stands on its own seed and then begins again, which is why the two differ a little.
    assert abs(found - expected).max() < 0.05
    assert np.corrcoef(found, expected)[0, 1] > 0.97


@settings(max_examples=25, deadline=None)
@given(
    engaged=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 40)), max_size=40),
    related=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.sampled_from([10, 20, 30])), max_size=20),
    time=st.integers(-1, 45),
    cuts=st.lists(st.integers(1, 39), max_size=3, unique=True).map(sorted),
    kind=st.sampled_from(["user", "product"]),
)
def test_later_edges_and_the_cut_into_segments_change_no_token(engaged, related, time, cuts, kind):
    lists = [(*edge, 1 + edge[1]) for edge in set(related)]
    full = graph_of(related=lists, engaged=engaged, cuts=cuts)
    past = graph_of(related=[e for e in lists if e[2] <= time], engaged=[e for e in engaged if e[2] <= time])
    nodes, times = np.arange(6), np.full(6, time)
    one, other = (TemporalSampler(graph, EVERYTHING).sample(kind, nodes, times, 7) for graph in (full, past))
    same(one, other)


@pytest.mark.parametrize("kind", ["user", "product"])
def test_segments_too_large_to_merge_are_read_as_one(kind, monkeypatch):
    rng = np.random.default_rng(4)
    engaged = [tuple(map(int, row)) for row in rng.integers(0, 20, (400, 3))]
    nodes, times = np.arange(20), rng.integers(0, 22, 20)
    whole = TemporalSampler(graph_of(engaged=engaged), EVERYTHING).sample(kind, nodes, times, 0)
    monkeypatch.setattr("graph.rows.SMALL", 0)
    sampler = TemporalSampler(graph_of(engaged=engaged, cuts=(5, 9, 15)), EVERYTHING)
    assert len(sampler.engagement.around(kind).sides[0].blocks) == 4
    same(whole, sampler.sample(kind, nodes, times, 0))


@pytest.fixture(scope="module")
def hub():
    """Product 0 has a million events, one a microsecond, of 1000 users; the last user has no other product."""
    graph = graph_of()
    graph.num_nodes["user"] = 1001
    users = np.resize(np.arange(1000, dtype=np.int32), 10**6)
    seen, kind = np.arange(10**6), np.full(10**6, EVENT_TYPES.index("purchase"), np.int8)
    zeros = np.zeros(10**6, np.int32)
    graph.edges[ENGAGED["product"]] = (rows(users, zeros, 1001, seen, kind),)
    graph.edges[ENGAGED["product"].reverse] = (rows(zeros, users, 20, seen, kind),)
    lists = np.resize(np.arange(1, 20, dtype=np.int32), 10**6 // 19 * 19)
    dates = np.arange(len(lists)) // 19
    made: Csr = rows(np.zeros(len(lists), np.int32), lists, 20, dates)
    graph.edges[CO_ENGAGED] = (dataclasses.replace(made, weight=lists.astype(np.float32)),)
    return graph


def test_a_hub_of_a_million_edges_is_sampled_as_of_any_time(hub):
    sampler = TemporalSampler(hub, EVERYTHING)
    times = np.array([-1, 0, 1, 12_345, 999_999, 10**7])
    tokens = sampler.sample("product", np.zeros(6, int), times, 0)
    assert sampler.degree("product", np.zeros(6, int), times).tolist() == [0, 1, 2, 12_346, 10**6, 10**6]
    assert not tokens.mask[0].any()
    assert tokens.age[3][:4].tolist() == [1, 2, 3, 4]  # time = visible_from - 1
    assert tokens.node[3][:4].tolist() == [345, 344, 343, 342]
    assert real(tokens, 3)[-4:] == [19, 18, 17, 16]
    assert (tokens.age[tokens.mask] >= 1).all()


def test_every_policy_is_deterministic_and_does_not_depend_on_the_batch():
    graph = made_graph(300, 40, 4000)
    rng = np.random.default_rng(3)
    nodes, times = rng.integers(0, 40, 30), rng.integers(0, 3 * 10**13, 30)
    lists = [(int(s), int(t), 10**12 * int(d), int(w)) for s, t, d, w in rng.integers(0, 30, (300, 4))]
    graph.edges[CO_ENGAGED] = (csr(lists, 40),)
    for kind in ("product", "user"):
        together = TemporalSampler(graph, EVERYTHING).sample(kind, nodes, times, 5)
        same(together, TemporalSampler(graph, EVERYTHING).sample(kind, nodes, times, 5))
        sampler = TemporalSampler(graph, EVERYTHING)
        for row in range(30):
            alone = sampler.sample(kind, nodes[row : row + 1], times[row : row + 1], 5)
            same(together, alone, slice(row, row + 1))
        other = sampler.sample(kind, nodes, times, 6)
        assert not torch.equal(other.node[:, -4:], together.node[:, -4:])


def test_chunks_leave_no_trace(monkeypatch):
    graph = made_graph(300, 40, 4000)
    rng = np.random.default_rng(3)
    nodes, times = rng.integers(0, 300, 100), rng.integers(0, 3 * 10**13, 100)
    exclude = rng.integers(-1, 40, 100)
    whole = TemporalSampler(graph, EVERYTHING).sample("user", nodes, times, 5, exclude)
    monkeypatch.setattr("graph.sampler.CHUNK_TOKENS", 7 * EVERYTHING.total)
    same(whole, TemporalSampler(graph, EVERYTHING).sample("user", nodes, times, 5, exclude))


@settings(max_examples=25, deadline=None)
@given(engaged=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 9)), max_size=40))
def test_an_excluded_target_is_never_reached_by_walks_with_restart(engaged):
    sampler = TemporalSampler(graph_of(engaged=engaged), Budget(4, 4, 0, 0, related=2, ppr=8))
    nodes = np.arange(5)
    for target in range(5):
        tokens = sampler.sample("user", nodes, np.full(5, 8), 1, exclude=np.full(5, target))
        assert not (tokens.mask & (tokens.node == target)).any()


def test_an_excluded_user_is_no_bridge():
    sampler = TemporalSampler(graph_of(engaged=[(0, 0, 1), (0, 1, 1), (1, 0, 2), (1, 2, 2)]), Budget(0, 0, 0, 0, ppr=4))
    found = [sampler.sample("product", np.zeros(1, int), np.array([5]), 0, exclude=np.array([x])) for x in (-1, 0, 1)]
    assert [set(real(tokens)) for tokens in found] == [{1, 2}, {2}, {1}]
