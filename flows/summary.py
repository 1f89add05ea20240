"""The closing table of a run: rows, seconds and memory by stage, retrieval, levels and ranker in figures."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from data.artifacts import ArtifactRef, Store
from data.parts import EVENT_PARTS
from data.schema import from_micros
from data.snapshot import Snapshot
from data.timegrid import EMBEDDINGS, TOKENS

_LOG_FIGURES = (
    "read", "equal_duplicates", "ingested_before", "late_stamped", "late_dropped", "late_events", "not_yet_known",
    "quarantined", "parts_taken",
)  # fmt: skip
_BY_DATE = (EVENT_PARTS, EMBEDDINGS, TOKENS)


def of_snapshot(store: Store, snapshot: Snapshot) -> dict[str, Any]:
    """Everything `strata run` and `strata show` print, as JSON-able values read from the manifests."""
    refs = {stage: snapshot.ref(store, stage) for stage in snapshot.stages}
    return {
        **_made_up(refs["events"]),
        "snapshot": snapshot.id,
        "as_of": str(from_micros(snapshot.as_of).date()),
        "stages": of_stages(refs),
        "retrieval": refs["evaluation"].json("retrieval.json"),
        "levels": refs["evaluation"].json("levels.json"),
        "ranker": {name: refs["ranker"].metrics[name] for name in ("comparison", "seconds")},
        "report": str(refs["report"].file("report.html").resolve()),
    }


def _made_up(events: ArtifactRef) -> dict[str, Any]:
    """`simulated: true` when nobody did what the log says, else nothing."""
    return {"simulated": True} if events.metrics.get("simulated") else {}


def _mark(found: dict[str, Any]) -> str:
    return " (simulated events)" if found.get("simulated") else ""


def of_stages(refs: Mapping[str, ArtifactRef]) -> list[dict[str, Any]]:
    """Key, rows, seconds and memory of each stage."""
    stages = []
    for name, ref in refs.items():
        listed = {file: entry["rows"] for file, entry in ref.manifest["files"].items() if entry["rows"] is not None}
        tables = {file: rows for file, rows in listed.items() if not file.startswith(_BY_DATE)}
        for folder in _BY_DATE:
            if ref.names(folder):
                tables = {f"{folder[:-1]}.parquet": ref.rows(folder), **tables}  # one line for all days
        spent = {field: ref.manifest[field] for field in ("duration_s", "peak_rss_mb")}
        stages.append({"stage": name, "key": ref.key, "rows": tables, **spent})
    return stages


def of_part(refs: Mapping[str, ArtifactRef], until: str, published: str | None = None) -> dict[str, Any]:
    """What `strata run --until` prints: the stages that ran, the log's figures, and the snapshot if it made one."""
    log = refs["events"].metrics
    figures = {name: log[name] for name in _LOG_FIGURES if name in log}
    as_of = None if log["as_of"] is None else from_micros(log["as_of"]).isoformat()
    part = {"snapshot": published, "until": until, "as_of": as_of, "events": figures, "stages": of_stages(refs)}
    return {**_made_up(refs["events"]), **part}


def render_part(found: dict[str, Any]) -> None:
    """Print `of_part` for a person."""
    wide_console().print(_stages(found["stages"], _mark(found)))
    for name, figure in found["events"].items():
        print(f"{name.replace('_', ' '):<18}{_plain(figure)}")
    known = "everything in the files" if found["as_of"] is None else f"what was known at {found['as_of']}"
    ended = "no snapshot was" if found["snapshot"] is None else f"snapshot {found['snapshot']} was"
    print(f"\nThe log{_mark(found)} holds {known}. Stopped after {found['until']}, as asked: {ended} published.")


def _plain(figure: Any) -> str:
    if isinstance(figure, dict):
        return ", ".join(f"{name} {_plain(count)}" for name, count in figure.items()) or "none"
    return f"{figure:,}" if isinstance(figure, int) else str(figure)


def render(found: dict[str, Any]) -> None:
    """Print the summary for a person."""
    console, mark = wide_console(), _mark(found)
    console.print(_stages(found["stages"], mark))
    console.print(_retrieval(found["retrieval"], mark))
    console.print(_levels(found["levels"], mark))
    console.print(_ranker(found["ranker"], mark))
    print(f"{verdict(found['ranker'])}{mark}\n")
    print(f"snapshot {found['snapshot']} as of {found['as_of']}{mark}\nreport   {found['report']}")


def wide_console() -> Console:
    """A console that does not fold tables to 80 columns when its output is piped."""
    console = Console()
    return console if console.is_terminal else Console(width=140)


def _stages(stages: list[dict[str, Any]], mark: str) -> Table:
    table = Table(title=f"Artifacts{mark}", title_justify="left", box=SIMPLE)
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
    table = Table(title=title, title_justify="left", box=SIMPLE)
    for name in names:
        table.add_column(name)
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def _retrieval(rows: list[dict[str, Any]], mark: str) -> Table:
    """Methods as rows, protocol and split as columns."""
    columns = list(dict.fromkeys((row["protocol"], row["split"]) for row in rows))
    title = f"Retrieval, Recall@20 on future purchases{mark}"
    table = _numeric(title, ["method"], [" ".join(column) for column in columns])
    for method in dict.fromkeys(row["method"] for row in rows):
        cells = {(row["protocol"], row["split"]): row["recall@20"] for row in rows if row["method"] == method}
        table.add_row(method, *(_number(cells.get(column), 4) for column in columns))
    return table


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _levels(rows: list[dict[str, Any]], mark: str) -> Table:
    numbers = ["primitives", "active", "perplexity", "NMI", "category depth", "duplicates"]
    table = _numeric(f"Interest levels{mark}", ["level"], numbers)
    for row in rows:
        shares = (f"{row['active_share']:.2f}", f"{row['perplexity']:.1f}", f"{row['nmi_category']:.3f}")
        table.add_row(str(row["level"]), str(row["k"]), *shares, str(row["category_depth"]), f"{row['duplicates']:.3f}")
    return table


def _ranker(metrics: dict[str, Any], mark: str) -> Table:
    """Mean and spread over seeds on the test window, one line an arm."""
    numbers = ["fits", "NE", "± sd", "AUC", "calibration", "fit s"]
    table = _numeric(f"Ranker on the later window{mark}", ["model", "arm"], numbers)
    for row in metrics["comparison"]["summary"]:
        name = f"{row['model']}-{row['arm']}-"
        seconds = fmean(spent for fit, spent in metrics["seconds"].items() if fit.startswith(name))
        means = (row[measure]["mean"] for measure in ("auc", "calibration"))
        cells = (_number(row["ne"]["mean"], 4), _number(row["ne"]["sd"], 4), *(_number(mean, 3) for mean in means))
        table.add_row(row["model"], row["arm"], str(row["fits"]), *cells, f"{seconds:.1f}")
    return table


def verdict(metrics: dict[str, Any]) -> str:
    """What the paired seeds say of tokens, in one sentence."""
    paired = metrics["comparison"].get("tokens_vs_no_tokens")
    if not paired:
        return "tokens were not compared: the ranker ran one arm only"
    low, high = paired["difference_interval_95"]
    interval = f"paired difference, 95 % interval {low:+.4f} to {high:+.4f}"
    change = f"{paired['relative']['mean']:+.2%} normalized entropy ({interval})"
    if high < 0:
        return f"interest tokens lower the ranker's loss on future traffic: {change}"
    effect = "raise" if low > 0 else "do not clearly change"
    return f"interest tokens {effect} the ranker's loss on future traffic: {change}"
