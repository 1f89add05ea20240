"""A retrain some weeks later: how many entities' interest tokens change, by how the retrain goes on from the old one.

    strata bench churn [-- --preset demo --days 28 --seeds 0,1,2 --anchor 3 --hysteresis 0.1 --recall]
                       [--config FILE.toml] [--keep FOLDER] [--warm FIELD=VALUE ...]

Runs up to their tokens in one store for each seed: one with t0, then with t0 some days later a learner trained from
the start, one that goes on from the earlier learner, the same with an anchor, and that with hysteresis of tokens. The
ids of each go on from the earlier vocabulary; "not aligned" is what the same tokens would be under the rows of the
learners. Bags are compared at the last date that all reach. With --recall the runs go on to their evaluation, for a
stable learner that finds less is no gain. Rows go to results/hierarchy.csv, once all vocabularies are as written and no
id means two interests; p20/p50/p80 are over seeds.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from data import snapshot
from data.artifacts import Store
from data.errors import BadDataError, StrataError
from data.progress import Progress
from data.snapshot import Snapshot
from flows import pipeline, presets, token_diff
from flows.config import PipelineConfig, load_config
from tests.benchmarks import rows

_NAMED = {"strongest_changed": "entities whose strongest token changes", "bag_change": "mean change of a bag"}
_STAGES = ("events", "graph", "features", "learner", "embeddings", "supergraph", "tokens")
_SIDES = {"aligned": "", "not aligned": "raw_"}
COLD, WARM, ANCHORED = "cold start", "warm start", "warm start and anchor"
HELD = "warm start, anchor and hysteresis"
Found = dict[str, dict[str, Any]]
"""The difference to the first run, see hierarchy.diff, by variant of the second."""


class Figure(NamedTuple):
    """What one seed says of a row."""

    what: str
    peer: str
    metric: str
    unit: str
    value: float


def main() -> None:
    """Run twice for each seed, check, append."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="demo")
    parser.add_argument("--config", type=Path, help="TOML file whose fields override the preset")
    parser.add_argument("--days", type=int, default=28, help="days between the two t0")
    parser.add_argument("--seeds", default="0", help="seeds, separated by commas, each of both runs")
    parser.add_argument("--anchor", type=float, default=3.0, help="learner.warm.anchor of the last two variants")
    parser.add_argument("--hysteresis", type=float, default=0.1, help="tokens.hysteresis of the last variant")
    parser.add_argument("--warm", action="append", default=[], metavar="FIELD=VALUE", help="a number of learner.warm")
    parser.add_argument("--recall", action="store_true", help="also run the evaluation, for Recall@20 of the learners")
    parser.add_argument("--keep", type=Path, help="leave the stores here; finished runs in them are taken as they are")
    parser.add_argument("--results", type=Path, default=rows.RESULTS, help="folder the rows go to")
    options = parser.parse_args()
    try:
        warm = {name: float(value) for name, _, value in (part.partition("=") for part in options.warm)}
        later = variants(options.anchor, options.hysteresis, warm)
        seeds = [int(seed) for seed in options.seeds.split(",")]
        base = Base(options.preset, options.config, options.days, options.recall)
        with tempfile.TemporaryDirectory(prefix="strata-bench-") as scratch:
            retrain(base, seeds, later, options.keep or Path(scratch), options.results)
    except (StrataError, ValueError) as error:
        print(f"churn: {error}", file=sys.stderr)
        sys.exit(error.exit_code if isinstance(error, StrataError) else 2)


class Base(NamedTuple):
    """What both runs have in common, and how many days lie between the two t0."""

    preset: str
    toml: Path | None
    days: int
    recall: bool = False

    def config(self, **changes: Any) -> PipelineConfig:
        """The configuration of a run."""
        return load_config(presets.named(self.preset), self.toml, changes)


def variants(anchor: float, hysteresis: float, warm: dict[str, float]) -> dict[str, dict[str, Any]]:
    """What each retrain changes in the configuration, by name."""
    free, held = {"learner": {"warm": warm | {"anchor": 0.0}}}, {"learner": {"warm": warm | {"anchor": anchor}}}
    off, on = ({"tokens": {"hysteresis": share}} for share in (0.0, hysteresis))
    return {COLD: {"learner": {"warm_start": False}} | off, WARM: free | off, ANCHORED: held | off, HELD: held | on}


def retrain(
    base: Base, seeds: Sequence[int], later: dict[str, dict[str, Any]], stores: Path, results: Path
) -> list[Found]:
    """Run all, append the rows, and return the differences that they tell, by seed; a store a seed below `stores`."""
    told, found = [], []
    for seed in seeds:
        store = Store(stores / f"seed-{seed}")
        differences, figures = _seed(base, seed, later, store)
        found.append(differences)
        told += figures
    config = base.config()
    dates = {difference["compared_at"] for differences in found for difference in differences.values()}
    preset = base.preset if base.toml is None else base.toml.stem
    t0, again = config.cuts.t0.date(), _again(base, config).date()
    named = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
    shape = f"{preset}, {named}, t0 {t0} and {again}, bags of {min(dates)}"
    common = {"shape": shape, "versions": rows.versions_of(), "git_sha": rows.commit()}
    rows.write(results / "hierarchy.csv", _over_seeds(told), **common)
    return found


