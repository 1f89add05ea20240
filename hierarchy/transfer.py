"""Host arrays on their way to the device that trains: pinned and asynchronous, so that no step waits for a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


def on_device(array: NDArray[Any], device: torch.device | str) -> torch.Tensor:
    """`array` as a tensor on `device`: on the CPU its own memory, elsewhere a copy that nobody waits for.

    Work that is put on the same stream later sees the values; the pinned buffer lives until the copy has ended.
    """
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if torch.device(device).type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)
