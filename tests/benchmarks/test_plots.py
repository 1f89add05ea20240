"""Pictures of planted tables: which rows they show, where intervals lie, and that files appear."""

import csv
import math
import sys

import pytest

from tests.benchmarks import plots
from tests.benchmarks.pictures import figures
from tests.benchmarks.rows import COLUMNS


def row(what, peer, metric, p50, shape="s, 2 users", **more):
    return {"what": what, "peer": peer, "metric": metric, "p50": p50, "p20": "", "p80": "", "shape": shape, **more}


EXAM = "set, test, seen masked"
RETRIEVAL = [
    row("set, published", "Old (published; mask)", "recall@10", "0.25"),
    row(EXAM, "knn", "recall@5", "0.1"),
    row(EXAM, "knn", "recall@10", "0.9"),
    row(EXAM, "knn", "recall@10", "0.2"),
    row(EXAM, "learner", "recall@10", "0.3"),
    row(EXAM, "learner - knn", "recall@10 difference", "0.1"),
    row(EXAM, "learner - knn", "recall@10 difference, 2.5 %", "0.08"),
    row(EXAM, "learner - knn", "recall@10 difference, 97.5 %", "0.12"),
    row(EXAM, "knn", "recall@10, target degree 1-5", "0.05"),
    row(EXAM, "learner", "recall@10, target degree 1-5", "0.15"),
    row(EXAM, "learner", "recall@10, target degree 21+", "0.4"),
]
WARM = "recall@10, warm"
ABLATION = [
    row("full recipe", "", WARM, "0.3"),
    *(
        row(name, "full recipe", f"{WARM}: difference{end}", str(gap + more))
        for name, gap in (("a off", -0.01), ("b off", -0.02))
        for end, more in (("", 0), (", 2.5 %", -0.005), (", 97.5 %", 0.005))
    ),
]
HIERARCHY = [
    row("level 1, K 16, categories at depth 1", "learner", "NMI with categories", "0.5", p20="0.4", p80="0.6"),
    row("level 1, K 16, categories at depth 1", "tree", "NMI with categories", "0.6"),
    row("retrieval, 5 users", "tree", "recall", "0.6"),
]


def test_recall_is_the_newest_with_the_interval_at_the_reference():
    (panel,) = figures.retrieval(RETRIEVAL)["set"]
    assert (panel.title, panel.measure) == ("test, seen masked", "recall@10")
    assert [mark.name for mark in panel.marks] == ["learner", "Old, published", "knn"]
    learner, old, knn = panel.marks
    assert (learner.low, learner.high) == (pytest.approx(0.28), pytest.approx(0.32))
    assert knn.value == 0.2
    assert math.isnan(knn.low)
    assert not old.ours


def test_degrees_hold_buckets_that_somebody_has():
    found = figures.degrees(RETRIEVAL)["set"]
    assert found.places == ("1-5", "21+")
    assert found.lines["learner"] == [0.15, 0.4]
    assert math.isnan(found.lines["knn"][1])


def test_an_ablation_is_ordered_by_what_is_lost_and_levels_by_what_is_reached():
    (panel,) = figures.ablation(ABLATION)["s"]
    assert [mark.name for mark in panel.marks] == ["b off", "a off"]
    assert panel.marks[0].high == pytest.approx(-0.015)
    (level,) = figures.hierarchy(HIERARCHY)["s"]
    assert level.title == "level 1, K 16"
    assert [mark.name for mark in level.marks] == ["tree", "learner"]
    assert (level.marks[1].low, level.marks[1].high) == (0.4, 0.6)


def write(folder):
    for name, table in (("retrieval", RETRIEVAL), ("ablation", ABLATION), ("hierarchy", HIERARCHY)):
        with open(folder / f"{name}.csv", "w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, COLUMNS, restval="")
            writer.writeheader()
            writer.writerows(table)


def draw(monkeypatch, *options):
    monkeypatch.setattr(sys, "argv", ["plots", *map(str, options)])
    plots.main()


def test_pictures_appear_and_are_the_same_twice(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    write(tmp_path)
    for name in ("one", "two"):
        draw(monkeypatch, "--results", tmp_path, "--out", tmp_path / name)
    found = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert found == ["ablation-s.svg", "degrees-set.svg", "hierarchy-s.svg", "retrieval-set.svg"]
    for name in found:
        text = (tmp_path / "one" / name).read_bytes()
        assert text == (tmp_path / "two" / name).read_bytes()
    assert b"learner" in (tmp_path / "one" / "retrieval-set.svg").read_bytes()


@pytest.mark.parametrize(("option", "says"), [(("--formats", "gif"), "svg, png"), ((), "with rows in")])
def test_wrong_formats_and_no_rows_are_said(tmp_path, monkeypatch, capsys, option, says):
    pytest.importorskip("matplotlib")
    with pytest.raises(SystemExit) as end:
        draw(monkeypatch, "--results", tmp_path, *option)
    assert end.value.code == 2
    assert says in capsys.readouterr().err
