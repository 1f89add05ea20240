"""A finished run that several modules read, and the server of processes to kill; both are made once."""

import json
import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.command_line import strata

SHOP = Path(__file__).resolve().parents[1] / "fixtures" / "shop.toml"


@pytest.fixture(scope="session")
def published(tmp_path_factory) -> tuple[Path, dict[str, Any]]:
    """Another user's CSV, by `--config` alone, on the command line: the store and what it said; only to be read."""
    store = tmp_path_factory.mktemp("published") / "store"
    result = strata("run", "--config", SHOP, "--direct", "--store", store, "--json")
    assert result.returncode == 0, result.stderr
    return store, json.loads(result.stdout)


@pytest.fixture(scope="session")
def processes() -> multiprocessing.context.BaseContext:
    """A fork server that imported the pipeline once, so that a killed child costs no start-up.

    There is one a test process, and what it imports is settled by who starts it: so every test must take this one.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "flows.pipeline", "torch._dynamo"])
    return context
