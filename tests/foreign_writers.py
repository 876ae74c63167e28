"""Tiny models, and writers of other frameworks' files: what the readers in lexome.models.foreign are tried on.

The tensor bundle is written here from its description, and shares nothing with the reader: checksums bit by bit,
keys that share prefixes, blocks cut small.
"""

import json
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForPreTraining,
    MegatronBertConfig,
    MegatronBertForPreTraining,
    PretrainedConfig,
    PreTrainedModel,
    RobertaConfig,
    RobertaForMaskedLM,
)

from lexome.corpus.vocab.tokenizers import bert_tokenizer
from lexome.models.foreign import ForeignCheckpoint

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "gene", "##s", "BRCA", "##1", "bind", "."]
SHAPE = {
    "vocab_size": 48,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 24,
}


def tiny(kind: type[PreTrainedModel], config: PretrainedConfig) -> PreTrainedModel:
    """A model whose every weight is random, norms and biases too, so that none can be mixed up with another."""
    torch.manual_seed(3)
    model = kind(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    return model


def tiny_bert() -> PreTrainedModel:
    return tiny(BertForPreTraining, BertConfig(**SHAPE))


def tiny_megatron() -> PreTrainedModel:
    return tiny(MegatronBertForPreTraining, MegatronBertConfig(**SHAPE, layer_norm_eps=1e-5))


def tiny_roberta(vocab_size: int) -> PreTrainedModel:
    config = RobertaConfig(**SHAPE | {"vocab_size": vocab_size, "type_vocab_size": 1, "layer_norm_eps": 1e-5})
    model = tiny(RobertaForMaskedLM, config)
    with torch.no_grad():
        model.roberta.embeddings.token_type_embeddings.weight.zero_()  # fairseq has none
    return model


def mpnet_tokenizer(*words: str) -> Tokenizer:
    """MPNet's form: BERT's pieces, of which most of the special ones are left over, between its own."""
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, "<mask>"]
    made = Tokenizer(models.WordPiece({piece: id_ for id_, piece in enumerate(pieces)}, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "[UNK]", "<mask>"])
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return made


