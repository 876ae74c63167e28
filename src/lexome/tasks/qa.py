"""Question answering over documents: factoid and list questions by spans of the text, yes/no questions by a label.

T tokens of an example
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from math import inf
from typing import Literal, get_args

import numpy as np

from lexome.document import Answer, Document, Passage, Question, Range, lay_out, shorten
from lexome.errors import UsageError
from lexome.formats.bioasq import SNIPPET, answer_pattern
from lexome.tasks.classify import Pool, pool_logits
from lexome.tasks.metrics import bioasq_factoid, bioasq_list, bioasq_yesno, classification, squad
from lexome.tasks.metrics.answers import list_scores, normalize_answer
from lexome.tasks.metrics.bootstrap import resample
from lexome.tasks.task import (
    IGNORE_INDEX,
    Example,
    Floats,
    Frame,
    Ints,
    Scale,
    Scores,
    Task,
    TokenizedText,
    Tokenizer,
    Types,
    label_index,
    pair_example,
    require_choice,
    require_logits,
    require_names,
    require_overlap,
    require_same_length,
    text_capacity,
    tokenize,
    tokenize_text,
    windows,
)

Form = Literal["factoid", "list", "yesno"]
Measure = Literal["bioasq", "squad"]
Absent = Literal["skip", "null"]

# In BioBERT's files, a question's id ends in the number of its snippet.
_NUMBERED_ID = re.compile(r"(.+)_\d{3,}")

# About how many characters of a long text come with each further window.
WINDOW_CHARACTERS = 1000

SpanCandidate = tuple[int, int, float]
"""Start and end of an answer in the document, and its score: the sum of its two logits."""

QuestionPair = tuple[Question, Question | None]
"""A question with its gold answers, and with predicted ones if it was answered."""


class Questions(Task):
    """Questions of one form; those of another are left unchanged. A question without a type matches any form.

    `also` is a second form that is answered, by the same spans: list beside factoid, or factoid beside list.

    form            "factoid": the best answers, best first; "list": all good answers; "yesno": one of `says`
    says            the answers to yes/no questions
    null            whether a question may have no answer: it has none if the null score exceeds the best answer's by
                    `null_threshold`
    min_probability the minimum probability of the best answer; below it, the question has no answer ("do not know")
    best            how many starts and ends of each example are combined
    kept            how many answers to a factoid question are kept, best first
    list_threshold  the minimum probability of an answer to a list question, relative to the best one
    longest         the maximum length of an answer in tokens
    overlap         the minimum number of tokens of text that two windows share; the question is in each
    absent          the target of a text without a gold answer: ignored ("skip"), or no answer ("null")
    pool            yes/no: how logits of windows and snippets are combined, "mean" or "max"
    measure         "bioasq": the challenge's metrics of each form; "squad": exact match and F1 of the best answer
    """

    kind = "questions"

    def __init__(
        self,
        form: Form = "factoid",
        *,
        says: Sequence[str] = ("yes", "no"),
        null: bool = False,
        null_threshold: float = 0.0,
        min_probability: float = 0.0,
        best: int = 20,
        kept: int = 5,
        list_threshold: float = 0.42,
        longest: int = 30,
        overlap: int = 128,
        absent: Absent = "skip",
        pool: Pool = "mean",
        measure: Measure = "bioasq",
    ) -> None:
        settings = (
            (form, Form, "form"),
            (absent, Absent, "absent"),
            (pool, Pool, "pool"),
            (measure, Measure, "measure"),
        )
        for value, choices, what in settings:
            require_choice(value, get_args(choices), what)
        require_overlap(overlap)
        require_names(says, "says")
        for name, count in (("best", best), ("kept", kept), ("longest", longest)):
            if count < 1:
                raise UsageError(f"{name} is {count}; expected 1 or more.", code="out-of-range", value=count)
        if not 0 <= min_probability < 1:
            message = f"min_probability is {min_probability}; expected a number from 0, below 1."
            raise UsageError(message, code="out-of-range", value=min_probability)
        if not 0 < list_threshold <= 1:
            message = f"list_threshold is {list_threshold}; expected a number above 0, up to 1."
            raise UsageError(message, code="out-of-range", value=list_threshold)
        self.form, self.says, self.null, self.null_threshold = form, tuple(says), null, null_threshold
        self.also: Form | None = None
        self.min_probability = min_probability
        self.best, self.kept, self.list_threshold, self.longest = best, kept, list_threshold, longest
        self.overlap, self.absent, self.pool, self.measure = overlap, absent, pool, measure
        self.notes = Counter()
        if form == "yesno":
            self.head, self.loss, self.labels = "sequence", "choice", self.says
        else:
            self.head, self.loss, self.labels = "span", "span", ("first", "last")
        self.groups = (len(self.labels),)

    def with_form(self, form: Form) -> "Questions":
        """The task for questions of the other form that is answered by spans: factoid or list."""
        if "yesno" in (form, self.form):
            message = f"a reader of {self.form} questions cannot answer {form} questions. Use another model."
            raise UsageError(message, code="invalid-choice", value=form)
        task = copy(self)
        task.form, task.also = form, None
        return task

    def only(self, form: Form) -> "Questions":
        """The task for questions of one of its forms, or of the other form that is answered by spans."""
        if form != self.form:
            return self.with_form(form)
        task = copy(self)
        task.also = None
        return task

    def with_other_form(self) -> "Questions":
        """The task for questions of both forms that are answered by spans."""
        task = copy(self)
        task.also = {"factoid": "list", "list": "factoid"}.get(self.form)  # type: ignore[assignment]
        return task

    @property
    def forms(self) -> tuple[Form, ...]:
        """The forms of questions that are answered."""
        return (self.form,) if self.also is None else (self.form, self.also)

    def answering_also(self, forms: Collection[str]) -> "Questions":
        """The task that answers both forms of spans, if no reader has the other one; a yes/no reader as it is."""
        return self if self.form == "yesno" or {"factoid", "list"} <= set(forms) else self.with_other_form()

    def answers_any(self, docs: Iterable[Document]) -> bool:
        """Whether one of the documents has a question of this form."""
        return any(self._matching(doc) for doc in docs)

    def with_all_candidates(self, *, list_threshold: float = 0.0) -> "Questions":
        """The task with all candidates, however improbable; lists keep those above `list_threshold`."""
        task = copy(self)
        task.min_probability, task.null_threshold, task.list_threshold = 0.0, inf, list_threshold
        task.kept = self.best
        return task

    def answerable(self, question: Question) -> float:
        """The probability that the texts answer a question: that of all its candidates together, except "no answer".

        If "no answer" is not an option, that of the best candidate. How it is divided among candidates, such as BRCA1
        and BRCA1 gene, does not matter.
        """
        scores = [answer.score or 0.0 for answer in question.answers]
        return min(sum(scores), 1.0) if self.null and self.form != "yesno" else max(scores, default=0.0)

    def rescale_scores(self, doc: Document, scale: Scale, *, types: Types | None = None) -> Document:
        """The document with the scores of this task's answers on another scale, that of the form of the question."""
        matching = self._matching(doc)
        questions = tuple(
            replace(
                question,
                answers=tuple(
                    answer
                    if answer.score is None
                    else replace(answer, score=scale(answer.score, self.form_of(question)))
                    for answer in question.answers
                ),
            )
            if question in matching
            else question
            for question in doc.questions
        )
        return replace(doc, questions=questions)

    def abstain(
        self,
        predicted: Document,
        doc: Document,
        examples: Sequence[Example],
        logits: Sequence[Floats],
        *,
        least: Mapping[str, float],
        scales: Mapping[str, Callable[[float], float]],
    ) -> Document:
        """`predicted` without answers to questions that the text seems not to answer: less probable than `least`."""
        if not any(least.get(form) for form in self.forms):
            return predicted
        raw = self.with_all_candidates().decode(doc, examples, logits)
        questions = []
        for question, candidates in zip(predicted.questions, raw.questions, strict=True):
            form = self.form_of(question)
            if form in scales:
                probability = scales[form](self.only(form).answerable(candidates))
            else:
                probability = max((answer.score or 0.0 for answer in question.answers), default=0.0)
            answered = question.type in (*self.forms, None) and question.answers
            abstains = answered and probability < least.get(form, 0.0)
            questions.append(replace(question, answers=(), impossible=True) if abstains else question)
        return replace(predicted, questions=tuple(questions))

    def answer_score(self, gold: Question, predicted: Question) -> float:
        """The score of the answer to one question: 0 or 1 for the first answer, or the F1 of a list."""
        if not predicted.answers:
            return 0.0
        if self.form == "list":
            forms = [(answer.text, *answer.synonyms) for answer in gold.answers]
            return list_scores(forms, [answer.text for answer in predicted.answers])[2]
        return float(is_right(gold, predicted.answers[0]))

    def oversize(self, doc: Document, limit: int) -> str | None:
        """Each question is asked of each window of the text."""
        windows = len(question_contexts(doc)) + sum(len(passage.text) for passage in doc.passages) // WINDOW_CHARACTERS
        if len(doc.questions) * windows <= limit:
            return None
        return (
            f"{len(doc.questions):,} questions on a text of about {windows:,} windows; expected a product of {limit:,} "
            "at most. Ask fewer questions at a time."
        )

    def encode(self, doc: Document, tokenizer: Tokenizer, frame: Frame, *, with_targets: bool) -> list[Example]:
        """An example for each question and window of each context; of a list question, for each gold answer in it."""
        contexts = question_contexts(doc)
        texts = [tokenize(passages, tokenizer) for passages in contexts]
        examples: list[Example] = []
        for question in self._matching(doc):
            question_tokens = tokenize_text(question.text, tokenizer)
            capacity = text_capacity(frame, texts=2)
            if len(question_tokens) > capacity // 2:
                self.notes["question truncated: longer than half an example"] += 1
                question_tokens = question_tokens.part(0, capacity // 2)
            size = capacity - len(question_tokens)
            first = len(frame.before) + len(question_tokens) + len(frame.between)
            for passages, tokens in zip(contexts, texts, strict=True):
                ranges = windows(tokens.begins, size=size, overlap=self.overlap)
                targets: Sequence[Sequence[Ints | None]] = [[None]] * len(ranges)
                if with_targets:
                    answers = self._answer_ranges(question, passages, tokens)
                    targets = self._targets(doc, question, answers, ranges, first)
                examples += (
                    pair_example(question_tokens, tokens.part(*window), frame, targets=target, key=(question.id,))
                    for window, window_targets in zip(ranges, targets, strict=True)
                    for target in window_targets
                )
        return examples

    def _matching(self, doc: Document) -> list[Question]:
        return [question for question in doc.questions if question.type in (*self.forms, None)]

    def form_of(self, question: Question) -> Form:
        """The form that a question is answered in: its own, or else that of the task."""
        return self.also if self.also is not None and question.type == self.also else self.form

    def _answer_ranges(self, question: Question, passages: Sequence[Passage], tokens: TokenizedText) -> list[Range]:
        """The distinct ranges of a text's tokens that hold a gold answer."""
        if self.form == "yesno" or question.impossible:
            return []
        places = dict.fromkeys(place for answer in question.answers for place in find_answer(answer, passages))
        ranges = (self._token_range(place, tokens) for place in places)
        return list(dict.fromkeys(range_ for range_ in ranges if range_ is not None))

    def _token_range(self, place: Range, tokens: TokenizedText) -> Range | None:
        """The tokens that hold an answer, or None."""
        start, end = place
        touching = np.flatnonzero((tokens.starts >= 0) & (tokens.starts < end) & (tokens.ends > start))
        if not len(touching):
            self.notes["answer skipped: no token in it"] += 1
            return None
        first, last = int(touching[0]), int(touching[-1])
        if (int(tokens.starts[first]), int(tokens.ends[last])) != place:
            self.notes["answer moved to token boundaries"] += 1
        if last - first >= self.longest:
            self.notes["answer longer than the longest that is predicted"] += 1
        return first, last + 1

    def _targets(
        self, doc: Document, question: Question, answers: Sequence[Range], ranges: Sequence[Range], offset: int
    ) -> Sequence[Sequence[Ints]]:
        """The targets of each window, whose text begins at `offset`: one, or one for each answer to a list question."""
        if self.form == "yesno":
            if not question.answers:
                return [[np.array([IGNORE_INDEX], np.int64)]] * len(ranges)
            return [[np.array([label_index(_first_answer(question), self.says, doc)], np.int64)]] * len(ranges)
        null = np.zeros(2, np.int64)
        if not answers:
            no_answer = question.impossible or (bool(question.answers) and self.absent == "null")
            return [[null if no_answer else np.full(2, IGNORE_INDEX, np.int64)]] * len(ranges)
        inside = [[answer for answer in answers if start <= answer[0] and answer[1] <= end] for start, end in ranges]
        if not any(inside):
            self.notes["answer skipped: no window holds all of it"] += 1
        most = None if self.form == "list" else 1
        return [
            [np.array([first, end - 1]) + offset - start for first, end in own[:most]] or [null]
            for own, (start, _) in zip(inside, ranges, strict=True)
        ]

    def decode(
        self, doc: Document, examples: Sequence[Example], logits: Sequence[Floats], *, types: Types | None = None
    ) -> Document:
        """The document with predicted answers; `start` of an answer is its offset in the text."""
        require_same_length(len(examples), len(logits), "examples", "arrays of logits")
        by_question: dict[str, list[tuple[Example, Floats]]] = {}
        for example, array in zip(examples, logits, strict=True):
            by_question.setdefault(example.key[0], []).append((example, array))
        matching = {question.id for question in self._matching(doc)}
        by_form = {form: self if form == self.form else self.with_form(form) for form in self.forms}
        questions = tuple(
            by_form[self.form_of(question)]._answer(doc, question, by_question.get(question.id, []))
            if question.id in matching
            else question
            for question in doc.questions
        )
        return replace(doc, questions=questions)

    def _answer(self, doc: Document, question: Question, outputs: Sequence[tuple[Example, Floats]]) -> Question:
        if not outputs:
            message = f"document {shorten(doc.id)!r}: there are no examples for question {question.id!r}; expected all."
            raise UsageError(message, code="missing-example", value=question.id)
        if self.form == "yesno":
            pooled = pool_logits([logits for _, logits in outputs], self.pool, doc, outputs=len(self.says))
            probabilities = softmax(pooled.tolist())
            choice = int(pooled.argmax())
            if probabilities[choice] < self.min_probability:
                return replace(question, answers=(), impossible=True)
            return replace(
                question, answers=(Answer(self.says[choice], score=probabilities[choice]),), impossible=False
            )
        for example, logits in outputs:
            require_logits(logits, (len(example.ids), 2), doc)
        candidates = [
            candidate
            for example, logits in outputs
            for candidate in best_spans(doc, example, logits, best=self.best, longest=self.longest)
        ]
        ranked = rank_candidates(doc, candidates, most=self.best, allow_overlap=self.form != "list")
        null = null_score([logits for _, logits in outputs])
        if not ranked or (self.null and null - ranked[0][2] > self.null_threshold):
            return replace(question, answers=(), impossible=self.null)
        # As in BERT's SQuAD script: among the best answers of all windows and, if there may be none, no answer.
        logits_of_all = [score for _, _, score in ranked] + ([null] if self.null else [])
        probabilities = softmax(logits_of_all)[: len(ranked)]
        if probabilities[0] < self.min_probability:
            return replace(question, answers=(), impossible=True)
        answers = tuple(
            Answer(doc.slice(start, end), start, score=probability)
            for (start, end, _), probability in zip(ranked, probabilities, strict=True)
        )
        return self.select(replace(question, answers=answers, impossible=False))

    def select(self, question: Question) -> Question:
        """The question with as many answers as its form allows: the first ones, or those close to the best."""
        scores = [answer.score for answer in question.answers if answer.score is not None]
        if self.form == "factoid":
            return replace(question, answers=question.answers[: self.kept])
        if self.form == "yesno" or len(scores) < len(question.answers) or not scores:
            return question
        least = max(scores) * self.list_threshold
        kept = tuple(answer for answer in question.answers if answer.score is not None and answer.score >= least)
        return replace(question, answers=kept)

    def score(self, gold: Sequence[Document], predicted: Sequence[Document]) -> Scores:
        """The metrics of the form, over all its questions."""
        require_same_length(len(gold), len(predicted), "gold documents", "predicted ones")
        pairs: list[QuestionPair] = []
        for doc, other in zip(gold, predicted, strict=True):
            by_id = {question.id: question for question in self._matching(other)}
            pairs += ((question, by_id.get(question.id)) for question in self._matching(doc))
        if self.measure == "squad":
            return _squad_scores(pairs)
        pairs = [(own, other and self.select(other)) for own, other in merge_questions(pairs)]
        forms = [[(answer.text, *answer.synonyms) for answer in question.answers] for question, _ in pairs]
        answers = [[answer.text for answer in other.answers] if other is not None else [] for _, other in pairs]
        if self.form == "factoid":
            factoid = bioasq_factoid(forms, answers)
            return {"mrr": factoid.mrr, "strict": factoid.strict, "lenient": factoid.lenient}
        if self.form == "list":
            listed = bioasq_list(forms, answers)
            return {"f1": listed.f1, "precision": listed.precision, "recall": listed.recall}
        return self._yesno_scores(pairs)

    def _yesno_scores(self, pairs: Sequence[QuestionPair]) -> Scores:
        answered = [(question, other) for question, other in pairs if question.answers]
        gold = [_first_answer(question) for question, _ in answered]
        predicted = [_first_answer(other) if other is not None and other.answers else None for _, other in answered]
        if set(self.says) != {"yes", "no"}:
            right = sum(own == other for own, other in zip(gold, predicted, strict=True)) / max(1, len(gold))
            classes = classification(gold, [answer or "" for answer in predicted], labels=self.says)
            return {"accuracy": right, "macro_f1": classes.macro_f1}
        result = bioasq_yesno(gold, predicted)
        return {name: getattr(result, name) for name in ("macro_f1", "accuracy", "f1_yes", "f1_no")}

    def predictions(self, doc: Document) -> set[Hashable]:
        """The best answer to each question, None for no answer."""
        return {(question.id, question.answers[0].text if question.answers else None) for question in doc.questions}

    def resampled_scores(
        self, gold: Sequence[Document], predicted: Sequence[Document], *, samples: int, seed: int = 0
    ) -> Iterator[Scores]:
        """Scores of bootstrap samples of questions, each with all the documents that ask it."""
        by_question: dict[str, list[int]] = {}
        for place, doc in enumerate(gold):
            name = base_question_id(doc.questions[0].id) if doc.questions else doc.id
            by_question.setdefault(name, []).append(place)
        units = list(by_question.values())
        if self.form == "yesno":
            # Macro F1 is not a mean over questions: for a single question it is at most one half.
            for drawn in resample(len(units), samples=samples, seed=seed):
                places = [(number, place) for number, unit in enumerate(drawn.tolist()) for place in units[unit]]
                both = ([_with_prefix(number, docs[place]) for number, place in places] for docs in (gold, predicted))
                yield self.score(*both)
            return
        ids = [
            {base_question_id(question.id) for place in unit for question in gold[place].questions} for unit in units
        ]
        each = [self.score([gold[n] for n in places], [predicted[n] for n in places]) for places in units]
        weights = np.array([len(unit_ids) for unit_ids in ids], np.float64)
        common = [metric for metric in each[0] if all(metric in scores for scores in each)]
        for drawn in resample(len(units), samples=samples, seed=seed):
            yield {
                metric: float(np.average([each[n][metric] for n in drawn], weights=weights[drawn])) for metric in common
            }


def _with_prefix(number: int, doc: Document) -> Document:
    """The document with a prefix on its question ids: two of one id would be scored as one."""
    return replace(doc, questions=tuple(replace(question, id=f"{number}.{question.id}") for question in doc.questions))


def question_contexts(doc: Document) -> list[tuple[Passage, ...]]:
    """The texts that are read separately: each snippet, and all other passages together; at least one, if empty."""
    together = tuple(passage for passage in doc.passages if passage.kind != SNIPPET)
    snippets = [(passage,) for passage in doc.passages if passage.kind == SNIPPET]
    return ([together] if together or not snippets else []) + snippets


def ask_of(question: Question, texts: Iterable[str]) -> Document:
    """A document in which a question is asked of these texts together, so that their answers are comparable."""
    return Document(question.id, lay_out((SNIPPET, text) for text in texts), questions=(question,))


def join_texts(docs: Iterable[Document]) -> list[Document]:
    """A document for each question, with all the texts that it is asked of in these documents, each text once.

    Answers lose their offsets: any occurrence of an answer is right.
    """
    groups: dict[tuple[str, str], tuple[list[Question], dict[str, None]]] = {}
    for doc in docs:
        for question in doc.questions:
            key = (base_question_id(question.id), normalize(question.text))
            questions, texts = groups.setdefault(key, ([], {}))
            questions.append(question)
            texts |= dict.fromkeys(passage.text for passage in doc.passages)
    joined: list[Document] = []
    for (id_, _), (questions, texts) in groups.items():
        merged = _merge(questions)
        answers = tuple(replace(answer, start=None) for answer in merged.answers)
        joined.append(ask_of(replace(merged, id=id_, answers=answers), texts))
    return joined


def ask_elsewhere(docs: Sequence[Document]) -> list[Document]:
    """Unanswerable questions: each is asked of the texts of the next document in which none of its answers is found."""
    unanswerable: list[Document] = []
    for place, doc in enumerate(docs):
        question = doc.questions[0]
        for other in (*docs[place + 1 :], *docs[:place]):
            answered = any(next(find_answer(answer, other.passages), None) for answer in question.answers)
            if question.type == "yesno" or not answered:
                unanswerable.append(
                    replace(other, id=doc.id, questions=(replace(question, answers=(), impossible=True),))
                )
                break
    return unanswerable


def is_right(gold: Question, answer: Answer) -> bool:
    """Whether an answer is one of the gold answers or their synonyms; case, punctuation and articles do not count."""
    forms = {normalize_answer(form) for own in gold.answers for form in (own.text, *own.synonyms)}
    return normalize_answer(answer.text) in forms


def find_answer(answer: Answer, passages: Iterable[Passage]) -> Iterator[Range]:
    """The positions of an answer in passages: its own, or if it has no offsets, its first occurrence in each.

    The answer and its synonyms are searched as whole words, ignoring case.
    """
    pattern = answer_pattern(answer) if answer.start is None else None
    for passage in passages:
        if answer.start is not None:
            if passage.offset <= answer.start < passage.end:
                yield answer.start, answer.start + len(answer.text)
        elif pattern is not None and (match := pattern.search(passage.text)) is not None:
            yield passage.offset + match.start(), passage.offset + match.end()


def best_spans(
    doc: Document, example: Example, logits_T2: Floats, *, best: int, longest: int
) -> Iterator[SpanCandidate]:
    """Spans between the best starts and ends of an example's text, none across two passages."""
    visible = np.flatnonzero(example.starts >= 0)
    firsts, lasts = (visible[np.argsort(-logits_T2[visible, side], kind="stable")[:best]] for side in (0, 1))
    for first in firsts.tolist():
        passage = doc.passage_at(int(example.starts[first]))
        for last in lasts.tolist():
            end = int(example.ends[last])
            if first <= last < first + longest and passage is not None and end <= passage.end:
                yield int(example.starts[first]), end, float(logits_T2[first, 0] + logits_T2[last, 1])


def softmax(logits: Sequence[float]) -> list[float]:
    """Probabilities of these logits.

    >>> softmax([0.0, 0.0])
    [0.5, 0.5]
    """
    exponentials = np.exp(np.asarray(logits, np.float64) - max(logits))
    probabilities: list[float] = (exponentials / exponentials.sum()).tolist()
    return probabilities


def null_score(logits: Sequence[Floats]) -> float:
    """The score of no answer: the lowest of all examples, at their first token.

    One window with an answer is enough, however many others have none.
    """
    return min(float(array[0].sum()) for array in logits)


def rank_candidates(
    doc: Document, candidates: Sequence[SpanCandidate], *, most: int, allow_overlap: bool
) -> list[SpanCandidate]:
    """The best candidates with distinct texts; without `allow_overlap` none that overlaps a better one.

    Windows overlap and snippets repeat each other, so an answer comes up many times: its best place is kept.
    """
    kept: list[SpanCandidate] = []
    texts: set[str] = set()
    for candidate in sorted(candidates, key=lambda candidate: (-candidate[2], candidate[0], candidate[1])):
        start, end, _ = candidate
        if len(kept) == most:
            break
        if not allow_overlap and any(start < other_end and other < end for other, other_end, _ in kept):
            continue
        text = normalize(doc.slice(start, end))
        if text not in texts:
            texts.add(text)
            kept.append(candidate)
    return kept


def normalize(text: str) -> str:
    """A text in lower case, with single spaces."""
    return " ".join(text.lower().split())


def base_question_id(id_: str) -> str:
    """The id of a question that several documents ask, as in BioASQ's SQuAD files: <id>_000, <id>_001, ...

    >>> base_question_id("56c073fcef6e394741000020_001")
    '56c073fcef6e394741000020'
    """
    match = _NUMBERED_ID.fullmatch(id_)
    return match[1] if match is not None else id_


def merge_questions(pairs: Iterable[QuestionPair]) -> list[QuestionPair]:
    """Each question once, however many documents ask it, with all their answers by descending score.

    Questions are the same if their texts and their ids are, up to the document's number. Answers without a score keep
    their order. Answers with the same text count once.
    """
    groups: dict[tuple[str, str], list[QuestionPair]] = {}
    for question, predicted in pairs:
        groups.setdefault((base_question_id(question.id), normalize(question.text)), []).append((question, predicted))
    return [
        (
            _merge([question for question, _ in group]),
            _merge(answered) if (answered := [predicted for _, predicted in group if predicted]) else None,
        )
        for group in groups.values()
    ]


def _merge(questions: Sequence[Question]) -> Question:
    if len(questions) == 1:
        return questions[0]
    answers = [answer for question in questions for answer in question.answers]
    answers.sort(key=lambda answer: -answer.score if answer.score is not None else 0.0)
    best = {normalize(answer.text): answer for answer in reversed(answers)}
    texts = dict.fromkeys(normalize(answer.text) for answer in answers)
    return replace(
        questions[0],
        id=base_question_id(questions[0].id),
        answers=tuple(best[text] for text in texts),
        impossible=all(question.impossible for question in questions),
    )


def _first_answer(question: Question) -> str:
    return normalize(question.answers[0].text).removesuffix(".")


def _squad_scores(pairs: Sequence[QuestionPair]) -> Scores:
    gold = [[] if question.impossible else [answer.text for answer in question.answers] for question, _ in pairs]
    predicted = [other.answers[0].text if other is not None and other.answers else "" for _, other in pairs]
    result = squad(gold, predicted)
    names = ["f1", "exact"]
    if result.answerable < result.questions:
        names += ["answerable_f1", "answerable_exact", "unanswerable_exact"]
    return {name: getattr(result, name) for name in names}
