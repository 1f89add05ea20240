"""One variant trained with one seed: its figures, recall by user, and the file that both are kept in.

A fit whose file is there, made with the same settings, is not made again; several processes may share a folder.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.errors import BadDataError, StrataError, UsageError
from hierarchy.inference import FrozenLearner
from hierarchy.level_quality import agreement_row, duplicate_share, use
from hierarchy.recall import rank
from tests.benchmarks.ablations.ground import Ground
from tests.benchmarks.ablations.variants import Variant, merged
from tests.benchmarks.retrieval_quality import learner
from tests.benchmarks.retrieval_quality.learner import LearnedRetrieval

LEVELS = {
    "nmi_category": "NMI with categories",
    "active_share": "active",
    "perplexity_share": "perplexity / K",
    "duplicates": "duplicates",
}


@dataclass(frozen=True)
class Fit:
    """Figures by metric, recall (u,) of each user by metric, seconds, and why nothing was published, if so."""

    figures: Mapping[str, float]
    users: Mapping[str, NDArray[np.float64]]
    seconds: float
    refused: str


@dataclass(frozen=True)
class Fits:
    """Fits of one set in a folder."""

    ground: Ground
    base: Mapping[str, Any]
    device: str
    folder: Path

    def of(self, variant: Variant, seed: int) -> Fit:
        """The fit, from its file or made now."""
        return self.held(variant, seed) or self._made(variant, seed)

    def held(self, variant: Variant, seed: int) -> Fit | None:
        """The fit if its file is there and of these settings."""
        try:
            with np.load(self._file(variant, seed)) as held:
                described = json.loads(str(held["described"]))
                users = {name: held[name] for name in held.files if name != "described"}
        except (OSError, ValueError, KeyError):
            return None
        if described.pop("setting") != self._setting(variant):
            return None
        return Fit(users=users, **described)

    def _made(self, variant: Variant, seed: int) -> Fit:
        started = time.monotonic()
        try:
            found = self._trained(variant, seed)
        except (UsageError, BadDataError):
            raise
        except StrataError as error:  # collapsed: that is what this variant does
            fit = Fit({}, {}, time.monotonic() - started, str(error))
        else:
            users = dict(self._recalls(found))
            figures = {name: float(np.nanmean(values)) for name, values in users.items()} | self._levels(found)
            fit = Fit(figures, users, time.monotonic() - started, "")
            found.discard()
        self._write(variant, seed, fit)
        return fit

    def _trained(self, variant: Variant, seed: int) -> LearnedRetrieval:
        known, setting = self.ground.known, merged(self.base, variant.setting)
        content = known.content if variant.content else None
        owners = self.ground.owners if variant.owners else None
        found = learner.fit(known.history, content, known.time_kind, setting, seed, self.device, owners)
        found.learned = found.learned.with_popularity(variant.popularity)
        return found

    def _recalls(self, found: LearnedRetrieval) -> Iterator[tuple[str, NDArray[np.float64]]]:
        for asked in self.ground.asked:
            (places,) = rank(found, [asked.question], asked.users, asked.k)
            yield asked.metric, places.recall(asked.k, "reachable")

    def _levels(self, found: LearnedRetrieval) -> dict[str, float]:
        """Figures of each level; a product belongs to its nearest primitive, as its strongest token does."""
        prototypes, products, tree = (
            FrozenLearner.open(found.learner).prototypes,
            found.learned.products,
            self.ground.tree,
        )
        figures = {}
        for level in range(prototypes.num_levels):
            vectors = prototypes.vectors(level).numpy()
            nearest, depth = (products @ vectors.T).argmax(axis=1), tree.matching(len(vectors))
            row = use(nearest, len(vectors)) | agreement_row(nearest, tree.depths[depth], depth)
            row["duplicates"] = duplicate_share(vectors)
            figures |= {f"{metric}, K {len(vectors)}": float(row[name]) for name, metric in LEVELS.items()}
        return figures

    def _write(self, variant: Variant, seed: int, fit: Fit) -> None:
        file = self._file(variant, seed)
        file.parent.mkdir(parents=True, exist_ok=True)
        described = {"figures": dict(fit.figures), "seconds": round(fit.seconds, 1), "refused": fit.refused}
        text = json.dumps(described | {"setting": self._setting(variant)})
        beside = file.with_name(f"{os.getpid()}-{file.name}")
        np.savez_compressed(beside, described=np.array(text), **fit.users)
        beside.replace(file)

    def _setting(self, variant: Variant) -> Any:
        setting = merged(self.base, variant.setting)
        own = {"setting": setting, **{name: getattr(variant, name) for name in ("popularity", "content", "owners")}}
        return json.loads(json.dumps(own | {"shape": self.ground.shape}))

    def _file(self, variant: Variant, seed: int) -> Path:
        return self.folder / self.ground.name / f"{variant.name.replace(' ', '-')}-{seed}.npz"
