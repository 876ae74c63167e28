"""fairseq's RoBERTa: bio-lm's own releases. model.pt, dict.txt, and GPT-2's encoder.json and vocab.bpe.

dict.txt orders the pieces by how often they were seen, and gives each by the number it has in encoder.json. So a
piece has two numbers, and the model knows only the one of its line in dict.txt.
"""

import json
import re
from argparse import Namespace
from typing import Any

import torch

from lexome.errors import CheckpointError
from lexome.models.foreign.legacy_hf import flat_tensors, load_pickle
from lexome.models.foreign.release import ForeignCheckpoint, Release, missing_weights_error, unknown_weights_error
from lexome.models.tokenizer_files import byte_bpe_files, read_merges

LAYOUT = "fairseq"

# Before the first line of dict.txt, in every dictionary of fairseq; <mask> comes after the last.
_FIRST = ("<s>", "<pad>", "</s>", "<unk>")

_BODY = r"(?:encoder|decoder)\.sentence_encoder\."
_HEAD = r"(?:encoder|decoder)\.lm_head\."
_RENAMED = (
    (_BODY + r"embed_tokens\.weight", "roberta.embeddings.word_embeddings.weight"),
    (_BODY + r"embed_positions\.weight", "roberta.embeddings.position_embeddings.weight"),
    (_BODY + r"(?:emb_layer_norm|layernorm_embedding)\.(weight|bias)", r"roberta.embeddings.LayerNorm.\1"),
    (_BODY + r"layers\.(\d+)\.self_attn\.q_proj\.(weight|bias)", r"roberta.encoder.layer.\1.attention.self.query.\2"),
    (_BODY + r"layers\.(\d+)\.self_attn\.k_proj\.(weight|bias)", r"roberta.encoder.layer.\1.attention.self.key.\2"),
    (_BODY + r"layers\.(\d+)\.self_attn\.v_proj\.(weight|bias)", r"roberta.encoder.layer.\1.attention.self.value.\2"),
    (
        _BODY + r"layers\.(\d+)\.self_attn\.out_proj\.(weight|bias)",
        r"roberta.encoder.layer.\1.attention.output.dense.\2",
    ),
    (
        _BODY + r"layers\.(\d+)\.self_attn_layer_norm\.(weight|bias)",
        r"roberta.encoder.layer.\1.attention.output.LayerNorm.\2",
    ),
    (_BODY + r"layers\.(\d+)\.fc1\.(weight|bias)", r"roberta.encoder.layer.\1.intermediate.dense.\2"),
    (_BODY + r"layers\.(\d+)\.fc2\.(weight|bias)", r"roberta.encoder.layer.\1.output.dense.\2"),
    (_BODY + r"layers\.(\d+)\.final_layer_norm\.(weight|bias)", r"roberta.encoder.layer.\1.output.LayerNorm.\2"),
    (_HEAD + r"(dense|layer_norm)\.(weight|bias)", r"lm_head.\1.\2"),
    (_HEAD + r"bias", "lm_head.bias"),
    (_HEAD + r"weight", "lm_head.decoder.weight"),
)
_PACKED = re.compile(_BODY + r"layers\.(\d+)\.self_attn\.in_proj_(weight|bias)")
_BUFFERS = re.compile(_BODY + r"(?:version|embed_positions\._float_tensor)")

# fairseq's two names for the approximation of gelu by tanh.
_ACTIVATIONS = {"gelu_fast": "gelu_new", "gelu_accurate": "gelu_new"}

_EMBEDDINGS = "roberta.embeddings.word_embeddings.weight"
_POSITIONS = "roberta.embeddings.position_embeddings.weight"
_DECODER = "lm_head.decoder.weight"


def find_model(release: Release) -> str | None:
    """The file of weights: the one named, model.pt, the best one, or the only one; None without a dict.txt."""
    found = release.find("*.pt")
    if "dict.txt" not in release.names or not found:
        return None
    if release.chosen is not None:
        return release.chosen if release.chosen in found else None
    for name in ("model.pt", "checkpoint_best.pt"):
        if name in found:
            return name
    if len(found) > 1:
        raise CheckpointError(f"{release.path} has {', '.join(found)}. Name one of them instead of the folder.")
    return found[0]


def read(release: Release) -> ForeignCheckpoint:
    """The checkpoint, with fairseq's numbers for the pieces."""
    name = find_model(release)
    assert name is not None  # detected by it
    where = release.where(name)
    saved = load_pickle(release, name)
    if not isinstance(saved, dict) or not isinstance(saved.get("model"), dict):
        raise CheckpointError(f"{where}: no 'model' in it; expected a checkpoint of fairseq. Check the file.")
    weights, left_out = _weights(flat_tensors(saved["model"], where=where), where)
    config = _config(_settings(saved), weights, where)
    if _DECODER in weights and torch.equal(weights[_DECODER], weights[_EMBEDDINGS]):
        del weights[_DECODER]
    config["tie_word_embeddings"] = _DECODER not in weights
    left_out += [key for key in saved if key not in ("model", "args", "cfg")]
    return ForeignCheckpoint(LAYOUT, config, weights, _tokenizer(release, weights), tuple(sorted(left_out)))


