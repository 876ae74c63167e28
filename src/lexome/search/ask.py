"""ask: answers a question from an index or from documents: finds passages, and has a model extract answers from them.

Without such a model, a reader, there are no answers but only evidence: the sentences that share most words with the
question.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast, get_args

from lexome.corpus.languages import other_language
from lexome.corpus.sentences import split_sentences
from lexome.document import Answer, Document, Question, Range
from lexome.errors import FormatError, UsageError
from lexome.formats import Tally
from lexome.infer.annotator import Model, answerable_key, calibrated
from lexome.search.build import index as build_index
from lexome.search.engine import Filters, Hit, Index, Method
from lexome.search.storage import is_index
from lexome.search.terms import matching_ranges, query_terms
from lexome.tasks.qa import Form, Questions, ask_of

# Passages that are read: BioASQ's experts chose about six snippets per question.
PASSAGES = 6
MAX_PASSAGES = 100
# The least probability of an answer, for a reader that has no threshold of its own from held-out questions.
MIN_PROBABILITY = {"factoid": 0.3, "list": 0.1, "yesno": 0.6}
# Answers by default, and those to a list question.
LIMIT, LIST_LIMIT = 5, 20
MAX_QUESTION_CHARACTERS = 10_000
# A best answer of a lower probability is more likely wrong than right.
UNSURE = 0.5

_YES_NO = re.compile(
    r"\s*(?:(?:is|are|was|were|do|does|did|could|has|have|had|would|should|must)(?:n['’]t)?"
    r"|can(?:['’]t|not)?|will|won['’]t|may|might)\b",
    re.IGNORECASE,
)
# "Which genes", but neither "which has" nor "which virus" nor "which analysis" nor "which gas"; after "what" or an
# adjective only nouns that questions ask for, as in "what human genes", because verbs end in s as well.
_PLURALS = (
    "genes|proteins|receptors|enzymes|kinases|cytokines|hormones|mutations|variants|polymorphisms|genotypes|isoforms"
    "|diseases|disorders|syndromes|symptoms|signs|complications|cancers|tumors|tumours|conditions|phenotypes"
    "|drugs|compounds|chemicals|inhibitors|agonists|antagonists|antibodies|agents|treatments|therapies|vaccines"
    "|species|organisms|bacteria|viruses|strains|cells|tissues|organs|lines|biomarkers|markers|pathways|factors|targets"
    "|methods|tools|databases|tests|criteria|types|trials"
)
_LIST = re.compile(
    r"\s*(?:(?:(?:can|could)\s+you\s+)?(?:please\s+)?(?:list|name|enumerate)\b"
    r"|(?:which|what)\s+(?:are|were)\b"
    rf"|(?:which|what)\s+(?!(?:is|was|has|does|did|do)\b)(?:(?!of\b|[\w-]*s\b)[\w-]+\s+){{0,3}}(?:{_PLURALS})\b"
    r"|which\s+(?!(?:has|was|does|gas|bias|lens|pancreas)\b)[\w-]+[^\Wsui]s\b)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """A sentence in a document, with its offsets there, and the words it shares with the question."""

    document: str
    file: str
    title: str | None
    start: int
    end: int
    text: str
    highlights: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class FoundAnswer:
    """An answer with its probability and, unless it is yes or no, its offsets in the document and its sentence."""

    text: str
    probability: float
    document: str | None = None
    start: int | None = None
    end: int | None = None
    sentence: Evidence | None = None


@dataclass(frozen=True, slots=True)
class AskResult:
    """Answers, best first; none without a reader, or if it does not know.

    form             factoid, list or yesno
    reader           the name of the reader; None: no model was run, and there is only `evidence`
    calibrated       whether probabilities were fitted on held-out questions of this form
    min_probability  answers are withheld if `answerable`, or without it `best`, is lower
    best             the highest probability of any candidate, even if it was too low
    answerable       the probability that the passages have an answer; None if it is not calibrated
    coverage         the largest fraction of the question's terms, weighted by rarity, that one passage has
    min_coverage     passages are not read if `coverage` is lower; None if none is required
    evidence         the sentences that share most words with the question, best first
    note             how reliable the answers are, or what the evidence is; None for a probable answer
    """

    question: str
    form: Form
    reader: str | None
    calibrated: bool
    min_probability: float | None
    best: float | None
    answerable: float | None
    answers: tuple[FoundAnswer, ...]
    evidence: tuple[Evidence, ...]
    passages: int
    coverage: float | None = None
    min_coverage: float | None = None
    note: str | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "note", self._describe())

    def _describe(self) -> str | None:
        if not self.passages:
            return "no passage has a word of the question."
        if self.reader is None:
            form = "yes/no" if self.form == "yesno" else self.form
            return f"no reader for {form} questions: these sentences are evidence, not an answer."
        if self.answers:
            return hedge(self.reader, self.best or 0.0)
        if self.is_uncovered:
            return (
                f"{self.reader} does not know: no passage has enough of the question's words (coverage "
                f"{self.coverage:.2f}, below {self.min_coverage:.2f}). The closest sentences:"
            )
        low = self.best if self.answerable is None else self.answerable
        what = "best candidate" if self.answerable is None else "probability that the passages have an answer"
        best = "" if low is None else f" ({what} {low:.2f}, below {self.min_probability:.2f})"
        return f"{self.reader} does not know{best}. The closest sentences:"

    @property
    def is_uncovered(self) -> bool:
        """Whether the passages were not read because they cover too little of the question."""
        return self.coverage is not None and self.min_coverage is not None and self.coverage < self.min_coverage

    def as_dict(self) -> dict[str, Any]:
        """All of it for JSON."""
        return asdict(self)


def hedge(reader: str, probability: float) -> str | None:
    """A warning that a best answer of this probability is more likely wrong than right; None where it is not."""
    return None if probability >= UNSURE else f"{reader} is not sure. What it considers, with probabilities:"


def form_of(question: str) -> Form:
    """The form of a question by its first words.

    >>> [form_of(text) for text in ("Is BRCA1 a gene?", "Which genes cause it?", "Where is BRCA1?")]
    ['yesno', 'list', 'factoid']
    """
    if _LIST.match(question):
        return "list"
    return "yesno" if _YES_NO.match(question) else "factoid"


def open_readers(folders: Sequence[str | Path], *, threads: int | None = None) -> list[Model]:
    """The question-answering models in these folders; UsageError for a model of another task."""
    models = [Model.open(Path(folder), threads=threads) for folder in folders]
    for model in models:
        if model.kind != "questions":
            message = f"{model.name} is a model for {model.kind}; expected a reader, a model that answers questions."
            raise UsageError(message, code="not-a-reader", value=model.name)
    return models


@contextmanager
def open_source(path: str | Path, *, encoder: Path | None = None, tally: Tally | None = None) -> Iterator[Index]:
    """An index, or documents of any format, which are indexed in a temporary folder.

    `tally` gets the counts of rejected documents and unreadable files.
    """
    path = Path(path)
    if is_index(path):
        with Index.open(path, encoder=encoder) as opened:
            yield opened
        return
    if not path.exists():
        message = f"{path}: no such file or folder; expected an index, or documents. Check the path."
        raise FormatError(message, code="missing-file", value=path)
    with TemporaryDirectory(prefix="lexome-") as scratch:
        folder = Path(scratch) / "index"
        rejects = Path(scratch) / "rejects.jsonl"
        try:
            built = build_index([path], folder, rejects=rejects, embed=encoder, progress_shown=False)
        except FormatError as error:
            if error.code != "no-documents":
                raise
            message = str(error).replace(str(folder), str(path)).replace(", so the index is empty", "")
            raise FormatError(message, code=error.code, value=path) from None
        if tally is not None:
            tally.rejected.update(built.tally.rejected)
            tally.failures += built.tally.failures
        with Index.open(folder) as opened:
            yield opened


def ask(
    index: Index,
    question: str,
    *,
    readers: Sequence[Model] = (),
    form: Form | None = None,
    filters: Filters | None = None,
    passages: int = PASSAGES,
    limit: int | None = None,
    min_probability: float | None = None,
    method: Method | None = None,
    timeout_s: float | None = None,
) -> AskResult:
    """Find `passages` for a question and read them; up to `limit` answers and sentences of evidence.

    By default there are 5 at most, and 20 answers to a list question. The form (factoid, list, yesno) is that of the
    question's first words unless given. If the best answer is less probable than `min_probability`, the reader does not
    know; without it, also if passages found by words cover too little of the question.
    """
    _check_question(question, passages, form)
    if limit is not None and limit < 1:
        raise UsageError(f"limit is {limit}; expected 1 or more.", code="out-of-range", value=limit)
    if min_probability is not None and not 0 <= min_probability <= 1:
        message = f"min_probability is {min_probability}; expected a number from 0 to 1."
        raise UsageError(message, code="out-of-range", value=min_probability)
    chosen = form or form_of(question)
    result = index.search_filtered(question, filters or Filters(), limit=passages, method=method, timeout_s=timeout_s)
    evidence = tuple(_evidence(index, result.hits, question))[: limit or LIMIT]
    reader = _reader(readers, chosen)
    if reader is None or not result.hits:
        name = reader.name if reader is not None else None
        return AskResult(question, chosen, name, False, None, None, None, (), evidence, len(result.hits))
    covered = coverage(index, question, [hit.text for hit in result.hits])
    required = min_coverage(index.passages) if min_probability is None and result.ranking == "bm25" else None
    if required is not None and covered < required:
        fitted, count = chosen in (reader.settings.calibration or ()), len(result.hits)
        return AskResult(
            question, chosen, reader.name, fitted, None, None, None, (), evidence, count, covered, required
        )
    found, answerable = _read(reader, question, chosen, result.hits)
    best = max((answer.probability for answer in found), default=None)
    least, by_answerable = threshold_of(reader, chosen)
    if min_probability is not None:
        least, by_answerable = min_probability, False
    decisive = answerable if by_answerable else best
    most = limit or (LIST_LIMIT if chosen == "list" else LIMIT)
    answers = tuple(found[:most]) if decisive is not None and decisive >= least else ()
    fitted = chosen in (reader.settings.calibration or ())
    shown = answerable if by_answerable else None
    count = len(result.hits)
    return AskResult(
        question, chosen, reader.name, fitted, least, best, shown, answers, evidence, count, covered, required
    )


def coverage(index: Index, question: str, texts: Sequence[str]) -> float:
    """The largest fraction of a question's terms, weighted by their rarity in the index, that one of the texts has.

    A term that no passage has gets the weight of a term in one passage, since its rarity in general is unknown.
    """
    rarity = index.rarity(query_terms(question))
    most = index.rarity_of(1)
    weights = {term: min(weight, most) for term, weight in rarity.items()}
    total = sum(weights.values())
    shares = (sum(weights[term] for term in weights.keys() & set(query_terms(text))) for text in texts)
    return max(shares, default=0.0) / total if total else 0.0


def min_coverage(passages: int) -> float:
    """The minimum coverage of a question in an index of so many passages: 0.2 up to 30, growing to 0.4 at 3,000.

    The more passages there are, the more of a question one of them has by chance. On the factoid and list questions of
    BioASQ 4b to 6b, this withholds 2 to 8% of the answers that documents have, and from 83% (in 5 documents) to about a
    third (in 500 and more) of the others: LOG.md, 2026-11-19.
    """
    return min(0.4, max(0.2, 0.05 + 0.1 * math.log10(max(1, passages))))


def threshold_of(reader: Model, form: Form) -> tuple[float, bool]:
    """A reader's threshold, and whether it applies to the probability that there is an answer instead of the best one.

    It was fitted at export; otherwise it is that of the reader's task, or a default for the form of question.
    """
    fitted = (reader.settings.min_scores or {}).get(form)
    if fitted is not None:
        return fitted, answerable_key(form) in (reader.settings.calibration or {})
    return cast(Questions, reader.task).min_probability or MIN_PROBABILITY[form], False


def read_questions(reader: Model, docs: Sequence[Document]) -> list[tuple[Question, float]]:
    """Each document's question with all its answers, and the probability that the texts have one; calibrated.

    Answers to list questions are those that belong to the list.
    """
    own = cast(Questions, reader.task)
    task = own.with_all_candidates()
    curves = reader.settings.calibration or {}
    examples = [reader.encode(doc) for doc in docs]
    logits = iter(reader.run([example for part in examples for example in part]))
    read: list[tuple[Question, float]] = []
    for doc, part in zip(docs, examples, strict=True):
        raw = task.decode(doc, part, [next(logits) for _ in part])
        answerable = calibrated(task.answerable(raw.questions[0]), curves.get(answerable_key(own.form)))
        listed = own.with_all_candidates(list_threshold=own.list_threshold).select(raw.questions[0])
        scaled = task.rescale_scores(
            replace(raw, questions=(listed,)), lambda score, form: calibrated(score, curves.get(form))
        )
        read.append((scaled.questions[0], answerable))
    return read


def _check_question(question: str, passages: int, form: str | None) -> None:
    if not question.strip():
        raise UsageError("the question is empty. Ask one.", code="empty-query", value=question)
    if len(question) > MAX_QUESTION_CHARACTERS:
        message = f"a question of {len(question):,} characters; expected at most {MAX_QUESTION_CHARACTERS:,}."
        raise UsageError(message, code="too-long", value=len(question))
    if not 1 <= passages <= MAX_PASSAGES:
        message = f"passages is {passages}; expected 1 to {MAX_PASSAGES}."
        raise UsageError(message, code="out-of-range", value=passages)
    if form is not None and form not in get_args(Form):
        message = f"form is {form!r}; expected one of {', '.join(get_args(Form))}."
        raise UsageError(message, code="invalid-choice", value=form)
    require_english(question)


def require_english(question: str) -> None:
    """UsageError if a question is in another language, which the readers were not trained on."""
    if (language := other_language(question)) is not None:
        message = (
            f"the question seems to be in {language}; questions have to be in English. "
            "Translate it; `lexome search` looks for its words."
        )
        raise UsageError(message, code="other-language", value=language)


def _reader(readers: Sequence[Model], form: Form) -> Model | None:
    """The reader for a form: one of that form, or for spans one of the other form that answers by spans."""
    by_form = {cast(Questions, model.task).form: model for model in reversed(readers)}
    model = by_form.get(form)
    if model is None and form != "yesno":
        model = by_form.get("list" if form == "factoid" else "factoid")
    if model is None:
        return None
    task = cast(Questions, model.task)
    return model if task.forms == (form,) else model.with_task(task.only(form))


def _read(reader: Model, question: str, form: Form, hits: Sequence[Hit]) -> tuple[list[FoundAnswer], float]:
    """The reader's answers over all passages together, and the probability that these have one.

    Of answers that overlap, such as BRCA1 and BRCA1 gene, the most probable one.
    """
    doc = ask_of(Question("question", question, form), (hit.text for hit in hits))
    ((answered, answerable),) = read_questions(reader, [doc])
    return [_locate(answer, doc, hits) for answer in without_overlaps(answered.answers)], answerable


def without_overlaps(answers: Iterable[Answer]) -> list[Answer]:
    """The answers, most probable first, without those that overlap one before them."""
    kept: list[Answer] = []
    for answer in answers:
        start = answer.start
        if start is None or not any(
            start < (one.start or 0) + len(one.text) and (one.start or 0) < start + len(answer.text) for one in kept
        ):
            kept.append(answer)
    return kept


def _locate(answer: Answer, doc: Document, hits: Sequence[Hit]) -> FoundAnswer:
    """The answer with its place in the document it was found in."""
    probability = answer.score or 0.0
    if answer.start is None:
        return FoundAnswer(answer.text, probability)
    place = next(number for number, passage in enumerate(doc.passages) if answer.start < passage.end)
    hit, offset = hits[place], answer.start - doc.passages[place].offset
    end = offset + len(answer.text)
    # An answer over the end of a sentence is shown with both.
    touching = [(a, b) for a, b in split_sentences(hit.text) if a < end and b > offset] or [(offset, end)]
    low, high = touching[0][0], touching[-1][1]
    mark = (hit.start + offset, hit.start + end)
    sentence = _sentence(hit, low, high, (mark,))
    return FoundAnswer(answer.text, probability, hit.document, *mark, sentence)


def _sentence(hit: Hit, start: int, end: int, highlights: tuple[Range, ...]) -> Evidence:
    place = (hit.start + start, hit.start + end)
    return Evidence(hit.document, hit.file, hit.title, *place, hit.text[start:end], highlights)


def _evidence(index: Index, hits: Sequence[Hit], question: str) -> Iterator[Evidence]:
    """Sentences by the rarity of the question's terms in them, best first; ties in the order of the passages."""
    wanted = query_terms(question)
    rarity = index.rarity(wanted)
    scored = []
    for hit in hits:
        for start, end in split_sentences(hit.text):
            text = hit.text[start:end]
            own = query_terms(text)
            score = sum(rarity[term] for term in wanted if term in own)
            if score:
                marks = tuple((hit.start + start + a, hit.start + start + b) for a, b in matching_ranges(text, wanted))
                scored.append((score, _sentence(hit, start, end, marks)))
    scored.sort(key=lambda item: -item[0])
    seen: set[str] = set()
    for _, sentence in scored:
        if sentence.text not in seen:
            seen.add(sentence.text)
            yield sentence
