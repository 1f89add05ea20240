"""Where a model's weights lie, what they are (sha256 of every tensor) and under which licence."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from data.errors import SystemStateError, UsageError


def folder_or_hub_name(model: str, wanted: str = "config.json and model.safetensors") -> str:
    """`model` as it is: a folder that exists or a hub name. Raises UsageError for a path to no folder."""
    if not Path(model).is_dir() and (model.startswith((".", "/", "~")) or model.count("/") > 1):
        raise UsageError(f"expected a folder with {wanted} at {model!r}, found none")
    return model


def package_folder(package: str) -> Path:
    """The folder of an installed package that carries weights. Raises SystemStateError when it is not installed."""
    found = importlib.util.find_spec(package.replace("-", "_"))
    if found is None or found.origin is None:
        raise SystemStateError(f"the package {package} is not installed: pip install {package}")
    return Path(found.origin).parent


def fingerprint(tensors: Mapping[str, torch.Tensor], *more: str) -> str:
    """sha256 over names, types, shapes and bytes of all tensors, then `more`: the same wherever they came from."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.detach().cpu().flatten().view(torch.uint8).numpy().data)
    for text in more:
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()


def licence(source: str) -> str:
    """The licence that the model card of a folder or hub name states, or "unknown"."""
    card = _file(source, "README.md")
    stated = re.search(r"^license:\s*(\S+)", card.read_text(encoding="utf-8") if card else "", re.MULTILINE)
    return stated.group(1) if stated else "unknown"


def record(source: str, name: str) -> dict[str, Any] | None:
    """The JSON object in file `name` of a folder or hub name; None when there is no such file."""
    path = _file(source, name)
    found: dict[str, Any] | None = json.loads(path.read_text(encoding="utf-8")) if path else None
    return found


@contextmanager
def quiet_hub() -> Iterator[None]:
    """Without the progress bars of `transformers`, which would tear ours."""
    from transformers.utils import logging as hub_logging

    shown = hub_logging.is_progress_bar_enabled()
    hub_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            hub_logging.enable_progress_bar()


def _file(source: str, name: str) -> Path | None:
    if Path(source).is_dir():
        path = Path(source) / name
        return path if path.is_file() else None
    from transformers.utils import cached_file

    found = cached_file(
        source, name, _raise_exceptions_for_missing_entries=False, _raise_exceptions_for_connection_errors=False
    )
    return Path(found) if found else None
