"""The frozen learner at work: unit vectors of any entities at any times, and of texts."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from data.artifacts import ArtifactRef
from graph.sampler import Budget, TemporalSampler
from graph.store import GraphStore
from hierarchy.batches import make_samplers
from hierarchy.blend import blended
from hierarchy.content import WITH_ID, ContentTable, open_content
from hierarchy.lending import Lending, lent
from hierarchy.model import Learner
from hierarchy.popularity import log_popularity
from hierarchy.prototypes import Prototypes
from hierarchy.seeds import content_view, from_content, sample_seeds
from hierarchy.transfer import on_device
from hierarchy.transformer import EncoderShape, InterestEncoder

CHUNK = 512
"""Rows encoded at once. The last chunk is padded to it: with equal shapes a row's bits do not depend on its company."""

GPU_CHUNK = 8192
"""The same on a GPU, which shorter chunks would leave idle."""

Vectors = NDArray[np.float32]


@torch.no_grad()
def encode_nodes(
    encoder: InterestEncoder,
    prototypes: Prototypes | None,
    table: ContentTable,
    sampler: TemporalSampler,
    kind: str,
    nodes: NDArray[np.int64],
    times: NDArray[np.int64],
    seed: int,
    exclude: NDArray[np.int64] | None = None,
    blend: float = 0.0,
) -> Vectors:
    """Unit vectors float32 (B, Q, d) of `nodes` (B,) of one type, each as of its time [us]; Q is 1 but for users.

    Runs on the device of `sampler`, which must be that of the table and the encoder. `exclude` (B,): the partner whose
    edges a node must not see, as in `TemporalSampler.sample`. With `blend` > 0 products and advertisers lean on their
    content (hierarchy.blend). Memory O(chunk T D) beside the result.
    """
    latents = encoder.shape.user_heads if kind == "user" else 1
    found = np.empty((len(nodes), latents, encoder.shape.dim), np.float32)
    chunk = CHUNK if sampler.device.type == "cpu" else GPU_CHUNK
    barred = np.full(len(nodes), -1) if exclude is None else exclude
    for start in range(0, len(nodes), chunk):
        rows = np.minimum(np.arange(start, start + chunk), len(nodes) - 1)
        some, at, without = (on_device(column[rows], sampler.device) for column in (nodes, times, barred))
        seeds, tokens = sample_seeds(table, sampler, kind, some, at, seed, without)
        made = encoder(seeds, prototypes, latents)
        if blend and kind in WITH_ID:
            # Beside its content, what stands for it among those that nobody has touched: a loan, if it has one.
            borrowed = torch.where(seeds.id_row > encoder.shape.id_rows, seeds.id_row, 0)
            alone_seeds = dataclasses.replace(content_view(seeds, tokens), id_row=borrowed)
            alone = encoder(alone_seeds, prototypes, latents)
            made = blended(made, alone, sampler.degree(kind, some, at), blend)
        kept = min(chunk, len(nodes) - start)
        found[start : start + kept] = made[:kept].cpu().numpy()
    return found


@dataclass(frozen=True)
class FrozenLearner:
    """A trained learner read from its artifact. `described` is learner.json."""

    model: Learner
    prototypes: Prototypes
    described: dict
    ref: ArtifactRef

    @classmethod
    def open(cls, ref: ArtifactRef, device: torch.device | str = "cpu") -> FrozenLearner:
        """Load weights and primitives onto `device`; raises BadDataError when a file is missing or torn."""
        described = ref.json("learner.json")
        config = described["config"]
        model = Learner(EncoderShape(**described["shape"]), config["temperature"])
        sizes = tuple(level["k"] for level in config["levels"])
        prototypes = Prototypes(sizes, config["dim"], config["hub_parents"], config["hub_children"])
        tensors = load_file(ref.file("model.safetensors"))
        for prefix, module in (("learner.", model), ("prototypes.", prototypes)):
            module.load_state_dict({n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)})
        return cls(model.requires_grad_(False).eval().to(device), prototypes.to(device), described, ref)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.prototypes.joined.device

    @property
    def tops(self) -> tuple[int, ...]:
        """Tokens kept per level, coarse to fine."""
        return tuple(level["top"] for level in self.described["config"]["levels"])

    @property
    def blend(self) -> float:
        """kappa of hierarchy.blend; 0: vectors are the graph's."""
        return float(self.described["config"].get("blend", 0.0))

    @property
    def lending(self) -> Lending:
        """Who lends id residuals to what has none."""
        return Lending(**self.described["config"].get("lending", {"neighbours": 0}))

    @property
    def popularity_days(self) -> float | None:
        """Days that popularity counts events of; None: all."""
        days = self.described["config"].get("popularity_days")
        return None if days is None else float(days)

    @torch.no_grad()
    def encode_content(self, content: Vectors, kind: str = "product") -> Vectors:
        """Unit vectors (n, d) of entities of which only a text is known, by its content (n, D): the path of queries."""
        gate = self.model.encoder.shape.gate
        if gate:
            there = np.array([name == "text" for name, _ in gate], np.float32)
            parts = (content[:, None, :] * there[:, None]).reshape(len(content), -1)
            content = np.concatenate([parts, np.tile(there, (len(content), 1))], axis=1)
        seeds = from_content(content, kind).to(self.device)
        vectors: Vectors = self.model.encoder(seeds, self.prototypes)[:, 0].cpu().numpy()
        return vectors


class EntityEncoder:
    """A frozen learner bound to a graph and its features, all on the learner's device."""

    def __init__(self, learner: FrozenLearner, graph: ArtifactRef, features: ArtifactRef) -> None:
        config = learner.described["config"]
        self.learner, self.store = learner, GraphStore.open(graph)
        budgets = Budget(**config["user_budget"]), Budget(**config["item_budget"])
        self.samplers = make_samplers(self.store, *budgets, learner.device)
        known = {k: learner.ref.table(f"known_{k}.parquet")["entity_id"].combine_chunks() for k in WITH_ID}
        gated = bool(self.learner.model.encoder.shape.gate)
        table = open_content(features, self.store, known, gated).to(learner.device)
        self.encoder, self.table = lent(learner.lending, learner.model.encoder, table)

    def encode(self, kind: str, nodes: NDArray[np.int64], time: int) -> Vectors:
        """Unit vectors (B, Q, d) of internal ids of one type as of `time` [us]."""
        times = np.full(len(nodes), time, np.int64)
        return encode_nodes(
            self.encoder,
            self.learner.prototypes,
            self.table,
            self.samplers[kind],
            kind,
            nodes,
            times,
            self.learner.described["sampling_seed"],
            blend=self.learner.blend,
        )

    def popularity(self, kind: str, nodes: NDArray[np.int64], time: int) -> Vectors:
        """What popularity adds to scores, in units of cosine, float32 (B,)."""
        times = np.full(len(nodes), time, np.int64)
        counted = log_popularity(self.samplers[kind], kind, nodes, times, self.learner.popularity_days)
        return np.asarray(self.learner.model.link.popularity_in_cosine() * counted.cpu().numpy(), np.float32)

    def degree(self, kind: str, nodes: NDArray[np.int64], time: int) -> NDArray[np.int64]:
        """As-of engagement degree, int64 (B,)."""
        return self.samplers[kind].degree(kind, nodes, np.full(len(nodes), time, np.int64)).cpu().numpy()
