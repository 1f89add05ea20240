"""Canaries planted in the future of the rows' times reach no history and no count of the ranker's examples."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from data.artifacts import ArtifactRef
from data.generator import log, tables
from data.generator.config import Config
from data.generator.plan import make_plan
from data.schema import TOKENS
from ranking.asof import AsOf, Ints
from tests.ranking.shops import CONTENT_DIM, T0, Shop, make_examples

CONFIG = Config(
    users=200,
    products=150,
    events=90_000,
    days=60,
    start=T0 - timedelta(days=30),
    canaries=4000,
    canary_day=50,
)
LIMIT = CONFIG.midnight(CONFIG.canary_day)
SAMPLES = 1_000_000


def shop(config: Config) -> Shop:
    """A generated log as a shop without tokens."""
    plan = make_plan(config)
    made = {name: pa.concat_tables(getattr(tables, name)(plan)) for name in ("products", "users", "advertisers")}
    events = pa.concat_tables(table for day in range(config.days) for table in log.day(plan, day))
    content = {"p00000000": np.ones(CONTENT_DIM)}
    return Shop(events=events, tokens=TOKENS.empty_table(), content=content, **made)


@pytest.fixture(scope="module")
def planted() -> Shop:
    return shop(CONFIG)


def before_the_limit(ref: ArtifactRef) -> dict[str, np.ndarray]:
    """Rows of the examples at times before the limit that are no canaries themselves, by the names of their columns."""
    names = ("ts", "user", "product", "history_start", "history_end", "product_events", "pair_events")
    rows = {name: ref.array(f"rows/{name}.npy") for name in (*names, "visit_age", "pair_age")}
    hidden = canaries(ref, "product")[rows["product"]] | canaries(ref, "user")[rows["user"]]
    early = (rows["ts"] < LIMIT) & ~hidden
    return {name: values[early] for name, values in rows.items()}


def canaries(ref: ArtifactRef, kind: str) -> np.ndarray:
    names = ref.table(f"{kind}s.parquet")[f"{kind}_id"]
    return pc.starts_with(names, "canary").to_numpy(zero_copy_only=False)


def leaked(ref: ArtifactRef) -> tuple[int, int]:
    """Canaries among the history items of rows before the limit, and how many items those rows have."""
    rows, canary = before_the_limit(ref), canaries(ref, "product")
    items = ref.array("history/product.npy")
    passed = np.concatenate([[0], np.cumsum(canary[items] & (items >= 0))])
    start, end = rows["history_start"], rows["history_end"]
    return int((passed[end] - passed[start]).sum()), int((end - start).sum())


def test_no_history_holds_a_canary_in_a_million_items(planted: Shop, tmp_path: Path) -> None:
    found, seen = leaked(make_examples(planted, tmp_path))
    assert found == 0
    assert seen >= SAMPLES


def test_without_the_mask_the_same_check_fails(planted: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    masked = AsOf.spans

    def everything(self: AsOf, keys: Ints, times: Ints) -> tuple[Ints, Ints]:
        return masked(self, keys, np.full_like(times, np.iinfo(np.int64).max))

    monkeypatch.setattr(AsOf, "spans", everything)
    found, _ = leaked(make_examples(planted, tmp_path))
    assert found > 1000


def test_counts_and_ages_are_those_of_the_log_without_canaries(planted: Shop, tmp_path: Path) -> None:
    clean = shop(CONFIG.model_copy(update={"canaries": 0}))
    one, other = (before_the_limit(make_examples(s, tmp_path / n)) for s, n in ((planted, "a"), (clean, "b")))
    assert len(one["ts"]) > 10_000
    for name in ("ts", "product_events", "pair_events", "visit_age", "pair_age"):
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
