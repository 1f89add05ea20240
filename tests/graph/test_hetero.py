import warnings

import pytest
import torch

from data.artifacts import Store, sha256_file
from data.errors import BadDataError
from graph.csr import write_graph
from graph.store import GraphStore, Relation
from tests.fixtures.artifacts import make_ref

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyG calls deprecated parts of torch while it is imported
    from graph.hetero import from_hetero, to_hetero

ROWS = [("ann", "apple", "purchase", 1, 4), ("bob", "bread", "view", 2, 2), ("ann", "@mill", "conversion", 3, 3)]


def test_round_trip_writes_the_very_same_graph(graph_ref, tmp_path):
    ref = graph_ref(ROWS)
    data = to_hetero(GraphStore.open(ref))
    again = make_ref(Store(tmp_path), "graph", lambda out: write_graph(out, *from_hetero(data)))
    names = set(ref.manifest["files"]) - {"statistics.json"}
    assert names == set(again.manifest["files"])
    assert all(sha256_file(ref.path / name) == sha256_file(again.path / name) for name in names)


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
