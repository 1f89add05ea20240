"""Whatever way a graph is built, its files are the same: chunk by chunk, day by day, after a kill, from any start."""

import functools
import shutil

import numpy as np
import pyarrow as pa
import pytest

from data.schema import MICROS_PER_DAY
from graph import assembly
from graph.catalogue import Catalogue
from graph.coengagement import Config as CoEngagement
from graph.export import export
from graph.store import CO_ENGAGED, DERIVED, RELATIONS, SHARES_USERS, GraphStore
from tests.graph.logs import FIRST, hashes, make, random_log, until, usual, write_log


@pytest.fixture(scope="module")
def at_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("at_once")
    return make(folder / "graph", write_log(folder / "events", usual()))


def day_by_day(folder, log, days, step=1, **config):
    graph = None
    for day in range(step, days + 1, step):
        graph = make(folder / f"graph{day}", write_log(folder / f"events{day}", until(log, day)), graph, **config)
    return graph


def test_the_log_of_these_tests_has_what_they_are_about(at_once):
    store = GraphStore.open(at_once)
    assert len(at_once.json("segments.json")) > 1
    for relation in (CO_ENGAGED, SHARES_USERS, *DERIVED):
        assert store.csr(relation).num_edges
    purchases = store.csr(RELATIONS[24])
    assert purchases.time is not None
    assert purchases.weight is not None


@pytest.mark.parametrize("step", [1, 2])
def test_day_by_day_leaves_the_very_files_of_all_at_once(tmp_path, step):
    log = until(usual(), 8)
    whole = make(tmp_path / "whole", write_log(tmp_path / "events", log))
    last = day_by_day(tmp_path, log, 8, step)
    assert hashes(last) == hashes(whole)
    assert last.metrics["increment"]["new_rows"] < whole.metrics["increment"]["new_rows"]
    assert {k: v for k, v in last.metrics.items() if k != "increment"} == {
        k: v for k, v in whole.metrics.items() if k != "increment"
    }


@pytest.fixture(scope="module")
def chunked(tmp_path_factory):
    """The graph built in smaller chunks, by their limits; the last are less than a day: its users are dealt out."""

    @functools.cache
    def built(chunk_rows, row_group, threads):
        folder = tmp_path_factory.mktemp("chunked")
        events = write_log(folder / "events", usual(), row_group=row_group)
        return make(folder / "graph", events, threads=threads, chunk_rows=chunk_rows)

    return built


@pytest.mark.parametrize("limits", [(150, 10, 1), (60, 25, 2), (20, 7, 2)])
def test_chunks_and_threads_change_nothing(at_once, chunked, limits):
    one, two = hashes(at_once), hashes(chunked(*limits))
    assert one.pop("segments.json") != two.pop("segments.json")  # it has the parts' hashes
    assert one == two


def test_guards_see_a_users_whole_day_however_it_is_chunked(tmp_path):
    tight = {"guards": {"user_day": 3, "repeats": 1, "impressions": 2}}
    log = until(usual(), 6)
    whole = make(tmp_path / "one", write_log(tmp_path / "events", log, row_group=10), **tight)
    dealt = make(tmp_path / "two", write_log(tmp_path / "again", log, row_group=10), chunk_rows=25, **tight)
    assert hashes(whole) == hashes(dealt)
    assert whole.metrics["guards"]["cut"]["user_day"]


