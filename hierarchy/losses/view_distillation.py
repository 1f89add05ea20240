"""A closed-form view as teacher: its neighbourhoods, over the candidates of a step, are distilled into the student.

Ranking distillation in its soft form (Hinton et al., 2015, arXiv:1503.02531; Tang & Wang, 2018, for recommenders): the
teacher's softmax over products is what the student's should look like. A view such as spectral vectors knows who goes
with whom; the student learns to say it from content and tokens, for products that the view has never seen too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from hierarchy.repeats import Had


@dataclass(frozen=True)
class TeacherView:
    """Vectors of every product in two roles, float32 (N_products, D) each; D is the view's own.

    A user is the sum of `product_source` over their history, and scores a product by the dot product with its
    `product_target`. Row numbers are internal ids; rows of zeros are products that the view does not know.
    """

    name: str
    product_source: NDArray[np.float32]
    product_target: NDArray[np.float32]


def view_sides(
    source: torch.Tensor, target: torch.Tensor, history: torch.Tensor, mask: torch.Tensor, candidates: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """What a teacher says of users (B, D) with product `history` int64, `mask` (B, T), and of `candidates` (C, D).

    source, target (N, D): a TeacherView's arrays. Dot products of the two sides are the teacher's scores, which have
    mean 0 and variance 1 over the candidates in each row, so that one temperature fits any view: the mean is taken off
    the candidates and the deviation follows from their covariance, without a look at a score. Time O(C D^2 + B T D).
    """
    read = torch.where(mask, history, 0)
    users = (source[read] * mask[..., None]).sum(dim=1)
    found = target[candidates]
    centred = found - found.mean(dim=0)
    variance = ((users @ (centred.t() @ centred)) * users).sum(dim=1, keepdim=True) / len(centred)
    return users / variance.clamp_min(0).sqrt().clamp_min(1e-12), centred


def view_scores(
    source: torch.Tensor, target: torch.Tensor, history: torch.Tensor, mask: torch.Tensor, candidates: torch.Tensor
) -> torch.Tensor:
    """The teacher's scores (B, C) themselves; memory O(B T D + B C)."""
    users, products = view_sides(source, target, history, mask, candidates)
    return users @ products.t()


def view_distillation(
    scores: torch.Tensor,
    logits: torch.Tensor,
    log_expected: torch.Tensor,
    temperatures: tuple[float, float],
    weights: torch.Tensor,
) -> torch.Tensor:
    """Weighted mean over rows of KL(softmax(scores / t) || softmax(logits / s)), `temperatures` (t, s); scalar, fp32.

    scores, logits (B, C): teacher's and student's. log_expected (C,) or (B, C): log of how often a candidate is drawn,
    subtracted from both, so that a frequent candidate does not count twice (infinite: it does not count). weights (B,)
    >= 0; rows of users without a history get 0.
    """
    teacher = torch.log_softmax((scores.float() / temperatures[0] - log_expected), dim=1).detach()
    student = torch.log_softmax((logits.float() / temperatures[1] - log_expected), dim=1)
    there = torch.isfinite(teacher)
    gap = torch.where(there, teacher, 0.0) - torch.where(there, student, 0.0)
    divergence = (teacher.exp() * gap).sum(dim=1)
    return (divergence * weights).sum() / weights.sum().clamp_min(1e-12)


@dataclass(frozen=True)
class ViewDivergence:
    """As a RowLoss: the divergences that `view_distillation` averages, from the two sides of a view.

    users (B, D) and products (C, D): `view_sides`, `users` divided by the teacher's temperature. log_expected (C,) or
    (B, C), finite: what has been subtracted from the student's logits. student_temp: s. had: what users are
    made of, which is no candidate: that something resembles itself is no lesson.
    """

    users: torch.Tensor
    products: torch.Tensor
    log_expected: torch.Tensor
    student_temp: float
    had: Had

    def value(self, rows: slice, logits: torch.Tensor) -> torch.Tensor:
        """Divergences (b,)."""
        with self.had.out(rows, self._teacher(rows)) as scores, self.had.out(rows, logits) as kept:
            log_teacher, student = torch.log_softmax(scores, dim=1), self._student(rows, kept)
            share, total = log_teacher.exp(), torch.logsumexp(student, dim=1)
            return share.mul_(log_teacher.sub_(student)).sum(dim=1) + total

    def gradient(self, rows: slice, logits: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """What the student believes more than the teacher (b, C), divided by s."""
        with self.had.out(rows, self._teacher(rows)) as scores, self.had.out(rows, logits) as kept:
            more = torch.softmax(self._student(rows, kept), dim=1).sub_(torch.softmax(scores, dim=1))
        return more if self.student_temp == 1 else more.div_(self.student_temp)

    def _teacher(self, rows: slice) -> torch.Tensor:
        bias = -self.log_expected
        if bias.ndim == 1:
            return torch.addmm(bias, self.users[rows], self.products.t())
        return (self.users[rows] @ self.products.t()).add_(bias[rows])

    def _student(self, rows: slice, logits: torch.Tensor) -> torch.Tensor:
        """Logits before the correction, divided by s, and corrected then."""
        if self.student_temp == 1:
            return logits
        expected = self.log_expected if self.log_expected.ndim == 1 else self.log_expected[rows]
        return logits / self.student_temp + expected * (1 / self.student_temp - 1)
