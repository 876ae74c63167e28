"""The table of formats: names, file extensions, and how a file's format is detected.

Importing this module imports no format. Each format is a module of this package with a `read` function, a
`write` function, or both; their keyword-only parameters are the format's options. A module of several formats names
them in its functions: `read_pdf`.
"""

import difflib
import importlib
import inspect
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from lexome.errors import FormatError, UsageError
from lexome.formats.streams import Source, empty_file, require_text, uncompressed_name, utf16_of


@dataclass(frozen=True, slots=True)
class Format:
    """One file format.

    writer      the module of the write function, where it is not that of the read function
    grouped     documents are spread over several files, so the reader takes all of them at once
    companions  files that belong to a file of a grouped format
    folder      written as a folder
    """

    name: str
    description: str
    module: str
    extensions: tuple[str, ...] = ()
    reads: bool = True
    writes: bool = False
    writer: str = ""
    grouped: bool = False
    companions: tuple[str, ...] = ()
    folder: bool = False

    @property
    def binary(self) -> bool:
        """Whether files of the format are not text."""
        return self.name in ("parquet", "spacy", "pdf", "docx", "xlsx")

    @property
    def is_recoded(self) -> bool:
        """Whether its reader takes text in one encoding, by default UTF-8; JSON is always in UTF-8."""
        if self.name == "jsonl":
            return False
        encoding = option_parameters(self.read_function()).get("encoding")
        return encoding is not None and encoding.default == "utf-8"

    @property
    def directions(self) -> str:
        """ "read", "write" or "read and write", for the help page."""
        return " and ".join(verb for verb, supported in (("read", self.reads), ("write", self.writes)) if supported)

    def read_function(self) -> Callable[..., Iterator[Any]]:
        """The reader; UsageError if the format is write-only."""
        if not self.reads:
            message = f"the format {self.name!r} can only be written, not read."
            raise UsageError(message, code="write-only-format", value=self.name)
        return cast(Callable[..., Iterator[Any]], self._function(self.module, "read"))

    def write_function(self) -> Callable[..., None]:
        """The writer; UsageError if the format is read-only."""
        if not self.writes:
            message = f"the format {self.name!r} can only be read, not written."
            raise UsageError(message, code="read-only-format", value=self.name)
        return cast(Callable[..., None], self._function(self.writer or self.module, "write"))

    def _function(self, module: str, verb: str) -> Any:
        """The verb's function in a module: read_pdf where a module reads several formats, else read."""
        functions = vars(importlib.import_module(f"lexome.formats.{module}"))
        return functions.get(f"{verb}_{self.name}") or functions[verb]


