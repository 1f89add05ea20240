import threading
import time

import pytest

from data.prefetch import Prefetched


def counted(made, count=100):
    for number in range(count):
        made.append(number)
        yield number


def broken():
    yield 1
    yield 2
    raise OSError("disk gone")


@pytest.mark.parametrize("depth", [0, 1, 3, 200])
def test_items_come_in_order_and_once(depth):
    with Prefetched(counted([]), depth) as items:
        assert list(items) == list(range(100))
        assert list(items) == []


@pytest.mark.parametrize("depth", [0, 2])
def test_an_exception_comes_where_its_item_was_due(depth):
    with Prefetched(broken(), depth) as items:
        assert [next(items), next(items)] == [1, 2]
        with pytest.raises(OSError, match="disk gone"):
            next(items)


def test_an_exception_stays_when_asked_again():
    with Prefetched(broken(), 1) as items:
        for _ in range(2):
            next(items)
        for _ in range(3):
            with pytest.raises(OSError, match="disk gone"):
                next(items)


def test_no_more_than_the_depth_is_made_ahead():
    made = []
    with Prefetched(counted(made), 3) as items:
        next(items)
        time.sleep(0.2)
        assert len(made) <= 1 + 3 + 1  # taken, waiting, and one in the hand of the thread
        assert len(made) >= 4


def test_leaving_early_stops_the_thread():
    before = threading.active_count()
    made = []
    with Prefetched(counted(made), 2) as items:
        next(items)
    assert threading.active_count() == before
    assert len(made) < 100


def test_items_are_made_while_the_reader_works():
    def slow():
        for number in range(5):
            time.sleep(0.05)
            yield number

    shares = []
    for depth in (0, 2):
        with Prefetched(slow(), depth) as items:
            for _ in items:
                time.sleep(0.08)
        shares.append(items.wait_share)
    assert 0.25 < shares[0] < 0.6
    assert shares[1] < 0.2
