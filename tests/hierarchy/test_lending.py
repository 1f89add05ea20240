"""Loans of id residuals, against the same arithmetic in numpy, and what depends on them."""

import dataclasses

import numpy as np
import pytest
import torch

from graph.store import NODE_TYPES
from hierarchy.inference import EntityEncoder, FrozenLearner, encode_nodes
from hierarchy.lending import Lending, lent
from hierarchy.seeds import from_content
from tests.hierarchy import small_learner as small

CONFIG = Lending(neighbours=3, power=2.0)


@pytest.fixture
def trained(inputs):
    """An encoder whose residuals are no zeros, and a table in which every third product has none."""
    trainer = small.prepared(inputs, id_floor=1)
    encoder, table = trainer.student.encoder, trainer.batches.table
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for ids in (encoder.source_ids, encoder.target_ids):
            ids[1:].normal_(generator=generator)
    rows = table.id_rows.clone()
    first, last = _products(table)
    rows[first:last:3] = 0
    return encoder, dataclasses.replace(table, id_rows=rows)


def _products(table):
    code = NODE_TYPES.index("product")
    return int(table.offsets[code]), int(table.offsets[code + 1])


def _expected(encoder, table, node):
    first, last = _products(table)
    content = table.content[first:last, : table.content_dim].numpy().astype(np.float64)
    content /= np.maximum(np.linalg.norm(content, axis=1, keepdims=True), 1e-12)
    rows = table.id_rows[first:last].numpy()
    cosine = content @ content[node]
    near = sorted(np.flatnonzero(rows > 0), key=lambda other: -cosine[other])[: CONFIG.neighbours]
    weight = np.maximum(cosine[near], 0.0) ** CONFIG.power
    return [
        (weight / weight.sum()) @ ids.detach().numpy()[rows[near]] for ids in (encoder.source_ids, encoder.target_ids)
    ]


def test_a_loan_is_the_weighted_mean_of_the_nearest_residuals(trained):
    encoder, table = trained
    before = encoder.source_ids.detach().clone()
    grown, with_loans = lent(CONFIG, encoder, table)
    first, last = _products(table)
    borrowers = np.flatnonzero(table.id_rows[first:last].numpy() == 0)
    assert len(borrowers) > 5
    for node in borrowers:
        row = int(with_loans.id_rows[first + node])
        assert row >= len(before)
        for ids, wanted in zip((grown.source_ids, grown.target_ids), _expected(encoder, table, node), strict=True):
            np.testing.assert_allclose(ids[row].detach().numpy(), wanted, atol=1e-5)
    assert torch.equal(encoder.source_ids, before)
    kept = table.id_rows > 0
    assert torch.equal(with_loans.id_rows[kept], table.id_rows[kept])
    assert torch.equal(grown.source_ids[: len(before)], before)
    twice, _ = lent(CONFIG.model_copy(update={"gain": 2.0}), encoder, table)
    assert torch.allclose(twice.target_ids[len(before) :], 2 * grown.target_ids[len(before) :])


def test_a_loan_does_not_depend_on_who_else_borrows(trained):
    encoder, table = trained
    first, _ = _products(table)
    grown, with_loans = lent(CONFIG, encoder, table)
    alone = table.content.clone()
    others = torch.nonzero(table.id_rows == 0)[:, 0]
    others = others[others != first]
    alone[others, : table.content_dim] = 0.0
    single, with_one = lent(CONFIG, encoder, dataclasses.replace(table, content=alone))
    rows = int(with_loans.id_rows[first]), int(with_one.id_rows[first])
    assert torch.equal(grown.target_ids[rows[0]], single.target_ids[rows[1]])


def test_what_says_nothing_or_is_like_nothing_gets_nothing(trained):
    encoder, table = trained
    first, _ = _products(table)
    content = table.content.clone()
    content[first, : table.content_dim] = 0.0
    content[first + 3, : table.content_dim] = -content[first + 4, : table.content_dim]
    everything = table.id_rows > 0
    content[everything, : table.content_dim] = content[first + 4, : table.content_dim].clone()
    grown, with_loans = lent(CONFIG, encoder, dataclasses.replace(table, content=content))
    assert int(with_loans.id_rows[first]) == 0
    assert not grown.target_ids[int(with_loans.id_rows[first + 3])].any()


def test_switched_off_nothing_changes(trained):
    encoder, table = trained
    assert lent(Lending(neighbours=0), encoder, table) == (encoder, table)


def test_a_served_product_without_a_residual_borrows_one(root, inputs):
    found = {}
    for neighbours in (0, 3):
        config = {"id_floor": 4, "lending": {"neighbours": neighbours}}
        learner = small.trained(root, inputs, f"lends_{neighbours}", **config)
        frozen = FrozenLearner.open(learner)
        assert frozen.lending.neighbours == neighbours
        encoder = EntityEncoder(frozen, inputs["graph"], inputs["features"])
        nodes = np.arange(encoder.store.num_nodes["product"])
        known = set(learner.table("known_product.parquet")["entity_id"].to_pylist())
        has = np.array([name in known for name in encoder.store.entity_ids("product").to_pylist()])
        found[neighbours] = encoder.encode("product", nodes, small.before(small.T0))[:, 0]
    assert 0 < has.sum() < len(has)
    moved = np.abs(found[0] - found[3]).max(axis=1)
    assert (moved[~has] > 1e-4).mean() > 0.5


