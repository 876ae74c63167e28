"""The tokenizer files of a Hugging Face folder: found, copied, completed, and built from bare vocabularies."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lexome.corpus.vocab.tokenizers import SPECIAL_NAMES, TOKENIZER_FILE, load_tokenizer, special_by_name
from lexome.errors import CheckpointError
from lexome.models.hf_folder import write_json

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
        raise CheckpointError(
            f"{source}: the tokenizer's largest id is {max(ids.values())}, but the model has {vocab} embeddings. "
            "Use the tokenizer that the model was trained with.",
            code="vocabulary-mismatch",
            value=max(ids.values()),
        )
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
    raise CheckpointError(
        f"the tokenizer has neither {', '.join(bert)} nor {', '.join(roberta)}. "
        "Add a special_tokens_map.json beside it.",
        code="missing-special-tokens",
    )


def _contents(special: Settings) -> dict[str, str]:
    """The text of each special token, which files declare as a string or as an object."""
    texts = {key: token["content"] if isinstance(token, dict) else token for key, token in special.items()}
    return {key: text for key, text in texts.items() if isinstance(text, str)}


def _read_json(path: Path) -> Settings:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise CheckpointError(f"{path}: invalid JSON: {error}", code="not-json", value=path) from None
    return content if isinstance(content, dict) else {}


# Built from bare vocabularies

_BERT_SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
_ROBERTA_SPECIAL = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"}


def wordpiece_files(vocab: bytes, *, rows: int, max_tokens: int, lower: bool | None = None) -> dict[str, bytes]:
    """BERT's tokenizer files for a vocab.txt and a model with `rows` embeddings.

    If `lower` is None, the vocabulary decides: lower-casing unless one of its tokens has an upper-case letter.
    """
    ids = _wordpiece_ids(vocab, rows)
    if lower is None:
        lower = not any(token != token.lower() for token in ids if not token.startswith("["))
    tokenizer = _tokenizer_json(
        model={
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": ids,
        },
        added=[_added_token(ids[token], token) for token in _BERT_SPECIAL.values()],
        normalizer={
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": lower,
        },
        pre_tokenizer={"type": "BertPreTokenizer"},
        post_processor=_bert_template(ids["[CLS]"], ids["[SEP]"]),
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
    )
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": lower, "model_max_length": max_tokens}
    return {
        "vocab.txt": vocab,
        "tokenizer.json": _json_bytes(tokenizer),
        "tokenizer_config.json": _json_bytes(settings | {f"{role}_token": t for role, t in _BERT_SPECIAL.items()}),
    }


def byte_bpe_files(ids: dict[str, int], merges: list[str], *, max_tokens: int) -> dict[str, bytes]:
    """RoBERTa's tokenizer files; `ids` includes the special tokens."""
    _check_byte_bpe(ids, merges)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = _tokenizer_json(
        model={
            "type": "BPE",
            "vocab": ids,
            "merges": merges,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
        },
        # The mask absorbs the space before it, so that it stands for a word in the middle of a sentence.
        added=[_added_token(ids[token], token, lstrip=token == "<mask>") for token in _ROBERTA_SPECIAL.values()],
        normalizer=None,
        pre_tokenizer=byte_level,
        post_processor={
            "type": "RobertaProcessing",
            "sep": ["</s>", ids["</s>"]],
            "cls": ["<s>", ids["<s>"]],
            "trim_offsets": True,
            "add_prefix_space": False,
        },
        decoder=byte_level,
    )
    settings = {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": False, "model_max_length": max_tokens}
    special = {f"{role}_token": token for role, token in _ROBERTA_SPECIAL.items()}
    special |= {"cls_token": "<s>", "sep_token": "</s>"}
    return {
        "vocab.json": _json_bytes(ids),
        "merges.txt": ("#version: 0.2\n" + "".join(f"{merge}\n" for merge in merges)).encode(),
        "tokenizer.json": _json_bytes(tokenizer),
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
            raise CheckpointError(
                f"{name}: {merge!r} is not a merge of two tokens. Download the file again.",
                code="bad-merge",
                value=merge,
            )
    return merges


def without_truncation(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files with truncation and padding off in tokenizer.json: many sentence encoders have both, at 128 tokens."""
    if "tokenizer.json" not in files:
        return dict(files)
    try:
        tokenizer = json.loads(files["tokenizer.json"])
    except ValueError as error:
        raise CheckpointError(
            f"tokenizer.json is invalid JSON ({error}). Download the release again.",
            code="not-json",
            value="tokenizer.json",
        ) from None
    if not isinstance(tokenizer, dict):
        raise CheckpointError(
            f"tokenizer.json is a {type(tokenizer).__name__}; expected an object. Download it again.",
            code="not-json",
            value="tokenizer.json",
        )
    return {**files, "tokenizer.json": _json_bytes(tokenizer | {"truncation": None, "padding": None})}


def _wordpiece_ids(vocab: bytes, rows: int) -> dict[str, int]:
    tokens = _decode(vocab, "vocab.txt").removesuffix("\n").split("\n")
    if len(tokens) > rows:
        raise CheckpointError(
            f"vocab.txt has {len(tokens):,} tokens, but the model has {rows:,} embeddings. "
            "Use the vocabulary that the model was trained with.",
            code="vocabulary-mismatch",
            value=len(tokens),
        )
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
                raise CheckpointError(
                    f"the merge {merge!r} needs the token {token!r}, which is not in the vocabulary. "
                    "Use the merges that the model was trained with.",
                    code="bad-merge",
                    value=merge,
                )


def _check_special(ids: dict[str, int], special: dict[str, str], name: str) -> None:
    for token in special.values():
        if token not in ids:
            raise CheckpointError(
                f"{name} has no {token}; expected {', '.join(special.values())}. "
                "Use the vocabulary that the model was trained with.",
                code="missing-special-tokens",
                value=token,
            )


def _bert_template(cls_id: int, sep_id: int) -> Settings:
    def special(token: str, segment: int) -> Settings:
        return {"SpecialToken": {"id": token, "type_id": segment}}

    single = [special("[CLS]", 0), {"Sequence": {"id": "A", "type_id": 0}}, special("[SEP]", 0)]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}, special("[SEP]", 1)],
        "special_tokens": {
            token: {"id": token, "ids": [id_], "tokens": [token]}
            for token, id_ in (("[CLS]", cls_id), ("[SEP]", sep_id))
        },
    }


def _tokenizer_json(*, model: Settings, added: list[Settings], **parts: Settings | None) -> Settings:
    added = sorted(added, key=lambda token: int(token["id"]))
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, **parts, "model": model}


def _added_token(id_: int, token: str, *, lstrip: bool = False) -> Settings:
    flags = {"single_word": False, "lstrip": lstrip, "rstrip": False, "normalized": False, "special": True}
    return {"id": id_, "content": token, **flags}


def _decode(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(
            f"{name} is not UTF-8 ({error}). Download the file again.", code="not-utf8", value=name
        ) from None


def _json_bytes(content: Settings) -> bytes:
    return json.dumps(content, ensure_ascii=False, indent=1).encode()
