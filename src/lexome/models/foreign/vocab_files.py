"""Tokenizer files in Hugging Face's form, made of bare vocabularies."""

import json
from typing import Any

from lexome.errors import CheckpointError

Settings = dict[str, Any]

# The files of a Hugging Face folder that belong to its tokenizer.
FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spm.model",
    "sentencepiece.bpe.model",
)

_BERT_SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
_ROBERTA_SPECIAL = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"}


def wordpiece_files(vocab: bytes, *, rows: int, longest: int, lower: bool | None = None) -> dict[str, bytes]:
    """The files of BERT's tokenizer for a vocab.txt; without `lower`, casing is read from the pieces."""
    ids = _wordpiece_ids(vocab, rows)
    if lower is None:
        lower = not any(piece != piece.lower() for piece in ids if not piece.startswith("["))
    tokenizer = _tokenizer(
        model={
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": ids,
        },
        added=[_added(ids[piece], piece) for piece in _BERT_SPECIAL.values()],
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
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": lower, "model_max_length": longest}
    return {
        "vocab.txt": vocab,
        "tokenizer.json": _json(tokenizer),
        "tokenizer_config.json": _json(settings | _named(_BERT_SPECIAL)),
    }


def byte_bpe_files(ids: dict[str, int], merges: list[str], *, longest: int) -> dict[str, bytes]:
    """The files of RoBERTa's tokenizer; `ids` has its special pieces too."""
    _check_byte_bpe(ids, merges)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = _tokenizer(
        model={
            "type": "BPE",
            "vocab": ids,
            "merges": merges,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
        },
        # The mask takes the space before it, so that it stands for a piece in the middle of a sentence.
        added=[_added(ids[piece], piece, lstrip=piece == "<mask>") for piece in _ROBERTA_SPECIAL.values()],
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
    settings = {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": False, "model_max_length": longest}
    named = _named(_ROBERTA_SPECIAL) | {"cls_token": "<s>", "sep_token": "</s>"}
    return {
        "vocab.json": _json(ids),
        "merges.txt": ("#version: 0.2\n" + "".join(f"{merge}\n" for merge in merges)).encode(),
        "tokenizer.json": _json(tokenizer),
        "tokenizer_config.json": _json(settings | named),
    }


def merge_rules(content: bytes, *, name: str) -> list[str]:
    """The merges of a vocab.bpe or merges.txt, without its heading."""
    lines = [line.removesuffix("\r") for line in _decoded(content, name).split("\n")]
    if lines and lines[0].startswith("#version"):
        del lines[0]
    merges = [line for line in lines if line]
    for merge in merges:
        if merge.count(" ") != 1:
            raise CheckpointError(f"{name}: {merge!r} is no merge of two pieces. Fetch the file again.")
    return merges


def without_lengths(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files of a tokenizer whose tokenizer.json neither cuts nor pads: many a sentence encoder's does, to 128."""
    if "tokenizer.json" not in files:
        return files
    try:
        tokenizer = json.loads(files["tokenizer.json"])
    except ValueError as error:
        raise CheckpointError(f"tokenizer.json is not JSON ({error}). Fetch the release again.") from None
    if not isinstance(tokenizer, dict):
        raise CheckpointError(f"tokenizer.json is a {type(tokenizer).__name__}; expected a tokenizer. Fetch it again.")
    return files | {"tokenizer.json": _json(tokenizer | {"truncation": None, "padding": None})}


def _wordpiece_ids(vocab: bytes, rows: int) -> dict[str, int]:
    pieces = _decoded(vocab, "vocab.txt").removesuffix("\n").split("\n")
    if len(pieces) > rows:
        raise CheckpointError(
            f"vocab.txt has {len(pieces):,} pieces, but the model has embeddings for {rows:,}. Use the model's own."
        )
    # A piece that is there twice gets its last id, as in every BERT tokenizer.
    ids = {piece.removesuffix("\r"): id_ for id_, piece in enumerate(pieces)}
    for piece in _BERT_SPECIAL.values():
        if piece not in ids:
            raise CheckpointError(f"vocab.txt has no {piece}; expected the vocabulary of a BERT. Use the model's own.")
    return ids


def _check_byte_bpe(ids: dict[str, int], merges: list[str]) -> None:
    for piece in _ROBERTA_SPECIAL.values():
        if piece not in ids:
            raise CheckpointError(f"the vocabulary has no {piece}; expected RoBERTa's. Use the model's own.")
    for merge in merges:
        left, _, right = merge.partition(" ")
        for piece in (left, right, left + right):
            if piece not in ids:
                raise CheckpointError(
                    f"the merge {merge!r} needs the piece {piece!r}, which the vocabulary does not have. "
                    "The merges are another model's; use its own."
                )


def _bert_template(cls_id: int, sep_id: int) -> Settings:
    def special(piece: str, segment: int) -> Settings:
        return {"SpecialToken": {"id": piece, "type_id": segment}}

    single = [special("[CLS]", 0), {"Sequence": {"id": "A", "type_id": 0}}, special("[SEP]", 0)]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}, special("[SEP]", 1)],
        "special_tokens": {
            piece: {"id": piece, "ids": [id_], "tokens": [piece]}
            for piece, id_ in (("[CLS]", cls_id), ("[SEP]", sep_id))
        },
    }


def _tokenizer(*, model: Settings, added: list[Settings], **parts: Settings | None) -> Settings:
    added = sorted(added, key=lambda token: int(token["id"]))
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, **parts, "model": model}


def _added(id_: int, piece: str, *, lstrip: bool = False) -> Settings:
    flags = {"single_word": False, "lstrip": lstrip, "rstrip": False, "normalized": False, "special": True}
    return {"id": id_, "content": piece, **flags}


def _named(special: dict[str, str]) -> Settings:
    return {f"{role}_token": piece for role, piece in special.items()}


def _decoded(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{name} is not UTF-8 ({error}). Fetch the file again.") from None


def _json(content: Settings) -> bytes:
    return json.dumps(content, ensure_ascii=False, indent=1).encode()
