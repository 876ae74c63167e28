"""The table of file formats, how a file's format is detected, and `read`, `write` and `convert`.

Importing this package imports no format. Each format is a module of it with a `read` function, a `write` function, or
both; their keyword-only parameters are the format's options. A module of several formats names them in its functions:
`read_pdf`.
"""

import importlib
import inspect
import os
import re
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, cast

from lexome.document import Document, documents_of
from lexome.errors import FormatError, UsageError, did_you_mean
from lexome.files import atomic_write
from lexome.formats.citation import find_pmids, pmid_advice
from lexome.formats.streams import (
    COMPRESSIONS,
    HIDDEN_NOTE,
    Source,
    describe_binary,
    empty_file,
    is_archive,
    is_json_array,
    open_sources,
    open_stream,
    prepare_text,
    require_text,
    uncompressed_name,
    utf16_of,
)
from lexome.formats.tally import Tally
from lexome.progress import progress

__all__ = [
    "BY_NAME", "FORMATS", "Format", "Paths", "Tally", "as_paths", "convert", "detect", "detect_by_content",
    "expand", "formats_by_extension", "get_format", "input_files", "option_parameters", "parse_options", "read",
    "split_options", "work_units", "write", "writing_format",
]  # fmt: skip

Paths = str | Path | Iterable[str | Path]
Reader = Callable[..., Iterator[Document]]

STANDARD_INPUT = "standard input"


