"""The learner's benchmark on a shop of a few thousand edges: its gate, its peer and its parts, and what it imports."""

import subprocess
import sys

import pytest
import torch

from graph.sampler import Budget
from hierarchy.inference import encode_nodes
from tests.benchmarks import learner
from tests.benchmarks.learner_speed import measures
from tests.benchmarks.learner_speed.shop import made_shop, made_trainer
from tests.benchmarks.sampler import SPAN

NEEDLESS = ("prefect", "duckdb", "faiss", "rich", "typer", "transformers", "sklearn", "torch_geometric")


@pytest.fixture(scope="module")
def trainer():
    options = learner.options(32, 16, "fp32") | {
        "levels": [{"k": 4, "top": 2}, {"k": 8, "top": 2}],
        "user_budget": Budget(4, 4, 0, 0),
        "item_budget": Budget(2, 0, 2, 2),
        "init_vectors": 200,
    }
    return made_trainer(made_shop(4000), 24, "cpu", **options)


def test_the_gate_lets_a_sound_learner_through():
    learner.check("cpu")


def test_the_parts_of_a_step_make_up_its_time(trainer):
    spent = measures.profile(trainer, 0, 2)
    assert set(spent) == {"sampling", "forward", "backward", "optimizer"}
    assert all(seconds > 0 for seconds in spent.values())
    assert trainer.born


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_the_peer_learns_from_the_same_input(trainer):
    """Its loss falls too: it is a real model, not a straw man."""
    from tests.benchmarks.learner_speed.peer import PlainLearner

    torch.manual_seed(0)
    peer = PlainLearner(trainer.student.encoder.shape, trainer.batches.table.content.shape[1])
    optimizer = torch.optim.AdamW(peer.parameters(), lr=3e-3)
    losses, given = [], trainer.draw(3)
    for _ in range(15):
        loss = peer.loss(given)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < losses[0] - 0.2


def test_the_shop_is_read_as_a_store_is(trainer):
    nodes = torch.arange(20).numpy()
    table, sampler = trainer.batches.table, trainer.samplers["user"]
    vectors = encode_nodes(trainer.teacher.encoder, None, table, sampler, "user", nodes, nodes * 0 + SPAN, 0)
    assert vectors.shape == (20, 1, 16)
    assert len(trainer.batches.edges) == 4000


def test_it_imports_on_a_machine_with_little_more_than_torch():
    code = f"import sys; import tests.benchmarks.learner; print([n for n in {NEEDLESS} if n in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
