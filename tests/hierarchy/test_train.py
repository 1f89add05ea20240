import json

import numpy as np
import pytest
import torch

from data.artifacts import sha256_file
from data.context import RunContext
from data.errors import BadDataError, UsageError
from graph.store import GraphStore
from hierarchy import train
from hierarchy.batches import BatchMaker, make_samplers
from hierarchy.content import open_content
from hierarchy.edges import BLOCK, TrainingEdges, owners
from hierarchy.inference import EntityEncoder, FrozenLearner
from hierarchy.teacher import follow, make_teacher, momentum_at
from tests.hierarchy import small_learner as small


@pytest.fixture(scope="module")
def learner(root, inputs):
    return small.trained(root, inputs)


def _log(ref) -> list[dict]:
    return [json.loads(line) for line in ref.file("training.jsonl").read_text().splitlines()]


def test_every_loss_term_is_logged_and_primitives_are_born_after_the_warm_up(learner):
    rows = _log(learner)
    assert [row["step"] for row in rows] == list(range(12))
    assert "distillation" not in rows[3]
    assert {"link", "advertiser", "distillation", "consistency", "distillation_1", "distillation_2"} <= set(rows[4])


def test_primitives_join_the_tokens_when_they_are_born(learner):
    assert FrozenLearner.open(learner).prototypes.joined


def test_primitives_move_while_training(root, inputs):
    born = small.trained(root, inputs, "born", steps=5)
    later = small.trained(root, inputs, "later", reseed_every=1000)
    first, last = (FrozenLearner.open(ref).prototypes for ref in (born, later))
    for level in range(2):
        assert (first.vectors(level) - last.vectors(level)).norm(dim=1).max() > 1e-3


def test_link_loss_falls(root, inputs):
    rows = _log(small.trained(root, inputs, "long", steps=60, warmup_steps=60, id_lr=0.05))
    assert np.mean([row["link"] for row in rows[-10:]]) < np.mean([row["link"] for row in rows[:10]]) - 0.1


def test_equal_seeds_give_equal_files(root, inputs, learner):
    again = small.trained(root, inputs, "again")
    for name in ("model.safetensors", "training.jsonl", "learner.json"):
        assert sha256_file(again.file(name)) == sha256_file(learner.file(name))


def test_batches_drawn_ahead_change_no_bit(root, inputs, learner):
    alone = small.trained(root, inputs, "alone", prefetch=0)
    for name in ("model.safetensors", "training.jsonl"):
        assert sha256_file(alone.file(name)) == sha256_file(learner.file(name))
    assert 0 < alone.metrics["wait_share"] < 1
    assert 0 < learner.metrics["wait_share"] < 1


@pytest.mark.parametrize("killed_at", [3, 8])
def test_a_killed_run_resumes_to_identical_files(root, inputs, learner, killed_at):
    """Killed before the primitives exist and after; the last checkpoint before step 3 is none at all."""
    key = f"killed{killed_at}"
    with small.killed(killed_at):
        small.trained(root, inputs, key)
    assert root.find("learner", key) is None
    saved = (root.work("learner", key) / "checkpoint.safetensors").exists()
    assert saved == (killed_at > 5)
    resumed = small.trained(root, inputs, key)
    for name in ("model.safetensors", "training.jsonl"):
        assert sha256_file(resumed.file(name)) == sha256_file(learner.file(name))


def test_what_happens_after_t0_changes_nothing(root, learner):
    cut = small.shop(root, until=small.before(small.T0), key="cut")
    assert GraphStore.open(cut["graph"]).num_nodes["product"] <= 80
    without_future = small.trained(root, cut, "without_future")
    for name in ("model.safetensors", "training.jsonl", "known_product.parquet", "known_advertiser.parquet"):
        assert sha256_file(without_future.file(name)) == sha256_file(learner.file(name))


def test_what_happened_before_t0_matters(root, learner):
    earlier = small.shop(root, until=small.before(small.T0) - 10 * BLOCK // 7, key="earlier")
    other = small.trained(root, earlier, "earlier")
    assert sha256_file(other.file("model.safetensors")) != sha256_file(learner.file("model.safetensors"))


@pytest.mark.parametrize("warmup", [4, 99])
def test_without_distillation_primitives_are_still_placed(root, inputs, warmup):
    """Also when training ends before the warm-up does."""
    off = {"advertiser": 0.0, "distillation": 0.0, "consistency": 0.0, "spread": 0.0}
    found = FrozenLearner.open(small.trained(root, inputs, f"off{warmup}", weights=off, steps=6, warmup_steps=warmup))
    for level in range(2):
        norms = found.prototypes.vectors(level).norm(dim=1)
        assert torch.allclose(norms, torch.ones_like(norms), atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"distillation": {"views": ("contents",)}}, "did you mean 'content'"),
        ({"levels": [{"k": 8, "top": 2}, {"k": 4, "top": 2}]}, "coarse to fine"),
        ({"levels": [{"k": 2, "top": 3}]}, "top <= k"),
        ({"dim": 15}, "divisible by heads"),
    ],
)
def test_settings_that_cannot_work_are_refused(inputs, tmp_path, changes, said):
    config = train.Config(**{**small.CONFIG, **changes})
    with pytest.raises(UsageError, match=said):
        train.run(config, inputs, None, RunContext(threads=1))


