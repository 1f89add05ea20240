"""Sizes of a ranker and of what it learns from: what each costs, and the validation NE that it reaches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ranking.evaluate import normalized_entropy
from ranking.fitting import Sample, Schedule
from ranking.flops import forward_flops
from ranking.hashing import hash_share
from ranking.model import Ranker
from ranking.models import Architecture, Fit, Setup, batcher_of, fit_network_of, network_of
from ranking.reader import VALIDATION, Examples

_PROBES = 8  # batches whose operations are counted
_TRAINING = 3  # a backward pass costs two forward ones


@dataclass(frozen=True)
class Point:
    """One size: the network, about how many training rows from which share of the users, and what a product brings.

    `by_users`: the law is asked how NE falls with the number of users, not with compute, which stays the same.
    """

    name: str
    rows: int
    architecture: Architecture = field(default_factory=Architecture)
    arm: str = "tokens"
    content: bool = True
    users: float = 1.0
    by_users: bool = False

    @property
    def shape(self) -> str:
        """The size in words."""
        size = self.architecture
        network = f"width {size.width}, {size.num_blocks} blocks, history {size.history_len}"
        fed = "ids" + (", content" if self.content else "") + (", interest tokens" if self.arm == "tokens" else "")
        return f"{network}, {self.rows} rows of {self.users:g} of the users, {fed}"

    def setup(self, examples: Examples, schedule: Schedule) -> Setup:
        """What its fits share."""
        if not self.content:
            examples = replace(examples, content=np.zeros_like(examples.content))
        wanted = self.rows if self.users == 1.0 else round(self.rows / self.users)
        setup = Setup.open(examples, wanted, self.architecture, schedule)
        return setup if self.users == 1.0 else replace(setup, sample=_some_users(examples, setup.sample, self.users))


def compute_of(examples: Examples, point: Point, schedule: Schedule) -> float:
    """Operations of one training, counted on a few batches; nothing is trained."""
    setup = point.setup(examples, schedule)
    network, batcher = network_of(setup, Fit("ranker", point.arm, 0)), batcher_of(setup, point.arm)
    assert isinstance(network, Ranker)
    order = batcher.order(setup.sample.train, 0)
    parts = np.array_split(order, max(1, len(order) // schedule.batch_rows))
    some = parts[:: max(1, len(parts) // _PROBES)]
    counted = sum(forward_flops(network, batcher.batch(rows)) for rows in some)
    return _TRAINING * counted * len(order) * schedule.epochs / sum(map(len, some))


def size_of(examples: Examples, point: Point, schedule: Schedule) -> float:
    """What the law is a function of: operations of training, or how many users the training rows come from."""
    if not point.by_users:
        return compute_of(examples, point, schedule)
    train = point.setup(examples, schedule).sample.train
    return float(len(np.unique(np.asarray(examples.columns["user"][train]))))


def losses_of(examples: Examples, point: Point, schedule: Schedule, seeds: int) -> list[float]:
    """NE on the validation window of a fit with each seed."""
    setup, rows = point.setup(examples, schedule), examples.rows(VALIDATION)
    labels = np.asarray(examples.columns["label"][rows])
    weights = 1.0 / examples.columns["sample_prob"][rows].astype(np.float64)
    fits = (fit_network_of(setup, Fit("ranker", point.arm, seed), seed) for seed in range(seeds))
    return [normalized_entropy(fitted.logits(rows)[0], labels, weights) for fitted in fits]


def _some_users(examples: Examples, sample: Sample, share: float) -> Sample:
    """The training rows of a fixed part of the users."""
    users = np.asarray(examples.columns["user"][sample.train])
    chosen = hash_share(examples.hashes["user"][users]) < share
    return replace(sample, train=sample.train[chosen])


def _sizes(**changes: list[int]) -> Callable[[int], Mapping[str, list[Point]]]:
    names, columns = list(changes), list(changes.values())

    def axis(rows: int) -> Mapping[str, list[Point]]:
        found = []
        for values in zip(*columns, strict=True):
            size = dict(zip(names, values, strict=True))
            found.append(Point(" x ".join(map(str, values)), rows, Architecture(**size)))
        return {"": found}

    return axis


def _examples(rows: int, **same: object) -> list[Point]:
    counts = [rows // part for part in (32, 16, 8, 4, 2, 1)]
    return [Point(str(count), count, **same) for count in counts]  # type: ignore[arg-type]


def _enrichment(rows: int) -> Mapping[str, list[Point]]:
    return {
        ", ids": _examples(rows, arm="no_tokens", content=False),
        ", ids and content": _examples(rows, arm="no_tokens"),
        ", ids, content and tokens": _examples(rows),
    }


def _diversity(rows: int) -> Mapping[str, list[Point]]:
    shares = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
    return {"": [Point(f"{share:g} of the users", rows // 16, users=share, by_users=True) for share in shares]}


AXES: dict[str, Callable[[int], Mapping[str, list[Point]]]] = {
    "depth": _sizes(num_blocks=[1, 2, 4, 8]),
    "width": _sizes(width=[8, 16, 32, 64, 128]),
    "length": _sizes(history_len=[6, 12, 25, 50, 100]),
    "diagonal": _sizes(width=[8, 16, 32, 64], num_blocks=[1, 2, 4, 8], history_len=[12, 25, 50, 100]),
    "examples": lambda rows: {"": _examples(rows)},
    "diversity": _diversity,
    "enrichment": _enrichment,
}
"""By name what is made larger, smallest first; one or several rows of sizes."""
