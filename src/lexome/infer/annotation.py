"""annotate and link: predicts mentions in texts and documents of any format, or gives ids to existing mentions."""

import glob
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import chain, groupby
from pathlib import Path, PurePath
from typing import Any

from lexome.concepts.abbreviations import annotate_abbreviations
from lexome.document import Document, as_names, shorten
from lexome.errors import FormatError, UsageError
from lexome.formats import Tally, detect, formats_by_extension, get_format, input_files, read, write, writing_format
from lexome.formats.citation import find_pmids, pmid_advice
from lexome.formats.name_table import other_columns
from lexome.formats.streams import Source, is_archive, open_sources, uncompressed_name
from lexome.infer.annotator import TEXT_ID, Annotator, Candidate
from lexome.infer.concepts import Concepts, naming_options
from lexome.infer.relation_explanation import RelationExplanation
from lexome.infer.selection import EVERYTHING, RULE_ATTRIBUTE, Selection, SelectionRequest, match_case
from lexome.progress import progress

STANDARD_INPUT = Path("-")


@dataclass(frozen=True, slots=True)
class Inputs:
    """Bare texts, and paths of everything else."""

    texts: tuple[str, ...] = ()
    paths: tuple[Path, ...] = ()

    def text_documents(self) -> Iterator[Document]:
        """The texts as documents: "text", or "text-1" and so on if there are several."""
        for number, text in enumerate(self.texts, 1):
            name = TEXT_ID if len(self.texts) == 1 else f"{TEXT_ID}-{number}"
            yield Document.from_text(text, id=name)


def parse_inputs(arguments: Sequence[str], *, text: bool = False, lines: bool = False) -> Inputs:
    """Paths for existing files, folders and patterns and for "-"; texts for other arguments that contain white space.

    With `text`, every argument is a text. With `lines`, each line of a text is one.
    """
    if lines:
        inputs = parse_inputs(arguments, text=text)
        return replace(inputs, texts=tuple(line for one in inputs.texts for line in one.split("\n") if line.strip()))
    if text:
        return Inputs(texts=tuple(arguments))
    texts: list[str] = []
    paths: list[Path] = []
    for argument in arguments:
        if matches := _existing_paths(argument):
            paths += matches
        elif _looks_like_text(argument):
            if pmids := find_pmids(argument):
                message = f"{shorten(argument)}: PMIDs, and no text. {pmid_advice(pmids)}"
                raise FormatError(message, code="no-text", value=argument)
            texts.append(argument)
        elif not argument.strip():
            raise UsageError("empty text; expected a text, a path, or - for standard input.", code="empty-text")
        else:
            problem = "no file matches this pattern" if glob.has_magic(argument) else "no such file or folder"
            remedy = "Check the path, or add --text if it is a text."
            if find_pmids(argument):
                remedy += f" If it is a PMID: {pmid_advice(list(chain(*map(find_pmids, arguments))))}"
            elif len(arguments) > 2 and not any(map(_existing_paths, arguments)):
                remedy = f'Check the path. Put a text of several words in quotes: "{shorten(" ".join(arguments), 60)}".'
            message = f"{shorten(argument)}: {problem}. {remedy}"
            raise FormatError(message, code="missing-file", value=argument)
    return Inputs(tuple(texts), tuple(dict.fromkeys(paths)))


def _existing_paths(argument: str) -> list[Path]:
    if argument == str(STANDARD_INPUT):
        return [STANDARD_INPUT]
    try:
        # An empty argument, from an unset variable, would be the current folder.
        if argument and Path(argument).exists():
            return [Path(argument)]
    except PermissionError:  # it may exist; opening it reports why it cannot be read
        return [Path(argument)]
    except OSError:  # too long for a path: an abstract
        return []
    if not glob.has_magic(argument):
        return []
    # A text with two asterisks must not start a search of every folder.
    recursive = not any(map(str.isspace, argument))
    return [Path(name) for name in sorted(glob.glob(argument, recursive=recursive))]


