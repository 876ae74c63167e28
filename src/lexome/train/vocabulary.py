"""Another vocabulary for a trained model: what both vocabularies have keeps its embedding.

V vocabulary, D width
"""

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


def carry(
    model: nn.Module, old: dict[str, int], new: dict[str, int], *, std: float
) -> tuple[dict[str, Tensor], Carried]:
    """The model's weights with embedding and output bias for the new pieces, and how many were carried over.

    A new piece's embedding is drawn as for a new model, and its bias is the mean of the old ones. Special tokens are
    carried over by what they do: [CLS] goes on as <s>.
    """
    other = {one: two for pair in ROLES for one, two in (pair, pair[::-1])}
    source = {id_: old.get(piece, old.get(other.get(piece, ""))) for piece, id_ in new.items()}
    pairs = [(id_, was) for id_, was in source.items() if was is not None]
    targets = torch.tensor([id_ for id_, _ in pairs], dtype=torch.long)
    origins = torch.tensor([was for _, was in pairs], dtype=torch.long)
    size = max(new.values()) + 1
    weights = dict(model.state_dict())
    for name in ("encoder.embed.tokens.weight", "head.bias"):
        before = weights[name]
        if name.endswith("bias"):
            after = before.mean().repeat(size)
        else:
            after = torch.empty(size, before.shape[1], dtype=before.dtype).normal_(std=std)
        after[targets] = before[origins]
        weights[name] = after
    gone = len(old) - len({was for _, was in pairs})
    return weights, Carried(kept=len(pairs), new=len(new) - len(pairs), gone=gone)
