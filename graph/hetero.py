"""The graph as PyTorch Geometric HeteroData and back, for tools that speak it. The only module that needs PyG."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import torch
from torch_geometric.data import HeteroData

from data.errors import BadDataError
from graph.csr import EdgeList
from graph.ids import NODES
from graph.store import FORWARD, NODE_TYPES, GraphStore, Relation


def to_hetero(store: GraphStore) -> HeteroData:
    """Every node type (num_nodes, entity_id, known_at) and every forward relation that has edges.

    Relations carry edge_index int64 (2, E), time and visible_from int64 us (E,), weight float32 (E,), rows in the
    store's order. `ToUndirected` adds the reverse. Copies the graph into memory.
    """
    data = HeteroData()
    for kind in NODE_TYPES:
        data[kind].num_nodes = store.num_nodes[kind]
        data[kind].entity_id = store.entity_ids(kind).to_pylist()
        data[kind].known_at = torch.tensor(store.known_at(kind))
    for relation in FORWARD:
        csr = store.csr(relation)
        if csr.num_edges:
            src = np.repeat(np.arange(store.num_nodes[relation.src]), np.diff(csr.rowptr))
            edges = data[tuple(relation)]
            edges.edge_index = torch.from_numpy(np.stack([src, csr.col.astype(np.int64)]))
            edges.time, edges.weight = torch.tensor(csr.times), torch.tensor(csr.weights)
            edges.visible_from = torch.tensor(csr.visible_from)
    return data


def from_hetero(data: HeteroData) -> tuple[dict[str, pa.Table], dict[Relation, EdgeList]]:
    """Node tables and forward edge lists, of which `graph.csr.to_csr` makes the very same arrays.

    Raises BadDataError for an edge type that is no forward relation of the store.
    """
    nodes = {}
    for kind in NODE_TYPES:
        columns = [pa.array(data[kind].entity_id, pa.string()), pa.array(data[kind].known_at.numpy())]
        nodes[kind] = pa.Table.from_arrays(columns, schema=NODES)
    edges = {}
    for edge_type in data.edge_types:
        relation = Relation(*edge_type)
        if relation not in FORWARD:
            raise BadDataError(f"expected edge types such as {tuple(FORWARD[0])}, got {edge_type}")
        found = data[edge_type]
        src, dst = found.edge_index.numpy()
        times = found.time.numpy(), found.visible_from.numpy()
        edges[relation] = EdgeList(src, dst, *times, found.weight.numpy())
    return nodes, edges