def _looks_like_text(argument: str) -> bool:
    """Whether an argument contains white space and neither starts nor ends as paths do."""
    if not any(map(str.isspace, argument.strip())) or argument.startswith(("/", "./", "../", "~")):
        return False
    # A full stop at the end, as of a sentence, is not an extension.
    return not (PurePath(argument).suffix and (formats_by_extension(argument) or is_archive(argument)))


@dataclass(slots=True)
class AnnotationCounts:
    """Annotated documents, characters and tokens of their text, annotations by type, and mentions with concepts.

    `predictable` are the types that the models predict; annotations of other types, which documents had before, are
    not counted. None counts all.
    """

    documents: int = 0
    characters: int = 0
    tokens: int = 0
    mentions: Counter[str] = field(default_factory=Counter)
    linked: Counter[str] = field(default_factory=Counter)
    relations: Counter[str] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)
    answers: int = 0
    predictable: frozenset[str] | None = None

    def count(self, docs: Iterable[Document], tally: Tally | None = None) -> Iterator[Document]:
        """The documents, each counted once its consumer is done with it, unless the writer of `tally` rejected it."""
        for doc in docs:
            rejected = tally.rejected.total() if tally is not None else 0
            yield doc
            if tally is not None and tally.rejected.total() > rejected:
                continue
            self.documents += 1
            self.characters += sum(len(passage.text) for passage in doc.passages)
            self.mentions.update(self._predictable(span.type for span in doc.spans))
            self.linked.update(self._predictable(span.type for span in doc.spans if span.concepts))
            self.relations.update(self._predictable(relation.type for relation in doc.relations))
            self.labels.update(self._predictable(doc.labels))
            self.answers += sum(answer.score is not None for question in doc.questions for answer in question.answers)

    def _predictable(self, names: Iterable[str]) -> Iterator[str]:
        return (name for name in names if self.predictable is None or name in self.predictable)

    def as_dict(self) -> dict[str, Any]:
        """The counts for JSON, most frequent types first, then by name."""
        counts = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "predictable"}
        for name, value in counts.items():
            if isinstance(value, Counter):
                counts[name] = dict(sorted(value.items(), key=lambda item: (-item[1], item[0])))
        return counts

    def add(self, counts: Mapping[str, Any]) -> None:
        """Add the `as_dict` of other documents."""
        for name in ("documents", "characters", "tokens", "answers"):
            setattr(self, name, getattr(self, name) + counts[name])
        for name in ("mentions", "linked", "relations", "labels"):
            getattr(self, name).update(counts[name])

    def throughput(self, seconds: float) -> dict[str, float]:
        """Elapsed time, and documents and tokens per second."""
        return {
            "seconds": round(seconds, 3),
            "documents_per_second": round(self.documents / seconds, 2) if seconds else 0.0,
            "tokens_per_second": round(self.tokens / seconds, 1) if seconds else 0.0,
        }


