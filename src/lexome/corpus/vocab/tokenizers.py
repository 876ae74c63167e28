"""Loading tokenizers: from a folder, tokenizer.json, vocab.txt, or GPT-2's pair of files."""

import hashlib
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from lexome.corpus.vocab.algorithms import bert_tokenizer, roberta_tokenizer
from lexome.errors import FormatError, MissingExtraError

TOKENIZER_FILE = "tokenizer.json"

# The names of GPT-2's two files, vocabulary and merges; also with a prefix, as in gpt2.vocab.bpe.
PAIRS = (("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt"))

# The special tokens of BERT and RoBERTa, by role.
SPECIAL_NAMES = {
    "unk_token": ("[UNK]", "<unk>"),
    "sep_token": ("[SEP]", "</s>"),
    "pad_token": ("[PAD]", "<pad>"),
    "cls_token": ("[CLS]", "<s>"),
    "mask_token": ("[MASK]", "<mask>"),
}


def tokenizer_sha256(path: Path) -> str:
    """The identity of a tokenizer: SHA-256 of its tokenizer.json."""
    file = path / TOKENIZER_FILE if path.is_dir() else path
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise FormatError(f"{file}: cannot be read ({error.strerror}); expected a tokenizer folder.") from error


def load_tokenizer(path: Path, *, cased: bool | None = None) -> Any:
    """A tokenizers.Tokenizer from a tokenizer folder or a single file of any known kind.

    Whether a vocab.txt is cased is inferred from its capital letters unless given.
    """
    if not path.exists():
        raise FormatError(f"{path}: no such file or folder. Check the path.", code="missing-file", value=path)
    file = _file_of(path)
    try:
        if file.suffix == ".txt" and file.name != "merges.txt" and not file.name.endswith(".merges.txt"):
            return _from_vocab_txt(file, cased)
        partner = _partner(file)
        return _from_json(file) if partner is None else _from_pair(*partner)
    except MissingExtraError:
        raise
    except Exception as error:  # the library raises bare Exception
        raise FormatError(f"{file}: not a readable tokenizer ({error}).", code="bad-tokenizer", value=file) from error


def _file_of(path: Path) -> Path:
    if not path.is_dir():
        return path
    for name in (TOKENIZER_FILE, "vocab.txt", "vocab.json", "encoder.json"):
        if (path / name).is_file():
            return path / name
    message = f"{path}: has none of {TOKENIZER_FILE}, vocab.txt, vocab.json and encoder.json."
    raise FormatError(message, code="missing-tokenizer", value=path)


def _partner(file: Path) -> tuple[Path, Path] | None:
    """GPT-2's two files, if this is one of them."""
    for pair in PAIRS:
        for name in pair:
            if file.name == name or file.name.endswith(f".{name}"):
                prefix = file.name.removesuffix(name)
                vocabulary, merges = (file.with_name(prefix + part) for part in pair)
                return vocabulary, merges
    return None


def _from_json(file: Path) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise MissingExtraError("tokenizers", extra="corpus", purpose="reading a tokenizer") from None
    tokenizer = Tokenizer.from_file(str(file))
    # A stored length limit would truncate texts.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _from_vocab_txt(file: Path, cased: bool | None) -> Any:
    pieces = file.read_text(encoding="utf-8").rstrip("\n").split("\n")
    vocabulary = {piece.rstrip("\r"): number for number, piece in enumerate(pieces)}
    if "[UNK]" not in vocabulary:
        raise ValueError("no piece [UNK] among its lines; expected a WordPiece vocabulary, one piece a line")
    return bert_tokenizer(vocabulary, cased=cased if cased is not None else looks_cased(vocabulary))


def looks_cased(pieces: Collection[str]) -> bool:
    """Whether more than 1% of the pieces have a capital letter.

    BERT's cased vocabulary has 28%. Uncased ones have some too: the special tokens, and 42 of SciBERT's 31,090 pieces.
    """
    return sum(piece != piece.lower() for piece in pieces) > len(pieces) / 100


def _from_pair(vocabulary: Path, merges: Path) -> Any:
    from tokenizers.models import BPE

    pieces = json.loads(vocabulary.read_text(encoding="utf-8"))
    lines = merges.read_text(encoding="utf-8").split("\n")
    pairs = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    return roberta_tokenizer(BPE(pieces, [(left, right) for left, right in pairs]))


def vocab_size(tokenizer: Any) -> int:
    """Rows of the embedding matrix: the highest id plus one, which exceeds the pieces where ids are skipped."""
    return max(tokenizer.get_vocab().values(), default=-1) + 1


def unknown_id(tokenizer: Any) -> int | None:
    """The id of the unknown token; None where the vocabulary covers everything."""
    for token in ("[UNK]", "<unk>"):
        if (number := tokenizer.token_to_id(token)) is not None:
            return int(number)
    return None


def special_by_name(tokenizer: Any) -> dict[str, str]:
    """The special tokens of a tokenizer by role.

    Where it has both names of a role, the one marked special counts: MPNet has an untrained [CLS] beside its <s>.
    """
    special = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
    found = {}
    for role, names in SPECIAL_NAMES.items():
        there = [name for name in names if tokenizer.token_to_id(name) is not None]
        if there:
            found[role] = min(there, key=lambda name: name not in special)
    unknown = getattr(tokenizer.model, "unk_token", None)
    if unknown is not None and tokenizer.token_to_id(unknown) is not None:
        found["unk_token"] = unknown
    return found


def special_token_template(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None:
    """The ids that a tokenizer adds before, between and after two texts; None where it adds none."""
    found = tokenizer.encode("a", "a")
    marks = list(found.special_tokens_mask)
    texts = [place for place, special in enumerate(marks) if not special]
    cut = next((place for place in range(texts[0], texts[-1]) if marks[place]), None) if texts else None
    if cut is None:
        return None
    again = next(place for place in texts if place > cut)
    ids = found.ids
    return tuple(ids[: texts[0]]), tuple(ids[cut:again]), tuple(ids[texts[-1] + 1 :])
