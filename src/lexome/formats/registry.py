"""The table of formats: names, endings, directions, and where each one's functions live.

Importing this imports no format. Each format is a module of this package with `read` and `write`
functions; the table names them, and a test checks that every name is there.
"""

import difflib
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from lexome.errors import UsageError
from lexome.formats.files import plain_name


@dataclass(frozen=True, slots=True)
class Format:
    """One format: how it is called, how its files end, which functions read and write it.

    A `grouped` format spreads a document over several files, so its reader is given all of them at
    once; `beside` are the files that belong to one that was named alone. Where `folder` is true it is
    written as a folder.
    """

    name: str
    about: str
    module: str
    endings: tuple[str, ...] = ()
    reader: str | None = None
    writer: str | None = None
    grouped: bool = False
    beside: tuple[str, ...] = ()
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
        "pubmed", "PubMed XML, baseline, update files and E-utilities", "literature.pubmed", (".xml",), reader="read"
    ),
    Format("pmc", "PMC full text, JATS XML", "literature.pmc", (".nxml", ".xml"), reader="read"),
    Format(
        "bioc-xml",
        "BioC XML, PubTator's included",
        "annotation.bioc_xml",
        (".bioc.xml", ".xml"),
        reader="read",
        writer="write",
    ),
    Format(
        "bioc-json",
        "BioC JSON, PubTator's included",
        "annotation.bioc_json",
        (".bioc.json", ".json"),
        reader="read",
        writer="write",
    ),
    Format(
        "pubtator",
        "PubTator text with relations",
        "annotation.pubtator",
        (".pubtator", ".txt"),
        reader="read",
        writer="write",
    ),
    Format(
        "brat",
        "brat standoff, .txt and .ann pairs; written as a folder",
        "annotation.brat",
        (".ann", ".txt"),
        reader="read",
        writer="write",
        grouped=True,
        beside=("{stem}.txt", "{stem}.ann"),
        folder=True,
    ),
    Format(
        "conll",
        "columns of tokens and tags: IOB1, IOB2, IOBES, IO",
        "annotation.conll",
        (".conll", ".iob", ".bio", ".tsv", ".txt"),
        reader="read",
        writer="write",
    ),
    Format(
        "bc2gm",
        "BioCreative II gene mention, .in and .eval files",
        "sets.bc2gm",
        (".in", ".eval"),
        reader="read",
        grouped=True,
        beside=("{stem}.in", "GENE.eval", "ALTGENE.eval"),
    ),
    Format("ddi", "DDI 2013 XML, drugs and their interactions", "sets.ddi", (".xml",), reader="read"),
    Format("squad", "SQuAD 1.1 and 2.0 JSON", "sets.squad", (".squad.json", ".json"), reader="read", writer="write"),
    Format("bioasq", "BioASQ JSON, questions with snippets", "sets.bioasq", (".json",), reader="read"),
    Format("pubmedqa", "PubMedQA JSON", "sets.pubmedqa", (".json",), reader="read"),
    Format("mimic", "MIMIC NOTEEVENTS CSV", "records.mimic", (".csv",), reader="read"),
    Format("tsv", "BLUE and BioBERT tables: a text and its label a row", "sets.table", (".tsv", ".csv"), reader="read"),
    Format(
        "hoc",
        "Hallmarks of Cancer, text and label files a document",
        "sets.hoc",
        (".txt",),
        reader="read",
        grouped=True,
    ),
    Format("medline", "MEDLINE tagged text, .nbib", "literature.medline", (".nbib", ".txt"), reader="read"),
    Format("europepmc", "Europe PMC JSON", "literature.europepmc", (".json",), reader="read"),
    Format("text", "plain text", "records.text", (".txt",), reader="read", writer="write"),
    Format(
        "jsonl",
        "JSON lines, one document a line",
        "records.jsonl",
        (".jsonl", ".ndjson"),
        reader="read",
        writer="write",
    ),
    Format("parquet", "Parquet, one document a row", "records.parquet", (".parquet",), reader="read", writer="write"),
    Format("spacy", "spaCy DocBin", "annotation.spacy_docs", (".spacy",), reader="read", writer="write"),
    Format("html", "a page with highlighted mentions", "html.page", (".html", ".htm"), writer="write"),
)

BY_NAME: Mapping[str, Format] = {format.name: format for format in FORMATS}


def named(name: str) -> Format:
    """The format of this name; UsageError lists the names there are."""
    if name not in BY_NAME:
        near = difflib.get_close_matches(name, BY_NAME, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise UsageError(f"there is no format {name!r}.{hint} There are: {', '.join(BY_NAME)}.")
    return BY_NAME[name]


def by_ending(name: str, *, writing: bool = False) -> list[Format]:
    """The formats a file of this name can have, by its longest ending, in the table's order."""
    last = plain_name(name).lower().rpartition("/")[2]
    *_, before, ending = ("", "", *last.split("."))
    table = _endings(writing)
    return table.get(f".{before}.{ending}") or table.get(f".{ending}") or []


@cache
def _endings(writing: bool) -> Mapping[str, list[Format]]:
    table: dict[str, list[Format]] = {}
    for format in FORMATS:
        if format.writer if writing else format.reader:
            for ending in format.endings:
                table.setdefault(ending, []).append(format)
    return table


def options_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The keyword-only parameters of a reader or writer that a user may set."""
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    return {
        parameter.name: parameter
        for parameter in parameters
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.name != "tally"
    }


def checked_options(format: Format, function: Callable[..., Any], options: Mapping[str, object]) -> dict[str, object]:
    """The options as the function's own types; strings from a command line are converted."""
    if not options:
        return {}
    known = options_of(function)
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
