"""Sampled softmax over in-batch, uniform and hard negatives against the full softmax of the same logits."""

import pytest
import torch

from data.artifacts import Store
from hierarchy.hard_negatives import HardNegatives
from hierarchy.losses.link import corrected_logits, sampled_softmax
from tests.hierarchy import small_learner as small

PRODUCTS, BATCH, UNIFORM = 40, 24, 30
PARENT = torch.tensor([0, 0, 0, 1, 1, 2])


@pytest.fixture(scope="module")
def world():
    """Logits of BATCH users, the share of edges of each product, and hard negatives: six leaves, three parents."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(BATCH, PRODUCTS, generator=generator)
    share = torch.softmax(torch.randn(PRODUCTS, generator=generator), 0).to(torch.float64)
    hard = HardNegatives(share, 2, seed=3)
    hard.place(torch.arange(PRODUCTS) % 6, PARENT)
    return logits, share, hard


def _pool(share, hard, positives, step, generator):
    """Candidates of a step, their log expected draws (B, C) and which are no negatives."""
    uniform = torch.randint(0, PRODUCTS, (UNIFORM,), generator=generator)
    mined, counts = hard.draw(positives, PRODUCTS, step)
    nodes = torch.cat([positives, uniform, mined])
    flat = (len(positives) - 1) * share[nodes] + UNIFORM / PRODUCTS
    expected = flat[None] + hard.expected(positives, nodes, PRODUCTS)
    log_expected = expected.log().float()
    log_expected[:, -len(mined) :].masked_fill_(~counts[None], torch.inf)
    return nodes, log_expected, nodes[None] == positives[:, None]


def test_hard_negatives_are_of_the_parent_but_of_another_child(world):
    hard, positives = world[2], torch.arange(PRODUCTS)
    found, counts = hard.draw(positives, PRODUCTS, step=7)
    own = hard.leaf[positives].repeat_interleave(2)
    assert (PARENT[hard.leaf[found]] == PARENT[own])[counts].all()
    assert (hard.leaf[found] != own)[counts].all()
    # The third parent has one child only.
    assert torch.equal(counts, PARENT[own] != 2)
    assert not torch.equal(found, hard.draw(positives, PRODUCTS, step=8)[0])
    assert torch.equal(found, hard.draw(positives, PRODUCTS, step=7)[0])


def test_every_cousin_is_drawn_equally_often(world):
    hard = world[2]
    drawn = torch.cat([hard.draw(torch.tensor([0]), PRODUCTS, step)[0] for step in range(4000)])
    cousins = torch.isin(hard.leaf, torch.tensor([1, 2]))
    frequency = torch.bincount(drawn, minlength=PRODUCTS) / len(drawn)
    assert frequency[~cousins].sum() == 0
    assert torch.allclose(frequency[cousins], torch.full((int(cousins.sum()),), 1 / int(cousins.sum())), atol=0.012)


def test_products_from_the_future_are_void(world):
    hard = world[2]
    found, counts = hard.draw(torch.arange(PRODUCTS), 10, step=1)
    assert (found[counts] < 10).all()
    assert hard.expected(torch.arange(4), torch.tensor([9, 10]), 10)[:, 1].max() == 0


def test_the_partition_sum_is_unbiased_row_by_row(world):
    """Row 0 keeps its positive, the others come with their share: for each positive the estimate is right."""
    logits, share, hard = world
    generator = torch.Generator().manual_seed(5)
    for first in (0, 9, 3):
        sums = []
        for step in range(1500):
            others = torch.multinomial(share.float(), BATCH - 1, replacement=True, generator=generator)
            positives = torch.cat([torch.tensor([first]), others])
            nodes, log_expected, own = _pool(share, hard, positives, step, generator)
            sums.append(corrected_logits(logits[:1, nodes], log_expected[:1], own[:1]).exp().sum())
        full = logits[0].exp().sum() - logits[0, first].exp()
        assert torch.stack(sums).mean().item() == pytest.approx(full.item(), rel=0.02)


def test_loss_and_gradient_approach_the_full_softmax(world):
    """The logarithm of an unbiased sum is a little too small; the more candidates, the less."""
    _, share, hard = world
    generator = torch.Generator().manual_seed(6)
    size = 400
    leaf_logits = torch.randn(PRODUCTS, PRODUCTS, generator=generator)
    totals = torch.zeros(2)
    gradients = torch.zeros(2, PRODUCTS, PRODUCTS)
    for step in range(80):
        positives = torch.multinomial(share.float(), size, replacement=True, generator=generator)
        nodes, log_expected, own = _pool(share, hard, positives, step, generator)
        for place in range(2):
            table = leaf_logits.clone().requires_grad_(True)
            rows = table[positives]
            if place:
                loss = torch.nn.functional.cross_entropy(rows, positives)
            else:
                positive = rows.gather(1, positives[:, None])[:, 0]
                loss = sampled_softmax(positive, rows[:, nodes], log_expected, own, torch.ones(size))
            (gradient,) = torch.autograd.grad(loss, table)
            totals[place] += loss.detach()
            gradients[place] += gradient
    assert totals[0].item() == pytest.approx(totals[1].item(), rel=0.01)
    assert (gradients[0] - gradients[1]).norm() < 0.05 * gradients[1].norm()


def test_without_the_hard_part_of_the_expectation_the_sum_is_wrong(world):
    logits, share, hard = world
    generator = torch.Generator().manual_seed(5)
    sums = []
    for step in range(300):
        others = torch.multinomial(share.float(), BATCH - 1, replacement=True, generator=generator)
        positives = torch.cat([torch.tensor([0]), others])
        nodes, _, own = _pool(share, hard, positives, step, generator)
        flat = ((BATCH - 1) * share[nodes] + UNIFORM / PRODUCTS).log().float()
        sums.append(corrected_logits(logits[:1, nodes], flat, own[:1]).exp().sum())
    full = logits[0].exp().sum() - logits[0, 0].exp()
    assert torch.stack(sums).mean().item() > 1.3 * full.item()


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return small.shop(Store(tmp_path_factory.mktemp("store")))


def test_steps_mine_once_primitives_exist_and_go_on_from_a_checkpoint(inputs, tmp_path):
    trainer = small.prepared(inputs, hard_negatives=2, warmup_steps=2)
    widths = []
    extended = trainer.miner.extended
    trainer.miner.extended = lambda *given: widths.append(extended(*given)) or widths[-1]
    for step in range(4):
        trainer.step(step, trainer.draw(step))
    size, negatives = trainer.config.batch_size, trainer.config.negatives
    assert [len(given.products.nodes) - size - negatives for given in widths] == [0, 0, 2 * size, 2 * size]
    assert widths[-1].products.log_expected.shape == (size, len(widths[-1].products.nodes))
    trainer._save(tmp_path / "saved.safetensors", 4)
    again = small.prepared(inputs, hard_negatives=2, warmup_steps=2)
    assert again._resume(tmp_path / "saved.safetensors") == 4
    assert torch.equal(again.miner.hard.order, trainer.miner.hard.order)
    one, other = (each.step(4, each.draw(4)) for each in (trainer, again))
    assert one["link"] == other["link"]
