"""Models at work on documents, without torch: the same encoding and decoding that their scores come from."""

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from itertools import chain, islice, takewhile
from pathlib import Path, PurePath
from typing import Any

from lexome.document import Document, Passage, Range, Span
from lexome.errors import CheckpointError, UsageError
from lexome.infer.model import Model, calibrated
from lexome.infer.model_folder import SETTINGS
from lexome.infer.selection import Choice
from lexome.tasks import Ner
from lexome.tasks.ner import InsideProbabilities

# How probable it has to be that a word is inside a mention for it to count as considered.
CONSIDERED = 0.1


@dataclass(frozen=True, slots=True)
class Candidate:
    """A mention that was considered and dropped; `score` is on the scale of the mentions' scores.

    >>> Candidate(0, 5, "BRCA1", "Gene", 0.31, "its score 0.31 is below 0.5").why
    'its score 0.31 is below 0.5'
    """

    start: int
    end: int
    text: str
    type: str
    score: float
    why: str


def candidates(model: Model, doc: Document, choice: Choice) -> list[Candidate]:
    """What a ner model found and was not asked for, or considered and did not find.

    Considered is every longest stretch of words each of which is inside a mention of an asked type with a probability
    of CONSIDERED or more. It is not listed where mentions that were found cover it.
    """
    task = model.task
    assert isinstance(task, Ner)
    rows = model.rows(doc)
    numbers = model.run(rows)
    found = [span for span in model.decoded(doc, rows, numbers).spans if span.type in task.types]
    # Nobody expects a type that is found only by name where it was not named.
    usual = [span for span in found if span.type in choice.types or span.type not in task.extra]
    dropped = [candidate for span in usual if (candidate := _dropped(span, choice)) is not None]
    curves = model.settings.calibration or {}
    inside = model.inside(doc, rows, numbers)
    own = {type_: [span for span in found if span.type == type_] for type_ in task.types}
    for type_, first, end, score in _stretches(inside, task.types):
        place = (inside.ranges[first][0], inside.ranges[end - 1][1])
        # Mentions of different types exclude one another unless they may be nested.
        why = _unread(place, type_, own[type_], () if task.nested else found)
        if why is not None and type_ in choice.types:
            score = calibrated(score, curves.get(type_))
            dropped.append(Candidate(*place, doc.slice(*place), type_, score, why))
    return sorted(dropped, key=lambda one: (one.start, one.end, one.type))


def _dropped(span: Span, choice: Choice) -> Candidate | None:
    """A mention that the model found, where the caller did not want it."""
    score = span.score if span.score is not None else 1.0
    least = choice.least.get(span.type, 0.0)
    if span.type not in choice.types:
        why = f"the type {span.type} was not asked for"
    elif score < least:
        why = f"its score {score:.2f} is below {least:g}"
    else:
        return None
    return Candidate(span.start, span.end, span.text, span.type, score, why)


def _stretches(inside: InsideProbabilities, types: Sequence[str]) -> Iterator[tuple[str, int, int, float]]:
    """Of each type the stretches of units that may be inside it, with the mean of their probabilities."""
    for number, type_ in enumerate(types):
        for low, high in inside.runs:
            begun = low
            for place in range(low, high + 1):
                if place < high and inside.probabilities_UT[place, number] >= CONSIDERED:
                    continue
                if place > begun:
                    yield type_, begun, place, float(inside.probabilities_UT[begun:place, number].mean())
                begun = place + 1


def _unread(place: Range, type_: str, own: Sequence[Span], others: Sequence[Span]) -> str | None:
    """Why a stretch is no mention as a whole; None where mentions that were found cover it.

    `own` are the mentions of its type, `others` those that exclude it; both are in order, and apart.
    """
    near = list(_touching(own, place))
    if near and near[0].start <= place[0] and place[1] <= near[-1].end:
        return None
    if near:
        return f"found with other bounds: {', '.join(repr(span.text) for span in near)}"
    best = max(_touching(others, place), key=lambda span: span.score or 0.0, default=None)
    if best is not None:
        return f"read as {best.type} instead: {best.text!r}, {best.score or 0.0:.2f}"
    return f"the best reading of the text has no {type_} here"