def test_edges_end_at_t0_and_each_epoch_is_one_pass(inputs):
    store, end = GraphStore.open(inputs["graph"]), small.before(small.T0)
    edges = TrainingEdges(store, {"purchase": 1.0, "click": 0.5}, end, seed=3)
    assert edges.ts.max() < end
    assert set(np.unique(edges.weight)) <= {0.5, 1.0}
    per_epoch = len(edges) // 32
    batches = [edges.batch(step, 32) for step in range(per_epoch)]
    seen = [(u, p, t) for b in batches for u, p, t in zip(b.user, b.product, b.ts, strict=True)]
    assert len(seen) == per_epoch * 32
    assert all(batch.as_of <= batch.ts.min() for batch in batches)
    assert all((end - batch.as_of) % BLOCK == 0 for batch in batches)
    again = TrainingEdges(store, {"purchase": 1.0, "click": 0.5}, end, seed=3).batch(2, 32)
    assert np.array_equal(again.product, batches[2].product)


def test_more_rows_than_edges_give_all_edges(inputs):
    edges = TrainingEdges(GraphStore.open(inputs["graph"]), {"purchase": 1.0}, small.before(small.T0), seed=0)
    assert len(edges.batch(0, 10**6).user) == len(edges)


def test_no_edges_at_all_are_explained(inputs):
    with pytest.raises(BadDataError, match="got none"):
        TrainingEdges(GraphStore.open(inputs["graph"]), {"purchase": 1.0}, end=0, seed=0)


def test_owners_are_minus_one_where_unknown(inputs):
    store = GraphStore.open(inputs["graph"])
    found = owners(store, np.arange(store.num_nodes["product"]))
    assert found.max() < store.num_nodes["advertiser"]
    assert (found >= 0).any()


def test_candidates_carry_their_expected_draws(inputs):
    store, end = GraphStore.open(inputs["graph"]), small.before(small.T0)
    config = train.Config(**small.CONFIG)
    samplers = make_samplers(store, config.user_budget, config.item_budget)
    visible = {
        kind: int(np.searchsorted(store.known_at(kind), end, side="right")) for kind in ("product", "advertiser")
    }
    edges = TrainingEdges(store, {"purchase": 1.0}, end, seed=0)
    maker = BatchMaker(store, open_content(inputs["features"], store), edges, samplers, visible, 0)
    given = maker.draw(0, 32, 16, 4, hide_target=1.0)
    assert len(given.products.nodes) == 48
    known = int((store.known_at("product") <= given.edges.as_of).sum())
    share = np.bincount(edges.product, minlength=visible["product"])[given.products.nodes.numpy()] / len(edges)
    expected = 31 * share + np.where(given.products.nodes.numpy() < known, 16 / known, 0)
    assert np.allclose(given.products.log_expected.exp().numpy(), expected, atol=1e-5)
    own = given.user_tokens.node == given.edges.product[:, None]
    is_product = given.user_tokens.node_type == 1
    assert not (own & is_product & given.user_tokens.mask).any()
    owned = np.unique(given.edges.advertiser[given.edges.advertiser >= 0])
    assert np.array_equal(given.advertisers.nodes[: len(owned)], owned)
    assert (given.advertisers.log_expected[: len(owned)].exp() <= 1 + 4 / visible["advertiser"] + 1e-6).all()


def test_the_teacher_follows_and_takes_no_gradient():
    student = torch.nn.Linear(2, 2)
    teacher = make_teacher(student)
    with torch.no_grad():
        student.weight.add_(1.0)
    start = teacher.weight.clone()
    follow(teacher, student, 0.75)
    assert torch.allclose(teacher.weight, start + 0.25)
    assert not teacher.weight.requires_grad
    assert momentum_at(0, 0.99) == pytest.approx(0.1)
    assert momentum_at(10**6, 0.99) == 0.99


def test_a_frozen_learner_gives_the_same_vectors_in_any_company(inputs, learner):
    encoder = EntityEncoder(FrozenLearner.open(learner), inputs["graph"], inputs["features"])
    time = small.before(small.T1)
    everybody = encoder.encode("product", np.arange(80), time)
    some = encoder.encode("product", np.array([70, 3]), time)
    assert np.allclose(some, everybody[[70, 3]], atol=1e-6)
    assert np.allclose(np.linalg.norm(everybody, axis=2), 1, atol=1e-5)


def test_gated_fusion_is_trained_kept_and_answers_texts(root, inputs):
    ref = small.trained(root, inputs, "gated", gated_fusion=True)
    frozen = FrozenLearner.open(ref)
    gate = frozen.model.encoder.gate
    assert gate is not None
    assert gate.gate.weight.abs().max() > 1e-4
    products = EntityEncoder(frozen, inputs["graph"], inputs["features"]).encode(
        "product", np.arange(20), small.before(small.T1)
    )
    assert np.allclose(np.linalg.norm(products, axis=2), 1, atol=1e-5)
    content = np.asarray(inputs["features"].array("content_product.npy"))[:3]
    assert frozen.encode_content(content).shape == (3, products.shape[2])
