"""Pictures as unit vectors, by a pretrained network from a package, a folder, a hub or open_clip."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import nn

from data.errors import UsageError
from encoders.base import Identity, Vectors
from encoders.hub_vision import load_hub_network
from encoders.image_network import ImageNetwork
from encoders.lite0 import PACKAGED_MODEL, load_lite0
from encoders.open_clip_models import PREFIX, load_open_clip
from encoders.pixels import Geometry, Normalisation, Pixels
from encoders.placement import device_of, dtype_of

_Forward = Callable[[torch.Tensor], torch.Tensor]
_ROWS = {"cpu": 16, "cuda": 256}


class NormalisedFeatures(nn.Module):
    """Bytes to unit vectors, uint8 (n, size, size, 3) -> float32 (n, dim), all on the device of the network.

    A quarter of the traffic of float pictures, and scaling is fused with what follows where the network is compiled.
    """

    scale: torch.Tensor
    shift: torch.Tensor

    def __init__(self, module: nn.Module, normalisation: Normalisation, dtype: torch.dtype) -> None:
        super().__init__()
        self.module = module.to(dtype)
        mean, std = torch.tensor(normalisation.mean), torch.tensor(normalisation.std)
        self.register_buffer("scale", (1 / (255 * std))[:, None, None], persistent=False)
        self.register_buffer("shift", (-mean / std)[:, None, None], persistent=False)
        self._dtype = dtype

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Unit-norm float32 (n, dim)."""
        scaled = pixels.permute(0, 3, 1, 2) * self.scale + self.shift
        return nn.functional.normalize(self.module(scaled.to(self._dtype)).float(), dim=1)


class ImageEncoder:
    """Encodes decoded pictures. `rows` is the most that go through the network at once (None: set by the device).

    Raises UsageError for a device or dtype that is not known, or when the network refuses its own geometry, and
    SystemStateError for a GPU that is not there.
    """

    def __init__(
        self,
        network: ImageNetwork,
        model: str,
        device: str = "cpu",
        dtype: str = "float32",
        compile: bool = False,
        rows: int | None = None,
    ) -> None:
        self.geometry: Geometry = network.geometry
        self.device = device_of(device)
        self.rows = rows or _ROWS[self.device.type]
        features = NormalisedFeatures(network.module, network.normalisation, dtype_of(dtype))
        self.features = features.to(self.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.dim = self._probed(model)
        self._compiled: _Forward | None = torch.compile(self.features, dynamic=False) if compile else None
        self._copies = _stream(self.device)
        self.identity: Identity = {
            "modality": "image",
            "model": model,
            "revision": network.revision,
            "licence": network.licence,
            "preprocessing": f"{network.geometry}; {network.normalisation}",
            "dtype": dtype,
            "normalisation": "l2",
        }

    def encode(self, batch: Pixels) -> Vectors:
        """Unit-norm float32 (n, dim) of uint8 RGB (n, size, size, 3). Raises UsageError for another shape or type."""
        size = self.geometry.size
        if batch.dtype != np.uint8 or batch.shape[1:] != (size, size, 3):
            raise UsageError(f"expected uint8 (n, {size}, {size}, 3), got {batch.dtype} {batch.shape}")
        if not len(batch):
            return np.zeros((0, self.dim), np.float32)
        with torch.inference_mode():
            found = torch.cat([self._forward(pixels) for pixels in self._on_device(batch)])
        vectors: Vectors = found.cpu().numpy()
        return vectors

    def _on_device(self, batch: Pixels) -> Iterator[torch.Tensor]:
        """Chunks of at most `rows` pictures on the device; a copy runs while the chunk before is computed."""
        for start in range(0, len(batch), self.rows):
            # torch warns of arrays that can't be written to, as mapped ones are; those are copied
            chunk = torch.from_numpy(np.require(batch[start : start + self.rows], requirements=["C", "W"]))
            if self._copies is None:
                yield chunk.to(self.device)
                continue
            with torch.cuda.stream(self._copies):
                pixels = chunk.pin_memory().to(self.device, non_blocking=True)
            computing = torch.cuda.current_stream(self.device)
            computing.wait_stream(self._copies)
            pixels.record_stream(computing)
            yield pixels

    def _forward(self, pixels: torch.Tensor) -> torch.Tensor:
        compute: _Forward = self.features if self._compiled is None else self._compiled
        if self._compiled is None and self.device.type != "cpu":
            return compute(pixels)
        # The last chunk is filled up. Compiled, one shape is one compilation; on the CPU it makes the bits of a picture
        # depend on no other, so that a catalogue that grew gives old pictures the vectors they had.
        missing = self.rows - len(pixels)
        filled = torch.cat([pixels, pixels[-1:].expand(missing, -1, -1, -1)]) if missing else pixels
        return compute(filled)[: len(pixels)]

    def _probed(self, model: str) -> int:
        size = self.geometry.size
        try:
            with torch.inference_mode():
                found = self.features(torch.zeros(1, size, size, 3, dtype=torch.uint8, device=self.device))
        except (RuntimeError, ValueError, TypeError) as error:
            raise UsageError(
                f"the model {model!r} does not encode pictures of {self.geometry} ({str(error).splitlines()[0]}): "
                "choose a model with a vision side, whose preprocessing record fits its config"
            ) from error
        return int(found.shape[1])


def _stream(device: torch.device) -> torch.cuda.Stream | None:
    """A queue of its own for copies to a GPU."""
    return torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]


def load_image_encoder(
    model: str = PACKAGED_MODEL, device: str = "cpu", dtype: str = "float32", compile: bool = False
) -> ImageEncoder:
    """An encoder by name: the packaged one, a folder or hub name of a transformers model, or what open_clip has
    (`open_clip:<arch>:<weights file or tag>`, `open_clip:hf-hub:<repository>`).

    `compile` pays where many thousand pictures follow: the first chunk takes a minute. Raises UsageError or
    SystemStateError when the model is not to be had.
    """
    return ImageEncoder(_network(model), model, device, dtype, compile)


def _network(model: str) -> ImageNetwork:
    if model == PACKAGED_MODEL:
        return load_lite0()
    return load_open_clip(model)[0] if model.startswith(PREFIX) else load_hub_network(model)