def _touching(spans: Sequence[Span], place: Range) -> Iterator[Span]:
    """Those of some spans, in order and apart, that share characters with a range."""
    first = bisect_right(spans, place[0], key=lambda span: span.end)
    return takewhile(lambda span: span.start < place[1], (spans[number] for number in range(first, len(spans))))


# What a document made of a bare text is called.
TEXT_ID = "text"

# The order that models work in: what a later one reads, an earlier one has found.
ORDER = ("ner", "relation", "classes", "inference", "similarity", "questions")

# So many documents for each thread are taken before the first of them is given back: enough that none waits for work.
AHEAD = 2

# On one thread so many documents are read, then run, then decoded. A run leaves nothing that reading and decoding need
# in the core's cache (docs/decisions/0010-inference.md).
FEW = 4

Least = float | Mapping[str, float]
"""The least score of what is kept: of all, or by type."""


class Annotator:
    """Models that work on each document one after another; `annotate` is a step of a pipeline.

    >>> annotator = Annotator.open(Path("diseases-onnx"))                  # doctest: +SKIP
    >>> doc = annotator("Cystic fibrosis is a recessive disease.")         # doctest: +SKIP
    >>> [doc.text_of(span) for span in doc.spans]                          # doctest: +SKIP
    ['Cystic fibrosis', 'recessive disease']
    """

    def __init__(self, models: Sequence[Model]) -> None:
        self.models = tuple(sorted(models, key=lambda model: ORDER.index(model.kind)))
        _check(self.models)
        self.threads = max(model.predictor.threads for model in self.models)

    @classmethod
    def open(cls, *folders: Path, threads: int | None = None) -> "Annotator":
        """The models in folders that `lexome export` made, or of Hugging Face's token classifiers as ONNX."""
        return cls([Model.open(folder, threads=threads) for folder in folders])

    @property
    def types(self) -> tuple[str, ...]:
        """The types of mentions that are found unless others are asked for."""
        return tuple(type_ for model in self.models for type_ in model.types if type_ not in model.extra)

    @property
    def extra_types(self) -> tuple[str, ...]:
        """The types of mentions that are found only where they are asked for by name."""
        return tuple(type_ for model in self.models for type_ in model.extra)

    def about(self) -> dict[str, Any]:
        """The models' facts, as JSON has them."""
        return {
            "types": list(self.types),
            "extra_types": list(self.extra_types),
            "models": [model.about() for model in self.models],
        }

    def __call__(self, given: str | Document) -> Document:
        """One document, or a text made into one, with what the models say of it."""
        return next(iter(self.annotate([self.document(given)])))

    def annotate(
        self,
        docs: Iterable[Document],
        *,
        types: Collection[str] | None = None,
        min_score: Least | None = None,
        batch_tokens: int = 0,
        together: int = 64,
    ) -> Iterator[Document]:
        """The documents with what the models say, in order.

        Mentions of `types`, by default of all but the extra ones, take the place of those that a document has; mentions
        of other types stay as they are. Mentions and relations below `min_score`, of all or by type, are left out.
        Several documents are worked on at a time, one on each of the models' threads or a few on one, and so a few are
        taken before the first is given back. With `batch_tokens`, `together` are taken at a time and run in batches of
        up to so many tokens.
        """
        # A wrong type is said at once, and not when the first document is asked for.
        choice = self.choice(types=types, min_score=min_score)
        _require_several(docs)
        if together < 1:
            raise UsageError(f"{together} documents together; expected at least 1.")
        given = _only_documents(docs)
        if batch_tokens:
            return self._in_batches(given, choice, batch_tokens=batch_tokens, together=together)
        return self._side_by_side(given, choice) if self.threads > 1 else self._few_by_few(given, choice)

    def explain(
        self, given: str | Document, *, types: Collection[str] | None = None, min_score: Least | None = None
    ) -> list[Candidate]:
        """Mentions that were considered and are not in the result of the same call, in reading order, each with why."""
        doc, choice = self.document(given), self.choice(types=types, min_score=min_score)
        models = [model.aside() for model in self.models if model.types]
        found = [one for model in models for one in candidates(model, doc, choice)]
        return sorted(found, key=lambda one: (one.start, one.end, one.type))

    def choice(self, *, types: Collection[str] | None = None, min_score: Least | None = None) -> Choice:
        """What is kept of that which the models say; UsageError for a type that none of them knows."""
        asked = self.types if types is None else (types,) if isinstance(types, str) else tuple(types)
        _require_known(asked, self.types, "type", extra=self.extra_types)
        relations = [label for model in self.models if model.kind == "relation" for label in model.labels]
        usual = (*self.types, *relations)
        if min_score is None:
            return Choice(asked, {})
        known = (*usual, *self.extra_types)
        least = min_score if isinstance(min_score, Mapping) else dict.fromkeys(known, min_score)
        _require_known(tuple(least), usual, "type in min_score", extra=self.extra_types)
        for score in least.values():
            if not 0 <= score <= 1:
                raise UsageError(f"min_score is {score}; expected a number from 0 to 1.")
        return Choice(asked, dict(least))

    def document(self, given: str | Document) -> Document:
        """A text made into a document; a document as it is."""
        if isinstance(given, Document):
            return given
        if not isinstance(given, str):
            raise UsageError(f"{_seen(given)} was given; expected a text or a document. {_instead(given)}")
        found = (*self.types, *self.extra_types)
        needed = [type_ for model in self.models for type_ in model.needs if type_ not in found]
        if needed:
            raise UsageError(
                f"a text was given to a model that relates mentions of {needed[0]}, which no model loaded here finds. "
                "Load one that does beside it, or give a document that has such mentions."
            )
        return Document(TEXT_ID, (Passage(0, given),) if given else ())

    def _in_batches(
        self, docs: Iterator[Document], choice: Choice, *, batch_tokens: int, together: int
    ) -> Iterator[Document]:
        while taken := list(islice(docs, together)):
            yield from _together(self.models, taken, choice, batch_tokens)

    def _one_by_one(self, docs: Iterable[Document], choice: Choice) -> Iterator[Document]:
        for doc in docs:
            yield from _together(self.models, [doc], choice)

    def _few_by_few(self, docs: Iterator[Document], choice: Choice) -> Iterator[Document]:
        """Documents in order from one thread; an error comes where its document would."""
        errors: list[Exception] = []
        given = _until_error(docs, errors)
        while taken := list(islice(given, FEW)):
            try:
                done = _together(self.models, taken, choice)
            except Exception:
                done = ()
            # Where one of them cannot be worked on, those before it are given first.
            yield from done or self._one_by_one(taken, choice)
        if errors:
            raise errors[0]

    def _side_by_side(self, docs: Iterator[Document], choice: Choice) -> Iterator[Document]:
        """Documents in order from threads that each work on one; an error comes where its document would."""
        errors: list[Exception] = []
        given = _until_error(docs, errors)
        taken = list(islice(given, 2))
        if len(taken) == 2:
            yield from self._by_threads(chain(taken, given), choice)
        else:
            # All threads share the work on a document that is alone.
            yield from self._one_by_one(taken, choice)
        if errors:
            raise errors[0]

    def _by_threads(self, docs: Iterable[Document], choice: Choice) -> Iterator[Document]:
        waiting: deque[Future[Sequence[Document]]] = deque()
        models = self._of_one_thread
        pool = ThreadPoolExecutor(self.threads, "lexome-annotate")
        try:
            for doc in docs:
                waiting.append(pool.submit(_together, models, [doc], choice))
                if len(waiting) >= AHEAD * self.threads:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

    @cached_property
    def _of_one_thread(self) -> tuple[Model, ...]:
        """The models as several threads may run them, opened when they are first needed."""
        return tuple(model.of_one_thread() for model in self.models)


