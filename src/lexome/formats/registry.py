"""The table of formats: names, endings, directions, and where each one's functions live.

Importing this imports no format. Each format is a module of this package with `read` and `write`
functions; the table names them, and a test checks that every name is there.
"""

import difflib
import importlib
import inspect
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from lexome.errors import FormatError, UsageError
from lexome.formats.streams import Source, uncompressed_name


@dataclass(frozen=True, slots=True)
class Format:
    """One format: how it is called, how its files end, which functions read and write it.

    A `grouped` format spreads a document over several files, so its reader is given all of them at
    once; `beside` are the files that belong to one that was named alone. Where `folder` is true it is
    written as a folder.
    """

    name: str
    description: str
    module: str
    extensions: tuple[str, ...] = ()
    reader: str | None = None
    writer: str | None = None
    grouped: bool = False
    companions: tuple[str, ...] = ()
    folder: bool = False

    @property
    def directions(self) -> str:
        """What can be done with it, for the help page."""
        return " and ".join(word for word, way in (("read", self.reader), ("write", self.writer)) if way)

    def read_function(self) -> Callable[..., Iterator[Any]]:
        """The reader, or UsageError where the format is only written."""
        return self._function(self.reader, "read")

    def write_function(self) -> Callable[..., None]:
        """The writer, or UsageError where the format is only read."""
        return self._function(self.writer, "written")

    def _function(self, name: str | None, verb: str) -> Callable[..., Any]:
        if name is None:
            other = "written" if verb == "read" else "read"
            raise UsageError(f"the format {self.name!r} cannot be {verb}, only {other}.")
        function: Callable[..., Any] = getattr(importlib.import_module(f"lexome.formats.{self.module}"), name)
        return function


FORMATS: tuple[Format, ...] = (
    Format(
        "pubmed", "PubMed XML, baseline, update files and E-utilities", "pubmed.pubmed_xml", (".xml",), reader="read"
    ),
    Format("pmc", "PMC full text, JATS XML", "jats.pmc", (".nxml", ".xml"), reader="read"),
    Format(
        "bioc-xml",
        "BioC XML, PubTator's included",
        "bioc.bioc_xml",
        (".bioc.xml", ".xml"),
        reader="read",
        writer="write",
    ),
    Format(
        "bioc-json",
        "BioC JSON, PubTator's included",
        "bioc.bioc_json",
        (".bioc.json", ".json"),
        reader="read",
        writer="write",
    ),
    Format(
        "pubtator",
        "PubTator text with relations",
        "pubtator",
        (".pubtator", ".txt"),
        reader="read",
        writer="write",
    ),
    Format(
        "brat",
        "brat standoff, .txt and .ann pairs; written as a folder",
        "brat",
        (".ann", ".txt"),
        reader="read",
        writer="write",
        grouped=True,
        companions=("{stem}.txt", "{stem}.ann"),
        folder=True,
    ),
    Format(
        "conll",
        "columns of tokens and tags: IOB1, IOB2, IOBES, IO",
        "conll",
        (".conll", ".iob", ".bio", ".tsv", ".txt"),
        reader="read",
        writer="write",
    ),
    Format(
        "bc2gm",
        "BioCreative II gene mention, .in and .eval files",
        "bc2gm",
        (".in", ".eval"),
        reader="read",
        grouped=True,
        companions=("{stem}.in", "GENE.eval", "ALTGENE.eval"),
    ),
    Format("ddi", "DDI 2013 XML, drugs and their interactions", "ddi", (".xml",), reader="read"),
    Format("squad", "SQuAD 1.1 and 2.0 JSON", "squad", (".squad.json", ".json"), reader="read", writer="write"),
    Format("bioasq", "BioASQ JSON, questions with snippets", "bioasq", (".json",), reader="read"),
    Format("pubmedqa", "PubMedQA JSON", "pubmedqa", (".json",), reader="read"),
    Format("mimic", "MIMIC NOTEEVENTS CSV", "mimic", (".csv",), reader="read"),
    Format(
        "tsv", "BLUE and BioBERT tables: a text and its label a row", "labelled_table", (".tsv", ".csv"), reader="read"
    ),
    Format(
        "hoc",
        "Hallmarks of Cancer, text and label files a document",
        "hoc",
        (".txt",),
        reader="read",
        grouped=True,
    ),
    Format("medline", "MEDLINE tagged text, .nbib", "medline", (".nbib", ".txt"), reader="read"),
    Format("europepmc", "Europe PMC JSON", "europepmc", (".json",), reader="read"),
    Format("text", "plain text", "plain_text", (".txt",), reader="read", writer="write"),
    Format(
        "jsonl",
        "JSON lines, one document a line",
        "jsonl",
        (".jsonl", ".ndjson"),
        reader="read",
        writer="write",
    ),
    Format("parquet", "Parquet, one document a row", "parquet", (".parquet",), reader="read", writer="write"),
    Format("spacy", "spaCy DocBin", "spacy_docs", (".spacy",), reader="read", writer="write"),
    Format("html", "a page with highlighted mentions", "html", (".html", ".htm"), writer="write"),
)