class InputFiles:
    """The input files of one pass and how they are read; `tally` counts what was read, skipped and changed.

    Bad documents are written to `rejects`; without it, the first one raises.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        from_: str | None = None,
        read_options: Mapping[str, Any] | None = None,
        rejects: Path | None = None,
        progress_shown: bool = True,
    ) -> None:
        self.paths, self.format, self.read_options = paths, from_, read_options or {}
        self.tally = Tally(rejects)
        self.progress_shown = progress_shown

    def list_files(self, *, out: Path | None = None) -> list[Path]:
        """The files, without the output; with one, the rejects of an earlier run are removed."""
        files = input_files(self.paths, self.format, self.tally, out=out) if self.paths or out is not None else []
        rejects = self.tally.rejects_path
        if out is not None and rejects is not None and rejects.is_file():
            rejects.unlink()
        return files

    def read(
        self, files: Sequence[Path], *, if_supported: Mapping[str, object] | None = None, **options: object
    ) -> Iterator[Document]:
        """The documents of some of the files; the user's options come before `options`."""
        arguments = {"format": self.format, **options, **self.read_options}
        return read(files, tally=self.tally, options_if_supported=if_supported, **arguments)

    def progress(
        self, description: str, files: Sequence[Path], *, detail: Callable[[], str] = str
    ) -> AbstractContextManager[Callable[[Iterable[Document]], Iterator[Document]]]:
        """A progress bar over the bytes of the files, if it is shown."""
        tally, size = self.tally, sum(path.stat().st_size for path in files if path.is_file())
        shown = self.progress_shown and size > 0
        return progress(description, total=size, position=lambda: tally.bytes_read, detail=detail, shown=shown)

    def note_dropped_terms(self, concepts: Concepts | None) -> None:
        """Note the terms of dictionaries that cannot be used."""
        self.tally.notes.update(concepts.dropped if concepts is not None else {})

    def write(
        self, docs: Iterator[Document], out: Path, format: str | None, concepts: Concepts | None, **options: object
    ) -> None:
        """Write documents to one file, or to one folder in a format that is written so, with its options."""
        naming = naming_options(writing_format(out, format).name, concepts)
        write(out, docs, format, tally=self.tally, **{**naming, **options})

    def require_documents(self, count: int) -> None:
        """Raise the first failure of a file if there was no document at all."""
        if self.tally.failures and not count:
            raise FormatError(self.tally.failures[0], code="unreadable-file")

    def as_dict(self) -> dict[str, Any]:
        """The counts of files and of bad documents for JSON."""
        return {
            "written": self.tally.written,
            "rejected": dict(self.tally.rejected.most_common()),
            "notes": dict(self.tally.notes.most_common()),
            "files": dict(self.tally.files.most_common()),
            "failures": list(self.tally.failures),
        }


class Annotation:
    """One pass of an annotator over inputs: `documents` yields the results, or `write` writes them to a file.

    `texts` come before the documents of the files. With `lines`, each line of a plain text file is a document.
    """

    def __init__(
        self,
        annotator: Annotator,
        inputs: InputFiles,
        *,
        texts: Iterable[Document] = (),
        request: SelectionRequest = EVERYTHING,
        lines: bool = False,
    ) -> None:
        self.annotator, self.concepts, self.inputs, self.tally = annotator, annotator.concepts, inputs, inputs.tally
        # An unknown type is reported before anything is read.
        self.selection = annotator.resolve(request)
        inputs.note_dropped_terms(self.concepts)
        if self.concepts is not None:
            self.tally.notes.update(self.concepts.unused(annotator.types))
        self.counts = AnnotationCounts(predictable=predictable_types(annotator, self.selection))
        self.seconds = 0.0
        self._texts, self._lines = texts, lines
        self._tokens_before = 0

    def documents(self) -> Iterator[Document]:
        """The annotated documents, in order."""
        return self._run(self.inputs.list_files())

    def write(self, out: Path, format: str | None, **options: object) -> None:
        """Write all documents to one file, or to one folder in a format that is written so, with its options."""
        self.inputs.write(self._run(self.inputs.list_files(out=out)), out, format, self.concepts, **options)
        # Parquet's writer rejects documents of a row group together, later than they are counted.
        self.counts.documents = self.tally.written

    def as_dict(self) -> dict[str, Any]:
        """All counts for JSON."""
        return {**self.counts.as_dict(), **self.inputs.as_dict(), **self.counts.throughput(self.seconds)}

    def explain_relations(self, doc: Document) -> list[RelationExplanation]:
        """Why the annotated document has its relations, and which pairs are almost related."""
        return self.annotator.explain_selected_relations(doc, self.selection)

    def explain(self, doc: Document) -> list[Candidate]:
        """Mentions that were considered but are not in the annotated document, with reasons."""
        return self.annotator.explain_selected(doc, self.selection)

    def _tokens_done(self) -> str:
        return f"{self.annotator.tokens_run - self._tokens_before:,} tokens"

    def _run(self, files: Sequence[Path]) -> Iterator[Document]:
        docs: Iterator[Document] = iter(())
        bar: AbstractContextManager[Callable[[Iterable[Document]], Iterator[Document]]] = nullcontext(iter)
        if files:
            docs = self.inputs.read(files, if_supported={"per": "line"} if self._lines else {})
            bar = self.inputs.progress("annotating", files, detail=self._tokens_done)
        start, tokens = time.monotonic(), self.annotator.tokens_run
        self._tokens_before = tokens
        with self.tally, bar as track:
            annotated = annotate(self.annotator, track(chain(self._texts, docs)), self.tally, self.selection)
            yield from self.counts.count(annotated, self.tally)
            self.counts.tokens = self.annotator.tokens_run - tokens
            self.seconds = time.monotonic() - start
        self.inputs.require_documents(self.counts.documents)


