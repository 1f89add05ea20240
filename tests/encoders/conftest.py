"""A tiny text model with random weights, as a local folder."""

import pytest

from encoders.text import TextEncoder
from tests.fixtures.tiny_model import write_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> str:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def tiny(tiny_model) -> TextEncoder:
    return TextEncoder(tiny_model)
