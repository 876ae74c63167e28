"""The weights in a model folder: safetensors, whole or in pieces, and pickles read without running what is in them."""

import hashlib
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from lexome.corpus.vocab.tokenizers import SPECIAL_NAMES, TOKENIZER_FILE, load_tokenizer, special_by_name
from lexome.errors import CheckpointError

SAFE = "model.safetensors"
PICKLED = "pytorch_model.bin"


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Every weight in the folder by its name there. Safetensors are preferred where both forms lie."""
    for name in (SAFE, PICKLED):
        if (folder / name).is_file():
            return _read_file(folder / name)
        index = folder / f"{name}.index.json"
        if index.is_file():
            return _read_pieces(index)
    raise CheckpointError(
        f"{folder}: there are no weights; expected {SAFE} or {PICKLED}, whole or with an index. "
        "Releases in TensorFlow's, fairseq's or Megatron's form have readers of their own."
    )


def weights_sha256(folder: Path) -> str:
    """The hash of the weights that `read_weights` reads: of their file, or of all pieces one after the other."""
    found = hashlib.sha256()
    for path in _files(folder):
        with path.open("rb") as stream:
            while block := stream.read(1 << 20):
                found.update(block)
    return found.hexdigest()


def _files(folder: Path) -> list[Path]:
    """The files that hold a folder's weights: one, or the pieces that an index names."""
    for name in (SAFE, PICKLED):
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            return [folder / piece for piece in sorted(set(_piece_of(index).values()))]
    raise CheckpointError(f"{folder}: there are no weights; expected {SAFE} or {PICKLED}, whole or with an index.")


def write_weights(weights: dict[str, Tensor], path: Path) -> None:
    """One safetensors file, on which transformers relies for the form "pt"; CheckpointError where the disk is full."""
    apart = {name: _apart(tensor.detach().cpu()) for name, tensor in weights.items()}
    # The library lets nobody but the owner read its file; as any other, it is for whom the umask says.
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(apart, path, metadata={"format": "pt"})
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: the weights could not be written ({error}). Make room and try again.") from None
    path.chmod(mode)


def _apart(tensor: Tensor) -> Tensor:
    """The tensor in memory of its own: the library refuses a part of a larger one."""
    whole = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    return tensor.contiguous() if whole else tensor.clone(memory_format=torch.contiguous_format)


def _read_pieces(index: Path) -> dict[str, Tensor]:
    where = _piece_of(index)
    weights: dict[str, Tensor] = {}
    for name in sorted(set(where.values())):
        weights.update(_read_file(index.parent / name))
    lacking = sorted(where.keys() - weights.keys())
    if lacking:
        raise CheckpointError(f"{index}: {len(lacking)} weights are in no piece, first {lacking[0]!r}.")
    return weights


def _piece_of(index: Path) -> dict[str, str]:
    """The piece that each weight is in, by an index, all of whose pieces are there."""
    try:
        where: dict[str, str] = json.loads(index.read_bytes())["weight_map"]
    except (ValueError, KeyError, TypeError):
        raise CheckpointError(f"{index}: expected JSON with a weight_map.") from None
    for name in sorted(set(where.values())):
        if Path(name).name != name:
            raise CheckpointError(f"{index}: names a file {name!r}; expected one in the same folder.")
        if not (index.parent / name).is_file():
            raise CheckpointError(f"{index.parent}: {name} is missing, which {index.name} names. Fetch it again.")
    return where


