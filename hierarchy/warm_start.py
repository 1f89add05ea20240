"""Warm start: a retrain that goes on from the learner before it, so that the space and its primitives stay in place.

Two trainings from the start agree on angles but not on axes, and their primitives divide the entities anew; most
changes of tokens come from that. One that goes on moves only as far as new data move it. What is refitted at each
retrain has axes of its own, though: content and closed-form views are turned back onto those that the weights know by
the entities that both have (hierarchy.procrustes).
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from data.artifacts import ArtifactRef
from graph.store import index_in
from hierarchy.batches import StepInput
from hierarchy.candidates import taken
from hierarchy.content import WITH_ID
from hierarchy.inference import FrozenLearner
from hierarchy.losses.anchor import anchor_loss
from hierarchy.passes import Passes
from hierarchy.procrustes import procrustes
from hierarchy.prototypes import Prototypes
from hierarchy.teacher import make_teacher
from hierarchy.transformer import EncoderShape, InterestEncoder

if TYPE_CHECKING:
    from hierarchy.model import Learner
    from hierarchy.train import Config

_COMPARED = 100_000  # products by which two spaces of content are laid over each other
_ALIKE = 0.5  # mean cosine of their content after the turn, below which they are not the same space
_FREE = ("id_rows", "dropout", "bias_off")  # sizes and switches that may differ from one retrain to the next


class WarmStart(BaseModel):
    """How a retrain goes on from the learner before it; no effect without one."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    steps: int = Field(default=100, ge=0, description="Optimizer steps, in place of learner.steps and epochs.")
    lr_factor: float = Field(default=0.1, gt=0, description="Factor on every peak learning rate.")
    momentum: float = Field(
        default=0.998, ge=0, lt=1, description="Share of its old place a primitive keeps per step, at least."
    )
    anchor: float = Field(
        default=3.0, ge=0, description="Weight of what the learner before said of entities, as their teacher; 0: off."
    )


@dataclass(frozen=True)
class Before:
    """The learner before this one. known: external ids that own its id residuals, by type. turn float32 (D, D) takes
    content of today to the content that its weights know, None where they are one; cosine: how well, on average."""

    learner: FrozenLearner
    known: Mapping[str, pa.Array]
    turn: torch.Tensor | None
    cosine: float

    def shortened(self, config: Config) -> Config:
        """`config` for a training that goes on: fewer steps, lower rates, no birth of primitives."""
        warm = config.warm
        rates = {name: getattr(config, name) * warm.lr_factor for name in ("lr", "id_lr", "bias_lr", "repeat_lr")}
        momentum = max(warm.momentum, config.distillation.momentum)
        # Settling on the products anew would move every primitive at once, which is what a warm start is to avoid.
        slower = config.distillation.model_copy(update={"momentum": momentum, "settle": 0})
        return config.model_copy(
            update={"steps": warm.steps, "epochs": 0.0, "warmup_steps": 0, "distillation": slower, **rates}
        )

    @torch.no_grad()
    def fill(self, student: Learner, known: Mapping[str, pa.Array]) -> None:
        """Give `student` the weights; id residuals go by external id to the entities `known` today.

        A new entity's residual stays where it is, at its closed-form views or zero, turned by what best takes those of
        the known ones to what they have become. Memory: two id tables.
        """
        own = student.state_dict()
        for name, tensor in self.learner.model.state_dict().items():
            if not name.endswith("_ids") and name != "encoder.gate.weights":
                own[name].copy_(tensor)
        if self.turn is not None:
            _turn_content(student.encoder, self.turn)
        _fill_ids(student.encoder, self.learner.model.encoder, _places(known, self.known))

    @torch.no_grad()
    def place(self, prototypes: Prototypes) -> None:
        """Put primitives where they were, in the same order, with their masses."""
        own, found = prototypes.state_dict(), self.learner.prototypes.state_dict()
        for name, tensor in found.items():
            if own[name].shape == tensor.shape:
                own[name].copy_(tensor)
        if any(own[name].shape != tensor.shape for name, tensor in found.items()):
            prototypes.refresh()  # other numbers of hub tokens

    def told(self, known: Mapping[str, pa.Array]) -> dict[str, Any]:
        """What the metrics say of it."""
        kept = {kind: int((index_in(ids, self.known[kind]) >= 0).sum()) for kind, ids in known.items()}
        return {"previous": self.learner.ref.key, "ids_kept": kept, "content_cosine": self.cosine}


class Anchor:
    """The learner before by the rows of today, as a teacher of what it said of entities.

    A copy of the student as it starts, and of the primitives. Memory: two id tables more.
    """

    def __init__(self, student: Learner, prototypes: Prototypes, passes: Passes, temperature: float) -> None:
        """`passes`: how encoders are called, but for the primitives."""
        self.model, self.prototypes = make_teacher(student), copy.deepcopy(prototypes)
        self.passes, self.temperature = dataclasses.replace(passes, prototypes=self.prototypes), temperature

    def loss(self, student: Learner, passes: Passes, given: StepInput, count: int) -> torch.Tensor:
        """hierarchy.losses.anchor of `count` users and products of edges of a step."""
        products = given.products.targets[:count]
        seeds = [taken(given.users, slice(count)), taken(given.products.seeds, products)]
        with torch.no_grad():
            before = torch.cat([self.passes.encode(self.model.encoder, some)[:, 0] for some in seeds])
        now = torch.cat([passes.encode(student.encoder, some)[:, 0] for some in seeds])
        levels = [self.prototypes.vectors(level) for level in range(self.prototypes.num_levels)]
        return anchor_loss(now, before, levels, self.temperature)


