"""The optimizer of the learner: rates and decay by kind of parameter, and their course over the steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from hierarchy.model import Learner

if TYPE_CHECKING:
    from hierarchy.train import Config


def make_optimizer(config: Config, student: Learner) -> torch.optim.Optimizer:
    """AdamW (Loshchilov & Hutter, 2019, arXiv:1711.05101) with one rate for maps, one for id residuals, one for what is
    added to logits and one for repeats; only maps and id residuals decay, each by its own share. Without decay it is
    Adam.
    """
    groups: dict[tuple[float, float], list[torch.nn.Parameter]] = {
        (config.lr, config.weight_decay): [],
        (config.id_lr, config.id_weight_decay): [],
        (config.bias_lr, 0.0): [],
        (config.repeat_lr, 0.0): [],
    }
    for name, parameter in student.named_parameters():
        groups.setdefault(_kind(config, name, parameter), []).append(parameter)
    listed = [
        {"params": parameters, "lr": rate, "peak": rate, "weight_decay": decay}
        for (rate, decay), parameters in groups.items()
    ]
    return torch.optim.AdamW(listed, betas=(0.9, 0.99), fused=True)


def _kind(config: Config, name: str, parameter: torch.nn.Parameter) -> tuple[float, float]:
    if name in ("encoder.source_ids", "encoder.target_ids"):
        return config.id_lr, config.id_weight_decay
    if name == "link.repeat":
        return config.repeat_lr, 0.0
    if name.endswith("table") or "hub_bias" in name or name.startswith("link."):
        return config.bias_lr, 0.0
    return config.lr, config.weight_decay if parameter.ndim > 1 else 0.0


def set_rates(optimizer: torch.optim.Optimizer, step: int, steps: int) -> None:
    """Linear warm-up over 20 steps, then a cosine down to 5% of the peak."""
    factor = min(1.0, (step + 1) / 20) * (0.05 + 0.475 * (1 + math.cos(math.pi * step / max(1, steps))))
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * factor


def descend(
    optimizer: torch.optim.Optimizer, student: Learner, gradients: Sequence[torch.Tensor | None], clip_norm: float
) -> None:
    """One step against `gradients` of the student's parameters, whose norm is cut to `clip_norm` (0: it is not)."""
    for parameter, gradient in zip(student.parameters(), gradients, strict=True):
        parameter.grad = gradient
    if clip_norm:
        torch.nn.utils.clip_grad_norm_(student.parameters(), clip_norm)
    optimizer.step()
