"""The vision side of a transformers model: CLIP, SigLIP, ViT, DINOv2, timm's networks and others by their config."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from data.errors import SystemStateError, UsageError
from encoders.image_network import ImageNetwork
from encoders.preprocessing import Wanted, of_processor, of_timm
from encoders.torchvision_operators import declare_torchvision_operators
from encoders.weights import fingerprint, folder_or_hub_name, licence, quiet_hub, record

_NEEDED = "config.json, model.safetensors and preprocessor_config.json"


class VisionSide(nn.Module):
    """One vector a picture: (n, 3, size, size) -> (n, dim).

    Of a model of two sides that is the projection into the space shared with texts; else what its pooler gives, and
    without a trained pooler the first token, else the mean over the map.
    """

    def __init__(self, network: Any, pooled: bool) -> None:
        super().__init__()
        self.network, self._pooled = network, pooled
        self._joint = is_joint(network)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Features (n, dim) of normalised pixels."""
        if self._joint:
            return projected(self.network.get_image_features(pixel_values=pixels))
        found = self.network(pixel_values=pixels)
        if "image_embeds" in found:
            embeds: torch.Tensor = found.image_embeds
            return embeds
        if self._pooled and found.get("pooler_output") is not None:
            pooled: torch.Tensor = found.pooler_output
            return pooled.flatten(1)
        states: torch.Tensor = found.last_hidden_state
        return states[:, 0] if states.dim() == 3 else states.flatten(2).mean(2)


def load_hub_network(model: str) -> ImageNetwork:
    """The network of a folder or hub name.

    Raises UsageError for a path to no folder or a model without a vision side, SystemStateError when it can't be read.
    """
    network, pooled = load_pretrained(model)
    return vision_network(network, model, fingerprint(network.state_dict()), pooled)


def vision_network(network: Any, source: str, revision: str, pooled: bool = True) -> ImageNetwork:
    """The vision side of a loaded model; `pooled` says whether its pooler was trained."""
    geometry, normalisation = _wanted(network, source)
    side = VisionSide(network, pooled).requires_grad_(False)
    return ImageNetwork(side, geometry, normalisation, revision, licence(source))


def load_pretrained(model: str) -> tuple[Any, bool]:
    """A transformers model in evaluation mode, float32, and whether its pooler's weights were in the file.

    Raises UsageError or SystemStateError, as `load_hub_network` does.
    """
    source = folder_or_hub_name(model, _NEEDED)
    declare_torchvision_operators()
    try:
        with quiet_hub():
            network, report = _kind(source).from_pretrained(
                source, use_safetensors=True, dtype=torch.float32, output_loading_info=True
            )
    except (ImportError, OSError, ValueError) as error:
        raise SystemStateError(
            f"cannot load the model {model!r} ({str(error).strip().splitlines()[0]}).\n"
            f"Without access to the model hub, set model to a local folder with {_NEEDED}; "
            "timm's networks need the extra: pip install -e '.[clip]'."
        ) from error
    missing = set(report["missing_keys"])
    pooler = {name for name in missing if name.split(".")[0] == "pooler"}
    if missing - pooler:
        raise SystemStateError(f"the weights of {model!r} lack {sorted(missing - pooler)[:5]}: get the whole file")
    return network.eval(), not pooler


def is_joint(network: Any) -> bool:
    """Whether a transformers model has an image and a text side in one space."""
    return hasattr(network, "get_image_features") and hasattr(network, "get_text_features")


def projected(found: Any) -> torch.Tensor:
    """The features of one side of a joint model (n, dim): transformers wraps them in a record since version 5."""
    features: torch.Tensor = found if isinstance(found, torch.Tensor) else found.pooler_output
    return features


def _kind(source: str) -> Any:
    """The class to load with: `AutoModel` would drop the projection of one side that was saved on its own."""
    import transformers

    config = transformers.AutoConfig.from_pretrained(source)
    name = next(iter(config.architectures or ()), "")
    return getattr(transformers, name) if name.endswith("VisionModelWithProjection") else transformers.AutoModel


def _wanted(network: Any, source: str) -> Wanted:
    timm = getattr(network.config, "pretrained_cfg", None)
    if timm:
        return of_timm(timm)
    found = record(source, "preprocessor_config.json") or (record(source, "processor_config.json") or {}).get(
        "image_processor"
    )
    if found is None:
        raise UsageError(
            f"expected {_NEEDED} in {source!r}, found no preprocessor_config.json: without it nothing says how the "
            "model's pictures are scaled and normalised; save its image processor there"
        )
    return of_processor(found)
