"""Stage features: content vectors of products, advertisers, categories and users, in one space with text queries."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import torch
from pydantic import Field
from safetensors.numpy import save_file
from threadpoolctl import threadpool_limits

from data.artifacts import ArtifactRef, OutputDir
from data.context import Metrics, RunContext, StageConfig, UtcTime, execution
from data.errors import SystemStateError, UsageError
from data.schema import to_micros
from encoders.attributes import AttributeEncoder, fit_knots
from encoders.base import MODALITIES, Vectors
from encoders.content import OF_USERS, content_of, fit_fusion, presence_of, with_products
from encoders.describe import Facts
from encoders.entities import ENTITY_TYPES, Catalogue, read_catalogue
from encoders.fuse import Fusion, Whitening
from encoders.text import PACKAGED_MODEL, TextEncoder
from encoders.text_cache import encode_texts


class Config(StageConfig):
    """Options of the stage."""

    t0: UtcTime = Field(description="Whitening and quantiles look only at rows known before this time.")
    model: str = Field(default=PACKAGED_MODEL, description="Text encoder: the packaged one, a hub name or a folder.")
    max_tokens: int = Field(default=64, gt=2, description="Tokens of a text that are read; longer texts are cut.")
    batch_tokens: int | None = execution(None, "Tokens a batch; by default what suits the device.", gt=0)
    dim: int = Field(default=64, gt=0, description="D, components of a content vector.")
    power: float = Field(default=0.5, ge=0, le=1, description="Whitening strength: 0 is PCA alone, 1 is full.")
    regularisation: float = Field(default=0.1, ge=0, description="Part of the mean variance added to each direction.")
    text_weight: float = Field(default=1.0, gt=0, description="Weight of text in the mean of the modalities.")
    attributes_weight: float = Field(default=0.4, ge=0, description="Weight of attributes in the mean.")
    attributes_dim: int = Field(default=128, gt=0, le=512, description="Components of a hashed attribute vector.")
    category_decay: float = Field(default=0.8, gt=0, le=1, description="Factor from one category level to the next.")
    labels: tuple[str, ...] = Field(default=(), description="Attributes whose numbers are names, not quantities.")
    own_weight: float = Field(default=0.25, ge=0, description="Weight of an advertiser's text beside its products'.")


def run(config: Config, inputs: Mapping[str, ArtifactRef], out: OutputDir, ctx: RunContext) -> Metrics:
    """Encode every distinct text once, whiten, fuse, write entities_*, content_*, mask_*, text.npy and the encoders.

    Time: one pass of the text encoder over the distinct texts (resumed batch by batch after a kill), the rest linear
    in the entities. Memory: 4 bytes x (D + text components) a distinct text or entity, plus the catalogue's strings.
    """
    before = to_micros(config.t0)
    catalogue = read_catalogue(inputs["events"])
    encoder = TextEncoder(config.model, config.max_tokens)
    texts, padded = encode_texts(encoder, catalogue.texts, config.batch_tokens, out, ctx)
    torch.set_num_threads(ctx.threads)
    facts = _attribute_encoder(config, catalogue, before)
    attributes = facts.encode(catalogue.facts)
    weights = {"text": config.text_weight, "attributes": config.attributes_weight}
    options = (config.dim, config.power, config.regularisation, weights)
    with threadpool_limits(1):  # BLAS sums in another order with another number of threads
        fusion = fit_fusion(catalogue, texts, attributes, before, *options)
        coverage = _write_content(config, catalogue, fusion, texts, attributes, out)
    save_file(fusion.tensors(), out.file("fusion.safetensors"))
    described = {"text": encoder.identity, "attributes": facts.identity, "max_tokens": config.max_tokens}
    out.write_json("encoder.json", {**described, "knots": dict(facts.knots), "weights": dict(fusion.weights)})
    sizes = {kind: len(entities.ids) for kind, entities in catalogue.entities.items()}
    counted = {"texts": len(catalogue.texts), "padded": round(padded, 4), "records": len(catalogue.facts)}
    return {**counted, "entities": sizes, "coverage": coverage}


def embed_texts(features: ArtifactRef, texts: list[str]) -> Vectors:
    """Content float32 (n, D) of entities of which only a text is known, in the space of the artifact's products.

    The encoder is loaded on the first call and kept. Raises UsageError for a text without words, SystemStateError
    when the model on this machine is not the one that made the artifact.
    """
    for text in texts:
        if not text.strip():
            raise UsageError(f"expected texts with words, got {text!r}")
    encoder, whitening = _query_encoder(features.path, features.key)
    return whitening.apply(encoder.encode(texts))


@lru_cache(maxsize=2)
def _query_encoder(path: Path, key: str) -> tuple[TextEncoder, Whitening]:
    features = ArtifactRef("features", key, path)
    described = features.json("encoder.json")
    encoder = TextEncoder(described["text"]["model"], described["max_tokens"])
    if encoder.identity != described["text"]:
        raise SystemStateError(
            f"the text model {encoder.identity['model']!r} here has revision {encoder.identity['revision'][:16]}…, but "
            f"features {key} were made with {described['text']['revision'][:16]}…: install that one or run again"
        )
    return encoder, Fusion.load(features.file("fusion.safetensors"), described["weights"]).whitenings["text"]


def _attribute_encoder(config: Config, catalogue: Catalogue, before: int) -> AttributeEncoder:
    """The encoder whose quantiles are those of the distinct records of entities known before `before` [us]."""
    rows: set[int] = set()
    for kind in ("product", "user"):
        entities = catalogue.entities[kind]
        rows.update(entities.facts_row[entities.known_at < before].tolist())
    seen: list[Facts] = [catalogue.facts[row] for row in sorted(rows - {-1})]
    labels = frozenset(config.labels)
    return AttributeEncoder(fit_knots(seen, labels), config.attributes_dim, config.category_decay, labels)


def _write_content(
    config: Config, catalogue: Catalogue, fusion: Fusion, texts: Vectors, attributes: Vectors, out: OutputDir
) -> dict[str, dict[str, float]]:
    """Write the three files of each entity type; returns the share of entities that have each modality."""
    products, coverage = None, {}
    for kind in ENTITY_TYPES:
        entities = catalogue.entities[kind]
        whitening = OF_USERS if kind == "user" else "attributes"
        content, presence = content_of(entities, fusion, texts, attributes, whitening), presence_of(entities)
        if kind == "product":
            products = content
        if kind == "advertiser" and products is not None:
            content, presence = with_products(catalogue, content, products, to_micros(config.t0), config.own_weight)
        out.write_table(f"entities_{kind}.parquet", entities.table())
        out.write_array(f"content_{kind}.npy", content)
        out.write_array(f"mask_{kind}.npy", presence)
        shares = presence.sum(axis=0) / max(len(presence), 1)
        coverage[kind] = {name: round(float(share), 4) for name, share in zip(MODALITIES, shares, strict=True)}
    return coverage
