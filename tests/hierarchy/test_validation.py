import json

import numpy as np
import pytest
import torch

from data.artifacts import sha256_file
from data.context import RunContext
from hierarchy import train
from hierarchy.inference import FrozenLearner
from hierarchy.trainer import Trainer
from hierarchy.validation import Best, HeldOut
from tests.hierarchy import small_learner as small

EVERY = {"every": 2, "users": 20}


@pytest.fixture(scope="module")
def validated(root, inputs):
    return small.trained(root, inputs, "validated", validation=EVERY)


def _log(ref):
    return [json.loads(line) for line in ref.file("training.jsonl").read_text().splitlines()]


def test_the_newest_edges_of_users_are_held_out_and_none_is_trained_on(inputs):
    whole = small.prepared(inputs).batches.edges
    trainer = small.prepared(inputs, validation=EVERY)
    held, kept = trainer.held_out.edges, trainer.batches.edges
    assert len(held.user) == 20 == len(np.unique(held.user)) == len(whole) - len(kept)
    for user, product, ts in zip(held.user, held.product, held.ts, strict=True):
        own = kept.user == user
        assert own.any()
        assert kept.ts[own].max() <= ts
        assert (whole.product[(whole.user == user) & (whole.ts == ts)] == product).any()
    assert held.as_of <= held.ts.min()
    assert np.array_equal(held.user, small.prepared(inputs, validation=EVERY).held_out.edges.user)


def test_users_with_one_edge_keep_it(inputs):
    trainer = small.prepared(inputs, validation={"every": 2, "users": 10_000})
    whole = small.prepared(inputs).batches.edges
    assert set(whole.user) == set(trainer.batches.edges.user)


def test_recall_is_that_of_a_plain_count(inputs, monkeypatch):
    monkeypatch.setattr("hierarchy.validation.RECALL_AT", 4)
    trainer = small.prepared(inputs, validation=EVERY)
    held, model = trainer.held_out, trainer.teacher
    products = held._vectors(model, None, "product", np.arange(held.known), np.full(held.known, held.edges.as_of))
    users = held._vectors(model, None, "user", held.edges.user, held.edges.ts)
    degree = trainer.samplers["product"].degree("product", np.arange(held.known), np.full(held.known, held.edges.as_of))
    scores = model.link(users, products[:, 0], torch.log1p(degree.double()).float()).detach().numpy()
    found = [
        int(product < held.known and product in np.argsort(-row, kind="stable")[:4])
        for row, product in zip(scores, held.edges.product, strict=True)
    ]
    assert held.recall(model, trainer.prototypes) == pytest.approx(np.mean(found))
    assert 0 < np.mean(found) < 1


def test_own_products_are_passed_over_when_negatives_of_nobody(inputs, monkeypatch):
    monkeypatch.setattr("hierarchy.validation.RECALL_AT", 4)
    plain, masked = (small.prepared(inputs, validation=EVERY, mask_known=known) for known in (False, True))
    one, other = (each.held_out.recall(each.teacher, each.prototypes) for each in (plain, masked))
    assert other > one


def test_the_best_teacher_is_kept_and_logged(root, inputs, monkeypatch):
    given = iter([0.1, 0.5, 0.3, 0.2, 0.1, 0.05])
    monkeypatch.setattr(HeldOut, "recall", lambda self, model, prototypes: next(given))
    kept, follow = [], Trainer._validate

    def watched(self, step):
        follow(self, step)
        kept.append({name: tensor.clone() for name, tensor in self.teacher.state_dict().items()})

    monkeypatch.setattr(Trainer, "_validate", watched)
    ref = small.trained(root, inputs, "best", validation=EVERY)
    # Born at step 4: what came before does not count, so that 0.3 at step 5 is the best.
    found = FrozenLearner.open(ref).model.state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in kept[5].items())
    assert [row["recall@20"] for row in _log(ref) if "recall@20" in row] == [0.1, 0.5, 0.3, 0.2, 0.1, 0.05]


def test_a_run_that_gains_nothing_stops_early(root, inputs, monkeypatch):
    monkeypatch.setattr(HeldOut, "recall", lambda *_: 0.25)
    ref = small.trained(root, inputs, "stopped", validation={**EVERY, "patience": 2})
    assert max(row["step"] for row in _log(ref)) == 9


def test_a_killed_run_with_validation_resumes_to_identical_files(root, inputs, validated, monkeypatch):
    step = Trainer.step

    def dies(self, number, given):
        if number == 8:
            raise KeyboardInterrupt
        return step(self, number, given)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "step", dies)
        with pytest.raises(KeyboardInterrupt):
            small.trained(root, inputs, "killed", validation=EVERY)
    resumed = small.trained(root, inputs, "killed", validation=EVERY)
    for name in ("model.safetensors", "training.jsonl"):
        assert sha256_file(resumed.file(name)) == sha256_file(validated.file(name))


def test_a_run_that_never_leaves_its_warm_up_keeps_its_best_too(root, inputs):
    ref = small.trained(root, inputs, "warm", validation=EVERY, warmup_steps=99)
    prototypes = FrozenLearner.open(ref).prototypes
    assert (prototypes.vectors(1).norm(dim=1) > 0.9).all()
    assert not prototypes.joined, "an encoder that never learned with hub tokens is not shown any"
    assert "recall@20" in ref.metrics["last"]


def test_best_counts_how_long_it_has_stood():
    best, tensor = Best(), torch.zeros(2)
    for recall, stood in ((0.2, 0), (0.2, 1), (0.1, 2), (0.3, 0)):
        best.offer(recall, {"a": tensor})
        assert best.stood == stood
    tensor += 1
    assert best.tensors["a"].sum() == 0


def test_validation_is_off_by_default(inputs):
    config = train.Config(**small.CONFIG)
    assert config.validation.every == 0
    assert train.prepare(config, inputs, RunContext(threads=1))[0].held_out is None
