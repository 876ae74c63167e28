"""Word boundaries from a tokenizer's vocabulary, for whole-word masking of packed batches, which have only ids."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from lexome.errors import UsageError

Bools = NDArray[np.bool_]
PieceKind = Literal["wordpiece", "byte-level", "sentencepiece"]

# The alphabet of byte-level BPE: a byte that Latin-1 shows is its own character, the others are U+0100 and on.
_SHOWN = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_BYTES = {chr(0x100 + place): byte for place, byte in enumerate(sorted(set(range(256)) - set(_SHOWN)))}
_BYTES |= {chr(byte): byte for byte in _SHOWN}
_BLANKS = tuple(character for character, byte in _BYTES.items() if byte in b"\t\n\v\f\r ")
_BREAKS = tuple(character for character in _BLANKS if _BYTES[character] != ord(" "))


def piece_kind(tokenizer: Mapping[str, Any]) -> PieceKind:
    """How the vocabulary of a tokenizer.json (as a dict) marks the start of words."""
    model = tokenizer["model"]
    steps = {step["type"] for part in ("pre_tokenizer", "decoder", "normalizer") for step in _steps(tokenizer, part)}
    prefix = model.get("continuing_subword_prefix")
    if prefix == "##" and model["type"] in ("WordPiece", "BPE"):
        return "wordpiece"
    if not prefix and not model.get("end_of_word_suffix") and model["type"] in ("BPE", "Unigram"):
        if "ByteLevel" in steps:
            return "byte-level"
        # Converted Llama-like files have no Metaspace step, but a normalizer that puts "▁" in front.
        if steps & {"Metaspace", "Prepend"}:
            return "sentencepiece"
    raise UsageError(
        f"cannot find word boundaries: the tokenizer is {model['type']} with steps {sorted(steps)}; supported are "
        "WordPiece ('##'), byte-level BPE and SentencePiece ('▁'). Mask with unit='token' instead.",
        code="unknown-word-boundaries",
        value=model["type"],
    )


def _steps(tokenizer: Mapping[str, Any], part: str) -> list[Mapping[str, Any]]:
    """The steps of a part of a tokenizer.json; a Sequence has a different key for them in each part."""
    step = tokenizer.get(part)
    if step is None:
        return []
    inner = next((step[key] for key in ("pretokenizers", "decoders", "normalizers") if key in step), None)
    return [step] if inner is None else list(inner)


def word_starts(pieces: Sequence[str], kind: PieceKind) -> Bools:
    """Whether a token starts a word, by id. The first token of a sequence always does.

    wordpiece: all but "##..."; the text was split at white space and around each punctuation mark before pieces were
    made, so "IL-2," is four words. byte-level: a white-space byte in front ("Ġ" is the space). sentencepiece: "▁" in
    front. The last two keep no other trace of the text's words, so a word is what stands between white space: "IL-2,"
    is one. That is also what RoBERTa's and SpanBERT's code take for a word. `Vocabulary` can set punctuation apart.
    """
    if kind == "wordpiece":
        return np.array([not piece.startswith("##") for piece in pieces], bool)
    return np.array([piece.startswith(_BLANKS if kind == "byte-level" else "▁") for piece in pieces], bool)


def word_ends(pieces: Sequence[str], kind: PieceKind) -> Bools:
    """Whether the token after this one always starts a word, by id.

    Only byte-level BPE has such tokens: a line break or tab is separate from the next word, while a space is that
    word's first byte.
    """
    return np.array([kind == "byte-level" and piece.endswith(_BREAKS) for piece in pieces], bool)


def punctuation(pieces: Sequence[str], kind: PieceKind) -> Bools:
    """Whether a token is only punctuation as BERT defines it, by id; a leading space is ignored."""
    texts = [piece.removeprefix("▁") for piece in pieces]
    if kind == "byte-level":
        # Incomplete characters become U+FFFD, characters of added tokens outside the alphabet 0: no punctuation.
        spelled = (bytes(_BYTES.get(character, 0) for character in piece) for piece in pieces)
        texts = [text.decode("utf-8", errors="replace").removeprefix(" ") for text in spelled]
    return np.array([bool(text) and all(map(_is_punctuation, text)) for text in texts], bool)


def _is_punctuation(character: str) -> bool:
    """BERT's rule: all non-alphanumeric ASCII, such as "$" and "+", and Unicode punctuation."""
    return ("!" <= character <= "~" and not character.isalnum()) or unicodedata.category(character).startswith("P")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What masking needs to know of each token, by id.

    `starts`: the token starts a word. `closes`: the next token does. `special`: never masked, never a random
    replacement.
    """

    mask_id: int
    special: Bools
    starts: Bools
    closes: Bools

    @classmethod
    def of(cls, tokenizer: Mapping[str, Any], *, words: bool = True, punctuation_apart: bool = False) -> Self:
        """The vocabulary of a tokenizer.json (as a dict). Without `words`, each token is a word.

        `punctuation_apart` makes punctuation tokens separate words, as WordPiece's always are. A mixed token ("'s")
        stays with the word before it.
        """
        added = {token["id"]: token for token in tokenizer["added_tokens"]}
        vocab: Any = tokenizer["model"]["vocab"]
        # Unigram's vocabulary is a list of pieces with their scores; unused ids have the piece "".
        pairs = vocab.items() if isinstance(vocab, Mapping) else ((piece, id_) for id_, (piece, _) in enumerate(vocab))
        known = {id_: piece for piece, id_ in pairs} | {id_: token["content"] for id_, token in added.items()}
        pieces = [known.get(id_, "") for id_ in range(max(known, default=-1) + 1)]
        special = np.zeros(len(pieces), bool)
        special[[id_ for id_, token in added.items() if token["special"]]] = True
        masks = [id_ for id_, piece in enumerate(pieces) if special[id_] and piece in ("[MASK]", "<mask>")]
        if len(masks) != 1:
            raise UsageError(
                f"the tokenizer has {len(masks)} special tokens named [MASK] or <mask>; masking needs exactly one. "
                "Add it to the special tokens when the tokenizer is trained.",
                code="mask-token",
                value=len(masks),
            )
        starts, closes = np.ones((2, len(pieces)), bool)
        if words:
            kind = piece_kind(tokenizer)
            apart = special | (punctuation(pieces, kind) if punctuation_apart else False)
            starts, closes = word_starts(pieces, kind) | apart, word_ends(pieces, kind) | apart
        return cls(masks[0], special, starts, closes)
