"""Fingerprints of the past: later days leave them alone, whatever alters the past changes them."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from data.schema import MICROS_PER_DAY
from graph.past import fingerprints
from tests.graph.logs import FIRST, make, until, usual, write_log

MIDNIGHT = (FIRST + 4) * MICROS_PER_DAY
GRID = [MIDNIGHT, MIDNIGHT + MICROS_PER_DAY, MIDNIGHT + 3 * MICROS_PER_DAY]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return make(folder / "graph", write_log(folder / "events", usual()))


def built(folder, log, **options):
    known = options.pop("known", 0)
    return make(folder / "graph", write_log(folder / "events", log, known=known), **options)


def test_later_days_leave_the_past_as_it_is_however_the_graph_was_built(tmp_path, whole):
    early = built(tmp_path / "one", until(usual(), 4))
    grown = make(tmp_path / "grown", write_log(tmp_path / "events", usual()), early)
    assert fingerprints(early, GRID[:1]) == fingerprints(whole, GRID[:1]) == fingerprints(grown, GRID[:1])
    assert fingerprints(built(tmp_path / "two", until(usual(), 7)), GRID) == fingerprints(whole, GRID)
    assert len(set(fingerprints(whole, GRID))) == len(GRID)


def test_a_time_alone_and_at_the_start_of_a_list_is_the_same(whole):
    assert fingerprints(whole, GRID[:1])[0] == fingerprints(whole, GRID)[0]


@pytest.mark.parametrize("change", [{"user_id": "u0x"}, {"product_id": "p13"}, {"sample_prob": 0.25}, None])
def test_an_event_of_the_past_that_is_another_one_or_missing_changes_it(tmp_path, whole, change):
    rows = usual().to_pylist()
    rows[3:4] = [] if change is None else [rows[3] | change]
    log = pa.Table.from_pylist(rows, schema=usual().schema)
    assert fingerprints(built(tmp_path, log), GRID)[0] != fingerprints(whole, GRID)[0]


def test_an_event_after_the_time_changes_later_ones_only(tmp_path, whole):
    seen = pc.max_element_wise(pc.add(usual()["ts"], 1), usual()["known_at"]).to_numpy()
    row = int((seen > GRID[1]).argmax())
    log = pa.concat_tables([usual().slice(0, row), usual().slice(row + 1)])
    mine, theirs = fingerprints(built(tmp_path, log), GRID), fingerprints(whole, GRID)
    assert mine[:2] == theirs[:2]
    assert mine[2] != theirs[2]


def test_what_the_catalogue_said_and_how_edges_were_made_are_part_of_it(tmp_path, whole):
    later = built(tmp_path / "one", usual(), known=(FIRST + 2) * MICROS_PER_DAY)
    assert fingerprints(later, GRID)[0] != fingerprints(whole, GRID)[0]
    other = built(tmp_path / "two", usual(), engagement=("view",))
    assert fingerprints(other, GRID)[0] != fingerprints(whole, GRID)[0]


def test_a_day_counts_whole_from_its_first_moment(tmp_path, whole):
    """Conservative: an unfinished day never passes for the finished one."""
    noon = MIDNIGHT + MICROS_PER_DAY + MICROS_PER_DAY // 2
    log = usual()
    seen = pc.max_element_wise(pc.add(log["ts"], 1), log["known_at"])
    half = built(tmp_path, log.filter(pc.less_equal(seen, noon)))
    assert fingerprints(half, [MIDNIGHT]) == fingerprints(whole, [MIDNIGHT])
    assert fingerprints(half, [noon]) != fingerprints(whole, [noon])
