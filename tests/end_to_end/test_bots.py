"""Bots that push products gain little through the whole path to retrieval, and people lose nothing by the guards."""

from __future__ import annotations

import pytest

from graph import guards
from tests.benchmarks.planted_bots import World, log_config


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", ["burst", "focused"])
def test_guards_take_back_what_bots_gain_and_cost_people_nothing(tmp_path, behaviour):
    world = World(log_config(5, users=800, products=400, advertisers=40, events=60_000), tmp_path, steps=60)
    clean, pushed = world.figures(None, None), world.figures(behaviour, None)
    guarded, fair = world.figures(behaviour, guards.Config()), world.figures(None, guards.Config())
    lift = pushed.exposure - clean.exposure
    assert lift > 0.01, "bots that gain nothing would prove nothing"
    assert 1 - (guarded.exposure - clean.exposure) / lift >= 0.8
    assert min(guarded.recall, fair.recall) >= 0.995 * clean.recall > 0.02
