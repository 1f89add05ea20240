"""Stage features: content vectors of products, advertisers, categories and users, in one space with text queries."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file
from threadpoolctl import threadpool_limits

from data.artifacts import ArtifactRef, OutputDir
from data.context import Metrics, RunContext
from data.errors import SystemStateError, UsageError
from data.schema import to_micros
from encoders.attributes import AttributeEncoder, fit_knots
from encoders.base import MODALITIES, Vectors
from encoders.catalogue_media import contents, read_media
from encoders.content import (
    OF_USERS,
    Presence,
    Shelf,
    Source,
    Sources,
    fit_fusion,
    mask_of,
    owners,
    parts_of,
    parts_with_products,
    whitened,
    with_products,
)
from encoders.describe import Facts
from encoders.duplicates import originals, table
from encoders.entities import ENTITY_TYPES, Catalogue, Entities, read_catalogue
from encoders.fuse import Fusion, Whitening
from encoders.joint import JointTextEncoder, load_joint
from encoders.settings import Config
from encoders.text import TextEncoder
from encoders.text_cache import encode_texts

__all__ = ["Config", "embed_texts", "run", "source_identity"]


def source_identity(config: Config) -> list[str]:
    """What identifies the pictures and films in the artifact key: path and sha256 of every file below `media_root`.

    Each file is read once a process. Raises BadDataError when there is no such folder.
    """
    if config.media_root is None or config.image_model is None:
        return []
    return contents(config.media_root, config.caps)


def run(config: Config, inputs: Mapping[str, ArtifactRef], out: OutputDir, ctx: RunContext) -> Metrics:
    """Encode every distinct text, picture and film once, whiten, fuse; write what was read and what could not be.

    entities_*.parquet (entity_id, text_row, image_rows, video_rows, category), content_*.npy (n, D), mask_*.npy (n, M),
    parts_*.npy (n, P, D) of the P modalities there are, before they are fused, raw text.npy, image.npy and video.npy,
    copies.parquet, quarantine.parquet, and the encoders. With `previous`, features of an earlier day, texts, pictures
    and films that it has are not encoded again; the result is the same.

    Time: one pass of each encoder over its distinct items (resumed shard by shard after a kill), one search for copies,
    the rest linear in the entities. Memory: 4 bytes x (D P + components of a raw vector) a distinct item or entity,
    plus the catalogue's strings.
    """
    before = to_micros(config.t0)
    catalogue = read_catalogue(inputs["events"])
    encoder = _text_encoder(config)
    earlier = inputs.get("previous")
    texts, spent = encode_texts(encoder, catalogue.texts, config.batch_tokens, out, ctx, earlier)
    media = read_media(config, catalogue.entities["product"], out, ctx, earlier)
    torch.set_num_threads(ctx.threads)
    facts = _attribute_encoder(config, catalogue, before)
    sources = _sources(catalogue, texts, facts.encode(catalogue.facts), media.sources)
    with threadpool_limits(1):  # BLAS sums in another order with another number of threads
        fusion = _fusion(config, catalogue, sources, before)
        figures = _write_content(config, catalogue, fusion, sources, media.rows, out)
    save_file(fusion.tensors(), out.file("fusion.safetensors"))
    described: dict[str, Any] = {"text": encoder.identity, "attributes": facts.identity, **media.identities}
    described |= {"max_tokens": config.max_tokens, "knots": dict(facts.knots), "weights": dict(fusion.weights)}
    described |= {"modalities": list(fusion.modalities), "joint": config.model == config.image_model}
    described |= {"attributes_dim": config.attributes_dim, "category_decay": config.category_decay}
    described |= {"labels": list(config.labels), "video_frames": config.video_frames}
    out.write_json("encoder.json", described)
    sizes = {kind: len(entities.ids) for kind, entities in catalogue.entities.items()}
    read = {"texts": len(catalogue.texts), **spent, "records": len(catalogue.facts), **media.figures}
    return {**read, "entities": sizes, **figures}


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


def open_text_encoder(features: ArtifactRef) -> TextEncoder | JointTextEncoder:
    """The text encoder that made `features`, kept; raises SystemStateError when this machine has another one."""
    return _query_encoder(features.path, features.key)[0]


@lru_cache(maxsize=2)
def _query_encoder(path: Path, key: str) -> tuple[TextEncoder | JointTextEncoder, Whitening]:
    features = ArtifactRef("features", key, path)
    described = features.json("encoder.json")
    made = described["text"]
    encoder: TextEncoder | JointTextEncoder
    if described["joint"]:
        encoder = load_joint(made["model"], dtype=made["dtype"]).text
    else:
        encoder = TextEncoder(made["model"], described["max_tokens"], dtype=made["dtype"])
    if encoder.identity != made:
        raise SystemStateError(
            f"the text model {encoder.identity['model']!r} here has revision {encoder.identity['revision'][:16]}…, but "
            f"features {key} were made with {made['revision'][:16]}…: install that one or run again"
        )
    return encoder, Fusion.load(features.file("fusion.safetensors"), described["weights"]).whitenings["text"]


def _text_encoder(config: Config) -> TextEncoder | JointTextEncoder:
    """The encoder of `model`; the text side of a joint model where `model` is that of the pictures too."""
    if config.model == config.image_model:
        return load_joint(config.model, config.device, config.dtype).text
    return TextEncoder(config.model, config.max_tokens, config.device, config.dtype, config.compile)


def _attribute_encoder(config: Config, catalogue: Catalogue, before: int) -> AttributeEncoder:
    """The encoder whose quantiles are those of the distinct records of entities known before `before` [us]."""
    rows: set[int] = set()
    for kind in ("product", "user"):
        entities = catalogue.entities[kind]
        rows.update(entities.facts_row[entities.known_at < before].tolist())
    seen: list[Facts] = [catalogue.facts[row] for row in sorted(rows - {-1})]
    labels = frozenset(config.labels)
    return AttributeEncoder(fit_knots(seen, labels), config.attributes_dim, config.category_decay, labels)


def _sources(
    catalogue: Catalogue, texts: Vectors, attributes: Vectors, media: Mapping[str, Source]
) -> dict[str, dict[str, Source]]:
    """What is known of the entities of each type, by modality."""
    found: dict[str, dict[str, Source]] = {}
    for kind, entities in catalogue.entities.items():
        facts = OF_USERS if kind == "user" else "attributes"
        own = {"text": Source(texts, entities.text_row), **(media if kind == "product" else {})}
        found[kind] = own | {facts: Source(attributes, entities.facts_row)}
    return found


def _fusion(config: Config, catalogue: Catalogue, sources: Mapping[str, Sources], before: int) -> Fusion:
    early, early_users = (catalogue.entities[kind].known_at < before for kind in ("product", "user"))
    users = sources["user"][OF_USERS]
    how = (config.dim, config.power, config.regularisation, config.weights)
    return fit_fusion(sources["product"], early, users, early_users, *how)


def _write_content(
    config: Config,
    catalogue: Catalogue,
    fusion: Fusion,
    sources: Mapping[str, Sources],
    rows: Mapping[str, list[list[int]]],
    out: OutputDir,
) -> dict[str, Any]:
    """Write the files of each entity type; returns the share of entities that have each modality, and the copies."""
    coverage: dict[str, dict[str, float]] = {}
    copies: dict[str, int] = {}
    shelf: Shelf | None = None
    white = whitened(sources.values(), fusion)
    for kind in ENTITY_TYPES:
        entities = catalogue.entities[kind]
        parts, present = parts_of(sources[kind], white, fusion.modalities, len(entities.ids))
        content = fusion.fuse(parts, present)
        if kind == "product":
            original, copies = _copies(config, entities, sources[kind], content, present, out)
            content, parts = content[original], parts[original]
            owner = owners(catalogue.entities["advertiser"], entities, to_micros(config.t0))
            shelf = Shelf(owner, content, parts, present)
        if kind == "advertiser" and shelf is not None:
            content = with_products(content, shelf, config.own_weight)
            parts, present = parts_with_products(parts, present, shelf, config.own_weight)
        mask = mask_of(present, fusion)
        out.write_table(f"entities_{kind}.parquet", _entity_table(entities, rows if kind == "product" else {}))
        for name, array in (("content", content), ("parts", parts), ("mask", mask)):
            out.write_array(f"{name}_{kind}.npy", array)
        shares = mask.sum(axis=0) / max(len(mask), 1)
        coverage[kind] = {name: round(float(share), 4) for name, share in zip(MODALITIES, shares, strict=True)}
    return {"coverage": coverage, "copies": copies}


def _copies(
    config: Config, products: Entities, sources: Sources, content: Vectors, present: Presence, out: OutputDir
) -> tuple[NDArray[np.int64], dict[str, int]]:
    """Write copies.parquet; the original of each product (n,), and how many copies there are."""
    original, exact = originals(sources, content, present, products.known_at, config.near_copies)
    out.write_table("copies.parquet", table(products.ids, original, exact))
    copies = int((original != np.arange(len(original))).sum())
    return original, {"exact": int(exact.sum()), "near": copies - int(exact.sum())}


def _entity_table(entities: Entities, rows: Mapping[str, list[list[int]]]) -> pa.Table:
    """Ids, category, and which rows of the raw vectors belong to each: text_row (-1: none), image_rows, video_rows."""
    none: list[list[int]] = [[]] * len(entities.ids)
    columns = {"entity_id": pa.array(entities.ids, pa.string()), "text_row": pa.array(entities.text_row, pa.int32())}
    for name in ("image", "video"):
        columns[f"{name}_rows"] = pa.array(rows.get(name, none), pa.list_(pa.int32()))
    return pa.table(columns | {"category": pa.array(entities.category, pa.string())})