FORMATS: tuple[Format, ...] = (
    Format("pubmed", "PubMed XML: baseline, update files, E-utilities", "pubmed.pubmed_xml", (".xml",)),
    Format("pmc", "PMC full text, JATS XML", "jats.pmc", (".nxml", ".xml")),
    Format("bioc-xml", "BioC XML, including PubTator's", "bioc.bioc_xml", (".bioc.xml", ".xml"), writes=True),
    Format("bioc-json", "BioC JSON, including PubTator's", "bioc.bioc_json", (".bioc.json", ".json"), writes=True),
    Format("pubtator", "PubTator text with relations", "pubtator", (".pubtator", ".txt"), writes=True),
    Format(
        "brat",
        "brat standoff, pairs of .txt and .ann, also .a1 and .a2 of BioNLP-ST; written as a folder",
        "brat",
        (".ann", ".a1", ".a2", ".txt"),
        writes=True,
        grouped=True,
        companions=("{stem}.txt", "{stem}.ann", "{stem}.txt.ann", "{stem}.a1", "{stem}.a2"),
        folder=True,
    ),
    Format(
        "conll",
        "CoNLL columns of tokens and tags: IOB1, IOB2, IOBES, IO",
        "conll",
        (".conll", ".iob", ".bio", ".tsv", ".txt"),
        writes=True,
    ),
    Format(
        "bc2gm",
        "BioCreative II gene mention, .in and .eval files",
        "bc2gm",
        (".in", ".eval"),
        grouped=True,
        companions=("{stem}.in", "GENE.eval", "ALTGENE.eval"),
    ),
    Format("ddi", "DDI 2013 XML, drug-drug interactions", "ddi", (".xml",)),
    Format("squad", "SQuAD 1.1 and 2.0 JSON", "squad", (".squad.json", ".json"), writes=True),
    Format("bioasq", "BioASQ JSON, questions with snippets", "bioasq", (".json",)),
    Format("pubmedqa", "PubMedQA JSON", "pubmedqa", (".json",)),
    Format("mimic", "MIMIC clinical notes, NOTEEVENTS CSV", "mimic", (".csv",)),
    Format("pubmed-csv", "PubMed's CSV export: titles", "pubmed.pubmed_csv", (".csv",)),
    Format(
        "csv",
        "CSV: labelled texts in, a table of mentions or relations out",
        "labelled_table",
        (".csv",),
        writes=True,
        writer="mention_table",
    ),
    Format(
        "tsv",
        "tab-separated: labelled texts (BLUE, BioBERT) in, a table of mentions or relations out",
        "labelled_table",
        (".tsv", ".csv"),
        writes=True,
        writer="mention_table",
    ),
    Format("xlsx", "Excel: labelled texts in, a table of mentions or relations out", "office", (".xlsx",), writes=True),
    Format("pdf", "PDF, its extracted text", "office", (".pdf",)),
    Format("docx", "Word documents, their extracted text", "office", (".docx",)),
    Format("hoc", "Hallmarks of Cancer, one text file and one label file per document", "hoc", (".txt",), grouped=True),
    Format("medline", "MEDLINE tagged text, .nbib", "medline", (".nbib", ".txt")),
    Format("ris", "RIS references of citation managers", "ris", (".ris", ".txt")),
    Format("europepmc", "Europe PMC JSON", "europepmc", (".json",)),
    Format("jsonl", "JSON Lines, one document per line", "jsonl", (".jsonl", ".ndjson"), writes=True),
    Format("parquet", "Parquet, one document per row", "parquet", (".parquet",), writes=True),
    Format("spacy", "spaCy DocBin", "spacy_docs", (".spacy",), writes=True),
    Format(
        "html",
        "web page: its extracted text in, highlighted mentions out",
        "html_text",
        (".html", ".htm", ".xhtml", ".txt"),
        writes=True,
        writer="html",
    ),
    Format("text", "plain text", "plain_text", (".txt",), writes=True),
)

BY_NAME: Mapping[str, Format] = {format.name: format for format in FORMATS}
# Formats that users call by the name of a program.
_PROGRAMS = {"excel": "xlsx", "word": "docx"}


def get_format(name: str) -> Format:
    """The format of this name; UsageError lists the known ones."""
    if name not in BY_NAME:
        suggestion = _suggestion(_PROGRAMS.get(name.lower(), name), BY_NAME)
        message = f"unknown format {name!r}.{suggestion} Known formats: {', '.join(BY_NAME)}."
        raise UsageError(message, code="unknown-format", value=name)
    return BY_NAME[name]


def formats_by_extension(name: str, *, writing: bool = False) -> list[Format]:
    """The formats that a file of this name can have, by its longest known extension, in the table's order."""
    last = uncompressed_name(name).lower().rpartition("/")[2]
    *_, before, extension = ("", "", *last.split("."))
    table = _extension_table(writing)
    return table.get(f".{before}.{extension}") or table.get(f".{extension}") or []


@cache
def _extension_table(writing: bool) -> Mapping[str, list[Format]]:
    table: dict[str, list[Format]] = {}
    for format in FORMATS:
        if format.writes if writing else format.reads:
            for extension in format.extensions:
                table.setdefault(extension, []).append(format)
    return table


