"""Closed-form views as the start of id residuals: where they lie, how long they are, who has none."""

import numpy as np
import pytest
import torch

from data.artifacts import Store
from data.errors import UsageError
from graph.sampler import TokenSet
from hierarchy.bias import RANK_BUCKETS, BiasTables, bias_index
from hierarchy.edges import owners
from hierarchy.structure import Structure, history_of, id_tables, starting_views, teacher_views
from tests.hierarchy import small_learner as small

VIEWS = Structure(spectral=3, directional=2, gain=0.5)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return small.shop(Store(tmp_path_factory.mktemp("store")))


@pytest.fixture(scope="module")
def trainer(inputs):
    return small.prepared(inputs, dim=32, id_floor=1)


def _history(trainer):
    sizes = trainer.batches.store.num_nodes
    return history_of(trainer.batches.edges, trainer.end, sizes["user"], sizes["product"])


def _tables(trainer, config=VIEWS, dim=32):
    views = starting_views(config, _history(trainer), 0)
    rows = trainer.student.encoder.shape.id_rows
    return views, id_tables(config, views, trainer.batches.edges, trainer.batches.table, rows, dim)


def test_views_lie_side_by_side_after_the_content(trainer):
    views, tables = _tables(trainer)
    content = trainer.batches.table.content_dim
    assert [view.name for view in views] == ["spectral", "directional"]
    for placed in tables:
        assert not placed[0].any()
        assert not placed[:, :content].any()
        assert not placed[:, content + 5 :].any()
    rows = trainer.batches.table.id_rows[trainer.batches.table.rows("product", np.arange(trainer.visible["product"]))]
    known = rows[rows > 0].numpy()
    own = tables.target[known, content : content + 3]
    length = (own[own.any(axis=1)] ** 2).sum(axis=1).mean()
    assert length == pytest.approx(VIEWS.gain**2, rel=1e-4)


def test_an_advertiser_starts_at_the_mean_of_what_was_bought_of_it(trainer):
    _, tables = _tables(trainer)
    edges, table = trainer.batches.edges, trainer.batches.table
    node = int(np.bincount(edges.advertiser[edges.advertiser >= 0]).argmax())
    row = int(table.id_rows[table.rows("advertiser", np.array([node]))])
    products = edges.product[edges.advertiser == node]
    assert (owners(trainer.batches.store, products) == node).all()
    mean = tables.source[table.id_rows[table.rows("product", products)].numpy()].mean(axis=0)
    found = tables.source[row]
    content = table.content_dim
    for part in (slice(content, content + 3), slice(content + 3, content + 5)):
        cosine = found[part] @ mean[part] / (np.linalg.norm(found[part]) * np.linalg.norm(mean[part]))
        assert cosine == pytest.approx(1.0, abs=1e-4)


def test_too_wide_views_are_refused(trainer):
    with pytest.raises(UsageError, match="at most dim = 4"):
        _tables(trainer, dim=4)


def test_a_learner_begins_there_and_teachers_are_wider(inputs):
    trainer = small.prepared(inputs, dim=32, id_floor=1, structure=VIEWS.model_dump(), history_decay=0.5)
    _, tables = _tables(trainer)
    encoder = trainer.student.encoder
    assert torch.equal(encoder.source_ids, torch.from_numpy(tables.source))
    assert torch.equal(encoder.target_ids, torch.from_numpy(tables.target))
    taught = teacher_views(Structure(teacher_dim=6), _history(trainer), ("spectral",), 0)
    assert [(view.name, view.product_source.shape[1]) for view in taught] == [("spectral", 6)]


def test_history_weights_decay_with_the_rank_in_time():
    ages = torch.tensor([[30, 10, 20, -1]])
    ones = torch.ones_like(ages)
    tokens = TokenSet(
        ones.to(torch.int8), ones, ones.to(torch.int16), torch.tensor([[1, 1, 1, 1]], dtype=torch.int8), ages,
        ones.float(), ones.float(), torch.ones_like(ages, dtype=torch.bool),
    )  # fmt: skip
    tables = BiasTables(2)
    tables.start_with_decay(0, 0.5)
    bias = tables(bias_index(tokens))[0].detach()
    torch.testing.assert_close(bias[0], torch.log(torch.tensor([0.25, 1.0, 0.5, 1.0])))
    assert not bias[1].any()
    assert tables.table[-1, 0] == 0, f"bucket {RANK_BUCKETS - 1} is of what has no rank"
