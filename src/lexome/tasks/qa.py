"""Questions to a text: factoid and list questions by spans of it, yes or no by its whole.

T tokens of a row, N rows of a question
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np

from lexome.document import Answer, Document, Passage, Question, Range, shorten
from lexome.errors import UsageError
from lexome.formats.bioasq import SNIPPET, answer_pattern
from lexome.tasks.classify import Pool, pool_logits
from lexome.tasks.metrics import bioasq_factoid, bioasq_list, bioasq_yesno, classification, squad
from lexome.tasks.task import (
    IGNORE_INDEX,
    Example,
    Floats,
    Frame,
    Ints,
    Scores,
    Task,
    Tokenizer,
    label_index,
    require_choice,
    require_logits,
    require_names,
    require_overlap,
    require_same_length,
)
from lexome.tasks.windows import Tokens, pair_example, text_capacity, tokenize, tokenize_text, windows

SpanCandidate = tuple[int, int, float]
"""Where an answer begins and ends in the document, and how good it is: the sum of its two numbers."""


def best_spans(doc: Document, row: Example, logits_T2: Floats, *, best: int, longest: int) -> Iterator[SpanCandidate]:
    """Spans of a row's text between its best beginnings and ends, none of them over two passages."""
    here = np.flatnonzero(row.starts >= 0)
    firsts, lasts = (here[np.argsort(-logits_T2[here, side], kind="stable")[:best]] for side in (0, 1))
    for first in firsts.tolist():
        passage = doc.passage_at(int(row.starts[first]))
        for last in lasts.tolist():
            end = int(row.ends[last])
            if first <= last < first + longest and passage is not None and end <= passage.end:
                yield int(row.starts[first]), end, float(logits_T2[first, 0] + logits_T2[last, 1])


def null_score(logits: Sequence[Floats]) -> float:
    """How firmly a question's rows say that there is no answer: as firmly as the one that says it least.

    They say so at their first token. One window that holds an answer is enough, however many others do not.
    """
    return min(float(numbers[0].sum()) for numbers in logits)


def rank_candidates(
    doc: Document, candidates: Sequence[SpanCandidate], *, most: int, apart: bool
) -> list[SpanCandidate]:
    """The best candidates, the same words once; with `apart` none that shares characters with a better one.

    Windows overlap and snippets repeat each other, so an answer comes up many times: its best place stands for it.
    """
    kept: list[SpanCandidate] = []
    said: set[str] = set()
    for candidate in sorted(candidates, key=lambda candidate: (-candidate[2], candidate[0], candidate[1])):
        start, end, _ = candidate
        if len(kept) == most:
            break
        if apart and any(start < other_end and other < end for other, other_end, _ in kept):
            continue
        words = normalize(doc.slice(start, end))
        if words not in said:
            said.add(words)
            kept.append(candidate)
    return kept


def normalize(text: str) -> str:
    """A text in lower case, white space as single spaces."""
    return " ".join(text.lower().split())


Form = Literal["factoid", "list", "yesno"]
Measure = Literal["bioasq", "squad"]
Absent = Literal["skip", "null"]

# About so many characters fill a window.
WINDOW_CHARACTERS = 1000

# BioBERT's question ids end on the number of the snippet.
_NUMBERED = re.compile(r"(.+)_\d{3,}")

QuestionPair = tuple[Question, Question | None]
"""A question with its known answers, and with those that were found, if it was answered."""


