"""A retrain some weeks later: how many entities' interest tokens change, with and without alignment.

    strata bench churn [-- --preset demo --days 28 --seed 0] [--config FILE.toml] [--keep STORE]

Two runs up to their tokens in one store, with t0 and with t0 some days later; the later one goes on from the vocabulary
of the earlier. Bags are compared at the last date that both reach. Rows go to results/hierarchy.csv, once both
vocabularies are as written and no id means two interests.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from data import snapshot
from data.artifacts import Store
from data.errors import BadDataError, StrataError
from data.progress import Progress
from data.snapshot import Snapshot
from flows import pipeline, presets, token_diff
from flows.config import PipelineConfig, load_config
from tests.benchmarks import rows

_NAMED = {"strongest_changed": "entities whose strongest token changes", "bag_change": "mean change of a bag"}
_PEERS = {"aligned": "", "not aligned": "raw_"}


def main() -> None:
    """Run twice, check, append."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="demo")
    parser.add_argument("--config", type=Path, help="TOML file whose fields override the preset")
    parser.add_argument("--days", type=int, default=28, help="days between the two t0")
    parser.add_argument("--seed", type=int, default=0, help="seed of both runs")
    parser.add_argument("--keep", type=Path, help="leave the store here; a finished run in it is taken as it is")
    parser.add_argument("--results", type=Path, default=rows.RESULTS, help="folder the rows go to")
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="strata-bench-") as scratch:
            store = Store(options.keep or Path(scratch) / "store")
            retrain(options.preset, options.config, options.days, options.seed, store, options.results)
    except StrataError as error:
        print(f"churn: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def retrain(preset: str, toml: Path | None, days: int, seed: int, store: Store, results: Path) -> dict[str, Any]:
    """Run both, append the rows, and return the difference that they tell."""
    config = load_config(presets.named(preset), toml, {"seed": seed})
    t0 = config.cuts.t0
    later = {"seed": seed, "cuts": {"t0": (t0 + timedelta(days=days)).isoformat()}}
    first = _publish(config, store)
    second = _publish(load_config(presets.named(preset), toml, later), store)
    found = token_diff.diff(store, first.id, second.id, None, 0)
    _check(store, first, second, found)
    name, again = preset if toml is None else toml.stem, (t0 + timedelta(days=days)).date()
    shape = f"{name}, seed {seed}, t0 {t0.date()} and {again}, bags of {found['compared_at']}"
    common = {"shape": shape, "versions": rows.versions_of(), "git_sha": rows.commit()}
    rows.write(results / "hierarchy.csv", _rows(found, second.ref(store, "supergraph").json("churn.json")), **common)
    return found


def _publish(config: PipelineConfig, store: Store) -> Snapshot:
    """What a run has made up to its tokens, as a snapshot that a later one can go on from."""
    refs = pipeline.direct(config, store, Progress(sys.stderr), "tokens").refs
    emitted = refs["embeddings"].metrics
    version = refs["supergraph"].metrics["vocab_version"]
    return snapshot.publish(store, refs, version, emitted["model_version"], emitted["last_as_of"])


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


def _rows(found: dict[str, Any], churn: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for level in found["levels"]:
        for name in ("kept", "minted", "retired"):
            yield {"what": f"level {level['level']}, ids", "metric": name, "unit": "ids", **rows.spread([level[name]])}
        yield from _changes(f"level {level['level']}", level)
    for group in found["groups"]:
        yield from _changes(f"level {group['level']}, {group['entity_type']}, {group['bucket']}", group)
    for name, unit in (("residual", "distance"), ("cosine", "cosine")):
        value = churn["procrustes"][name]
        yield {"what": "Procrustes", "metric": name, "unit": unit, **rows.spread([value])}


def _changes(what: str, figures: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each figure of some entities, aligned and not; none where there are no entities."""
    for peer, prefix in _PEERS.items():
        for name, metric in _NAMED.items():
            value = figures[prefix + name]
            if value is not None:
                named = f"{what}, {figures['entities']} entities"
                yield {"what": named, "peer": peer, "metric": metric, "unit": "share", **rows.spread([value])}


if __name__ == "__main__":
    main()
