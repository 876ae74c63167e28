"""fairseq's RoBERTa (bio-lm's original releases): model.pt, dict.txt, and GPT-2's encoder.json and vocab.bpe.

dict.txt lists the tokens by frequency, each as its id in encoder.json. So a token has two ids, and the model uses the
one from its line in dict.txt.
"""

import json
import re
from argparse import Namespace
from typing import Any

import torch

from lexome.errors import CheckpointError
from lexome.models.foreign.legacy_hf import flat_tensors, load_pickle
from lexome.models.foreign.release import (
    ForeignCheckpoint,
    Release,
    damaged_error,
    missing_weights_error,
    unknown_weights_error,
)
from lexome.models.hf_folder import byte_bpe_files, read_merges

LAYOUT = "fairseq"

# The first ids of every fairseq dictionary, before those of dict.txt; <mask> is the last.
_FIRST_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")

_BODY = r"(?:encoder|decoder)\.sentence_encoder\."
_HEAD = r"(?:encoder|decoder)\.lm_head\."
_LAYER = _BODY + r"layers\.(\d+)\."
_HF_LAYER = r"roberta.encoder.layer.\1."
_RENAMED = (
    (_BODY + r"embed_tokens\.weight", "roberta.embeddings.word_embeddings.weight"),
    (_BODY + r"embed_positions\.weight", "roberta.embeddings.position_embeddings.weight"),
    (_BODY + r"(?:emb_layer_norm|layernorm_embedding)\.(weight|bias)", r"roberta.embeddings.LayerNorm.\1"),
    (_LAYER + r"self_attn\.q_proj\.(weight|bias)", _HF_LAYER + r"attention.self.query.\2"),
    (_LAYER + r"self_attn\.k_proj\.(weight|bias)", _HF_LAYER + r"attention.self.key.\2"),
    (_LAYER + r"self_attn\.v_proj\.(weight|bias)", _HF_LAYER + r"attention.self.value.\2"),
    (_LAYER + r"self_attn\.out_proj\.(weight|bias)", _HF_LAYER + r"attention.output.dense.\2"),
    (_LAYER + r"self_attn_layer_norm\.(weight|bias)", _HF_LAYER + r"attention.output.LayerNorm.\2"),
    (_LAYER + r"fc1\.(weight|bias)", _HF_LAYER + r"intermediate.dense.\2"),
    (_LAYER + r"fc2\.(weight|bias)", _HF_LAYER + r"output.dense.\2"),
    (_LAYER + r"final_layer_norm\.(weight|bias)", _HF_LAYER + r"output.LayerNorm.\2"),
    (_HEAD + r"(dense|layer_norm)\.(weight|bias)", r"lm_head.\1.\2"),
    (_HEAD + r"bias", "lm_head.bias"),
    (_HEAD + r"weight", "lm_head.decoder.weight"),
)
_FUSED_QKV = re.compile(_LAYER + r"self_attn\.in_proj_(weight|bias)")
_BUFFERS = re.compile(_BODY + r"(?:version|embed_positions\._float_tensor)")

# fairseq's two names for gelu's tanh approximation.
_ACTIVATIONS = {"gelu_fast": "gelu_new", "gelu_accurate": "gelu_new"}

_EMBEDDINGS = "roberta.embeddings.word_embeddings.weight"
_POSITIONS = "roberta.embeddings.position_embeddings.weight"
_DECODER = "lm_head.decoder.weight"


def find_model(release: Release) -> str | None:
    """The file with the weights: the selected one, model.pt, the best one, or the only one; None without a dict.txt."""
    names = release.find("*.pt")
    if "dict.txt" not in release.names or not names:
        return None
    if release.selected is not None:
        return release.selected if release.selected in names else None
    for name in ("model.pt", "checkpoint_best.pt"):
        if name in names:
            return name
    if len(names) > 1:
        message = f"{release.path} has several checkpoints: {', '.join(names)}. Pass one of them instead of the folder."
        raise CheckpointError(message, code="ambiguous-checkpoint", value=names)
    return names[0]


def read(release: Release) -> ForeignCheckpoint:
    """The checkpoint, with fairseq's token ids."""
    name = find_model(release)
    assert name is not None  # detected by it
    where = release.where(name)
    saved = load_pickle(release, name)
    if not isinstance(saved, dict) or not isinstance(saved.get("model"), dict):
        message = f"{where}: no 'model' in it; expected a fairseq checkpoint."
        raise CheckpointError(message, code="not-weights", value=where)
    weights, left_out = _weights(flat_tensors(saved["model"], where=where), where)
    config = _config(_settings(saved), weights, where)
    if _DECODER in weights and torch.equal(weights[_DECODER], weights[_EMBEDDINGS]):
        del weights[_DECODER]
    config["tie_word_embeddings"] = _DECODER not in weights
    left_out += [key for key in saved if key not in ("model", "args", "cfg")]
    return ForeignCheckpoint(LAYOUT, config, weights, _tokenizer(release, weights), tuple(sorted(left_out)))