def open_before(
    config: Config, inputs: Mapping[str, ArtifactRef], shape: EncoderShape, say: Callable[[str], None]
) -> Before | None:
    """The learner of input `previous`, which saw the content of input `previous_features`; None without one, or when
    it cannot be gone on from: then `say` is told why, and training starts from the beginning.
    """
    if not config.warm_start or "previous" not in inputs:
        return None
    found = _opened(inputs["previous"])
    reason = found if isinstance(found, str) else _difference(config, shape, found)
    if isinstance(found, str) or reason:
        say(f"! learner starts cold: the one before it, {inputs['previous'].key}, has {reason}")
        return None
    turn, cosine = _content_turn(inputs["previous_features"], inputs["features"])
    if cosine < _ALIKE:
        say(f"! learner starts cold: content of today is not like that before, mean cosine {cosine:.2f} after a turn")
        return None
    known = {kind: found.ref.table(f"known_{kind}.parquet")["entity_id"].combine_chunks() for kind in WITH_ID}
    return Before(found, known, turn, cosine)


def _opened(ref: ArtifactRef) -> FrozenLearner | str:
    """The learner, or what is wrong with it: an older version of this software may have had other parts."""
    try:
        return FrozenLearner.open(ref)
    except (KeyError, TypeError, RuntimeError) as error:
        return f"other parts ({str(error).splitlines()[0]})"


def _difference(config: Config, shape: EncoderShape, found: FrozenLearner) -> str:
    """The first size in which the two differ, in words; empty when there is none."""
    old, new = (json.loads(json.dumps(dataclasses.asdict(s))) for s in (found.model.encoder.shape, shape))
    old["levels"], new["levels"] = list(found.prototypes.sizes), [level.k for level in config.levels]
    for name in ("levels", *(name for name in new if name not in (*_FREE, "levels"))):
        if old[name] != new[name]:
            return f"{name} {old[name]}, not {new[name]}"
    return ""


def _content_turn(old: ArtifactRef, new: ArtifactRef) -> tuple[torch.Tensor | None, float]:
    """The turn (D, D) of new content onto old by the products that have both, None where none is needed; mean cosine
    after it, -1 when no product has both."""
    ids = [ref.table("entities_product.parquet", ["entity_id"])["entity_id"].combine_chunks() for ref in (old, new)]
    place = index_in(ids[1], ids[0])
    rows = np.flatnonzero(place >= 0)
    rows = rows[:: max(1, -(-len(rows) // _COMPARED))]
    before = np.asarray(old.array("content_product.npy")[place[rows]], np.float32)
    after = np.asarray(new.array("content_product.npy")[rows], np.float32)
    weight = np.asarray(before.any(axis=1) & after.any(axis=1), np.float64)
    if np.array_equal(before, after):
        return None, 1.0
    if not weight.any():
        return None, -1.0
    found = procrustes(after, before, weight)
    return torch.from_numpy(found.matrix), found.cosine


def _turn_content(encoder: InterestEncoder, turn: torch.Tensor) -> None:
    """Make maps of content read `content @ turn` where they read content."""
    encoder.content.copy_(turn @ encoder.content)
    if encoder.gate is not None:
        weight = encoder.gate.hidden.weight
        for start in range(0, len(encoder.shape.gate) * len(turn), len(turn)):
            part = slice(start, start + len(turn))
            weight[:, part] = weight[:, part] @ turn.t()


def _places(new: Mapping[str, pa.Array], old: Mapping[str, pa.Array]) -> NDArray[np.int64]:
    """Row of the old id table for each of the new one, int64 (rows + 1,); 0, its empty row, for new entities."""
    parts, first = [np.zeros(1, np.int64)], 1
    for kind in WITH_ID:
        place = index_in(new[kind], old[kind])
        parts.append(np.where(place >= 0, place + first, 0))
        first += len(old[kind])
    return np.concatenate(parts)


def _fill_ids(new: InterestEncoder, old: InterestEncoder, place: NDArray[np.int64]) -> None:
    pairs = ((new.source_ids, old.source_ids), (new.target_ids, old.target_ids))
    kept, rows = torch.from_numpy(place > 0), torch.from_numpy(place)
    fresh = torch.cat([table[kept] for table, _ in pairs]).numpy()
    learned = torch.cat([table[rows[kept]] for _, table in pairs]).numpy()
    turn = None
    if fresh.any():
        # Both roles by one turn: a thing that was there and one that may be next are compared with each other.
        turn = torch.from_numpy(procrustes(fresh, learned, np.ones(len(fresh))).matrix)
    for table, trained in pairs:
        start = table if turn is None else table @ turn
        table.copy_(torch.where(kept[:, None], trained[rows], start))