def _together(
    models: Sequence[Model], docs: Sequence[Document], choice: Choice, batch_tokens: int = 0
) -> Sequence[Document]:
    for model in filter(choice.wants, models):
        found = model.annotated(docs, types=choice.types, batch_tokens=batch_tokens)
        docs = [choice.kept(model, doc, other) for doc, other in zip(docs, found, strict=True)]
    return docs


def _until_error(docs: Iterator[Document], errors: list[Exception]) -> Iterator[Document]:
    """The documents up to the first that cannot be read, and why, for whoever has those before it to give first."""
    try:
        yield from docs
    except Exception as error:
        errors.append(error)


def _check(models: Sequence[Model]) -> None:
    """UsageError for models that cannot work together."""
    if not models:
        raise UsageError("no model was given; expected one or more folders.")
    finders: dict[str, Model] = {}
    for model in models:
        for type_ in model.types:
            if type_ in finders:
                raise UsageError(
                    f"{finders[type_].name} and {model.name} both find {type_}; expected one model for each type. "
                    "Load one of them."
                )
            finders[type_] = model
    for model in models:
        missing = [type_ for type_ in model.needs if type_ not in finders]
        if finders and missing:
            raise UsageError(
                f"{model.name} relates mentions of {', '.join(model.needs)}, but no model loaded finds {missing[0]}; "
                f"found are {', '.join(finders)}. Load a model that finds it, or run {model.name} alone on documents "
                "that have such mentions."
            )


