"""Stage learner: train the encoder and its interest primitives on what was visible before t0."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from pydantic import Field

from data.artifacts import ArtifactRef, OutputDir
from data.context import Metrics, RunContext, StageConfig, UtcTime, derive_seed, execution
from data.errors import UsageError, nearest
from data.schema import to_micros
from encoders.placement import device_of
from graph.sampler import Budget, TemporalSampler
from graph.store import GraphStore
from hierarchy.alarms import require_alive, require_bounded
from hierarchy.batches import BatchMaker, make_samplers
from hierarchy.bias import BIASES
from hierarchy.content import WITH_ID, ContentTable, open_content
from hierarchy.edges import Batch, TrainingEdges
from hierarchy.engaged import Engaged
from hierarchy.lending import Lending
from hierarchy.model import Learner
from hierarchy.objective import Distillation, LossWeights, Teaching
from hierarchy.passes import Precision, allow_tf32
from hierarchy.past import of_learner
from hierarchy.prototypes import Level
from hierarchy.purchases import History
from hierarchy.seeds import VIEWS
from hierarchy.structure import Structure, history_of, id_tables, starting_views, teacher_views
from hierarchy.trainer import Trainer
from hierarchy.transformer import EncoderShape
from hierarchy.validation import HeldOut, Validation
from hierarchy.warm_start import WarmStart, open_before

FUNNEL = {"view": 0.2, "click": 0.4, "cart": 0.7, "purchase": 1.0, "conversion": 1.0, "interested": 0.7}


class Config(StageConfig):
    """Options of the stage."""

    t0: UtcTime = Field(description="Nothing that became visible after this time is looked at.")
    levels: tuple[Level, ...] = Field(
        default=(Level(k=16, top=2), Level(k=64, top=4), Level(k=256, top=8)),
        min_length=1,
        description="Granularities, coarse to fine.",
    )
    dim: int = Field(default=64, gt=0, description="d, components of an interest vector.")
    layers: int = Field(default=2, ge=0, description="Transformer layers.")
    heads: int = Field(default=4, gt=0, description="Attention heads; divides dim.")
    gated_fusion: bool = Field(
        default=False, description="Learn the weight of each modality of each entity, instead of one weight for all."
    )
    structure: Structure = Field(default=Structure(), description="Closed-form views where id residuals start.")
    history_decay: float = Field(
        default=1.0, gt=0, le=1, description="Weight of an event against the next newer one in a user's mean, at first."
    )
    user_heads: int = Field(default=1, ge=1, description="Vectors per user.")
    user_budget: Budget = Field(default=Budget(16, 48, 0, 0), description="Token slots of a user.")
    item_budget: Budget = Field(default=Budget(8, 0, 8, 4), description="Token slots of a product or advertiser.")
    funnel: dict[str, float] = Field(default=FUNNEL, description="Weight of an edge to learn from, by event type.")
    history: Literal["before", "others"] = Field(
        default="before",
        description="What a user is made of when an edge is predicted: what came before it, or all the user's others, "
        "for sets without a clock or an order.",
    )
    rows: Literal["edges", "users"] = Field(
        default="edges",
        description="Rows of a step: edges, or users with a part of their history to be found at once, for sets "
        "without a clock where all products are scored.",
    )
    asked_share: float = Field(
        default=0.3, gt=0, lt=0.67, description="Mean part of a user's history that is to be found; users as rows only."
    )
    steps: int = Field(default=300, ge=1, description="Optimizer steps; without effect when epochs are given.")
    epochs: float = Field(default=0.0, ge=0, description="Passes over the edges instead of steps; 0: steps count.")
    warmup_steps: int = Field(default=100, ge=0, description="Link-only steps before primitives exist.")
    batch_size: int = Field(default=256, ge=2, description="Edges per step.")
    negatives: int = Field(default=256, ge=0, description="Uniform product negatives per step.")
    advertiser_negatives: int = Field(default=64, ge=0, description="Uniform advertiser negatives per step.")
    full_softmax: int = Field(
        default=0, ge=0, description="Score all products where that many or fewer are visible; no negatives are drawn."
    )
    hard_negatives: int = Field(
        default=0, ge=0, description="Negatives of each edge from other children of the positive's parent primitive."
    )
    hard_every: int = Field(default=200, ge=1, description="Steps between sortings of all products into primitives.")
    mask_known: bool = Field(
        default=False, description="Products that a user engages with in any training edge are no negatives of theirs."
    )
    repeats: bool = Field(default=True, description="Learn what it means that a user had a product before.")
    hide_target: float = Field(
        default=0.0, ge=0, le=1, description="Share of rows blind to earlier events of their pair."
    )
    lr: float = Field(default=3e-3, gt=0, description="Peak learning rate of Adam; falls along a cosine.")
    id_lr: float = Field(default=1e-2, gt=0, description="The same for id residuals.")
    bias_lr: float = Field(default=2e-2, gt=0, description="The same for bias tables, scale and popularity.")
    repeat_lr: float = Field(
        default=0.1,
        gt=0,
        description="The same for what a repeat is worth, which may become most of a logit.",
    )
    id_dropout: float = Field(default=0.1, ge=0, le=1, description="Chance that an id residual is left out of a step.")
    dropout: float = Field(
        default=0.0, ge=0, lt=1, description="Chance that a component of a token or of a layer's answer is left out."
    )
    token_dropout: float = Field(default=0.0, ge=0, lt=1, description="Chance that a token is left out of a step.")
    weight_decay: float = Field(default=0.0, ge=0, description="Decoupled decay of maps, times the learning rate.")
    id_weight_decay: float = Field(default=0.0, ge=0, description="The same of id residuals.")
    clip_norm: float = Field(default=0.0, ge=0, description="Gradient norm is cut to this; 0: it is not.")
    precision: Precision = Field(default="fp32", description="Of the encoder in training; see hierarchy.passes.")
    bias_off: tuple[str, ...] = Field(default=(), description=f"Attention biases to leave out, of {BIASES}.")
    id_floor: int = Field(default=2, ge=1, description="Engagements before t0 that earn an entity an id residual.")
    popularity_days: float | None = Field(
        default=None, gt=0, description="Days that a thing's popularity counts events of; all if unset."
    )
    temperature: float = Field(default=0.1, gt=0, description="Link temperature at the start; then learned.")
    blend: float = Field(
        default=0.0,
        ge=0,
        description="Events at which a product's or advertiser's vector is half the graph's, half its content's; 0: "
        "all the graph's. Training ends with primitives settling on the same mixture, and is else the same.",
    )
    lending: Lending = Field(default=Lending(), description="Id residuals for entities that have none.")
    teacher_momentum: float = Field(default=0.95, ge=0, lt=1, description="Ceiling of the EMA momentum per step.")
    weights: LossWeights = Field(default=LossWeights(), description="Loss weights.")
    distillation: Distillation = Field(default=Distillation(), description="Cross-view distillation.")
    teaching: Teaching = Field(default=Teaching(), description="Closed-form views as teachers.")
    validation: Validation = Field(default=Validation(), description="Validation while training.")
    warm_start: bool = Field(default=True, description="Go on from the learner before this one, where there is one.")
    warm: WarmStart = Field(default=WarmStart(), description="How a training goes on.")
    init_vectors: int = Field(default=20_000, ge=2, description="Entities per type that primitives are initialised on.")
    hub_parents: int = Field(default=2, ge=1, description="Parents per level whose children join as hub tokens.")
    hub_children: int = Field(default=4, ge=1, description="Children per parent that join as hub tokens.")
    reseed_every: int = Field(default=50, ge=1, description="Steps between reseedings of bad primitives.")
    dead_share: float = Field(default=0.1, ge=0, lt=1, description="Part of an equal share that a live primitive has.")
    log_every: int = Field(default=10, ge=1, description="Steps between lines of training.jsonl.")
    checkpoint_every: int = execution(100, "Steps between checkpoints.", ge=1)
    prefetch: int = execution(2, "Batches drawn ahead by a thread; 0: each when it is due, by none.", ge=0)


def seen(config: Config, inputs: Mapping[str, ArtifactRef]) -> dict[str, str]:
    """What stands for the inputs in the key: their past at t0, which is all that is looked at."""
    return of_learner(inputs, to_micros(config.t0))


def run(config: Config, inputs: Mapping[str, ArtifactRef], out: OutputDir, ctx: RunContext) -> Metrics:
    """Train, check for collapse, write model.safetensors, learner.json, training.jsonl and known_<type>.parquet.

    With inputs `previous`, an earlier learner, and `previous_features`, the content that it saw, training goes on from
    it (hierarchy.warm_start); the artifact is then that of this lineage of retrains.

    Time: steps x batch tokens, whatever the size of the graph. Memory: content of all nodes, id residuals three times
    (weights, teacher, optimizer), one batch. A killed run goes on from its last checkpoint with identical results.
    """
    torch.set_num_threads(ctx.threads)
    trainer, known = prepare(config, inputs, ctx)
    with allow_tf32(config.precision):
        trainer.train(out.work / "checkpoint.safetensors", ctx)
    require_bounded(trainer.teacher)
    health = require_alive(trainer.prototypes, trainer.log)
    _write(config, trainer, known, out)
    end_rows = [row for row in trainer.log if row["step"] == trainer.log[-1]["step"]]
    last = {name: value for row in end_rows for name, value in row.items() if name != "step"}
    ids = {kind: len(names) for kind, names in known.items()}
    wait = {"wait_share": trainer.wait_share}
    before = {} if trainer.before is None else {"warm_start": trainer.before.told(known)}
    return {"edges": len(trainer.batches.edges), "ids": ids, "levels": health, "last": last, **before, **wait}


def prepare(config: Config, inputs: Mapping[str, ArtifactRef], ctx: RunContext) -> tuple[Trainer, dict[str, pa.Array]]:
    """A trainer before its first step, on the device of `ctx`, and the external ids that own an id residual by type.

    Raises UsageError for settings that cannot work, SystemStateError without the GPU that is asked for.
    """
    _check(config)
    placed = device_of(ctx.device)
    store = GraphStore.open(inputs["graph"])
    end = to_micros(config.t0)
    samplers = make_samplers(store, config.user_budget, config.item_budget, placed)
    visible = {kind: int(np.searchsorted(store.known_at(kind), end, side="right")) for kind in ("user", *WITH_ID)}
    known = {kind: _with_floor(store, samplers[kind], kind, visible[kind], end, config.id_floor) for kind in WITH_ID}
    table = open_content(inputs["features"], store, known, config.gated_fusion).to(placed)
    edges = TrainingEdges(store, config.funnel, end, ctx.seed, config.history, config.rows)
    held = edges.hold_out(config.validation.users) if config.validation.every else None
    history = history_of(edges, end, store.num_nodes["user"], store.num_nodes["product"])
    named = config.teaching.views if config.weights.teachers else ()
    teachers = teacher_views(config.structure, history, named, ctx.seed, placed)
    table = dataclasses.replace(table, teachers=teachers)
    batches = _batches(config, store, table, edges, samplers, visible, ctx.seed)
    torch.manual_seed(derive_seed(ctx.seed, "learner"))
    student = Learner(_shape(config, table, known), config.temperature)
    _start(config, student, batches, history)
    before = open_before(config, inputs, student.encoder.shape, ctx.progress.say)
    if before is not None:
        before.fill(student, known)
        config = before.shortened(config)
    questions = None if held is None else _questions(config, batches, held)
    return Trainer(config, student, batches, visible, end, ctx.seed, questions, before), known


def _check(config: Config) -> None:
    for view in config.distillation.views:
        if view not in VIEWS:
            raise UsageError(f"no student view {view!r}: {nearest(view, VIEWS)}")
    sizes = [level.k for level in config.levels]
    if sizes != sorted(sizes) or any(level.top > level.k for level in config.levels):
        raise UsageError(
            f"expected levels from coarse to fine with top <= k, got {[level.model_dump() for level in config.levels]}"
        )
    for name in config.bias_off:
        if name not in BIASES:
            raise UsageError(f"no attention bias {name!r}: {nearest(name, BIASES)}")
    weights = config.weights
    if not (weights.link or weights.advertiser or weights.distillation or (weights.teachers and config.teaching.views)):
        raise UsageError(
            "expected a weight above 0 for link, advertiser, distillation or teachers, else nothing learns"
        )
    if config.dim % config.heads:
        raise UsageError(f"expected dim divisible by heads, got dim {config.dim} and {config.heads} heads")


def _batches(
    config: Config,
    store: GraphStore,
    table: ContentTable,
    edges: TrainingEdges,
    samplers: Mapping[str, TemporalSampler],
    visible: Mapping[str, int],
    seed: int,
) -> BatchMaker:
    full = visible["product"] <= config.full_softmax
    if full and config.history == "others" and _engages(config.item_budget):
        raise UsageError(
            "with history others and all products as candidates, a product's own engagement tokens would show the edge "
            "that is asked for: set recent, uniform, two_hop, related and ppr of item_budget to 0, or full_softmax to 0"
        )
    engaged = Engaged(edges, visible["product"], table.content.device) if config.mask_known else None
    if config.rows == "users" and not (full and config.history == "others"):
        raise UsageError(
            "expected history others and full_softmax of at least the visible products with users as rows, got history "
            f"{config.history} and full_softmax {config.full_softmax} for {visible['product']} products"
        )
    asked = config.asked_share if config.rows == "users" else 0.0
    disliked, days = config.weights.dislike > 0, config.popularity_days
    return BatchMaker(store, table, edges, samplers, visible, seed, full, engaged, disliked, asked, days)


@torch.no_grad()
def _start(config: Config, student: Learner, batches: BatchMaker, history: History) -> None:
    """Put id residuals and the weights of a user's mean where they start."""
    encoder = student.encoder
    encoder.bias.start_with_decay(0, config.history_decay)
    views = starting_views(config.structure, history, batches.seed, batches.device)
    if views:
        rows, dim = encoder.shape.id_rows, encoder.shape.dim
        tables = id_tables(config.structure, views, batches.edges, batches.table, rows, dim)
        encoder.source_ids.copy_(torch.from_numpy(tables.source))
        encoder.target_ids.copy_(torch.from_numpy(tables.target))


