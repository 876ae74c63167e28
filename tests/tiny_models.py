"""Small models with random weights, ours and transformers', and batches for both."""

from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from lexome.models.checkpoint import Card
from lexome.models.encoder import Packing

VOCAB = 64
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LENGTHS = (7, 31, 1, 20, 7)
CARD = Card(title="A tiny model", summary="For a test.", license="apache-2.0", data="None.")

_SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
}
_DISTIL = {"vocab_size": VOCAB, "dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 40}
# A window of four tokens to each side, in sequences of up to 31.
_MODERN = {"local_attention": 8, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
_MODERN |= {"cls_token_id": 2, "sep_token_id": 3}

HF_CONFIGS: dict[str, Any] = {
    "bert": lambda: transformers.BertConfig(**_SHAPE),
    "roberta": lambda: transformers.RobertaConfig(**_SHAPE, type_vocab_size=1),
    "megatron-bert": lambda: transformers.MegatronBertConfig(**_SHAPE, hidden_act="gelu_new"),
    "distilbert": lambda: transformers.DistilBertConfig(**_DISTIL),
    "modernbert": lambda: transformers.ModernBertConfig(**_SHAPE, **_MODERN),
}


def hf_model(name: str, architecture: str, **changes: Any) -> Any:
    """A model of transformers with random weights that are large enough to tell mistakes."""
    torch.manual_seed(0)
    config = HF_CONFIGS[architecture]()
    for key, held in changes.items():
        setattr(config, key, held)
    model = getattr(transformers, name)(config)
    for key, weight in model.named_parameters():
        norm = "norm" in key.lower() or ".ln." in key
        torch.nn.init.normal_(weight, mean=1.0 if norm and key.endswith("weight") else 0.0, std=0.2)
    return model.eval()


def batch(lengths: tuple[int, ...] = LENGTHS, *, seed: int = 1) -> tuple[Tensor, Packing]:
    """Packed ids without special tokens."""
    generator = torch.Generator().manual_seed(seed)
    ids_T = torch.randint(len(SPECIAL), VOCAB, (sum(lengths),), generator=generator)
    return ids_T, Packing.of(torch.tensor(lengths).cumsum(0).tolist())


def padded(rows_T: Tensor, lengths: tuple[int, ...], *, fill: int = 0) -> Tensor:
    """The same rows as a rectangle, as transformers wants them."""
    return torch.nn.utils.rnn.pad_sequence(list(rows_T.split(lengths)), batch_first=True, padding_value=fill)


def hf_outputs(
    model: Any, ids_T: Tensor, lengths: tuple[int, ...], segments_T: Tensor | None = None
) -> tuple[Any, Tensor]:
    """What transformers says for a padded batch, and which of its positions are real."""
    mask = padded(torch.ones_like(ids_T), lengths)
    given = {"input_ids": padded(ids_T, lengths, fill=model.config.pad_token_id), "attention_mask": mask}
    if segments_T is not None:
        given["token_type_ids"] = padded(segments_T, lengths)
    return model(**given), mask.bool()


def tokenizer_folder(folder: Path) -> Path:
    """A tokenizer of 64 pieces, in a folder of its own."""
    from lexome.corpus.vocab.tokenizers import bert_tokenizer

    folder.mkdir(parents=True, exist_ok=True)
    pieces = [*SPECIAL, *(f"w{number}" for number in range(VOCAB - len(SPECIAL)))]
    bert_tokenizer({piece: number for number, piece in enumerate(pieces)}, cased=False).save(
        str(folder / "tokenizer.json")
    )
    return folder