class Questions(Task):
    """Questions of one form; those of another are left as they are. A question without a type is taken as any.

    form            "factoid": the best answers, best first; "list": all good ones; "yesno": one of `says`
    says            the answers to yes or no questions
    null            whether a question may have no answer: it has none where the model says so more firmly than it names
                    one, by `null_threshold`
    best            how many beginnings and ends of each row are tried
    kept            how many answers to a factoid question are kept, best first
    list_threshold  how probable an answer to a list question has to be, as a part of the best one's probability
    longest         how many tokens an answer has at most
    overlap         how many tokens of text two windows share at least; the question is in each
    absent          what is asked of a text that none of the known answers stands in: nothing ("skip"), or to say that
                    there is none ("null")
    pool            yes or no: whether all windows and snippets have a say ("mean"), or the firmest ("max")
    measure         "bioasq": as the challenge scores each form; "squad": exact match and F1 of the best answer
    """

    kind = "questions"

    def __init__(
        self,
        form: Form = "factoid",
        *,
        says: Sequence[str] = ("yes", "no"),
        null: bool = False,
        null_threshold: float = 0.0,
        best: int = 20,
        kept: int = 5,
        list_threshold: float = 0.42,
        longest: int = 30,
        overlap: int = 128,
        absent: Absent = "skip",
        pool: Pool = "mean",
        measure: Measure = "bioasq",
    ) -> None:
        require_choice(form, get_args(Form), "form")
        require_choice(absent, get_args(Absent), "absent")
        require_choice(pool, get_args(Pool), "pool")
        require_choice(measure, get_args(Measure), "measure")
        require_overlap(overlap)
        require_names(says, "says")
        if min(best, kept, longest) < 1 or not 0 < list_threshold <= 1:
            raise UsageError(
                f"best is {best}, kept {kept}, longest {longest} and list_threshold {list_threshold}; expected numbers "
                "from 1, and a threshold above 0 and up to 1."
            )
        self.form, self.says, self.null, self.null_threshold = form, tuple(says), null, null_threshold
        self.best, self.kept, self.list_threshold, self.longest = best, kept, list_threshold, longest
        self.overlap, self.absent, self.pool, self.measure = overlap, absent, pool, measure
        self.notes: Counter[str] = Counter()
        if form == "yesno":
            self.head, self.loss, self.labels = "sequence", "choice", self.says
        else:
            self.head, self.loss, self.labels = "span", "span", ("first", "last")
        self.groups = (len(self.labels),)

    def encode(self, doc: Document, tokenizer: Tokenizer, frame: Frame, *, with_targets: bool) -> list[Example]:
        """A row for each window of each text, for each question; a text is a snippet, or all that is no snippet.

        A list question has a row for each known answer in a window, with that answer as its target.
        """
        contexts = question_contexts(doc)
        texts = [tokenize(passages, tokenizer) for passages in contexts]
        rows: list[Example] = []
        for question in self._own(doc):
            asked = self._cut(tokenize_text(question.text, tokenizer), frame)
            size = text_capacity(frame, texts=2) - len(asked)
            first = len(frame.before) + len(asked) + len(frame.between)
            for passages, tokens in zip(contexts, texts, strict=True):
                ranges = windows(tokens.begins, size=size, overlap=self.overlap)
                goals: Sequence[Sequence[Ints | None]] = [[None]] * len(ranges)
                if with_targets:
                    shifts = [first - start for start, _ in ranges]
                    goals = self._targets(doc, question, self._places(question, passages, tokens), ranges, shifts)
                rows += (
                    pair_example(asked, tokens.part(*range_), frame, targets=targets, key=(question.id,))
                    for range_, own in zip(ranges, goals, strict=True)
                    for targets in own
                )
        return rows

    def decode(
        self, doc: Document, rows: Sequence[Example], logits: Sequence[Floats], *, types: Collection[str] | None = None
    ) -> Document:
        """The document with answers in place of those it had; answers stand in the text, where `start` says."""
        require_same_length(len(rows), len(logits), "rows", "arrays of numbers")
        own: dict[str, list[tuple[Example, Floats]]] = {}
        for row, numbers in zip(rows, logits, strict=True):
            own.setdefault(row.key[0], []).append((row, numbers))
        mine = {question.id for question in self._own(doc)}
        questions = tuple(
            self._answered(doc, question, own.get(question.id, [])) if question.id in mine else question
            for question in doc.questions
        )
        return replace(doc, questions=questions)

    def score(self, gold: Sequence[Document], found: Sequence[Document]) -> Scores:
        """The measures of the form, over all questions of it."""
        require_same_length(len(gold), len(found), "gold documents", "found ones")
        pairs: list[QuestionPair] = []
        for doc, other in zip(gold, found, strict=True):
            answered = {question.id: question for question in self._own(other)}
            pairs += ((question, answered.get(question.id)) for question in self._own(doc))
        if self.measure == "squad":
            return _squad_scores(pairs)
        pairs = [(own, said and self._kept(said)) for own, said in merge_questions(pairs)]
        forms = [[(answer.text, *answer.synonyms) for answer in question.answers] for question, _ in pairs]
        said = [[answer.text for answer in other.answers] if other is not None else [] for _, other in pairs]
        if self.form == "factoid":
            factoid = bioasq_factoid(forms, said)
            return {"mrr": factoid.mrr, "strict": factoid.strict, "lenient": factoid.lenient}
        if self.form == "list":
            listed = bioasq_list(forms, said)
            return {"f1": listed.f1, "precision": listed.precision, "recall": listed.recall}
        return self._yesno_scores(pairs)

    def settings(self) -> Mapping[str, Any]:
        """All arguments, as JSON has them."""
        return {
            "kind": self.kind,
            "form": self.form,
            "says": list(self.says),
            "null": self.null,
            "null_threshold": self.null_threshold,
            "best": self.best,
            "kept": self.kept,
            "list_threshold": self.list_threshold,
            "longest": self.longest,
            "overlap": self.overlap,
            "absent": self.absent,
            "pool": self.pool,
            "measure": self.measure,
        }

    def oversize(self, doc: Document, limit: int) -> str | None:
        """Every question is asked of every window of the text."""
        windows = len(question_contexts(doc)) + sum(len(passage.text) for passage in doc.passages) // WINDOW_CHARACTERS
        if len(doc.questions) * windows > limit:
            return (
                f"{len(doc.questions):,} questions to a text of about {windows:,} windows; expected a product of "
                f"{limit:,} at most. Ask fewer questions at a time."
            )
        return None

    def _own(self, doc: Document) -> list[Question]:
        return [question for question in doc.questions if question.type in (self.form, None)]

    def _cut(self, question: Tokens, frame: Frame) -> Tokens:
        """The question, or as much of it as leaves half a row to the text."""
        most = text_capacity(frame, texts=2) // 2
        if len(question) <= most:
            return question
        self.notes["question cut: it is longer than half a row"] += 1
        return question.part(0, most)

    def _places(self, question: Question, passages: Sequence[Passage], tokens: Tokens) -> list[Range]:
        """The ranges of a text's tokens that hold a known answer, each once."""
        if self.form == "yesno" or question.impossible:
            return []
        places = dict.fromkeys(place for answer in question.answers for place in find_answer(answer, passages))
        return list(dict.fromkeys(held for place in places if (held := self._held(place, tokens)) is not None))

    def _targets(
        self,
        doc: Document,
        question: Question,
        answers: Sequence[Range],
        ranges: Sequence[Range],
        shifts: Sequence[int],
    ) -> Sequence[Sequence[Ints]]:
        """What is asked of each window of a text: once, or for each answer to a list.

        `shifts` says how far on each window's tokens are in its row than in the text.
        """
        if self.form == "yesno":
            return [[self._said(doc, question)]] * len(ranges)
        nothing = np.zeros(2, np.int64)
        if not answers:
            none = question.impossible or (bool(question.answers) and self.absent == "null")
            return [[nothing if none else np.full(2, IGNORE_INDEX, np.int64)]] * len(ranges)
        inside = [[held for held in answers if start <= held[0] and held[1] <= end] for start, end in ranges]
        if not any(inside):
            self.notes["answer left out: no window holds all of it"] += 1
        most = None if self.form == "list" else 1
        return [
            [np.array([first + shift, end - 1 + shift]) for first, end in own[:most]] or [nothing]
            for own, shift in zip(inside, shifts, strict=True)
        ]

    def _held(self, place: Range, tokens: Tokens) -> Range | None:
        """The tokens of a text that hold an answer, or None where none does."""
        start, end = place
        touching = np.flatnonzero((tokens.starts >= 0) & (tokens.starts < end) & (tokens.ends > start))
        if not len(touching):
            self.notes["answer left out: no token stands in it"] += 1
            return None
        first, last = int(touching[0]), int(touching[-1])
        if (int(tokens.starts[first]), int(tokens.ends[last])) != place:
            self.notes["answer moved to the bounds of tokens"] += 1
        if last - first >= self.longest:
            self.notes["answer longer than the longest that is looked for"] += 1
        return first, last + 1

    def _said(self, doc: Document, question: Question) -> Ints:
        if not question.answers:
            return np.array([IGNORE_INDEX], np.int64)
        said = normalize(question.answers[0].text).removesuffix(".")
        return np.array([label_index(said, self.says, doc)], np.int64)

    def _answered(self, doc: Document, question: Question, given: Sequence[tuple[Example, Floats]]) -> Question:
        if not given:
            raise UsageError(
                f"document {shorten(doc.id)!r}: there are no rows for question {question.id!r}; expected all of them."
            )
        if self.form == "yesno":
            numbers = pool_logits([numbers for _, numbers in given], self.pool, doc, outputs=len(self.says))
            return replace(question, answers=(Answer(self.says[int(numbers.argmax())]),), impossible=False)
        for row, numbers in given:
            require_logits(numbers, (len(row.ids), 2), doc)
        candidates = [
            candidate
            for row, numbers in given
            for candidate in best_spans(doc, row, numbers, best=self.best, longest=self.longest)
        ]
        found = rank_candidates(doc, candidates, most=self.best, apart=self.form == "list")
        none = null_score([numbers for _, numbers in given])
        if not found or (self.null and none - found[0][2] > self.null_threshold):
            return replace(question, answers=(), impossible=self.null)
        answers = tuple(Answer(doc.slice(start, end), start, score=score) for start, end, score in found)
        return self._kept(replace(question, answers=answers, impossible=False))

    def _kept(self, question: Question) -> Question:
        """The question with as many of its answers as its form allows: the first, or those near to the best."""
        scores = [answer.score for answer in question.answers if answer.score is not None]
        if self.form == "factoid":
            return replace(question, answers=question.answers[: self.kept])
        if self.form == "yesno" or len(scores) < len(question.answers) or not scores:
            return question
        least = max(scores) + float(np.log(self.list_threshold))
        kept = tuple(answer for answer in question.answers if answer.score is not None and answer.score >= least)
        return replace(question, answers=kept)

    def _yesno_scores(self, pairs: Sequence[tuple[Question, Question | None]]) -> Scores:
        known = [(question, other) for question, other in pairs if question.answers]
        said = [
            (_first_answer(question) or "", _first_answer(other) if other is not None else None)
            for question, other in known
        ]
        right = sum(own == other for own, other in said) / max(1, len(said))
        if set(self.says) != {"yes", "no"}:
            classes = classification([own for own, _ in said], [other or "" for _, other in said], labels=self.says)
            return {"accuracy": right, "macro_f1": classes.macro_f1}
        measured = bioasq_yesno([own for own, _ in said], [other for _, other in said])
        return {
            "macro_f1": measured.macro_f1,
            "accuracy": measured.accuracy,
            "f1_yes": measured.f1_yes,
            "f1_no": measured.f1_no,
        }


