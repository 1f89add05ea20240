"""The only command line: `strata`. Each command fits a few lines; the work is in the modules it calls.

Heavy modules are imported inside the commands, so that queries start without torch or Prefect.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from data.artifacts import Store
from data.errors import StrataError, UsageError

app = typer.Typer(
    help="Interest tokens, embeddings and a ranker from engagement logs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class BagByDefault(TyperGroup):
    """`strata tokens user 7` means `strata tokens bag user 7`; `strata tokens --rows FILE` and
    `strata tokens --as-of TIME --out FILE`, which name no entity, mean `strata tokens table`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `table` or `bag` before arguments that begin with no command of this group."""
        if args and args[0] not in (*self.commands, "--help"):
            given = {word.partition("=")[0] for word in args if word.startswith("--")}
            whole = args[0].startswith("--") and ("--rows" in given or ("--out" in given and "--new" not in given))
            args = ["table" if whole else "bag", *args]
        return super().parse_args(ctx, args)


tokens_app = typer.Typer(
    cls=BagByDefault,
    help="Bags of meaning: of one entity (`strata tokens user 7`), of many as a feature table "
    "(`strata tokens --as-of 2017-10-01 --out tokens.parquet`), entities of an interest, changes between snapshots.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(tokens_app, name="tokens")

StoreOption = Annotated[Path, typer.Option("--store", help="Folder of artifacts and snapshots.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
SnapshotOption = Annotated[str | None, typer.Option("--snapshot", help="Snapshot id; the published one if left out.")]
DirectOption = Annotated[
    bool, typer.Option("--direct", help="Call the stages in this process, with no Prefect server.")
]
DEFAULT_STORE = Path("store")


@app.command()
def demo(store: StoreOption = DEFAULT_STORE, direct: DirectOption = False, as_json: JsonOption = False) -> None:
    """Run the demo preset on a real grocery log that comes with the package, and show what came of it."""
    _run("demo", None, store, direct, {}, None, as_json)


@app.command()
def run(
    preset: Annotated[
        str, typer.Option(help="Where unset fields come from: demo, full, fashion or a public set.")
    ] = "demo",
    config: Annotated[Path | None, typer.Option(help="TOML file whose fields override the preset.")] = None,
    store: StoreOption = DEFAULT_STORE,
    direct: DirectOption = False,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of every random choice.")] = None,
    max_bad: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=1.0, help="Share of rows [0-1] that may break a rule and be set aside; 0.001 if unset."
        ),
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            help="Use only what was known at this instant, such as 2017-10-01 (its first moment, UTC) or "
            "2017-10-01T12:00:00Z. Of a log that an earlier --as-of run has read, only what is new is read."
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(help="Stop after this stage (events, graph, ...) and publish no snapshot without --publish."),
    ] = None,
    publish: Annotated[
        bool, typer.Option("--publish", help="Publish what a run has that stops at --until index or later.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run the whole pipeline, or a part of it: what is finished already is reused, what was killed goes on."""
    from flows import inspection

    events = {"max_bad": max_bad, "as_of": as_of and inspection.instant(as_of)}
    chosen = {"seed": seed, "events": {name: value for name, value in events.items() if value is not None} or None}
    overrides = {name: value for name, value in chosen.items() if value is not None}
    _run(preset, config, store, direct, overrides, until, as_json, publish)


def _run(
    preset: str,
    config: Path | None,
    store: Path,
    direct: bool,
    overrides: dict[str, Any],
    until: str | None,
    as_json: bool,
    publish: bool = False,
) -> None:
    from data.progress import Progress
    from flows import pipeline, presets, previous, summary
    from flows.config import load_config

    settings = load_config(presets.named(preset), config, overrides)
    previous.check_instant(settings, until)
    if publish:
        previous.check_publishable(until)
    runner = pipeline.direct if direct else pipeline.orchestrated
    outcome = runner(settings, Store(store), Progress(sys.stderr), until, publish)
    if until is None and outcome.snapshot is not None:
        _print(summary.of_snapshot(Store(store), outcome.snapshot), as_json, summary.render)
        return
    published = None if outcome.snapshot is None else outcome.snapshot.id
    _print(summary.of_part(outcome.refs, str(until), published), as_json, summary.render_part)


