"""The files of a Hugging Face model folder: config.json, and weights as safetensors or pickles, single or sharded."""

import hashlib
import json
import os
import pickle
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from lexome import files
from lexome.corpus.vocab.tokenizers import (
    SPECIAL_NAMES,
    TOKENIZER_FILE,
    bert_tokenizer,
    load_tokenizer,
    looks_cased,
    roberta_tokenizer,
    special_by_name,
)
from lexome.errors import CheckpointError
from lexome.recipe import made_by

SAFETENSORS = "model.safetensors"
PICKLE = "pytorch_model.bin"


def read_settings(folder: Path) -> dict[str, Any]:
    """The config.json of a folder."""
    path = folder / "config.json"
    if not path.is_file():
        # The output folder of a training run has the model in a subfolder, that of a fine-tuning one for each run.
        models = [folder / "model", *sorted(folder.glob("runs/*/model"))]
        nested = next((model for model in models if (model / "config.json").is_file()), None)
        hint = f"Did you mean {nested}?" if nested is not None else f"Check the path.{made_by(folder)}"
        message = f"{folder}: no config.json; expected a model folder. {hint}"
        raise CheckpointError(message, code="missing-file", value=path)
    settings: dict[str, Any] = files.read_json(path, remedy="Download it again.")
    return settings


