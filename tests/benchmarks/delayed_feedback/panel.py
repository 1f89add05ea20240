"""Real delays: will a household buy a product again within 28 days? Complete Journey, at five cuts of its year.

Rows are products of baskets; the "click" is a purchase, the conversion the next one of the same product by the same
household; groups of delay laws are the ranker's. Trained on the `DAYS` days before a cut, judged on the two weeks after
it, whose windows the year holds.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import parquet

from data.schema import MICROS_PER_DAY
from data.sources.completejourney import folder
from ranking.delayed import NEVER, Clicks, law_step
from tests.benchmarks.delayed_feedback.log import DAYS, Log

WINDOW_DAYS, TEST_DAYS = 28, 14
CUTS = (190, 220, 250, 280, 310)
"""Days of the year."""

_COUNTS, _GAPS = 6, 7


def logs(number: int) -> tuple[Log, Log]:
    """Rows before and after cut `number` of `CUTS`."""
    whole, start = _whole()
    cut = start + CUTS[number] * MICROS_PER_DAY
    bounds = ((cut - DAYS * MICROS_PER_DAY, cut), (cut, cut + TEST_DAYS * MICROS_PER_DAY))
    before, after = (_part(whole, (whole.clicks.ts >= low) & (whole.clicks.ts < high), cut) for low, high in bounds)
    return before, after


def _part(log: Log, rows: NDArray[np.bool_], cut: int) -> Log:
    clicks = Clicks(log.clicks.ts[rows], log.clicks.reported[rows], log.clicks.group[rows], log.clicks.window)
    return Log(log.codes[rows], log.sizes, log.numbers[rows], clicks, cut, None)


@cache
def _whole() -> tuple[Log, int]:
    """All rows of the year, and its first moment [us]. Earlier purchases of the pair are counted as of the row."""
    names = ["household_id", "product_id", "transaction_timestamp"]
    bought = parquet.read_table(folder() / "transactions.parquet", columns=names)
    bought = bought.group_by(names, use_threads=False).aggregate([]).combine_chunks()
    ts = bought[names[2]].cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()
    household, product = (bought[name].combine_chunks().dictionary_encode() for name in names[:2])
    pair = household.indices.to_numpy().astype(np.int64) * len(product.dictionary) + product.indices.to_numpy()
    order = np.lexsort((ts, pair))
    ts, pair = ts[order], pair[order]
    same = np.append(pair[1:] == pair[:-1], False)
    ahead = np.append(np.diff(ts), 0)
    again = same & (ahead <= WINDOW_DAYS * MICROS_PER_DAY)
    department, kind, sizes = _categories(product.dictionary)
    product_code = product.indices.to_numpy()[order]
    first = np.flatnonzero(np.append(True, ~same[:-1]))
    earlier = np.arange(len(ts)) - np.repeat(first, np.diff(np.append(first, len(ts))))
    gap = np.append(0, ahead[:-1]) / MICROS_PER_DAY
    counts = law_step(earlier)
    gaps = np.where(earlier > 0, np.minimum(1 + np.log2(gap.clip(1)), _GAPS - 1), 0).astype(np.int64)
    group = department[product_code] * _COUNTS + counts
    clicks = Clicks(ts, np.where(again, ts + ahead, NEVER), group, WINDOW_DAYS * MICROS_PER_DAY)
    codes = np.stack([department[product_code], kind[product_code], counts, gaps], axis=1)
    return Log(codes, (*sizes, _COUNTS, _GAPS), np.zeros((len(ts), 0)), clicks, 0, None), int(ts.min())


def _categories(products: pa.Array) -> tuple[NDArray, NDArray, tuple[int, int]]:
    """Codes of the department and the category of each of `products`, and how many there are of each."""
    table = parquet.read_table(folder() / "products.parquet", columns=["product_id", "department", "product_category"])
    table = table.take(pc.index_in(products, value_set=table["product_id"].combine_chunks()))
    found = [table[name].combine_chunks().fill_null("").dictionary_encode() for name in table.column_names[1:]]
    department, kind = (np.asarray(codes.indices) for codes in found)
    return department, kind, (len(found[0].dictionary), len(found[1].dictionary))
