"""Both sides of a transformers model that put pictures and texts into one space (CLIP, SigLIP and others)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from data.errors import SystemStateError, UsageError
from encoders.hub_vision import is_joint, load_pretrained, projected, vision_network
from encoders.image_network import ImageNetwork
from encoders.text_network import TextNetwork, Tokens
from encoders.weights import fingerprint, licence


class TextSide(nn.Module):
    """Projected text features (n, dim) of token ids."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, **tokens: torch.Tensor) -> torch.Tensor:
        """Features (n, dim) of the tokenizer's tensors."""
        return projected(self.network.get_text_features(**tokens))


class HubTokens:
    """The tokenizer of a joint model, as the model was trained to see it: (n, tokens), cut at `max_tokens`.

    SigLIP reads its padding, so it always gets `max_tokens` of them and no mask; the others are padded and masked.
    """

    def __init__(self, tokenizer: Any, max_tokens: int, reads_padding: bool) -> None:
        self._tokenizer, self._max_tokens, self._reads_padding = tokenizer, max_tokens, reads_padding

    def __call__(self, texts: Sequence[str]) -> Tokens:
        """Token ids and, where the model takes one, the mask."""
        padding = "max_length" if self._reads_padding else "longest"
        found = self._tokenizer(
            list(texts), truncation=True, max_length=self._max_tokens, padding=padding, return_tensors="pt"
        )
        names = ("input_ids",) if self._reads_padding else ("input_ids", "attention_mask")
        return {name: found[name] for name in names}


def load_hub_joint(model: str) -> tuple[ImageNetwork, TextNetwork]:
    """The image and the text side of a folder or hub name.

    Raises UsageError when the model has one side only, SystemStateError when it or its tokenizer can't be read.
    """
    network, _ = load_pretrained(model)
    if not is_joint(network):
        raise UsageError(f"expected a model of pictures and texts, got {model!r} of type {network.config.model_type!r}")
    weights, tokenizer = fingerprint(network.state_dict()), _tokenizer(model)
    max_tokens = int(network.config.text_config.max_position_embeddings)
    tokens = HubTokens(tokenizer, max_tokens, network.config.model_type.startswith("siglip"))
    revision = fingerprint({}, weights, _described(tokenizer))
    text = TextNetwork(TextSide(network).requires_grad_(False), tokens, max_tokens, revision, licence(model))
    return vision_network(network, model, weights), text


def _tokenizer(model: str) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
        if len(tokenizer) <= len(tokenizer.all_special_tokens):  # what transformers makes up where files are missing
            raise OSError("it has no words")
        return tokenizer
    except (ImportError, OSError, ValueError) as error:
        raise SystemStateError(
            f"cannot load the tokenizer of {model!r} ({str(error).strip().splitlines()[0]}): expected its files beside "
            "the weights; get the whole folder"
        ) from error


def _described(tokenizer: Any) -> str:
    """All that decides the ids of a text: a fast tokenizer says it whole, another one has its words."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    described: str = backend.to_str() if backend else json.dumps(tokenizer.get_vocab(), sort_keys=True)
    return described
