"""annotate: documents of any format, or bare texts, with what models find in them, into one file or one by one."""

import glob
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from lexome.document import Document, Passage, shorten
from lexome.errors import FormatError, UsageError
from lexome.formats import Tally, expand, read, write
from lexome.formats.registry import formats_by_extension, get_format
from lexome.formats.streams import is_archive
from lexome.infer.annotator import Annotator
from lexome.infer.selection import Wanted
from lexome.progress import progress

STANDARD_INPUT = Path("-")
# What a document made of a bare text is called.
TEXT_ID = "text"


@dataclass(frozen=True, slots=True)
class Inputs:
    """Texts that were written out, and the paths of everything else."""

    texts: tuple[str, ...] = ()
    paths: tuple[Path, ...] = ()

    def documents(self) -> Iterator[Document]:
        """The texts as documents: "text", or "text-1" and so on where there are several."""
        for number, text in enumerate(self.texts, 1):
            name = TEXT_ID if len(self.texts) == 1 else f"{TEXT_ID}-{number}"
            yield Document(name, (Passage(0, text),) if text else ())


def inputs_of(words: Sequence[str], *, text: bool = False) -> Inputs:
    """What each word is: a file, folder or pattern that is there, standard input for "-", a text where it has spaces.

    With `text`, every word is a text.
    """
    if text:
        return Inputs(texts=tuple(words))
    texts: list[str] = []
    paths: list[Path] = []
    for word in words:
        found = _paths(word)
        if not found and _reads_like_text(word):
            texts.append(word)
        else:
            paths += found or [_missing(word)]
    return Inputs(tuple(texts), tuple(dict.fromkeys(paths)))


def _paths(word: str) -> list[Path]:
    """The path or paths of a word, none where nothing is there."""
    if word == str(STANDARD_INPUT):
        return [STANDARD_INPUT]
    try:
        # An empty word, of a variable that is not set, would be the folder one stands in.
        if word and Path(word).exists():
            return [Path(word)]
    except PermissionError:  # it may well be there, and opening it says why it cannot be read
        return [Path(word)]
    except OSError:  # too long for a path: an abstract
        return []
    if not glob.has_magic(word):
        return []
    # A text with two stars must not set off a search of every folder.
    recursive = not any(map(str.isspace, word))
    return [Path(name) for name in sorted(glob.glob(word, recursive=recursive))]


def _reads_like_text(word: str) -> bool:
    """True for words with a space that neither begin nor end as paths do."""
    spaced = any(map(str.isspace, word.strip()))
    ends_as_file = bool(formats_by_extension(word)) or is_archive(word)
    return spaced and not ends_as_file and not word.startswith(("/", "./", "../", "~"))


def _missing(word: str) -> Path:
    if glob.has_magic(word):
        raise FormatError(f"{word}: no file fits this pattern. Check it, or say --text if it is a text.")
    if not word.strip():
        raise UsageError("the text is empty; expected a text, a path, or - for standard input.")
    raise FormatError(
        f"{shorten(word)}: there is no such file or folder. Check the path, or say --text if it is a text."
    )


@dataclass(slots=True)
class Counts:
    """Documents, characters of their text, and what was found in them, by type.

    `found` are the names that models can give; whatever else a document had before is not counted. None counts all.
    """

    documents: int = 0
    characters: int = 0
    tokens: int = 0
    mentions: Counter[str] = field(default_factory=Counter)
    relations: Counter[str] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)
    answers: int = 0
    found: frozenset[str] | None = None

    def watched(self, docs: Iterable[Document]) -> Iterator[Document]:
        """The documents, each counted as it passes."""
        for doc in docs:
            self.documents += 1
            self.characters += sum(len(passage.text) for passage in doc.passages)
            self.mentions.update(self._found(span.type for span in doc.spans))
            self.relations.update(self._found(relation.type for relation in doc.relations))
            self.labels.update(self._found(doc.labels))
            self.answers += sum(answer.score is not None for question in doc.questions for answer in question.answers)
            yield doc

    def _found(self, names: Iterable[str]) -> Iterator[str]:
        return (name for name in names if self.found is None or name in self.found)

    def as_dict(self) -> dict[str, Any]:
        """The counts as JSON has them, the most frequent types first."""
        return {
            "documents": self.documents,
            "characters": self.characters,
            "tokens": self.tokens,
            "mentions": dict(_ordered(self.mentions)),
            "relations": dict(_ordered(self.relations)),
            "labels": dict(_ordered(self.labels)),
            "answers": self.answers,
        }

    def add(self, held: Mapping[str, Any]) -> None:
        """Add what `as_dict` gave of other documents."""
        for name in ("documents", "characters", "tokens", "answers"):
            setattr(self, name, getattr(self, name) + held[name])
        for name in ("mentions", "relations", "labels"):
            getattr(self, name).update(held[name])


def _ordered(counter: Counter[str]) -> list[tuple[str, int]]:
    """By number, and by name where numbers are equal: the same documents in any order give the same."""
    return sorted(counter.items(), key=lambda item: (-item[1], item[0]))


