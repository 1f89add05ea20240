"""Where a network computes and in which type."""

from __future__ import annotations

import torch

from data.errors import SystemStateError, UsageError

DEVICES = ("cpu", "cuda")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def device_of(name: str) -> torch.device:
    """The device called `name`. Raises UsageError for one of another type, SystemStateError for a GPU that is not."""
    if name.split(":")[0] not in DEVICES:
        raise UsageError(f"expected a device of type {' or '.join(DEVICES)}, got {name!r}")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise SystemStateError(f"expected a GPU for device {name!r}, torch finds none: set device to cpu")
    return torch.device(name)


def dtype_of(name: str) -> torch.dtype:
    """The type called `name`. Raises UsageError for one that networks are not run in."""
    if name not in DTYPES:
        raise UsageError(f"expected dtype {' or '.join(DTYPES)}, got {name!r}")
    return DTYPES[name]
