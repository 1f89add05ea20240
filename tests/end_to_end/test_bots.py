"""Bots that push products gain little through the whole path to retrieval, and people lose nothing by the guards."""

from __future__ import annotations

import pytest

from graph import guards
from tests.benchmarks.planted_bots import World, log_config


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    """A small log, its clean part learned from once."""
    size = {"users": 800, "products": 400, "advertisers": 40, "events": 60_000}
    return World(log_config(5, **size), tmp_path_factory.mktemp("bots"), steps=60)


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", ["burst", "focused"])
def test_guards_take_back_what_bots_gain_and_cost_people_nothing(world, behaviour):
    clean, pushed = world.figures(None, None), world.figures(behaviour, None)
    guarded, fair = world.figures(behaviour, guards.Config()), world.figures(None, guards.Config())
    lift = pushed.exposure - clean.exposure
    assert lift > 0.01, "bots that gain nothing would prove nothing"
    assert 1 - (guarded.exposure - clean.exposure) / lift >= 0.8
    assert min(guarded.recall, fair.recall) >= 0.995 * clean.recall > 0.02
