import numpy as np
import pyarrow as pa

from graph.ids import NODES, number


def mention(*pairs):
    ids, times = zip(*pairs, strict=True)
    return pa.array(ids, pa.string()), np.array(times, np.int64)


def test_nodes_are_numbered_by_first_mention_then_id():
    table = number([mention(("b", 9), ("a", 5), (None, 0)), mention(("b", 3), ("c", 3))])
    assert table.to_pydict() == {"entity_id": ["b", "c", "a"], "known_at": [3, 3, 5]}


def test_later_mentions_change_no_number():
    early = [mention(("x", 4), ("w", 4)), mention(("a", 7))]
    late = [*early, mention(("0", 8), ("x", 9), ("zz", 8))]
    assert number(late).slice(0, 3) == number(early)


def test_nothing_mentioned_gives_an_empty_node_table():
    assert number([]).schema == NODES
    assert number([mention((None, 1))]).num_rows == 0