def option_parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The options of a reader or writer: its keyword-only parameters."""
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    return {
        parameter.name: parameter
        for parameter in parameters
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.name != "tally"
    }


def parse_options(format: Format, function: Callable[..., Any], options: Mapping[str, object]) -> dict[str, object]:
    """Validated options for a reader or writer; strings from the command line are converted."""
    if not options:
        return {}
    from pydantic import TypeAdapter, ValidationError

    known = option_parameters(function)
    parsed: dict[str, object] = {}
    for name, value in options.items():
        if name not in known:
            allowed = f" Options: {', '.join(known)}." if known else " It has no options."
            message = f"the format {format.name!r} has no option {name!r}.{_suggestion(name, known)}{allowed}"
            raise UsageError(message, code="unknown-option", value=name)
        adapter: TypeAdapter[Any] = TypeAdapter(known[name].annotation)
        validate = adapter.validate_strings if isinstance(value, str) else adapter.validate_python
        try:
            parsed[name] = validate(value)
        except ValidationError as error:
            message = f"option {name}={value!r} of the format {format.name!r}: {error.errors()[0]['msg']}."
            raise UsageError(message, code="invalid-option", value=value) from None
    return parsed


def _suggestion(name: str, known: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def detect(source: Source) -> Format:
    """The format of a file, by its extension and, if several share that, its first bytes."""
    candidates = formats_by_extension(source.name)
    if candidates and not any(format.binary for format in candidates):
        require_text(source, candidates[-1].name)
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        extensions = sorted({extension for format in FORMATS if format.reads for extension in format.extensions})
        raise UsageError(
            f"{source.name}: no format has this file extension; expected one of {' '.join(extensions)}. "
            "Name the format with --from (in Python: format=).",
            code="unknown-extension",
            value=source.name,
        )
    head = _utf8_head(source)
    if not head.strip():
        raise empty_file(source)
    for format in candidates:
        if _SNIFFERS[format.name](head):
            return format
    names = ", ".join(format.name for format in candidates)
    columns = ""
    if "csv" in names:
        columns = (
            " The first row of a table names its columns, with commas between them (tabs in .tsv), and one of them is "
            "title, abstract or text; another one is named with --set text=COLUMN."
        )
    raise FormatError(
        f"{source.name}: the extension belongs to {names}, but the file begins with {head[:60]!r}, which matches none "
        f"of them. Name the format with --from (in Python: format=).{columns}",
        code="undetected-format",
        value=source.name,
    )


def detect_by_content(source: Source) -> Format:
    """The format of an unnamed stream, such as standard input, by its first bytes."""
    head = _utf8_head(source)
    # Every document of Lexome's own has a key "questions", as files of BioASQ have.
    if _OWN_LINE.match(head):
        return BY_NAME["jsonl"]
    for name in _BINARY_XML_AND_JSON:
        if _SNIFFERS[name](head):
            return BY_NAME[name]
    if head.lstrip().startswith(b"{"):
        return BY_NAME["jsonl"]
    return next(
        (BY_NAME[name] for name in ("html", "pubtator", "medline", "ris", "conll") if _SNIFFERS[name](head)),
        BY_NAME["text"],
    )


_BINARY_XML_AND_JSON = (
    "parquet", "pdf", "pubmed", "pmc", "ddi", "bioc-xml", "bioc-json", "squad", "bioasq", "pubmedqa", "europepmc"
)  # fmt: skip


def _utf8_head(source: Source) -> bytes:
    """The first bytes as UTF-8, without a byte order mark."""
    head = source.head()
    encoding = utf16_of(head)
    if encoding is not None:
        head = head.decode(encoding, errors="ignore").encode()
    return head.removeprefix(BOM_UTF8)


_OWN_LINE = re.compile(rb'\s*\{"id":"(?:[^"\\]|\\.)*","passages":\[(?:\{"offset":|\])')
_PUBTATOR = re.compile(rb"^[^\s|]+\|[a-z]\|", re.MULTILINE)
_MEDLINE = re.compile(rb"(?:PMID|PMC |OWN |STAT|TI  )- |[A-Z][A-Z0-9][A-Z0-9 ]{2}- [^\n]*\n(?:[^\n]+\n)*?PMID- ")
_RIS = re.compile(rb"TY  - [A-Z]")
_HTML = re.compile(rb"\s*(?:<!--.{0,2000}?-->\s*)?<(?:!doctype\s+html|html)[\s>]", re.IGNORECASE | re.DOTALL)
_TABBED_TAG = re.compile(rb"^\S+(?:\t\S+)*?\t(?:[BIOESLU]|[BIESLU]-\S+)\s*$")
_TAG_COLUMN = re.compile(rb"^\S+(?:[\t ]\S+)*?[\t ](?:[BIOESLU]|[BIESLU]-\S+)\s*$")


def _has_tag(*names: bytes) -> Callable[[bytes], bool]:
    opening = re.compile(rb"<(?:" + b"|".join(names) + rb")(?![\w.-])")
    # The root element is near the beginning, after a DOCTYPE and perhaps a comment.
    return lambda head: opening.search(head, 0, 1 << 13) is not None


def _has_key(*names: bytes) -> Callable[[bytes], bool]:
    return lambda head: head.lstrip()[:1] in (b"{", b"[") and all(b'"' + name + b'"' in head for name in names)


def _is_conll(head: bytes) -> bool:
    """True if the last column of most lines is a tag.

    Lines of prose can end so too ("hepatitis B", "L-dopa"): with spaces between the columns, all lines must have the
    same number of columns and at least one tag must be O.
    """
    lines = [line for line in head.split(b"\n")[:200] if line.strip() and not line.startswith(b"-DOCSTART-")]
    if sum(1 for line in lines if _TABBED_TAG.match(line)) >= 0.9 * len(lines):
        return bool(lines)
    spaced = [line.split() for line in lines if _TAG_COLUMN.match(line)]
    if len(spaced) < max(2, 0.9 * len(lines)) or len({len(columns) for columns in spaced}) > 1:
        return False
    return any(columns[-1] == b"O" for columns in spaced)


_SNIFFERS: dict[str, Callable[[bytes], bool]] = {
    "pubmed": _has_tag(b"PubmedArticleSet", b"PubmedArticle", b"PubmedBookArticle", b"MedlineCitationSet"),
    "pmc": _has_tag(b"article", b"pmc-articleset"),
    "ddi": lambda head: b"<sentence " in head and b"<document " in head,
    "bioc-xml": lambda head: b"<collection" in head or (b"<document>" in head and b"<passage>" in head),
    # Lexome's own JSON Lines have "passages" too, but none of the other keys.
    "bioc-json": lambda head: any(
        _has_key(b"passages", key)(head) for key in (b"infons", b"documents", b"annotations")
    ),
    "squad": _has_key(b"paragraphs"),
    "bioasq": _has_key(b"questions"),
    "pubmedqa": lambda head: re.match(rb'\s*\{\s*"\d+"\s*:\s*[{"]', head) is not None,
    "europepmc": lambda head: any(_has_key(name)(head) for name in (b"abstractText", b"authorString", b"resultList")),
    "pubtator": lambda head: _PUBTATOR.match(head.lstrip()) is not None,
    "medline": lambda head: _MEDLINE.match(head.removeprefix(b"\xef\xbb\xbf").lstrip()) is not None,
    "conll": _is_conll,
    "mimic": lambda head: re.match(rb"(?=.*TEXT).*(ROW|NOTE)_ID", head, re.IGNORECASE) is not None,
    "ris": lambda head: _RIS.match(head.lstrip()) is not None,
    "html": lambda head: _HTML.match(head) is not None,
    "pubmed-csv": lambda head: re.match(rb'"?PMID"?,"?Title"?,', head) is not None,
    "csv": lambda head: b"," in head,
    "tsv": lambda head: b"\t" in head or b"," in head,
    **dict.fromkeys(("brat", "hoc"), lambda head: False),
    "parquet": lambda head: head.startswith(b"PAR1"),
    "pdf": lambda head: head.startswith(b"%PDF-"),
    "text": lambda head: True,
}
