"""Do mentions in a long article depend on the positions of its windows?

    python benchmarks/window_independence.py [MODEL] [--articles 20]

Each article is annotated as it is, and again without its first 37, 101, 251 and 499 words, which moves every window
that is counted from the beginning. Mentions are compared from one window after the cut on, since before that their
context differs. A mention counts as changed if its offsets and type are found in one but not in the other; the fraction
is relative to the mentions of both, so a mention with moved boundaries counts twice. For comparison, the same is
measured with windows at fixed steps, which shows how much the model itself depends on them. Writes
results/window_independence.json.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import lexome
from facts import ROOT, facts
from lexome.document import Document
from lexome.infer.annotator import Annotator
from lexome.tasks import ner
from lexome.tasks.task import TokenizedText, anchored_windows, windows
from real_data import DATA

RESULT = ROOT / "results" / "window_independence.json"
# Long enough for about ten windows, and short enough that there are many.
LENGTHS = (15_000, 60_000)
CUTS = (37, 101, 251, 499)

Mention = tuple[str, int, int, str]
Placing = Callable[..., list[tuple[int, int]]]


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("model", nargs="?", help="a model folder; default: the default model")
    options.add_argument("--articles", type=int, default=20)
    options.add_argument("--data", type=Path, default=DATA / "corpus" / "pmc_fulltext", help="folder with the articles")
    given = options.parse_args()
    annotator = lexome.load(*([given.model] if given.model else []))
    docs = list(islice(long_articles(given.data), given.articles))
    result = {
        "facts": facts("onnxruntime", "numpy"),
        "model": annotator.about()["models"][0],
        "articles": len(docs),
        "characters": sum(len(doc.text) for doc in docs),
        "cuts": CUTS,
        "anchored": measured(annotator, docs, anchored_windows),
        "fixed": measured(annotator, docs, fixed),
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({name: result[name] for name in ("anchored", "fixed")}, indent=1))


def fixed(tokens: TokenizedText, *, size: int, overlap: int) -> list[tuple[int, int]]:
    """Windows counted from the beginning of the text."""
    return windows(tokens.begins, size=size, overlap=overlap)


def long_articles(folder: Path) -> Iterator[Document]:
    """Articles of about ten windows, in file order."""
    for path in sorted(folder.glob("*.jsonl.xz")):
        for doc in lexome.read(path):
            if LENGTHS[0] <= len(doc.text) <= LENGTHS[1]:
                yield doc


def measured(annotator: Annotator, docs: list[Document], placing: Placing) -> dict[str, Any]:
    """Mentions of the articles, those that change when words are removed, and the annotation time."""
    ner.anchored_windows = placing  # the single source of NER windows
    began = time.perf_counter()
    whole = {doc.id: mentions(annotator, [doc]) for doc in docs}
    seconds = time.perf_counter() - began
    rows = sum(len(annotator.models[0].encode(doc)) for doc in docs)
    compared = different = 0
    for words in CUTS:
        for doc in docs:
            short, begin = without_words(doc, words)
            behind = begin + window_characters(annotator, doc)
            one, other = (
                {mention for mention in found if mention[1] >= behind}
                for found in (whole[doc.id], mentions(annotator, [short]))
            )
            compared += len(one) + len(other)
            different += len(one ^ other)
    return {
        "mentions": sum(map(len, whole.values())),
        "windows": rows,
        "seconds": round(seconds, 1),
        "compared": compared,
        "different": different,
        "share": round(different / max(1, compared), 5),
    }


def without_words(doc: Document, words: int) -> tuple[Document, int]:
    """The document without its first words, everything else at its old offsets, and its new start."""
    left = words
    for number, passage in enumerate(doc.passages):
        parts = passage.text.split(maxsplit=left)
        if len(parts) > left:
            begin = len(passage.text) - len(parts[-1])
            kept = replace(passage, offset=passage.offset + begin, text=parts[-1], sentences=(), tokens=())
            return replace(doc, passages=(kept, *doc.passages[number + 1 :])), kept.offset
        left -= len(parts)
    raise ValueError(f"{doc.id} has fewer than {words} words")


def window_characters(annotator: Annotator, doc: Document) -> int:
    """Approximate number of characters per window of the model."""
    model = annotator.models[0]
    tokens = sum(len(model.predictor.tokenizer.ids(passage.text)) for passage in doc.passages)
    return len(doc.text) * model.settings.max_tokens // max(1, tokens)


def mentions(annotator: Annotator, docs: Iterable[Document]) -> set[Mention]:
    return {(doc.id, span.start, span.end, span.type) for doc in annotator.annotate(docs) for span in doc.spans}


if __name__ == "__main__":
    main()
