"""The formula of operations against torch's counting mode, where nothing is padded, and that padding counts nothing."""

import dataclasses

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from kernels.jagged import Jagged
from ranking.batch import Buckets, JaggedBatch
from ranking.flops import forward_flops
from ranking.interest_history import columns_of
from ranking.model import Ranker
from ranking.numbers import table_size
from ranking.reader import Level
from ranking.tokenization import GROUP

LEVELS = (Level(1, 0, 2, 5), Level(2, 2, 5, 9))
BUCKETS = Buckets(10, 10, 10, 10)
SLOTS, ITEMS, CONTENT, STATES = 5, 7, 6, (3, 4)


def full_batch(visits, history):
    """Every visit has GROUP rows, `history` events, states and all primitives: nothing is padded."""
    rows = visits * GROUP
    ones = torch.ones(rows, dtype=torch.int64)
    slots, weight = torch.ones(rows, SLOTS, dtype=torch.int64), torch.full((rows, SLOTS), 0.2)
    lengths = torch.full((visits,), history)
    events = torch.zeros(int(lengths.sum()), dtype=torch.int64)
    return JaggedBatch(
        visit=torch.arange(visits).repeat_interleave(GROUP),
        candidate=ones,
        surface=ones,
        hour=ones,
        weekday=ones,
        numbers=torch.randint(0, table_size(), (rows, 8)),
        interest_numbers=torch.zeros(rows, columns_of(LEVELS), dtype=torch.int64),
        product_slots=slots,
        product_weight=weight,
        advertiser_slots=slots,
        advertiser_weight=weight,
        user=ones[:visits],
        user_slots=slots[:visits],
        user_weight=weight[:visits],
        user_states=torch.randn(visits, *STATES),
        has_states=torch.ones(visits, dtype=torch.bool),
        history=Jagged.from_lengths(events, lengths, history),
        history_type=events,
        history_gap=events,
        item_product=torch.ones(ITEMS, dtype=torch.int64),
        item_advertiser=torch.ones(ITEMS, dtype=torch.int64),
        item_category=torch.ones(ITEMS, 4, dtype=torch.int64),
        item_content=torch.randn(ITEMS, CONTENT),
        label=torch.zeros(rows),
    )


def counted(network, batch):
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter, torch.no_grad():
        network(batch)
    return counter.get_total_flops()


@pytest.mark.parametrize(("width", "blocks", "visits", "history"), [(8, 1, 3, 4), (16, 3, 2, 9), (4, 2, 5, 1)])
def test_the_formula_is_what_torch_counts(width, blocks, visits, history):
    network = Ranker(BUCKETS, LEVELS, CONTENT, STATES, width, blocks, 2).eval()
    batch = full_batch(visits, history)
    assert forward_flops(network, batch) == counted(network, batch)


def test_what_is_not_there_counts_nothing():
    network, batch = Ranker(BUCKETS, LEVELS, CONTENT, STATES, 8, 2, 2).eval(), full_batch(3, 6)
    slots = batch.user_slots.clone()
    slots[0, 2:] = 0
    lengths = torch.tensor([6, 2, 0])
    events = torch.zeros(8, dtype=torch.int64)
    fewer = dataclasses.replace(
        batch,
        user_slots=slots,
        has_states=torch.tensor([True, False, True]),
        history=Jagged.from_lengths(events, lengths, 6),
        history_type=events,
        history_gap=events,
    )
    gone = (3, 3 + 4, 6)  # primitives of the first visit; states and events of the second; events of the third
    each = 2 * (4 * 8**2 + 4 * 8 * GROUP * network.tokenizer.num_query)  # a memory token in two blocks
    of_states = 2 * 8 * 3 * 4
    assert forward_flops(network, batch) - forward_flops(network, fewer) == sum(gone) * each + of_states
    assert counted(network, fewer) == counted(network, batch), "torch counts what is padded"
