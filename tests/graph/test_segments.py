from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from graph.segments import RATIO, Segment, batches, plan, span

ROWS = st.lists(st.integers(1, 1_000), max_size=60).map(lambda rows: dict(enumerate(rows, start=19_000)))


@given(ROWS)
def test_segments_hold_every_day_once_in_order_and_shrink_geometrically(rows):
    found = plan(rows)
    assert [day for segment in found for day in segment.days] == list(rows)
    assert all(segment.rows == sum(rows[day] for day in segment.days) for segment in found)
    assert all(one.rows > RATIO * other.rows for one, other in pairwise(found))


@given(ROWS)
def test_a_new_day_only_merges_the_last_segments(rows):
    days = list(rows)
    for count in range(1, len(days)):
        before, after = plan({day: rows[day] for day in days[:count]}), plan({d: rows[d] for d in days[: count + 1]})
        assert after[:-1] == before[: len(after) - 1]


def test_equal_days_are_rewritten_few_times():
    days, moved = dict.fromkeys(range(365), 10), 0
    for day in days:
        moved += plan(dict.fromkeys(range(day + 1), 10))[-1].rows
    assert moved / (365 * 10) < 16
    assert len(plan(days)) <= 5


@given(ROWS, st.integers(1, 2_000))
def test_chunks_hold_whole_days_up_to_the_limit(rows, limit):
    found = batches(list(rows), rows, limit)
    assert [day for days in found for day in days] == list(rows)
    assert all(len(days) == 1 or sum(rows[day] for day in days) <= limit for days in found)


def test_names_say_the_days():
    assert span((19_000, 19_005)) == "2022-01-08_2022-01-13"
    assert Segment((19_000,), 3).name == "2022-01-08_2022-01-08"
