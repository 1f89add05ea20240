"""The retrain benchmark on the fixture shop: two vocabularies, one chain of ids, rows that say what changed."""

import csv
import dataclasses

import pytest

from data import snapshot
from data.artifacts import Store
from data.errors import BadDataError
from flows import token_diff
from tests.benchmarks import churn, rows
from tests.fixtures.vocabularies import copy_shop

pytestmark = pytest.mark.slow
BASE = churn.Base("demo", None, 14, recall=True)
LATER = churn.variants(3.0, 0.1, {"steps": 5})


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("churn")
    config = copy_shop(folder)
    quick = config.read_text().replace("steps = 40", "steps = 20")
    config.write_text(quick.replace("t0 = 2024-02-20", "t0 = 2024-02-06"))
    (found,) = churn.retrain(BASE._replace(toml=config), [7], LATER, folder / "stores", folder / "results")
    return Store(folder / "stores" / "seed-7"), found, folder / "results" / "hierarchy.csv"


def test_rows_tell_every_level_with_and_without_alignment(measured):
    _, found, file = measured
    with open(file, newline="", encoding="utf-8") as stream:
        made = list(csv.DictReader(stream))
    assert list(made[0]) == list(rows.COLUMNS)
    assert len({row["shape"] for row in made}) == 1
    assert made[0]["shape"].startswith("shop, seed 7, t0 2024-02-06 and 2024-02-20, bags of 2024-03-")
    metric = churn._NAMED["strongest_changed"]
    for variant, difference in found.items():
        for level in difference["levels"]:
            own = [row for row in made if row["what"] == f"level {level['level']}, {level['entities']} entities"]
            told = {row["peer"]: float(row["p50"]) for row in own if row["metric"] == metric}
            assert told[f"{variant}, aligned"] == level["strongest_changed"]
            assert told[f"{variant}, not aligned"] == level["raw_strongest_changed"]
            assert variant != churn.COLD or told[f"{variant}, aligned"] < told[f"{variant}, not aligned"]
    assert {row["metric"] for row in made if row["what"] == "Procrustes"} == {"residual", "cosine"}
    assert any("product, rare" in row["what"] for row in made)
    recalls = [row for row in made if row["metric"] == "recall@20"]
    assert {row["peer"] for row in recalls} == {"learner of 2024-02-06", *LATER}
    assert len(recalls) == len({(row["peer"], row["what"]) for row in recalls})


def test_a_learner_that_goes_on_changes_fewer_tokens_and_hysteresis_fewer_still(measured):
    _, found, _ = measured
    for level in range(2):
        cold, warm, anchored, held = (found[name]["levels"][level]["strongest_changed"] for name in LATER)
        assert cold > 2 * warm
        assert warm >= anchored >= held
    assert len({difference["compared_at"] for difference in found.values()}) == 1


def test_vocabularies_that_do_not_belong_together_are_refused(measured):
    store, _, _ = measured
    two = sorted(snapshot.published(store), key=lambda found: found.ref(store, "supergraph").metrics["t0"])[:2]
    found = token_diff.diff(store, two[1].id, two[0].id, None, 0)
    with pytest.raises(BadDataError, match="does not go on"):
        churn._check(store, two[1], two[0], found)
    with pytest.raises(BadDataError, match="one interest"):
        churn._check(store, two[0], dataclasses.replace(two[0]), {**found, "aligned": True})
