"""Floating-point operations of the ranker's forward pass, on what is there: no padding, no look-ups, no recomputation.

A product of (m, k) and (k, n) counts 2 m k n, attention 4 d for each pair of a query and a key that it may see. Norms,
activations and softmax are left out, as is usual for MFU; a training step counts three forward passes.
"""

from __future__ import annotations

import torch

from ranking.batch import JaggedBatch
from ranking.heads import Heads
from ranking.model import Ranker


def forward_flops(network: Ranker, batch: JaggedBatch) -> int:
    """Operations of `network` on a batch of B rows and V visits, valid pairs only."""
    tokenizer, rows = network.tokenizer, len(batch.label)
    width, queries = tokenizer.content.out_features, tokenizer.num_query
    memory = _memory(batch)
    pairs = queries * int(memory[batch.visit].sum())
    block = 4 * width**2 * int(memory.sum())  # keys and values of the memory
    block += rows * queries * width**2 * (2 + 6 + 4 + 8)  # queries, peers, the two attended, the per-token layer
    block += 4 * width * (pairs + rows * queries**2)
    return _tokens(network, batch) + len(network.blocks) * block + rows * heads_flops(network.heads)


def heads_flops(heads: Heads) -> int:
    """Operations of the heads on one row."""
    inputs, hidden = heads.inputs, heads.hidden
    return 4 * inputs * hidden * len(heads.crosses) + 2 * inputs * hidden + 4 * (inputs + hidden)


def _tokens(network: Ranker, batch: JaggedBatch) -> int:
    """Content of distinct products, states of users that have some, numbers of rows."""
    tokenizer, rows = network.tokenizer, len(batch.label)
    width, states = tokenizer.content.out_features, tokenizer.user_states.in_features
    stated = int(batch.has_states.sum()) * batch.user_states.shape[1]
    products = len(batch.item_product) * tokenizer.content.in_features
    wide = 2 * network.wide.content.out_features * products
    return wide + 2 * width * (products + stated * states + rows * tokenizer.num_fields)


def _memory(batch: JaggedBatch) -> torch.Tensor:
    """Memory tokens of each visit that are there, int64 (V,): history, states, the user, its primitives."""
    states = batch.has_states.long() * batch.user_states.shape[1]
    return batch.history.lengths + states + 1 + (batch.user_slots > 0).sum(dim=1)