def _weights(saved: dict[str, torch.Tensor], where: str) -> tuple[dict[str, torch.Tensor], list[str]]:
    weights, left_out, strange = {}, [], []
    for name, tensor in saved.items():
        packed = _PACKED.fullmatch(name)
        ours = _hf_name(name)
        if packed and tensor.shape[0] % 3 == 0:
            for part, third in zip(("query", "key", "value"), tensor.chunk(3), strict=True):
                weights[f"roberta.encoder.layer.{packed[1]}.attention.self.{part}.{packed[2]}"] = third
        elif ours is not None:
            weights[ours] = tensor
        elif _BUFFERS.fullmatch(name):
            left_out.append(name)
        else:
            strange.append(name)
    if strange:
        raise unknown_weights_error(where, strange, layout="fairseq's RoBERTa")
    for needed in (_EMBEDDINGS, _POSITIONS, "roberta.encoder.layer.0.intermediate.dense.weight"):
        if needed not in weights:
            raise missing_weights_error(where, needed, layout="RoBERTa of fairseq")
    # fairseq has no segments; Hugging Face adds the vector of the only one, so it is zero.
    width = weights[_EMBEDDINGS].shape[1]
    segments = torch.zeros(1, width, dtype=weights[_EMBEDDINGS].dtype)
    weights["roberta.embeddings.token_type_embeddings.weight"] = segments
    return weights, left_out


def _hf_name(name: str) -> str | None:
    for pattern, renamed in _RENAMED:
        match = re.fullmatch(pattern, name)
        if match:
            return match.expand(renamed)
    return None


def _settings(saved: dict[str, Any]) -> dict[str, Any]:
    """What the training was asked for: `args` of the old fairseq, `cfg` of the new one."""
    asked = saved.get("args")
    if asked is None and isinstance(saved.get("cfg"), dict):
        asked = saved["cfg"].get("model")
    if isinstance(asked, Namespace):
        return vars(asked)
    return asked if isinstance(asked, dict) else {}


def _config(settings: dict[str, Any], weights: dict[str, torch.Tensor], where: str) -> dict[str, Any]:
    rows, width = weights[_EMBEDDINGS].shape
    layers = {name.split(".")[3] for name in weights if name.startswith("roberta.encoder.layer.")}
    heads = settings.get("encoder_attention_heads")
    if heads is None and settings.get("arch", settings.get("_name")) in ("roberta_base", "roberta_large"):
        heads = width // 64
    if not isinstance(heads, int):
        raise CheckpointError(
            f"{where}: neither encoder_attention_heads nor a known arch in its settings, so the number of heads is "
            "unknown. Save it again with `args` or `cfg`."
        )
    activation = settings.get("activation_fn", "gelu")
    return {
        "model_type": "roberta",
        "architectures": ["RobertaForMaskedLM" if "lm_head.bias" in weights else "RobertaModel"],
        "vocab_size": rows,
        "hidden_size": width,
        "num_hidden_layers": len(layers),
        "num_attention_heads": heads,
        "intermediate_size": weights["roberta.encoder.layer.0.intermediate.dense.weight"].shape[0],
        # The first two rows are padding's and are never a token's, as in Hugging Face's own tables.
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
        numbers: Any = json.loads(release.read(encoder))
        pieces = {str(number): piece for piece, number in numbers.items()}
    except (ValueError, AttributeError) as error:
        raise CheckpointError(f"{release.where(encoder)}: no table of pieces ({error}). Fetch it again.") from None
    ids = dictionary_ids(release.read("dict.txt"), pieces, where=release.where("dict.txt"))
    rows = weights[_EMBEDDINGS].shape[0]
    if len(ids) != rows:
        raise CheckpointError(
            f"{release.where('dict.txt')} makes {len(ids):,} pieces, but the model has {rows:,}. Use the model's own."
        )
    longest = weights[_POSITIONS].shape[0] - 2
    return byte_bpe_files(ids, read_merges(release.read(bpe), name=bpe), max_tokens=longest)


def dictionary_ids(content: bytes, pieces: dict[str, str], *, where: str) -> dict[str, int]:
    """The model's number of each piece, from dict.txt and the pieces by their number in encoder.json."""
    ids = {piece: id_ for id_, piece in enumerate(_FIRST)}
    lines = content.decode("utf-8", errors="replace").removesuffix("\n").split("\n")
    for number, line in enumerate(lines, 1):
        symbol, _, count = line.removesuffix(" #fairseq:overwrite").rpartition(" ")
        # madeupword0000 and its like only fill the table up to a multiple of eight.
        piece = pieces.get(symbol, symbol)
        if not count.isdecimal() or (symbol.isdecimal() and symbol not in pieces):
            raise CheckpointError(
                f"{where}, line {number}: {line!r} names no piece of encoder.json. "
                "Use the encoder.json that the model was trained with."
            )
        if piece in ids:
            raise CheckpointError(f"{where}, line {number}: {piece!r} is there a second time. Fetch the file again.")
        ids[piece] = len(ids)
    ids.setdefault("<mask>", len(ids))
    return ids


def _first(release: Release, patterns: tuple[str, ...]) -> str:
    for pattern in patterns:
        found = release.find(pattern)
        if found:
            return found[0]
    raise CheckpointError(
        f"{release.path}: no {patterns[0]} beside dict.txt, so text cannot be turned into its pieces. "
        "Add the encoder.json and vocab.bpe that the model was trained with; GPT-2's, unless it has its own."
    )
