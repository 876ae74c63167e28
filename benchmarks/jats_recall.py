"""Recall of the text of JATS files, by paragraph, compared with pubmed_parser.

    python benchmarks/jats_recall.py [FOLDER]

FOLDER contains .xml and .nxml files; the default is ../shared/data/formats/jats. A paragraph is a <p> with text of its
own, outside reference lists and licenses. It is found if its own text, split at nested blocks and formulas, is
somewhere in the output; white space and accents are ignored, since pubmed_parser changes them in tables. Writes
results/jats_recall.json.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pubmed_parser
from lxml import etree
from unidecode import unidecode

import lexome
from facts import facts
from real_data import DATA

ROOT = Path(__file__).resolve().parents[1]
APART = {
    *("p", "list", "def-list", "fig", "fig-group", "table-wrap", "disp-formula", "boxed-text", "disp-quote", "media"),
    *("supplementary-material", "statement", "verse-group", "speech", "preformat", "code", "fn", "array", "graphic"),
    *("inline-formula", "alternatives"),
}


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DATA / "formats" / "jats"
    paths = sorted(path for path in folder.iterdir() if path.suffix in (".xml", ".nxml"))
    files = {path.name: recall(path) for path in paths}
    total = {name: sum(file[name] for file in files.values()) for name in ("paragraphs", *READERS)}
    result = {
        "facts": facts("lxml", "pubmed-parser"),
        "files": files,
        "total": total,
    }
    (ROOT / "results" / "jats_recall.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def recall(path: Path) -> dict[str, Any]:
    """The number of paragraphs in the file, and how many each reader finds."""
    paragraphs = list(paragraphs_of(etree.parse(path).getroot()))
    found = {"paragraphs": len(paragraphs)}
    for name, read in READERS.items():
        whole = plain(" \n".join(strings(read(path))))
        found[name] = sum(all(piece in whole for piece in pieces) for pieces in paragraphs)
    return found


def paragraphs_of(root: etree._Element) -> Iterator[list[str]]:
    """Each paragraph with text of its own, as fragments."""
    for element in root.iter("p"):
        if not any(outer.tag in ("ref", "permissions") for outer in element.iterancestors()):
            pieces = [piece for piece in map(plain, pieces_of(element)) if piece]
            if pieces:
                yield pieces


def pieces_of(element: etree._Element) -> list[str]:
    """The element's own text, split at nested elements that are read separately."""
    pieces = [element.text or ""]
    for child in element:
        if child.tag in APART:
            pieces.append("")
        elif isinstance(child.tag, str):
            first, *rest = pieces_of(child)
            pieces[-1] += first
            pieces += rest
        pieces[-1] += child.tail or ""
    return pieces


def plain(text: str) -> str:
    return re.sub(r"\s", "", unidecode(text))


def ours(path: Path) -> Any:
    return [[passage.text for passage in doc.passages] for doc in lexome.read(path, "pmc")]


def peer(path: Path) -> Any:
    """pubmed_parser's article and paragraphs."""
    name = str(path)
    article = attempt(pubmed_parser.parse_pubmed_xml, name)
    return [article, attempt(pubmed_parser.parse_pubmed_paragraph, name, all_paragraph=True)]


def peer_all(path: Path) -> Any:
    """The same, plus its captions and tables."""
    name = str(path)
    captions = attempt(pubmed_parser.parse_pubmed_caption, name)
    return [*peer(path), captions, attempt(pubmed_parser.parse_pubmed_table, name, return_xml=False)]


READERS = {"pubmed_parser": peer, "pubmed_parser_all": peer_all, "lexome": ours}


def attempt(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Result of a pubmed_parser function; some raise on files without a date or a figure ID."""
    try:
        return function(*arguments, **options)
    except (AttributeError, IndexError, KeyError, TypeError, UnboundLocalError, ValueError):
        return None


def strings(value: Any) -> list[str]:
    """Every string nested in a value."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [text for part in inner for text in strings(part)]


if __name__ == "__main__":
    main()
