"""`strata bench` starts what the checkout holds, says what there is, and hands back the rows of this run only."""

import json

import pytest

from data.errors import StrataError, SystemStateError, UsageError
from flows import bench
from tests.fixtures.command_line import strata

BENCHMARK = '''"""Count to two."""
import csv, sys
from pathlib import Path
FILE = Path(__file__).parent / "results" / "count.csv"
def main():
    if "--fail" in sys.argv:
        sys.exit(7)
    with open(FILE, "a", newline="") as stream:
        csv.writer(stream).writerow([*sys.argv[1:2], "", "", "", "", "", "", "2", "", "", "", "", ""])
    print("chatter")
main()
'''


@pytest.fixture
def checkout(tmp_path):
    from tests.benchmarks.rows import COLUMNS

    folder = tmp_path / "tests" / "benchmarks"
    (folder / "results").mkdir(parents=True)
    (folder / "count.py").write_text(BENCHMARK)
    (folder / "rows.py").write_text('"""No benchmark: it has no main."""\n')
    old = ",".join(COLUMNS) + "\r\n" + "old" + "," * 12 + "\r\n"
    (folder / "results" / "count.csv").write_text(old)
    return folder


def test_the_list_names_what_has_a_main_and_says_what_it_does(checkout):
    assert bench.benchmarks(checkout) == {"count": "Count to two."}
    assert {"graph", "pipeline"} <= set(bench.benchmarks())


def test_a_run_returns_the_rows_it_appended_and_passes_options(checkout, capfd):
    rows = bench.run("count", ["--size=3"], checkout)
    assert [(row["what"], row["p50"]) for row in rows] == [("--size=3", "2")]
    assert "chatter" not in capfd.readouterr().out


def test_rows_may_go_to_the_table_of_another_benchmark(checkout):
    (checkout / "count.py").rename(checkout / "recount.py")
    rows = bench.run("recount", ["--size=4"], checkout)
    assert [(row["what"], row["p50"]) for row in rows] == [("--size=4", "2")]


def test_an_unknown_name_gets_the_nearest(checkout):
    with pytest.raises(UsageError, match="did you mean 'count'"):
        bench.run("cuont", [], checkout)


def test_a_failed_benchmark_is_an_error(checkout):
    with pytest.raises(StrataError, match="exit code 7") as failure:
        bench.run("count", ["--fail"], checkout)
    assert failure.value.exit_code == 7


def test_outside_a_checkout_it_says_what_to_do(tmp_path):
    with pytest.raises(SystemStateError, match="from a checkout"):
        bench.benchmarks(tmp_path / "absent")


def test_the_command_line_lists_names_and_refuses_others():
    assert "pipeline" in json.loads(strata("bench", "--json").stdout)
    wrong = strata("bench", "pipelne")
    assert wrong.returncode == 2
    assert "did you mean 'pipeline'" in wrong.stderr
