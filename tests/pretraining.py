"""A made corpus, its tokenizer and shards, and recipes for tiny models: what the tests of training share."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

import lexome
from lexome.corpus.shards import Shards, open_shards, shard
from lexome.document import Document, lay_out
from lexome.pipeline import Engine
from lexome.recipe.corpus_stages import ShardRecipe
from lexome.recipe.pretrain import PretrainRecipe

GENES = ["BRCA", "TP", "EGFR", "KRAS", "MYC", "PTEN"]
ORGANS = ["liver", "heart", "lung", "brain", "kidney", "spleen"]
VERBS = ["binds", "blocks", "drives", "needs"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TINY = {
    "layers": 2,
    "hidden_size": 32,
    "heads": 2,
    "intermediate_size": 64,
    "max_tokens": 64,
    "dropout": 0.0,
    "attention_dropout": 0.0,
}


def tokenizer(*, extra: tuple[str, ...] = ()) -> Tokenizer:
    """A WordPiece tokenizer whose pieces are written down here, so that no trainer decides them."""
    pieces = [
        *SPECIAL,
        *extra,
        "The",
        "gene",
        "in",
        "the",
        "of",
        ".",
        *GENES,
        *ORGANS,
        *VERBS,
        "##1",
        "##2",
        "##3",
        "##4",
    ]
    made = Tokenizer(models.WordPiece({piece: id_ for id_, piece in enumerate(pieces)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=False)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens(SPECIAL)
    return made


def sentence(rng: random.Random) -> str:
    """A sentence with a rule in it: the gene tells its organ, so that a model can learn what is masked."""
    gene = rng.randrange(len(GENES))
    return f"The gene {GENES[gene]}{rng.randint(1, 4)} {rng.choice(VERBS)} the {ORGANS[gene]} ."


def make_shards(
    folder: Path,
    *,
    documents: int = 60,
    held_out: float = 0.1,
    made: Tokenizer | None = None,
    texts: list[str] | None = None,
) -> Shards:
    """Shards of made-up documents, or of these texts, in two files."""
    rng = random.Random(20261115)
    texts = texts or [" ".join(sentence(rng) for _ in range(rng.randint(2, 7))) for _ in range(documents)]
    documents = len(texts)
    docs = [Document(f"d{number}", lay_out([("abstract", text)])) for number, text in enumerate(texts)]
    for number, part in enumerate((docs[: documents // 2], docs[documents // 2 :])):
        lexome.write(folder / "records" / f"{number}.jsonl", part)
    (made or tokenizer()).save(str(folder / "tokenizer.json"))
    shard(
        ShardRecipe(
            stage="shard",
            inputs=(folder / "records",),
            tokenizer=folder / "tokenizer.json",
            out=folder / "shards",
            held_out=held_out,
        ),
        engine=Engine(workers=0),
        progress_shown=False,
    )
    return open_shards(folder / "shards")


def recipe(shards: Path, out: Path, **keys: Any) -> PretrainRecipe:
    """A recipe of a tiny model, forty steps long unless `keys` say otherwise."""
    given: dict[str, Any] = {
        "stage": "pretrain",
        "shards": shards,
        "out": out,
        "seed": 1,
        "device": "cpu",
        "text": {"max_tokens": 32},
        "batch": {"tokens": 256, "prefetch": 2},
        "optimizer": {"lr": 3e-3},
        "log": {"every": 5, "save_every": 20},
        **keys,
    }
    if all(keys.get(name) is None for name in ("steps", "tokens", "epochs", "time_budget")):
        given["steps"] = 40
    if not {"model", "start", "preset"} & keys.keys():
        given["model"] = TINY
    return PretrainRecipe.model_validate(given)


def ticking(*, stop_after: int | None = None) -> Callable[[], float]:
    """A clock that goes a second at each look; the run that looks too often is interrupted."""
    looks = 0

    def clock() -> float:
        nonlocal looks
        looks += 1
        if stop_after is not None and looks > stop_after + 1:
            raise KeyboardInterrupt
        return float(looks)

    return clock
