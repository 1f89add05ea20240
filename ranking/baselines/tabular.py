"""One row of numbers per example, for models that take tables: counts, ages, statuses, ids, matches with the history.

Everything but the raw counts and ages is read off the very batch that the networks get, so a table holds no more and no
less of the log than they see. Letters: B rows, F columns, P (row, past event) pairs, L levels.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ranking import interest_history
from ranking.baselines.fields import pairs
from ranking.batch import NUM_EVENT_TYPES, NUM_GAPS, Batcher, JaggedBatch
from ranking.reader import CATEGORY_DEPTH, JOINS, Level
from ranking.tokenization import overlaps

_CHUNK = 4096
_COUNTS = ("product_events", "pair_events")
_AGES = ("visit_age", "pair_age")
_PATHS = tuple(f"category_{depth}" for depth in range(CATEGORY_DEPTH))
_MATCHED = ("product", "advertiser", *_PATHS)
_IDS = ("user", *_MATCHED, "surface", "hour", "weekday")


def columns(levels: tuple[Level, ...]) -> tuple[list[str], list[str]]:
    """Names of all F columns in order, and of those that are categories; `levels` = () has no interest tokens."""
    tops = [f"{kind}_top_{level.level}" for kind in ("user", "product", "advertiser") for level in levels]
    names = ["history", *_COUNTS, *_AGES, *(f"{join}_status" for join in JOINS), *_IDS]
    names += [f"{name}_{what}" for name in _MATCHED for what in ("matches", "match_age")]
    names += [f"history_type_{kind}" for kind in range(NUM_EVENT_TYPES)] + ["content_mean", "content_max"]
    names += [f"overlap_{kind}_{level.level}" for kind in ("product", "advertiser") for level in levels] + tops
    names += [f"interest_{name}_{level.level}" for level in levels for name in interest_history.NUMBERS]
    return names, [*_IDS, *tops]


def tabulate(batcher: Batcher, rows: NDArray[np.int64], levels: tuple[Level, ...]) -> NDArray[np.float32]:
    """(rows, F) in the order of `columns`; absent ages are NaN."""
    width = len(columns(levels)[0])
    found = np.empty((len(rows), width), np.float32)
    for start in range(0, len(rows), _CHUNK):
        chunk = rows[start : start + _CHUNK]
        found[start : start + len(chunk)] = _chunk(batcher, chunk, levels)
    return found


def _chunk(batcher: Batcher, rows: NDArray[np.int64], levels: tuple[Level, ...]) -> NDArray[np.float32]:
    row = {name: np.asarray(column[rows]) for name, column in batcher.examples.columns.items()}
    ages = {name: np.where(row[name] < 0, np.nan, row[name]) for name in _AGES}
    counts = {name: row[name] for name in (*_COUNTS, *(f"{join}_status" for join in JOINS))} | ages
    order = (*_COUNTS, *_AGES, *(f"{join}_status" for join in JOINS))
    raw = np.stack([row["history_end"] - row["history_start"], *(counts[name] for name in order)], axis=1)
    batch = batcher.batch(rows)
    parts = [torch.from_numpy(raw.astype(np.float32)), _ids(batch), _matches(batch), _types(batch), _content(batch)]
    if levels:
        dealt = batcher.interests.numbers(row, row[batcher.bags.column["product"]].astype(np.int64))
        parts += [overlaps(batch, levels), _tops(batch, levels), torch.from_numpy(dealt)]
    return torch.cat([part.float() for part in parts], dim=1).numpy()


def _ids(batch: JaggedBatch) -> Tensor:
    """(B, ids): rows of the hashed tables, the candidate's own among them."""
    candidate = batch.candidate
    ids = [batch.user[batch.visit], batch.item_product[candidate], batch.item_advertiser[candidate]]
    ids += [*batch.item_category[candidate].unbind(1), batch.surface, batch.hour, batch.weekday]
    return torch.stack(ids, dim=1)


def _matches(batch: JaggedBatch) -> Tensor:
    """(B, 2 matched): events that share the candidate's product, advertiser, category; octave of the latest's age."""
    row, place = pairs(batch)
    mine, theirs = batch.candidate[row], batch.history.values[place]
    attributes = [batch.item_product, batch.item_advertiser, *batch.item_category.unbind(1)]
    found = []
    for attribute in attributes:
        same = (attribute[mine] == attribute[theirs]) & (attribute[mine] > 0)
        age = torch.where(same, batch.history_gap[place], NUM_GAPS)
        none = torch.full((len(batch.candidate),), NUM_GAPS)
        found += [torch.bincount(row[same], minlength=len(none)), none.scatter_reduce(0, row, age, "amin")]
    return torch.stack(found, dim=1)


def _types(batch: JaggedBatch) -> Tensor:
    """(B, event types): events of each type in the history that is read."""
    cell = batch.history.rows * NUM_EVENT_TYPES + batch.history_type
    counts = torch.bincount(cell, minlength=len(batch.user) * NUM_EVENT_TYPES)
    return counts.view(len(batch.user), NUM_EVENT_TYPES)[batch.visit]


def _content(batch: JaggedBatch) -> Tensor:
    """(B, 2): mean and greatest cosine of the candidate's content and that of past events; 0 without a history."""
    content = F.normalize(batch.item_content, dim=1)
    row, place = pairs(batch)
    cosine = (content[batch.candidate[row]] * content[batch.history.values[place]]).sum(1)
    count = batch.history.lengths[batch.visit]
    mean = torch.zeros(len(count)).index_add(0, row, cosine) / count.clamp_min(1)
    highest = torch.full((len(count),), -1.0).scatter_reduce(0, row, cosine, "amax")
    return torch.stack([mean, torch.where(count > 0, highest, 0.0)], dim=1)


def _tops(batch: JaggedBatch, levels: tuple[Level, ...]) -> Tensor:
    """(B, 3 L): heaviest primitive of each level of user, product and advertiser, 0 = none."""
    first = [level.start for level in levels]
    kinds = (batch.user_slots[batch.visit], batch.product_slots, batch.advertiser_slots)
    return torch.cat([slots[:, first] for slots in kinds], dim=1)
