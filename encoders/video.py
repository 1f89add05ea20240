"""Films as the mean of their frames' picture vectors, so they lie in the space of the pictures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from data.errors import UsageError
from encoders.base import Identity, Vectors, unit
from encoders.image import ImageEncoder
from encoders.pixels import Pixels

Frames = NDArray[np.uint8]
"""RGB frames of several films, uint8 (n, frames, size, size, 3)."""


class VideoEncoder:
    """Encodes films of at most `frames` frames, evenly spaced over the film."""

    def __init__(self, images: ImageEncoder, frames: int = 4) -> None:
        if frames < 1:
            raise UsageError(f"expected at least one frame a film, got {frames}")
        self.frames, self.geometry, self.dim = frames, images.geometry, images.dim
        self._images = images
        spaced = f"{frames} frames evenly spaced, mean of their unit vectors"
        described = {"modality": "video", "preprocessing": f"{images.identity['preprocessing']}; {spaced}"}
        self.identity: Identity = images.identity | described

    def encode(self, frames: Frames, present: NDArray[np.bool_] | None = None) -> Vectors:
        """Unit-norm float32 (n, dim) of (n, k, size, size, 3), k = `frames`; `present` (n, k) marks frames that are
        there (None: all). A film without any has a zero vector.

        Raises UsageError for another number of frames, type or size.
        """
        if frames.ndim != 5 or frames.shape[1] != self.frames:
            raise UsageError(f"expected {self.frames} frames a film, uint8 (n, k, size, size, 3), got {frames.shape}")
        there = np.ones(frames.shape[:2], np.bool_) if present is None else present
        summed = np.zeros((len(frames), self.dim), np.float32)
        np.add.at(summed, np.nonzero(there)[0], self._images.encode(frames[there]))
        return unit(summed)


def side_by_side(films: Sequence[Pixels], frames: int) -> tuple[Frames, NDArray[np.bool_]]:
    """Films (F, size, size, 3) of at most `frames` frames each as (n, frames, size, size, 3), and which are there.

    Raises UsageError when there is no film, or one of more frames or of another size than the first.
    """
    if not films or any(len(film) > frames or film.shape[1:] != films[0].shape[1:] for film in films):
        raise UsageError(f"expected films of one size, at most {frames} frames, got {[film.shape for film in films]}")
    stacked = np.zeros((len(films), frames, *films[0].shape[1:]), np.uint8)
    there = np.zeros((len(films), frames), np.bool_)
    for row, film in enumerate(films):
        stacked[row, : len(film)], there[row, : len(film)] = film, True
    return stacked, there
