"""Models of `open_clip` (extra `clip`): an architecture and a weights file or tag, or a hub repository."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from data.errors import SystemStateError, UsageError, nearest
from encoders.image_network import ImageNetwork
from encoders.pixels import Geometry, Normalisation
from encoders.text_network import TextNetwork, Tokens
from encoders.torchvision_operators import declare_torchvision_operators
from encoders.weights import fingerprint, licence

PREFIX = "open_clip:"
"""What a model's name begins with: `open_clip:<arch>:<weights file or tag>` or `open_clip:hf-hub:<repository>`."""

_OWN_WEIGHTS = ("hf-hub:", "local-dir:")


class ImageSide(nn.Module):
    """Projected image features (n, dim) of normalised pixels (n, 3, size, size)."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Features (n, dim)."""
        features: torch.Tensor = self.network.encode_image(pixels)
        return features


class TextSide(nn.Module):
    """Projected text features (n, dim) of token ids (n, context)."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Features (n, dim)."""
        features: torch.Tensor = self.network.encode_text(text)
        return features


class OpenClipTokens:
    """The tokenizer of an architecture: long (n, context), cut and padded to the context."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __call__(self, texts: Sequence[str]) -> Tokens:
        """Token ids by the name the text side calls them."""
        return {"text": self._tokenizer(list(texts))}


def load_open_clip(model: str) -> tuple[ImageNetwork, TextNetwork]:
    """Both sides of `model`, which begins with PREFIX.

    Raises UsageError for an unknown architecture or one without weights, SystemStateError without the extra, or when
    the weights can't be read.
    """
    open_clip = _package()
    architecture, weights = _parts(model, open_clip)
    try:
        network = open_clip.create_model(architecture, pretrained=weights, require_pretrained=True).eval()
        tokenizer = open_clip.get_tokenizer(architecture)
    except (OSError, RuntimeError, ValueError, ImportError) as error:
        raise SystemStateError(
            f"cannot load {model!r} ({str(error).strip().splitlines()[0]}).\n"
            f"Without access to the model hub, give a local file: {PREFIX}{architecture}:FILE.safetensors"
        ) from error
    revision, stated = fingerprint(network.state_dict()), _licence(architecture, weights)
    geometry, normalisation = _wanted(network.visual.preprocess_cfg)
    image = ImageNetwork(ImageSide(network).requires_grad_(False), geometry, normalisation, revision, stated)
    side, context = TextSide(network).requires_grad_(False), int(tokenizer.context_length)
    of_text = fingerprint({}, revision, _described(tokenizer))
    return image, TextNetwork(side, OpenClipTokens(tokenizer), context, of_text, stated)


def _package() -> Any:
    declare_torchvision_operators()
    try:
        import open_clip
    except ImportError as error:
        raise SystemStateError("open_clip is not installed: pip install -e '.[clip]'") from error
    return open_clip


def _parts(model: str, open_clip: Any) -> tuple[str, str | None]:
    """Architecture and weights; a hub repository or folder brings its own."""
    spec = model.removeprefix(PREFIX)
    if spec.startswith(_OWN_WEIGHTS):
        return spec, None
    architecture, _, weights = spec.partition(":")
    known = open_clip.list_models()
    if architecture not in known:
        raise UsageError(f"open_clip has no architecture {architecture!r}: {nearest(architecture, known)}")
    if not weights:
        tags = ", ".join(open_clip.list_pretrained_tags_by_model(architecture)) or "none"
        raise UsageError(f"expected {PREFIX}{architecture}:<weights file or tag>, got no weights; its tags: {tags}")
    return architecture, weights


def _wanted(record: dict[str, Any]) -> tuple[Geometry, Normalisation]:
    size, interpolation, mode = record["size"], record["interpolation"], record["resize_mode"]
    height, width = (size, size) if isinstance(size, int) else size
    if height != width or interpolation not in {"bilinear", "bicubic"} or mode not in {"shortest", "squash"}:
        raise UsageError(f"expected a model of square pictures, cut or squashed, got {record}: choose another one")
    geometry = Geometry(height, height, interpolation, "crop" if mode == "shortest" else "squash")
    return geometry, Normalisation(tuple(record["mean"]), tuple(record["std"]))


def _licence(architecture: str, weights: str | None) -> str:
    """What the model card of the repository, or the one beside the weights file, states."""
    if weights is None:
        return licence(architecture.partition(":")[2])
    return licence(str(Path(weights).parent)) if Path(weights).is_file() else "unknown"


def _described(tokenizer: Any) -> str:
    """All that decides the ids of a text."""
    inner = getattr(tokenizer, "tokenizer", None)
    words = tokenizer.encoder if inner is None else inner.get_vocab()
    return json.dumps([tokenizer.context_length, words], sort_keys=True)
