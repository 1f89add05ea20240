"""Variants of the learner: the whole recipe, and the same with one thing switched off (or on where it is off).

The whole recipe is that of the retrieval benchmark for the set, with primitives, so that distillation, consistency,
spread and hub tokens have their say. The anchored start has no switch and is in all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from data.errors import UsageError, nearest
from hierarchy import train
from hierarchy.bias import BIASES
from hierarchy.seeds import VIEWS
from tests.benchmarks.retrieval_quality import learner

NEVER = 1_000_000
FULL = "full recipe"
STRUCTURES = ("spectral", "directional")


class Variant(NamedTuple):
    """`setting`: fields of `hierarchy.train.Config` over the recipe. `popularity`: factor on the learned scale when
    products are scored. `content`: whether products have any. `owners`: whether advertisers are known."""

    name: str
    setting: Mapping[str, Any]
    popularity: float = 1.0
    content: bool = True
    owners: bool = False


def recipe(time_kind: str, edges: int, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The setting of the whole recipe for a set of `edges` events; `changes` hold in all variants."""
    plain = learner.config_of(time_kind, changes)
    return {"warmup_steps": learner.warm_up(plain, edges), **changes}


def variants(time_kind: str, base: Mapping[str, Any]) -> list[Variant]:
    """Every variant that differs from the recipe `base` on a set of this kind; the whole recipe is the first."""
    config = learner.config_of(time_kind, base)
    found = [Variant(FULL, {}), *_losses(config), *_views(config), *_biases(config), *_ids(config)]
    return [*found, *_levels(config), *_negatives(config), *_rest(config)]


def chosen(known: Sequence[Variant], names: str) -> list[Variant]:
    """Those named, separated by commas, all if none is; the whole recipe always. Raises UsageError for another name."""
    by_name = {variant.name: variant for variant in known}
    asked = [name.strip() for name in names.split(",") if name.strip()]
    for name in asked:
        if name not in by_name:
            raise UsageError(f"no variant {name!r}: {nearest(name, by_name)}")
    return [variant for variant in known if not asked or variant.name in asked or variant.name == FULL]


def merged(base: Mapping[str, Any], setting: Mapping[str, Any]) -> dict[str, Any]:
    """`setting` over `base`, one level deep."""
    found = dict(base)
    for name, value in setting.items():
        known = found.get(name)
        found[name] = {**known, **value} if isinstance(value, Mapping) and isinstance(known, Mapping) else value
    return found


def _losses(config: train.Config) -> Iterator[Variant]:
    for name in ("link", "distillation", "consistency", "spread"):
        if getattr(config.weights, name):
            yield Variant(f"{name} off", {"weights": {name: 0.0}})
    # The recipe has a weight for it, but the benchmark's graph has no advertisers.
    yield Variant("advertiser link on", {"advertiser_negatives": 256}, owners=True)


def _views(config: train.Config) -> Iterator[Variant]:
    for name in VIEWS:
        if name in config.distillation.views:
            rest = tuple(view for view in config.distillation.views if view != name)
            yield Variant(f"student view {name} off", {"distillation": {"views": rest}})
    taught = config.teaching.views
    for name in STRUCTURES:
        if name == "directional" and config.history == "others":
            continue  # nothing follows anything where there is no order
        others = tuple(view for view in taught if view != name)
        on = name in taught
        yield Variant(
            f"teacher {name} {'off' if on else 'on'}", {"teaching": {"views": others if on else (*taught, name)}}
        )
    there = [name for name in STRUCTURES if getattr(config.structure, name)]
    for name in there:
        yield Variant(f"structure {name} off", {"structure": {name: 0}})
    if len(there) > 1:
        yield Variant("structure off", {"structure": dict.fromkeys(there, 0)})


def _biases(config: train.Config) -> Iterator[Variant]:
    for name in BIASES:
        if name not in config.bias_off:
            yield Variant(f"bias {name} off", {"bias_off": (*config.bias_off, name)})
    yield Variant("biases off", {"bias_off": BIASES})
    if config.history_decay < 1:
        yield Variant("history decay off", {"history_decay": 1.0})


def _ids(config: train.Config) -> Iterator[Variant]:
    yield Variant("id residuals off", {"id_floor": 1_000_000_000, "structure": dict.fromkeys(STRUCTURES, 0)})
    if config.id_dropout:
        yield Variant("id dropout off", {"id_dropout": 0.0})
    else:
        yield Variant("id dropout on", {"id_dropout": 0.2})
    if config.lending.neighbours:
        yield Variant("loans off", {"lending": {"neighbours": 0}})
    yield Variant("content off", {}, content=False)


def _levels(config: train.Config) -> Iterator[Variant]:
    yield Variant("primitives off while training", {"warmup_steps": NEVER})
    levels = tuple(level.model_dump() for level in config.levels)
    if len(levels) > 1:
        if config.distillation.evenness:
            yield Variant("levels not united", {"distillation": {"evenness": 0.0}})
        yield Variant("one level", {"levels": levels[-1:]})
    if len(levels) > 2:
        yield Variant("two levels", {"levels": (levels[0], levels[-1])})


def _negatives(config: train.Config) -> Iterator[Variant]:
    if config.rows == "users":
        return  # several targets a row need all products as candidates
    sampled = {"full_softmax": 0, "negatives": 1024}
    yield Variant("sampled softmax", sampled)
    yield Variant("sampled softmax and hard negatives", {**sampled, "hard_negatives": 4})


def _rest(config: train.Config) -> Iterator[Variant]:
    if config.repeats:
        yield Variant("repeats off", {"repeats": False})
    yield Variant("popularity off", {}, popularity=0.0)
    if config.dropout:
        yield Variant("dropout off", {"dropout": 0.0})
    if config.layers:
        yield Variant("attention off", {"layers": 0})
    yield Variant("two vectors a user", {"user_heads": 2})
