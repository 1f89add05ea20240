"""Part image: our image encoder and a plain loop over the same network, on decoded pictures, in turn."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from encoders.base import Vectors
from encoders.torchvision_operators import declare_torchvision_operators
from tests.benchmarks.encoder_speed.bench import Bench
from tests.benchmarks.encoder_speed.corpora import made_pictures
from tests.benchmarks.encoder_speed.models import IMAGE_SHAPES, write_image_model

REFERENCE = "plain loop"
HALF = f"{REFERENCE} bf16"
_OPEN_CLIP = "ViT-B-32"
_SIZE, _ROWS = 224, 64
_CPU_PICTURES, _GPU_PICTURES = 64, 4096


Plain = Callable[[torch.dtype], Callable[[], Vectors]]
"""By dtype, what one writes at once."""


def measure(bench: Bench) -> None:
    """Random weights of CLIP ViT-B/32's shape on made pictures; also through open_clip where that is installed."""
    count = bench.pictures or (_CPU_PICTURES if bench.device == "cpu" else _GPU_PICTURES)
    pixels = made_pictures(count, _SIZE)
    for name, options in IMAGE_SHAPES.items():
        model = write_image_model(bench.scratch / name.replace("/", "-"), options)
        shape = f"{name}, random weights, {count:,} pictures"
        _compare(bench, model, shape, pixels, lambda dtype, model=model: _plain(bench, model, pixels, dtype))
        bench.flush()
    if importlib.util.find_spec("open_clip") is None:
        return bench.say("open_clip is not installed: no row against its plain loop")
    file = _write_open_clip(bench)
    shape = f"open_clip {_OPEN_CLIP}, random weights, {count:,} pictures"
    _compare(
        bench, f"open_clip:{_OPEN_CLIP}:{file}", shape, pixels, lambda dtype: _open_clip(bench, file, pixels, dtype)
    )
    bench.flush()


def _compare(bench: Bench, model: str, shape: str, pixels: np.ndarray, plain: Plain) -> None:
    from encoders.flops import flops_per_item
    from encoders.image import load_image_encoder

    torch.set_num_threads(bench.threads)
    variants = [("strata", "float32", False)]
    if bench.device != "cpu":
        variants += [("strata bf16", "bfloat16", False), ("strata bf16 compiled", "bfloat16", True)]
    encoders = {label: load_image_encoder(model, bench.device, dtype, compile) for label, dtype, compile in variants}
    count = len(pixels)
    candidates = {REFERENCE: plain(torch.float32)}
    if bench.device != "cpu":
        candidates[HALF] = plain(torch.bfloat16)
    peers = list(candidates)
    for label, encoder in encoders.items():
        candidates[label] = lambda encoder=encoder: encoder.encode(pixels)
    found = {label: bench.seconds(call)[1] for label, call in candidates.items()}
    bench.gate("images", shape, found, REFERENCE, HALF)
    bench.compare("images", shape, count, candidates, peers)
    flops = flops_per_item(encoders["strata"])
    for label in encoders:
        bench.utilisation("images", label, shape, flops * count, candidates[label])


def _plain(bench: Bench, model: str, pixels: np.ndarray, dtype: torch.dtype) -> Callable[[], Vectors]:
    """A loop through transformers' network."""
    from transformers import CLIPVisionModelWithProjection

    network: Any = CLIPVisionModelWithProjection.from_pretrained(model, dtype=dtype).to(bench.device).eval()
    return _loop(bench, lambda chunk: network(pixel_values=chunk).image_embeds, pixels, dtype)


def _open_clip(bench: Bench, file: Path, pixels: np.ndarray, dtype: torch.dtype) -> Callable[[], Vectors]:
    """A loop through open_clip's network."""
    import open_clip

    network: Any = open_clip.create_model(_OPEN_CLIP, pretrained=str(file)).to(bench.device, dtype).eval()
    return _loop(bench, network.encode_image, pixels, dtype)


def _write_open_clip(bench: Bench) -> Path:
    declare_torchvision_operators()
    import open_clip

    torch.manual_seed(0)
    file = bench.scratch / "open_clip.safetensors"
    save_file(open_clip.create_model(_OPEN_CLIP).state_dict(), file)
    return file


def _loop(
    bench: Bench, network: Callable[[torch.Tensor], torch.Tensor], pixels: np.ndarray, dtype: torch.dtype
) -> Callable[[], Vectors]:
    """Batches of 64 to the device, normalised there, through the network."""
    mean = torch.tensor([0.48145466, 0.4578275, 0.40821073], device=bench.device).view(3, 1, 1)
    std = torch.tensor([0.26862954, 0.26130258, 0.27577711], device=bench.device).view(3, 1, 1)

    def run() -> Vectors:
        found = []
        with torch.inference_mode():
            for start in range(0, len(pixels), _ROWS):
                chunk = torch.from_numpy(pixels[start : start + _ROWS]).to(bench.device).permute(0, 3, 1, 2)
                embeds = network(((chunk.float() / 255 - mean) / std).to(dtype))
                found.append(torch.nn.functional.normalize(embeds.float(), dim=1).cpu())
        vectors: Vectors = torch.cat(found).numpy()
        return vectors

    return run
