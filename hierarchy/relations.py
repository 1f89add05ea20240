"""Links between primitives: to the level above, and to those that interest flows to along each kind of event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse

from data.schema import MICROS_PER_DAY, PRIMITIVE_EDGES, to_micros
from graph.store import GraphStore, Relation
from hierarchy.asof import AsOfVectors
from hierarchy.bags import Bags, cosines, cut, softmax
from hierarchy.edges import owners
from hierarchy.flow import Memberships, Timing, interest_flows, strongest
from hierarchy.levels import PARENT_TAU, Level, bags_of_all
from hierarchy.vocabulary import membership

if TYPE_CHECKING:
    from hierarchy.supergraph import Config


def parent_links(levels: Sequence[Level], parents: int) -> pa.Table:
    """Links `parent` from each primitive to the `parents` of the level above that it most belongs to, best first.

    The weights are the learner's soft parent links (softmax of cosines) cut to those few, and sum to 1 for a primitive;
    the first is the parent_id of primitives.parquet.
    """
    tables = [PRIMITIVE_EDGES.empty_table()]
    for above, level in pairwise(levels):
        soft = cut(softmax(cosines(level.vectors, above.vectors) / np.float32(PARENT_TAU)), parents)
        source = np.repeat(np.arange(len(level.ids)), soft.primitive.shape[1])
        ends = level.ids.take(pa.array(source)), above.ids.take(pa.array(soft.primitive.ravel()))
        tables.append(_table(level, *ends, "parent", soft.weight.ravel()))
    return pa.concat_tables(tables)


def flow_links(
    config: Config,
    store: GraphStore,
    levels: Sequence[Level],
    entities: Mapping[str, AsOfVectors],
    products: Sequence[Bags],
) -> pa.Table:
    """Links co_, then_ and advertiser_<event type> of hierarchy.flow; those of a source lie together, best first.

    `products` are the bags of entities["product"] at each level. None for event types without events. Memory: the bags
    of all entities and a block of events; time: entities x primitives, one pass over the events of each type.
    """
    days = MICROS_PER_DAY
    half_life = round(config.half_life_days * days) or None
    timing = Timing(to_micros(config.t0), config.window_days * days, half_life, config.reach)
    others = {kind: bags_of_all(levels, entities[kind].vectors) for kind in ("user", "advertiser")}
    members = [
        _memberships(store, level, entities, {"product": own, **{kind: bags[place] for kind, bags in others.items()}})
        for place, (level, own) in enumerate(zip(levels, products, strict=True))
    ]
    tables = [PRIMITIVE_EDGES.empty_table()]
    for event_type in config.flows:
        events = store.csr(Relation("user", event_type, "product"))
        for level, flows in zip(levels, interest_flows(events, members, timing), strict=True):
            for kind, matrix in flows.items():
                source, target, weight = strongest(matrix, config.neighbours)
                ends = level.ids.take(pa.array(source)), level.ids.take(pa.array(target))
                tables.append(_table(level, *ends, f"{kind}_{event_type}", weight))
    return pa.concat_tables(tables)


def _memberships(
    store: GraphStore, level: Level, entities: Mapping[str, AsOfVectors], bags: Mapping[str, Bags]
) -> Memberships:
    user, product, advertiser = (
        _by_node(store, kind, entities[kind].entity_id, bags[kind], len(level.ids))
        for kind in ("user", "product", "advertiser")
    )
    owner = owners(store, np.arange(product.shape[0]))
    owned = np.flatnonzero(owner >= 0)
    shape = product.shape[0], advertiser.shape[0]
    sold = sparse.csr_array((np.ones(len(owned)), (owned, owner[owned])), shape=shape)
    return Memberships(product, user, sparse.csr_array(sold @ advertiser))


def _by_node(store: GraphStore, kind: str, ids: pa.Array, bags: Bags, k: int) -> sparse.csr_array:
    """The bags as sparse rows by internal id (nodes, k)."""
    nodes = store.encode(kind, ids)
    place = sparse.csr_array((np.ones(len(nodes)), (nodes, np.arange(len(nodes)))), (store.num_nodes[kind], len(nodes)))
    return sparse.csr_array(place @ membership(bags, k))


def _table(level: Level, source: pa.Array, target: pa.Array, relation: str, weight: NDArray[Any]) -> pa.Table:
    columns = [[level.level] * len(source), source, target, [relation] * len(source), weight]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, PRIMITIVE_EDGES, strict=True)]
    return pa.table(arrays, schema=PRIMITIVE_EDGES)
