"""Whether what is found in a long article depends on where its windows fall.

    python benchmarks/window_independence.py [MODEL] [--articles 20]

Each article is annotated as it is, and again without its first 37, 101, 251 and 499 words, which moves every window
that is counted from the beginning. Mentions are compared from one window behind the cut on: before that the text around
them is another one. A mention counts as different if its characters and type are found in one and not in the other; the
share is of the mentions of both, so one whose bounds move counts twice. Beside it stands the share with windows at
fixed steps, which is how much the model itself hangs on them. Writes results/window_independence.json.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import lexome
from facts import ROOT, facts
from lexome.document import Document
from lexome.infer.annotator import Annotator
from lexome.tasks import ner
from lexome.tasks.windows import TokenizedText, anchored_windows, windows

RESULT = ROOT / "results" / "window_independence.json"
ARTICLES = ROOT.parent / "shared" / "data" / "corpus" / "pmc_fulltext"
# Long enough for ten windows or so, and short enough to have many of them.
LENGTHS = (15_000, 60_000)
CUTS = (37, 101, 251, 499)

Mention = tuple[str, int, int, str]
Placing = Callable[..., list[tuple[int, int]]]


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("model", nargs="?", help="a folder; by default the model that comes with Lexome")
    options.add_argument("--articles", type=int, default=20)
    given = options.parse_args()
    annotator = lexome.load(*([given.model] if given.model else []))
    docs = list(islice(long_articles(), given.articles))
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


def long_articles() -> Iterator[Document]:
    """Articles of some ten windows, in the order of the files."""
    for path in sorted(ARTICLES.glob("*.jsonl.xz")):
        for doc in lexome.read(path):
            if LENGTHS[0] <= len(doc.text) <= LENGTHS[1]:
                yield doc


def measured(annotator: Annotator, docs: list[Document], placing: Placing) -> dict[str, Any]:
    """Mentions of the articles, those that differ once words are cut off, and the time that annotation takes."""
    ner.anchored = placing  # the one place that windows of mentions come from
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
    """The document without its first words, everything else at its old place; and where it begins now."""
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
    """About how many characters of a document a window of the model holds."""
    model = annotator.models[0]
    tokens = sum(len(model.predictor.tokenizer.ids(passage.text)) for passage in doc.passages)
    return len(doc.text) * model.settings.max_tokens // max(1, tokens)


def mentions(annotator: Annotator, docs: Iterable[Document]) -> set[Mention]:
    return {(doc.id, span.start, span.end, span.type) for doc in annotator.annotate(docs) for span in doc.spans}


if __name__ == "__main__":
    main()