def _read_file(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except SafetensorError as error:
            raise CheckpointError(f"{path}: not a whole safetensors file ({error}). Fetch it again.") from None
    return _unpickled(path)


def _unpickled(path: Path) -> dict[str, Tensor]:
    try:
        held: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise CheckpointError(
            f"{path}: holds more than weights, or is damaged ({str(error).splitlines()[0]}). Lexome never runs what is "
            "in a pickle. Have its maker write safetensors."
        ) from None
    if not isinstance(held, dict) or not all(isinstance(tensor, Tensor) for tensor in held.values()):
        raise CheckpointError(f"{path}: expected names and weights, seen a {type(held).__name__} of something else.")
    return dict(held)


FILES = (
    TOKENIZER_FILE,
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    "spm.model",
    "tokenizer.model",
    "sentencepiece.bpe.model",
    "added_tokens.json",
    "special_tokens_map.json",
    "tokenizer_config.json",
)


def tokenizer_files(folder: Path) -> tuple[Path, ...]:
    """The tokenizer's files that lie in a folder."""
    return tuple(folder / name for name in FILES if (folder / name).is_file())


def special_tokens(source: Path) -> dict[str, str]:
    """The special pieces of a tokenizer by what they do: {"cls_token": "<s>", "mask_token": "<mask>", ...}.

    The files beside it say which, or else their names. What it has no piece for is left out.
    """
    tokenizer, folder = load_tokenizer(source), source if source.is_dir() else source.parent
    stated = {
        role: piece for role, piece in _texts(_stated(folder)).items() if tokenizer.token_to_id(piece) is not None
    }
    return special_by_name(tokenizer) | stated


def write_tokenizer(source: Path, folder: Path, *, max_tokens: int, vocab: int) -> dict[str, int]:
    """Copy a tokenizer from a folder or a file and fill in what is missing; the ids of its special tokens.

    tokenizer.json is made where only a vocabulary is given. A tokenizer with more pieces than the model has
    embeddings is refused.
    """
    tokenizer = load_tokenizer(source)
    pieces: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
    if max(pieces.values()) >= vocab:
        raise CheckpointError(
            f"{source}: the tokenizer goes up to id {max(pieces.values())}, but the model has {vocab} embeddings. "
            "Give the tokenizer the model was trained with."
        )
    for file in tokenizer_files(source if source.is_dir() else source.parent):
        shutil.copyfile(file, folder / file.name)
    if not (folder / TOKENIZER_FILE).exists():
        tokenizer.save(str(folder / TOKENIZER_FILE))
    special = _special(folder, tokenizer)
    settings = {**special, **_json(folder / "tokenizer_config.json")}
    stated = settings.get("model_max_length")
    # transformers writes 10^30 for "no limit", which the model has.
    settings["model_max_length"] = min(stated, max_tokens) if isinstance(stated, int) else max_tokens
    settings.setdefault("tokenizer_class", "PreTrainedTokenizerFast")
    _write(folder / "tokenizer_config.json", settings)
    _write(folder / "special_tokens_map.json", {**special, **_json(folder / "special_tokens_map.json")})
    return {name: pieces[text] for name, text in _texts(special).items() if text in pieces}


def _special(folder: Path, tokenizer: Any) -> dict[str, Any]:
    """The special tokens as the companions say, or by the names both families give them."""
    named = _stated(folder)
    if named:
        return named
    found = special_by_name(tokenizer)
    if len(found) == len(SPECIAL_NAMES):
        return found | ({"bos_token": "<s>", "eos_token": "</s>"} if found["cls_token"] == "<s>" else {})
    bert, roberta = zip(*SPECIAL_NAMES.values(), strict=True)
    raise CheckpointError(
        f"the tokenizer has neither {', '.join(bert)} nor {', '.join(roberta)}. "
        "Put a special_tokens_map.json beside it."
    )


def _stated(folder: Path) -> dict[str, Any]:
    """The special tokens that the files beside a tokenizer.json name."""
    stated = _json(folder / "special_tokens_map.json") or _json(folder / "tokenizer_config.json")
    return {key: held for key, held in stated.items() if key.endswith("_token") and held}


def _texts(special: dict[str, Any]) -> dict[str, str]:
    texts = {key: held["content"] if isinstance(held, dict) else held for key, held in special.items()}
    return {key: text for key, text in texts.items() if isinstance(text, str)}


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        held = json.loads(path.read_bytes())
    except ValueError as error:
        raise CheckpointError(f"{path}: not JSON: {error}") from None
    return held if isinstance(held, dict) else {}


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
