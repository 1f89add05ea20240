"""A published set as arrays in one .npz file, which a machine without the readers of `data.sources` can open.

`python -m tests.benchmarks.learned_retrieval.sets amazon-beauty gowalla --root STRATA_DATA --out DIR` writes them.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.errors import UsageError
from hierarchy.purchases import History

PARTS = ("train", "valid", "test")


@dataclass(frozen=True)
class Rows:
    """Items by user: user u owns items[offsets[u]:offsets[u + 1]], the oldest first where there is an order."""

    offsets: NDArray[np.int64]
    items: NDArray[np.int64]

    def users(self) -> NDArray[np.int64]:
        """User of each item (n,)."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))


@dataclass(frozen=True)
class Arrays:
    """A set: `ordered` where users' items have an order (leave-one-out), else not (Gowalla)."""

    name: str
    ordered: bool
    num_items: int
    train: Rows
    valid: Rows
    test: Rows


def write(split: Any, file: Path) -> None:
    """Write a `data.sources.splits.Split`. Raises UsageError for one without a validation or a test part."""
    for part in PARTS:
        if not len(getattr(split, part).items):
            raise UsageError(f"{split.name} has no {part} part: take one of the leave-one-out sets, or gowalla")
    parts = {f"{part}_{name}": getattr(getattr(split, part), name) for part in PARTS for name in ("offsets", "items")}
    narrow = {name: array.astype(np.int32) for name, array in parts.items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    ordered = np.array(split.time_kind != "none")
    np.savez_compressed(file, name=np.array(split.name), ordered=ordered, num_items=np.array(split.num_items), **narrow)


def load(file: Path) -> Arrays:
    """Read what `write` wrote."""
    with np.load(file) as held:
        parts = [
            Rows(held[f"{part}_offsets"].astype(np.int64), held[f"{part}_items"].astype(np.int64)) for part in PARTS
        ]
        return Arrays(str(held["name"]), bool(held["ordered"]), int(held["num_items"]), *parts)


def joined(first: Rows, second: Rows) -> Rows:
    """Items of both, of each user those of `first` before those of `second`."""
    user = np.concatenate([first.users(), second.users()])
    order = np.argsort(user, kind="stable")
    return Rows(first.offsets + second.offsets, np.concatenate([first.items, second.items])[order])


def history(rows: Rows, arrays: Arrays) -> History:
    """What users had; ages are positions from the newest, which has age 0, and all 0 where there is no order."""
    user = rows.users()
    age = rows.offsets[user + 1] - 1 - np.arange(len(user)) if arrays.ordered else np.zeros(len(user))
    return History(user, rows.items, age.astype(np.float64), len(rows.offsets) - 1, arrays.num_items)


def main(argv: list[str] | None = None) -> None:
    """Export the sets named on the command line."""
    from data.sources.splits import load_split  # its readers need pydantic, which measuring does not
    from tests.fixtures.public_sets import FOLDERS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--root", type=Path, required=True, help="folder that holds the folders of the sets")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(argv)
    for name in given.names:
        write(load_split(name, given.root / FOLDERS.get(name, name)), given.out / f"{name}.npz")


if __name__ == "__main__":
    main()