@dataclass(slots=True)
class Annotated:
    """What was done: what was read, set aside and written, what was found, and how long it took."""

    tally: Tally
    counts: Counts = field(default_factory=Counts)
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Everything as JSON has it."""
        return {
            **self.counts.as_dict(),
            "written": self.tally.written,
            "rejected": dict(self.tally.rejected.most_common()),
            "notes": dict(self.tally.notes.most_common()),
            "files": dict(self.tally.files.most_common()),
            "failures": list(self.tally.failures),
            **rates(self.counts, self.seconds),
        }


def rates(counts: Counts, seconds: float) -> dict[str, float]:
    """The time that some documents took, and documents and tokens a second."""
    return {
        "seconds": round(seconds, 3),
        "documents_per_second": round(counts.documents / seconds, 2) if seconds else 0.0,
        "tokens_per_second": round(counts.tokens / seconds, 1) if seconds else 0.0,
    }


class Annotation:
    """One pass of an annotator over inputs: `documents` gives them as they are done, `done` what became of them.

    Bad documents are set aside in `rejects`, or raise where there is none. With `lines`, each line of a plain text
    file is a document.
    """

    def __init__(
        self,
        annotator: Annotator,
        inputs: Inputs,
        *,
        wanted: Wanted,
        from_: str | None = None,
        lines: bool = False,
        rejects: Path | None = None,
        progress_shown: bool = True,
    ) -> None:
        self.annotator, self.inputs, self.wanted = annotator, inputs, wanted
        self.done = Annotated(Tally(rejects), Counts(found=findable(annotator, wanted)))
        self._from, self._lines, self._shown = from_, lines, progress_shown

    def documents(self, out: Path | None = None) -> Iterator[Document]:
        """The documents with what the models find, in order; `out` and the place of bad documents are not read."""
        tally, counts = self.done.tally, self.done.counts
        files = self._files(self._written(out))
        given = (
            read(files, self._from, tally=tally, options_if_supported=reading(lines=self._lines)) if files else iter(())
        )
        size = sum(path.stat().st_size for path in files if path.is_file())
        started, before = time.monotonic(), tokens_run(self.annotator)
        bar = progress("annotating", total=size, position=lambda: tally.bytes_read, shown=self._shown and size > 0)
        with tally, bar as watched:
            docs = watched(chain(self.inputs.documents(), given))
            yield from counts.watched(annotated(self.annotator, docs, self.wanted, tally))
            counts.tokens = tokens_run(self.annotator) - before
            self.done.seconds = time.monotonic() - started
        if tally.failures and not counts.documents:
            raise FormatError(tally.failures[0])

    def write(self, out: Path, format: str | None) -> Annotated:
        """Write all documents to one file, or to one folder in a format that is written so."""
        rejects = self.done.tally.rejects_path
        if rejects is not None:
            if rejects.resolve() == out.resolve():
                raise UsageError(f"{out} is both the output and the place for bad documents. Name another for one.")
            self._written(out)  # which says so where it is an input
            if rejects.is_file():
                rejects.unlink()  # of an earlier run; this one begins its own
        write(out, self.documents(out), format, tally=self.done.tally)
        return self.done

    def _written(self, out: Path | None) -> list[Path]:
        """What is there already of what this run writes; UsageError where that was named as input."""
        places = (out, self.done.tally.rejects_path)
        written = [path for path in places if path is not None and path != STANDARD_INPUT and path.exists()]
        for path in written:
            if any(given.exists() and given.samefile(path) for given in self.inputs.paths):
                raise UsageError(f"{path} is both input and output. Name another file with --out or --rejects.")
        return written

    def _files(self, written: Sequence[Path]) -> list[Path]:
        """The files to read, without what this run writes."""
        files = expand(self.inputs.paths, get_format(self._from) if self._from is not None else None, self.done.tally)
        return [file for file in files if file == STANDARD_INPUT or not any(_is_in(file, path) for path in written)]


def annotated(annotator: Annotator, docs: Iterable[Document], wanted: Wanted, tally: Tally) -> Iterator[Document]:
    """The documents with what is wanted of that which the models find.

    Relations and attributes of mentions that are replaced go with them. How many went is noted, but for relations of a
    type that a model finds anew.
    """
    found = frozenset[str]().union(*(model.labels for model in annotator.models))
    waiting: deque[Counter[str]] = deque()

    def watched() -> Iterator[Document]:
        for doc in docs:
            waiting.append(_leaning(doc, found))
            yield doc

    for doc in annotator.annotate(watched(), types=wanted.types, min_score=wanted.min_score):
        for what, lost in (waiting.popleft() - _leaning(doc, found)).items():
            tally.note(f"{what} left out: what it leans on was replaced", lost)
        yield doc


def _leaning(doc: Document, found: frozenset[str]) -> Counter[str]:
    """How many relations of types that no model finds, and how many attributes, a document has."""
    relations = sum(relation.type not in found for relation in doc.relations)
    return Counter(relation=relations, attribute=len(doc.attributes))


def findable(annotator: Annotator, wanted: Wanted) -> frozenset[str]:
    """Everything that can be found: types of mentions that are wanted, relations and labels."""
    types = annotator.types if wanted.types is None else wanted.types
    return frozenset(types).union(*(model.labels for model in annotator.models))


def reading(*, lines: bool) -> dict[str, object]:
    """The options for whichever formats have them."""
    return {"per": "line"} if lines else {}


def tokens_run(annotator: Annotator) -> int:
    """How many tokens the models have seen so far, over all windows."""
    return sum(model.predictor.tokens_run for model in annotator.models)


def _is_in(file: Path, written: Path) -> bool:
    """Whether a file is the one that is written, or lies in the folder that is."""
    return file.samefile(written) or (written.is_dir() and file.resolve().is_relative_to(written.resolve()))