def question_contexts(doc: Document) -> list[tuple[Passage, ...]]:
    """The texts that are read apart: each snippet, and all other passages together; one empty text where none is."""
    merge_questions = tuple(passage for passage in doc.passages if passage.kind != SNIPPET)
    apart = [(passage,) for passage in doc.passages if passage.kind == SNIPPET]
    return ([merge_questions] if merge_questions or not apart else []) + apart


def find_answer(answer: Answer, passages: Iterable[Passage]) -> Iterator[Range]:
    """Where an answer stands in these passages: at its start, or, where that is not known, first in each of them.

    It or a synonym is searched as whole words, upper and lower case alike.
    """
    pattern = answer_pattern(answer) if answer.start is None else None
    for passage in passages:
        if answer.start is not None:
            if passage.offset <= answer.start < passage.end:
                yield answer.start, answer.start + len(answer.text)
        elif pattern is not None and (found := pattern.search(passage.text)) is not None:
            yield passage.offset + found.start(), passage.offset + found.end()


def base_question_id(id_: str) -> str:
    """The id of a question that is asked of several documents, as SQuAD files of BioASQ do: <id>_000, <id>_001, ...

    >>> question_of("56c073fcef6e394741000020_001")
    '56c073fcef6e394741000020'
    """
    match = _NUMBERED.fullmatch(id_)
    return match[1] if match is not None else id_


