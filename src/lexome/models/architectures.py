"""The name table of each architecture Lexome computes itself. The key is Hugging Face's model_type."""

from collections.abc import Mapping

from lexome.models.names import Names

Rows = dict[str, tuple[str, ...]]


def _heads(masked: Rows, pair: Rows, sequence: Rows, *, token: Rows, span: Rows) -> Mapping[str, Rows]:
    paired = {"paired": {**masked, **pair}} if pair else {}
    return {"masked": masked, **paired, "sequence": sequence, "token": token, "span": span}


def _classes(stem: str, *, paired: bool) -> dict[str, str]:
    """transformers names its classes alike for all of them."""
    classes = {
        "encoder": f"{stem}Model",
        "masked": f"{stem}ForMaskedLM",
        "token": f"{stem}ForTokenClassification",
        "sequence": f"{stem}ForSequenceClassification",
        "span": f"{stem}ForQuestionAnswering",
    }
    return {**classes, "paired": f"{stem}ForPreTraining"} if paired else classes


def _bert_layers(prefix: str, *, norms: tuple[str, str]) -> Rows:
    """What BERT, RoBERTa and Megatron-BERT share; they name their norms differently."""
    layer = f"{prefix}encoder.layer.{{n}}"
    ours = "encoder.layers.{n}"
    return {
        "encoder.embed.tokens": (f"{prefix}embeddings.word_embeddings",),
        "encoder.embed.positions": (f"{prefix}embeddings.position_embeddings",),
        "encoder.embed.segments": (f"{prefix}embeddings.token_type_embeddings",),
        f"{ours}.attention.qkv": tuple(f"{layer}.attention.self.{part}" for part in ("query", "key", "value")),
        f"{ours}.attention.out": (f"{layer}.attention.output.dense",),
        f"{ours}.attention_norm": (f"{layer}.{norms[0]}",),
        f"{ours}.mlp.up": (f"{layer}.intermediate.dense",),
        f"{ours}.mlp.down": (f"{layer}.output.dense",),
        f"{ours}.mlp_norm": (f"{layer}.{norms[1]}",),
    }


_AFTER = ("attention.output.LayerNorm", "output.LayerNorm")
_BEFORE = ("attention.ln", "ln")
_LABELS: Rows = {"head.out": ("classifier",)}
_SPANS: Rows = {"head.out": ("qa_outputs",)}
_POOLED: Rows = {"head.dense0": ("bert.pooler.dense",), "head.out": ("classifier",)}
_PAIR: Rows = {"pair.pool": ("bert.pooler.dense",), "pair.out": ("cls.seq_relationship",)}
_BERT_WORDS: Rows = {
    "head": ("cls.predictions",),
    "head.dense": ("cls.predictions.transform.dense",),
    "head.norm": ("cls.predictions.transform.LayerNorm",),
}
_BERT_COPIES = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}

BERT = Names(
    prefix="bert.",
    encoder={**_bert_layers("bert.", norms=_AFTER), "encoder.embed.norm": ("bert.embeddings.LayerNorm",)},
    heads=_heads(_BERT_WORDS, _PAIR, _POOLED, token=_LABELS, span=_SPANS),
    copies=_BERT_COPIES,
    classes=_classes("Bert", paired=True),
    spare=("bert.pooler.dense",),
)

MEGATRON_BERT = Names(
    prefix="bert.",
    encoder={**_bert_layers("bert.", norms=_BEFORE), "encoder.final_norm": ("bert.encoder.ln",)},
    heads=_heads(_BERT_WORDS, _PAIR, _POOLED, token=_LABELS, span=_SPANS),
    copies=_BERT_COPIES,
    classes=_classes("MegatronBert", paired=True),
    spare=("bert.pooler.dense",),
)

ROBERTA = Names(
    prefix="roberta.",
    encoder={**_bert_layers("roberta.", norms=_AFTER), "encoder.embed.norm": ("roberta.embeddings.LayerNorm",)},
    heads=_heads(
        {"head": ("lm_head",), "head.dense": ("lm_head.dense",), "head.norm": ("lm_head.layer_norm",)},
        {},
        {"head.dense0": ("classifier.dense",), "head.out": ("classifier.out_proj",)},
        token=_LABELS,
        span=_SPANS,
    ),
    copies={
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    classes=_classes("Roberta", paired=False),
    spare=("roberta.pooler.dense",),
)

_DISTIL = "distilbert.transformer.layer.{n}"
DISTILBERT = Names(
    prefix="distilbert.",
    encoder={
        "encoder.embed.tokens": ("distilbert.embeddings.word_embeddings",),
        "encoder.embed.positions": ("distilbert.embeddings.position_embeddings",),
        "encoder.embed.norm": ("distilbert.embeddings.LayerNorm",),
        "encoder.layers.{n}.attention.qkv": tuple(f"{_DISTIL}.attention.{part}_lin" for part in "qkv"),
        "encoder.layers.{n}.attention.out": (f"{_DISTIL}.attention.out_lin",),
        "encoder.layers.{n}.attention_norm": (f"{_DISTIL}.sa_layer_norm",),
        "encoder.layers.{n}.mlp.up": (f"{_DISTIL}.ffn.lin1",),
        "encoder.layers.{n}.mlp.down": (f"{_DISTIL}.ffn.lin2",),
        "encoder.layers.{n}.mlp_norm": (f"{_DISTIL}.output_layer_norm",),
    },
    heads=_heads(
        {"head": ("vocab_projector",), "head.dense": ("vocab_transform",), "head.norm": ("vocab_layer_norm",)},
        {},
        {"head.dense0": ("pre_classifier",), "head.out": ("classifier",)},
        token=_LABELS,
        span=_SPANS,
    ),
    copies={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
    classes=_classes("DistilBert", paired=False),
)

_MODERN = "model.layers.{n}"
_MODERN_LABELS: Rows = {"head.dense0": ("head.dense",), "head.norm0": ("head.norm",), "head.out": ("classifier",)}
MODERNBERT = Names(
    prefix="model.",
    encoder={
        "encoder.embed.tokens": ("model.embeddings.tok_embeddings",),
        "encoder.embed.norm": ("model.embeddings.norm",),
        "encoder.layers.{n}.attention.qkv": (f"{_MODERN}.attn.Wqkv",),
        "encoder.layers.{n}.attention.out": (f"{_MODERN}.attn.Wo",),
        "encoder.layers.{n}.attention_norm": (f"{_MODERN}.attn_norm",),
        "encoder.layers.{n}.mlp.up": (f"{_MODERN}.mlp.Wi",),
        "encoder.layers.{n}.mlp.down": (f"{_MODERN}.mlp.Wo",),
        "encoder.layers.{n}.mlp_norm": (f"{_MODERN}.mlp_norm",),
        "encoder.final_norm": ("model.final_norm",),
    },
    heads=_heads(
        {"head": ("decoder",), "head.dense": ("head.dense",), "head.norm": ("head.norm",)},
        {},
        _MODERN_LABELS,
        token=_MODERN_LABELS,
        span=_MODERN_LABELS,
    ),
    copies={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
    classes=_classes("ModernBert", paired=False),
)

ARCHITECTURES: Mapping[str, Names] = {
    "bert": BERT,
    "roberta": ROBERTA,
    "megatron-bert": MEGATRON_BERT,
    "distilbert": DISTILBERT,
    "modernbert": MODERNBERT,
}
