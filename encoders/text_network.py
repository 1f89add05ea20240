"""What every source of joint models hands over for its text side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

Tokens = Mapping[str, torch.Tensor]
"""Arguments of a text network by name, each long (n, tokens)."""


@dataclass(frozen=True)
class TextNetwork:
    """`module` maps what `tokens` makes of texts to features (n, dim), in evaluation mode.

    Texts are cut at `max_tokens`. `revision` is the sha256 of the model's weights and the tokenizer.
    """

    module: nn.Module
    tokens: Callable[[Sequence[str]], Tokens]
    max_tokens: int
    revision: str
    licence: str
