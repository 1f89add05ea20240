import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.engine import session
from graph.ids import NODES, NUMBERED, SQL, mentions, number, translate

ODD = ["a", "\0", "b\0c", "b", "🦊", "é", "x" * 10_000, ""]


@pytest.fixture
def engine(tmp_path):
    with session(tmp_path / "spill", 1, "100MB", SQL) as opened:
        yield opened


def mention(*pairs):
    ids, times = zip(*pairs, strict=True)
    return mentions([(pa.array(ids, pa.string()), np.array(times, np.int64))])


def numbered(engine, catalogue=(), events=(), before=(), folder=None):
    files = []
    for place, pairs in enumerate(events):
        files.append(folder / f"{place}.parquet")
        pq.write_table(mention(*pairs), files[-1])
    tables = (mention(*pairs) if pairs else NODES.empty_table() for pairs in (catalogue, before))
    known, earlier = tables
    return pa.concat_tables([NUMBERED.empty_table(), *number(engine, known, files, earlier)]).to_pydict()


def test_nodes_are_numbered_by_first_mention_then_id(engine, tmp_path):
    found = numbered(engine, [("b", 9), ("a", 5), (None, 0)], [[("b", 3), ("c", 3)], [("c", 8)]], folder=tmp_path)
    assert found == {"entity_id": ["b", "c", "a"], "known_at": [3, 3, 5], "event_at": [3, 3, None]}


def test_later_mentions_change_no_number(engine, tmp_path):
    early = [("x", 4), ("w", 4), ("a", 7)]
    short = numbered(engine, early, folder=tmp_path)
    long = numbered(engine, early, [[("0", 8), ("x", 9), ("zz", 8)]], folder=tmp_path)
    assert long["entity_id"][:3] == short["entity_id"]
    assert long["known_at"][:3] == short["known_at"]


def test_what_an_earlier_graph_saw_counts_as_if_it_were_read_again(engine, tmp_path):
    past, new = [("x", 4), ("w", 2)], [("w", 6), ("v", 6)]
    again = numbered(engine, [("v", 1)], [past, new], folder=tmp_path)
    assert numbered(engine, [("v", 1)], [new], past, tmp_path) == again


def test_nothing_mentioned_gives_an_empty_node_table(engine):
    assert numbered(engine) == {"entity_id": [], "known_at": [], "event_at": []}


def test_any_string_is_an_id_of_its_own_and_sorts_by_its_bytes(engine, tmp_path):
    found = numbered(engine, events=[[(name, 5) for name in ODD]], folder=tmp_path)
    assert found["entity_id"] == sorted(ODD, key=lambda name: name.encode())
    pq.write_table(mention(*[(name, 0) for name in ODD]), tmp_path / "names.parquet")
    pq.write_table(mention(*[(name, 5) for name in found["entity_id"]]), tmp_path / "nodes.parquet")
    codes = translate(engine, tmp_path / "names.parquet", tmp_path / "nodes.parquet")
    assert [found["entity_id"][code] for code in codes] == ODD


def test_ids_that_no_node_has_translate_to_minus_one(engine, tmp_path):
    pq.write_table(mention(("b", 1), ("nobody", 1), ("a", 1)), tmp_path / "names.parquet")
    pq.write_table(mention(("a", 1), ("b", 1)), tmp_path / "nodes.parquet")
    assert translate(engine, tmp_path / "names.parquet", tmp_path / "nodes.parquet").tolist() == [1, -1, 0]
