"""Comparison of sentence splitters: boundary precision, recall and F1 on held-out text, and throughput.

    python benchmarks/sentences.py [FOLDER]

FOLDER contains the benchmark datasets; the default is ../shared/data/benchmarks. gold_sentences.py describes how text
and boundaries are reconstructed and split. A boundary is identified by the number of characters before it, without
white space; the end of a document does not count. Rules were developed on the development part, Punkt was trained on
its text; the scores are of the held-out part. hoc never splits before a lowercase letter or a digit (in its development
part at none of 45 positions where a period follows a word, genia at 84 of 90), so such positions are not scored there;
"as published" scores them. Throughput is that of splitting the same texts, one by one, in CPU time, the best of up to
three rounds. Writes results/sentences.json.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from facts import facts
from gold_sentences import ROOT, Gold, gold
from lexome.corpus.sentences import split_sentences
from real_data import DATASETS

Splitter = Callable[[str], list[str]]
PACKAGES = ("pysbd", "nltk", "blingfire", "syntok", "spacy")
NOT_MEASURED = {
    "nltk punkt, English model": "its data is not in the package and cannot be had offline; trained here instead",
    "spaCy en_core_web_sm": "not on PyPI",
    "scispaCy en_core_sci_sm": "the package is on PyPI, its models are not",
}


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DATASETS
    docs = list(gold(folder))
    held_out = [doc for doc in docs if doc.part == "held_out"]
    splitters = {"lexome": ours, **peers([doc.text for doc in docs if doc.part == "development"])}
    result = {
        "facts": facts(*PACKAGES),
        "text": {name: size(part) for name, part in by_set(held_out)},
        "splitters": {name: measured(split, held_out) for name, split in splitters.items()},
        "not_measured": NOT_MEASURED,
    }
    (ROOT / "results" / "sentences.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def by_set(docs: list[Gold]) -> list[tuple[str, list[Gold]]]:
    """The documents of each dataset, and of all together."""
    names = sorted({doc.set for doc in docs})
    return [(name, [doc for doc in docs if doc.set == name]) for name in names] + [("all", docs)]


def size(docs: list[Gold]) -> dict[str, int]:
    return {
        "documents": len(docs),
        "boundaries": sum(len(doc.sentences) - 1 for doc in docs),
        "bytes": sum(len(doc.text.encode()) for doc in docs),
    }


def measured(split: Splitter, docs: list[Gold]) -> dict[str, Any]:
    """Scores for each dataset and throughput over all of them."""
    split(docs[0].text)
    rounds: list[float] = []
    while len(rounds) < 3 and sum(rounds) < 10:
        begun = time.process_time()
        found = {id(doc): split(doc.text) for doc in docs}
        rounds.append(time.process_time() - begun)
    scores = {name: score((doc, found[id(doc)]) for doc in part) for name, part in by_set(docs)}
    published = score(((doc, found[id(doc)]) for doc in docs if doc.set == "hoc"), every_place=True)
    changed = sum(squeezed(found[id(doc)]) != squeezed(doc.sentences) for doc in docs)
    megabytes = size(docs)["bytes"] / 1e6
    return {
        **scores,
        "hoc_as_published": published,
        "mb_per_s": round(megabytes / min(rounds), 2),
        "documents_whose_text_changed": changed,
    }


def score(pairs: Iterable[tuple[Gold, list[str]]], *, every_place: bool = False) -> dict[str, float]:
    right = extra = missed = 0
    for doc, found in pairs:
        expected, given = edges(doc.sentences), edges(found)
        if doc.set == "hoc" and not every_place:
            text = squeezed(doc.sentences)
            given = {at for at in given if not (text[at].islower() or text[at].isdigit())}
        right += len(expected & given)
        extra += len(given - expected)
        missed += len(expected - given)
    return {
        "precision": round(100 * right / (right + extra), 2),
        "recall": round(100 * right / (right + missed), 2),
        "f1": round(200 * right / (2 * right + extra + missed), 2),
    }


def edges(sentences: list[str]) -> set[int]:
    """The number of non-space characters before each boundary inside the text."""
    at = 0
    places = set()
    for sentence in sentences:
        at += len("".join(sentence.split()))
        places.add(at)
    return places - {0, at}


def squeezed(sentences: list[str]) -> str:
    return "".join("".join(sentences).split())


def ours(text: str) -> list[str]:
    return [text[start:end] for start, end in split_sentences(text)]


def peers(training: list[str]) -> dict[str, Splitter]:
    """Every other splitter; Punkt learns its abbreviations from the training texts."""
    import blingfire
    import pysbd
    import spacy
    import syntok.segmenter
    from nltk.tokenize.punkt import PunktSentenceTokenizer

    punkt = PunktSentenceTokenizer("\n\n".join(training))
    segmenter = pysbd.Segmenter(language="en", clean=False)
    english = spacy.blank("en")
    english.add_pipe("sentencizer")

    def by_syntok(text: str) -> list[str]:
        sentences = [tokens for paragraph in syntok.segmenter.analyze(text) for tokens in paragraph]
        return [text[part[0].offset : part[-1].offset + len(part[-1].value)] for part in sentences]

    return {
        "pysbd": segmenter.segment,
        "nltk punkt, trained here": punkt.tokenize,
        "blingfire": lambda text: blingfire.text_to_sentences(text).split("\n"),
        "syntok": by_syntok,
        "spaCy sentencizer": lambda text: [sentence.text for sentence in english(text).sents],
    }


if __name__ == "__main__":
    main()