def merge_questions(asked: Iterable[QuestionPair]) -> list[QuestionPair]:
    """Each question once, however many documents it was asked of, with all their answers from the best score on.

    Questions are one where their ids are, but for the document's number, and their words. Answers without a score keep
    their order. The same words count once.
    """
    same: dict[tuple[str, str], list[QuestionPair]] = {}
    for question, said in asked:
        same.setdefault((base_question_id(question.id), normalize(question.text)), []).append((question, said))
    return [
        (_as_one([own for own, _ in group]), _as_one(given) if (given := [said for _, said in group if said]) else None)
        for group in same.values()
    ]


def _as_one(questions: Sequence[Question]) -> Question:
    if len(questions) == 1:
        return questions[0]
    answers = [answer for question in questions for answer in question.answers]
    answers.sort(key=lambda answer: -answer.score if answer.score is not None else 0.0)
    best = {normalize(answer.text): answer for answer in reversed(answers)}
    once = dict.fromkeys(normalize(answer.text) for answer in answers)
    impossible = all(question.impossible for question in questions)
    name = base_question_id(questions[0].id)
    return replace(questions[0], id=name, answers=tuple(best[words] for words in once), impossible=impossible)


def _first_answer(question: Question) -> str | None:
    return normalize(question.answers[0].text).removesuffix(".") if question.answers else None


def _squad_scores(pairs: Sequence[tuple[Question, Question | None]]) -> Scores:
    gold = [[] if question.impossible else [answer.text for answer in question.answers] for question, _ in pairs]
    found = [other.answers[0].text if other is not None and other.answers else "" for _, other in pairs]
    measured = squad(gold, found)
    scores = {"f1": measured.f1, "exact": measured.exact}
    if measured.answerable < measured.questions:
        scores |= {
            "answerable_f1": measured.answerable_f1,
            "answerable_exact": measured.answerable_exact,
            "unanswerable_exact": measured.unanswerable_exact,
        }
    return scores
