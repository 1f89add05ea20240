"""The pipeline's configuration: every stage's own `Config` composed once, and the table of stages.

A field of a stage named `t0`, `t1` or `t2` is filled from `cuts`, and one named `as_of` from `events`, so a time is
written in one place only.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

import data.ingest
import encoders.encode
import flows.report
import graph.build
import hierarchy.embed
import hierarchy.evaluate
import hierarchy.index
import hierarchy.postings
import hierarchy.supergraph
import hierarchy.tokens
import hierarchy.train
import ranking.examples
import ranking.histories
import ranking.train
import ranking.user_states
from data.context import StageConfig, UtcTime, execution
from data.errors import UsageError, nearest


@dataclass(frozen=True)
class Stage:
    """One step of the path of the data: the module that holds `Config` and `run`, and the stages it reads.

    `needs` names the time cut after which the log must go on for the stage to have data. `spared` names inputs that
    spare work but never change the result, so they are no part of the key. A module may have `seen(config, inputs)`:
    digests, by input, of the part of an input that the stage looks at, which stand for the input in the key. So a
    learner is the same artifact on every day on which the log before t0 is the same.
    """

    name: str
    module: ModuleType
    inputs: tuple[str, ...] = ()
    needs: str | None = None
    spared: tuple[str, ...] = ()


STAGES = (
    Stage("events", data.ingest),
    Stage("graph", graph.build, ("events",), spared=("previous",)),
    Stage("features", encoders.encode, ("events",), spared=("previous",)),
    Stage("learner", hierarchy.train, ("graph", "features"), "t0"),
    Stage("embeddings", hierarchy.embed, ("graph", "features", "learner"), "t0", spared=("previous",)),
    Stage("supergraph", hierarchy.supergraph, ("events", "graph", "features", "learner", "embeddings"), "t0"),
    Stage("tokens", hierarchy.tokens, ("embeddings", "supergraph"), "t0", spared=("previous",)),
    Stage("postings", hierarchy.postings, ("tokens",), "t0"),
    Stage("index", hierarchy.index, ("events", "embeddings", "supergraph"), "t0"),
    Stage(
        "evaluation",
        hierarchy.evaluate,
        ("events", "graph", "features", "learner", "embeddings", "supergraph", "tokens"),
        "t2",
    ),
    Stage("histories", ranking.histories, ("events",)),
    Stage("user_states", ranking.user_states, ("histories", "tokens"), "t0"),
    Stage("examples", ranking.examples, ("events", "features", "tokens", "histories", "user_states"), "t2"),
    Stage("ranker", ranking.train, ("examples",), "t2"),
    Stage(
        "report", flows.report, ("events", "supergraph", "tokens", "postings", "index", "evaluation", "ranker"), "t2"
    ),
)


class Cuts(BaseModel):
    """Time cuts: learner and user model train before `t0`, the ranker on [t0, t1).

    It validates on [t1, t2) and is tested from `t2` on.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    t0: UtcTime = Field(description="end of the learner's training events; the as_of grid starts here")
    t1: UtcTime = Field(description="end of the ranker's training rows")
    t2: UtcTime = Field(description="end of the validation rows; what comes later is tested once")

    @model_validator(mode="after")
    def _ordered(self) -> Cuts:
        if not self.t0 < self.t1 < self.t2:
            raise ValueError(f"expected t0 < t1 < t2, got {self.t0}, {self.t1}, {self.t2}")
        return self


class PipelineConfig(StageConfig):
    """Everything a run depends on. TOML sections carry the names of these fields."""

    seed: int = Field(default=0, ge=0, description="seed of every random choice; part of every artifact's key")
    threads: int = execution(2, "CPU threads of torch and DuckDB", ge=1)
    device: str = execution("cpu", "device of learner and embeddings: cpu, cuda or cuda:N; features have their own")
    cuts: Cuts
    events: data.ingest.Config
    graph: graph.build.Config
    features: encoders.encode.Config
    learner: hierarchy.train.Config
    embeddings: hierarchy.embed.Config
    supergraph: hierarchy.supergraph.Config
    tokens: hierarchy.tokens.Config
    postings: hierarchy.postings.Config
    index: hierarchy.index.Config
    evaluation: hierarchy.evaluate.Config
    histories: ranking.histories.Config
    user_states: ranking.user_states.Config
    examples: ranking.examples.Config
    ranker: ranking.train.Config
    report: flows.report.Config

    @model_validator(mode="before")
    @classmethod
    def _fill_cuts(cls, values: Any) -> Any:
        if not isinstance(values, dict) or not isinstance(values.get("cuts"), dict):
            return values
        filled = dict(values)
        for stage in STAGES:
            section = dict(filled.get(stage.name) or {})
            for name in {"t0", "t1", "t2"} & set(stage.module.Config.model_fields):
                section.setdefault(name, values["cuts"].get(name))
            if "as_of" in stage.module.Config.model_fields and stage.name != "events":
                section.setdefault("as_of", (values.get("events") or {}).get("as_of"))
            filled[stage.name] = section
        return filled


def load_config(preset: Mapping[str, Any], toml: Path | None, overrides: Mapping[str, Any]) -> PipelineConfig:
    """The preset with the fields of a TOML file and then `overrides` (nested like the file) put over it.

    Raises UsageError for an unreadable file, an unknown key (with the nearest known name) or a wrong value.
    """
    merged = dict(preset)
    if toml is not None:
        merged = _merge(merged, _read_toml(toml))
    merged = _merge(merged, overrides)
    where = str(toml) if toml else "configuration"
    try:
        return PipelineConfig.model_validate(merged, context={"root": toml.parent if toml else Path.cwd()})
    except ValidationError as error:
        raise UsageError(explain(error, where)) from error


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError(f"expected a TOML file at {path}, found none") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} is not readable TOML: {error}") from error


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for name, value in above.items():
        both_tables = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
        merged[name] = _merge(merged[name], value) if both_tables else value
    return merged


def explain(error: ValidationError, where: str) -> str:
    """One line a problem: the key's place, what was expected, what came, and the nearest known name."""
    lines = [f"{where}: {error.error_count()} problem(s)"]
    for problem in error.errors(include_url=False)[:8]:
        place = [part for part in problem["loc"] if isinstance(part, str)]
        if problem["type"] == "extra_forbidden":
            lines.append(f"  unknown key {'.'.join(place)}: {nearest(place[-1], _known_keys(place[:-1]))}")
        elif problem["type"] == "missing":
            lines.append(f"  {'.'.join(place)}: expected a value, got none")
        else:
            said = problem["msg"].removeprefix("Value error, ")
            came = "" if isinstance(problem["input"], Mapping) else f" (got {problem['input']!r})"
            lines.append(f"  {'.'.join(place) or 'config'}: {said}{came}"[:300])
    return "\n".join(lines)


def _known_keys(place: Iterable[str]) -> list[str]:
    model: Any = PipelineConfig
    for name in place:
        annotation = model.model_fields[name].annotation if name in model.model_fields else None
        options = [annotation, *getattr(annotation, "__args__", ())]
        found = [kind for kind in options if isinstance(kind, type) and issubclass(kind, BaseModel)]
        if not found:
            return []
        model = found[0]
    return list(model.model_fields)
