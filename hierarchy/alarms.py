"""Signs that self-distillation has collapsed: a run that shows one is stopped and publishes nothing.

A uniform student sits at ln K for ever and looks like a converged one; a collapsed codebook still has many "active"
primitives, most of them the same. Hence figures for each level: duplicates, dead primitives, and loss against ln K.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from data.errors import StrataError
from hierarchy.model import Learner
from hierarchy.prototypes import Prototypes, duplicates

MAX_DUPLICATES = 0.3
MAX_DEAD = 0.5
MAX_NORM = 50.0
"""Norm of an id residual, or of what the content map makes of a unit vector, from which on content says nothing."""
MAX_SCALE = 1000.0
"""Inverse link temperature from which on a rounding error of a cosine decides."""
_DEAD_SHARE = 0.05
_JUDGED = 5  # logged losses; fewer say nothing about being stuck


def require_finite(terms: dict[str, float], step: int) -> None:
    """Raise StrataError naming the first loss term that is NaN or infinite."""
    for name, value in terms.items():
        if not math.isfinite(value):
            raise StrataError(f"learner: {name} is {value} at step {step}: lower lr or id_lr, or raise temperatures")


def require_bounded(model: Learner) -> None:
    """Raise StrataError when a parameter is not finite, or id residuals, content map or link scale have blown up."""
    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            raise StrataError(f"learner: {name} is not finite; publish refused: lower lr or set clip_norm")
    encoder = model.encoder
    largest = {
        "id residuals": (
            max(float(ids.detach().norm(dim=1).max()) for ids in (encoder.source_ids, encoder.target_ids)),
            "lower id_lr or raise id_weight_decay",
        ),
        "the content map": (float(torch.linalg.matrix_norm(encoder.content.detach(), 2)), "lower lr"),
    }
    for what, (norm, advice) in largest.items():
        if norm > MAX_NORM:
            raise StrataError(
                f"learner: the norm of {what} has grown to {norm:.0f}, expected at most {MAX_NORM:.0f}; publish "
                f"refused: {advice}, or set clip_norm"
            )
    scale = float(model.link.log_scale.detach().exp())
    if scale > MAX_SCALE:
        raise StrataError(
            f"learner: link logits are {scale:.0f} times the cosine, expected at most {MAX_SCALE:.0f}; publish "
            "refused: lower bias_lr or raise temperature"
        )


def level_health(prototypes: Prototypes) -> list[dict[str, float]]:
    """Per level: k, share of duplicates, share of dead primitives, perplexity of the running mass."""
    found = []
    for level in range(prototypes.num_levels):
        vectors, mass = prototypes.vectors(level), prototypes.mass(level)
        share = mass / mass.sum().clamp_min(1e-12)
        entropy = -(share * share.clamp_min(1e-12).log()).sum()
        found.append(
            {
                "k": len(mass),
                "duplicates": float(duplicates(vectors, mass).float().mean()),
                "dead": float((share < _DEAD_SHARE / len(mass)).float().mean()),
                "perplexity": float(torch.exp(entropy)),
            }
        )
    return found


def require_alive(prototypes: Prototypes, recent: list[dict[str, Any]]) -> list[dict[str, float]]:
    """`level_health`, or StrataError when a level has collapsed. `recent` holds logged loss terms, newest last.

    Collapsed: primitives that are not finite or were never placed, too many duplicates or dead ones, or a loss that the
    last logged steps found no lower than 98% of ln k, where a student stays that tells nothing apart.
    """
    health = level_health(prototypes)
    for level, found in enumerate(health, start=1):
        advice = "publish refused: raise the spread or prior_exponent, or choose a smaller k"
        norms = prototypes.vectors(level - 1).norm(dim=1)
        if not bool(torch.isfinite(norms).all()):
            raise StrataError(f"learner: level {level} holds primitives that are not finite; publish refused: lower lr")
        if float(norms.min()) < 0.5:
            raise StrataError(f"learner: level {level} holds primitives that were never placed; publish refused")
        if found["duplicates"] > MAX_DUPLICATES:
            raise StrataError(f"learner: {found['duplicates']:.0%} of level {level} are duplicates; {advice}")
        if found["dead"] > MAX_DEAD:
            raise StrataError(f"learner: {found['dead']:.0%} of level {level} are dead; {advice}")
        losses = [row[f"distillation_{level}"] for row in recent if f"distillation_{level}" in row]
        if len(losses) >= _JUDGED and min(losses[-_JUDGED:]) > 0.98 * math.log(found["k"]):
            raise StrataError(
                f"learner: distillation at level {level} is stuck at ln k = {math.log(found['k']):.2f}, so every "
                "vector looks the same to it; publish refused: lower teacher_temp, or train the warm-up longer"
            )
    return health
