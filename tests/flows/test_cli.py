"""The command line as a newcomer meets it: exit codes and one-screen errors that name the thing and the fix."""

import json

import pytest

from data.artifacts import Store
from tests.fixtures.command_line import strata, strata_process


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("query", "product", "1", "--store", "nowhere"), 3, ["no snapshot", "strata demo"]),
        (("show", "--store", "nowhere"), 3, ["no snapshot"]),
        (("query", "prodct", "1", "--store", "nowhere"), 2, ["prodct", "product"]),
        (("query", "product", "1", "--find", "usr", "--store", "nowhere"), 2, ["usr", "user"]),
        (("query", "between", "L2-0001", "--store", "nowhere"), 2, ["two interests", "L2-0007"]),
        (("query", "distance", "a", "b", "--find", "primitive", "--store", "nowhere"), 2, ["--find user", "primitive"]),
        (("query", "path", "L2-0001", "L2-0002", "--store", "nowhere"), 2, ["one value"]),
        (("query", "product", "1", "--by", "tokens", "--store", "nowhere"), 2, ["--by tokens", "no meaning"]),
        (("query", "user", "1", "--find", "primitive", "--by", "tokn", "--store", "nowhere"), 2, ["tokn", "tokens"]),
        (("query", "path", "L2-0001", "--store", "nowhere"), 3, ["no snapshot", "strata demo"]),
        (("tokens", "campaign", "1", "--store", "nowhere"), 2, ["campaign"]),
        (("query", "vector", "[1, a]", "--store", "nowhere"), 2, ["JSON list"]),
        (("tokens", "product", "--store", "nowhere"), 2, ["--new", "one of the two"]),
        (("tokens", "product", "--new", "new.xlsx", "--store", "nowhere"), 2, [".csv or .parquet", "new.xlsx"]),
        (("tokens", "product", "--new", "new.csv", "--store", "nowhere"), 3, ["new.csv", "found none"]),
        (("tokens", "user", "1", "--as-of", "yesterday", "--store", "nowhere"), 2, ["2017-10-01"]),
        (
            ("tokens", "--as-of", "2017-10-01", "--out", "t.csv", "--store", "nowhere"),
            2,
            ["--out", ".parquet", "t.csv"],
        ),
        (("tokens", "table", "--out", "t.parquet", "--store", "nowhere"), 2, ["--rows", "--as-of"]),
        (("tokens", "--rows=x.csv", "--out", "t.parquet", "--store", "nowhere"), 3, ["no snapshot", "strata demo"]),
        (("tokens", "--as-of", "soon", "--out", "t.parquet", "--store", "nowhere"), 2, ["soon", "2017-10-01"]),
        (("run", "--preset", "dmeo", "--store", "nowhere"), 2, ["dmeo", "demo"]),
        (("run", "--as-of", "yesterday", "--store", "nowhere"), 2, ["yesterday", "2017-10-01"]),
        (("run", "--as-of", "2017-03-01", "--store", "nowhere"), 2, ["'learner'", "cuts.t0", "--until features"]),
        (("run", "--until", "graph", "--publish", "--store", "nowhere"), 2, ["--publish", "graph", "index"]),
        (("run", "--until", "grph", "--store", "nowhere"), 2, ["grph", "graph"]),
        (("nonsense",), 2, ["nonsense"]),
    ],
)
def test_wrong_use_ends_with_its_exit_code_and_a_short_message(arguments, code, words):
    result = strata(*arguments)
    assert result.returncode == code, result.stderr
    assert all(word in result.stderr for word in words), result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) <= 25


@pytest.mark.parametrize("arguments", [("query", "prodct", "1"), ("query", "product", "1")])
def test_a_process_of_its_own_says_the_same_and_ends_with_the_same_code(arguments, tmp_path):
    asked = (*arguments, "--store", tmp_path)
    alone, here = strata_process(*asked), strata(*asked)
    assert alone.returncode > 0
    assert (alone.returncode, alone.stdout, alone.stderr) == (here.returncode, here.stdout, here.stderr)


def test_help_lists_every_command():
    result = strata_process("--help")
    assert result.returncode == 0
    for command in ("demo", "run", "status", "show", "verify", "query", "rank", "tokens", "report", "doctor"):
        assert command in result.stdout


def test_status_of_an_empty_store_says_what_to_do(tmp_path):
    result = strata("status", "--store", tmp_path)
    assert result.returncode == 0
    assert "strata demo" in result.stdout
    assert json.loads(strata("status", "--store", tmp_path, "--json").stdout)["published"] is None


def test_status_tells_running_work_from_work_left_behind(tmp_path):
    from data import lease
    from flows import inspection

    store = Store(tmp_path)
    (store.work("graph", "left")).mkdir(parents=True)
    with lease.hold(store.work("learner", "now"), "learner now"):
        found = inspection.status(store)
    assert [entry["stage"] for entry in found["running"]] == ["learner"]
    assert [entry["stage"] for entry in found["unfinished"]] == ["graph"]
    inspection.render_status(found)


def test_doctor_names_each_check_and_its_fix(tmp_path):
    result = strata("doctor", "--store", tmp_path / "store", "--json")
    findings = json.loads(result.stdout)
    assert {"python", "memory", "disk", "store", "torch"} <= {finding["check"] for finding in findings}
    assert all(finding["ok"] or finding["fix"] for finding in findings)
    assert result.returncode == (0 if all(f["ok"] or not f["needed"] for f in findings) else 4)


def test_doctor_fails_when_the_store_cannot_be_written(monkeypatch, tmp_path):
    from flows import doctor

    def refuse(**_):
        raise OSError("read-only file system")

    monkeypatch.setattr(doctor.tempfile, "TemporaryFile", refuse)
    finding = next(f for f in doctor.examine(Store(tmp_path)) if f["check"] == "store")
    assert not finding["ok"]
    assert "--store" in finding["fix"]
    doctor.render([finding])
