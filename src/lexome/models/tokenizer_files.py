"""The tokenizer in a model folder: every file that AutoTokenizer and older programs read."""

import json
import shutil
from pathlib import Path
from typing import Any

from lexome.corpus.vocab.tokenizers import SPECIAL_NAMES, TOKENIZER_FILE, load_tokenizer, special_by_name
from lexome.errors import CheckpointError

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
