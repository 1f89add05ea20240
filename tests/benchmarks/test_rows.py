"""Result files keep one set of columns, and rows of earlier runs stay readable."""

import math

import pytest

from tests.benchmarks import rows


def test_every_result_file_has_the_columns():
    files = sorted(set(rows.RESULTS.glob("*.csv")) - set(rows.RESULTS.glob("*_trials.csv")))
    assert files
    for file in files:
        assert all(tuple(row) == rows.COLUMNS for row in rows.read(file.stem)), file
        assert all(math.isfinite(float(row["p50"])) for row in rows.read(file.stem)), file


def test_rows_are_appended_with_what_is_common(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "RESULTS", tmp_path)
    rows.append("x", [{"what": "build", **rows.spread([3.0])}], shape="small", git_sha="abc")
    rows.append("x", [{"what": "build", **rows.spread([1.0, 2.0, 3.0])}], shape="small")
    first, second = rows.read("x")
    assert (first["p20"], first["p50"], first["shape"], first["git_sha"]) == ("", "3.0", "small", "abc")
    assert (second["p20"], second["p50"], second["p80"]) == ("1.4", "2.0", "2.6")
    with pytest.raises(ValueError, match="dict contains fields"):
        rows.append("x", [{"value": 3}])
