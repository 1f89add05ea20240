"""Shared by every test: offline, kernels interpreted on the CPU, and a small synthetic shop as an artifact."""

import importlib.util
import os
import sys
from pathlib import Path

# Read when triton and the hub client are imported, so before anything else.
if not Path("/dev/nvidiactl").exists():  # on a GPU kernels are compiled: interpreted ones copy tensors to the host
    os.environ.setdefault("TRITON_INTERPRET", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pyarrow as pa
import pytest

from data import synthetic
from data.artifacts import ArtifactRef, Store
from tests.fixtures import artifacts, scratch, worlds

if importlib.util.find_spec("torchvision"):  # before a test imports transformers, which would import it
    from encoders.torchvision_operators import declare_torchvision_operators

    declare_torchvision_operators()

scratch.prefer_memory()


@pytest.fixture(scope="session", autouse=True)
def templates(tmp_path_factory) -> None:
    """Where artifacts lie that many modules begin with."""
    worlds.templates = tmp_path_factory.mktemp


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Leave torch one thread, whatever an earlier test gave it: the test processes take every core already."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture
def world() -> dict[str, pa.Table]:
    """The default synthetic world: tables of the contract by name, and `user_interests`."""
    return worlds.world()


@pytest.fixture
def store(tmp_path) -> Store:
    """An empty store."""
    return Store(tmp_path / "store")


@pytest.fixture
def make_ref():
    """The function `make_ref(store, stage, writer, key="test") -> ArtifactRef`."""
    return artifacts.make_ref


@pytest.fixture
def synthetic_events(store, world) -> ArtifactRef:
    """The synthetic world as artifact `events`."""
    return artifacts.make_ref(store, "events", lambda out: synthetic.write_events(world, out), "synthetic")
