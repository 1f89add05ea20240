"""One small shop and its examples, made once."""

from __future__ import annotations

import pytest

from data.artifacts import ArtifactRef
from tests.ranking.shops import Shop, make_examples, random_shop


@pytest.fixture(scope="session")
def shop() -> Shop:
    """One random shop for all tests that only read it."""
    return random_shop()


@pytest.fixture(scope="session")
def examples_ref(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> ArtifactRef:
    """Its examples."""
    return make_examples(shop, tmp_path_factory.mktemp("shop"))
