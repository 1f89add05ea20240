"""The training loop: warm-up on links, birth of the primitives, then links and distillation together."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from data import checkpoint
from data.context import RunContext, derive_seed
from data.prefetch import Prefetched
from graph.sampler import TemporalSampler
from hierarchy.alarms import require_finite
from hierarchy.batches import BatchMaker, StepInput
from hierarchy.inference import encode_nodes
from hierarchy.memory import VectorMemory
from hierarchy.model import Learner
from hierarchy.objective import Distilled, distil, link_losses
from hierarchy.prototypes import Prototypes
from hierarchy.teacher import follow, make_teacher, momentum_at

if TYPE_CHECKING:
    from hierarchy.train import Config


class Trainer:
    """Student, teacher, primitives and optimizer, with a state that a checkpoint holds completely.

    Every random draw of a step comes from (seed, step), so a run resumed at step n equals one that never stopped.
    """

    def __init__(
        self,
        config: Config,
        student: Learner,
        batches: BatchMaker,
        samplers: Mapping[str, TemporalSampler],
        visible: Mapping[str, int],
        end: int,
        seed: int,
    ) -> None:
        self.config, self.batches, self.samplers, self.visible, self.end = config, batches, samplers, visible, end
        self.seed, self.sampling_seed = seed, derive_seed(seed, "tokens")
        self.student, self.teacher = student, make_teacher(student)
        sizes = tuple(level.k for level in config.levels)
        self.prototypes = Prototypes(sizes, config.dim, config.hub_parents, config.hub_children)
        self.memory = VectorMemory(config.distillation.queue, config.dim)
        self.optimizer = _optimizer(config, student)
        self.log: list[dict[str, Any]] = []
        self.wait_share = 0.0

    def train(self, path: Path, ctx: RunContext) -> None:
        """Run all steps, resuming from the checkpoint at `path` when there is one; raises StrataError on NaN."""
        done = self._resume(path)
        drawn = (self.draw(step) for step in range(done, self.config.steps))
        with (
            Prefetched(drawn, self.config.prefetch) as batches,
            ctx.progress.step("train learner", self.config.steps, "steps") as progress,
        ):
            progress.advance(done)
            for step, given in zip(range(done, self.config.steps), batches, strict=True):
                terms = self.step(step, given)
                if step % self.config.log_every == 0 or step + 1 == self.config.steps:
                    values = {name: float(value.detach()) for name, value in terms.items()}
                    require_finite(values, step)
                    self.log.append({"step": step, **values})
                if (step + 1) % self.config.checkpoint_every == 0:
                    self._save(path, step + 1)
                progress.advance()
        if not self.prototypes.ready:
            self._give_birth()

        self.wait_share = batches.wait_share

    def draw(self, step: int) -> StepInput:
        """The input of a step, which depends on nothing that training changes."""
        config = self.config
        given = self.batches.draw(
            step, config.batch_size, config.negatives, config.advertiser_negatives, config.hide_target
        )
        return _with_ids_dropped(given, config.id_dropout, derive_seed(self.seed, "dropout", step))

    def step(self, step: int, given: StepInput) -> dict[str, torch.Tensor]:
        """One optimizer step on its input; returns the loss terms before it."""
        config = self.config
        if step == config.warmup_steps:
            self._give_birth()
        self._set_rates(step)
        terms = link_losses(self.student, self.prototypes, given)
        distilled = None
        every = config.distillation.every
        if self.prototypes.ready and step % every == 0:
            views = config.distillation.views
            more, distilled = distil(
                config.distillation,
                self.student,
                self.teacher,
                self.prototypes,
                self.memory,
                given,
                views[step // every % len(views)],
            )
            terms |= more
        self._descend(terms)
        follow(self.teacher, self.student, momentum_at(step, config.teacher_momentum))
        if distilled is not None:
            self._move_primitives(step, distilled)
        return terms

    def _descend(self, terms: Mapping[str, torch.Tensor]) -> None:
        weights = self.config.weights.model_dump()
        loss = sum(weights[name] * term for name, term in terms.items() if weights.get(name))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()

    def _move_primitives(self, step: int, distilled: Distilled) -> None:
        config = self.config
        self.prototypes.update(
            distilled.vectors, distilled.targets, config.distillation.momentum, config.weights.spread
        )
        self.memory.push(distilled.vectors)
        if (step + 1) % config.reseed_every == 0:
            last = step + config.reseed_every >= config.steps
            self.prototypes.reseed(self.memory.stored(), 0.0 if last else config.dead_share)

    def _give_birth(self) -> None:
        """Primitives by hierarchical k-means on what the teacher makes of every type at the end of the past."""
        found = []
        for kind in ("product", "advertiser", "user"):
            nodes = np.arange(self.visible[kind])
            times = np.full(len(nodes), self.end, np.int64)
            active = nodes[self.samplers[kind].degree(kind, nodes, times).numpy() > 0]
            rng = np.random.default_rng(derive_seed(self.seed, "birth", kind))
            chosen = np.sort(rng.permutation(active)[: self.config.init_vectors])
            vectors = encode_nodes(
                self.teacher.encoder,
                None,
                self.batches.table,
                self.samplers[kind],
                kind,
                chosen,
                np.full(len(chosen), self.end, np.int64),
                self.sampling_seed,
            )
            found.append(vectors[:, 0])
        everything = torch.from_numpy(np.concatenate(found))
        self.prototypes.initialise(everything, derive_seed(self.seed, "kmeans"))
        order = np.random.default_rng(derive_seed(self.seed, "memory")).permutation(len(everything))
        self.memory.push(everything[torch.from_numpy(order)])

    def _set_rates(self, step: int) -> None:
        """Linear warm-up over 20 steps, then a cosine down to 5% of the peak."""
        progress = step / max(1, self.config.steps)
        factor = min(1.0, (step + 1) / 20) * (0.05 + 0.475 * (1 + math.cos(math.pi * progress)))
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * factor

    def _save(self, path: Path, done: int) -> None:
        tensors: dict[str, torch.Tensor] = {}
        for prefix, module in self._modules().items():
            tensors |= {f"{prefix}.{name}": tensor for name, tensor in module.state_dict().items()}
        tensors |= checkpoint.flatten("optimizer", {str(k): v for k, v in self.optimizer.state_dict()["state"].items()})
        checkpoint.save(path, tensors, {"done": done, "log": self.log})

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
        self.log = state["log"]
        return int(state["done"])

    def _modules(self) -> dict[str, torch.nn.Module]:
        return {"student": self.student, "teacher": self.teacher, "prototypes": self.prototypes, "memory": self.memory}


def _optimizer(config: Config, student: Learner) -> torch.optim.Adam:
    """Adam with one rate for maps, one for id residuals and one for what is added to logits."""
    groups: dict[float, list[torch.nn.Parameter]] = {config.lr: [], config.id_lr: [], config.bias_lr: []}
    for name, parameter in student.named_parameters():
        tables = name.endswith("table") or "hub_bias" in name or name.startswith("link.")
        groups[config.id_lr if name == "encoder.ids" else config.bias_lr if tables else config.lr].append(parameter)
    listed = [{"params": parameters, "lr": rate, "peak": rate} for rate, parameters in groups.items()]
    return torch.optim.Adam(listed, betas=(0.9, 0.99), fused=True)


def _with_ids_dropped(given: StepInput, share: float, seed: int) -> StepInput:
    generator = torch.Generator().manual_seed(seed)
    users = given.users.with_ids_dropped(share, generator)
    products = dataclasses.replace(given.products, seeds=given.products.seeds.with_ids_dropped(share, generator))
    advertisers = given.advertisers
    if advertisers is not None:
        advertisers = dataclasses.replace(advertisers, seeds=advertisers.seeds.with_ids_dropped(share, generator))
    return dataclasses.replace(given, users=users, products=products, advertisers=advertisers)


def _below(tensors: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix + "."): t for name, t in tensors.items() if name.startswith(prefix + ".")}
