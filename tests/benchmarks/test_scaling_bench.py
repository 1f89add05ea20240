"""The benchmark end to end on a small shop, and that a size costs what it should."""

import csv

import pytest

from data.errors import UsageError
from ranking.fitting import Schedule
from ranking.models import Architecture
from ranking.reader import Examples
from tests.benchmarks import scaling_law
from tests.benchmarks.scaling.points import AXES, Point, compute_of, size_of
from tests.ranking.shops import make_examples, random_shop

SMALL = {"user_buckets": 50, "product_buckets": 50, "advertiser_buckets": 50, "category_buckets": 50}


@pytest.fixture(scope="module")
def ref(tmp_path_factory):
    return make_examples(random_shop(), tmp_path_factory.mktemp("scaling"))


def test_every_axis_grows():
    for axis in AXES.values():
        for points in axis(6400).values():
            assert len(points) >= 4
            assert len({point.shape for point in points}) == len(points)


def test_twice_the_rows_cost_twice_and_more_width_costs_more(ref):
    examples, schedule = Examples.open(ref), Schedule()
    total = len(examples.rows(0))
    half, whole = (compute_of(examples, Point("", total // part), schedule) for part in (2, 1))
    assert half / whole == pytest.approx(0.5, rel=0.25)
    wide = compute_of(examples, Point("", total, Architecture(width=64)), schedule)
    assert 2 < wide / whole < 5
    few, all_users = (size_of(examples, Point("", 40, users=share, by_users=True), schedule) for share in (0.3, 1.0))
    assert few < all_users


def test_the_bench_says_what_the_largest_will_be_before_it_runs_it(ref, tmp_path, monkeypatch):
    sizes = [Point(str(width), 300, Architecture(width=width, **SMALL)) for width in (2, 4, 8, 16)]
    monkeypatch.setitem(AXES, "width", lambda rows: {"": sizes})
    out = tmp_path / "scaling.csv"
    options = ["scaling_law", "--examples", str(ref.path), "--axes", "width", "--seeds", "2", "--csv", str(out)]
    monkeypatch.setattr("sys.argv", options)
    scaling_law.main()
    with open(out, newline="", encoding="utf-8") as stream:
        found = [(row["peer"], row["metric"]) for row in csv.DictReader(stream)]
    said = found.index(("law", "NE of the largest, said before"))
    assert found[:said] == [("2", "NE"), ("4", "NE"), ("8", "NE")]
    assert found[said + 1 :][:2] == [("16", "NE"), ("law", "miss of the largest")]


def test_an_unknown_axis_is_refused_before_anything_is_read(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["scaling_law", "--axes", "wdith"])
    with pytest.raises(SystemExit) as ended:
        scaling_law.main()
    assert ended.value.code == UsageError.exit_code
    assert "width" in capsys.readouterr().err