def _weights(saved: dict[str, torch.Tensor], where: str) -> tuple[dict[str, torch.Tensor], list[str]]:
    weights, left_out, unknown = {}, [], []
    for name, tensor in saved.items():
        fused = _FUSED_QKV.fullmatch(name)
        matches = (match.expand(new) for old, new in _RENAMED if (match := re.fullmatch(old, name)))
        key = next(matches, None)
        if fused and tensor.shape[0] % 3 == 0:
            for part, chunk in zip(("query", "key", "value"), tensor.chunk(3), strict=True):
                weights[f"roberta.encoder.layer.{fused[1]}.attention.self.{part}.{fused[2]}"] = chunk
        elif key is not None:
            weights[key] = tensor
        elif _BUFFERS.fullmatch(name):
            left_out.append(name)
        else:
            unknown.append(name)
    if unknown:
        raise unknown_weights_error(where, unknown, layout="fairseq's RoBERTa")
    for needed in (_EMBEDDINGS, _POSITIONS, "roberta.encoder.layer.0.intermediate.dense.weight"):
        if needed not in weights:
            raise missing_weights_error(where, needed, layout="RoBERTa")
    # fairseq has no segment embeddings; Hugging Face adds that of a single segment, so it is zero.
    weights["roberta.embeddings.token_type_embeddings.weight"] = torch.zeros_like(weights[_EMBEDDINGS][:1])
    return weights, left_out


def _settings(saved: dict[str, Any]) -> dict[str, Any]:
    """The training settings: `args` of old fairseq versions, `cfg` of new ones."""
    settings = saved.get("args")
    if settings is None and isinstance(saved.get("cfg"), dict):
        settings = saved["cfg"].get("model")
    if isinstance(settings, Namespace):
        return vars(settings)
    return settings if isinstance(settings, dict) else {}


def _config(settings: dict[str, Any], weights: dict[str, torch.Tensor], where: str) -> dict[str, Any]:
    rows, width = weights[_EMBEDDINGS].shape
    layers = {name.split(".")[3] for name in weights if name.startswith("roberta.encoder.layer.")}
    heads = settings.get("encoder_attention_heads")
    if heads is None and settings.get("arch", settings.get("_name")) in ("roberta_base", "roberta_large"):
        heads = width // 64
    if not isinstance(heads, int):
        message = f"{where}: no encoder_attention_heads and no known arch. Save it again with `args` or `cfg`."
        raise CheckpointError(message, code="missing-key", value="encoder_attention_heads")
    activation = settings.get("activation_fn", "gelu")
    return {
        "model_type": "roberta",
        "architectures": ["RobertaForMaskedLM" if "lm_head.bias" in weights else "RobertaModel"],
        "vocab_size": rows,
        "hidden_size": width,
        "num_hidden_layers": len(layers),
        "num_attention_heads": heads,
        "intermediate_size": weights["roberta.encoder.layer.0.intermediate.dense.weight"].shape[0],
        # Including the two rows that are reserved for padding, as in Hugging Face's checkpoints.
        "max_position_embeddings": weights[_POSITIONS].shape[0],
        "type_vocab_size": 1,
        "hidden_act": _ACTIVATIONS.get(activation, activation),
        "hidden_dropout_prob": settings.get("dropout", 0.1),
        "attention_probs_dropout_prob": settings.get("attention_dropout", 0.1),
        "layer_norm_eps": 1e-5,
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
    }


def _tokenizer(release: Release, weights: dict[str, torch.Tensor]) -> dict[str, bytes]:
    encoder = _first(release, ("encoder.json", "bpe-vocab.json", "*vocab.json"))
    bpe = _first(release, ("vocab.bpe", "bpe-merges.txt", "*merges.txt"))
    try:
        gpt2_ids: Any = json.loads(release.read(encoder))
        tokens = {str(id_): token for token, id_ in gpt2_ids.items()}
    except (ValueError, AttributeError) as error:
        raise damaged_error(release.where(encoder), f"not a vocabulary: {error}") from None
    ids = dictionary_ids(release.read("dict.txt"), tokens, where=release.where("dict.txt"))
    rows = weights[_EMBEDDINGS].shape[0]
    if len(ids) != rows:
        message = f"{release.where('dict.txt')}: {len(ids):,} tokens for {rows:,} embeddings. Use the model's own file."
        raise CheckpointError(message, code="vocabulary-mismatch", value=len(ids))
    merges = read_merges(release.read(bpe), name=bpe)
    return byte_bpe_files(ids, merges, max_tokens=weights[_POSITIONS].shape[0] - 2)


def dictionary_ids(content: bytes, tokens: dict[str, str], *, where: str) -> dict[str, int]:
    """The model's id of each token, from dict.txt and the tokens by their id in encoder.json."""
    ids = {token: id_ for id_, token in enumerate(_FIRST_TOKENS)}
    lines = content.decode("utf-8", errors="replace").removesuffix("\n").split("\n")
    for number, line in enumerate(lines, 1):
        symbol, _, count = line.removesuffix(" #fairseq:overwrite").rpartition(" ")
        # madeupword0000 and the like pad the table to a multiple of eight.
        token = tokens.get(symbol, symbol)
        if not count.isdecimal() or (symbol.isdecimal() and symbol not in tokens):
            message = f"{where}, line {number}: {line!r} is not a token of encoder.json. Use the model's own file."
            raise CheckpointError(message, code="unknown-token", value=line)
        if token in ids:
            message = f"{where}, line {number}: {token!r} is a duplicate. Download it again."
            raise CheckpointError(message, code="duplicate-token", value=token)
        ids[token] = len(ids)
    ids.setdefault("<mask>", len(ids))
    return ids


def _first(release: Release, patterns: tuple[str, ...]) -> str:
    for pattern in patterns:
        names = release.find(pattern)
        if names:
            return names[0]
    message = f"{release.path}: no {patterns[0]} beside dict.txt. Add that of the model, such as GPT-2's."
    raise CheckpointError(message, code="missing-file", value=patterns[0])
