import numpy as np
import pytest

from data.schema import EVENT_TYPES, MICROS_PER_DAY
from graph.arrays import load
from graph.coengagement import Config
from graph.store import CO_ENGAGED, DEFAULT_ENGAGEMENT, SHARES_USERS
from graph.together import Together
from tests.graph.chunk_rows import chunk_of

ENGAGED = np.array([name in DEFAULT_ENGAGEMENT for name in EVENT_TYPES])
SIZES = {"product": 60, "advertiser": 7}
CONFIG = Config(grid_days=7, min_support=2, min_users=2)
FIRST_WEEK = chunk_of([(user, product, "view", 3.5) for user in range(4) for product in (5, 25)])
AFTER = chunk_of([(9, 1, "view", 7.25), (1, 5, "view", 7.5)])


def edges_of(work, chunks) -> list[dict]:
    """The files of every folder of edges, by relation and array."""
    together = Together(CONFIG, work, None, 0)
    for name, (chunk, guarded) in chunks.items():
        together.count(name, chunk, guarded, ENGAGED)
    folders = together.edges(list(chunks), SIZES, work / "related")
    return [
        {(relation, path.stem): load(path).tolist() for relation in (CO_ENGAGED, SHARES_USERS)
         for path in sorted((folder / relation.folder).glob("*.npy"))}
        for folder in folders
    ]  # fmt: skip


def test_edges_come_with_the_first_event_after_the_grid_date_even_if_a_guard_cuts_it(tmp_path):
    honest = AFTER.take(AFTER.user == 1)
    (made,) = edges_of(tmp_path, {"a": (FIRST_WEEK, FIRST_WEEK), "b": (AFTER, honest)})
    seen = int(7.25 * MICROS_PER_DAY) + 1
    assert made[CO_ENGAGED, "col"] == [25, 5]
    assert made[CO_ENGAGED, "visible_from"] == [seen, seen]
    assert made[SHARES_USERS, "col"] == [2, 0]
    assert len(made[CO_ENGAGED, "rowptr"]) == SIZES["product"] + 1


@pytest.mark.parametrize("split", [1, 2, 3])
def test_a_day_in_parts_counts_as_the_whole_day(tmp_path, split):
    whole = edges_of(tmp_path / "whole", {"a": (FIRST_WEEK, FIRST_WEEK), "b": (AFTER, AFTER)})
    halves = [FIRST_WEEK.take(FIRST_WEEK.user < split), FIRST_WEEK.take(FIRST_WEEK.user >= split)]
    parts = {f"a.{number}": (half, half) for number, half in enumerate(halves)}
    assert edges_of(tmp_path / "parts", {**parts, "b": (AFTER, AFTER)}) == whole


def test_without_an_event_after_the_grid_date_there_are_no_edges_yet(tmp_path):
    assert edges_of(tmp_path, {"a": (FIRST_WEEK, FIRST_WEEK)}) == []
