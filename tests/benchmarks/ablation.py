"""Ablation: the learner's whole recipe, and the same without each loss, view, bias and level, on validation only.

    strata bench ablation -- [--set amazon-scientific] [--device cuda] [--seeds 3] [--only NAME,...] [--shard 0/4]
    strata bench ablation -- --table

Variants are trained one after the other; with `--shard i/n` a process takes every n-th, and all share the folder of
fits, where a finished one is found again. Rows go to results/ablation.csv as soon as all seeds of a variant are there:
recall of warm products and of products nobody had, agreement of each level with the categories and use of its
primitives, p20/p50/p80 over seeds, and the difference to the whole recipe with an interval over users.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from data.errors import StrataError, SystemStateError, UsageError
from tests.benchmarks import rows
from tests.benchmarks.ablations import ground as grounds
from tests.benchmarks.ablations import table
from tests.benchmarks.ablations.fits import Fits
from tests.benchmarks.ablations.variants import Variant, chosen, recipe, variants
from tests.benchmarks.sampler import machine

RESULTS = rows.RESULTS / "ablation.csv"
_PATIENCE = 900.0
"""Seconds that a shard waits for the whole recipe, which the first shard trains."""


def main() -> None:
    """Train, measure and append rows, variant by variant; or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="amazon-scientific", choices=grounds.SETS)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--seeds", type=int, default=3, help="fits of each variant")
    parser.add_argument("--only", default="", help="names of variants; the whole recipe is always there")
    parser.add_argument("--shard", default="0/1", help="i/n: every n-th variant from the i-th on")
    parser.add_argument("--list", action="store_true", help="print the names of the variants and train nothing")
    parser.add_argument("--table", action="store_true", help="print the rows of --csv in markdown and train nothing")
    parser.add_argument("--data", type=Path, default=None, help="folder of the public sets (default: $STRATA_DATA)")
    parser.add_argument("--graph", type=Path, default=None, help="graph artifact, or what panel.py made of it")
    parser.add_argument("--users", type=int, default=4_000, help="users each question is put to, at most")
    parser.add_argument(
        "--change", action="append", default=[], help="NAME=JSON: a field of the recipe, in all variants"
    )
    parser.add_argument("--fits", type=Path, default=Path("runs/ablation"), help="folder of finished fits")
    parser.add_argument("--csv", type=Path, default=RESULTS, help="file the rows go to (default: %(default)s)")
    parser.add_argument("--commit", default=None, help="the commit, where git cannot be asked")
    try:
        _run(parser.parse_args())
    except StrataError as error:
        print(f"ablation: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _run(options: argparse.Namespace) -> None:
    if options.table:
        print(table.markdown(options.csv))
        return
    if options.seeds < 1:
        raise UsageError(f"expected at least one seed, got {options.seeds}")
    if options.data is None and "STRATA_DATA" not in os.environ and options.set != "completejourney":
        raise UsageError("expected --data or STRATA_DATA, the folder of the public sets, got neither")
    place, count = rows.shard(options.shard)
    data = options.data or Path(os.environ.get("STRATA_DATA", ""))
    ground = grounds.opened(options.set, data, options.graph, options.users)
    time_kind, edges = ground.known.time_kind, len(ground.known.history.user)
    base = recipe(time_kind, edges, {**ground.changes, **_changes(options.change)})
    asked = chosen(variants(time_kind, base), options.only)
    if options.list:
        print("\n".join(variant.name for variant in asked))
        return
    _measure(Fits(ground, base, options.device, options.fits), asked, asked[place::count], options)


def _measure(fits: Fits, asked: Sequence[Variant], own: Sequence[Variant], options: argparse.Namespace) -> None:
    """Train the own variants; one whose whole recipe is not there yet is written when it is."""
    waiting: list[Variant] = []
    for variant in own:
        for seed in range(options.seeds):
            fit = fits.of(variant, seed)
            told = fit.refused or ", ".join(f"{name} {fit.figures[name]:.4f}" for name in fit.users)
            print(
                f"{fits.ground.name}, {variant.name}, seed {seed}: {told}, {fit.seconds:.0f} s",
                file=sys.stderr,
                flush=True,
            )
        waiting = _written(fits, asked[0], [*waiting, variant], options)
    started = time.monotonic()
    while waiting:
        if time.monotonic() - started > _PATIENCE:
            raise SystemStateError("expected the whole recipe from the shard 0/n, found none: run it with these --fits")
        time.sleep(1.0)
        waiting = _written(fits, asked[0], waiting, options)


def _written(fits: Fits, whole: Variant, finished: list[Variant], options: argparse.Namespace) -> list[Variant]:
    """Append the rows of finished variants if the whole recipe is there to compare with; gives back what must wait."""
    reference = [fits.held(whole, seed) for seed in range(options.seeds)]
    there = [fit for fit in reference if fit is not None]
    if len(there) < options.seeds:
        return finished
    for variant in finished:
        found = [fits.of(variant, seed) for seed in range(options.seeds)]
        _append(list(table.of_variant(variant.name, found, there, fits.ground.shape)), options)
    return []


def _append(lines: list[dict[str, Any]], options: argparse.Namespace) -> None:
    """Several processes write to one file: one at a time."""
    options.csv.parent.mkdir(parents=True, exist_ok=True)
    common = {"versions": rows.versions_of(), "git_sha": rows.commit() if options.commit is None else options.commit}
    if options.device == "cuda":
        common["machine"] = machine(options.device)
    with open(options.fits / "rows.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rows.write(options.csv, lines, **common)


def _changes(given: Sequence[str]) -> dict[str, Any]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        try:
            found[name] = json.loads(value)
        except ValueError:
            equals = ""
        if not equals:
            raise UsageError(f"expected --change NAME=JSON, such as epochs=2, got {text!r}")
    return found


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", torch.get_num_threads())))
    main()
