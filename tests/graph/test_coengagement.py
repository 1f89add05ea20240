from collections import Counter, defaultdict
from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data.schema import EVENT_TYPES, MICROS_PER_DAY
from graph.chunks import Chunk
from graph.coengagement import Config, count, first_seen
from graph.pairs import SUPPORT_UNIT, WEIGHT_UNIT, Pairs, added
from graph.store import CO_ENGAGED, DEFAULT_ENGAGEMENT, SHARES_USERS
from tests.graph.chunk_rows import chunk_of, shuffled_ties

ENGAGED = np.array([name in DEFAULT_ENGAGEMENT for name in EVENT_TYPES])
HOUR = 1 / 24


def counted(chunk: Chunk, relation=CO_ENGAGED, **config) -> dict[int, Pairs]:
    return {day: pairs for found, day, pairs in count(chunk, ENGAGED, Config(**config)) if found == relation}


def table(pairs: Pairs) -> dict[tuple[int, int], tuple[float, float]]:
    """(user-days, weight) by pair."""
    return {
        (a, b): (support / SUPPORT_UNIT, weight / WEIGHT_UNIT)
        for a, b, support, weight in zip(
            *(x.tolist() for x in (pairs.first, pairs.second, pairs.support, pairs.weight)), strict=True
        )
    }


def test_a_session_of_n_gives_each_pair_one_over_n_minus_one():
    chunk = chunk_of([(1, product, "view", 3.5) for product in (5, 3, 9)])
    pairs = counted(chunk)[3]
    assert table(pairs) == {(3, 5): (1, 0.5), (3, 9): (1, 0.5), (5, 9): (1, 0.5)}


def test_gaps_split_sessions_and_days_never_share_one():
    rows = [(1, 3, "view", 3.1), (1, 5, "view", 3.1 + 0.9 * HOUR), (1, 7, "view", 3.1 + 2 * HOUR)]
    rows += [(1, 8, "view", 4 - HOUR / 100), (1, 9, "view", 4 + HOUR / 100)]
    assert {day: set(table(pairs)) for day, pairs in counted(chunk_of(rows)).items()} == {3: {(3, 5)}}
    whole_day = counted(chunk_of(rows), session_minutes=None)
    assert set(table(whole_day[3])) == set(combinations((3, 5, 7, 8), 2))


def test_what_shows_no_interest_does_not_count():
    rows = [(1, 3, "view", 3.5), (1, 5, "impression", 3.5), (1, 6, "not_interested", 3.5), (1, -1, "click", 3.5)]
    assert counted(chunk_of(rows)) == {}


def test_a_user_counts_once_a_pair_and_day_however_often_it_returns():
    rows = [(1, p, "view", 3 + hour * 3 * HOUR) for hour in range(7) for p in (3, 5)]
    assert table(counted(chunk_of(rows))[3]) == {(3, 5): (1, 1)}


def test_long_sessions_keep_their_latest_nodes():
    rows = [(1, product, "view", 3 + product / 10_000) for product in range(80)]
    pairs = counted(chunk_of(rows), session_items=10)[3]
    assert set(table(pairs)) == set(combinations(range(70, 80), 2))


def test_advertisers_share_users_over_the_whole_day():
    rows = [(1, 10, "view", 3.1), (1, 20, "view", 3.9), (2, 11, "view", 3.1), (2, 25, "view", 3.2)]
    assert table(counted(chunk_of(rows), SHARES_USERS)[3]) == {(1, 2): (2, 2)}


def test_users_behind_a_pair_are_told_apart_from_their_days():
    one = [(1, p, "view", day + 0.5) for day in range(3, 40) for p in (3, 5)]
    many = [(user, p, "view", 3.5) for user in range(100, 137) for p in (7, 8)]
    pairs = added(list(counted(chunk_of(one + many)).values()))
    assert np.bitwise_count(pairs.users).tolist()[0] == 1
    assert 20 < np.bitwise_count(pairs.users).tolist()[1] <= 37
    assert (pairs.support == 37 * SUPPORT_UNIT).all()


def test_the_first_event_of_each_day():
    chunk = chunk_of([(1, 3, "view", 3.5), (2, 4, "impression", 3.25), (1, 3, "view", 5)])
    assert first_seen(chunk) == {3: int(3.25 * MICROS_PER_DAY) + 1, 5: 5 * MICROS_PER_DAY + 1}
    assert first_seen(chunk_of([])) == {}


ROWS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.integers(-1, 30),
        st.sampled_from(("view", "purchase", "impression")),
        st.integers(0, 60).map(lambda step: step / 20),
    ),
    max_size=80,
)


@settings(deadline=None, max_examples=100)
@given(rows=ROWS, seed=st.integers(0, 5))
def test_equals_the_count_written_as_loops_in_any_order_and_batching(rows, seed):
    chunk = chunk_of(rows)
    found = {day: table(pairs) for day, pairs in counted(chunk, session_minutes=80.0).items()}
    assert found == _loops(chunk, 80)
    again = counted(shuffled_ties(chunk, seed), session_minutes=80.0, session_items=4)
    small = {day: table(pairs) for day, pairs in again.items()}
    assert small == {day: table(pairs) for day, pairs in counted(chunk, session_minutes=80.0, session_items=4).items()}


def test_batches_leave_the_counts_as_they_are():
    rng = np.random.default_rng(0)
    rows = [
        (int(u), int(p), "view", 3.5) for u, p in zip(rng.integers(0, 40, 2000), rng.integers(0, 99, 2000), strict=True)
    ]
    one, many = counted(chunk_of(rows))[3], counted(chunk_of(rows), batch_pairs=1000)[3]
    assert len(one) > 4000
    assert all((a == b).all() for a, b in zip(one.columns().values(), many.columns().values(), strict=True))


def _loops(chunk: Chunk, minutes: int) -> dict[int, dict[tuple[int, int], tuple[float, float]]]:
    days: dict = defaultdict(list)
    for user, day, product, kind, time in zip(
        *(getattr(chunk, name).tolist() for name in ("user", "day", "product", "kind", "time")), strict=True
    ):
        if product >= 0 and ENGAGED[kind]:
            days[day, user].append((time, product))
    total: dict = defaultdict(Counter)
    for (day, _), events in days.items():
        session, before, of_product = 0, None, {}
        for time, product in sorted(events):
            session += before is not None and time - before > minutes * 60_000_000
            before, of_product[product] = time, session
        for this in range(session + 1):
            nodes = sorted(product for product, where in of_product.items() if where == this)
            for pair in combinations(nodes, 2):
                total[day][pair] += 1 + (WEIGHT_UNIT // (len(nodes) - 1)) * 1j
    return {
        day: {pair: (count.real, count.imag / WEIGHT_UNIT) for pair, count in pairs.items()}
        for day, pairs in total.items()
    }
