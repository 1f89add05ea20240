"""What stands for a learner's inputs: equal as long as nothing before t0 was altered."""

import numpy as np

from graph.store import GraphStore
from hierarchy import past
from hierarchy.embed import dates_of
from tests.fixtures.artifacts import make_ref
from tests.hierarchy import small_learner as small

T0 = small.before(small.T0)
WEEK = 7 * 86_400_000_000


def features_with(root, inputs, key, change):
    """The features of the shop after `change(name, array, ids)` of its product arrays."""
    old = inputs["features"]

    def write(out):
        for name in old.manifest["files"]:
            if not name.endswith("_product.npy"):
                out.adopt(old, name)
                continue
            array = np.array(old.array(name))
            change(array, old.table("entities_product.parquet")["entity_id"].to_pylist())
            out.write_array(name, array)

    return make_ref(root, "features", write, key)


def test_later_events_and_entities_change_nothing(root, inputs):
    cut = small.shop(root, until=T0, key="cut")
    assert past.of_learner(cut, T0) == past.of_learner(inputs, T0)
    grid = [T0, T0 + WEEK, T0 + 2 * WEEK]
    mine, whole = (past.fingerprints(each["graph"], each["features"], grid) for each in (cut, inputs))
    assert mine[0] == whole[0]
    assert mine[1].graph != whole[1].graph


def test_content_of_what_was_known_counts_and_of_what_came_later_does_not(root, inputs):
    store = GraphStore.open(inputs["graph"])
    names, known = store.entity_ids("product").to_pylist(), store.known_at("product")
    time, late, old = int(known.max()) - 1, names[-1], names[0]

    def of(entity):
        def change(array, ids):
            array[ids.index(entity)] = ~array[ids.index(entity)] if array.dtype == bool else 0

        return {**inputs, "features": features_with(root, inputs, f"changed-{entity}", change)}

    altered, plain = past.of_learner(of(old), time), past.of_learner(inputs, time)
    assert past.of_learner(of(late), time) == plain
    assert past.of_learner(of(late), time + 1) != past.of_learner(inputs, time + 1)
    assert altered["features"] != plain["features"]
    assert altered["graph"] == plain["graph"]


def test_the_last_date_of_a_run_stands_beside_the_grid():
    from hierarchy.embed import Config

    day = WEEK // 7
    assert dates_of(Config(t0=small.T0), T0 + 2 * WEEK) == [T0, T0 + WEEK, T0 + 2 * WEEK]
    moment = small.T0.replace(day=small.T0.day + 9)
    assert dates_of(Config(t0=small.T0, as_of=moment), 0) == [T0, T0 + WEEK, T0 + 9 * day]
    on_grid = small.T0.replace(day=small.T0.day + 7)
    assert dates_of(Config(t0=small.T0, as_of=on_grid), 0) == [T0, T0 + WEEK]
