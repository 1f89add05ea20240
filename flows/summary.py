"""The closing table of a run: rows, seconds and memory by stage, retrieval, levels and ranker in figures."""

from __future__ import annotations

from statistics import fmean, stdev
from typing import Any

from rich.console import Console
from rich.table import Table

from data.artifacts import Store
from data.schema import from_micros
from data.snapshot import Snapshot


def of_snapshot(store: Store, snapshot: Snapshot) -> dict[str, Any]:
    """Everything `strata run` and `strata show` print, as JSON-able values read from the manifests."""
    refs = {stage: snapshot.ref(store, stage) for stage in snapshot.stages}
    stages = []
    for name, ref in refs.items():
        tables = {file: listed["rows"] for file, listed in ref.manifest["files"].items() if listed["rows"] is not None}
        spent = {field: ref.manifest[field] for field in ("duration_s", "peak_rss_mb")}
        stages.append({"stage": name, "key": ref.key, "rows": tables, **spent})
    return {
        "snapshot": snapshot.id,
        "as_of": str(from_micros(snapshot.as_of).date()),
        "stages": stages,
        "retrieval": refs["evaluation"].json("retrieval.json"),
        "levels": refs["evaluation"].json("levels.json"),
        "ranker": refs["ranker"].json("evaluation.json"),
        "report": str(refs["report"].file("report.html").resolve()),
    }


def render(found: dict[str, Any]) -> None:
    """Print the summary for a person."""
    console = Console()
    console.print(_stages(found["stages"]))
    console.print(_retrieval(found["retrieval"]))
    console.print(_levels(found["levels"]))
    console.print(_ranker(found["ranker"]))
    print(f"snapshot {found['snapshot']} as of {found['as_of']}\nreport   {found['report']}")


def _stages(stages: list[dict[str, Any]]) -> Table:
    table = Table(title="Artifacts", title_justify="left")
    for name in ("stage", "key"):
        table.add_column(name)
    for name in ("rows", "seconds", "peak MB"):
        table.add_column(name, justify="right")
    for entry in stages:
        rows = ", ".join(f"{file.rpartition('.')[0]} {count:,}" for file, count in _largest(entry["rows"]))
        table.add_row(
            entry["stage"], entry["key"][:8], rows, f"{entry['duration_s']:.1f}", f"{entry['peak_rss_mb']:,.0f}"
        )
    return table


def _largest(rows: dict[str, int], count: int = 4) -> list[tuple[str, int]]:
    parquet = {file: number for file, number in rows.items() if file.endswith(".parquet") and number}
    return sorted((parquet or rows).items(), key=lambda item: -item[1])[:count]


def _numeric(title: str, names: list[str], numbers: list[str]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in names:
        table.add_column(name)
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def _retrieval(rows: list[dict[str, Any]]) -> Table:
    """Methods as rows, protocol and split as columns."""
    columns = list(dict.fromkeys((row["protocol"], row["split"]) for row in rows))
    table = _numeric("Retrieval, Recall@20 on future purchases", ["method"], [" ".join(column) for column in columns])
    for method in dict.fromkeys(row["method"] for row in rows):
        cells = {(row["protocol"], row["split"]): row["recall@20"] for row in rows if row["method"] == method}
        table.add_row(method, *(_number(cells.get(column), 4) for column in columns))
    return table


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _levels(rows: list[dict[str, Any]]) -> Table:
    table = _numeric(
        "Interest levels", ["level"], ["primitives", "active", "perplexity", "NMI", "category depth", "duplicates"]
    )
    for row in rows:
        shares = (f"{row['active_share']:.2f}", f"{row['perplexity']:.1f}", f"{row['nmi_category']:.3f}")
        table.add_row(str(row["level"]), str(row["k"]), *shares, str(row["category_depth"]), f"{row['duplicates']:.3f}")
    return table


def _ranker(rows: list[dict[str, Any]]) -> Table:
    """Mean and spread over seeds on the test window, one line an arm."""
    table = _numeric(
        "Ranker on the later window", ["model", "arm"], ["seeds", "NE", "± sd", "AUC", "calibration", "fit s"]
    )
    test = [row for row in rows if row["split"] == "test"]
    for model, arm in dict.fromkeys((row["model"], row["arm"]) for row in test):
        group = [row for row in test if (row["model"], row["arm"]) == (model, arm)]
        means = {name: fmean(row[name] for row in group) for name in ("ne", "auc", "calibration", "seconds")}
        spread = f"{stdev(row['ne'] for row in group):.4f}" if len(group) > 1 else ""
        cells = (
            f"{means['ne']:.4f}",
            spread,
            f"{means['auc']:.4f}",
            f"{means['calibration']:.3f}",
            f"{means['seconds']:.1f}",
        )
        table.add_row(model, arm, str(len(group)), *cells)
    return table