def _engages(budget: Budget) -> bool:
    return budget.total > budget.links


def _questions(config: Config, batches: BatchMaker, held: Batch) -> HeldOut:
    known = batches.known("product", held.as_of)
    hide, seed = config.history == "others", derive_seed(batches.seed, "tokens")
    days = config.popularity_days
    return HeldOut(held, batches.samplers, batches.table, known, hide, seed, batches.engaged, days)


def _with_floor(store: GraphStore, sampler: TemporalSampler, kind: str, visible: int, end: int, floor: int) -> pa.Array:
    nodes = np.arange(visible)
    degree = sampler.degree(kind, nodes, np.full(visible, end)).cpu().numpy()
    return store.entity_ids(kind).take(pa.array(nodes[degree >= floor]))


def _shape(config: Config, table: ContentTable, known: Mapping[str, pa.Array]) -> EncoderShape:
    return EncoderShape(
        content_dim=table.content_dim,
        dim=config.dim,
        layers=config.layers,
        heads=config.heads,
        id_rows=sum(len(ids) for ids in known.values()),
        user_heads=config.user_heads,
        num_levels=len(config.levels),
        gate=table.gate,
        bias_off=config.bias_off,
        dropout=config.dropout,
    )


def _write(config: Config, trainer: Trainer, known: Mapping[str, pa.Array], out: OutputDir) -> None:
    tensors = {f"learner.{name}": tensor for name, tensor in trainer.teacher.state_dict().items()}
    tensors |= {f"prototypes.{name}": tensor for name, tensor in trainer.prototypes.state_dict().items()}
    out.write_tensors("model.safetensors", {name: tensor.cpu() for name, tensor in tensors.items()})
    described: dict[str, Any] = {
        "config": config.result_fields(),
        "shape": vars(trainer.teacher.encoder.shape),
        "relations": ["-".join(relation) for relation in trainer.batches.store.relations],
        "sampling_seed": trainer.sampling_seed,
    }
    out.write_json("learner.json", described)
    for kind, ids in known.items():
        out.write_table(f"known_{kind}.parquet", pa.table({"entity_id": ids}))
    lines = [json_line(row) for row in trainer.log]
    out.file("training.jsonl").write_text("".join(lines), encoding="utf-8")


def json_line(row: Mapping[str, Any]) -> str:
    """One line of training.jsonl: sorted keys, six significant digits."""
    rounded = {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in row.items()}
    return json.dumps(rounded, sort_keys=True) + "\n"
