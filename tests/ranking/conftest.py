"""One small shop and its examples, made once."""

from __future__ import annotations

import pytest

from data.artifacts import ArtifactRef
from ranking import histories
from tests.ranking.shops import Shop, make_examples, publish_shop, random_shop, run_stage


@pytest.fixture(scope="session")
def shop() -> Shop:
    """One random shop for all tests that only read it."""
    return random_shop()


@pytest.fixture(scope="session")
def examples_ref(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> ArtifactRef:
    """Its examples."""
    return make_examples(shop, tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="session")
def inputs(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> dict[str, ArtifactRef]:
    """Events, features, tokens and histories of the shop."""
    store = tmp_path_factory.mktemp("inputs")
    published = publish_shop(shop, store)
    return published | {"histories": run_stage(store, "histories", histories, histories.Config(), published)}
