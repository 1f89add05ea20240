"""Networks of known shapes with random weights, saved as the folders that `from_pretrained` reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, CLIPVisionConfig, CLIPVisionModelWithProjection, PreTrainedTokenizerFast

from tests.benchmarks.encoder_speed.corpora import LETTERS, made_words

TEXT_SHAPES = {
    "MiniLM-L6": {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536},
    "bge-base": {"hidden_size": 768, "num_hidden_layers": 12, "intermediate_size": 3072},
}
"""By name; both have 12 heads and 30,522 words."""

IMAGE_SHAPES: dict[str, dict[str, int]] = {"CLIP ViT-B/32": {}}
"""Options of transformers' CLIP vision side: its defaults are ViT-B/32, at 224 pixels and into 512 components."""

WORDS = 30_000
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def write_text_model(folder: Path, shape: dict[str, int]) -> str:
    """A BERT with a word-piece tokenizer that knows `made_words(WORDS)` whole and everything else by letters."""
    pieces = dict.fromkeys([*_SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS), *made_words(WORDS)])
    tokenizer = Tokenizer(models.WordPiece({piece: at for at, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=512, **names).save_pretrained(folder)
    torch.manual_seed(0)
    BertModel(BertConfig(num_attention_heads=12, vocab_size=30_522, **shape)).save_pretrained(folder)
    return str(folder)


def write_image_model(folder: Path, shape: dict[str, int]) -> str:
    """A CLIP vision side with the record of how its pictures are prepared."""
    torch.manual_seed(0)
    config = CLIPVisionConfig(**shape)
    CLIPVisionModelWithProjection(config).save_pretrained(folder)
    prepared: dict[str, Any] = {
        "image_processor_type": "CLIPImageProcessor",
        "crop_size": {"height": config.image_size, "width": config.image_size},
        "size": {"shortest_edge": config.image_size},
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
        "resample": 3,
        **dict.fromkeys(("do_resize", "do_center_crop", "do_rescale", "do_normalize"), True),
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(prepared), encoding="utf-8")
    return str(folder)