def annotate(annotator: Annotator, docs: Iterable[Document], tally: Tally, selection: Selection) -> Iterator[Document]:
    """The annotated documents; `tally` notes relations and attributes that were lost with replaced mentions.

    Relations of a type that a model predicts are not noted. Pairs of mentions that were not scored are, and so are
    documents in which the models have nothing to relate or to answer.
    """
    predicted = _predictable_labels(annotator, selection)
    # Types that the documents must have already, if no model predicts mentions.
    needed = frozenset[str]().union(*(model.task.input_types for model in annotator.models))
    needed = frozenset() if any(model.types for model in annotator.models) else needed

    def dependents(doc: Document) -> Counter[str]:
        relations = sum(relation.type not in predicted for relation in doc.relations)
        attributes = sum(attribute.name != RULE_ATTRIBUTE for attribute in doc.attributes)
        return Counter(relation=relations, attribute=attributes)

    answers_only = {model.kind for model in annotator.models} == {"questions"}
    before: deque[Counter[str]] = deque()

    def reject_unsuitable() -> Iterator[Document]:
        for doc in docs:
            yield from tally.accept(partial(_require_input, doc, annotator), where=f"document {doc.id!r}", id=doc.id)

    def remember() -> Iterator[Document]:
        for doc in reject_unsuitable():
            before.append(dependents(doc))
            if needed and not any(span.type in needed for span in doc.spans):
                tally.note("document without mentions to relate: no model that finds them is loaded")
            if looks_foreign(doc):
                tally.note("document that does not look English: models are trained on English")
            elif has_only_pmids(doc):
                tally.note("document of PMIDs without text: save the articles from PubMed, in the format PubMed")
            if answers_only and not doc.questions:
                tally.note("document without questions: nothing to answer")
            yield doc

    annotated = annotator.annotate_selected(remember(), selection)
    tasks = [model.task for model in annotator.models]
    noted: Counter[str] = sum((task.notes for task in tasks), Counter())
    for doc in annotated:
        for kind, lost in (before.popleft() - dependents(doc)).items():
            tally.note(f"{kind} dropped with a replaced mention", lost)
        yield doc
    for note, count in (sum((task.notes for task in tasks), Counter()) - noted).items():
        tally.note(note, count)


def _require_input(doc: Document, annotator: Annotator) -> Document:
    for model in annotator.models:
        model.task.require_input(doc)
    return doc


def predictable_types(annotator: Annotator, selection: Selection) -> frozenset[str]:
    """Everything that is predicted: selected types of mentions and of relations, and labels."""
    return frozenset(selection.types) | _predictable_labels(annotator, selection)


def _predictable_labels(annotator: Annotator, selection: Selection) -> frozenset[str]:
    return frozenset[str]().union(*(model.labels for model in annotator.models)) - selection.unwanted


