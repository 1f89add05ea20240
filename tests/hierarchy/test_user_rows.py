"""Users as rows of a step: part of a history is found from the rest of it."""

import numpy as np
import pytest
import torch

from data.artifacts import Store
from data.errors import UsageError
from hierarchy.losses.several import several_positives
from hierarchy.objective import link_losses
from tests.hierarchy import small_learner as small

SELF_ONLY = {"recent": 0, "uniform": 0, "two_hop": 0, "links": 0}
USERS = {
    "rows": "users",
    "history": "others",
    "full_softmax": 100,
    "item_budget": SELF_ONLY,
    "user_budget": {"recent": 32, "uniform": 0, "two_hop": 0, "links": 0},
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return small.shop(Store(tmp_path_factory.mktemp("store")))


def test_the_loss_is_that_of_a_plain_loop() -> None:
    rng = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 7, generator=rng, dtype=torch.float64)
    absent = torch.tensor([False] * 6 + [True])
    positives = torch.tensor([[0, 1], [2, 2], [5, 0]])
    there = torch.tensor([[True, True], [True, False], [True, False]])
    given, known = torch.tensor([[3, 4], [0, 0], [1, 6]]), torch.tensor([[True, True], [False, False], [True, False]])
    weights = torch.tensor([1.0, 2.0, 0.5])
    total, count = 0.0, 0.0
    for row in range(3):
        out = {6, *(int(c) for c, k in zip(given[row], known[row], strict=True) if k)}
        kept = torch.tensor([column for column in range(7) if column not in out])
        for column, real in zip(positives[row].tolist(), there[row].tolist(), strict=True):
            if real:
                total += float(weights[row] * (torch.logsumexp(logits[row, kept], 0) - logits[row, column]))
                count += float(weights[row])
    found = several_positives(logits, absent, positives, there, given, known, weights)
    assert float(found) == pytest.approx(total / count, rel=1e-5)


def test_what_is_asked_is_not_what_a_user_is_made_of(inputs) -> None:
    trainer = small.prepared(inputs, **USERS)
    seen = 0
    for step in range(4):
        given = trainer.draw(step)
        assert given.asked is not None
        assert len(np.unique(given.edges.user)) == len(given.edges.user)
        nodes = given.user_tokens.node
        for row, target in enumerate(given.edges.product.tolist()):
            known = set(nodes[row][given.users.history[row]].tolist())
            asked = set(nodes[row][given.asked[row]].tolist())
            assert not known & (asked | {target})
            assert not given.users.mask[row][given.asked[row]].any()
            assert known or not asked
            seen += len(asked)
        again = trainer.draw(step)
        assert torch.equal(given.asked, again.asked)
    assert seen > 20


def test_every_asked_product_gets_a_gradient(inputs) -> None:
    trainer = small.prepared(inputs, **USERS, id_dropout=0.0)
    given = trainer.draw(0)
    loss = link_losses(trainer.student, trainer.passes(), given, trainer.config.weights)["link"]
    loss.backward()
    before = loss.item()
    rows = trainer.batches.table.rows("product", given.user_tokens.node[given.asked])
    ids = trainer.batches.table.id_rows[rows]
    gradient = trainer.student.encoder.target_ids.grad
    assert gradient is not None
    assert (gradient[ids[ids > 0]].norm(dim=1) > 0).all()
    with torch.no_grad():
        trainer.student.encoder.target_ids -= 0.5 * gradient
    assert link_losses(trainer.student, trainer.passes(), given, trainer.config.weights)["link"].item() < before


def test_users_as_rows_need_all_products_and_no_clock(inputs) -> None:
    for change in ({"history": "before"}, {"full_softmax": 0}):
        with pytest.raises(UsageError, match="users as rows"):
            small.prepared(inputs, **{**USERS, **change})
