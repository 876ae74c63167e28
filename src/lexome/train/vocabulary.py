"""Another vocabulary for a trained model: what both vocabularies have keeps its embedding.

V vocabulary, D width
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from lexome.corpus.vocab.tokenizers import TOKENIZER_FILE, load_tokenizer, tokenizer_sha256
from lexome.errors import CheckpointError
from lexome.values import value

# Special tokens do the same work under two sets of names.
ROLES = (("[CLS]", "<s>"), ("[SEP]", "</s>"), ("[MASK]", "<mask>"), ("[PAD]", "<pad>"), ("[UNK]", "<unk>"))


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
    """The error for a tokenizer that is not the checkpoint's."""
    return CheckpointError(
        f"the shards were made with the tokenizer {tokenizer}, and {checkpoint} was trained with another. Shard the "
        'text with the checkpoint\'s own tokenizer, or say new_vocabulary = "carry" to keep what both have.'
    )


def pieces_of(tokenizer: Path) -> dict[str, int]:
    """The pieces of a tokenizer and their numbers."""
    pieces: dict[str, int] = load_tokenizer(tokenizer).get_vocab(with_added_tokens=True)
    return pieces


def parts_of_new(old: Path, new: Path) -> dict[str, list[int]]:
    """Of each piece that only the new tokenizer has, the old one's pieces of the same text.

    Left out are pieces that the old one does not know, or that are no whole text, as bytes of a letter are.
    """
    before, after = load_tokenizer(old), load_tokenizer(new)
    known = before.get_vocab(with_added_tokens=True)
    unknown = {known[piece] for piece in ROLES[-1] if piece in known}
    fresh = {piece: id_ for piece, id_ in pieces_of(new).items() if piece not in known}
    texts = {piece: after.decode([id_]).removeprefix("##").strip() for piece, id_ in fresh.items()}
    parts = {piece: before.encode(text, add_special_tokens=False).ids for piece, text in texts.items()}
    return {
        piece: ids for piece, ids in parts.items() if ids and not unknown & set(ids) and "\ufffd" not in texts[piece]
    }


def carry(
    model: nn.Module, old: dict[str, int], new: dict[str, int], *, parts: Mapping[str, Sequence[int]], std: float
) -> tuple[dict[str, Tensor], Carried]:
    """The model's weights with embedding and output bias for the new pieces, and how many were carried over.

    A new piece begins with the mean of the embeddings of its `parts`, the old pieces that it was cut into before; one
    without such is drawn as for a new model. Its bias is the mean of the old ones. Special tokens are carried over by
    what they do: [CLS] goes on as <s>.
    """
    other = {one: two for pair in ROLES for one, two in (pair, pair[::-1])}
    source = {id_: old.get(piece, old.get(other.get(piece, ""))) for piece, id_ in new.items()}
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
