from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.schema import EVENT_TYPES, MICROS_PER_DAY
from graph.chunks import Chunk
from graph.guards import RULES, Config, add_counts, guard
from tests.graph.chunk_rows import chunk_of, contents, shuffled_ties

OFF = Config(
    burst_moments=None, awake_hours=None, repetition=None, focus_moments=None, repeats=None, user_day=None,
    impressions=None, not_interested=None, max_weight=None,
)  # fmt: skip
SECOND = 1 / 86_400


def only(**fields) -> Config:
    return OFF.model_copy(update=fields)


def cut(counts: dict, rule: str) -> int:
    return sum(counts["cut"][rule].values())


def test_everything_off_keeps_everything():
    chunk = chunk_of([(1, 5, "view", 2 + i * 1e-9) for i in range(3000)])
    kept, counts = guard(chunk, OFF)
    assert contents(kept) == contents(chunk)
    assert not any(counts["cut"].values())
    assert counts["seen"] == {"view": 3000}


def test_an_empty_chunk_passes():
    kept, counts = guard(chunk_of([]), Config())
    assert len(kept) == 0
    assert counts["seen"] == {}


def test_a_burst_drops_the_user_day_whole_with_its_impressions_and_no_other():
    bot = [(1, i, "click", 3.5 + i * SECOND) for i in range(31)] + [(1, 9, "impression", 3.1), (1, 9, "view", 3.9)]
    honest = [(1, 7, "view", 4.5), (2, 7, "view", 3.5)]
    kept, counts = guard(chunk_of(bot + honest), only(burst_moments=30, burst_seconds=60.0))
    assert contents(kept) == contents(chunk_of(honest))
    assert counts["cut"]["burst"] == {"click": 31, "impression": 1, "view": 1}
    assert counts["user_days"]["burst"] == 1


def test_acts_at_the_limit_or_spread_out_are_no_burst():
    at_limit = [(1, i, "click", 3.5 + i * SECOND) for i in range(30)]
    spread = [(2, i, "click", 3.5 + 3 * i * SECOND) for i in range(200)]
    over_midnight = [(3, i, "click", 4 + (i - 20) * SECOND) for i in range(40)]
    assert (
        guard(chunk_of(at_limit + spread + over_midnight), only(burst_moments=30, burst_seconds=60.0))[1]["user_days"][
            "burst"
        ]
        == 0
    )


def test_a_basket_of_many_products_at_one_moment_is_kept():
    basket = chunk_of([(1, i, "purchase", 3.5) for i in range(400)])
    assert contents(guard(basket, Config())[0]) == contents(basket)
    few_moments = chunk_of([(1, i, "purchase", 3.5 + i % 3 / 100) for i in range(60)])
    assert contents(guard(few_moments, Config())[0]) == contents(few_moments)


def test_nobody_is_awake_all_day():
    bot = [(1, i, "view", 3.01 + i / 50) for i in range(48)]
    long_day = [(2, i, "view", 3.2 + i / 100) for i in range(64)]
    idle = [(3, i, "view", 3.01 + i / 30) for i in range(29)]
    kept, counts = guard(chunk_of(bot + long_day + idle), only(awake_hours=16, judged_events=40))
    assert set(kept.user.tolist()) == {2, 3}
    assert counts["user_days"]["sleepless"] == 1


def test_few_targets_over_and_over_drop_the_user_day():
    bot = [(1, i % 8, "view", 3 + i / 100) for i in range(40)]
    person = [(2, i % 20, kind, 3 + i / 100) for i in range(40) for kind in ("view", "click", "cart")]
    few = [(3, 1, "view", 3 + i / 100) for i in range(39)]
    kept, counts = guard(chunk_of(bot + person + few), only(repetition=4.0, judged_events=40))
    assert set(kept.user.tolist()) == {2, 3}
    assert counts["user_days"]["repetition"] == 1