def _require_several(docs: object) -> None:
    """UsageError for what is one document or none at all."""
    if isinstance(docs, str | bytes | Document) or not isinstance(docs, Iterable):
        one = isinstance(docs, str | Document)
        do = "Call annotator(it)." if one else _instead(docs)
        raise UsageError(f"annotate was given {_seen(docs)}; expected documents one after another. {do}")


def _only_documents(given: Iterable[object]) -> Iterator[Document]:
    """The documents as they are; UsageError at the first thing that is none."""
    for number, doc in enumerate(given, 1):
        if not isinstance(doc, Document):
            do = "Make it one: annotator.document(it)." if isinstance(doc, str) else _instead(doc)
            raise UsageError(
                f"annotate was given {_seen(doc)} in place {number:,}; expected documents one after another. {do}"
            )
        yield doc


def _seen(given: object) -> str:
    """What something is, in words."""
    names = {str: "a text", Document: "one document", bytes: "a text in bytes", type(None): "None"}
    if isinstance(given, PurePath):
        return f"the path {given}"
    return names.get(type(given), f"a value of type {type(given).__name__}")


def _instead(given: object) -> str:
    """What to do with something that is neither a text nor documents."""
    if isinstance(given, bytes):
        return 'Decode it first: it.decode("utf-8").'
    if isinstance(given, PurePath):
        return "Read it first: lexome.read(it) gives its documents."
    return 'Give a text to annotator("..."), or documents, as lexome.read gives them, to annotator.annotate(...).'


def _require_known(given: Sequence[str], known: Sequence[str], what: str, *, extra: Sequence[str]) -> None:
    unknown = [name for name in given if name not in known and name not in extra]
    if unknown:
        more = f", or of those found only by name: {', '.join(extra)}" if extra else ""
        there = ", ".join(known) or "none"
        raise UsageError(f"the {what} {unknown[0]!r} is asked for; expected some of {there}{more}.")


DEFAULT = "default_model"


def load(*folders: str | Path, threads: int | None = None) -> Annotator:
    """The models in these folders as one annotator; without any, the model that comes with Lexome."""
    paths = [Path(folder) for folder in folders] or [default_model()]
    return Annotator.open(*paths, threads=threads)


def default_model() -> Path:
    """The folder of the model that comes with Lexome."""
    folder = Path(str(resources.files("lexome") / DEFAULT))
    if not (folder / SETTINGS).is_file():
        raise CheckpointError(
            f"{folder}: the model that comes with Lexome is not there. Install Lexome again, or name a folder that "
            "`lexome export` made."
        )
    return folder
