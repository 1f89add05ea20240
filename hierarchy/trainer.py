"""The training loop: warm-up on links, birth of the primitives, then links and distillation together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from data import checkpoint
from data.context import RunContext, derive_seed
from data.errors import UsageError, nearest
from data.prefetch import Prefetched
from graph.store import NODE_TYPES
from hierarchy.alarms import require_finite
from hierarchy.batches import BatchMaker, StepInput
from hierarchy.dropout import with_dropped
from hierarchy.inference import encode_nodes
from hierarchy.lending import Loans, lent
from hierarchy.memory import VectorMemory
from hierarchy.mining import Miner
from hierarchy.model import Learner
from hierarchy.objective import Distilled, Teacher, balanced, distil, link_losses
from hierarchy.optimizer import descend, make_optimizer, set_rates
from hierarchy.passes import Passes, piece_rows
from hierarchy.prototypes import Prototypes
from hierarchy.teacher import follow, make_teacher, momentum_at
from hierarchy.transfer import on_device
from hierarchy.validation import Best, HeldOut
from hierarchy.warm_start import Anchor, Before
from kernels.captured import Captured

if TYPE_CHECKING:
    from hierarchy.train import Config

Gradients = Sequence[torch.Tensor | None]
"""Of the student's parameters in their order; None where a loss does not depend on one."""

_PROBES = 256  # edges by whose users the temperature of a teacher is set


