"""Retrieval: recall and NDCG of every method on the public splits, tuned alike on validation, tested once.

    strata bench retrieval [--sets gowalla,amazon-beauty,...] [--methods directional_knn,spectral,...] [--trials 20]

Every method gets the same number of random-search trials on the validation exam of each set, all logged beside the
result file; the setting with the best recall is fitted for the test and scored once. Methods joined by "+" are
their weighted sum. Rows go to results/retrieval.csv, or to --csv, with the published values, buckets by degree and by
length of history, and paired bootstrap differences to --reference.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data.errors import StrataError, UsageError, nearest
from hierarchy.recall import Found
from tests.benchmarks import rows
from tests.benchmarks.retrieval_quality import figures
from tests.benchmarks.retrieval_quality.protocols import FOLDERS, NAMES, PANEL, Exam, Protocol, protocol
from tests.benchmarks.retrieval_quality.published import PUBLISHED
from tests.benchmarks.retrieval_quality.search import Chosen, Search

RESULTS = rows.RESULTS / "retrieval.csv"
DEFAULT = (
    "popularity",
    "item_knn",
    "directional_knn",
    "spectral-256",
    "gf_cf",
    "transition_graph",
    "content",
    "directional_knn+spectral-256",
)


def main() -> None:
    """Tune, test and append the rows of one set after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default=",".join(FOLDERS), help=f"any of {','.join(NAMES)}")
    parser.add_argument("--methods", default=",".join(DEFAULT), help="methods of retrieval_quality/methods.py, or sums")
    parser.add_argument("--trials", type=int, default=20, help="settings tried for each method")
    parser.add_argument("--seed", type=int, default=0, help="of the search and of the first test fit")
    parser.add_argument("--repeats", type=int, default=1, help="test fits of learned methods, each with its own seed")
    parser.add_argument(
        "--reference", default=None, help="method that the others are compared with (default: the first)"
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="where learned methods run")
    parser.add_argument("--data", type=Path, default=None, help="folder of the public sets (default: $STRATA_DATA)")
    parser.add_argument(
        "--graph", type=Path, default=None, help="graph artifact, or what panel.py made of it, for completejourney"
    )
    parser.add_argument("--valid-users", type=int, default=None, help="users asked on validation, at most")
    parser.add_argument(
        "--shard", default="", metavar="i/n", help="only try every n-th setting from the i-th on; --resume tests later"
    )
    parser.add_argument("--resume", action="store_true", help="take trials that the log holds as done")
    parser.add_argument("--csv", type=Path, default=RESULTS, help="file the rows go to (default: %(default)s)")
    try:
        _run(parser.parse_args())
    except StrataError as error:
        print(f"retrieval: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _run(options: argparse.Namespace) -> None:
    sets, methods = options.sets.split(","), options.methods.split(",")
    for name in sets:
        if name not in NAMES:
            raise UsageError(f"no retrieval set {name!r}: {nearest(name, NAMES)}")
    if options.trials < 1 or options.repeats < 1:
        raise UsageError(f"expected at least one trial and one repeat, got {options.trials} and {options.repeats}")
    shard = rows.shard(options.shard) if options.shard else None
    if shard and any("+" in name for name in methods):
        raise UsageError(f"expected single methods with --shard, got {options.methods}: sums need whole searches")
    log = options.csv.with_name(f"{options.csv.stem}_trials.csv")
    search = Search(options.trials, options.seed, options.device, log, options.resume, shard=shard)
    for name in [*methods, *([options.reference] if options.reference else [])]:
        search.check(name)
    data = options.data or Path(os.environ.get("STRATA_DATA", ""))
    if options.data is None and "STRATA_DATA" not in os.environ and not set(sets) <= set(PANEL):
        raise UsageError("expected --data or STRATA_DATA, the folder of the public sets, got neither")
    for name in sets:
        _measure(protocol(name, data, options.valid_users, options.graph), methods, search, options)


def _measure(asked: Protocol, methods: Sequence[str], search: Search, options: argparse.Namespace) -> None:
    """Tune and test all methods on one set; a method's rows are written when it is done, comparisons at the end."""
    search.forget()
    if search.shard is not None:
        for name in methods:
            if search.suits(name, asked.valid.known):
                search.choose(name, asked)
        return
    names = list(dict.fromkeys([*([options.reference] if options.reference else []), *methods]))
    names = [name for name in names if search.suits(name, asked.valid.known)]
    found: dict[tuple[str, str], dict[str, Found]] = {}
    common = {"versions": rows.versions_of(), "git_sha": rows.commit(), "machine": rows.machine(options.device)}
    rows.write(options.csv, _published(asked, options.csv), **common)
    for name in names:
        chosen = search.choose(name, asked)
        print(f"{asked.name} {name}: {chosen}", file=sys.stderr, flush=True)
        for exam in asked.tests:
            repeats = options.repeats if search.learned(name) else 1
            rows.write(options.csv, _test(asked, exam, name, chosen, search, repeats, found), **common)
    for (exam, question), by_method in found.items():
        what = f"{asked.name}, {exam}, {question}"
        gaps = figures.differences(asked, what, names[0], by_method, options.seed)
        rows.write(options.csv, [_shaped(row, asked) for row in gaps], **common)


def _test(
    asked: Protocol,
    exam: Exam,
    name: str,
    chosen: Chosen,
    search: Search,
    repeats: int,
    found: dict[tuple[str, str], dict[str, Found]],
) -> list[dict[str, Any]]:
    """Rows of one method on one exam, each question with its own setting; what it found is kept for comparison."""
    lines = []
    settings = [
        setting for place, setting in enumerate(chosen.values()) if setting not in list(chosen.values())[:place]
    ]
    for setting in settings:
        questions = [question for question in exam.questions if chosen[question.name] == setting]
        runs = [
            search.answer(name, setting, exam, questions, max(asked.ks), search.seed + repeat)
            for repeat in range(repeats)
        ]
        for place, question in enumerate(questions):
            what, own = f"{asked.name}, {exam.name}, {question.name}", [run[place] for run in runs]
            lines += [_shaped(row, asked) for row in figures.means(asked, what, name, own)]
            lines += [_shaped(row, asked) for row in figures.buckets(asked, exam, what, name, own[0])]
            found.setdefault((exam.name, question.name), {})[name] = own[0]
            value = own[0].recall(asked.k, asked.over)
            print(f"{what} {name}: recall@{asked.k} {value[value == value].mean():.4f}", file=sys.stderr, flush=True)
    return lines


def _published(asked: Protocol, file: Path) -> list[dict[str, Any]]:
    """The published rows of a set that `file` does not hold yet."""
    what = f"{asked.name}, published"
    held = file.read_text(encoding="utf-8") if file.exists() else ""
    if f'"{what}"' in held:
        return []
    values = PUBLISHED.get(asked.name, [])
    row = {"what": what, "unit": "ratio", "machine": "", "p20": "", "p80": ""}
    return [{**row, "peer": who, "metric": metric, "p50": value} for who, metric, value in values]


def _shaped(row: dict[str, Any], asked: Protocol) -> dict[str, Any]:
    history = asked.valid.known.history
    return {**row, "shape": f"{history.num_users} users x {history.num_products} products", "dtype": "float32"}


if __name__ == "__main__":
    main()
