"""Options of stage features."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from data.context import StageConfig, UtcTime, execution
from encoders.media.caps import Caps
from encoders.media.fetch import Remote
from encoders.text import PACKAGED_MODEL


class Config(StageConfig):
    """Options of the stage."""

    t0: UtcTime = Field(description="Whitening and quantiles look only at rows known before this time.")
    model: str = Field(
        default=PACKAGED_MODEL,
        description="Text encoder: the packaged one, a hub name or a folder. A joint model is named here and as "
        "image_model.",
    )
    max_tokens: int = Field(default=64, gt=2, description="Tokens of a text that are read; longer texts are cut.")
    batch_tokens: int | None = execution(None, "Tokens of a batch of texts; by default what suits the device.", gt=0)
    image_model: str | None = Field(
        default="efficientnet-lite0",
        description="Image encoder: the packaged one, a hub name, a folder, or open_clip:ARCH[:WEIGHTS]; none: no "
        "picture or film is read. No effect without media_root and remote.",
    )
    media_root: Path | None = execution(
        None, "Folder that the catalogue's image and video paths lie below; none: they are not read."
    )
    video_frames: int = Field(default=4, ge=0, le=64, description="Evenly spaced frames of a film that are read.")
    remote: Remote = Field(
        default=Remote(),
        description="Whether and how files are fetched where the catalogue gives web addresses. What the web serves is "
        "no part of the artifact's key.",
    )
    fetchers: int = execution(8, "Files fetched at a time.", ge=1)
    caps: Caps = Field(default=Caps(), description="Limits on what a picture or film may be.")
    decoders: int = execution(2, "Processes that decode pictures.", ge=1)
    dtype: Literal["float32", "bfloat16"] = Field(
        default="float32", description="Numbers that the encoders compute in."
    )
    device: str = execution("cpu", "Device of the encoders: cpu, cuda or cuda:N.")
    compile: bool = execution(False, "Compile the encoders (torch.compile): pays on a GPU for many items.")
    dim: int = Field(default=64, gt=0, description="D, components of a content vector.")
    power: float = Field(default=0.5, ge=0, le=1, description="Whitening strength: 0 is PCA alone, 1 is full.")
    regularisation: float = Field(default=0.1, ge=0, description="Part of the mean variance added to each direction.")
    text_weight: float = Field(default=1.0, gt=0, description="Weight of text in the mean of the modalities.")
    image_weight: float = Field(default=0.75, ge=0, description="Weight of pictures in the mean.")
    video_weight: float = Field(default=0.5, ge=0, description="Weight of films in the mean.")
    attributes_weight: float = Field(default=0.4, ge=0, description="Weight of attributes in the mean.")
    attributes_dim: int = Field(default=128, gt=0, le=512, description="Components of a hashed attribute vector.")
    category_decay: float = Field(default=0.8, gt=0, le=1, description="Factor from one category level to the next.")
    labels: tuple[str, ...] = Field(default=(), description="Attributes whose numbers are names, not quantities.")
    own_weight: float = Field(default=0.25, ge=0, description="Weight of an advertiser's text beside its products'.")
    near_copies: float | None = Field(
        default=0.98,
        gt=0,
        le=1,
        description="Least cosine, in every modality, of products that count as copies and share their content; none: "
        "exact copies only.",
    )

    @property
    def reads_media(self) -> bool:
        """Whether there is a place to read pictures and films from."""
        return self.media_root is not None or self.remote.is_enabled

    @property
    def weights(self) -> dict[str, float]:
        """Weight of each modality in the mean."""
        return {
            "text": self.text_weight,
            "image": self.image_weight,
            "video": self.video_weight,
            "attributes": self.attributes_weight,
        }
