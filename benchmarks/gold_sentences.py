"""Gold sentence boundaries: running text reconstructed from datasets with marked sentences, in two parts.

    python benchmarks/gold_sentences.py [FOLDER]        documents, sentences and characters of each part

FOLDER contains the benchmark datasets; the default is ../shared/data/benchmarks. A document is a list of its
sentences; its text is these joined by one space. Titles are left out, because a title is a passage of its own and
needs no splitter.

| dataset | boundaries                                      | development              | held out                |
| ------- | ----------------------------------------------- | ------------------------ | ----------------------- |
| genia   | JNLPBA; manual, in the GENIA corpus             | train, 1,800 abstracts   | devel and test, 604     |
| hoc     | Hallmarks of Cancer; origin not stated          | PMIDs of an even SHA-256 | PMIDs of an odd one     |
| ddi     | DDI 2013; origin not stated                     | Train                    | both Test folders       |

genia and hoc are published as tokens, and `detokenized` converts them to text. ddi splits at semicolons and where its
source had table cells and lines, whose layout is lost: a fragment that does not end in a period is joined to the next.
hoc never splits before a lowercase letter ("cell lines. mRNA levels"), an artifact of a tool. So genia decides.
Datasets whose CoNLL files were split by a tool are not gold and are not used: NCBI-disease, BC5CDR, linnaeus, s800,
AnatEM, the BioNLP datasets and EBM-NLP.
BC2GM, GAD, ChemProt and the like are single sentences out of context.
"""

import hashlib
import re
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import lexome
from real_data import DATASETS

ROOT = Path(__file__).resolve().parents[1]
Part = Literal["development", "held_out"]

_NO_SPACE_BEFORE = re.compile(r" (?=[.,;:?!%)\]}](?: |$)|(?:n't|'s|')(?: |$))")
_NO_SPACE_AFTER = re.compile(r"(?<=[(\[{]) ")
_QUOTED = re.compile(r'(?:``|") (.*?) (?:\'\'|")(?= |$|[.,;:)])')
_STOPPED = re.compile(r"""[.!?][])"']*$""")
_ESCAPE = re.compile(r"\\u([0-9a-f]{4})")


class Gold(NamedTuple):
    """One document's sentences, in order, none of them empty."""

    set: str
    part: Part
    id: str
    sentences: list[str]

    @property
    def text(self) -> str:
        return " ".join(self.sentences)


def gold(folder: Path = DATASETS) -> Iterator[Gold]:
    """Every distinct document of the three datasets with at least two sentences."""
    seen: set[tuple[str, str]] = set()
    for doc in (*genia(folder), *hoc(folder), *ddi(folder)):
        key = (doc.set, doc.text)
        if len(doc.sentences) > 1 and key not in seen:
            seen.add(key)
            yield doc


def genia(folder: Path) -> Iterator[Gold]:
    parts: dict[str, Part] = {"train": "development", "devel": "held_out", "test": "held_out"}
    for name, part in parts.items():
        for doc in lexome.read(folder / "JNLPBA" / "typed-5class" / f"{name}.tsv.xz"):
            _, *abstract = [doc.slice(*sentence) for passage in doc.passages for sentence in passage.sentences]
            yield Gold("genia", part, doc.id, [detokenized(sentence) for sentence in abstract])


def hoc(folder: Path) -> Iterator[Gold]:
    with tarfile.open(folder / "HoC" / "original-text-labels.tar.xz") as archive:
        for member in archive:
            name = Path(member.name)
            if name.parent.name == "text" and name.suffix == ".txt":
                file = archive.extractfile(member)
                lines = file.read().decode().split("\n") if file else []
                odd = hashlib.sha256(name.stem.encode()).digest()[-1] % 2
                sentences = [detokenized(line) for line in lines if line.strip()]
                yield Gold("hoc", "held_out" if odd else "development", name.stem, sentences)


def ddi(folder: Path) -> Iterator[Gold]:
    with tempfile.TemporaryDirectory() as unpacked:
        with tarfile.open(folder / "DDI-2013" / "DDICorpus-2013-xml.tar.xz") as archive:
            archive.extractall(unpacked, filter="data")
        for path in sorted(Path(unpacked).rglob("*.xml")):
            part: Part = "development" if "Train" in path.parts else "held_out"
            for doc in lexome.read(path, "ddi", offsets="repair"):
                sentences = [passage.text.strip() for passage in doc.passages]
                title = doc.id.startswith("DDI-MedLine")
                yield Gold("ddi", part, doc.id, joined([text for text in sentences[title:] if text]))


def joined(pieces: list[str]) -> list[str]:
    """Fragments merged into sentences: one without a final period continues in the next."""
    sentences: list[str] = []
    for piece in pieces:
        if sentences and (_STOPPED.search(sentences[-1]) is None or not any(map(str.isalnum, piece))):
            sentences[-1] += f" {piece}"
        else:
            sentences.append(piece)
    return sentences


def detokenized(tokens: str) -> str:
    """Running text from tokens with spaces between them."""
    text = _QUOTED.sub(r'"\1"', _ESCAPE.sub(lambda found: chr(int(found[1], 16)), tokens.strip()))
    return _NO_SPACE_AFTER.sub("", _NO_SPACE_BEFORE.sub("", text))


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DATASETS
    counts: dict[tuple[str, str], list[int]] = {}
    for doc in gold(folder):
        row = counts.setdefault((doc.set, doc.part), [0, 0, 0])
        row[0] += 1
        row[1] += len(doc.sentences)
        row[2] += len(doc.text)
    for key, row in counts.items():
        print(*key, *row)


if __name__ == "__main__":
    main()
