"""The offline user model on batches: attention against a padded reference, nothing from the future or from others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from data.artifacts import ArtifactRef
from data.context import RunContext
from data.schema import to_micros
from ranking.user_attention import causal_attention, rotary_angles, rotate
from ranking.user_events import FIRST, NUM_USER_GAPS, SAME_MOMENT, EventBatch, UserEvents
from ranking.user_losses import task_losses, total
from ranking.user_model import UserArchitecture, UserModel
from ranking.user_tasks import Catalogue, Task, make_pools, make_task
from tests.ranking.shops import DAY, T0

SIZE = UserArchitecture(width=8, seeds=3, product_buckets=64, advertiser_buckets=16, dropout=0.0)
START = to_micros(T0)


@pytest.fixture(scope="module")
def events(inputs: dict[str, ArtifactRef]) -> UserEvents:
    return UserEvents.open(inputs, SIZE.product_buckets, SIZE.advertiser_buckets, START, RunContext(threads=1))


def _model(events: UserEvents, size: UserArchitecture = SIZE) -> UserModel:
    torch.manual_seed(0)
    return UserModel(size, events.num_primitives, events.levels)


def _batch(events: UserEvents, users: int = 6) -> EventBatch:
    start, end = events.visible(START)
    return events.batch(start[:users], end[:users])


def _states(model: UserModel, batch: EventBatch) -> torch.Tensor:
    with torch.no_grad():
        return model.eval().events(batch)


def _pooled(model: UserModel, batch: EventBatch, counts: torch.Tensor) -> torch.Tensor:
    rows = np.arange(len(counts))
    pools = make_pools(batch, rows, counts.numpy(), np.full(len(rows), START))
    with torch.no_grad():
        return model.eval().pool(model.events(batch), batch, pools)


def _change(batch: EventBatch, places: torch.Tensor) -> EventBatch:
    product = batch.items.product.clone()
    product[places] = product[places] % 60 + 2
    return replace(batch, items=replace(batch.items, product=product), kind=batch.kind.index_fill(0, places, 1))


def test_attention_over_jagged_rows_is_that_of_padded_rows_with_a_mask() -> None:
    torch.manual_seed(0)
    lengths = torch.tensor([3, 0, 40, 17, 1, 16, 33])
    offsets = F.pad(lengths.cumsum(0), (1, 0))
    query, key, value = torch.randn(3, int(offsets[-1]), 2, 4, dtype=torch.float64)
    found = causal_attention(query, key, value, offsets)
    for row in range(len(lengths)):
        own = slice(int(offsets[row]), int(offsets[row + 1]))
        scores = torch.einsum("ihc,jhc->hij", query[own], key[own]) / 2
        mask = torch.ones(scores.shape[1:], dtype=torch.bool).tril()
        expected = torch.einsum("hij,jhc->ihc", scores.masked_fill(~mask, -torch.inf).softmax(-1), value[own])
        assert torch.allclose(found[own], expected, atol=1e-12)


def test_rotated_scores_depend_on_the_distance_of_two_events_only() -> None:
    torch.manual_seed(0)
    one, other = torch.randn(2, 1, 2, 4)

    def score(a: int, b: int) -> torch.Tensor:
        first, second = rotary_angles(torch.tensor([a]), 4), rotary_angles(torch.tensor([b]), 4)
        return (rotate(one, first) * rotate(other, second)).sum()

    assert torch.allclose(score(3, 1), score(40, 38), atol=1e-4)
    assert not torch.allclose(score(3, 1), score(3, 2), atol=1e-2)


def test_what_comes_later_changes_no_earlier_state(events: UserEvents) -> None:
    model, batch = _model(events), _batch(events)
    middle = batch.offsets[:-1] + batch.offsets.diff() // 2
    later = torch.arange(len(batch.kind)) >= torch.repeat_interleave(middle, batch.offsets.diff())
    before, after = _states(model, batch), _states(model, _change(batch, later.nonzero().flatten()))
    assert torch.equal(before[~later], after[~later])
    assert not torch.allclose(before[later], after[later], atol=1e-4)
    counts = batch.offsets.diff() // 2
    changed = _change(batch, later.nonzero().flatten())
    assert torch.equal(_pooled(model, batch, counts), _pooled(model, changed, counts))


def test_what_one_user_did_does_not_change_the_states_of_another(events: UserEvents) -> None:
    model, batch = _model(events), _batch(events)
    changed = _change(batch, torch.arange(int(batch.offsets[1])))
    counts = batch.offsets.diff()
    before, after = _pooled(model, batch, counts), _pooled(model, changed, counts)
    assert torch.equal(before[1:], after[1:])
    assert not torch.allclose(before[0], after[0], atol=1e-4)


def test_a_user_alone_has_the_states_it_has_among_others(events: UserEvents) -> None:
    model, batch, (start, end) = _model(events), _batch(events), events.visible(START)
    together = _pooled(model, batch, batch.offsets.diff())
    for user in range(6):
        alone = events.batch(start[user : user + 1], end[user : user + 1])
        assert torch.allclose(_pooled(model, alone, alone.offsets.diff())[0], together[user], atol=1e-5)


def test_pooling_reads_the_age_of_events(events: UserEvents) -> None:
    model, batch = _model(events), _batch(events)
    torch.nn.init.normal_(model.pooling.age)
    rows, counts = np.arange(6), batch.offsets.diff().numpy()
    soon, late = (make_pools(batch, rows, counts, np.full(6, START + days * DAY)) for days in (0, 60))
    with torch.no_grad():
        states = model.eval().events(batch)
        assert not torch.allclose(model.pool(states, batch, soon), model.pool(states, batch, late), atol=1e-4)


def _learnable(events: UserEvents) -> tuple[UserModel, Catalogue, Task]:
    _, end = events.visible(START - 1)
    rng = np.random.default_rng(0)
    dates = np.arange(START - 28 * DAY, START, 7 * DAY)
    task = make_task(events, (end - 5)[:4], end[:4], dates, 1, rng)
    return _model(events, SIZE.model_copy(update={"width": 16})), Catalogue.build(events, START), task


def test_one_step_moves_every_parameter(events: UserEvents) -> None:
    model, catalogue, task = _learnable(events)
    before = {name: value.clone() for name, value in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    found = task_losses(model, task, catalogue, catalogue.negatives(16, np.random.default_rng(0)))
    assert set(found) == {"item", "interest", "pooled_item", "pooled_interest"}
    total(found, 0.5).backward()
    optimizer.step()
    assert [name for name, value in model.named_parameters() if torch.equal(value, before[name])] == []


def test_a_small_batch_can_be_learned_by_heart(events: UserEvents) -> None:
    model, catalogue, task = _learnable(events)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    rng = np.random.default_rng(0)
    for _ in range(100):
        optimizer.zero_grad()
        loss = total(task_losses(model, task, catalogue, catalogue.negatives(32, rng)), 0.5)
        loss.backward()
        optimizer.step()
    whole = task_losses(model.eval(), task, catalogue, None)
    assert max(float(value.detach()) for value in whole.values()) < 0.1


def test_the_sampled_loss_estimates_that_of_the_whole_catalogue(events: UserEvents) -> None:
    model, catalogue, task = _learnable(events)
    torch.nn.init.normal_(model.product.weight)
    with torch.no_grad():
        whole = float(task_losses(model, task, catalogue, None)["item"])
        drawn = catalogue.negatives(20_000, np.random.default_rng(0))
        assert float(task_losses(model, task, catalogue, drawn)["item"]) == pytest.approx(whole, rel=0.02)


def test_gaps_tell_a_first_event_and_one_of_the_same_visit(events: UserEvents) -> None:
    batch = _batch(events)
    assert (batch.gap[batch.offsets[:-1]] == FIRST).all()
    same = torch.zeros(len(batch.ts), dtype=torch.bool)
    same[1:] = batch.ts[1:] == batch.ts[:-1]
    same[batch.offsets[:-1]] = False
    assert same.any()
    assert torch.equal(batch.gap == SAME_MOMENT, same)
    assert batch.gap.max() < NUM_USER_GAPS


def test_events_before_t0_take_the_tokens_of_t0_as_shares_by_level(events: UserEvents) -> None:
    batch = _batch(events)
    assert int(batch.ts.max()) < START
    slots, seen = batch.items.slots, 0
    for event in range(len(batch.ts)):
        found = int(events.tokens.find("product", batch.number[event : event + 1].numpy(), np.array([START]))[0])
        own = slice(int(slots.offsets[event]), int(slots.offsets[event + 1]))
        primitives = [] if found < 0 else events.table_row[events.tokens.primitive[found]]
        assert slots.primitive[own].tolist() == [row for row in primitives if row > 0]
        for start, stop in events.levels if found >= 0 else []:
            mine = (slots.primitive[own] >= start) & (slots.primitive[own] < stop)
            assert float(slots.share[own][mine].sum()) == pytest.approx(1.0)
            seen += 1
    assert seen > 10
