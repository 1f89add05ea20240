"""A shop made in memory for the learner: graph, content and a trainer, without files and without most dependencies."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from encoders.placement import device_of
from graph.store import ENGAGED, NODE_TYPES, Relation
from hierarchy.batches import BatchMaker, make_samplers
from hierarchy.content import ContentTable
from hierarchy.edges import TrainingEdges
from hierarchy.model import Learner
from hierarchy.train import Config
from hierarchy.trainer import Trainer
from hierarchy.transformer import EncoderShape
from tests.benchmarks.sampler import SPAN, MadeGraph, made_graph

PURCHASE = Relation("user", "purchase", "product")
FUNNEL = {"purchase": 1.0}


@dataclass
class Shop(MadeGraph):
    """A made graph of which everything has been known from the beginning."""

    def known_at(self, node_type: str) -> NDArray[np.int64]:
        return np.zeros(self.num_nodes[node_type], np.int64)

    @cached_property
    def training_edges(self) -> TrainingEdges:
        """All purchases as edges to learn from; sorted once for all trainers."""
        return TrainingEdges(self, FUNNEL, SPAN, 0)  # type: ignore[arg-type]


def made_shop(edges: int, seed: int = 0) -> Shop:
    """`edges` purchases by a tenth as many users of a hundredth as many products."""
    graph = made_graph(edges // 10, edges // 100, edges, seed)
    shop = Shop(graph.num_nodes, graph.edges)
    shop.edges[PURCHASE] = shop.edges[ENGAGED["product"]]
    return shop


def made_content(shop: Shop, dim: int, seed: int = 0) -> ContentTable:
    """Random unit content of `dim` columns for products, advertisers and categories; products own id residuals."""
    sizes = [shop.num_nodes[kind] for kind in NODE_TYPES]
    offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    generator = torch.Generator().manual_seed(seed)
    content = torch.zeros(sum(sizes), dim + len(NODE_TYPES))
    for code, kind in enumerate(NODE_TYPES):
        own = slice(int(offsets[code]), int(offsets[code]) + sizes[code])
        content[own, dim + code] = 1.0
        if kind != "user":
            made = torch.randn(sizes[code], dim, generator=generator)
            content[own, :dim] = torch.nn.functional.normalize(made, dim=1)
    ids = torch.zeros(sum(sizes), dtype=torch.int64)
    first = int(offsets[NODE_TYPES.index("product")])
    ids[first : first + shop.num_nodes["product"]] = torch.arange(1, shop.num_nodes["product"] + 1)
    return ContentTable(content, ids, offsets)


def made_trainer(shop: Shop, content_dim: int, device: str, seed: int = 0, **options: Any) -> Trainer:
    """A trainer over the shop, before its first step."""
    end = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=SPAN)
    config = Config(t0=end, funnel=FUNNEL, **options)
    table = made_content(shop, content_dim).to(device)
    samplers = make_samplers(shop, config.user_budget, config.item_budget, device_of(device))
    visible = {kind: shop.num_nodes[kind] for kind in ("user", "product", "advertiser")}
    batches = BatchMaker(shop, table, shop.training_edges, samplers, visible, seed)
    torch.manual_seed(seed)
    shape = EncoderShape(
        content_dim, config.dim, config.layers, config.heads, visible["product"], 1, len(config.levels)
    )
    return Trainer(config, Learner(shape, config.temperature), batches, visible, SPAN, seed)
