"""The reading commands on a published snapshot, and what they say when it is torn or held by another run."""

import json
import shutil
import time
from pathlib import Path

import pytest

from data import lease, snapshot
from data.artifacts import Store
from tests.end_to_end.conftest import SHOP
from tests.fixtures.command_line import strata, strata_process

pytestmark = pytest.mark.slow


def test_run_prints_every_figure_and_a_second_run_reuses_every_stage(published):
    store, found = published
    assert {row["method"] for row in found["retrieval"]} >= {"popularity", "item-kNN", "content only", "learner"}
    assert [row["level"] for row in found["levels"]] == [1, 2]
    arms = {(row["model"], row["arm"]): row for row in found["ranker"]["comparison"]["summary"]}
    assert {("ranker", "tokens"), ("ranker", "no_tokens")} <= set(arms)
    assert Path(found["report"]).stat().st_size > 50_000
    started = time.monotonic()
    again = strata_process("run", "--config", SHOP, "--direct", "--store", store, "--json")
    assert time.monotonic() - started < 60
    assert json.loads(again.stdout)["snapshot"] == found["snapshot"]
    assert again.stderr.count("reused") == len(found["stages"])


@pytest.mark.parametrize(
    ("arguments", "first"),
    [
        (("product", "p001"), None),
        (("user", "u003"), None),
        (("advertiser", "a00"), None),
        (("primitive", "L1-0000"), None),
        (("text", "ground coffee"), "Coffee"),
    ],
)
def test_queries_answer_with_known_products(published, arguments, first):
    result = strata("query", *arguments, "--k", 3, "--json", "--store", published[0])
    assert result.returncode == 0, result.stderr
    hits = json.loads(result.stdout)
    assert len(hits) == 3
    assert all(hit["entity_type"] == "product" and hit["entity_id"] != arguments[1] for hit in hits)
    assert first is None or first in hits[0]["category"]


def test_a_vector_query_finds_the_entity_it_belongs_to(published):
    import pyarrow.compute as pc

    store = Store(published[0])
    table = snapshot.load(store).ref(store, "embeddings").table("embeddings/")
    own = table.filter(pc.equal(table["entity_id"], "p001")).to_pylist()[-1]["vector"]
    hits = json.loads(strata("query", "vector", json.dumps(own), "--k", 1, "--json", "--store", store.root).stdout)
    assert hits[0]["entity_id"] == "p001"


def test_tokens_are_a_bag_by_level_and_respect_the_date(published):
    store, found = published
    latest = json.loads(strata("tokens", "user", "u003", "--json", "--store", store).stdout)
    assert {row["level"] for row in latest["tokens"]} == {1, 2}
    assert sum(row["weight"] for row in latest["tokens"] if row["level"] == 1) == pytest.approx(1, abs=1e-4)
    early = json.loads(strata("tokens", "user", "u003", "--as-of", "2024-02-28", "--json", "--store", store).stdout)
    assert early["as_of"] <= "2024-02-28" < latest["as_of"] <= found["as_of"]
    assert strata("tokens", "user", "u003", "--as-of", "2024-01-05", "--store", store).returncode == 3


def test_unknown_ids_are_bad_data_and_plain_tables_are_printed(published):
    store = published[0]
    for arguments in (("query", "product", "p0x1"), ("tokens", "user", "nobody"), ("query", "vector", "[1, 2]")):
        result = strata(*arguments, "--store", store)
        assert result.returncode == 3, (arguments, result.stderr)
        assert "Traceback" not in result.stderr
    for arguments in (
        ("show",),
        ("show", "learner"),
        ("status",),
        ("verify",),
        ("report",),
        ("tokens", "user", "u003"),
        ("query", "path", "L2-0000"),
        ("query", "distance", "L1-0000", "L1-0001"),
        ("query", "between", "L1-0000", "L1-0001", "--by", "vector"),
        ("query", "advertiser", "a00", "--find", "primitive", "--by", "tokens"),
        ("query", "primitive", "L1-0000", "--find", "user", "--by", "tokens"),
    ):
        result = strata(*arguments, "--store", store)
        assert result.returncode == 0, result.stderr
        assert result.stdout.strip()


def test_verify_finds_an_altered_byte_and_queries_refuse_a_torn_file(published, tmp_path):
    store = tmp_path / "store"
    shutil.copytree(published[0], store)
    index = next(store.glob("index/*/product.faiss"))
    bytes_before = index.read_bytes()
    index.write_bytes(bytes_before[:-1] + bytes([bytes_before[-1] ^ 1]))
    altered = strata("verify", "--store", store)
    assert altered.returncode == 3
    assert "product.faiss was altered" in altered.stderr
    index.write_bytes(bytes_before[:-7])
    for command in (("query", "product", "p001"), ("run", "--config", SHOP, "--direct")):
        torn = strata(*command, "--store", store)
        assert torn.returncode == 3, torn.stderr
        assert "torn" in torn.stderr
        assert "Delete" in torn.stderr


def test_two_runs_at_once_the_second_is_told_who_works(published, tmp_path):
    store = Store(tmp_path / "store")
    key = snapshot.load(Store(published[0])).stages["events"]
    with lease.hold(store.work("events", key), "events"):
        result = strata("run", "--config", SHOP, "--direct", "--store", store.root)
    assert result.returncode == 4, result.stderr
    assert "is being written by process" in result.stderr
    assert not (store.root / "CURRENT").exists()
