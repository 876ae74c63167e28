"""Tiny models, ten-document sets for every task, and recipes: what the tests of fine-tuning share."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from tiny_models import CARD

import lexome
from lexome.corpus.vocab.tokenizers import BERT_SPECIAL, bert_tokenizer
from lexome.document import Answer, Argument, Document, Question, Relation, Span, lay_out
from lexome.models.checkpoint import build, save
from lexome.models.encoder import EncoderConfig
from lexome.recipe.finetune import FinetuneRecipe
from lexome.training.finetune.run import RunContext, open_context
from lexome.training.finetune.stage import Finetuned, finetune
from lexome.training.parallel import Parallel, Sizes, device_of

GENES = ("BRCA1", "TP53", "EGFR", "KRAS", "MYC")
DRUGS = ("aspirin", "heparin", "insulin", "taxol", "codeine")
WORDS = ("the", "gene", "drug", "blocks", "needs", "in", "is", "not", "seen", "with", "and", "tumour", "what", "?", ".")
PIECES = ("br", "##ca", "##1", "tp", "##53", "egfr", "kr", "##as", "myc", *DRUGS, *WORDS)


def tiny_model(folder: Path, *, architecture: str = "bert", seed: int = 0, **changes: Any) -> Path:
    """A checkpoint of a masked language model of two layers, its words those of these documents."""
    pieces = [*BERT_SPECIAL, *PIECES]
    source = folder.with_name(f"{folder.name}-tokenizer")
    source.mkdir(parents=True)
    bert_tokenizer({piece: number for number, piece in enumerate(pieces)}, cased=False).save(
        str(source / "tokenizer.json")
    )
    torch.manual_seed(seed)
    shape = {"layers": 2, "hidden_size": 32, "heads": 2, "intermediate_size": 64, "max_tokens": 64, "initial_std": 0.1}
    config = EncoderConfig(vocab=len(pieces), **{**shape, **changes})
    save(folder, build(config, "masked"), architecture=architecture, tokenizer=source, card=CARD)
    return folder


def ner_documents(count: int = 10) -> list[Document]:
    """Sentences with a gene and a drug each."""
    docs = []
    for number in range(count):
        gene, drug = GENES[number % 5], DRUGS[(number * 2 + number // 5) % 5]
        text = f"the drug {drug} blocks {gene} ." if number % 2 else f"{gene} needs the {drug} in tumour ."
        docs.append(_with_spans(f"n{number}", text, (gene, "Gene"), (drug, "Drug")))
    return docs


def relation_documents(count: int = 10) -> list[Document]:
    """Sentences in which a drug blocks a gene, or is only seen with it."""
    docs = []
    for number in range(count):
        gene, drug = GENES[number % 5], DRUGS[(number + number // 5) % 5]
        yes = number % 3 == 0
        text = f"{drug} blocks {gene} ." if yes else f"{drug} is seen with {gene} ."
        doc = _with_spans(f"r{number}", text, (drug, "Drug"), (gene, "Gene"))
        if yes:
            sides = (Argument("Arg1", doc.spans[0].id), Argument("Arg2", doc.spans[1].id))
            doc = Document(doc.id, doc.passages, doc.spans, (Relation("R1", "blocks", sides),))
        docs.append(doc)
    return docs


def class_documents(*, several: bool, count: int = 10) -> list[Document]:
    """Sentences about a gene, a drug, or both."""
    docs = []
    for number in range(count):
        gene, drug = GENES[number % 5], DRUGS[number % 5]
        texts = {0: f"{gene} is seen .", 1: f"{drug} is seen .", 2: f"{gene} and {drug} ."}
        labels = {0: ("gene",), 1: ("drug",), 2: ("gene", "drug") if several else ("both",)}
        docs.append(Document(f"c{number}", lay_out([("sentence", texts[number % 3])]), labels=labels[number % 3]))
    return docs


def pair_documents(*, numbers: bool, count: int = 10) -> list[Document]:
    """Two sentences each, with what the first says about the second, or how alike they are."""
    docs = []
    for number in range(count):
        gene, drug = GENES[number % 5], DRUGS[number % 5]
        kind = number % 3
        second = (f"{drug} blocks {gene} .", f"{drug} is not in {gene} .", "the tumour is seen .")[kind]
        label = ("4.5", "2.0", "0.5")[kind] if numbers else ("entailment", "contradiction", "neutral")[kind]
        texts = [("sentence", f"the drug {drug} blocks {gene} ."), ("sentence", second)]
        docs.append(Document(f"p{number}", lay_out(texts), labels=(label,)))
    return docs


def question_documents(count: int = 10) -> list[Document]:
    """A sentence and a question each, answered by a word of it."""
    docs = []
    for number in range(count):
        gene, drug = GENES[number % 5], DRUGS[(number + number // 5) % 5]
        text = f"the drug {drug} blocks {gene} in tumour ."
        word, asked = (gene, "what gene is seen ?") if number % 2 else (drug, "what drug is seen ?")
        answer = Answer(word, text.index(word))
        question = Question(f"q{number}", asked, "factoid", (answer,))
        docs.append(Document(f"q{number}", lay_out([("paragraph", text)]), questions=(question,)))
    return docs


def write_splits(folder: Path, **splits: Sequence[Document]) -> Path:
    """A folder with a file for each split."""
    for name, docs in splits.items():
        lexome.write(folder / f"{name}.jsonl", docs)
    return folder


def recipe_of(start: Path, folder: Path, out: Path, task: dict[str, Any], **keys: Any) -> FinetuneRecipe:
    """A recipe that learns ten documents by heart unless `keys` say otherwise."""
    given: dict[str, Any] = {
        "stage": "finetune",
        "start": start,
        "out": out,
        "data": {"folder": folder},
        "task": task,
        "epochs": 40,
        "dropout": 0.0,
        "device": "cpu",
        "batch": {"sequences": 5},
        "optimizer": {"lr": 3e-3},
        "head": {"dropout": 0.0},
        "evaluation": {"patience": 20},
    }
    given |= keys
    if "steps" in keys:
        del given["epochs"]
    return FinetuneRecipe.model_validate(given)


def done(recipe: FinetuneRecipe) -> Finetuned:
    """All runs of a recipe, without a word about how far they are."""
    return finetune(recipe, progress_shown=False)


def _with_spans(id_: str, text: str, *mentions: tuple[str, str]) -> Document:
    spans = []
    for number, (word, type_) in enumerate(mentions, 1):
        start = text.index(word)
        spans.append(Span(f"T{number}", type_, ((start, start + len(word)),), word))
    return Document(id_, lay_out([("sentence", text)]), tuple(spans))


@contextmanager
def context_of(recipe: FinetuneRecipe) -> Iterator[RunContext]:
    """The inputs of a recipe's runs, in one process."""
    device, _ = device_of(recipe.device, {}, backend=recipe.parallel.backend)
    with open_context(recipe, Parallel(Sizes(), device)) as context:
        yield context
