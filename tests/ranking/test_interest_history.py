"""Counts by interest against a loop over all events, and that nothing made after a row's time enters them."""

import numpy as np
import pytest

from data.schema import MICROS_PER_DAY
from ranking.arms import bags_of
from ranking.interest_history import NUMBERS, InterestHistory, columns_of, table_size
from ranking.numbers import NUM_STEPS, stepped
from ranking.reader import Examples


@pytest.fixture(scope="module")
def examples(examples_ref):
    return Examples.open(examples_ref)


def built(examples, arm):
    bags = bags_of(examples, arm)
    row = {name: np.asarray(column) for name, column in examples.columns.items()}
    history = InterestHistory.build(examples, bags.slots["product"], bags.of_product)
    return bags, row, row[bags.column["product"]].astype(np.int64), history


def by_hand(examples, bags, row, pointer, number, level):
    """`NUMBERS` of one row and level, event by event."""
    nothing = [0.0, -1.0, 0.0, -1.0]
    user, ts = int(row["user"][number]), int(row["ts"][number])
    mine = bags.slots["product"][pointer[number], level.start] if pointer[number] >= 0 else -1
    if mine < 0 or user < 0:
        return nothing
    times = []
    for place in range(examples.offsets[user], examples.offsets[user + 1]):
        product = int(examples.history["product"][place])
        if product < 0 or bags.of_product[product] < 0:
            continue
        made = examples.tokens_as_of[examples.first_tokens[product]]
        same = bags.slots["product"][bags.of_product[product], level.start] == mine
        if same and examples.history["visible_from"][place] <= ts and made <= ts:
            since = max(int(examples.history["visible_from"][place]), int(made))
            times.append((since, place, int(examples.history["ts"][place])))
    if not times:
        return nothing
    stamps = [ts for _, _, ts in sorted(times)]
    age = (ts - stamps[-1]) / MICROS_PER_DAY
    events = row["history_end"][number] - row["history_start"][number]
    interval = max((stamps[-1] - stamps[0]) / MICROS_PER_DAY / max(len(stamps) - 1, 1), 0.5)
    return [len(stamps), age, len(stamps) / events, age / interval if len(stamps) > 1 else -1.0]


@pytest.mark.parametrize("arm", ["tokens", "no_tokens"])
def test_numbers_are_those_of_a_loop_over_all_events(examples, arm):
    bags, row, pointer, history = built(examples, arm)
    found = history.numbers(row, pointer).reshape(len(pointer), len(examples.levels), len(NUMBERS))
    some = np.arange(0, len(pointer), 7)
    for place, level in enumerate(examples.levels):
        wanted = [by_hand(examples, bags, row, pointer, number, level) for number in some]
        np.testing.assert_allclose(found[some, place], wanted, rtol=1e-5, atol=1e-6)
    assert (found[:, :, 0] > 1).any()
    assert (found[:, :, 3] > 0).any()


def test_both_arms_know_as_many_events(examples):
    """The control must differ in what is alike, not in how much is known."""
    counts = [sum(len(index.times) for index in built(examples, arm)[3].index) for arm in ("tokens", "no_tokens")]
    assert counts[0] == counts[1] > 0


def test_an_event_counts_from_when_its_products_tokens_were_made(examples):
    _, row, pointer, history = built(examples, "tokens")
    product = np.asarray(examples.history["product"]).astype(np.int64)
    late = examples.tokens_made(product) > np.asarray(examples.history["visible_from"])
    assert late.any(), "the shop has tokens only from T0 on"
    for index in history.index:
        assert index.times.min() >= examples.tokens_as_of.min()
    before = {name: column.copy() for name, column in row.items()}
    before["ts"][:] = examples.tokens_as_of.min() - 1
    assert (history.numbers(before, pointer)[:, :: len(NUMBERS)] == 0).all()


def test_steps_are_rows_of_one_table_and_tell_levels_apart(examples):
    _, row, pointer, history = built(examples, "tokens")
    steps, numbers = history.steps(row, pointer), history.numbers(row, pointer)
    assert steps.shape == (len(pointer), columns_of(examples.levels))
    assert steps.min() >= 0
    assert steps.max() < table_size(examples.levels)
    per = columns_of(examples.levels) // len(examples.levels)
    for place in range(len(examples.levels)):
        own = steps[:, per * place : per * (place + 1)]
        assert own.min() >= place * table_size(examples.levels[:1])
        assert own.max() < (place + 1) * table_size(examples.levels[:1])
        count, age = (numbers[:, len(NUMBERS) * place + at].astype(np.float64) for at in (0, 1))
        crossed = own[:, -1] - place * table_size(examples.levels[:1]) - NUM_STEPS * len(NUMBERS)
        assert np.array_equal(crossed // NUM_STEPS, stepped(count))
        assert np.mean(crossed % NUM_STEPS == stepped(age + 1)) > 0.999


def test_one_level_alone_knows_nothing_of_the_others(examples):
    _, row, pointer, history = built(examples, f"level_{examples.levels[0].level}")
    found = history.numbers(row, pointer).reshape(len(pointer), len(examples.levels), len(NUMBERS))
    assert (found[:, 0, 0] > 0).any()
    assert (found[:, 1:, 0] == 0).all()
