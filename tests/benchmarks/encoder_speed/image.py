"""Part image: our image encoder and a plain loop over the same network, on decoded pictures, in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from encoders.base import Vectors
from tests.benchmarks.encoder_speed.bench import Bench
from tests.benchmarks.encoder_speed.corpora import made_pictures
from tests.benchmarks.encoder_speed.models import IMAGE_SHAPES, write_image_model

REFERENCE = "plain loop"
HALF = f"{REFERENCE} bf16"
_ROWS = 64
_CPU_PICTURES, _GPU_PICTURES = 64, 4096


def measure(bench: Bench) -> None:
    """Random weights of CLIP ViT-B/32's shape on made pictures."""
    for name, options in IMAGE_SHAPES.items():
        model = write_image_model(bench.scratch / name.replace("/", "-"), options)
        count = bench.pictures or (_CPU_PICTURES if bench.device == "cpu" else _GPU_PICTURES)
        _compare(bench, model, f"{name}, random weights, {count:,} pictures", count)
        bench.flush()


def _compare(bench: Bench, model: str, shape: str, count: int) -> None:
    from encoders.flops import flops_per_item
    from encoders.image import load_image_encoder

    torch.set_num_threads(bench.threads)
    variants = [("strata", "float32", False)]
    if bench.device != "cpu":
        variants += [("strata bf16", "bfloat16", False), ("strata bf16 compiled", "bfloat16", True)]
    encoders = {label: load_image_encoder(model, bench.device, dtype, compile) for label, dtype, compile in variants}
    pixels = made_pictures(count, encoders["strata"].geometry.size)
    candidates = {REFERENCE: _plain(bench, model, pixels, torch.float32)}
    if bench.device != "cpu":
        candidates[HALF] = _plain(bench, model, pixels, torch.bfloat16)
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
    """What one writes at once: batches of 64 to the device, normalised there, through transformers' network."""
    from transformers import CLIPVisionModelWithProjection

    network: Any = CLIPVisionModelWithProjection.from_pretrained(model, dtype=dtype).to(bench.device).eval()
    mean = torch.tensor([0.48145466, 0.4578275, 0.40821073], device=bench.device).view(3, 1, 1)
    std = torch.tensor([0.26862954, 0.26130258, 0.27577711], device=bench.device).view(3, 1, 1)

    def run() -> Vectors:
        found = []
        with torch.inference_mode():
            for start in range(0, len(pixels), _ROWS):
                chunk = torch.from_numpy(pixels[start : start + _ROWS]).to(bench.device).permute(0, 3, 1, 2)
                embeds = network(pixel_values=((chunk.float() / 255 - mean) / std).to(dtype)).image_embeds
                found.append(torch.nn.functional.normalize(embeds.float(), dim=1).cpu())
        vectors: Vectors = torch.cat(found).numpy()
        return vectors

    return run
