"""Cross-view distillation: a student view predicts the teacher's balanced assignment to primitives.

SwAV (Caron et al., 2020, arXiv:2006.09882) and DINO (Caron et al., 2021, arXiv:2104.14294). Student: a view that saw
less. Teacher: the EMA encoder that saw the whole past; no gradient reaches it. Sinkhorn runs in fp32 log-space, since
exp(1 / .04) already strains fp16 and a few products of such terms overflow fp32.
"""

from __future__ import annotations

import torch


def tempered_prior(mass: torch.Tensor, exponent: float) -> torch.Tensor:
    """Column marginal between uniform (`exponent` 0) and the empirical `mass` (K,) (`exponent` 1); sums to 1.

    Interests are long-tailed: forcing equal shares would cut large ones in pieces. Empty ones keep a floor of 1% of
    an equal share, else they would stay empty for ever.
    """
    share = mass.float() / mass.sum().clamp_min(1e-12)
    floor = 0.01 / len(mass)
    tempered = share.clamp_min(floor) ** exponent
    return tempered / tempered.sum()


@torch.no_grad()
def sinkhorn(similarity: torch.Tensor, prior: torch.Tensor, temperature: float, iterations: int) -> torch.Tensor:
    """Soft assignments (N, K) of rows to primitives whose column shares approach `prior` (K,); each row sums to 1.

    similarity (N, K): teacher cosines. Alternates scaling of columns and rows (Cuturi, 2013, arXiv:1306.0895) on
    potentials, ending on rows, so rows are exact and columns converge with `iterations`.
    """
    logits = similarity.float() / temperature
    target = torch.log(prior.float()) + torch.log(torch.tensor(float(len(logits))))
    row = -torch.logsumexp(logits, dim=1, keepdim=True)
    for _ in range(iterations):
        column = target - torch.logsumexp(logits + row, dim=0)
        row = -torch.logsumexp(logits + column, dim=1, keepdim=True)
    return torch.exp(logits + column + row) if iterations else torch.exp(logits + row)


def distillation_loss(similarity: torch.Tensor, targets: torch.Tensor, student_temp: float) -> torch.Tensor:
    """Mean cross-entropy CE(targets, softmax(similarity / student_temp)).

    similarity (B, K): cosines of the student's vectors and the primitives. targets (B, K): the teacher's assignment,
    rows sum to 1. Equals ln K for a student that tells nothing apart. Returns a scalar, fp32.
    """
    log_student = torch.log_softmax(similarity.float() / student_temp, dim=1)
    return -(targets * log_student).sum(dim=1).mean()