class Trainer:
    """Student, teacher, primitives and optimizer on one device, with a state that a checkpoint holds completely.

    On a GPU losses and gradients are recorded once for each form of a step (kernels.captured) and replayed; steps with
    explicit negatives, whose number is never the same, or with candidates by pieces are launched kernel by kernel.

    Every random draw of a step comes from (seed, step), so a run resumed at step n equals one that never stopped. A
    step never waits for the device, except to log, to reseed, to validate and to be saved.
    """

    def __init__(
        self,
        config: Config,
        student: Learner,
        batches: BatchMaker,
        visible: Mapping[str, int],
        end: int,
        seed: int,
        held_out: HeldOut | None = None,
        before: Before | None = None,
    ) -> None:
        self.config, self.batches, self.samplers, self.visible, self.end = (
            config,
            batches,
            batches.samplers,
            visible,
            end,
        )
        self.seed, self.sampling_seed, self.device = seed, derive_seed(seed, "tokens"), batches.device
        self.student = student.to(self.device)
        self.teacher = make_teacher(self.student)
        # Nobody borrows in training but what has lost its residual for a step.
        self.loans: Loans | None = None
        if config.lending.neighbours and config.id_dropout:
            rows = self.student.encoder.shape.id_rows
            self.loans = Loans(config.lending, batches.table, rows, config.dim)
        sizes = tuple(level.k for level in config.levels)
        self.prototypes = Prototypes(sizes, config.dim, config.hub_parents, config.hub_children).to(self.device)
        self.before = before
        self.anchor: Anchor | None = None
        if before is not None:
            before.place(self.prototypes)
            if config.warm.anchor:
                temperature = config.distillation.student_temp
                self.anchor = Anchor(self.student, self.prototypes, self.passes(), temperature)
        self.memory = VectorMemory(config.distillation.queue, config.dim).to(self.device)
        self.optimizer = make_optimizer(config, self.student)
        self.miner = Miner(batches, config.hard_negatives, seed)
        self.teachers = _teachers(config, batches)
        self.held_out, self.best, self.born = held_out, Best(), False
        self._captured = Captured(self._learn, self.device)
        self.log: list[dict[str, Any]] = []
        self.wait_share = 0.0

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole run."""
        per_epoch = self.batches.edges.per_epoch(self.config.batch_size)
        return max(1, round(self.config.epochs * per_epoch)) if self.config.epochs else self.config.steps

    def train(self, path: Path, ctx: RunContext) -> None:
        """Run all steps, resuming from the checkpoint at `path` when there is one; raises StrataError on NaN."""
        done, steps = self._resume(path), self.steps
        drawn = (self.draw(step) for step in range(done, steps))
        with (
            Prefetched(drawn, self.config.prefetch) as batches,
            ctx.progress.step("train learner", steps, "steps") as progress,
        ):
            progress.advance(done)
            for step, given in zip(range(done, steps), batches, strict=False):
                if self._exhausted():
                    break
                self._log(step, self.step(step, given))
                self._validate(step)
                if (step + 1) % self.config.checkpoint_every == 0:
                    self._save(path, step + 1)
                progress.advance()
        self._captured.forget()
        self._finish()
        self.wait_share = batches.wait_share

    def draw(self, step: int) -> StepInput:
        """The input of a step, which depends on nothing that training changes."""
        config, weights = self.config, self.config.weights
        asks = weights.link or weights.dislike or self.teachers
        given = self.batches.draw(
            step,
            config.batch_size,
            config.negatives if asks else 0,
            config.advertiser_negatives if weights.advertiser else 0,
            config.hide_target,
        )
        generator = torch.Generator(self.device).manual_seed(derive_seed(self.seed, "dropout", step))
        loans = 0 if self.loans is None else len(self.loans.source)
        return with_dropped(given, config.id_dropout, config.token_dropout, generator, loans)

    def step(self, step: int, given: StepInput) -> dict[str, torch.Tensor]:
        """One optimizer step on its input; returns the loss terms before it."""
        config = self.config
        if step == config.warmup_steps:
            self._give_birth()
            self.prototypes.join()
        if self.born and (step - config.warmup_steps) % config.hard_every == 0:
            self._mine()
        if self.loans is not None and step % config.lending.every == 0:
            self.loans.refresh(self.student.encoder)
        set_rates(self.optimizer, step, self.steps)
        if config.dropout:
            torch.manual_seed(derive_seed(self.seed, "components", step))
        mined = self.miner.extended(given, step, config.negatives)
        absent = self.miner.absent(mined) if mined.engaged is None else mined.engaged
        view, others = self._view(step), None
        if view is not None:
            others = self._others(step, given)
        # Candidates by pieces are computed twice, which cannot be recorded: what they drop would not be the same.
        recorded = mined.dislikes is None and len(mined.products.seeds) <= piece_rows(mined.products.seeds)
        learn = self._captured if recorded else self._learn
        anchored = self.anchor is not None and step % config.distillation.every == 0
        form = (view, anchored, self.born, len(self.memory.stored()))
        terms, distilled, gradients = learn(mined.on_device(), absent, others, *form)
        descend(self.optimizer, self.student, gradients, config.clip_norm)
        ceiling = config.teacher_momentum
        follow(self.teacher, self.student, momentum_at(step, ceiling) if self.before is None else ceiling)
        if distilled is not None:
            self._move_primitives(step, distilled)
        return terms

    def passes(self, prototypes: Prototypes | None = None) -> Passes:
        """How encoders are called on what steps are drawn."""
        loans = None if self.loans is None else (self.loans.source, self.loans.target)
        return Passes(prototypes, self.config.precision, loans)

    def _learn(
        self,
        given: StepInput,
        absent: torch.Tensor | tuple[torch.Tensor, torch.Tensor] | None,
        others: torch.Tensor | None,
        view: str | None,
        anchored: bool,
        born: bool,
        remembered: int,
    ) -> tuple[dict[str, torch.Tensor], Distilled | None, Gradients]:
        """Loss terms, what is learned of primitives, and the gradients of the student's parameters.

        `remembered`, how many vectors the memory holds, is part of the form of a step. Waits for nothing.
        """
        config, student, distilled = self.config, self.student, None
        passes = self.passes(self.prototypes if born else None)
        terms = link_losses(
            student, passes, given, config.weights, absent, config.teaching, self.teachers, config.repeats
        )
        if view is not None:
            models = (student, self.teacher, self.prototypes, self.memory)
            more, distilled = distil(config.distillation, config.weights, *models, passes, given, view, others)
            terms |= more
        if self.anchor is not None and anchored:
            terms["anchor"] = self.anchor.loss(student, passes, given, config.distillation.seeds)
        gradients = self._gradients(terms)
        # Whoever keeps a term must not keep its graph: what waits in it for gradients belongs to the stream of its
        # step, and that of a plain step spoils a recording.
        return {name: term.detach() for name, term in terms.items()}, distilled, gradients

    def _view(self, step: int) -> str | None:
        """The view that is learned from in a step, if any is."""
        config = self.config.distillation
        if not self.born or step % config.every:
            return None
        return config.views[step // config.every % len(config.views)]

    def _others(self, step: int, given: StepInput) -> torch.Tensor | None:
        """Columns of product candidates drawn from all alike, for distillation."""
        config, products = self.config.distillation, given.products
        first = 0 if self.batches.full else len(products.targets)
        count = min(round(config.uniform * min(config.seeds, len(products.targets))), len(products.nodes) - first)
        if count <= 0:
            return None
        rng = np.random.default_rng(derive_seed(self.seed, "distillation", step))
        return on_device(rng.integers(first, len(products.nodes), count), self.device)

    def _gradients(self, terms: Mapping[str, torch.Tensor]) -> Gradients:
        weights = {**self.config.weights.model_dump(), "anchor": self.config.warm.anchor}
        weighted = [weights[name] * term for name, term in terms.items() if weights.get(name)]
        parameters = list(self.student.parameters())
        self.optimizer.zero_grad(set_to_none=True)
        if weighted:
            # Not autograd.grad: only what is accumulated has the strides of its parameter, as fused AdamW wants it.
            torch.stack(weighted).sum().backward()  # type: ignore[no-untyped-call]
        return [parameter.grad for parameter in parameters]

    def _move_primitives(self, step: int, distilled: Distilled) -> None:
        config = self.config
        self.prototypes.update(
            distilled.vectors, distilled.targets, config.distillation.momentum, config.weights.spread
        )
        self.memory.push(distilled.vectors)
        if (step + 1) % config.reseed_every == 0:
            last = step + config.reseed_every >= self.steps
            self.prototypes.reseed(self.memory.stored(), 0.0 if last else config.dead_share)

    def _mine(self) -> None:
        if self.miner.wanted:
            nodes = np.arange(self.visible["product"])
            self.miner.assign(self._vectors("product", nodes, self.prototypes), self.prototypes)

    def _give_birth(self) -> None:
        """Primitives by hierarchical k-means on what the teacher makes of every type at the end of the past.

        Those of a learner before this one stay as they are.
        """
        kinds = ("product", "advertiser", "user")
        everything = torch.cat([self._vectors(kind, self._some(kind, True), self.prototypes) for kind in kinds])
        if self.before is None:
            self.prototypes.initialise(everything, derive_seed(self.seed, "kmeans"))
        order = np.random.default_rng(derive_seed(self.seed, "memory")).permutation(len(everything))
        self.memory.push(everything[on_device(order, self.device)])
        self.born, self.best = True, Best()

    def _some(self, kind: str, engaged: bool) -> np.ndarray:
        """Some nodes (n,) of a type in their order, `init_vectors` at most; `engaged`: of those with events."""
        nodes = np.arange(self.visible[kind])
        if engaged:
            times = np.full(len(nodes), self.end, np.int64)
            nodes = nodes[self.samplers[kind].degree(kind, nodes, times).cpu().numpy() > 0]
        rng = np.random.default_rng(derive_seed(self.seed, "birth", kind))
        return np.sort(rng.permutation(nodes)[: self.config.init_vectors])

    def _vectors(self, kind: str, nodes: np.ndarray, prototypes: Prototypes, as_served: bool = False) -> torch.Tensor:
        """The teacher's vectors (n, d) of nodes at the end of the past; the first of several. `as_served`: with loans
        of residuals and the blend, as the frozen learner will make them."""
        times = np.full(len(nodes), self.end, np.int64)
        sampler, table = self.samplers[kind], self.batches.table
        encoder, seed, blend = self.teacher.encoder, self.sampling_seed, 0.0
        if as_served:
            encoder, table = lent(self.config.lending, encoder, table)
            blend = self.config.blend
        vectors = encode_nodes(encoder, prototypes, table, sampler, kind, nodes, times, seed, blend=blend)
        return on_device(vectors[:, 0], self.device)

    def _log(self, step: int, terms: Mapping[str, torch.Tensor]) -> None:
        if not terms or (step % self.config.log_every and step + 1 != self.steps):
            return
        values = dict(zip(terms, torch.stack(list(terms.values())).tolist(), strict=True))
        require_finite(values, step)
        self.log.append({"step": step, **values})

    def _validate(self, step: int) -> None:
        every = self.config.validation.every
        if self.held_out is None or (step + 1) % every:
            return
        recall = self.held_out.recall(self.teacher, self.prototypes)
        self.best.offer(recall, self._state("teacher", "prototypes"))
        self.log.append({"step": step, "recall@20": recall})

    def _exhausted(self) -> bool:
        patience = self.config.validation.patience
        return bool(patience) and self.best.stood >= patience

    def _finish(self) -> None:
        """The best teacher back in its place, and primitives for it if it has none."""
        for prefix in ("teacher", "prototypes"):
            if self.best.tensors:
                self._modules()[prefix].load_state_dict(_below(self.best.tensors, prefix))
        if not self.born:
            self._give_birth()
        self._settle()

    def _settle(self) -> None:
        """Let primitives settle on the products, which are what they divide, as the final teacher sees them."""
        config, table = self.config.distillation, self.batches.table
        if config.settle:
            nodes = self._some("product", engaged=False)
            vectors = self._vectors("product", nodes, self.prototypes, as_served=True)
            self.prototypes.settle(vectors, config.settle, partial(balanced, config))
            content = table.content[table.rows("product", nodes), : -len(NODE_TYPES)]
            if config.content and content.any():
                self.prototypes.divide(vectors, content, config.content, config.teacher_temp)
            if config.evenness and self.prototypes.num_levels > 1:
                self.prototypes.unite(vectors, content, config.evenness, config.teacher_temp)

    def _state(self, *names: str) -> dict[str, torch.Tensor]:
        return {
            f"{prefix}.{name}": tensor
            for prefix, module in self._modules().items()
            if prefix in names
            for name, tensor in module.state_dict().items()
        }

    def _save(self, path: Path, done: int) -> None:
        tensors = self._state(*self._modules()) | self.miner.state()
        tensors |= {f"best.{name}": tensor for name, tensor in self.best.tensors.items()}
        tensors |= checkpoint.flatten("optimizer", {str(k): v for k, v in self.optimizer.state_dict()["state"].items()})
        best = {"recall": self.best.recall, "stood": self.best.stood}
        checkpoint.save(path, tensors, {"done": done, "log": self.log, "best": best, "born": self.born})

    def _resume(self, path: Path) -> int:
        loaded = checkpoint.load(path)
        if loaded is None:
            return 0
        tensors, state = loaded
        for prefix, module in self._modules().items():
            module.load_state_dict(_below(tensors, prefix))
        optimizer = self.optimizer.state_dict()
        for name, tensor in _below(tensors, "optimizer").items():
            index, _, field = name.partition(".")
            optimizer["state"].setdefault(int(index), {})[field] = tensor
        self.optimizer.load_state_dict(optimizer)
        self.miner.restore(_below(tensors, "miner"))
        self.best.recall, self.best.stood = state["best"]["recall"], state["best"]["stood"]
        self.best.tensors = {name: t.to(self.device) for name, t in _below(tensors, "best").items()}
        self.log, self.born = state["log"], state["born"]
        return int(state["done"])

    def _modules(self) -> dict[str, torch.nn.Module]:
        own = {"student": self.student, "teacher": self.teacher, "prototypes": self.prototypes, "memory": self.memory}
        return own if self.loans is None else {**own, "loans": self.loans}


def _teachers(config: Config, batches: BatchMaker) -> list[Teacher]:
    """The views that teach, on the device; raises UsageError for a name that there is none of."""
    there = {view.name: view for view in batches.table.teachers}
    if not config.weights.teachers:
        return []
    for name in config.teaching.views:
        if name not in there:
            raise UsageError(f"no teacher view {name!r} in the features: {nearest(name, there)}")
    given = batches.draw(0, min(config.batch_size, _PROBES), config.negatives, 0, 0.0)
    device, found = batches.device, []
    for view in (there[name] for name in config.teaching.views):
        teacher = Teacher(on_device(view.product_source, device), on_device(view.product_target, device))
        found.append(teacher.calibrated(given, config.teaching.perplexity))
    return found


def _below(tensors: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix + "."): t for name, t in tensors.items() if name.startswith(prefix + ".")}
