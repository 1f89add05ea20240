import math

import pytest
import torch

from hierarchy.losses.consistency import consistency_loss
from hierarchy.losses.dislike import dislike_loss
from hierarchy.losses.distillation import distillation_loss, sinkhorn, tempered_prior
from hierarchy.losses.link import corrected_logits, sampled_softmax
from hierarchy.losses.spread import spread_loss
from hierarchy.losses.view_distillation import view_distillation, view_scores


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


def test_a_dislike_is_the_log_of_one_minus_its_share_and_moves_nothing_else():
    generator = torch.Generator().manual_seed(4)
    disliked = torch.randn(6, generator=generator, requires_grad=True)
    others = torch.randn(6, 9, generator=generator, requires_grad=True)
    weights = torch.tensor([1.0, 2.0, 0.0, 1.0, 1.0, 1.0])
    loss = dislike_loss(disliked, torch.logsumexp(others, dim=1), weights)
    share = torch.softmax(torch.cat([disliked[:, None], others], dim=1), dim=1)[:, 0]
    assert loss.item() == pytest.approx((-(1 - share).log() * weights).sum().item() / 6, rel=1e-5)
    loss.backward()
    assert (disliked.grad >= 0).all()
    assert disliked.grad[2] == 0
    assert others.grad is None


def test_view_scores_are_sums_over_the_history_standardised():
    generator = torch.Generator().manual_seed(5)
    source, target = torch.randn(2, 12, 3, generator=generator)
    history, mask = torch.tensor([[1, 4, -1], [2, 2, 7]]), torch.tensor([[True, True, False], [True, False, True]])
    candidates = torch.tensor([0, 3, 5, 11])
    scores = view_scores(source, target, history, mask, candidates)
    plain = torch.stack([source[1] + source[4], source[2] + source[7]]) @ target[candidates].t()
    wanted = (plain - plain.mean(dim=1, keepdim=True)) / plain.std(dim=1, correction=0, keepdim=True)
    assert torch.allclose(scores, wanted, atol=1e-5)
    assert torch.allclose(view_scores(7 * source, target, history, mask, candidates), scores, atol=1e-5)
    nothing = view_scores(source, target, history, torch.zeros_like(mask), candidates)
    assert torch.equal(nothing, torch.zeros(2, 4))


def test_a_student_that_says_what_the_view_says_has_nothing_left_to_learn():
    scores = torch.randn(5, 8, generator=torch.Generator().manual_seed(6))
    even = torch.zeros(8)
    assert view_distillation(scores, 2 * scores, even, (0.5, 1.0), torch.ones(5)).item() == pytest.approx(0, abs=1e-6)
    assert view_distillation(scores, -scores, even, (0.5, 1.0), torch.ones(5)).item() > 0.5
    one = view_distillation(scores, -scores, even, (0.5, 1.0), torch.tensor([1.0, 0, 0, 0, 0]))
    assert one.item() == pytest.approx(
        torch.nn.functional.kl_div(
            torch.log_softmax(-scores[0], 0), torch.softmax(scores[0] / 0.5, 0), reduction="sum"
        ).item(),
        rel=1e-5,
    )


def test_view_distillation_over_drawn_candidates_estimates_that_over_all():
    """A product drawn twice as often counts once all the same; one that cannot be a candidate does not count."""
    generator = torch.Generator().manual_seed(7)
    scores, logits = torch.randn(2, 4, 30, generator=generator)
    chance = torch.softmax(torch.randn(30, generator=generator), 0)
    full = view_distillation(scores, logits, torch.zeros(30), (1.0, 1.0), torch.ones(4)).item()
    drawn = torch.multinomial(chance, 20_000, replacement=True, generator=generator)
    nodes, log_expected = torch.cat([drawn, torch.tensor([0])]), torch.log(20_000 * chance[drawn])
    log_expected = torch.cat([log_expected, torch.tensor([torch.inf])])
    student = logits.clone().requires_grad_()
    found = view_distillation(scores[:, nodes], student[:, nodes], log_expected, (1.0, 1.0), torch.ones(4))
    assert found.item() == pytest.approx(full, rel=0.03)
    uncorrected = view_distillation(scores[:, nodes], logits[:, nodes], torch.zeros(20_001), (1.0, 1.0), torch.ones(4))
    assert uncorrected.item() != pytest.approx(full, rel=0.06)
    found.backward()
    assert torch.isfinite(student.grad).all()


def test_products_that_are_absent_are_no_part_of_the_sum():
    logits = torch.randn(3, 5, generator=torch.Generator().manual_seed(8))
    absent = torch.tensor([[True, False, False, False, True]]).expand(3, 5)
    found = torch.logsumexp(corrected_logits(logits, torch.zeros(5), absent), dim=1)
    assert torch.allclose(found, torch.logsumexp(logits[:, 1:4], dim=1))
