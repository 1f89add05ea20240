from types import SimpleNamespace

import numpy as np
import pytest

from data.errors import UsageError
from data.schema import MICROS_PER_DAY, visible_from
from graph.asof import NodeStatistics
from graph.csr import EdgeList, to_csr
from graph.store import DEFAULT_ENGAGEMENT, ENGAGED, ENGAGED_THROUGH, Csr

OWNERS = {"apple": "farm", "pear": "farm", "bread": "mill", "soap": "mill"}
TARGETS = ("apple", "pear", "bread", "soap", "novel", "@mill", "@bank")


def log(seed: int, count: int = 300) -> list[tuple]:
    """Events of 50 days; a third of them known up to three days late."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        ts = int(rng.integers(0, 50 * MICROS_PER_DAY))
        late = int(rng.integers(0, 3 * MICROS_PER_DAY)) if number % 3 == 0 else 0
        kind = str(rng.choice(["view", "purchase", "impression", "not_interested", "click"]))
        rows.append((f"u{rng.integers(6)}", str(rng.choice(TARGETS)), kind, ts, ts + late))
    return rows


def brute_force(rows: list[tuple], kind: str, node: str, at: int) -> dict[str, float]:
    """The figures, event by event."""
    day, own, everyone = MICROS_PER_DAY, [], []
    for user, target, event, ts, known_at in rows:
        named = {"user": user, "product": None if target.startswith("@") else target}
        named["advertiser"] = target[1:] if target.startswith("@") else OWNERS.get(target)
        named["campaign"] = "spring" if target.startswith("@") else None
        seen = int(visible_from(np.array([ts]), np.array([known_at]))[0])
        if event in DEFAULT_ENGAGEMENT and named[kind] is not None:
            everyone.append(seen)
            if named[kind] == node:
                own.append((seen, ts))
    midnight = at // day * day
    month = [seen for seen in everyone if midnight - 28 * day < seen <= midnight]
    visible = sorted((seen, ts) for seen, ts in own if seen <= at)
    return {
        "degree": len(visible),
        "recent_7": sum(seen > at - 7 * day for seen, _ in visible),
        "recent_28": sum(seen > at - 28 * day for seen, _ in visible),
        "age": at - visible[-1][1] if visible else -1,
        "share": sum(midnight - 28 * day < seen <= midnight for seen, _ in own) / max(len(month), 1),
    }


@pytest.mark.parametrize("kind", ["user", "product", "advertiser", "campaign"])
def test_equals_counting_every_event(graph_of, kind):
    rows = log(1)
    store = graph_of(rows)
    rng = np.random.default_rng(2)
    nodes = rng.integers(0, store.num_nodes[kind], 80)
    times = rng.integers(0, 55 * MICROS_PER_DAY, 80)
    times[::4] = times[::4] // MICROS_PER_DAY * MICROS_PER_DAY
    found = NodeStatistics(store).at(kind, nodes, times)
    names = store.entity_ids(kind).to_pylist()
    for place, (node, at) in enumerate(zip(nodes.tolist(), times.tolist(), strict=True)):
        expected = brute_force(rows, kind, names[node], at)
        assert {name: values[place] for name, values in found.items()} == pytest.approx(expected)


def test_an_advertiser_has_the_events_on_its_products_too():
    def edges(seen: list[int]) -> Csr:
        ones = np.ones(len(seen), np.float32)
        zeros, times = np.zeros(len(seen), np.int64), np.array(seen) * MICROS_PER_DAY
        return to_csr(EdgeList(zeros, zeros, times - 5, times, ones), 1, 1)

    own = {ENGAGED["advertiser"].reverse: (edges([3, 9]), edges([30])), ENGAGED_THROUGH: (edges([29]),)}
    store = SimpleNamespace(segments=lambda relation: own[relation])
    found = NodeStatistics(store).at("advertiser", np.array([0, 0]), np.array([31, 29]) * MICROS_PER_DAY)
    assert {name: values.tolist() for name, values in found.items()} == {
        "degree": [4, 3],
        "recent_7": [2, 1],
        "recent_28": [3, 3],
        "age": [MICROS_PER_DAY + 5, 5],
        "share": [1.0, 1.0],
    }


def test_what_comes_later_changes_nothing(graph_of):
    rows = log(3)
    at = 30 * MICROS_PER_DAY
    early = [row for row in rows if max(row[3] + 1, row[4]) <= at]
    nodes = np.arange(graph_of(early).num_nodes["product"])
    times = np.full(len(nodes), at)
    whole, cut = (NodeStatistics(graph_of(log)).at("product", nodes, times) for log in (rows, early))
    assert all((whole[name] == cut[name]).all() for name in whole)


def test_an_empty_log_has_no_figures(graph_of):
    found = NodeStatistics(graph_of([])).at("product", np.array([0, 1]), np.array([5, 6]))
    assert {name: values.tolist() for name, values in found.items()} == {
        "degree": [0, 0], "recent_7": [0, 0], "recent_28": [0, 0], "age": [-1, -1], "share": [0.0, 0.0],
    }  # fmt: skip


def test_a_type_nobody_engages_with_is_refused(graph_of):
    with pytest.raises(UsageError, match="category"):
        NodeStatistics(graph_of([])).at("category", np.array([0]), np.array([0]))