@app.command()
def status(store: StoreOption = DEFAULT_STORE, as_json: JsonOption = False) -> None:
    """What is published, what is being written, and what a stopped run left unfinished."""
    from flows import inspection

    _print(inspection.status(Store(store)), as_json, inspection.render_status)


@app.command()
def show(
    stage: Annotated[str | None, typer.Argument(help="A stage's name; the whole snapshot if left out.")] = None,
    store: StoreOption = DEFAULT_STORE,
    snapshot: SnapshotOption = None,
    as_json: JsonOption = False,
) -> None:
    """The figures of a snapshot, or the manifest of one stage in it."""
    from data import snapshot as snapshots
    from flows import inspection, summary

    opened = Store(store)
    found = snapshots.load(opened, snapshot)
    if stage is None and "report" not in found.stages:
        refs = {name: found.ref(opened, name) for name in found.stages}
        _print(summary.of_part(refs, list(refs)[-1], found.id), as_json, summary.render_part)
    elif stage is None:
        _print(summary.of_snapshot(opened, found), as_json, summary.render)
    else:
        _print(inspection.manifest(opened, found, stage), as_json, inspection.render_manifest)


@app.command()
def verify(store: StoreOption = DEFAULT_STORE, snapshot: SnapshotOption = None, as_json: JsonOption = False) -> None:
    """Hash every file of a snapshot again and compare it with what was written."""
    from flows import inspection

    _print(inspection.verify(Store(store), snapshot), as_json, inspection.render_verify)


