"""Resumable training state in a work folder: safetensors for tensors, JSON for the rest, never a pickle.

A checkpoint is one file, replaced atomically, so a run killed while saving resumes from the previous one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from data.errors import BadDataError


def save(path: Path, tensors: Mapping[str, torch.Tensor], state: Mapping[str, Any]) -> None:
    """Write `tensors` and the JSON-able `state` to `path` (.safetensors) in one atomic step."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    ready = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(ready, draft, metadata={"state": json.dumps(dict(state))})
    with open(draft, "rb") as stream:
        os.fsync(stream.fileno())
    os.replace(draft, path)


def load(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
    """The tensors and state last saved at `path`, or None when there is none; raises BadDataError when torn."""
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as reader:
            tensors = {name: reader.get_tensor(name) for name in list(reader.keys())}
            return tensors, json.loads((reader.metadata() or {})["state"])
    except Exception as error:
        raise BadDataError(f"checkpoint {path} is unreadable ({error}): delete it and run again") from error


def flatten(prefix: str, state: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Tensors of an optimizer's or module's `state_dict` under dotted names; scalars become 0-d tensors."""
    flat: dict[str, torch.Tensor] = {}
    for name, value in state.items():
        if isinstance(value, Mapping):
            flat.update(flatten(f"{prefix}.{name}", value))
        elif isinstance(value, torch.Tensor):
            flat[f"{prefix}.{name}"] = value
        elif isinstance(value, (int, float)):
            flat[f"{prefix}.{name}"] = torch.tensor(value)
    return flat
