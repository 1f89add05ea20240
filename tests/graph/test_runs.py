import numpy as np
import pytest

from graph.chunks import Chunk
from graph.csr import EdgeList, to_csr
from graph.runs import arrange


@pytest.mark.parametrize(("moments", "products"), [(1, 3), (7, 20), (100_000, 20)])
@pytest.mark.parametrize(("src", "dst"), [("user", "product"), ("product", "user"), ("advertiser", "product")])
def test_rows_are_those_of_a_sort_by_every_key_however_much_ties(moments, products, src, dst):
    rng, count = np.random.default_rng(moments), 3_000
    time = np.sort(rng.integers(0, moments, count))
    seen = time + 1 + (rng.random(count) < 0.1)
    order = np.lexsort((time, seen))
    ends = {name: rng.integers(0, size, count).astype(np.int32) for name, size in (("user", 9), ("product", products))}
    ends |= {"advertiser": ends["product"] % 4, "campaign": np.full(count, -1, np.int32)}
    kind, weight = rng.integers(0, 3, count).astype(np.int8), rng.choice([1, 2], count).astype(np.float32)
    chunk = Chunk(**ends, kind=kind, time=time[order], visible_from=seen[order], weight=weight, first_day=0, last_day=0)
    found = arrange(chunk, src, dst, None, 20)
    columns = chunk.time, chunk.visible_from, weight, kind
    expected = to_csr(EdgeList(ends[src].astype(np.int64), ends[dst].astype(np.int64), *columns), 20, 20)
    np.testing.assert_array_equal(found.row, np.repeat(np.arange(20), np.diff(expected.rowptr)))
    for name in ("col", "visible_from", "time", "weight", "kind"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
