"""Which format a file has: by its ending, and where an ending is shared, by its first bytes."""

import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable

from lexome.errors import FormatError, UsageError
from lexome.formats.files import Source
from lexome.formats.registry import BY_NAME, FORMATS, Format, by_ending

_PUBTATOR = re.compile(rb"^[^\s|]+\|[a-z]\|", re.MULTILINE)
_MEDLINE = re.compile(rb"(?:PMID|PMC |OWN |STAT|TI  )- |[A-Z][A-Z0-9][A-Z0-9 ]{2}- [^\n]*\n(?:[^\n]+\n)*?PMID- ")
_TABBED_TAG = re.compile(rb"^\S+(?:\t\S+)*?\t(?:[BIOESLU]|[BIESLU]-\S+)\s*$")
_TAG_COLUMN = re.compile(rb"^\S+(?:[\t ]\S+)*?[\t ](?:[BIOESLU]|[BIESLU]-\S+)\s*$")


def detect(source: Source) -> Format:
    """The format of a file; FormatError or UsageError where that cannot be told."""
    candidates = by_ending(source.name)
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        endings = sorted({ending for format in FORMATS if format.reader for ending in format.endings})
        raise UsageError(
            f"{source.name}: no format reads files that end so. Expected one of {' '.join(endings)}, "
            "or the format's name with --from (in Python: format=)."
        )
    head = _plain_head(source)
    if not head.strip():
        raise FormatError(f"{source.name}: the file is empty; expected documents.")
    for format in candidates:
        if _SNIFFERS[format.name](head):
            return format
    names = ", ".join(format.name for format in candidates)
    raise FormatError(
        f"{source.name}: it ends like {names}, but its beginning fits none of them: {head[:60]!r}. "
        "Name the format with --from (in Python: format=)."
    )


def detect_unnamed(source: Source) -> Format:
    """The format of a stream that has no name, such as standard input, by its first bytes alone."""
    head = _plain_head(source)
    for name in (
        "parquet",
        "pubmed",
        "pmc",
        "ddi",
        "bioc-xml",
        "bioc-json",
        "squad",
        "bioasq",
        "pubmedqa",
        "europepmc",
    ):
        if _SNIFFERS[name](head):
            return BY_NAME[name]
    if head.lstrip().startswith(b"{"):
        return BY_NAME["jsonl"]
    return next((BY_NAME[name] for name in ("pubtator", "medline", "conll") if _SNIFFERS[name](head)), BY_NAME["text"])


def _plain_head(source: Source) -> bytes:
    """The first bytes as UTF-8 without a mark."""
    head = source.head()
    if head.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        head = head.decode("utf-16", errors="ignore").encode()
    return head.removeprefix(BOM_UTF8)


def _has_tag(*names: bytes) -> Callable[[bytes], bool]:
    opening = re.compile(rb"<(?:" + b"|".join(names) + rb")(?![\w.-])")
    # The root element stands near the beginning, after a DOCTYPE and perhaps a comment.
    return lambda head: opening.search(head, 0, 1 << 13) is not None


def _has_key(*names: bytes) -> Callable[[bytes], bool]:
    return lambda head: head.lstrip()[:1] in (b"{", b"[") and all(b'"' + name + b'"' in head for name in names)


def _is_pubmedqa(head: bytes) -> bool:
    return re.match(rb'\s*\{\s*"\d+"\s*:\s*[{"]', head) is not None


def _is_ddi(head: bytes) -> bool:
    return b"<sentence " in head and b"<document " in head


def _is_bioc(head: bytes) -> bool:
    return b"<collection" in head or (b"<document>" in head and b"<passage>" in head)


def _is_bioc_json(head: bytes) -> bool:
    """True for BioC; Lexome's own lines have passages too, but none of the other words."""
    return _has_key(b"passages")(head) and any(word in head for word in (b'"infons"', b'"documents"', b'"annotations"'))


def _is_conll(head: bytes) -> bool:
    """True where most lines end in a column that is a tag.

    Lines of a text may end so too, "hepatitis B" or "L-dopa". Where spaces part the columns, all lines must have as
    many, and one of them must be outside of all mentions.
    """
    lines = [line for line in head.split(b"\n")[:200] if line.strip() and not line.startswith(b"-DOCSTART-")]
    if sum(1 for line in lines if _TABBED_TAG.match(line)) >= 0.9 * len(lines):
        return bool(lines)
    spaced = [line.split() for line in lines if _TAG_COLUMN.match(line)]
    if len(spaced) < max(2, 0.9 * len(lines)) or len({len(columns) for columns in spaced}) > 1:
        return False
    return any(columns[-1] == b"O" for columns in spaced)


def _is_mimic(head: bytes) -> bool:
    first = head.split(b"\n", 1)[0].upper()
    return b"TEXT" in first and (b"ROW_ID" in first or b"NOTE_ID" in first)


_SNIFFERS: dict[str, Callable[[bytes], bool]] = {
    "pubmed": _has_tag(b"PubmedArticleSet", b"PubmedArticle", b"PubmedBookArticle", b"MedlineCitationSet"),
    "pmc": _has_tag(b"article", b"pmc-articleset"),
    "ddi": _is_ddi,
    "bioc-xml": _is_bioc,
    "bioc-json": _is_bioc_json,
    "squad": _has_key(b"paragraphs"),
    "bioasq": _has_key(b"questions"),
    "pubmedqa": _is_pubmedqa,
    "europepmc": lambda head: any(_has_key(name)(head) for name in (b"abstractText", b"authorString", b"resultList")),
    "pubtator": lambda head: _PUBTATOR.match(head.lstrip()) is not None,
    "medline": lambda head: _MEDLINE.match(head.removeprefix(b"\xef\xbb\xbf").lstrip()) is not None,
    "conll": _is_conll,
    "mimic": _is_mimic,
    "tsv": lambda head: b"\t" in head or b"," in head,
    "brat": lambda head: False,
    "hoc": lambda head: False,
    "parquet": lambda head: head.startswith(b"PAR1"),
    "text": lambda head: True,
}
