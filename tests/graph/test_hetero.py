import warnings

import numpy as np
import pytest
import torch

from data.errors import BadDataError
from graph.csr import to_csr
from graph.store import FORWARD, NODE_TYPES, Relation

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyG calls deprecated parts of torch while it is imported
    from graph.hetero import from_hetero, to_hetero

ROWS = [("ann", "apple", "purchase", 1, 4), ("bob", "bread", "view", 2, 2), ("ann", "@mill", "conversion", 3, 3)]


def test_round_trip_gives_the_very_same_graph(graph_of):
    store = graph_of(ROWS)
    nodes, edges = from_hetero(to_hetero(store))
    for kind in NODE_TYPES:
        assert nodes[kind].column("entity_id").combine_chunks() == store.entity_ids(kind)
        assert nodes[kind].column("known_at").to_numpy().tolist() == store.known_at(kind).tolist()
    assert set(edges) == {relation for relation in FORWARD if store.csr(relation).num_edges}
    for relation, found in edges.items():
        for one, other in ((relation, found), (relation.reverse, found.reverse)):
            again = to_csr(other, store.num_nodes[one.src], store.num_nodes[one.dst])
            for name, array in vars(store.csr(one)).items():
                np.testing.assert_array_equal(getattr(again, name), array)


def test_it_is_valid_hetero_data(graph_of):
    store = graph_of(ROWS)
    data = to_hetero(store)
    assert data.validate()
    bought = data["user", "purchase", "product"]
    assert bought.edge_index.dtype == torch.int64
    assert bought.edge_index.shape == (2, 1)
    assert (bought.time.item(), bought.visible_from.item(), bought.weight.item()) == (1, 4, 1.0)
    assert data["user"].num_nodes == store.num_nodes["user"]
    assert Relation("user", "cart", "product") not in data.edge_types


def test_foreign_edge_types_are_refused(graph_of):
    data = to_hetero(graph_of(ROWS))
    data["user", "likes", "product"].edge_index = torch.zeros(2, 0, dtype=torch.long)
    with pytest.raises(BadDataError, match="likes"):
        from_hetero(data)
