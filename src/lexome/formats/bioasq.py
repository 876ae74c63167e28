"""BioASQ JSON: a question with its snippets, answers and links is a document."""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from lexome.document import Answer, Document, Passage, Question, shorten
from lexome.errors import BadDocument, FormatError
from lexome.formats.json_file import attempt, load, mapping, note_unknown_fields, objects, required, string, strings
from lexome.formats.streams import Source
from lexome.formats.tally import Tally

# The kind of passage that stands for one piece of evidence, apart from the others.
SNIPPET = "snippet"

_QUESTION = frozenset({"id", "body", "type", "documents", "concepts", "snippets", "exact_answer", "ideal_answer"})
_SNIPPET = frozenset({"text", "document", "beginSection"})


def read(source: Source, *, tally: Tally) -> Iterator[Document]:
    """A document a question: its snippets as passages, each with its article's address as source.

    Exact answers keep their synonyms; a yes or no is an answer as well. Files without answers or
    snippets (test phases) are read too.
    """
    content = load(source)
    questions = content.get("questions") if isinstance(content, dict) else None
    if not isinstance(questions, list):
        seen = shorten(", ".join(map(repr, content)), 200) if isinstance(content, dict) else type(content).__name__
        raise FormatError(
            f"{source.name}: there is no list 'questions', only {seen}; expected BioASQ. If it is of another format, "
            "name that with --from (in Python: format=)."
        )
    note_unknown_fields(content, frozenset({"questions"}), tally)
    for number, record in enumerate(questions, 1):
        doc = attempt(tally, partial(_document, record, tally), record, where=f"{source.name}, question {number}")
        if doc is not None:
            yield doc


def spread_snippets(doc: Document, tally: Tally) -> Iterator[Document]:
    """A document for each snippet and question that an answer can be pointed at in, for extractive QA.

    This is how BioASQ becomes SQuAD. Factoid and list questions are taken, the others counted. Each
    answer is searched in the snippet: the first place where it or a synonym stands as whole words,
    upper and lower case alike, the longest of them where several begin; the answer's text is then
    the snippet's own. White space around an answer and the full stop behind it do not count.
    Snippets without the answer are left out and counted, and so are questions left with none; where
    a question has no answers (test sets), all its snippets are kept. Question ids are <id>_000,
    <id>_001, ... as BioBERT's are, and the section is the question's id, so that a question becomes
    one SQuAD article.
    """
    for question in doc.questions:
        if question.type in ("yesno", "summary"):
            tally.note(f"{question.type} question left out: its answer is no part of a text")
            continue
        patterns = [pattern for answer in question.answers if (pattern := answer_pattern(answer)) is not None]
        kept = 0
        for passage in doc.passages:
            found = [match for pattern in patterns if (match := pattern.search(passage.text)) is not None]
            if question.answers and not found:
                tally.note("snippet left out: the answer does not stand in it")
                continue
            answers = tuple(Answer(match[0], match.start()) for match in found)
            asked = replace(question, id=f"{question.id}_{kept:03}", answers=answers)
            moved = replace(passage, offset=0, section=(question.id,), sentences=(), tokens=())
            yield Document(f"{question.id}-{kept + 1}", (moved,), questions=(asked,))
            kept += 1
        if not kept:
            tally.note("question left out: no snippet holds its answer")


def answer_pattern(answer: Answer) -> re.Pattern[str] | None:
    """What finds the answer or a synonym as whole words, the longest first."""
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
    note_unknown_fields(fields, _QUESTION, tally)
    return Document(name, _snippets(objects(fields, "snippets"), tally), questions=(question,))


def _snippets(snippets: list[dict[str, Any]], tally: Tally) -> tuple[Passage, ...]:
    """A passage a snippet, one character apart."""
    passages: list[Passage] = []
    offset = 0
    for fields in snippets:
        text, section = required(fields, "text"), string(fields, "beginSection")
        passages.append(
            Passage(
                offset,
                text,
                SNIPPET,
                section=(section,) if section is not None else (),
                source=string(fields, "document"),
            )
        )
        offset = passages[-1].end + 1
        if fields.get("endSection") == section:
            note_unknown_fields(fields, _SNIPPET | {"endSection"}, tally)
        else:
            note_unknown_fields(fields, _SNIPPET, tally)
    return tuple(passages)


def exact_answers(fields: dict[str, Any]) -> tuple[Answer, ...]:
    """The answers, in each of the shapes that BioASQ's editions give them.

    "yes"; ["answer", "synonym"] of a factoid; ["answer", "answer"] of a list; [["answer", "synonym"], ...].
    """
    exact = fields.get("exact_answer")
    if isinstance(exact, list) and exact:
        nested = [item for item in exact if isinstance(item, list)]
        if len(nested) == len(exact):
            groups = [strings({"exact_answer": item}, "exact_answer") for item in nested]
        elif nested:
            raise BadDocument("bad_field", "'exact_answer' mixes lists and texts; expected one kind of them")
        elif fields.get("type") == "list":
            groups = [(text,) for text in strings(fields, "exact_answer")]
        else:
            groups = [strings(fields, "exact_answer")]
        return tuple(Answer(group[0], synonyms=group[1:]) for group in groups if group)
    alone = string(fields, "exact_answer") if exact != [] else None
    return () if alone is None else (Answer(alone),)