@dataclass(frozen=True, slots=True)
class Format:
    """One file format.

    writer      the module of the write function, if it is not that of the read function
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
        """Whether files of the format are not text, or need not be."""
        return self.name in ("parquet", "spacy", "pdf", "docx", "xlsx", "names")

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
    Format("pubmed", "PubMed XML: baseline, update files, E-utilities", "pubmed_xml", (".xml",)),
    Format("pmc", "PMC full text, JATS XML", "pmc", (".nxml", ".xml")),
    Format("bioc-xml", "BioC XML, including PubTator's", "bioc_xml", (".bioc.xml", ".xml"), writes=True),
    Format("bioc-json", "BioC JSON, including PubTator's", "bioc_json", (".bioc.json", ".json"), writes=True),
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
    Format("pubmed-csv", "PubMed's CSV export: titles", "pubmed_csv", (".csv",)),
    Format(
        "csv",
        "CSV: labeled texts in, a table of mentions, relations or labels out",
        "labeled_table",
        (".csv",),
        writes=True,
        writer="mention_table",
    ),
    Format(
        "tsv",
        "tab-separated: labeled texts (BLUE, BioBERT) in, a table of mentions, relations or labels out",
        "labeled_table",
        (".tsv", ".csv"),
        writes=True,
        writer="mention_table",
    ),
    Format(
        "xlsx",
        "Excel: labeled texts in, a table of mentions, relations or labels out",
        "office",
        (".xlsx",),
        writes=True,
    ),
    Format("names", "list or table of names in text, CSV or Excel: a mention per row", "name_table"),
    Format("pdf", "PDF, its extracted text", "office", (".pdf",)),
    Format("docx", "Word documents, their extracted text", "office", (".docx",)),
    Format("hoc", "Hallmarks of Cancer, one text file and one label file per document", "hoc", (".txt",), grouped=True),
    Format("medline", "MEDLINE tagged text, .nbib", "medline", (".nbib", ".txt")),
    Format("ris", "RIS references of citation managers", "ris", (".ris", ".txt")),
    Format("europepmc", "Europe PMC JSON", "europepmc", (".json",)),
    Format(
        "jsonl",
        "JSON Lines, one document per line; reads JSON arrays too",
        "jsonl",
        (".jsonl", ".ndjson", ".json"),
        writes=True,
    ),
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
        suggestion = did_you_mean(_PROGRAMS.get(name.lower(), name), BY_NAME)
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
            message = f"the format {format.name!r} has no option {name!r}.{did_you_mean(name, known)}{allowed}"
            raise UsageError(message, code="unknown-option", value=name)
        adapter: TypeAdapter[Any] = TypeAdapter(known[name].annotation)
        validate = adapter.validate_strings if isinstance(value, str) else adapter.validate_python
        try:
            parsed[name] = validate(value)
        except ValidationError as error:
            message = f"option {name}={value!r} of the format {format.name!r}: {error.errors()[0]['msg']}."
            raise UsageError(message, code="invalid-option", value=value) from None
    return parsed


# Detection


def detect(source: Source) -> Format:
    """The format of a file, by its extension and, if several share that, its first bytes."""
    candidates = formats_by_extension(source.name)
    if candidates and not any(format.binary for format in candidates):
        require_text(source, candidates[-1].name)
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        extensions = sorted({extension for format in FORMATS if format.reads for extension in format.extensions})
        binary = describe_binary(source.head())
        seen = "no format has this file extension" + (f", and the file is {binary.what}" if binary else "")
        advice = binary.advice if binary else "Name the format with --from (in Python: format=)."
        raise UsageError(
            f"{source.name}: {seen}; expected one of {' '.join(extensions)}. {advice}",
            code="unknown-extension",
            value=source.name,
        )
    head = _utf8_head(source)
    if not head.strip():
        raise empty_file(source)
    if BY_NAME["jsonl"] in candidates and _OWN_JSON.match(head):
        return BY_NAME["jsonl"]
    for format in candidates:
        if _SNIFFERS[format.name](head):
            return format
    names = ", ".join(format.name for format in candidates)
    if pmids := find_pmids(re.sub(r"(?i)\A\W*pmids?\W*\n", "", head.decode(errors="replace"))):
        message = f"{source.name}: has {len(pmids):,} PMIDs and no text. {pmid_advice(pmids)}"
        raise FormatError(message, code="undetected-format", value=source.name)
    shown, advice = head.decode(errors="replace")[:60], ""
    if "json" in names and head.lstrip().startswith(b"["):
        advice = " A list is read if it has objects with a title, abstract or text."
    if "csv" in names:
        advice = (
            " The first row of a table must name its columns, separated by commas or semicolons (.tsv: tabs), one of "
            "them title, abstract or text; for another column, add --set text=COLUMN."
        )
    raise FormatError(
        f"{source.name}: the extension belongs to {names}, but the file begins with {shown!r}, which matches none of "
        f"them. Name the format with --from (in Python: format=).{advice}",
        code="undetected-format",
        value=source.name,
    )


def detect_by_content(source: Source) -> Format:
    """The format of an unnamed stream, such as standard input, by its first bytes."""
    head = _utf8_head(source)
    # Every document of Lexome's own has a key "questions", as files of BioASQ have.
    if _OWN_LINE.match(head) or _OWN_JSON.match(head):
        return BY_NAME["jsonl"]
    for name in _BINARY_XML_AND_JSON:
        if _SNIFFERS[name](head):
            return BY_NAME[name]
    if head.lstrip().startswith(b"{") or _SNIFFERS["jsonl"](head):
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
# The same with white space, alone or in an array. Passages of BioC have no "kind".
_OWN_JSON = re.compile(
    rb'\s*(?:\[\s*)?\{\s*"id":\s*"(?:[^"\\]|\\.)*",\s*"passages":\s*\[\s*'
    rb'(?:\{\s*"offset":\s*\d+,\s*"text":\s*"(?:[^"\\]|\\.)*",\s*"kind"|\])'
)
_PUBTATOR = re.compile(rb"^[^\s|]+\|[a-z]\|", re.MULTILINE)
_MEDLINE = re.compile(rb"(?:PMID|PMC |OWN |STAT|TI  )- |[A-Z][A-Z0-9][A-Z0-9 ]{2}- [^\n]*\n(?:[^\n]+\n)*?PMID- ")
_RIS = re.compile(rb"TY  - [A-Z]")
# A table of PMID, Title and Abstract is one of the user's own.
_PUBMED_CSV = re.compile(rb'"?PMID"?,"?Title"?,"?Authors"?,"?Citation"?,(?!.*\babstract\b)', re.IGNORECASE)
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
    "jsonl": is_json_array,
    "pubtator": lambda head: _PUBTATOR.match(head.lstrip()) is not None,
    "medline": lambda head: _MEDLINE.match(head.removeprefix(b"\xef\xbb\xbf").lstrip()) is not None,
    "conll": _is_conll,
    "mimic": lambda head: re.match(rb"(?=.*TEXT).*(ROW|NOTE)_ID", head, re.IGNORECASE) is not None,
    "ris": lambda head: _RIS.match(head.lstrip()) is not None,
    "html": lambda head: _HTML.match(head) is not None,
    "pubmed-csv": lambda head: _PUBMED_CSV.match(head) is not None,
    "csv": lambda head: b"," in head or b";" in head,
    "tsv": lambda head: b"\t" in head or b"," in head,
    **dict.fromkeys(("brat", "hoc"), lambda head: False),
    "parquet": lambda head: head.startswith(b"PAR1"),
    "pdf": lambda head: head.startswith(b"%PDF-"),
    "text": lambda head: True,
}


# Reading and writing


def read(
    paths: Paths,
    format: str | None = None,
    *,
    rejects: str | Path | None = None,
    tally: Tally | None = None,
    options_if_supported: Mapping[str, object] | None = None,
    **options: object,
) -> Iterator[Document]:
    """Stream the documents of files, folders and archives in any supported format.

    The format is detected from the file's extension and first bytes unless `format` is given. A document that cannot be
    read raises; with `rejects`, it is written to that file with the reason, and reading continues. Pass a Tally to get
    counts. `options` are those of the format; `options_if_supported` apply only to the formats that have them.
    """
    if tally is not None and rejects is not None:
        raise UsageError(
            "pass either rejects or a tally, not both: Tally(rejects=...).", code="conflicting-options", value="rejects"
        )
    chosen = get_format(format) if format is not None else None
    tally = tally if tally is not None else Tally(rejects)
    files = expand(as_paths(paths), chosen, tally)
    docs = _FileReader(chosen, tally, options, options_if_supported or {}).read(files)

    def count_documents() -> Iterator[Document]:
        with tally:
            for doc in docs:
                tally.count(doc)
                yield doc

    return count_documents()


def write(
    path: str | Path,
    docs: Document | Iterable[Document],
    format: str | None = None,
    *,
    tally: Tally | None = None,
    **options: object,
) -> None:
    """Write documents to a file ("-" is standard output), in the format of its extension or the one named.

    The file is written atomically; .gz, .xz and .zst compress it. A document that the format cannot represent
    raises; if the tally has a rejects file, it goes there.
    """
    path, docs = _as_path(path), documents_of(docs)
    chosen = writing_format(path, format)
    function = chosen.write_function()
    parsed = parse_options(chosen, function, options)
    tally = tally if tally is not None else Tally()
    if is_archive(path.name):
        message = f"{path}: archives can be read but not written. Name a file or, for brat, a folder."
        raise UsageError(message, code="archive-output", value=path)
    if chosen.folder and str(path) == "-":
        message = f"the format {chosen.name!r} is written as a folder, not to standard output. Name a folder."
        raise UsageError(message, code="folder-format", value=chosen.name)
    if chosen.folder:
        function(docs, path, tally=tally, **parsed)
    elif str(path) == "-":
        if chosen.binary and sys.stdout.isatty():
            message = f"the format {chosen.name!r} is not text, and standard output is a terminal. Name a file."
            raise UsageError(message, code="binary-to-terminal", value=chosen.name)
        function(docs, sys.stdout.buffer, tally=tally, **parsed)
        sys.stdout.buffer.flush()
    else:
        with atomic_write(path) as stream:
            function(docs, stream, tally=tally, **parsed)


def writing_format(path: Path, format: str | None) -> Format:
    """The format to write a file in: the one named, else the one of its extension."""
    if format is not None:
        return get_format(format)
    if str(path) == "-":
        return get_format("text")
    candidates = formats_by_extension(path.name, writing=True)
    # A format's first extension is its primary one: .txt is one of PubTator's, but the first of plain text.
    primary = [format for format in candidates if _has_extension(path.name, format.extensions[:1])]
    if len(primary or candidates) == 1:
        return (primary or candidates)[0]
    if not candidates:
        message = (
            f"{path}: no format is written with this file extension; expected one such as .csv, .xlsx, .html, "
            ".jsonl or .bioc.xml. Change it, or name the format with --to (in Python: format=)."
        )
        raise UsageError(message, code="unknown-extension", value=path)
    names = ", ".join(format.name for format in candidates)
    message = f"{path}: {names} all have this file extension. Name the format with --to (in Python: format=)."
    raise UsageError(message, code="ambiguous-extension", value=path)


def as_paths(paths: Paths) -> list[Path]:
    """One path or several as a list; UsageError for an empty one, which would be the current folder."""
    several = isinstance(paths, Iterable) and not isinstance(paths, str | os.PathLike) and not hasattr(paths, "read")
    return [_as_path(path) for path in (cast(Iterable[Any], paths) if several else [paths])]


def _as_path(path: object) -> Path:
    if not isinstance(path, str | os.PathLike):
        seen = "an open file" if hasattr(path, "read") else f"a {type(path).__name__}"
        raise UsageError(f"{seen}; expected the path of a file or folder.", code="not-a-path", value=path)
    if path == "":
        raise UsageError("a path is empty; expected that of a file or folder.", code="empty-path", value=path)
    return Path(path)


def expand(paths: Iterable[str | Path], format: Format | None, tally: Tally) -> list[Path]:
    """The files under the paths: folders searched in name order, companion files added."""
    files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            files += _files_in_folder(path, format, tally)
        elif str(path) != "-" and not path.exists():
            raise FormatError(f"{path}: no such file or folder. Check the path.", code="missing-file", value=path)
        else:
            files += _with_companions(path, format)
    return list(dict.fromkeys(files))


def work_units(paths: Iterable[str | Path], format: str | None, tally: Tally) -> list[tuple[Path, ...]]:
    """The files under the paths in the smallest groups that can be read independently: mostly one by one.

    The files of a grouped format, such as brat, are one unit, also among files of other formats.
    """
    chosen = get_format(format) if format is not None else None
    return [tuple(files) for _, files in _group_files(expand(paths, chosen, tally), chosen)]


def _files_in_folder(folder: Path, format: Format | None, tally: Tally) -> list[Path]:
    readable: list[Path] = []
    hidden_before = tally.notes[HIDDEN_NOTE]
    for path in sorted(_walk(folder, tally)):
        candidates = formats_by_extension(path.name)
        fits = candidates and (format is None or _has_extension(path.name, format.extensions))
        if is_archive(path.name) or fits or path.is_dir():
            readable.append(path)
        else:
            _note_unsupported(path.name, tally)
    if not readable:
        kind = f"{format.name} " if format is not None else ""
        hidden = tally.notes[HIDDEN_NOTE] - hidden_before
        hint = f" {hidden:,} hidden files or folders were skipped; name them to read them." if hidden else ""
        expected = "expected documents in a format that `lexome convert --help` lists"
        message = f"{folder}: the folder has no readable {kind}file; {expected}.{hint}"
        raise FormatError(message, code="empty-folder", value=folder)
    return readable


def _walk(folder: Path, tally: Tally) -> Iterator[Path]:
    """The files in a folder and its subfolders, without hidden ones, which are counted.

    A folder without permission to list it is yielded too: like an unreadable file, it fails when it is read.
    """
    unreadable: list[Path] = []
    for parent, folders, names in os.walk(folder, onerror=lambda error: unreadable.append(Path(error.filename))):
        if hidden := sum(name.startswith(".") for name in (*folders, *names)):
            tally.note(HIDDEN_NOTE, hidden)
        folders[:] = [name for name in folders if not name.startswith(".")]
        for path in (Path(parent, name) for name in (*folders, *names) if not name.startswith(".")):
            if path.is_file():
                yield path
            elif path.is_symlink():
                tally.note(
                    "symbolic link to a folder not followed" if path.is_dir() else "broken symbolic link skipped"
                )
    yield from unreadable


def _has_extension(name: str, extensions: tuple[str, ...]) -> bool:
    return uncompressed_name(name).lower().endswith(extensions)


def _note_unsupported(name: str, tally: Tally) -> None:
    tally.note(f"file with unsupported extension skipped: {PurePosixPath(name).suffix or 'none'}")


def _with_companions(path: Path, format: Format | None) -> list[Path]:
    """The file, and the existing companion files of a grouped format."""
    candidates = [format] if format is not None else formats_by_extension(path.name)
    if len(candidates) != 1 or not candidates[0].companions or is_archive(path.name):
        return [path]
    stem = Path(uncompressed_name(path.name)).stem.removesuffix(".txt")
    names = [name.format(stem=stem) for name in candidates[0].companions]
    companions = [path.with_name(name + compression) for name in names for compression in ("", *COMPRESSIONS)]
    return [path, *(file for file in companions if file != path and file.exists())]


def _group_files(files: list[Path], chosen: Format | None) -> list[tuple[Format | None, list[Path]]]:
    """The files that are read together, each group with its grouped format; a file alone has none.

    Of files whose format is not chosen, those belong to a grouped format that can have no other, and their companions.
    """
    if chosen is not None:
        return [(chosen, files)] if chosen.grouped else [(None, [file]) for file in files]
    format_of: dict[Path, Format] = {}
    for file in files:
        candidates = formats_by_extension(file.name)
        if len(candidates) == 1 and candidates[0].grouped:
            format_of |= dict.fromkeys(_with_companions(file, None), candidates[0])
    for format in dict.fromkeys(format_of.values()):
        if all(_has_extension(file.name, format.extensions) for file in files):
            return [(format, files)]
    groups: list[tuple[Format | None, list[Path]]] = []
    group_of: dict[str, list[Path]] = {}
    for file in files:
        found = format_of.get(file)
        if found is not None and found.name in group_of:
            group_of[found.name].append(file)
            continue
        groups.append((found, [file]))
        if found is not None:
            group_of[found.name] = groups[-1][1]
    return groups


class _FileReader:
    """Reads files with one tally and one set of options, which are validated once per format."""

    def __init__(
        self, format: Format | None, tally: Tally, options: Mapping[str, object], if_supported: Mapping[str, object]
    ) -> None:
        self.format = format
        self.tally = tally
        self.options = options
        self.options_if_supported = if_supported
        self.readers: dict[str, Reader] = {}

    def read(self, files: list[Path]) -> Iterator[Document]:
        """The documents of all files."""
        for format, group in _group_files(files, self.format):
            if format is not None:
                sources = (source for file in group for source in self._sources(file))
                yield from self._until_broken(self._read_group(sources, format))
            else:
                for file in group:
                    yield from self._until_broken(self._read_file(file))

    def _reader(self, format: Format) -> Reader:
        if format.name not in self.readers:
            function = format.read_function()
            known = option_parameters(function)
            supported = {name: value for name, value in self.options_if_supported.items() if name in known}
            options = parse_options(format, function, {**supported, **self.options})
            self.readers[format.name] = partial(function, tally=self.tally, **options)
        return self.readers[format.name]

    def _sources(self, file: Path) -> Iterator[Source]:
        if str(file) == "-":
            yield open_stream(sys.stdin.buffer, STANDARD_INPUT, self.tally)
        else:
            yield from open_sources(file, self.tally)

    def _read_file(self, file: Path) -> Iterator[Document]:
        if is_archive(file.name):
            yield from self._read_archive(file)
            return
        for source in self._sources(file):
            if not source.head():
                raise empty_file(source)
            detected = detect_by_content if source.name == STANDARD_INPUT else detect
            yield from self._read_source(source, self.format or detected(source))

    def _read_archive(self, file: Path) -> Iterator[Document]:
        """The documents of each member; as in a folder, a broken member does not end the others."""
        sources = self._sources(file)
        readable = False
        for source in sources:
            candidates = formats_by_extension(source.name)
            if not (_has_extension(source.name, self.format.extensions) if self.format is not None else candidates):
                _note_unsupported(source.name, self.tally)
            elif self.format is None and len(candidates) == 1 and candidates[0].grouped:
                # The first file of a grouped format claims the rest of the archive.
                readable = True
                yield from self._read_group(chain((source,), sources), candidates[0])
            else:
                readable = True
                yield from self._until_broken(self._read_member(source), member=True)
        if not readable:
            kind = f"{self.format.name} " if self.format is not None else ""
            message = f"{file}: the archive has no readable {kind}file. Check its contents, or name their format."
            raise FormatError(message, code="empty-archive", value=file)

    def _read_member(self, source: Source) -> Iterator[Document]:
        if source.head():
            yield from self._read_source(source, self.format or detect(source))
        else:
            self.tally.note("empty file in an archive skipped")

    def _read_source(self, source: Source, format: Format) -> Iterator[Document]:
        yield from self._reader(format)(prepare_text(source, format, self.tally, self.options))
        self.tally.files[format.name] += 1

    def _read_group(self, sources: Iterator[Source], format: Format) -> Iterator[Document]:
        def count_files() -> Iterator[Source]:
            for source in sources:
                yield prepare_text(source, format, self.tally, self.options)
                self.tally.files[format.name] += 1

        yield from self._reader(format)(count_files())

    def _until_broken(self, docs: Iterator[Document], *, member: bool = False) -> Iterator[Document]:
        """The documents before the point where a file is damaged; the damage raises only without a rejects file."""
        try:
            yield from docs
        except FormatError as error:
            if self.tally.rejects_path is None:
                raise
            self.tally.failures.append(str(error))
            if member:
                self.tally.member_failures.append(str(error))


# The convert command: documents from files of any format to one file in another


def convert(
    inputs: Paths,
    out: str | Path,
    *,
    from_: str | None = None,
    to: str | None = None,
    options: dict[str, str] | None = None,
    rejects: str | Path | None = None,
    progress_shown: bool = True,
) -> Tally:
    """Convert the documents of `inputs` and write them to `out`; returns the counts.

    Without `rejects` the first bad document raises, and nothing is written.
    """
    inputs, out, rejects = as_paths(inputs), Path(out), None if rejects is None else Path(rejects)
    target = writing_format(out, to)
    read_options, write_options = split_options(options or {}, from_, target.name)
    with Tally(rejects) as tally:
        files = input_files(inputs, from_, tally, out=out)
        if rejects is not None and rejects.is_file():
            rejects.unlink()  # left by an earlier run
        docs = read(files, from_, tally=tally, **read_options)
        total = sum(path.stat().st_size for path in files if path.is_file())
        with progress("converting", total=total, position=lambda: tally.bytes_read, shown=progress_shown) as watched:
            write(out, _unless_nothing_read(watched(docs), tally), target.name, tally=tally, **write_options)
    return tally


def input_files(inputs: Sequence[Path], format: str | None, tally: Tally, *, out: Path | None) -> list[Path]:
    """The files of `inputs`, without `out` and the rejects of `tally`; UsageError if one of these is named as input."""
    rejects = tally.rejects_path
    outputs = [path for path in (out, rejects) if path is not None and path.exists() and str(path) != "-"]
    for path in outputs:
        if any(input.exists() and input.samefile(path) for input in inputs):
            raise UsageError(f"{path} is both input and output. Choose another path.", code="same-file", value=path)
    if rejects is not None and out is not None and rejects.resolve() == out.resolve():
        message = f"{out} is both the output and the rejects file. Choose another path for one of them."
        raise UsageError(message, code="same-file", value=out)

    def is_output(file: Path) -> bool:
        return any(
            file.samefile(path) or (path.is_dir() and file.resolve().is_relative_to(path.resolve())) for path in outputs
        )

    files = expand(inputs, get_format(format) if format is not None else None, tally)
    return [file for file in files if str(file) == "-" or not is_output(file)]


def _unless_nothing_read(docs: Iterator[Document], tally: Tally) -> Iterator[Document]:
    """The documents; raises if a damaged file left none, so that an existing output is not replaced."""
    yield from docs
    if tally.failures and not tally.documents:
        raise FormatError(tally.failures[0], code="broken-file")


def split_options(
    options: Mapping[str, str], from_: str | None, to: str | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Reader options and writer options: by the prefix "read." or "write.", else by name.

    Without a format to write, as for the terminal, all are the reader's.
    """
    reading: dict[str, str] = {}
    writing: dict[str, str] = {}
    known_to_writer = option_parameters(get_format(to).write_function()) if to is not None else {}
    known_to_reader = option_parameters(get_format(from_).read_function()) if from_ is not None else {}
    for key, value in options.items():
        side, dot, name = key.partition(".")
        if dot and side in ("read", "write"):
            (reading if side == "read" else writing)[name] = value
        elif key in known_to_writer and key in known_to_reader:
            message = f"--set {key}={value}: both {from_} and {to} have this option. Use read.{key}= or write.{key}="
            raise UsageError(message, code="ambiguous-option", value=key)
        else:
            (writing if key in known_to_writer else reading)[key] = value
    if writing and to is None:
        message = (
            f"--set write.{next(iter(writing))} needs a format to write: name one with --to, or a file with --out."
        )
        raise UsageError(message, code="conflicting-options", value=next(iter(writing)))
    return reading, writing