# Whether a text looks English: the models are trained on English


# Frequent short words that every English abstract has and hardly any other language shares.
_ENGLISH_WORDS = """
the of and to with for was were is are that by from at which this as have been not be or we these an it on
"""
# German, French, Spanish, Italian, Portuguese, Dutch and Polish.
_OTHER_WORDS = """
der die das und mit von den dem des eine einer ist wurde wurden bei nicht auf für im zur
le la les et du une dans est sont par pour avec sur chez ont été que qui
el los las del con una por para se fue fueron como entre su sus
il lo gli della dei nel sono per che di da stato
os as do dos um uma com foi foram na no em não ao
het een van en zijn voor met werd bij niet op
w z jest się nie oraz przez u
"""
_ENGLISH, _OTHERS = (
    frozenset(_ENGLISH_WORDS.split()),
    frozenset(_OTHER_WORDS.split()) - frozenset(_ENGLISH_WORDS.split()),
)
_WORD = re.compile(r"[^\W\d_]+")
# All of ASCII but letters.
_SPACES = dict.fromkeys((code for code in range(128) if not chr(code).isalpha()), " ")
_LATIN = re.compile(r"[A-Za-zÀ-ɏͰ-Ͽ]+")  # with Greek letters, which names of genes and isoforms have
# In a text of a few words these are ambiguous: they are also English words, or parts of names.
_AMBIGUOUS_WORDS = "die do no as per para son den des men um la le en de van os el"
MAX_CHARACTERS = 4000
MIN_WORDS = 20
# The language of a shorter text cannot be identified.
MIN_SENTENCE_WORDS = 5
# Shorter texts lack the context by which names are recognized.
MIN_CONTEXT_WORDS = 4


def looks_foreign(doc: Document) -> bool:
    """Whether a document is most likely not English, by its script or by its frequent short words.

    Lists of names and very short texts never look foreign.
    """
    text = _beginning(doc)
    if text.isascii():  # the same words, in a third of the time
        words = text.lower().translate(_SPACES).split()
    else:
        words = _WORD.findall(text)
        letters = sum(map(len, words))
        if letters >= MIN_WORDS and sum(map(len, _LATIN.findall(text))) < letters / 2:
            return True
        words = [word.lower() for word in words]
    if len(words) < MIN_SENTENCE_WORDS:
        return False
    english = sum(map(_ENGLISH.__contains__, words))
    if len(words) < MIN_WORDS:
        return english == 0 and len(_OTHERS.difference(_AMBIGUOUS_WORDS.split()).intersection(words)) > 1
    other = sum(map(_OTHERS.__contains__, words))
    return other > 0.1 * len(words) and other > 2 * english


def has_only_pmids(doc: Document) -> bool:
    """Whether a document is a list of PMIDs, and no text."""
    return bool(find_pmids(_beginning(doc)))


def _beginning(doc: Document) -> str:
    """The first characters of the text; passages may be long, and many."""
    parts: list[str] = []
    left = MAX_CHARACTERS
    for passage in doc.passages:
        if left <= 0:
            break
        parts.append(passage.text[:left])
        left -= len(parts[-1]) + 1
    return " ".join(parts)


_ONLY_PMIDS = "The text is a list of PMIDs."
_FOREIGN = "The text does not look English. The models were trained on English and find less in other languages."
_SHORT = "The text has very few words. Names are recognized by their context: paste whole sentences."


