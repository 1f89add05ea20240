"""The log as day parts: what is in which file, whatever the batches it was written from."""

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest

from data import parts
from data.schema import EVENTS, MICROS_PER_DAY

DAY = MICROS_PER_DAY


def _log(times: list[tuple[int, int]]) -> pa.Table:
    rows = [
        {"event_id": f"e{i}", "user_id": "u", "product_id": "p", "event_type": "view", "sample_prob": 1.0}
        | {"ts": ts, "known_at": known, "source": "test"}
        for i, (ts, known) in enumerate(times)
    ]
    return pa.Table.from_pylist(rows, schema=EVENTS)


@pytest.mark.parametrize("piece", [1, 2, 100])
def test_a_row_lies_in_the_part_of_the_day_on_which_it_became_readable(store, make_ref, piece):
    log = _log([(5, 5), (DAY - 1, DAY - 1), (DAY, DAY), (7, DAY + 7), (3 * DAY, 3 * DAY), (9, DAY)])
    ordered = parts.in_order(log)
    pieces = [ordered.slice(start, piece) for start in range(0, len(ordered), piece)]
    ref = make_ref(store, "events", lambda out: {"rows": parts.write_events(out, pieces)}, f"by{piece}")
    assert ref.metrics["rows"] == 6
    assert parts.days(ref) == {0: 3, 1: 2, 3: 1}
    assert ref.names(parts.EVENT_PARTS) == [f"events/1970-01-0{day}.parquet" for day in (1, 2, 4)]
    assert ref.table("events/1970-01-02.parquet")["event_id"].to_pylist() == ["e3", "e2"]
    assert ref.table(parts.EVENT_PARTS).equals(ordered)
    assert sum(map(len, ref.batches(parts.EVENT_PARTS, rows=2))) == ref.rows(parts.EVENT_PARTS) == 6


def test_a_part_is_readable_in_full_at_the_midnight_that_ends_it():
    assert parts.day_of(np.array([1, DAY, DAY + 1])).tolist() == [0, 0, 1]


def test_part_names_and_days_are_each_others_inverse():
    for day in (0, 1, 17_167, 20_000):
        assert parts.part_day(parts.part_name(day)) == day


def test_a_parts_bytes_do_not_depend_on_what_lies_before_it_in_the_stream(store, make_ref, monkeypatch):
    monkeypatch.setattr(parts, "GROUP_ROWS", 4)
    log = parts.in_order(_log([(second, second) for second in range(7)] + [(DAY + s, DAY + s) for s in range(10)]))
    alone = log.filter(pa.compute.greater_equal(log["ts"], DAY))
    refs = []
    for name, table, piece in (("whole", log, 5), ("alone", alone, 3)):
        pieces = [table.slice(start, piece) for start in range(0, len(table), piece)]
        refs.append(make_ref(store, "events", lambda out, p=pieces: {"rows": parts.write_events(out, p)}, name))
    name = parts.part_name(1)
    assert refs[0].manifest["files"][name] == refs[1].manifest["files"][name]
    with pq.ParquetFile(refs[0].file(name)) as file:
        assert [file.metadata.row_group(group).num_rows for group in range(3)] == [4, 4, 2]
