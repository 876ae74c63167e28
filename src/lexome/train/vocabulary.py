"""Another vocabulary for a trained model: what both vocabularies have keeps its embedding.

V vocabulary, D width
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lexome.corpus.vocab.tokenizers import TOKENIZER_FILE, load_tokenizer, tokenizer_sha256, unknown_id
from lexome.errors import CheckpointError
from lexome.models.architectures import ARCHITECTURES
from lexome.models.backend import WITHOUT_POSITIONS
from lexome.models.source import read_settings
from lexome.models.tokenizer_files import special_tokens
from lexome.values import value

# What special tokens do, whatever their names. Beginning and end are cls and sep where they are used.
ROLES = ("cls_token", "sep_token", "mask_token", "pad_token", "unk_token")

# How pieces begin: after a space in byte pairs, a word in SentencePiece, inside a word in WordPiece.
SPACE, WORD, INSIDE = "Ġ", "▁", "##"


@value
class Carried:
    """How many pieces kept their embedding, how many are new, and how many old ones are gone."""

    kept: int
    new: int
    gone: int


def same_tokenizer(checkpoint: Path, tokenizer: Path) -> bool:
    """True where a checkpoint's tokenizer is the one of this tokenizer.json.

    A folder with a vocab.txt alone counts by its pieces and their numbers.
    """
    if (checkpoint / TOKENIZER_FILE).is_file():
        return tokenizer_sha256(checkpoint) == tokenizer_sha256(tokenizer)
    return pieces_of(checkpoint) == pieces_of(tokenizer)


def refuse(checkpoint: Path, tokenizer: Path) -> CheckpointError:
    """The error for a tokenizer that is not the checkpoint's; what transformers computes cannot be carried over."""
    carried = 'say new_vocabulary = "carry" to keep what both have.'
    model_type = read_settings(checkpoint).get("model_type", "bert")
    if model_type == "mpnet":
        carried = f"{WITHOUT_POSITIONS} and {carried}"
    elif model_type not in ARCHITECTURES:
        carried = "start from another model."
    return CheckpointError(
        f"the shards were made with the tokenizer {tokenizer}, and {checkpoint} was trained with another. Shard the "
        f"text with the checkpoint's own tokenizer, or {carried}"
    )


def pieces_of(tokenizer: Path) -> dict[str, int]:
    """The pieces of a tokenizer and their numbers."""
    pieces: dict[str, int] = load_tokenizer(tokenizer).get_vocab(with_added_tokens=True)
    return pieces


def same_roles(old: Path, new: Path) -> dict[str, str]:
    """The old tokenizer's piece for each special one of the new: {"[CLS]": "<s>", "[MASK]": "<mask>", ...}."""
    before, after = special_tokens(old), special_tokens(new)
    return {after[role]: before[role] for role in ROLES if role in before and role in after}


def parts_of_new(old: Path, new: Path) -> dict[str, list[int]]:
    """Of each piece that only the new tokenizer has, the old one's pieces of the same text.

    Left out are pieces that the old one does not know in full, or that are no whole text, as bytes of a letter are.
    """
    before, after = load_tokenizer(old), load_tokenizer(new)
    known = before.get_vocab(with_added_tokens=True)
    fresh = {piece: id_ for piece, id_ in pieces_of(new).items() if piece not in known}
    # Only byte pairs tell a word from the same letters inside one by the space before it.
    spaced = any(piece.startswith(SPACE) for piece in known)
    by_words = any(piece.startswith(INSIDE) for piece in pieces_of(new))
    parts: dict[str, list[int]] = {}
    for piece, id_ in fresh.items():
        text = after.decode([id_]).removeprefix(INSIDE).strip()
        begins = not piece.startswith(INSIDE) if by_words else piece.startswith((SPACE, WORD))
        ids = _ids(before, f" {text}" if spaced and begins else text)
        if text and ids and "\ufffd" not in text:
            parts[piece] = ids
    return parts


def _ids(tokenizer: Any, text: str) -> list[int]:
    """The pieces of a text; none where a part of it is unknown."""
    try:
        found = tokenizer.encode(text, add_special_tokens=False)
    except Exception:  # the library's bare one, from a Unigram model that has no piece for what it does not know
        return []
    # What has no such piece in byte pairs is passed over without a word.
    seen = {place for begin, end in found.offsets for place in range(begin, end)}
    whole = all(letter.isspace() or place in seen for place, letter in enumerate(text))
    return found.ids if whole and unknown_id(tokenizer) not in found.ids else []


def carry(
    model: nn.Module,
    old: dict[str, int],
    new: dict[str, int],
    *,
    roles: Mapping[str, str],
    parts: Mapping[str, Sequence[int]],
    std: float,
) -> tuple[dict[str, Tensor], Carried]:
    """The model's weights with embedding and output bias for the new pieces, and how many were carried over.

    A new piece begins with the mean of the embeddings of its `parts`, the old pieces that it was cut into before; one
    without such is drawn as for a new model. Its bias is the mean of the old ones. `roles` are the old pieces that do
    the work of the new special ones: [CLS] begins as <s>, even where the old vocabulary has a [CLS] that it never used.
    """
    source = {id_: old.get(roles.get(piece, piece)) for piece, id_ in new.items()}
    pairs = [(id_, was) for id_, was in source.items() if was is not None]
    targets = torch.tensor([id_ for id_, _ in pairs], dtype=torch.long)
    origins = torch.tensor([was for _, was in pairs], dtype=torch.long)
    size = max(new.values()) + 1
    weights = dict(model.state_dict())
    before_VD, bias_V = weights["encoder.embed.tokens.weight"], weights["head.bias"]
    after_VD = torch.empty(size, before_VD.shape[1], dtype=before_VD.dtype).normal_(std=std)
    for piece, ids in parts.items():
        after_VD[new[piece]] = before_VD[list(ids)].mean(dim=0)
    after_V = bias_V.mean().repeat(size)
    after_VD[targets], after_V[targets] = before_VD[origins], bias_V[origins]
    weights |= {"encoder.embed.tokens.weight": after_VD, "head.bias": after_V}
    gone = len(old) - len({was for _, was in pairs})
    return weights, Carried(kept=len(pairs), new=len(new) - len(pairs), gone=gone)
