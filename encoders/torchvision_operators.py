"""Makes `torchvision` importable beside a torch that its compiled half does not fit.

`transformers` and `open_clip` import torchvision where it is installed. Next to a CPU build of torch that import stops
at "operator torchvision::nms does not exist", though nothing here calls the operator: its name is all that is needed.
"""

from __future__ import annotations

from functools import cache

import torch

_SCHEMA = "{}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


@cache
def declare_torchvision_operators() -> torch.library.Library | None:
    """Declare the two missing operators where torchvision is installed but stops without them; else None.

    Call it before anything that may import torchvision. The declaration lives as long as the returned object, which
    the cache keeps.
    """
    try:
        import torchvision  # noqa: F401
    except ImportError:
        return None
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for name in ("nms", "qnms"):
            library.define(_SCHEMA.format(name))  # type: ignore[no-untyped-call]
        return library
    return None
