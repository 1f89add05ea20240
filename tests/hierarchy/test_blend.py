import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from data.artifacts import Store
from graph.store import GraphStore
from hierarchy.blend import blended, gate
from hierarchy.inference import EntityEncoder, FrozenLearner
from tests.hierarchy import small_learner as small


def units(rows, seed):
    return normalize(torch.randn(rows, 2, 8, generator=torch.Generator().manual_seed(seed)), dim=-1)


def test_the_gate_is_a_half_at_kappa_events_and_open_without_one():
    degree = torch.tensor([0, 1, 5, 10, 10**6])
    assert torch.allclose(gate(degree, 5.0), torch.tensor([0.0, 1 / 6, 0.5, 2 / 3, 1.0]), atol=1e-4)
    assert torch.equal(gate(degree, 0.0), torch.ones(5))


def test_no_events_leave_the_content_and_many_the_graph():
    graph, content = units(4, 0), units(4, 1)
    mixed = blended(graph, content, torch.tensor([0, 3, 10**9, 3]), 3.0)
    assert torch.allclose(mixed[0], content[0], atol=1e-6)
    assert torch.allclose(mixed[2], graph[2], atol=1e-6)
    assert torch.allclose(mixed[1], normalize(graph[1] + content[1], dim=-1), atol=1e-6)
    assert torch.allclose(mixed.norm(dim=-1), torch.ones(4, 2), atol=1e-6)


def test_opposites_that_cancel_stay_the_graphs():
    graph = units(2, 0)
    assert torch.equal(blended(graph, -graph, torch.tensor([3, 3]), 3.0), graph)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The vectors of all products and users, by the kappa of the learner they were made with."""
    root = Store(tmp_path_factory.mktemp("store"))
    inputs = small.shop(root)
    time, found = small.before(small.T1), {}
    # Primitives settle on blended vectors, and as hubs they reach everybody: here they stay where training left them.
    distillation = {**small.CONFIG["distillation"], "settle": 0}
    for kappa in (0.0, 4.0):
        changes = {"blend": kappa, "lr": 0.03, "steps": 40, "distillation": distillation}
        trained = small.trained(root, inputs, f"blend{kappa:g}", **changes)
        frozen = FrozenLearner.open(trained)
        encoder = EntityEncoder(frozen, inputs["graph"], inputs["features"])
        nodes = np.arange(GraphStore.open(inputs["graph"]).num_nodes["product"])
        found[kappa] = {kind: encoder.encode(kind, nodes[:50], time) for kind in ("product", "user")}
        degree = encoder.degree("product", nodes[:50], time)
    return found, degree


def test_a_learner_with_a_blend_moves_products_and_the_rare_ones_most(made):
    found, degree = made
    moved = 1 - (found[0.0]["product"] * found[4.0]["product"]).sum(axis=(1, 2))
    assert np.array_equal(found[0.0]["user"], found[4.0]["user"]), "a user is its events"
    assert moved.max() > 1e-4
    rare = degree <= np.median(degree)
    assert moved[rare].mean() > moved[~rare].mean()
    assert np.allclose(np.linalg.norm(found[4.0]["product"], axis=2), 1, atol=1e-5)
