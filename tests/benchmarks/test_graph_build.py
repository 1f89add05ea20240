"""The benchmark's builders agree on a small shop, and its gate sees a single wrong edge."""

from pathlib import Path

import numpy as np
import pytest

from data import synthetic
from data.context import RunContext
from data.errors import BadDataError, UsageError
from graph import build
from graph.store import GraphStore
from tests.benchmarks import graph
from tests.benchmarks.graph_build import gate
from tests.benchmarks.graph_build import world as logs
from tests.benchmarks.graph_build.bench import PLAIN

pytest.importorskip("polars")
pytest.importorskip("pandas")


@pytest.fixture
def shop(store, make_ref, world):
    return make_ref(store, "events", lambda out: synthetic.write_events(world, out))


@pytest.fixture
def ours(store, make_ref, shop):
    config = build.Config(**PLAIN)
    return GraphStore.open(
        make_ref(store, "graph", lambda out: build.run(config, {"events": shop}, out, RunContext(threads=1)))
    )


def built(peer: str, events: Path, out: Path) -> Path:
    from tests.benchmarks.graph_build import pandas_csr, polars_csr

    {"pandas": pandas_csr, "polars": polars_csr}[peer].build(events, out)
    return out


@pytest.mark.parametrize("peer", ["pandas", "polars"])
def test_peers_build_the_edges_of_ours(peer, shop, ours, tmp_path):
    assert gate.check(ours, built(peer, shop.path / "events", tmp_path / "peer"), peer) > 1000


@pytest.mark.parametrize("name", ["col", "visible_from", "rowptr"])
def test_the_gate_sees_one_changed_entry(name, shop, ours, tmp_path):
    out = built("polars", shop.path / "events", tmp_path / "peer")
    file = out / "user__purchase__product" / f"{name}.npy"
    array = np.load(file)
    array[len(array) // 2] += 1
    np.save(file, array)
    with pytest.raises(BadDataError, match="user__purchase__product"):
        gate.check(ours, out, "polars")


def test_an_earlier_log_holds_nothing_of_the_last_day(store, shop):
    before = logs.before_last_day(store, shop)
    assert before.names("events/") == shop.names("events/")[:-1]
    assert before.metrics["rows"]["events"] == before.rows("events/") < shop.rows("events/")
    assert max(before.table("products.parquet")["known_at"].to_pylist()) <= max(
        before.table("events/")["known_at"].to_pylist()
    )


def test_an_unknown_part_gets_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'growth'"):
        graph._named("build,grwth", graph.PARTS)
