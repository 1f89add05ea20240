"""Newcomers over a graph: they have their links and users, and nobody has them."""

import dataclasses

import numpy as np
import pytest
import torch

from data.schema import MICROS_PER_DAY
from graph.newcomers import Newcomers, NewcomerSampler, NewcomerStore, number_of
from graph.sampler import Budget, TemporalSampler, TokenSet
from graph.store import IN_CATEGORY, NODE_TYPES, OWNED_BY, RELATIONS, GraphStore, Relation
from tests.graph.logs import FIRST, make, usual, write_log

TIME = (FIRST + 9) * MICROS_PER_DAY
BUDGET = Budget(recent=4, uniform=3, two_hop=4, links=3, related=2, ppr=2)


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graph")
    return make(folder / "graph", write_log(folder / "events", usual()))


def laid(graph, names, kind="product", event_type="purchase"):
    """Newcomers over the graph: the users of each hang on its name."""
    store = GraphStore.open(graph)
    users = [np.unique([number_of(f"{name}{k}") % store.num_nodes["user"] for k in range(len(name))]) for name in names]
    owner = np.array([number_of(name) % 3 - 1 for name in names])
    category = np.array([number_of(name) % store.num_nodes["category"] for name in names])
    return NewcomerStore(graph, Newcomers(kind, names, owner, category, users), TIME, event_type)


def sampled(store, kind="product"):
    nodes = np.arange(len(store.newcomers.ids)) + store.first
    return NewcomerSampler(store, BUDGET).sample(kind, nodes, np.full(len(nodes), TIME), seed=3)


def test_tokens_are_their_users_owner_category_and_what_lies_behind(graph):
    store = laid(graph, ["novel"])
    tokens, new = sampled(store), store.newcomers
    relations = [RELATIONS[code] for code in tokens.relation[0][tokens.mask[0]]]
    nodes = {
        (NODE_TYPES[kind], int(node))
        for kind, node in zip(tokens.node_type[0][tokens.mask[0]], tokens.node[0][tokens.mask[0]], strict=True)
    }
    assert {node for kind, node in nodes if kind == "user"} <= set(new.users[0].tolist())
    assert Relation("product", "rev_purchase", "user") in relations
    assert IN_CATEGORY in relations
    assert (OWNED_BY in relations) == (new.owner[0] >= 0)
    assert any(kind == "product" for kind, _ in nodes), "products that its users engaged with"
    assert (tokens.age[tokens.mask & (tokens.hop == 1) & (tokens.age >= 0)] < 1000).all()


def test_the_degree_is_the_number_of_its_users_and_theirs_stays(graph):
    store = laid(graph, ["novel", "pen", ""])
    new = NewcomerSampler(store, BUDGET)
    nodes = np.arange(3) + store.first
    assert new.degree("product", nodes, np.full(3, TIME)).tolist() == [len(own) for own in store.newcomers.users]
    users = np.arange(store.num_nodes["user"])
    plain = TemporalSampler(GraphStore.open(graph), BUDGET)
    assert torch.equal(*(each.degree("user", users, np.full(len(users), TIME)) for each in (new, plain)))


@pytest.mark.parametrize("kind", ["product", "advertiser"])
def test_a_newcomers_tokens_are_the_same_in_any_company_and_order(graph, kind):
    names = ["novel", "pen", "grand piano", "x", ""]
    whole = sampled(laid(graph, names, kind), kind)
    for pick in ([2], [4, 0], [3, 2, 1, 0]):
        some = sampled(laid(graph, [names[place] for place in pick], kind), kind)
        for field in dataclasses.fields(TokenSet):
            assert torch.equal(getattr(some, field.name), getattr(whole, field.name)[pick]), field.name


def test_without_edges_only_the_catalogue_speaks(graph):
    store = laid(graph, [""])
    tokens = sampled(store)
    assert {NODE_TYPES[kind] for kind in tokens.node_type[tokens.mask]} <= {"advertiser", "category"}
