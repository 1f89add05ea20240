"""The teacher: an exponential moving average of the student (Tarvainen & Valpola, 2017, arXiv:1703.01780)."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import nn

Module = TypeVar("Module", bound=nn.Module)


def make_teacher(student: Module) -> Module:
    """A copy of `student` that takes no gradient."""
    teacher = copy.deepcopy(student).requires_grad_(False)
    return teacher.eval()


def momentum_at(step: int, ceiling: float) -> float:
    """EMA momentum at 0-based `step`: averages over all steps at first, over 1 / (1 - ceiling) of them in the end.

    A constant momentum would keep the random start in the average for long; (step + 1) / (step + 10) forgets it.
    """
    return min(ceiling, (step + 1) / (step + 10))


@torch.no_grad()
def follow(teacher: nn.Module, student: nn.Module, momentum: float) -> None:
    """teacher = momentum * teacher + (1 - momentum) * student, over parameters; buffers are copied."""
    torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 1.0 - momentum)
    for kept, fresh in zip(teacher.buffers(), student.buffers(), strict=True):
        kept.copy_(fresh)