def assert_same_logits(foreign: ForeignCheckpoint, expected: PreTrainedModel) -> None:
    """Load what was read into transformers, all of it, and compare every output."""
    kind = getattr(transformers, foreign.config["architectures"][0])
    config = kind.config_class(**foreign.config)
    assert config.model_type == foreign.config["model_type"]
    model = kind(config).eval()
    weights = {name: tensor.float() for name, tensor in foreign.weights.items()}
    report = model.load_state_dict(weights, strict=False)
    assert not report.unexpected_keys
    assert {name.rpartition(".")[0] for name in report.missing_keys} <= {"cls.predictions.decoder", "lm_head.decoder"}
    model.tie_weights()
    ids = torch.randint(5, expected.config.vocab_size, (3, 12), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        seen, wanted = model(ids, return_dict=True), expected(ids, return_dict=True)
    for name, logits in wanted.items():
        assert (seen[name] - logits).abs().max() < 1e-5, name
        assert logits.std() > 0.01


def state_of(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


# Google's


def google_folder(folder: Path, model: PreTrainedModel, **options: Any) -> Path:
    """BioBERT's own release of a model, with the optimizer's leavings."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = google_names(model)
    kernel = "bert/encoder/layer_0/output/dense/kernel"
    tensors |= {f"{kernel}/adam_m": tensors[kernel] * 0, f"{kernel}/adam_v": tensors[kernel] * 0}
    tensors["global_step"] = np.array(1_000_000, np.int64)
    write_bundle(folder / "model.ckpt-1000000", tensors, **options)
    (folder / "model.ckpt-1000000.meta").write_bytes(b"a graph")
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    settings = {name: getattr(model.config, name) for name in SHAPE}
    settings |= {"hidden_act": "gelu", "type_vocab_size": 2, "hidden_dropout_prob": 0.1, "initializer_range": 0.02}
    (folder / "bert_config.json").write_text(json.dumps(settings))
    return folder


def google_names(model: PreTrainedModel) -> dict[str, np.ndarray]:
    named = {}
    for name, tensor in state_of(model).items():
        array = tensor.numpy()
        if ".decoder." in name:
            continue
        if name.startswith("cls.seq_relationship"):
            named[name.replace("weight", "output_weights").replace("bias", "output_bias").replace(".", "/")] = array
        elif name == "cls.predictions.bias":
            named["cls/predictions/output_bias"] = array
        elif "_embeddings." in name:
            named[name.removesuffix(".weight").replace(".", "/")] = array
        elif "LayerNorm" in name:
            named[name.replace(".weight", ".gamma").replace(".bias", ".beta").replace(".", "/")] = array
        else:
            array = array.T if name.endswith("weight") else array
            named[name.replace(".weight", ".kernel").replace(".", "/")] = array
    return {name.replace("/layer/", "/layer_"): np.ascontiguousarray(array) for name, array in named.items()}


def write_bundle(stem: Path, tensors: dict[str, np.ndarray], *, shards: int = 1, packed: bool = False) -> None:
    """A tensor bundle: tensors dealt out to so many data files, and their index."""
    contents = [bytearray() for _ in range(shards)]
    entries = {b"": proto(1, shards) + proto(3, proto(1, 1))}
    for turn, (name, array) in enumerate(sorted(tensors.items())):
        content = contents[turn % shards]
        raw = array.tobytes()
        shape = b"".join(proto(2, proto(1, size)) for size in array.shape)
        dtype = {"float32": 1, "int64": 9}[str(array.dtype)]
        entry = (
            proto(1, dtype) + proto(2, shape) + proto(3, turn % shards) + proto(4, len(content)) + proto(5, len(raw))
        )
        entries[name.encode()] = entry + varint(6 << 3 | 5) + struct.pack("<I", masked(slow_crc32c(raw)))
        content += raw
    for number, content in enumerate(contents):
        Path(f"{stem}.data-{number:05d}-of-{shards:05d}").write_bytes(content)
    Path(f"{stem}.index").write_bytes(table(entries, packed=packed))


def table(entries: dict[bytes, bytes], *, packed: bool = False, per_block: int = 7) -> bytes:
    """A sorted table of LevelDB's, with blocks of a few entries."""
    out = bytearray()
    handles = {}
    keys = sorted(entries)
    for start in range(0, len(keys), per_block):
        chosen = keys[start : start + per_block]
        # A name between blocks has to sort after the last key and before the next: the last key itself always does.
        handles[chosen[-1]] = add_block(out, block({key: entries[key] for key in chosen}), packed=packed)
    meta = add_block(out, block({}), packed=False)
    index = add_block(out, block(handles), packed=packed)
    out += (meta + index).ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)
    return bytes(out)


def block(entries: dict[bytes, bytes], *, restart_every: int = 4) -> bytes:
    out, restarts, last = bytearray(), [], b""
    for turn, (key, content) in enumerate(sorted(entries.items())):
        shared = 0
        if turn % restart_every == 0:
            restarts.append(len(out))
        else:
            while shared < min(len(key), len(last)) and key[shared] == last[shared]:
                shared += 1
        out += varint(shared) + varint(len(key) - shared) + varint(len(content)) + key[shared:] + content
        last = key
    restarts = restarts or [0]
    return bytes(out) + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


def add_block(out: bytearray, content: bytes, *, packed: bool) -> bytes:
    """Append a block with its trailer; where it lies, as the table says it."""
    stored = pa.compress(content, codec="snappy", asbytes=True) if packed else content
    handle = varint(len(out)) + varint(len(stored))
    stored += b"\1" if packed else b"\0"
    out += stored + struct.pack("<I", masked(slow_crc32c(stored)))
    return handle


def proto(field: int, content: int | bytes) -> bytes:
    if isinstance(content, int):
        return varint(field << 3) + varint(content)
    return varint(field << 3 | 2) + varint(len(content)) + content


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def slow_crc32c(content: bytes) -> int:
    """The checksum by its definition, a bit at a time."""
    state = 0xFFFFFFFF
    for octet in content:
        state ^= octet
        for _ in range(8):
            state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF


def masked(checksum: int) -> int:
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


# fairseq's


def fairseq_names(model: PreTrainedModel, *, side: str = "encoder", packed: bool = False) -> dict[str, torch.Tensor]:
    words = {
        "roberta.embeddings.word_embeddings": "sentence_encoder.embed_tokens",
        "roberta.embeddings.position_embeddings": "sentence_encoder.embed_positions",
        "roberta.embeddings.LayerNorm": "sentence_encoder.emb_layer_norm",
        "roberta.encoder.layer": "sentence_encoder.layers",
        "attention.self.query": "self_attn.q_proj",
        "attention.self.key": "self_attn.k_proj",
        "attention.self.value": "self_attn.v_proj",
        "attention.output.dense": "self_attn.out_proj",
        "attention.output.LayerNorm": "self_attn_layer_norm",
        "intermediate.dense": "fc1",
        "output.dense": "fc2",
        "output.LayerNorm": "final_layer_norm",
        "lm_head.decoder.weight": "lm_head.weight",
    }
    named = {}
    for name, tensor in state_of(model).items():
        if "token_type" in name or name == "lm_head.decoder.bias":
            continue
        for theirs, fairseqs in words.items():
            name = name.replace(theirs, fairseqs)
        named[f"{side}.{name}"] = tensor
    if packed:
        for layer in range(model.config.num_hidden_layers):
            at = f"{side}.sentence_encoder.layers.{layer}.self_attn."
            for kind in ("weight", "bias"):
                named[f"{at}in_proj_{kind}"] = torch.cat([named.pop(f"{at}{part}_proj.{kind}") for part in "qkv"])
    return named


# Megatron's

BOTH = ("weight", "bias")


def megatron_ranks(
    model: PreTrainedModel, *, version: float, ranks: int = 1, newer: bool = False
) -> list[dict[str, Any]]:
    """The nested dictionaries of each rank, as Megatron would have them."""
    return [_Rank(model, int(version), ranks, rank).nested(newer=newer) for rank in range(ranks)]


class _Rank:
    """What one of several tensor-parallel ranks holds."""

    def __init__(self, model: PreTrainedModel, version: int, ranks: int, rank: int) -> None:
        self.state, self.shape = state_of(model), model.config
        self.version, self.ranks, self.rank = version, ranks, rank

    def part(self, name: str, dimension: int | None = None) -> torch.Tensor:
        tensor = self.state[name]
        return tensor if dimension is None else tensor.chunk(self.ranks, dimension)[self.rank].clone()

    def packed(self, layer: int, kind: str) -> torch.Tensor:
        at = f"bert.encoder.layer.{layer}.attention.self"
        qkv = [self.part(f"{at}.{name}.{kind}", 0) for name in ("query", "key", "value")]
        # Axes 3, heads, width, rest; then the order of rows that each version has.
        heads = self.shape.num_attention_heads // self.ranks
        stacked = torch.stack([tensor.reshape(heads, -1, *tensor.shape[1:]) for tensor in qkv])
        order = {0: (0, 1, 2), 1: (1, 2, 0), 2: (1, 0, 2)}[self.version]
        moved = stacked.permute(*order, *range(3, stacked.dim()))
        return moved.reshape(-1, *stacked.shape[3:]).contiguous()

    def layers(self, attention: str) -> dict[str, torch.Tensor]:
        named = {f"final_layernorm.{kind}": self.part(f"bert.encoder.ln.{kind}") for kind in BOTH}
        for layer in range(self.shape.num_hidden_layers):
            theirs, ours = f"layers.{layer}.", f"bert.encoder.layer.{layer}."
            for kind in BOTH:
                split = 1 if kind == "weight" else None
                named |= {
                    f"{theirs}input_layernorm.{kind}": self.part(f"{ours}attention.ln.{kind}"),
                    f"{theirs}{attention}.query_key_value.{kind}": self.packed(layer, kind),
                    f"{theirs}{attention}.dense.{kind}": self.part(f"{ours}attention.output.dense.{kind}", split),
                    f"{theirs}post_attention_layernorm.{kind}": self.part(f"{ours}ln.{kind}"),
                    f"{theirs}mlp.dense_h_to_4h.{kind}": self.part(f"{ours}intermediate.dense.{kind}", 0),
                    f"{theirs}mlp.dense_4h_to_h.{kind}": self.part(f"{ours}output.dense.{kind}", split),
                }
        return named

    def nested(self, *, newer: bool) -> dict[str, Any]:
        head = {"bias": self.part("cls.predictions.bias", 0)}
        for kind in BOTH:
            head[f"dense.{kind}"] = self.part(f"cls.predictions.transform.dense.{kind}")
            head[f"layernorm.{kind}"] = self.part(f"cls.predictions.transform.LayerNorm.{kind}")
        return {
            "language_model": {
                "embedding": {
                    "word_embeddings": {"weight": self.part("bert.embeddings.word_embeddings.weight", 0)},
                    "position_embeddings": {"weight": self.part("bert.embeddings.position_embeddings.weight")},
                    "tokentype_embeddings": {"weight": self.part("bert.embeddings.token_type_embeddings.weight")},
                },
                "encoder" if newer else "transformer": self.layers("self_attention" if newer else "attention"),
                "pooler": {f"dense.{kind}": self.part(f"bert.pooler.dense.{kind}") for kind in BOTH},
            },
            "lm_head": head,
            "binary_head": {kind: self.part(f"cls.seq_relationship.{kind}") for kind in BOTH},
        }


# ONNX


def onnx_folder(folder: Path, model: PreTrainedModel, *, graph: str = "onnx/model.onnx") -> Path:
    """An export by torch, as transformers.js has it, with a tokenizer that cuts and pads to eight tokens."""
    (folder / graph).parent.mkdir(parents=True)
    settings = json.loads(model.config.to_json_string()) | {"architectures": [type(model).__name__]}
    (folder / "config.json").write_text(json.dumps(settings))
    tokenizer = bert_tokenizer({piece: id_ for id_, piece in enumerate(PIECES)}, cased=True)
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(folder / "tokenizer.json"))
    export_onnx(model, folder / graph)
    return folder


def export_onnx(model: PreTrainedModel, path: Path) -> None:
    """The graph of a BERT for texts of any length, by the exporter that traces, which needs no other package."""
    names = ["input_ids", "attention_mask", "token_type_ids"]
    ids = torch.ones(2, 7, dtype=torch.long)
    model.config._attn_implementation = "eager"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _Positional(model).eval(),
            (ids, ids, ids * 0),
            path,
            input_names=names,
            dynamic_axes={name: {0: "batch", 1: "tokens"} for name in names},
            opset_version=17,
            dynamo=False,
        )


class _Positional(torch.nn.Module):
    """A model called with three arguments in order, whose weights keep their names."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        for name, part in model.named_children():
            setattr(self, name, part)
        self.called = [model]  # in a list, so that it is no part, and its weights are not named twice

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor) -> Any:
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}
        return self.called[0](**given, return_dict=False)