@app.command()
def query(
    kind: Annotated[
        str,
        typer.Argument(
            help="user, product, advertiser, primitive, text or vector: what to start from; "
            "or between, path or distance: what to know of one or two interests."
        ),
    ],
    value: Annotated[str, typer.Argument(help="An id, a text, a JSON list of numbers, or an interest's id or label.")],
    other: Annotated[str | None, typer.Argument(help="The second interest of between and distance.")] = None,
    k: Annotated[int, typer.Option(min=1, help="How many answers.")] = 10,
    find: Annotated[
        str | None,
        typer.Option(help="What to find: product (if left out; between: user), user, advertiser or primitive."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            help="Rank by vector (cosine) or by tokens (weights in bags); from primitive to primitive also by a "
            "relation, such as co_purchase, then_purchase or parent. Vector if left out; between: tokens."
        ),
    ] = None,
    rank: Annotated[str, typer.Option(help="between: rank by the min or the product of the two weights.")] = "min",
    level: Annotated[
        int | None, typer.Option(min=1, help="Level (1 = coarsest) of the interests to find, or of a label.")
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    snapshot: SnapshotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Nearest things, and questions to interests.

    \b
    strata query text "ground coffee"                       products of that meaning
    strata query advertiser A7 --find primitive --by tokens interests of an advertiser
    strata query primitive Coffee --find advertiser         advertisers of an interest
    strata query primitive Coffee --find primitive --by then_purchase
    strata query between Coffee Pastry --find user          users whose bags hold both
    strata query between Coffee Pastry --by vector          nearest to halfway
    strata query path L2-0007                               what is above, below, beside
    strata query distance Coffee Pastry                     how far apart two interests are
    """
    from flows import questions

    # Collecting garbage while a text query imports torch and transformers takes two of nine seconds, and frees nothing.
    gc.disable()
    question = questions.Question(kind, value, other, find, by, rank, level, k)
    _print(questions.ask(Store(store), snapshot, question), as_json, questions.render)


@app.command()
def rank(
    user: Annotated[str, typer.Argument(help="The user's id in your own data; one nobody knows is ranked for as new.")],
    candidates: Annotated[
        Path | None, typer.Option(help="CSV or Parquet file with a column product_id; all products if left out.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many to show.")] = 10,
    at: Annotated[
        str | None,
        typer.Option(help="Rank by what was known at this time, such as 2017-11-01; the newest if left out."),
    ] = None,
    surface: Annotated[str | None, typer.Option(help="Where they would be shown, as the log names it.")] = None,
    fit: Annotated[str, typer.Option(help="Which fit of the ranker: ranker-ARM-SEED.")] = "ranker-tokens-0",
    store: StoreOption = DEFAULT_STORE,
    snapshot: SnapshotOption = None,
    as_json: JsonOption = False,
) -> None:
    """What a user would most likely buy if it were shown now: candidates by the ranker's score.

    \b
    strata rank 2459                                  the best of all products
    strata rank 2459 --candidates some.csv --at 2017-11-01
    """
    from flows import rank as ranking

    question = ranking.Question(user, candidates, top, at, surface, fit)
    _print(ranking.rank(Store(store), snapshot, question), as_json, ranking.render)


@tokens_app.command("bag")
def tokens(
    entity_type: Annotated[str, typer.Argument(help="user, product or advertiser.")],
    entity_id: Annotated[
        str | None, typer.Argument(help="The entity's id in your own data; left out with --new.")
    ] = None,
    as_of: Annotated[
        str | None, typer.Option(help="Newest date to use, such as 2017-10-01; the latest if left out.")
    ] = None,
    new: Annotated[
        Path | None,
        typer.Option(help="CSV or Parquet file of products or advertisers that no run has seen: their tokens."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="With --new: write the tokens to this Parquet file.")] = None,
    media_root: Annotated[Path | None, typer.Option(help="With --new: folder that pictures lie below.")] = None,
    event_type: Annotated[str, typer.Option(help="With --new: what those in column `users` did.")] = "purchase",
    store: StoreOption = DEFAULT_STORE,
    snapshot: SnapshotOption = None,
    as_json: JsonOption = False,
) -> None:
    """The bag of meaning of one entity, or of a file of new ones: interest primitives by level, with weights."""
    from flows import inspection

    if (new is None) == (entity_id is None):
        raise UsageError("expected an entity's id, or a file of new ones with --new: one of the two")
    if new is not None:
        from flows import newcomers

        found = newcomers.tokens_of_new(Store(store), snapshot, entity_type, new, as_of, event_type, media_root, out)
        _print(found, as_json, newcomers.render_new)
        return
    found = inspection.tokens(Store(store), snapshot, entity_type, str(entity_id), as_of)
    _print(found, as_json, inspection.render_tokens)


@tokens_app.command("table")
def tokens_table(
    out: Annotated[Path, typer.Option(help="Parquet file to write; it appears when it is complete.")],
    rows: Annotated[
        Path | None,
        typer.Option(
            help="CSV or Parquet file with columns entity_type (user, product, advertiser), entity_id and ts: a date, "
            "a time (UTC without a zone) or whole microseconds."
        ),
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            help="One time for all rows of a file without ts; with no file, for every entity known by then. "
            "A date is its first moment, UTC."
        ),
    ] = None,
    flat: Annotated[
        bool, typer.Option("--flat", help="Add two plain columns a slot, for libraries that read no lists.")
    ] = False,
    stale_days: Annotated[
        int, typer.Option(min=1, help="Age [days] of a bag from which its status is stale; it is given all the same.")
    ] = 28,
    store: StoreOption = DEFAULT_STORE,
    snapshot: SnapshotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Interest tokens as features, without a look into the future: one row out for each row in, in the same order.

    \b
    strata tokens --rows visits.csv --out tokens.parquet            tokens of each entity as of each row's ts
    strata tokens --rows visits.csv --out tokens.parquet --flat     the same, also in plain columns
    strata tokens --as-of 2017-10-01 --out tokens.parquet           everyone's tokens on one date

    \b
    Each row takes the newest bag with as_of <= ts. Columns:
    entity_type, entity_id, ts                     as asked, ts in microseconds since 1970 (UTC)
    status                                         ok; stale: older than --stale-days; missing: no bag by then
    as_of, vocab_version                           of the bag; empty where it is missing
    level_N_primitive_id, level_N_weight           lists, heaviest first; level 1 is the coarsest
    level_N_slot_I, level_N_slot_I_weight          with --flat: the I-th heaviest from 0; weight 0 where there is none
    """
    from flows import token_table

    _print(token_table.write(Store(store), snapshot, rows, as_of, out, flat, stale_days), as_json, token_table.render)


@tokens_app.command("entities")
def tokens_entities(
    primitive_id: Annotated[str, typer.Argument(help="An interest's id, such as L2-0007.")],
    entity_type: Annotated[str, typer.Argument(help="user, product or advertiser.")] = "product",
    k: Annotated[int, typer.Option(min=1, help="How many answers.")] = 10,
    as_of: Annotated[str | None, typer.Option(help="Bags of this date; the newest of each entity if left out.")] = None,
    store: StoreOption = DEFAULT_STORE,
    snapshot: SnapshotOption = None,
    as_json: JsonOption = False,
) -> None:
    """The entities whose bags hold an interest, those first in which it weighs most."""
    from flows import inspection

    found = inspection.holders(Store(store), snapshot, primitive_id, entity_type, k, as_of)
    _print(found, as_json, inspection.render_holders)


@tokens_app.command("diff")
def tokens_diff(
    old: Annotated[
        str | None,
        typer.Argument(help="The earlier snapshot's id; the one that the later vocabulary goes on from if left out."),
    ] = None,
    new: Annotated[str | None, typer.Argument(help="The later snapshot's id; the published one if left out.")] = None,
    as_of: Annotated[
        str | None, typer.Option(help="Compare bags of this date; the last that both reach if left out.")
    ] = None,
    moves: Annotated[int, typer.Option(min=0, help="Commonest changes shown of each level.")] = 5,
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
) -> None:
    """Churn between two snapshots: ids kept, minted and retired, and how many entities' tokens changed.

    `previous` and `CURRENT` will do for ids. Figures "unaligned" are those without stable ids, by rows of the learners.
    """
    from flows import token_diff

    _print(token_diff.diff(Store(store), old, new, as_of, moves), as_json, token_diff.render)


@app.command()
def report(
    out: Annotated[Path | None, typer.Option(help="Copy the page here.")] = None,
    store: StoreOption = DEFAULT_STORE,
    snapshot: SnapshotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Where the report of a snapshot lies; open it in any browser."""
    from flows import inspection

    _print(inspection.report(Store(store), snapshot, out), as_json, lambda found: print(found["report"]))


@app.command()
def doctor(store: StoreOption = DEFAULT_STORE, as_json: JsonOption = False) -> None:
    """Check this machine: versions, memory, disk, store, encoder weights, browser. Each line says the fix."""
    from flows import doctor as checks

    findings = checks.examine(Store(store))
    _print(findings, as_json, checks.render)
    if any(not finding["ok"] and finding["needed"] for finding in findings):
        raise typer.Exit(4)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def bench(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Argument(help="A benchmark's name; their list if left out.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a benchmark of this checkout; what follows is the benchmark's own (`strata bench NAME -- --help`)."""
    from flows import bench as benchmarks

    if name is None:
        _print(benchmarks.benchmarks(), as_json, benchmarks.render_names)
    else:
        _print(benchmarks.run(name, ctx.args), as_json, benchmarks.render)


def _print(value: Any, as_json: bool, render: Any) -> None:
    if as_json:
        print(json.dumps(value, indent=1, ensure_ascii=False))
    else:
        render(value)


def main() -> None:
    """Entry point of the `strata` command; exit codes: 0 done, 2 usage, 3 bad data, 4 environment, 1 anything else."""
    # OpenMP threads that spin while they wait starve each other as soon as anything else runs on the machine: small
    # steps became up to forty times slower. Read when torch is loaded, so before any command imports it.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        app()
    except StrataError as error:
        print(f"strata: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("strata: stopped; the same command goes on from the last finished stage", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
