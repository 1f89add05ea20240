import numpy as np
import pytest

from data.errors import UsageError
from data.schema import EVENT_TYPES
from graph.store import RELATIONS, Relation

EVENTS = [("ann", "apple", "purchase", 10, 10)]


def test_every_relation_has_its_reverse_and_a_number_that_no_data_can_shift(graph_of):
    assert len(set(RELATIONS)) == len(RELATIONS) == 2 * (3 * len(EVENT_TYPES) + 4) + 2
    assert all(relation.reverse in RELATIONS and relation.reverse.reverse == relation for relation in RELATIONS[:-2])
    assert graph_of(EVENTS).relations == graph_of([]).relations


def test_unknown_ids_encode_as_minus_one(graph_of):
    store = graph_of(EVENTS)
    codes = store.encode("product", ["soap", "nothing", None, "apple"])
    assert codes.dtype == np.int64
    assert codes[1] == codes[2] == -1
    assert store.entity_ids("product").take(codes[[0, 3]]).to_pylist() == ["soap", "apple"]


def test_a_relation_without_edges_is_an_empty_csr(graph_of):
    csr = graph_of(EVENTS).csr(Relation("user", "click", "product"))
    assert csr.num_edges == 0
    assert csr.rowptr.tolist() == [0, 0, 0]


def test_arrays_are_mapped_not_read(graph_of):
    csr = graph_of(EVENTS).csr(Relation("user", "purchase", "product"))
    assert isinstance(csr.visible_from.base, np.memmap)


def test_misspelt_names_are_explained(graph_of):
    store = graph_of(EVENTS)
    with pytest.raises(UsageError, match="did you mean 'user-purchase-product'"):
        store.csr(Relation("user", "purchases", "product"))
    with pytest.raises(UsageError, match="did you mean 'product'"):
        store.encode("products", ["apple"])
