"""The small shop that the learner's tests share, one of its own for each module."""

import pytest

from data.artifacts import ArtifactRef, Store
from tests.hierarchy import small_learner as small


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Store:
    """An empty store, then the module's."""
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def inputs(root) -> dict[str, ArtifactRef]:
    """Artifacts `graph` and `features` of the synthetic shop in `root`."""
    return small.shop(root)