@pytest.mark.parametrize(
    ("step", "after"), [("scan", 1), ("number", 2), ("encode", 3), ("write_run", 1), ("merge", 1), ("pairs", 1)]
)
def test_a_killed_build_goes_on_and_leaves_the_same_files(tmp_path, at_once, monkeypatch, step, after):
    events = write_log(tmp_path / "events", usual())
    calls = 0

    def killed(function):
        def called(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls > after:
                raise KeyboardInterrupt
            return function(*args, **kwargs)

        return called

    with monkeypatch.context() as patch:
        if step == "pairs":
            patch.setattr(assembly.Together, "edges", killed(assembly.Together.edges))
        else:
            patch.setattr(assembly, step, killed(getattr(assembly, step)))
        try:
            make(tmp_path / "graph", events, threads=2, chunk_rows=100)
        except KeyboardInterrupt:
            shutil.rmtree(tmp_path / "graph", ignore_errors=True)
    again = make(tmp_path / "graph2", events, chunk_rows=100)
    assert hashes(again) == hashes(at_once)


def test_finished_units_are_not_made_again_and_damaged_ones_are(tmp_path, at_once, monkeypatch):
    events, work = write_log(tmp_path / "events", usual()), tmp_path / "graph.work"
    make(tmp_path / "graph", events, chunk_rows=100)
    shutil.rmtree(tmp_path / "graph")
    made = []
    original = assembly.write_run
    monkeypatch.setattr(assembly, "write_run", lambda *args: (made.append(args), original(*args)))
    assert hashes(make(tmp_path / "graph", events, chunk_rows=100)) == hashes(at_once)
    assert not made
    shutil.rmtree(tmp_path / "graph")
    (work / "runs" / "leftover.draft").mkdir(parents=True, exist_ok=True)
    column = next(iter(sorted((work / "segments").rglob("col.npy"))))
    column.write_bytes(column.read_bytes()[:-1])
    assert hashes(make(tmp_path / "graph", events, chunk_rows=100)) == hashes(at_once)
    assert made


def test_unchanged_segments_are_linked_not_written(tmp_path):
    log = random_log(days=14, seed=3)
    before = make(tmp_path / "one", write_log(tmp_path / "a", until(log, 12)))
    after = make(tmp_path / "two", write_log(tmp_path / "b", until(log, 13)), before)
    assert after.metrics["increment"]["linked_segments"] >= 1
    linked = [name for name in after.names("segments/") if before.has(name)]
    assert linked
    assert all((after.path / name).samefile(before.path / name) for name in linked)


def test_an_earlier_graph_of_other_numbers_or_options_lends_nothing(tmp_path):
    """Products that became known before what the earlier graph saw shift its numbers; other options, its edges."""
    log = usual()
    late = write_log(tmp_path / "late", until(log, 7), known=(FIRST + 3) * MICROS_PER_DAY)
    now = write_log(tmp_path / "now", log)
    whole = make(tmp_path / "whole", now)
    for name, previous in {
        "moved": make(tmp_path / "one", late),
        "options": make(tmp_path / "two", write_log(tmp_path / "b", until(log, 7)), engagement=("view",)),
        "grid": make(tmp_path / "three", write_log(tmp_path / "c", until(random_log(seed=9), 7))),
    }.items():
        again = make(tmp_path / name, now, previous)
        assert hashes(again) == hashes(whole), name
        assert again.metrics["increment"]["linked_segments"] == 0


def test_a_last_day_that_grew_is_built_again(tmp_path):
    log = usual()
    noon = (FIRST + 7) * MICROS_PER_DAY + MICROS_PER_DAY // 2
    seen = np.maximum(log["ts"].to_numpy() + 1, log["known_at"].to_numpy())
    half = make(tmp_path / "half", write_log(tmp_path / "a", log.filter(pa.array(seen <= noon))))
    events = write_log(tmp_path / "b", log)
    assert hashes(make(tmp_path / "then", events, half)) == hashes(make(tmp_path / "whole", events))


def exported(store):
    return {
        relation: pa.Table.from_batches(list(export(store, relation, 37)), schema=None)
        for relation in (*RELATIONS, *DERIVED)
        if store.segments(relation)
    }


def test_the_compacted_export_in_external_ids_is_equal_whatever_the_path(at_once, chunked):
    one, two = exported(GraphStore.open(at_once)), exported(GraphStore.open(chunked(20, 7, 2)))
    assert one == two
    assert len(one) > 40


def test_the_export_holds_every_event_once(at_once):
    log, store = usual(), GraphStore.open(at_once)
    table = pa.Table.from_batches(list(export(store, RELATIONS[0])))
    events = log.filter(pa.compute.equal(log["event_type"], "impression"))
    events = events.filter(events["product_id"].is_valid())
    names = ("user_id", "product_id", "ts")
    expected = sorted(zip(*(events[name].to_pylist() for name in names), strict=True))
    came = zip(table["src"].to_pylist(), table["dst"].to_pylist(), table["time"].to_pylist(), strict=True)
    assert sorted(came) == expected


def test_a_gap_between_grid_dates_and_days_without_events(tmp_path):
    log = usual()
    grid = {"co_engagement": CoEngagement(grid_days=2, min_support=1, min_users=1)}
    whole = make(tmp_path / "whole", write_log(tmp_path / "events", log), **grid)
    assert hashes(day_by_day(tmp_path, log, 10, **grid)) == hashes(whole)


def test_what_the_catalogue_came_to_know_after_a_moment_begins_right_after_it(tmp_path):
    known = (FIRST + 3) * MICROS_PER_DAY
    catalogue = Catalogue(write_log(tmp_path, usual(), known=known))
    assert catalogue.known_after(known, "product").num_rows == 0
    assert catalogue.known_after(known - 1, "product").num_rows == catalogue.mentions["product"].num_rows > 0
