"""Category ids: a path from coarse to fine, written as its names joined with " > "."""

from __future__ import annotations

from collections.abc import Sequence

SEPARATOR = " > "


def category_ids(path: Sequence[str | None] | None) -> list[str]:
    """Ids of a path's prefixes, coarse to fine, the last being the leaf: ["A", "B"] gives ["A", "A > B"].

    Missing and empty names are skipped; a missing path has no ids.
    """
    names = [name for name in path or () if name]
    return [SEPARATOR.join(names[: depth + 1]) for depth in range(len(names))]
