"""Hard negatives in a step: drawn, encoded and added to its candidates, with everybody's expected draws put right."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch

from data.context import derive_seed
from hierarchy.batches import BatchMaker, StepInput
from hierarchy.hard_negatives import HardNegatives
from hierarchy.prototypes import Prototypes


class Miner:
    """What the training loop knows of negatives: hard ones, and candidates that are none of a row's negatives.

    Hard negatives depend on the primitives, hence on training: they are drawn when a step begins, not ahead of it.
    """

    def __init__(self, batches: BatchMaker, per_row: int, seed: int) -> None:
        """`per_row`: hard negatives of each edge, 0 for none; without effect where all products are candidates."""
        self.batches, self.wanted = batches, per_row > 0 and not batches.full
        self.hard = HardNegatives(batches.share("product"), per_row, derive_seed(seed, "hard"))

    def assign(self, vectors: torch.Tensor, prototypes: Prototypes) -> None:
        """Sort the products, by their vectors (N, d), into the primitives as they are now."""
        self.hard.assign(vectors, prototypes)

    def extended(self, given: StepInput, step: int, negatives: int) -> StepInput:
        """`given` with hard negatives among its product candidates, of which `negatives` are uniform."""
        if not (self.wanted and self.hard.ready):
            return given
        products, size = given.products, len(given.user)
        positives = products.nodes[products.targets]
        nodes, counts = self.hard.draw(positives, products.known, step)
        more = self.batches.candidates("product", nodes, given.edges.as_of, step)
        everything = torch.cat([products.nodes, nodes])
        expected = self.batches.expected("product", everything, products.known, size, negatives)
        total = expected[None, :] + self.hard.expected(positives, everything, products.known)
        log_expected = torch.log(total + 1e-12).float()
        log_expected[:, len(products.nodes) :].masked_fill_(~counts[None, :], torch.inf)
        return dataclasses.replace(given, products=products.extended(more, log_expected))

    def absent(self, given: StepInput) -> torch.Tensor | None:
        """Product candidates that the row's user is known to engage with, bool (B, C); None where nobody asks."""
        if self.batches.engaged is None:
            return None
        nodes = given.products.nodes
        if given.engaged is None:
            return self.batches.engaged.mask(given.user, nodes)
        found = torch.zeros((len(given.user), len(nodes)), dtype=torch.bool, device=nodes.device)
        return found.index_put_(given.engaged, found.new_ones(()))

    def state(self) -> dict[str, torch.Tensor]:
        """Tensors for a checkpoint."""
        return {"miner.leaf": self.hard.leaf, "miner.parent": self.hard.parent} if self.hard.ready else {}

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Go on from `state`, its names without their prefix."""
        if tensors:
            device = self.batches.device
            self.hard.place(tensors["leaf"].to(device), tensors["parent"].to(device))
