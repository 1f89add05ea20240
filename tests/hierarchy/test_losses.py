import math

import pytest
import torch

from hierarchy.losses.consistency import consistency_loss
from hierarchy.losses.distillation import distillation_loss, sinkhorn, tempered_prior
from hierarchy.losses.link import sampled_softmax
from hierarchy.losses.spread import spread_loss


def _mean_sampled(sign: float, draws: int = 100) -> tuple[float, float]:
    """Mean sampled loss under popularity sampling with log-expectation times `sign`, and the full softmax loss."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(7, 41, generator=generator)
    target = torch.arange(7)
    chance = torch.softmax(torch.randn(41, generator=generator), 0)
    full = torch.nn.functional.cross_entropy(logits, target).item()
    count, losses = 2000, []
    for _ in range(draws):
        drawn = torch.multinomial(chance, count, replacement=True, generator=generator)
        losses.append(
            sampled_softmax(
                logits[torch.arange(7), target],
                logits[:, drawn],
                sign * torch.log(count * chance[drawn]),
                drawn[None, :] == target[:, None],
                torch.ones(7),
            ).item()
        )
    return sum(losses) / draws, full


def test_logq_correction_estimates_the_full_softmax():
    sampled, full = _mean_sampled(sign=1.0)
    assert sampled == pytest.approx(full, abs=0.02)


def test_logq_with_the_wrong_sign_or_none_is_far_from_the_full_softmax():
    for sign in (-1.0, 0.0):
        sampled, full = _mean_sampled(sign, draws=50)
        assert abs(sampled - full) > 0.3


def test_an_accidental_hit_is_no_negative():
    positive, negatives = torch.tensor([2.0]), torch.tensor([[2.0, -1.0]])
    hit = torch.tensor([[True, False]])
    loss = sampled_softmax(positive, negatives, torch.zeros(2), hit, torch.ones(1))
    assert loss.item() == pytest.approx(math.log(1 + math.exp(-3.0)))


def test_rows_of_weight_zero_do_not_count():
    positive, negatives = torch.tensor([1.0, -9.0]), torch.zeros(2, 3)
    alone = sampled_softmax(
        positive[:1], negatives[:1], torch.zeros(3), torch.zeros(1, 3, dtype=torch.bool), torch.ones(1)
    )
    both = sampled_softmax(
        positive, negatives, torch.zeros(3), torch.zeros(2, 3, dtype=torch.bool), torch.tensor([1.0, 0])
    )
    assert both.item() == pytest.approx(alone.item())


def test_sinkhorn_reaches_both_marginals():
    similarity = torch.randn(203, 9, generator=torch.Generator().manual_seed(1)).tanh()
    prior = torch.softmax(torch.arange(9.0) / 3, 0)
    found = sinkhorn(similarity, prior, temperature=0.05, iterations=200)
    assert torch.allclose(found.sum(dim=1), torch.ones(203), atol=1e-5)
    assert torch.allclose(found.mean(dim=0), prior, atol=1e-3)


def test_sinkhorn_stays_finite_at_low_temperature():
    similarity = torch.cat([torch.ones(50, 1), -torch.ones(50, 3)], dim=1)
    found = sinkhorn(similarity, torch.full((4,), 0.25), temperature=0.001, iterations=3)
    assert torch.isfinite(found).all()
    assert torch.allclose(found.sum(dim=1), torch.ones(50), atol=1e-4)


def test_tempered_prior_lies_between_equal_and_empirical_shares():
    mass = torch.tensor([8.0, 1.0, 1.0, 0.0])
    assert torch.allclose(tempered_prior(mass, 0.0), torch.full((4,), 0.25))
    half = tempered_prior(mass, 0.5)
    assert 0.25 < half[0] < 0.8
    assert half[3] > 0
    assert half.sum().item() == pytest.approx(1.0)


def test_distillation_of_a_uniform_student_is_ln_k():
    targets = torch.eye(5)
    assert distillation_loss(torch.zeros(5, 5), targets, 0.1).item() == pytest.approx(math.log(5))


def test_distillation_falls_as_the_student_follows_and_leaves_the_teacher_alone():
    generator = torch.Generator().manual_seed(2)
    targets = torch.softmax(4 * torch.randn(32, 6, generator=generator), 1).requires_grad_()
    student = torch.zeros(32, 6, requires_grad=True)
    optimizer = torch.optim.SGD([student], lr=1.0)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = distillation_loss(student, targets.detach(), 0.5)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert targets.grad is None


def test_consistency_is_zero_where_fine_adds_up_to_coarse_and_positive_elsewhere():
    fine = torch.log_softmax(torch.randn(11, 6, generator=torch.Generator().manual_seed(3)), 1)
    parents = torch.eye(3).repeat_interleave(2, dim=0)
    coarse = torch.log(fine.exp() @ parents)
    assert consistency_loss(coarse, fine, parents).item() == pytest.approx(0.0, abs=1e-6)
    assert consistency_loss(coarse.flip(1), fine, parents).item() > 0.01


def test_consistency_reaches_both_levels():
    coarse = torch.zeros(4, 2, requires_grad=True)
    fine = torch.randn(4, 4, generator=torch.Generator().manual_seed(4)).requires_grad_()
    parents = torch.eye(2).repeat_interleave(2, dim=0)
    consistency_loss(torch.log_softmax(coarse, 1), torch.log_softmax(fine, 1), parents).backward()
    assert coarse.grad.abs().sum() > 0
    assert fine.grad.abs().sum() > 0


def test_spread_pushes_the_nearest_pair_apart():
    close = torch.nn.functional.normalize(torch.tensor([[1.0, 0.0], [0.99, 0.14], [-1.0, 0.0]]), dim=1).requires_grad_()
    before = (close[0] - close[1]).norm().item()
    spread_loss(close).backward()
    moved = torch.nn.functional.normalize(close - 0.05 * close.grad, dim=1)
    assert (moved[0] - moved[1]).norm().item() > before


def test_spread_of_exact_duplicates_is_finite_and_of_one_vector_zero():
    twins = torch.tensor([[1.0, 0.0], [1.0, 0.0]], requires_grad=True)
    loss = spread_loss(twins)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(twins.grad).all()
    assert spread_loss(torch.ones(1, 2)).item() == 0.0