def test_coming_back_to_few_targets_all_day_drops_the_user_day():
    kinds = ("view", "click", "cart", "purchase")
    bot = [(1, i % 5, kinds[i % 4], 3 + i / 60) for i in range(30)] + [
        (1, 50 + i, "view", 3.6 + i / 99) for i in range(25)
    ]
    buyer = [(2, i % 12, kinds[i // 12], 3 + i / 60) for i in range(48)]  # every step of a purchase, twelve times
    basket = [(3, i % 4, "purchase", 3.5) for i in range(40)]
    brief = [(4, 1, "view", 3 + i / 60) for i in range(19)]
    more = [(5, *event[1:]) for event in bot] + [(5, 80 + i, "view", 3.7 + i / 999) for i in range(10)]
    kept, counts = guard(
        chunk_of(bot + buyer + basket + brief + more), only(focus_moments=5, focus_share=0.5, focus_events=20)
    )
    assert set(kept.user.tolist()) == {2, 3, 4, 5}
    assert counts["user_days"]["focus"] == 1
    assert sum(counts["cut"]["focus"].values()) == 55


def test_repeats_keep_the_first_of_each_type_and_target():
    rows = [(1, 5, "view", 3.1 + i / 100) for i in range(7)] + [(1, 5, "cart", 3.5), (1, 6, "view", 3.5)]
    kept, counts = guard(chunk_of(rows), only(repeats=5))
    assert contents(kept) == contents(chunk_of(rows[:5] + rows[7:]))
    assert counts["cut"]["repeats"] == {"view": 2}


def test_caps_of_a_day_count_engagement_impressions_and_rejections_apart():
    kinds = ("view", "impression", "not_interested")
    rows = [(1, i, kind, 3.1 + i / 1000) for kind in kinds for i in range(10)]
    kept, counts = guard(chunk_of(rows), only(user_day=4, impressions=5, not_interested=6))
    kinds_kept = Counter(EVENT_TYPES[kind] for kind in kept.kind.tolist())
    assert kinds_kept == {"view": 4, "impression": 5, "not_interested": 6}
    assert [cut(counts, rule) for rule in ("user_day", "impressions", "not_interested")] == [6, 5, 4]
    assert kept.product.max() == 5


def test_weights_are_lowered_to_the_cap():
    chunk = chunk_of([(1, 5, "view", 3.1), (2, 5, "view", 3.2)])
    heavy = replace(chunk, weight=np.array([1e9, 3], np.float32))
    kept, counts = guard(heavy, only(max_weight=100.0))
    assert kept.weight.tolist() == [100, 3]
    assert counts["weights_capped"] == 1


def test_a_user_with_a_great_many_events_leaves_at_most_the_caps():
    rng = np.random.default_rng(0)
    rows = [(1, int(p), "view", 3 + t) for p, t in zip(rng.integers(0, 50, 20_000), rng.random(20_000), strict=True)]
    kept, _ = guard(chunk_of(rows), only(user_day=500, repeats=5))
    assert len(kept) == 250


ROWS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(-1, 3),
        st.sampled_from(("view", "cart", "impression", "not_interested")),
        st.integers(0, 40).map(lambda tenth: tenth / 20),
    ),
    max_size=60,
)
TIGHT = Config(
    burst_moments=3, burst_seconds=3 * 4320.0, awake_hours=4, repetition=2.0, judged_events=6, focus_moments=2,
    focus_share=0.75, focus_events=4, repeats=2, user_day=5, impressions=3, not_interested=2,
)  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(rows=ROWS)
def test_equals_the_rules_written_as_loops(rows):
    chunk = chunk_of(rows, (0, 2))
    kept, counts = guard(chunk, TIGHT)
    groups = [GROUP[kind] for kind in kept.kind.tolist()]
    assert Counter(zip(kept.user.tolist(), kept.time.tolist(), groups, strict=True)) == Counter(_loops(chunk))
    assert sum(counts["seen"].values()) == len(kept) + sum(cut(counts, rule) for rule in RULES)


@settings(deadline=None, max_examples=50)
@given(rows=ROWS, seed=st.integers(0, 9))
def test_the_order_of_rows_and_the_split_into_days_do_not_matter(rows, seed):
    chunk = chunk_of(rows, (0, 2))
    kept, counts = guard(chunk, TIGHT)
    again, same = guard(shuffled_ties(chunk, seed), TIGHT)
    assert contents(again) == contents(kept)
    assert same == counts
    by_day = [guard(chunk.take(chunk.day == day), TIGHT) for day in range(-1, 3)]
    assert contents(Chunk.concatenate([part for part, _ in by_day])) == contents(kept)
    total: dict = {}
    for _, part in by_day:
        total = add_counts(total, part)
    assert total == add_counts({}, counts)


@pytest.mark.parametrize("field", ["burst_moments", "repeats", "user_day", "max_weight"])
def test_limits_below_one_are_refused(field):
    with pytest.raises(ValueError, match=field):
        Config(**{field: 0})


GROUP = [kind if kind in ("impression", "not_interested") else "engaged" for kind in EVENT_TYPES]


def _loops(chunk: Chunk) -> list[tuple[int, int, str]]:
    """(user, time, group of types) of what passes TIGHT, one user-day at a time."""
    days = defaultdict(list)
    for user, day, product, kind, time in zip(
        *(getattr(chunk, name).tolist() for name in ("user", "day", "product", "kind", "time")), strict=True
    ):
        days[user, day].append((time, product, EVENT_TYPES[kind]))
    passed = []
    for (user, _), events in days.items():
        engaged = sorted(event for event in events if event[2] not in ("impression", "not_interested"))
        moments = sorted({time for time, _, _ in engaged})
        burst = any(b - a <= 3 * MICROS_PER_DAY // 20 for a, b in zip(moments, moments[3:], strict=False))
        acts = {(product, kind) for _, product, kind in engaged}
        hours = {time // 3_600_000_000 for time, _, _ in engaged}
        visits = Counter(product for _, product in {(time, product) for time, product, _ in engaged})
        again = sum(count for count in visits.values() if count >= 2)
        focused = visits.total() >= 4 and again >= 0.75 * visits.total()
        if burst or focused or (len(engaged) >= 6 and (len(engaged) > 2 * len(acts) or len(hours) > 4)):
            continue
        left: Counter = Counter()
        for time, product, kind in sorted(events):
            group = GROUP[EVENT_TYPES.index(kind)]
            left[product, kind] += 1
            if kind != "impression" and left[product, kind] > 2:
                continue
            left[group] += 1
            if left[group] <= {"engaged": 5, "impression": 3, "not_interested": 2}[group]:
                passed.append((user, time, group))
    return passed
