"""Splits that no file holds, drawn so that the same documents and seed always give the same parts."""

import hashlib
import math
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeVar

from lexome.document import Document
from lexome.errors import UsageError

Item = TypeVar("Item")


def part_off(docs: Sequence[Document], *, share: float, seed: int) -> tuple[list[Document], list[Document]]:
    """The documents without a share of them, and that share, each in the order they came.

    What is drawn depends on the documents' ids and the seed alone, not on their order. Documents of one article, by
    `part_of` or PMID, stay together, so that no article is on both sides.
    """
    if not 0 < share < 1:
        raise UsageError(f"a share of {share} was asked for; expected one between 0 and 1.")
    groups = sorted({_article(doc) for doc in docs}, key=lambda name: _draw(name, seed))
    drawn = set(groups[: max(1, round(share * len(groups)))])
    if len(drawn) == len(groups):
        raise UsageError(
            f"a share of {share} of {len(docs)} documents was asked for, which are of {len(groups)} articles; expected "
            "it to leave some. Name a smaller share, or more documents: those of one article stay together."
        )
    return [doc for doc in docs if _article(doc) not in drawn], [doc for doc in docs if _article(doc) in drawn]


def fold_numbers(docs: Sequence[Document], *, folds: int, seed: int) -> list[int]:
    """The fold, 0 and up, that each document is in: as many of each label in all folds, articles together."""
    strata: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    labels: dict[str, tuple[str, ...]] = {}
    for doc in docs:
        labels.setdefault(_article(doc), tuple(sorted(doc.labels)))
    if not 2 <= folds <= len(labels):
        raise UsageError(
            f"{folds} folds of {len(docs)} documents were asked for, which are of {len(labels)} articles; expected 2 "
            "folds to as many as articles, whose documents stay together. Ask for fewer."
        )
    for name, label in labels.items():
        strata[label].append(name)
    numbers: dict[str, int] = {}
    dealt = 0
    for label in sorted(strata):
        for name in sorted(strata[label], key=lambda name: _draw(name, seed)):
            numbers[name] = dealt % folds
            dealt += 1
    return [numbers[_article(doc)] for doc in docs]


def pubmedqa_parts(labelled: Iterable[tuple[str, str]]) -> tuple[list[str], list[list[str]]]:
    """The test PMIDs and the ten folds of the others, of PubMedQA's 1,000 labelled questions in their file's order.

    The project's own split: Python's random module seeded with 0; for each of yes, no and maybe in turn the PMIDs are
    shuffled and cut, first in two halves and then the first half in ten. Where the last part comes out smaller, one
    PMID drawn from each of the others is moved to it.
    """
    rng = random.Random(0)
    by_label: dict[str, list[str]] = {"yes": [], "no": [], "maybe": []}
    label_of: dict[str, str] = {}
    for pmid, label in labelled:
        by_label[label].append(pmid)
        label_of[pmid] = label
    kept, test = _stratified(by_label, 2, rng)
    again: dict[str, list[str]] = {"yes": [], "no": [], "maybe": []}
    for pmid in kept:
        again[label_of[pmid]].append(pmid)
    return test, _stratified(again, 10, rng)


def _stratified(by_label: dict[str, list[str]], parts: int, rng: random.Random) -> list[list[str]]:
    cut: list[list[list[str]]] = []
    for pmids in by_label.values():
        rng.shuffle(pmids)
        size = math.ceil(len(pmids) / parts)
        cut.append([pmids[number * size : (number + 1) * size] for number in range(parts)])
    output = [[pmid for pieces in cut for pmid in pieces[number]] for number in range(parts)]
    if len(output[-1]) != len(output[0]):
        for part in output[:-1]:
            picked = rng.choice(part)
            output[-1].append(picked)
            part.remove(picked)
    return output


def _article(doc: Document) -> str:
    return doc.meta.part_of or doc.meta.pmid or doc.id


def _draw(name: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}\t{name}".encode()).digest()
