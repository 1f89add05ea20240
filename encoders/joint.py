"""Pictures and texts in one space (CLIP: Radford et al., 2021, arXiv:2103.00020; SigLIP: arXiv:2303.15343)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from data.errors import BadDataError
from encoders.base import Identity, Vectors
from encoders.batches import Batch
from encoders.hub_joint import load_hub_joint
from encoders.image import ImageEncoder
from encoders.open_clip_models import PREFIX, load_open_clip
from encoders.placement import device_of, dtype_of
from encoders.text_network import TextNetwork
from encoders.text_stream import encode_all

_ROWS = {"cpu": 32, "cuda": 512}


class JointTextEncoder:
    """The text side of a joint model; texts are cut at `max_tokens`, which the model sets."""

    def __init__(self, network: TextNetwork, model: str, device: str = "cpu", dtype: str = "float32") -> None:
        self.max_tokens = network.max_tokens
        self._tokens, self._device = network.tokens, device_of(device)
        self._rows = _ROWS[self._device.type]
        self._module = network.module.to(self._device, dtype_of(dtype))
        names = list(self._tokens(["a"]))
        self._ids, self._masked = names[0], "attention_mask" in names
        self.dim = self.encode_planned(self.plan(["a"])[0]).shape[1]
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
        return encode_all(self, batch)

    def plan(self, texts: Sequence[str], batch_tokens: int | None = None) -> list[Batch]:
        """Batches of texts in their order, of at most `batch_tokens` tokens each (or one text)."""
        rows = max(1, batch_tokens // self.max_tokens) if batch_tokens else self._rows
        planned = []
        for start in range(0, len(texts), rows):
            tokens = self._tokens(texts[start : start + rows])
            ids = next(iter(tokens.values()))
            lengths = tokens["attention_mask"].sum(1) if self._masked else torch.full((len(ids),), ids.shape[1])
            index = np.arange(start, start + len(ids))
            planned.append(Batch(index, ids.int().numpy(), lengths.numpy()))
        return planned

    def encode_planned(self, batch: Batch) -> Vectors:
        """Unit-norm float32 (len(batch.index), dim) of one planned batch. Safe in threads."""
        tokens = {self._ids: torch.from_numpy(batch.ids).long()}
        if self._masked:
            real = np.arange(batch.ids.shape[1]) < batch.lengths[:, None]
            tokens["attention_mask"] = torch.from_numpy(real).long()
        with torch.inference_mode():
            moved = {name: values.to(self._device) for name, values in tokens.items()}
            vectors: Vectors = torch.nn.functional.normalize(self._module(**moved).float(), dim=1).cpu().numpy()
        return vectors


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