def describe_concerns(docs: Sequence[Document]) -> list[str]:
    """Warnings about texts that models read badly, in sentences; none for most texts."""
    concerns = Counter[str]()
    for doc in docs:
        words = len(_WORD.findall(_beginning(doc)))
        if has_only_pmids(doc):
            concerns[_ONLY_PMIDS] += 1
        elif looks_foreign(doc):
            concerns[_FOREIGN] += 1
        elif 0 < words < MIN_CONTEXT_WORDS:
            concerns[_SHORT] += 1
    if concerns[_ONLY_PMIDS]:
        pmids = find_pmids(_beginning(docs[0])) if len(docs) == 1 else []
        concerns[f"{_ONLY_PMIDS} {pmid_advice(pmids)}"] = concerns[_ONLY_PMIDS]
    del concerns[_ONLY_PMIDS]
    if len(docs) == 1:
        return list(concerns)
    return [f"{count:,} of {len(docs):,} documents: {sentence}" for sentence, count in concerns.items()]


# link: gives concept ids to the mentions that documents already have, without running a model

# The format of lists and tables of names, and the formats of tables, whose rows are names if nothing is annotated.
NAMES = "names"
NAME_TABLES = ("csv", "tsv", "xlsx")


@dataclass(slots=True)
class LinkCounts:
    """Numbers of mentions by type.

    found          found by the names of a dictionary; they are also counted as linked
    linked         with a new id
    abstained      whose best candidate was too improbable
    kept           with the id that they had before
    no_dictionary  of types that no dictionary has
    """

    documents: int = 0
    found: Counter[str] = field(default_factory=Counter)
    linked: Counter[str] = field(default_factory=Counter)
    abstained: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    no_dictionary: Counter[str] = field(default_factory=Counter)

    def as_dict(self) -> dict[str, Any]:
        """The counts for JSON, most frequent types first."""
        counters = ("found", "linked", "abstained", "kept", "no_dictionary")
        return {"documents": self.documents, **{name: dict(getattr(self, name).most_common()) for name in counters}}


class Linking:
    """One pass of the linker over files: `documents` yields the results, or `write` writes them to a file.

    Mentions of `types`, by default of all, get ids; existing ids are kept unless `overwrite`. Each row of a table of
    names is a mention. `names_type` is the type of names without one; with it, so is each line of a plain text file.
    """

    def __init__(
        self,
        concepts: Concepts,
        inputs: InputFiles,
        *,
        types: str | Sequence[str] | None = None,
        overwrite: bool = False,
        names_type: str | None = None,
    ) -> None:
        self.concepts, self.inputs, self.tally = concepts, inputs, inputs.tally
        self.overwrite, self.names_type = overwrite, names_type
        self.types = None if types is None else _linkable(as_names(types), concepts)
        inputs.note_dropped_terms(concepts)
        self.counts = LinkCounts()
        self.seconds = 0.0

    def documents(self) -> Iterator[Document]:
        """The linked documents, in order."""
        return self._run(self.inputs.list_files())

    def write(self, out: Path, format: str | None, **options: object) -> None:
        """Write all documents to one file, or to one folder in a format that is written so, with its options.

        A table has the other columns of tables of names, too.
        """
        files = self.inputs.list_files(out=out)
        own: dict[str, object] = {}
        if writing_format(out, format).name in NAME_TABLES:
            tables = (source for file in files if self._has_names(file) for source in _sources(file))
            own["attributes"] = tuple(dict.fromkeys(chain.from_iterable(map(other_columns, tables))))
        self.inputs.write(self._run(files), out, format, self.concepts, **{**own, **options})

    def as_dict(self) -> dict[str, Any]:
        """All counts for JSON."""
        return {**self.counts.as_dict(), **self.inputs.as_dict(), "seconds": round(self.seconds, 3)}

    def _run(self, files: Sequence[Path]) -> Iterator[Document]:
        tally, start = self.tally, time.monotonic()
        named = {file: self._has_names(file) for file in files}
        if self.names_type is not None and not any(named.values()):
            message = (
                f"--type {self.names_type} is for names in a table or in plain text, and no input is one; mentions of "
                "documents have types. Leave it out, or use --types to link only some of them."
            )
            raise UsageError(message, code="conflicting-options", value="--type")
        docs = chain.from_iterable(self._read(list(group), has) for has, group in groupby(files, named.__getitem__))
        with tally, self.inputs.progress("linking", files) as track:
            for doc in link_documents(
                track(docs), self.concepts, self.counts, types=self.types, overwrite=self.overwrite
            ):
                if not doc.spans:
                    tally.note("document without mentions: nothing to link; `lexome annotate` finds mentions")
                yield doc
            self.seconds = time.monotonic() - start
        self.inputs.require_documents(self.counts.documents)

    def _has_names(self, file: Path) -> bool:
        """Whether a file is a list or a table of names, and not documents with mentions."""
        if self.inputs.format is not None:
            return self.inputs.format == NAMES
        if file == STANDARD_INPUT or is_archive(file.name):
            return file == STANDARD_INPUT and self.names_type is not None
        kinds = NAME_TABLES if self.names_type is None else (*NAME_TABLES, "text")
        extensions = {extension for kind in kinds for extension in get_format(kind).extensions[:1]}
        if not uncompressed_name(file.name).lower().endswith(tuple(extensions)):
            return False
        # A .tsv may be CoNLL, a .txt PubTator.
        try:
            return all(detect(source).name in kinds for source in open_sources(file, Tally()))
        except FormatError as error:
            return error.code == "undetected-format"

    def _read(self, files: Sequence[Path], has_names: bool) -> Iterator[Document]:
        """The documents of some files, either all or none of which are lists or tables of names."""
        if not has_names:
            return self.inputs.read(files)
        named: dict[str, Any] = {} if self.names_type is None else {"type": self.names_type}
        return self.inputs.read(files, format=NAMES, **named)