def _again(base: Base, config: PipelineConfig) -> datetime:
    return config.cuts.t0 + timedelta(days=base.days)


def _seed(base: Base, seed: int, later: dict[str, dict[str, Any]], store: Store) -> tuple[Found, list[Figure]]:
    """Differences and figures of one seed."""
    config = base.config(seed=seed)
    first, old_recall = _publish(config, store, base.recall)
    told = list(_recalls(f"learner of {config.cuts.t0.date()}", old_recall))
    found: Found = {}
    for name, changes in later.items():
        moved = base.config(seed=seed, cuts={"t0": _again(base, config).isoformat()}, **changes)
        second, recall = _publish(moved, store, base.recall)
        found[name] = token_diff.diff(store, first.id, second.id, None, 0)
        _check(store, first, second, found[name])
        told += _figures(name, found[name], second.ref(store, "supergraph").json("churn.json"))
        told += _recalls(name, recall)
    return found, told


def _over_seeds(told: Sequence[Figure]) -> Iterator[dict[str, Any]]:
    """A row for each figure, in the order in which they came first."""
    values: dict[tuple[str, str, str, str], list[float]] = defaultdict(list)
    for figure in told:
        values[figure[:4]].append(figure.value)
    for (what, peer, metric, unit), found in values.items():
        yield {"what": what, "peer": peer, "metric": metric, "unit": unit, **rows.spread(found)}


def _publish(config: PipelineConfig, store: Store, evaluated: bool) -> tuple[Snapshot, list[dict[str, Any]]]:
    """What a run has made up to its tokens, as a snapshot that a later one can go on from; and its Recall@20."""
    until = "evaluation" if evaluated else "tokens"
    made = pipeline.direct(config, store, Progress(sys.stderr), until).refs
    recall = made["evaluation"].json("retrieval.json") if evaluated else []
    refs = {name: ref for name, ref in made.items() if name in _STAGES}
    emitted = refs["embeddings"].metrics
    version = refs["supergraph"].metrics["vocab_version"]
    return snapshot.publish(store, refs, version, emitted["model_version"], emitted["last_as_of"]), recall


def _check(store: Store, first: Snapshot, second: Snapshot, found: dict[str, Any]) -> None:
    """Raise BadDataError unless the later vocabulary was aligned to the earlier and gives no id to two interests."""
    before, after = (made.ref(store, "supergraph") for made in (first, second))
    for ref in (before, after):
        ref.verify()
    if not found["aligned"]:
        raise BadDataError("the later vocabulary does not go on from the earlier: expected an empty store in --keep")
    fates = after.table("id_map.parquet").to_pylist()
    known = set(before.table("primitives.parquet")["primitive_id"].to_pylist())
    ids = [fate["new_id"] for fate in fates if fate["new_id"] is not None]
    minted = {fate["new_id"] for fate in fates if fate["status"] == "minted"}
    if len(set(ids)) < len(ids) or minted & known:
        raise BadDataError(f"expected every public id to mean one interest, got {sorted(minted & known)} twice")


def _figures(variant: str, found: dict[str, Any], churn: dict[str, Any]) -> Iterator[Figure]:
    for level in found["levels"]:
        for name in ("kept", "minted", "retired"):
            yield Figure(f"level {level['level']}, ids", variant, name, "ids", level[name])
        yield from _changes(f"level {level['level']}", variant, level)
    for group in found["groups"]:
        yield from _changes(f"level {group['level']}, {group['entity_type']}, {group['bucket']}", variant, group)
    for name, unit in (("residual", "distance"), ("cosine", "cosine")):
        yield Figure("Procrustes", variant, name, unit, churn["procrustes"][name])


def _changes(what: str, variant: str, figures: dict[str, Any]) -> Iterator[Figure]:
    """Figures of some entities, aligned and not; none where there are no entities."""
    for side, prefix in _SIDES.items():
        for name, metric in _NAMED.items():
            value = figures[prefix + name]
            if value is not None:
                yield Figure(f"{what}, {figures['entities']} entities", f"{variant}, {side}", metric, "share", value)


def _recalls(peer: str, found: list[dict[str, Any]]) -> Iterator[Figure]:
    """A figure for each protocol and window of the learner; none where too few positives carry no claim."""
    for row in found:
        if row["method"] == "learner" and row["recall@20"] is not None:
            what = f"retrieval, {row['protocol']}, {row['split']}, {row['positives']} positives"
            yield Figure(what, peer, "recall@20", "share", row["recall@20"])


if __name__ == "__main__":
    main()