BY_NAME: Mapping[str, Format] = {format.name: format for format in FORMATS}


def get_format(name: str) -> Format:
    """The format of this name; UsageError lists the names there are."""
    if name not in BY_NAME:
        near = difflib.get_close_matches(name, BY_NAME, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise UsageError(f"there is no format {name!r}.{hint} There are: {', '.join(BY_NAME)}.")
    return BY_NAME[name]


def formats_by_extension(name: str, *, writing: bool = False) -> list[Format]:
    """The formats a file of this name can have, by its longest ending, in the table's order."""
    last = uncompressed_name(name).lower().rpartition("/")[2]
    *_, before, ending = ("", "", *last.split("."))
    table = _endings(writing)
    return table.get(f".{before}.{ending}") or table.get(f".{ending}") or []


@cache
def _endings(writing: bool) -> Mapping[str, list[Format]]:
    table: dict[str, list[Format]] = {}
    for format in FORMATS:
        if format.writer if writing else format.reader:
            for ending in format.extensions:
                table.setdefault(ending, []).append(format)
    return table


def option_parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The keyword-only parameters of a reader or writer that a user may set."""
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    return {
        parameter.name: parameter
        for parameter in parameters
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.name != "tally"
    }


def parse_options(format: Format, function: Callable[..., Any], options: Mapping[str, object]) -> dict[str, object]:
    """The options as the function's own types; strings from a command line are converted."""
    if not options:
        return {}
    known = option_parameters(function)
    from pydantic import TypeAdapter, ValidationError

    checked: dict[str, object] = {}
    for name, value in options.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            allowed = f" It takes: {', '.join(known)}." if known else " It takes none."
            raise UsageError(f"the format {format.name!r} has no option {name!r}.{hint}{allowed}")
        adapter: TypeAdapter[Any] = TypeAdapter(known[name].annotation)
        try:
            checked[name] = (
                adapter.validate_strings(value) if isinstance(value, str) else adapter.validate_python(value)
            )
        except ValidationError as error:
            problem = error.errors()[0]["msg"]
            raise UsageError(f"the option {name}={value!r} of the format {format.name!r}: {problem}.") from None
    return checked


_PUBTATOR = re.compile(rb"^[^\s|]+\|[a-z]\|", re.MULTILINE)
_MEDLINE = re.compile(rb"(?:PMID|PMC |OWN |STAT|TI  )- |[A-Z][A-Z0-9][A-Z0-9 ]{2}- [^\n]*\n(?:[^\n]+\n)*?PMID- ")
_TABBED_TAG = re.compile(rb"^\S+(?:\t\S+)*?\t(?:[BIOESLU]|[BIESLU]-\S+)\s*$")
_TAG_COLUMN = re.compile(rb"^\S+(?:[\t ]\S+)*?[\t ](?:[BIOESLU]|[BIESLU]-\S+)\s*$")


def detect(source: Source) -> Format:
    """The format of a file; FormatError or UsageError where that cannot be told."""
    candidates = formats_by_extension(source.name)
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        endings = sorted({ending for format in FORMATS if format.reader for ending in format.extensions})
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


def detect_by_content(source: Source) -> Format:
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
