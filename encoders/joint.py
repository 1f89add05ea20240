"""Pictures and texts in one space (CLIP: Radford et al., 2021, arXiv:2103.00020; SigLIP: arXiv:2303.15343)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from data.errors import BadDataError
from encoders.base import Identity, Vectors
from encoders.hub_joint import load_hub_joint
from encoders.image import ImageEncoder
from encoders.open_clip_models import PREFIX, load_open_clip
from encoders.placement import device_of, dtype_of
from encoders.text_network import TextNetwork

_ROWS = {"cpu": 32, "cuda": 512}


class JointTextEncoder:
    """The text side of a joint model; texts are cut at `max_tokens`, which the model sets."""

    def __init__(self, network: TextNetwork, model: str, device: str = "cpu", dtype: str = "float32") -> None:
        self.max_tokens = network.max_tokens
        self._tokens, self._device = network.tokens, device_of(device)
        self._rows = _ROWS[self._device.type]
        self._module = network.module.to(self._device, dtype_of(dtype))
        self.dim = len(self._features(["a"])[0])
        self.identity: Identity = {
            "modality": "text",
            "model": model,
            "revision": network.revision,
            "licence": network.licence,
            "preprocessing": f"own tokenizer, at most {network.max_tokens} tokens, projected text features",
            "dtype": dtype,
            "normalisation": "l2",
        }

    def encode(self, batch: Sequence[str]) -> Vectors:
        """Unit-norm float32 (n, dim), in the space of the image side."""
        if not batch:
            return np.zeros((0, self.dim), np.float32)
        starts = range(0, len(batch), self._rows)
        found = torch.cat([self._features(batch[start : start + self._rows]) for start in starts])
        vectors: Vectors = found.cpu().numpy()
        return vectors

    def _features(self, texts: Sequence[str]) -> torch.Tensor:
        with torch.inference_mode():
            tokens = {name: ids.to(self._device) for name, ids in self._tokens(texts).items()}
            return torch.nn.functional.normalize(self._module(**tokens).float(), dim=1)


@dataclass(frozen=True)
class Joint:
    """Two encoders into one space: the product of an image's and a text's vector says how well they fit."""

    image: ImageEncoder
    text: JointTextEncoder


def load_joint(model: str, device: str = "cpu", dtype: str = "float32", compile: bool = False) -> Joint:
    """Both sides of a folder, a hub name, or `open_clip:<arch>:<weights file or tag>`; `compile` is for the image side.

    Raises UsageError when the model has one side only, SystemStateError when it can't be read, BadDataError when its
    sides differ in size.
    """
    image, text = load_open_clip(model) if model.startswith(PREFIX) else load_hub_joint(model)
    joint = Joint(ImageEncoder(image, model, device, dtype, compile), JointTextEncoder(text, model, device, dtype))
    if joint.image.dim != joint.text.dim:
        raise BadDataError(
            f"expected both sides of {model!r} in one space, got {joint.image.dim} components for pictures and "
            f"{joint.text.dim} for texts: get a model with projections"
        )
    return joint
