"""A day later: the frozen learner stays, old dates are linked, what is new has tokens that day, and all is as if made
at once."""

import json
import os
import shutil
import signal
import time

import pyarrow.parquet as pq
import pytest

from data.artifacts import ArtifactRef, Store
from data.snapshot import Snapshot
from data.timegrid import EMBEDDINGS, TOKENS
from hierarchy.query import tokens_of
from tests.end_to_end import shop_days as days
from tests.fixtures.command_line import strata

pytestmark = pytest.mark.slow
MONDAY, TUESDAY = "2024-03-01T00:00:00Z", "2024-03-02T00:00:00Z"
GROWN = ("graph", "features", "learner", "embeddings", "supergraph", "tokens", "index")


@pytest.fixture(scope="module")
def shops(tmp_path_factory):
    """Monday's and Tuesday's files."""
    folder = tmp_path_factory.mktemp("shops")
    return days.shop(folder / "monday", opened=False), days.shop(folder / "tuesday")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("daily") / "store"


@pytest.fixture(scope="module")
def monday(shops, store):
    return days.run(shops[0], store, MONDAY)


@pytest.fixture(scope="module")
def tuesday(shops, store, monday):
    began = {name: _changed(monday[name]) for name in ("learner", "supergraph")}
    found = days.run(shops[1], store, TUESDAY)
    assert began == {name: _changed(found[name]) for name in began}, "frozen artifacts are not touched"
    return found


def _changed(ref: ArtifactRef) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in ref.path.iterdir()}


def _hashes(ref: ArtifactRef) -> dict[str, str]:
    return {name: listed["sha256"] for name, listed in ref.manifest["files"].items()}


def test_the_learner_and_its_vocabulary_are_not_made_again(monday, tuesday):
    for stage in ("learner", "supergraph"):
        assert tuesday[stage] == monday[stage]
    assert tuesday["graph"].key != monday["graph"].key
    assert tuesday["embeddings"].manifest["inputs"]["previous"] == monday["embeddings"].key


def test_old_dates_are_linked_and_only_new_content_is_encoded(monday, tuesday):
    for stage, folder in (("embeddings", EMBEDDINGS), ("tokens", TOKENS)):
        old, new = monday[stage].names(folder), tuesday[stage].names(folder)
        assert old[:-1] == new[:-1], "the last date of a run stands beside the grid"
        assert len(old) == len(new) == 3
        for name in new[:-1]:
            assert tuesday[stage].file(name).samefile(monday[stage].file(name))
        assert tuesday[stage].metrics["lent_dates"] == 2
    assert monday["features"].metrics["encoded"] > 50
    assert tuesday["features"].metrics["encoded"] == 1


def test_the_grown_day_equals_a_run_from_scratch_byte_for_byte(shops, tuesday, tmp_path):
    whole = days.run(shops[1], tmp_path / "store", TUESDAY)
    for stage in GROWN:
        assert _hashes(tuesday[stage]) == _hashes(whole[stage]), stage
    assert tuesday["learner"].key == whole["learner"].key
    assert tuesday["supergraph"].key == whole["supergraph"].key


@pytest.mark.parametrize(("kind", "entity"), [("product", days.NEW), ("user", days.NEW_USER)])
def test_what_is_new_has_tokens_the_same_day(store, tuesday, kind, entity):
    published = Snapshot("day", {name: ref.key for name, ref in tuesday.items()}, "", "", 0)
    bag = tokens_of(Store(store), published, kind, entity)
    assert {row["level"] for row in bag} == {1, 2}
    assert {row["as_of"] for row in bag} == {tuesday["embeddings"].metrics["last_as_of"]}
    assert tokens_of(Store(store), published, kind, entity, as_of=bag[0]["as_of"] - 1) == []


def test_a_kill_amid_the_day_and_the_same_command_again(processes, shops, store, monday, tuesday, tmp_path):
    half, log = tmp_path / "store", tmp_path / "log.txt"
    shutil.copytree(store, half)
    for stage in set(tuesday) - {"learner", "supergraph"}:
        shutil.rmtree(half / stage / tuesday[stage].key)
    child = processes.Process(target=days.run, args=(str(shops[1]), str(half), TUESDAY, "index", str(log)))
    child.start()
    deadline = time.monotonic() + 120
    while child.is_alive() and time.monotonic() < deadline:
        if log.exists() and "> embeddings " in log.read_text():
            os.kill(child.pid, signal.SIGKILL)
            break
        time.sleep(0.002)
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert not (half / "embeddings" / tuesday["embeddings"].key).exists()
    again = days.run(shops[1], half, TUESDAY)
    assert {stage: ref.key for stage, ref in again.items()} == {stage: ref.key for stage, ref in tuesday.items()}
    for stage in GROWN:
        assert _hashes(again[stage]) == _hashes(tuesday[stage]), stage


def test_an_altered_past_is_learned_anew_and_says_why(shops, store, monday, tuesday, tmp_path):
    """A product that was known before t0 is described otherwise now."""
    altered = days.shop(tmp_path / "altered")
    catalogue = altered / "shop_products.csv"
    catalogue.write_text(catalogue.read_text().replace("Rustic Espresso Beans No 0", "Garden Hose"))
    log = tmp_path / "log.txt"
    found = days.run(altered, store, TUESDAY, log=log)
    said = log.read_text()
    assert found["learner"].key != tuesday["learner"].key
    assert f"! learner is made anew: what learner {tuesday['learner'].key} saw of features was altered since" in said
    assert found["embeddings"].metrics["lent_dates"] == 0


def test_the_day_is_published_without_a_ranker_and_answers_files_of_new_products(shops, store, tuesday, tmp_path):
    """Through the command line: what a scheduler runs, and what is asked of it afterwards."""
    shop = ("--config", shops[1] / "shop.toml", "--store", store)
    ran = strata("run", *shop, "--as-of", TUESDAY, "--direct", "--until", "index", "--publish", "--json")
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("reused") == len(tuesday)
    said = json.loads(ran.stdout)
    assert said["snapshot"]
    assert json.loads(strata("show", "--store", store, "--json").stdout)["snapshot"] == said["snapshot"]
    assert strata("tokens", "product", days.NEW, "--store", store).returncode == 0
    (tmp_path / "new.csv").write_text(
        "product_id,title,category,price,users\nn1,Ground Coffee,Drinks > Coffee,4.5,u001;u002\nn2,Garden Hose,,,\n"
    )
    out = tmp_path / "tokens.parquet"
    asked = strata("tokens", "product", "--new", tmp_path / "new.csv", "--out", out, "--store", store)
    assert asked.returncode == 0, asked.stderr
    assert "2 entities as of 2024-03-02" in asked.stdout
    assert {row["entity_id"] for row in pq.read_table(out).to_pylist()} == {"n1", "n2"}
    (tmp_path / "known.csv").write_text(f"product_id,title\n{days.NEW},Espresso\n")
    refused = strata("tokens", "product", "--new", tmp_path / "known.csv", "--store", store)
    assert refused.returncode == 3
    assert "known to the graph already" in refused.stderr
    assert "Traceback" not in refused.stderr
