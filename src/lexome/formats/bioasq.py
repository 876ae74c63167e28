"""BioASQ JSON: one document per question, with its snippets, answers and links."""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from lexome.document import Answer, Document, Passage, Question
from lexome.errors import BadDocument
from lexome.formats.json_file import (
    accept,
    load,
    mapping,
    missing_list,
    note_unknown,
    objects,
    required,
    string,
    strings,
)
from lexome.formats.streams import Source
from lexome.formats.tally import Tally

# The kind of a passage that is one snippet.
SNIPPET = "snippet"

_QUESTION = frozenset({"id", "body", "type", "documents", "concepts", "snippets", "exact_answer", "ideal_answer"})
_SNIPPET = frozenset({"text", "document", "beginSection"})


def read(source: Source, *, tally: Tally) -> Iterator[Document]:
    """One document per question: its snippets are the passages, with the article's URL as source.

    Exact answers keep their synonyms; yes and no are answers too. Answers and snippets may be missing (test sets).
    """
    content = load(source)
    questions = content.get("questions") if isinstance(content, dict) else None
    if not isinstance(questions, list):
        raise missing_list(source, content, "questions", "BioASQ")
    note_unknown(content, frozenset({"questions"}), tally)
    for number, record in enumerate(questions, 1):
        yield from accept(tally, partial(_document, record, tally), record, where=f"{source.name}, question {number}")


def spread_snippets(doc: Document, tally: Tally) -> Iterator[Document]:
    """One document per snippet and question, with the answer located in the snippet: BioASQ as extractive QA.

    Only factoid and list questions are converted; others are counted. The answer is the first case-insensitive
    whole-word match of the answer or a synonym in the snippet, the longest if several begin there; its text is the
    snippet's. White space around an answer and a final full stop are ignored.
    Snippets without the answer are skipped and counted, and so are questions without any snippet left; questions
    without answers (test sets) keep all snippets. Question ids are <id>_000, <id>_001, ... as in BioBERT's files, and
    the section is the question's id, so that a question becomes one SQuAD article.
    """
    for question in doc.questions:
        if question.type in ("yesno", "summary"):
            tally.note(f"{question.type} question skipped: its answer is not a span of text")
            continue
        patterns = [pattern for answer in question.answers if (pattern := answer_pattern(answer)) is not None]
        count = 0
        for passage in doc.passages:
            matches = [match for pattern in patterns if (match := pattern.search(passage.text)) is not None]
            if question.answers and not matches:
                tally.note("snippet skipped: it does not contain the answer")
                continue
            answers = tuple(Answer(match[0], match.start()) for match in matches)
            located = replace(question, id=f"{question.id}_{count:03}", answers=answers)
            moved = replace(passage, offset=0, section=(question.id,), sentences=(), tokens=())
            yield Document(f"{question.id}-{count + 1}", (moved,), questions=(located,))
            count += 1
        if not count:
            tally.note("question skipped: no snippet contains its answer")


def answer_pattern(answer: Answer) -> re.Pattern[str] | None:
    """A pattern for the answer and its synonyms as whole words, longest first."""
    forms = {form.strip().removesuffix(".").rstrip() for form in (answer.text, *answer.synonyms)}
    longest_first = sorted(forms - {""}, key=lambda form: (-len(form), form))
    if not longest_first:
        return None
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)", re.IGNORECASE)


def _document(record: object, tally: Tally) -> Document:
    fields = mapping(record, "questions")
    name = required(fields, "id")
    question = Question(
        name,
        required(fields, "body"),
        string(fields, "type"),
        exact_answers(fields),
        ideal=strings(fields, "ideal_answer"),
        documents=strings(fields, "documents"),
        concepts=strings(fields, "concepts"),
    )
    note_unknown(fields, _QUESTION, tally)
    return Document(name, _snippets(objects(fields, "snippets"), tally), questions=(question,))


def _snippets(snippets: list[dict[str, Any]], tally: Tally) -> tuple[Passage, ...]:
    passages: list[Passage] = []
    offset = 0
    for fields in snippets:
        text, section = required(fields, "text"), string(fields, "beginSection")
        sections = (section,) if section is not None else ()
        passages.append(Passage(offset, text, SNIPPET, section=sections, source=string(fields, "document")))
        offset = passages[-1].end + 1
        known = _SNIPPET | {"endSection"} if fields.get("endSection") == section else _SNIPPET
        note_unknown(fields, known, tally)
    return tuple(passages)


def exact_answers(fields: dict[str, Any]) -> tuple[Answer, ...]:
    """The exact answers, in the forms of all BioASQ editions.

    "yes"; ["answer", "synonym"] for a factoid; ["answer", "answer"] for a list; [["answer", "synonym"], ...].
    """
    exact = fields.get("exact_answer")
    if isinstance(exact, list) and exact:
        nested = [item for item in exact if isinstance(item, list)]
        if len(nested) == len(exact):
            groups = [strings({"exact_answer": item}, "exact_answer") for item in nested]
        elif nested:
            raise BadDocument(
                "bad_field", "'exact_answer' mixes lists and strings; expected one of the two", value="exact_answer"
            )
        elif fields.get("type") == "list":
            groups = [(text,) for text in strings(fields, "exact_answer")]
        else:
            groups = [strings(fields, "exact_answer")]
        return tuple(Answer(group[0], synonyms=group[1:]) for group in groups if group)
    single = string(fields, "exact_answer") if exact != [] else None
    return () if single is None else (Answer(single),)