def test_in_training_each_borrows_from_the_others(inputs):
    trainer = small.prepared(inputs, id_floor=1, lending=CONFIG.model_dump())
    encoder, table = trainer.student.encoder, trainer.batches.table
    with torch.no_grad():
        for ids in (encoder.source_ids, encoder.target_ids):
            ids[1:].normal_(generator=torch.Generator().manual_seed(0))
    trainer.loans.refresh(encoder)
    first, last = _products(table)
    for node in range(last - first):
        row = int(table.id_rows[first + node])
        if not row:
            continue
        alone = table.id_rows.clone()
        alone[first + node] = 0
        wanted = _expected(encoder, dataclasses.replace(table, id_rows=alone), node)
        for loans, one in zip((trainer.loans.source, trainer.loans.target), wanted, strict=True):
            np.testing.assert_allclose(loans[row - 1].numpy(), one, atol=1e-5)


def test_a_dropped_residual_is_replaced_by_its_loan(inputs):
    trainer = small.prepared(inputs, id_floor=1, lending=CONFIG.model_dump())
    encoder, rows = trainer.student.encoder, trainer.student.encoder.shape.id_rows
    with torch.no_grad():
        for ids in (encoder.source_ids, encoder.target_ids):
            ids[1:].normal_(generator=torch.Generator().manual_seed(0))
    trainer.loans.refresh(encoder)
    seeds = trainer.batches.draw(0, 24, 8, 0, 0.0).products.seeds
    gone = seeds.with_ids_dropped(1.0, torch.Generator().manual_seed(0), rows)
    assert (seeds.id_row > 0).any()
    assert torch.equal(gone.id_row > 0, seeds.id_row > 0)
    found = trainer.passes().encode(encoder, gone)
    with torch.no_grad():
        for ids, loans in ((encoder.source_ids, trainer.loans.source), (encoder.target_ids, trainer.loans.target)):
            ids[1:] = loans
    assert torch.allclose(found, encoder(seeds), atol=1e-6)
    nothing = seeds.with_ids_dropped(1.0, torch.Generator().manual_seed(0))
    assert not nothing.id_row.any()


def test_loans_take_no_gradient_and_are_reckoned_again_in_time(inputs):
    trainer = small.prepared(inputs, id_dropout=0.5, lending={**CONFIG.model_dump(), "every": 3})
    trainer.step(0, trainer.draw(0))
    before = trainer.loans.target.clone()
    trainer.step(1, trainer.draw(1))
    assert torch.equal(trainer.loans.target, before)
    trainer.step(2, trainer.draw(2))
    trainer.step(3, trainer.draw(3))
    assert not torch.equal(trainer.loans.target, before)
    assert not trainer.loans.target.requires_grad


def test_primitives_settle_on_products_as_they_are_served(inputs):
    trainer = small.prepared(inputs, id_floor=4)
    with torch.no_grad():
        for ids in (trainer.teacher.encoder.source_ids, trainer.teacher.encoder.target_ids):
            ids[1:].normal_(generator=torch.Generator().manual_seed(0))
    nodes = np.arange(trainer.visible["product"])
    first, _ = _products(trainer.batches.table)
    borrows = trainer.batches.table.id_rows[first : first + len(nodes)] == 0
    assert borrows.any()
    alone, served = (trainer._vectors("product", nodes, trainer.prototypes, flag) for flag in (False, True))
    assert ((served - alone).abs().amax(dim=1)[borrows] > 1e-3).all()


def test_what_nobody_touched_keeps_its_loan_beside_its_content(trained, inputs):
    """Before the first event everything is its content side; whoever has a residual of its own gets no loan there."""
    encoder, table = trained
    grown, with_loans = lent(CONFIG, encoder, table)
    first, last = _products(table)
    sampler = small.prepared(inputs, id_floor=1).batches.samplers["product"]
    nodes, times = np.arange(last - first), np.zeros(last - first, np.int64)
    found = encode_nodes(grown, None, with_loans, sampler, "product", nodes, times, 0, blend=4.0)[:, 0]
    rows = with_loans.id_rows[first:last]
    seeds = from_content(table.content[first:last, : table.content_dim].numpy(), "product")
    lent_rows = torch.where(rows > encoder.shape.id_rows, rows, 0)
    with torch.no_grad():
        wanted = grown(dataclasses.replace(seeds, id_row=lent_rows))[:, 0].numpy()
        bare = grown(seeds)[:, 0].numpy()
    assert np.allclose(found, wanted, atol=1e-5)
    borrows = lent_rows.numpy() > 0
    assert np.abs(found[borrows] - bare[borrows]).max() > 0.1
    assert np.allclose(found[~borrows], bare[~borrows], atol=1e-5)