# The name of a model on the Hugging Face Hub: with the organization, except for a few old ones.
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def find_checkpoint(path: Path, *, environment: Mapping[str, str] = os.environ) -> Path:
    """The folder of a checkpoint: the path itself, or for a name of the Hugging Face Hub its copy in the local cache.

    Nothing is downloaded: if there is neither the folder nor a copy in the cache, CheckpointError says how to get one.
    """
    name = path.as_posix()
    if path.exists() or path.is_absolute() or not _HUB_ID.fullmatch(name):
        return path
    home = Path(environment.get("HF_HOME") or Path(environment.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    cache = Path(environment.get("HF_HUB_CACHE") or home / "hub").expanduser()
    model = cache / f"models--{name.replace('/', '--')}"
    current = model / "refs" / "main"
    names = [current.read_text(encoding="utf-8").strip()] if current.is_file() else []
    snapshots = model / "snapshots"
    names += sorted(one.name for one in snapshots.iterdir()) if snapshots.is_dir() else []
    for snapshot in (snapshots / name for name in names if name):
        if (snapshot / "config.json").is_file() and has_weights(snapshot):
            return snapshot
    if hint := made_by(path):
        message = f"{path}: no such folder.{hint}"
    else:
        download = f"hf download {name} --local-dir checkpoints/{path.name}"
        message = (
            f"{name}: no such folder, and no such model in the Hugging Face cache {cache}. Check the path; a model of "
            f"the Hub is downloaded first, as by `{download}`, and then named by its folder."
        )
    raise CheckpointError(message, code="missing-folder", value=path)


def hub_name(folder: Path) -> str | None:
    """The name on the Hub of a snapshot in the Hugging Face cache; None for any other folder."""
    model = folder.parent.parent.name
    is_snapshot = folder.parent.name == "snapshots" and model.startswith("models--")
    return model.removeprefix("models--").replace("--", "/") if is_snapshot else None


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON with the indentation that transformers uses."""
    files.write_json(path, content, indent=2)


def has_weights(folder: Path) -> bool:
    """Whether a folder has weights that `read_weights` reads."""
    return any((folder / f"{name}{suffix}").is_file() for name in (SAFETENSORS, PICKLE) for suffix in ("", _INDEX))


def read_weights(folder: Path) -> dict[str, Tensor]:
    """The state dict of a folder; safetensors are preferred over pickles."""
    files, listed = _weight_files(folder)
    weights: dict[str, Tensor] = {}
    for path in files:
        weights.update(_read_file(path))
    lacking = sorted(listed - weights.keys())
    if lacking:
        message = f"{folder}: {len(lacking)} weights are in no shard, first {lacking[0]!r}."
        raise CheckpointError(message, code="missing-weights", value=lacking[0])
    return weights


def weights_sha256(folder: Path) -> str:
    """SHA-256 of the weights that `read_weights` reads: of the file, or of all shards in order."""
    digest = hashlib.sha256()
    for path in _weight_files(folder)[0]:
        with path.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def write_weights(weights: dict[str, Tensor], path: Path) -> None:
    """Write a state dict as one safetensors file; CheckpointError if the disk is full."""
    contiguous = {name: _own_storage(tensor.detach().cpu()) for name, tensor in weights.items()}
    # safetensors makes its file readable by the owner only; restore the mode that the umask gives.
    path.touch()
    mode = path.stat().st_mode
    try:
        # transformers requires the metadata.
        save_file(contiguous, path, metadata={"format": "pt"})
    except (SafetensorError, OSError) as error:
        message = f"{path}: cannot write the weights ({error}). Free disk space, then retry."
        raise CheckpointError(message, code="not-writable", value=path) from None
    path.chmod(mode)


def common_dtype(weights: Mapping[str, Tensor]) -> torch.dtype:
    """The dtype of all floating-point weights, or float32 if they differ."""
    dtypes = {tensor.dtype for tensor in weights.values() if tensor.is_floating_point()}
    return dtypes.pop() if len(dtypes) == 1 else torch.float32


_INDEX = ".index.json"


def _weight_files(folder: Path) -> tuple[list[Path], set[str]]:
    """The files with a folder's weights (one, or shards), and the weights that the index of the shards lists."""
    for name in (SAFETENSORS, PICKLE):
        if (folder / name).is_file():
            return [folder / name], set()
        index = folder / f"{name}{_INDEX}"
        if index.is_file():
            shard_of = _weight_map(index)
            return [folder / shard for shard in sorted(set(shard_of.values()))], set(shard_of)
    message = f"{folder}: no weights; expected {SAFETENSORS} or {PICKLE}, or shards."
    raise CheckpointError(message, code="missing-weights", value=folder)


def _weight_map(index: Path) -> dict[str, str]:
    """The shard of each weight; all shards exist."""
    try:
        shard_of: dict[str, str] = json.loads(index.read_bytes())["weight_map"]
    except (ValueError, KeyError, TypeError):
        raise CheckpointError(f"{index}: expected JSON with a weight_map.", code="not-json", value=index) from None
    for name in sorted(set(shard_of.values())):
        if Path(name).name != name:
            message = f"{index}: lists the file {name!r}; expected one in the same folder."
            raise CheckpointError(message, code="unsafe-path", value=name)
        if not (index.parent / name).is_file():
            message = f"{index.parent}: {name} is missing, which {index.name} lists. Add it."
            raise CheckpointError(message, code="missing-file", value=name)
    return shard_of


def _read_file(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except SafetensorError as error:
            message = f"{path}: damaged safetensors file ({error}). Download it again."
            raise CheckpointError(message, code="damaged-file", value=path) from None
    try:
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        reason = str(error).splitlines()[0]
        message = f"{path}: not only weights, or damaged ({reason}); no code was executed. Ask for safetensors."
        raise CheckpointError(message, code="unsafe-pickle", value=path) from None
    if not isinstance(state, dict) or not all(isinstance(tensor, Tensor) for tensor in state.values()):
        message = f"{path}: expected a state dict of tensors, got a {type(state).__name__}."
        raise CheckpointError(message, code="not-weights", value=path)
    return dict(state)


def _own_storage(tensor: Tensor) -> Tensor:
    """The tensor in storage of its own: safetensors refuses a view of a larger one."""
    whole = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    return tensor.contiguous() if whole else tensor.clone(memory_format=torch.contiguous_format)


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

Settings = dict[str, Any]


def tokenizer_files(folder: Path) -> tuple[Path, ...]:
    """The tokenizer files in a folder."""
    return tuple(folder / name for name in FILES if (folder / name).is_file())


def special_tokens(source: Path) -> dict[str, str]:
    """The special tokens of a tokenizer by role: {"cls_token": "<s>", "mask_token": "<mask>", ...}.

    Taken from the files beside it, or else recognized by name. Roles without a token are omitted.
    """
    tokenizer, folder = load_tokenizer(source), source if source.is_dir() else source.parent
    declared = _contents(_declared_special_tokens(folder))
    return special_by_name(tokenizer) | {
        role: token for role, token in declared.items() if tokenizer.token_to_id(token) is not None
    }


def write_tokenizer(source: Path, folder: Path, *, max_tokens: int, vocab: int) -> dict[str, int]:
    """Copy a tokenizer from a folder or a file and add the files it lacks; returns the ids of its special tokens.

    tokenizer.json is built if the source has only a vocabulary. A tokenizer with more tokens than the model has
    embeddings raises.
    """
    tokenizer = load_tokenizer(source)
    ids: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
    if max(ids.values()) >= vocab:
        message = f"{source}: {vocab} embeddings, but an id is {max(ids.values())}. Use the model's own tokenizer."
        raise CheckpointError(message, code="vocabulary-mismatch", value=max(ids.values()))
    for file in tokenizer_files(source if source.is_dir() else source.parent):
        shutil.copyfile(file, folder / file.name)
    if not (folder / TOKENIZER_FILE).exists():
        tokenizer.save(str(folder / TOKENIZER_FILE))
    special = _declared_special_tokens(folder) or _recognized_special_tokens(tokenizer)
    settings = {**special, **_read_json(folder / "tokenizer_config.json")}
    declared = settings.get("model_max_length")
    # transformers writes 10^30 for "no limit", but the model has one.
    settings["model_max_length"] = min(declared, max_tokens) if isinstance(declared, int) else max_tokens
    settings.setdefault("tokenizer_class", "PreTrainedTokenizerFast")
    write_json(folder / "tokenizer_config.json", settings)
    write_json(folder / "special_tokens_map.json", {**special, **_read_json(folder / "special_tokens_map.json")})
    return {role: ids[token] for role, token in _contents(special).items() if token in ids}


def _declared_special_tokens(folder: Path) -> Settings:
    """The special tokens that the files beside a tokenizer.json declare."""
    settings = _read_json(folder / "special_tokens_map.json") or _read_json(folder / "tokenizer_config.json")
    return {key: token for key, token in settings.items() if key.endswith("_token") and token}


def _recognized_special_tokens(tokenizer: Any) -> Settings:
    """The special tokens by the names that BERT or RoBERTa gives them."""
    special = special_by_name(tokenizer)
    if len(special) == len(SPECIAL_NAMES):
        return special | ({"bos_token": "<s>", "eos_token": "</s>"} if special["cls_token"] == "<s>" else {})
    bert, roberta = zip(*SPECIAL_NAMES.values(), strict=True)
    message = f"the tokenizer has neither {', '.join(bert)} nor {', '.join(roberta)}. Add a special_tokens_map.json."
    raise CheckpointError(message, code="missing-special-tokens")


def _contents(special: Settings) -> dict[str, str]:
    """The text of each special token, which files declare as a string or as an object."""
    texts = {key: token["content"] if isinstance(token, dict) else token for key, token in special.items()}
    return {key: text for key, text in texts.items() if isinstance(text, str)}


def _read_json(path: Path) -> Settings:
    settings: Settings = files.read_json(path, remedy="Download it again.") if path.is_file() else {}
    return settings


# Built from bare vocabularies

_BERT_SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
_ROBERTA_SPECIAL = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"}


def wordpiece_files(vocab: bytes, *, rows: int, max_tokens: int, lower: bool | None = None) -> dict[str, bytes]:
    """BERT's tokenizer files for a vocab.txt and a model with `rows` embeddings.

    If `lower` is None, it is inferred from the capital letters in the vocabulary.
    """
    ids = _wordpiece_ids(vocab, rows)
    if lower is None:
        lower = not looks_cased([token for token in ids if not token.startswith("[")])
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": lower, "model_max_length": max_tokens}
    special = {f"{role}_token": token for role, token in _BERT_SPECIAL.items()}
    return {
        "vocab.txt": vocab,
        "tokenizer.json": bert_tokenizer(ids, cased=not lower).to_str(pretty=True).encode(),
        "tokenizer_config.json": _json_bytes(settings | special),
    }


def byte_bpe_files(ids: dict[str, int], merges: list[str], *, max_tokens: int) -> dict[str, bytes]:
    """RoBERTa's tokenizer files; `ids` includes the special tokens."""
    from tokenizers.models import BPE

    _check_byte_bpe(ids, merges)
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    tokenizer = roberta_tokenizer(BPE(ids, pairs))
    settings = {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": False, "model_max_length": max_tokens}
    special = {f"{role}_token": token for role, token in _ROBERTA_SPECIAL.items()}
    special |= {"cls_token": "<s>", "sep_token": "</s>"}
    return {
        "vocab.json": _json_bytes(ids),
        "merges.txt": ("#version: 0.2\n" + "".join(f"{merge}\n" for merge in merges)).encode(),
        "tokenizer.json": tokenizer.to_str(pretty=True).encode(),
        "tokenizer_config.json": _json_bytes(settings | special),
    }


def read_merges(content: bytes, *, name: str) -> list[str]:
    """The merges of a vocab.bpe or merges.txt, without its header."""
    lines = [line.removesuffix("\r") for line in _decode(content, name).split("\n")]
    if lines and lines[0].startswith("#version"):
        del lines[0]
    merges = [line for line in lines if line]
    for merge in merges:
        if merge.count(" ") != 1:
            message = f"{name}: {merge!r} is not a merge of two tokens. Download it again."
            raise CheckpointError(message, code="bad-merge", value=merge)
    return merges


def without_truncation(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files with truncation and padding off in tokenizer.json: many sentence encoders have both, at 128 tokens."""
    if "tokenizer.json" not in files:
        return dict(files)
    try:
        tokenizer = json.loads(files["tokenizer.json"])
    except ValueError as error:
        message = f"tokenizer.json is invalid JSON ({error}). Download it again."
        raise CheckpointError(message, code="not-json", value="tokenizer.json") from None
    if not isinstance(tokenizer, dict):
        message = f"tokenizer.json is a {type(tokenizer).__name__}; expected an object."
        raise CheckpointError(message, code="not-json", value="tokenizer.json")
    return {**files, "tokenizer.json": _json_bytes(tokenizer | {"truncation": None, "padding": None})}


def _wordpiece_ids(vocab: bytes, rows: int) -> dict[str, int]:
    tokens = _decode(vocab, "vocab.txt").removesuffix("\n").split("\n")
    if len(tokens) > rows:
        message = f"vocab.txt has {len(tokens):,} tokens, the model {rows:,} embeddings. Use the model's own file."
        raise CheckpointError(message, code="vocabulary-mismatch", value=len(tokens))
    # A token that occurs twice gets its last id, as in every BERT tokenizer.
    ids = {token.removesuffix("\r"): id_ for id_, token in enumerate(tokens)}
    _check_special(ids, _BERT_SPECIAL, "vocab.txt")
    return ids


def _check_byte_bpe(ids: dict[str, int], merges: list[str]) -> None:
    _check_special(ids, _ROBERTA_SPECIAL, "the vocabulary")
    for merge in merges:
        left, _, right = merge.partition(" ")
        for token in (left, right, left + right):
            if token not in ids:
                message = f"the merge {merge!r} needs {token!r}, which is not in the vocabulary. Use the model's own."
                raise CheckpointError(message, code="bad-merge", value=merge)


def _check_special(ids: dict[str, int], special: dict[str, str], name: str) -> None:
    for token in special.values():
        if token not in ids:
            message = f"{name} has no {token}; expected {', '.join(special.values())}. Use the model's own vocabulary."
            raise CheckpointError(message, code="missing-special-tokens", value=token)


def _decode(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"{name} is not UTF-8 ({error}). Download the file again."
        raise CheckpointError(message, code="not-utf8", value=name) from None


def _json_bytes(content: Settings) -> bytes:
    return json.dumps(content, ensure_ascii=False, indent=1).encode()
