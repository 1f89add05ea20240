"""`strata rank` and `strata tokens --rows` on a published snapshot of a small shop."""

import json

import pyarrow.parquet as pq
import pytest

from data import snapshot
from data.artifacts import Store
from ranking import train
from ranking.fitting import Schedule
from ranking.models import Architecture
from tests.fixtures.command_line import strata
from tests.ranking.shops import make_examples, random_shop, run_stage

SIZE = Architecture(
    width=8, history_len=6, user_buckets=64, product_buckets=64, advertiser_buckets=16, category_buckets=16
)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store whose snapshot has tokens and a ranker."""
    root = tmp_path_factory.mktemp("store")
    examples = make_examples(random_shop(), root)
    config = train.Config(architecture=SIZE, schedule=Schedule(batch_rows=64), seeds=(0,), baselines=())
    refs = {name: Store(root).get(name, "k") for name in ("features", "tokens", "histories", "user_states")}
    refs |= {"examples": examples, "ranker": run_stage(root, "ranker", train, config, {"examples": examples})}
    snapshot.publish(Store(root), refs, "v", "m", snapshot_time(examples))
    return root


def snapshot_time(examples):
    return examples.json("examples.json")["end"]


def test_rank_lists_the_best_of_all_products_or_of_a_file(store, tmp_path):
    found = json.loads(strata("rank", "u-3", "--store", store, "--json").stdout)
    assert (found["candidates"], len(found["products"]), found["cold"]) == (30, 10, False)
    scores = [row["score"] for row in found["products"]]
    assert scores == sorted(scores, reverse=True)
    (tmp_path / "some.csv").write_text("product_id\np-1\nnone such\np-2\n")
    asked = ("rank", "nobody", "--candidates", tmp_path / "some.csv", "--at", "2024-04-20", "--surface", "display:1")
    said = strata(*asked, "--top", "2", "--store", store).stdout
    assert "user nobody, who has no history by then, 3 candidates at 2024-04-20" in said
    found = json.loads(strata(*asked, "--store", store, "--json").stdout)
    assert {row["product_id"]: row["known"] for row in found["products"]} == {
        "p-1": True,
        "p-2": True,
        "none such": False,
    }


@pytest.mark.parametrize(
    ("more", "text", "code", "words"),
    [
        (("--surface", "disply:1"), "product_id\np-1\n", 2, ["disply:1", "display:1"]),
        (("--fit", "ranker-tokens-5"), "product_id\np-1\n", 2, ["ranker-tokens-0"]),
        (("--at", "soon"), "product_id\np-1\n", 2, ["soon", "2017-10-01"]),
        ((), "product\np-1\n", 2, ["unknown column 'product'", "product_id"]),
        ((), 'product_id\np-1\n""\n', 3, ["row 2"]),
    ],
)
def test_wrong_questions_to_the_ranker(more, text, code, words, store, tmp_path):
    (tmp_path / "some.csv").write_text(text)
    result = strata("rank", "u-1", "--candidates", tmp_path / "some.csv", "--store", store, *more)
    assert result.returncode == code, result.stderr
    assert all(word in result.stderr for word in words), result.stderr


def test_a_snapshot_without_a_ranker_says_so(store, tmp_path):
    kept = Store(store)
    refs = {"tokens": kept.get("tokens", "k")}
    before = (store / "CURRENT").read_text()
    part = snapshot.publish(kept, refs, "v", "m", 0)
    (store / "CURRENT").write_text(before)
    result = strata("rank", "u-1", "--store", store, "--snapshot", part.id)
    assert result.returncode == 3
    assert "expected stage 'ranker'" in result.stderr


def test_tokens_are_written_row_by_row_or_for_everyone(store, tmp_path):
    (tmp_path / "rows.csv").write_text("entity_type,entity_id,ts\nuser,u-0,2024-04-20\nuser,nobody,2024-04-20\n")
    asked = ("tokens", "--rows", tmp_path / "rows.csv", "--out", tmp_path / "t.parquet", "--store", store)
    found = json.loads(strata(*asked, "--json").stdout)
    table = pq.read_table(tmp_path / "t.parquet")
    assert table["entity_id"].to_pylist() == ["u-0", "nobody"]
    assert (found["rows"], found["missing"]) == (2, 1)
    assert found["columns"] == table.column_names
    said = strata(*asked, "--flat").stdout
    assert "2 rows: " in said
    assert "level_1_slot_0" in pq.read_table(tmp_path / "t.parquet").column_names
    everyone = ("tokens", "--as-of", "2024-04-20", "--out", tmp_path / "all.parquet", "--store", store)
    assert json.loads(strata(*everyone, "--json").stdout)["rows"] == len(pq.read_table(tmp_path / "all.parquet")) > 10


def test_options_before_an_entity_still_ask_for_its_bag(store):
    result = strata("tokens", "--as-of", "soon", "user", "u-1", "--store", store)
    assert result.returncode == 2
    assert "'soon'" in result.stderr