def _sources(file: Path) -> Iterator[Source]:
    """The file, or the files in an archive, for inspection before reading; standard input can be read only once."""
    return iter(()) if file == STANDARD_INPUT else open_sources(file, Tally())


def link_documents(
    docs: Iterable[Document],
    concepts: Concepts,
    counts: LinkCounts,
    *,
    types: Sequence[str] | None = None,
    overwrite: bool = False,
) -> Iterator[Document]:
    """The documents with ids for their mentions, counted.

    `types` are those of mentions or of dictionaries: Gene is also a mention of GeneOrGeneProduct.
    """
    linker = concepts.linker
    assert linker is not None

    def is_wanted(type: str) -> bool:
        return types is None or type in types or linker.linked_type(type) in types

    for doc in docs:
        own = {span.id for span in doc.spans}
        if concepts.finder is not None:
            doc = concepts.finder.find(doc, types=tuple(filter(is_wanted, concepts.finder.types)))
        wanted = {span.type for span in doc.spans if is_wanted(span.type)}
        linked = linker.link(doc, types=wanted, relink=overwrite)
        counts.documents += 1
        for before, after in zip(doc.spans, linked.spans, strict=True):
            if before.type not in wanted:
                continue
            if before.id not in own:
                counts.found[before.type] += 1
                counts.linked[before.type] += 1
                continue
            if linker.linked_type(before.type) is None:
                counts.no_dictionary[before.type] += 1
            elif before.concepts and (not overwrite or after.concepts == before.concepts):
                counts.kept[before.type] += 1
            else:
                (counts.linked if after.concepts else counts.abstained)[before.type] += 1
        yield next(annotate_abbreviations([linked])) if concepts.options.abbreviations else linked


def _linkable(types: Sequence[str], concepts: Concepts) -> tuple[str, ...]:
    """The types in the spelling of the dictionaries; UsageError for one that none has."""
    linker = concepts.linker
    assert linker is not None
    matched = match_case(types, sorted(linker.types))
    for type in matched:
        if linker.linked_type(type) is None:
            listed = ", ".join(sorted(linker.types)) or "none"
            message = f"no dictionary has concepts of the type {type!r}. Types: {listed}. Add one with --terms."
            raise UsageError(message, code="unknown-type", value=type)
    return matched
