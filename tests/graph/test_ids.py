import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.engine import PIECE_ROWS, session
from graph.ids import NODES, SQL, mentions, number, translate

ODD = ["a", "\0", "b\0c", "b", "🦊", "é", "x" * 10_000, ""]


@pytest.fixture
def engine(tmp_path):
    with session(tmp_path / "spill", 1, "100MB", SQL) as opened:
        yield opened


def mention(*pairs):
    ids, times = zip(*pairs, strict=True)
    return mentions([(pa.array(ids, pa.string()), np.array(times, np.int64))])


def numbered(engine, catalogue=(), events=(), settled=(), folder=None):
    files = []
    for place, pairs in enumerate(events):
        files.append(folder / f"{place}.parquet")
        pq.write_table(mention(*pairs), files[-1])
    stand, known = (mention(*pairs) if pairs else NODES.empty_table() for pairs in (settled, catalogue))
    return pa.concat_tables([NODES.empty_table(), *number(engine, stand, known, files)]).to_pydict()


def test_nodes_are_numbered_by_first_mention_then_id(engine, tmp_path):
    found = numbered(engine, [("b", 9), ("a", 5), (None, 0)], [[("b", 3), ("c", 3)], [("c", 8)]], folder=tmp_path)
    assert found == {"entity_id": ["b", "c", "a"], "known_at": [3, 3, 5]}


def test_later_mentions_change_no_number(engine, tmp_path):
    early = [("x", 4), ("w", 4), ("a", 7)]
    short = numbered(engine, early, folder=tmp_path)
    long = numbered(engine, early, [[("0", 8), ("x", 9), ("zz", 8)]], folder=tmp_path)
    assert long["entity_id"][:3] == short["entity_id"]
    assert long["known_at"][:3] == short["known_at"]


def test_settled_nodes_keep_their_numbers_and_are_not_named_again(engine, tmp_path):
    past, new = [("x", 4), ("w", 2)], [("w", 6), ("v", 6), ("a", 7)]
    again = numbered(engine, [("b", 5)], [past, new], folder=tmp_path)
    settled = list(zip(*numbered(engine, [], [past], folder=tmp_path).values(), strict=True))
    assert numbered(engine, [("b", 5)], [new], settled, tmp_path) == again
    assert again["entity_id"] == ["w", "x", "b", "v", "a"]


def test_nothing_mentioned_gives_an_empty_node_table(engine):
    assert numbered(engine) == {"entity_id": [], "known_at": []}


def test_pieces_of_a_node_table_do_not_depend_on_what_was_settled(engine):
    names = [(f"{place:07d}", place) for place in range(3 * PIECE_ROWS + 5)]
    settled, catalogue = mention(*names[: 2 * PIECE_ROWS + 9]), mention(*names[2 * PIECE_ROWS + 9 :])
    sizes = [piece.num_rows for piece in number(engine, settled, catalogue, [])]
    assert sizes == [PIECE_ROWS, PIECE_ROWS, PIECE_ROWS, 5]


def test_any_string_is_an_id_of_its_own_and_sorts_by_its_bytes(engine, tmp_path):
    found = numbered(engine, events=[[(name, 5) for name in ODD]], folder=tmp_path)
    assert found["entity_id"] == sorted(ODD, key=lambda name: name.encode())
    pq.write_table(mention(*[(name, 0) for name in ODD]), tmp_path / "names.parquet")
    pq.write_table(mention(*[(name, 5) for name in found["entity_id"]]), tmp_path / "nodes.parquet")
    (codes,) = translate(engine, [tmp_path / "names.parquet"], tmp_path / "nodes.parquet")
    assert [found["entity_id"][code] for code in codes] == ODD


def test_files_are_translated_apart_and_ids_that_no_node_has_become_minus_one(engine, tmp_path):
    files = [tmp_path / f"{place}.parquet" for place in range(3)]
    pq.write_table(mention(("b", 1), ("nobody", 1), ("a", 1)), files[0])
    pq.write_table(NODES.empty_table(), files[1])
    pq.write_table(mention(("a", 1), ("b", 1)), files[2])
    pq.write_table(mention(("a", 1), ("b", 1)), tmp_path / "nodes.parquet")
    found = translate(engine, files, tmp_path / "nodes.parquet")
    assert [codes.tolist() for codes in found] == [[1, -1, 0], [], [0, 1]]
    assert {codes.dtype for codes in found} == {np.dtype(np.int32)}
