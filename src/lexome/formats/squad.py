"""SQuAD 1.1 and 2.0 JSON: one document per paragraph, with its questions."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, BinaryIO, Literal

from lexome.document import Answer, Document, Passage, Question, encode_utf8, shorten
from lexome.errors import BadDocument
from lexome.formats.bioasq import SNIPPET, spread_snippets
from lexome.formats.json_file import (
    accept,
    attempt,
    flag,
    load,
    mapping,
    missing_list,
    note_unknown,
    objects,
    required,
    string,
)
from lexome.formats.streams import Source
from lexome.formats.tally import PASSAGE_DETAILS, Tally, find_nearest, note_losses

_ARTICLE = frozenset({"title", "paragraphs"})
_PARAGRAPH = frozenset({"id", "context", "qas"})
_QUESTION = frozenset({"id", "question", "answers", "is_impossible"})
_ANSWER = frozenset({"text", "answer_start"})

# Written, lost with the spans, or noted per paragraph by _note_details.
_NOTED_ELSEWHERE = PASSAGE_DETAILS | {"questions", "concepts", "scores", "relation novelty"}


def read(source: Source, *, tally: Tally, offsets: Literal["strict", "repair"] = "strict") -> Iterator[Document]:
    """One document per paragraph: its context is the passage, with the article's title as section.

    Ids are the title and the paragraph's number. A paragraph with an answer that is not at its answer_start is
    rejected; with offsets="repair" the answer is moved to its nearest occurrence, or loses its start.
    """
    numbers: Counter[str] = Counter()
    for title, paragraph in _paragraphs(source, tally):
        numbers[title] += 1
        name = f"{title or source.stem}-{numbers[title]}"
        yield from accept(
            tally,
            partial(_document, paragraph, title, name, offsets, tally),
            paragraph,
            where=f"{source.name}, paragraph {name!r}",
            id=name,
        )


def write(docs: Iterable[Document], stream: BinaryIO, *, tally: Tally, version: Literal["1.1", "2.0"] = "2.0") -> None:
    """Each document with questions as a paragraph; consecutive paragraphs with the same title form an article.

    The context is the full text, so that answers keep their offsets. Documents of snippets (BioASQ) become one
    paragraph per snippet, see `bioasq.spread_snippets`. Version 1.1 has no unanswerable questions: they are
    skipped and counted.
    """
    stream.write(b'{"version": "1.1", "data": [' if version == "1.1" else b'{"version": "v2.0", "data": [')
    numbers: Counter[str] = Counter()
    last: str | None = None
    for doc in docs:
        wrote = False
        has_snippets = doc.questions and any(passage.kind == SNIPPET for passage in doc.passages)
        for part in spread_snippets(doc, tally) if has_snippets else (doc,):
            section = part.passages[0].section if len(part.passages) == 1 else (part.title or "",)
            title = section[0] if section else ""
            where = f"document {doc.id!r}"
            paragraph = tally.attempt(partial(_paragraph, part, title, numbers, version, tally), where=where, id=doc.id)
            if paragraph is not None:
                if title != last:
                    stream.write(b"\n" if last is None else b"\n]},\n")
                stream.write(b",\n" if title == last else b'{"title": ' + _json(title) + b', "paragraphs": [\n')
                stream.write(paragraph)
                numbers[title] += 1
                last, wrote = title, True
        if wrote:
            tally.written += 1
            note_losses(doc, tally, supported=_NOTED_ELSEWHERE, lost=("spans",) if doc.spans else ())
    stream.write(b"]}" if last is None else b"\n]}]}")
    stream.write(b"\n")


def _paragraphs(source: Source, tally: Tally) -> Iterator[tuple[str, object]]:
    """Each paragraph, with the title of its article."""
    content = load(source)
    articles = content.get("data") if isinstance(content, dict) else None
    if not isinstance(articles, list):
        raise missing_list(source, content, "data", "SQuAD")
    note_unknown(content, frozenset({"version", "data"}), tally)
    for number, article in enumerate(articles, 1):
        opened = attempt(tally, partial(_article, article, tally), article, where=f"{source.name}, article {number}")
        if opened is not None:
            title, paragraphs = opened
            yield from ((title, paragraph) for paragraph in paragraphs)


def _article(article: object, tally: Tally) -> tuple[str, list[object]]:
    fields = mapping(article, "data")
    paragraphs = fields.get("paragraphs")
    if not isinstance(paragraphs, list):
        raise BadDocument("bad_field", "an article has no list 'paragraphs'", value="paragraphs")
    note_unknown(fields, _ARTICLE, tally)
    return string(fields, "title") or "", paragraphs


def _document(paragraph: object, title: str, name: str, offsets: str, tally: Tally) -> Document:
    fields = mapping(paragraph, "paragraphs")
    context = required(fields, "context")
    questions = tuple(_question(qa, context, offsets, tally) for qa in objects(fields, "qas"))
    note_unknown(fields, _PARAGRAPH, tally)
    passage = Passage(0, context, section=(title,) if title else ())
    id = string(fields, "id")
    return Document(name if id is None else id, (passage,), questions=questions)


def _question(fields: dict[str, Any], context: str, offsets: str, tally: Tally) -> Question:
    note_unknown(fields, _QUESTION, tally)
    answers = [_answer(answer, context, offsets, tally) for answer in objects(fields, "answers")]
    return Question(
        required(fields, "id"),
        required(fields, "question"),
        answers=tuple(answer for answer in answers if answer is not None),
        impossible=flag(fields, "is_impossible"),
    )


def _answer(fields: dict[str, Any], context: str, offsets: str, tally: Tally) -> Answer | None:
    note_unknown(fields, _ANSWER, tally)
    text, start = required(fields, "text"), fields.get("answer_start")
    if not text:
        tally.note("answer without text ignored")
        return None
    if start is None:
        return Answer(text)
    if not isinstance(start, int) or isinstance(start, bool):
        raise BadDocument("bad_field", f"'answer_start' is {start!r}; expected an integer", value="answer_start")
    # Document checks this too; here the message can say what to do, and -1 counts as a mismatch.
    if start >= 0 and context.startswith(text, start):
        return Answer(text, start)
    if offsets == "repair":
        nearest = find_nearest(context, text, start)
        tally.note("answer_start dropped: the answer is not near it" if nearest is None else "answer moved to its text")
        return Answer(text, nearest)
    raise BadDocument(
        "offset_mismatch",
        f"the answer {shorten(text)!r} is not at its answer_start {start}, where the context has "
        f"{context[max(0, start) : max(0, start) + min(len(text), 60)]!r}. Fix it, or read with offsets=repair.",
        value=text,
    )


def _paragraph(doc: Document, title: str, numbers: Counter[str], version: str, tally: Tally) -> bytes | None:
    """The document's paragraph as JSON, or None if it has no question that can be written."""
    if not doc.passages:
        tally.note("document without text skipped")
        return None
    qas = [qa for question in doc.questions if (qa := _qa(question, version, tally)) is not None]
    if not qas:
        tally.note("document without questions skipped")
        return None
    _note_details(doc, tally)
    paragraph = {"context": doc.text, "qas": qas}
    if not title or doc.id != f"{title}-{numbers[title] + 1}":
        paragraph["id"] = doc.id
    _json(title)  # raises before anything of the paragraph is written
    return _json(paragraph)


def _qa(question: Question, version: str, tally: Tally) -> dict[str, Any] | None:
    if question.impossible and version == "1.1":
        tally.note("unanswerable question skipped: version 1.1 has none")
        return None
    located = [answer for answer in question.answers if answer.start is not None and answer.text]
    if len(located) < len(question.answers):
        tally.note("answer skipped: it has no offset", len(question.answers) - len(located))
        if not located and not question.impossible:
            tally.note("question skipped: its answer has no offset")
            return None
    answers = [{"text": answer.text, "answer_start": answer.start} for answer in located]
    qa = {"id": question.id, "question": question.text, "answers": answers}
    return qa if version == "1.1" else {**qa, "is_impossible": question.impossible}


def _note_details(doc: Document, tally: Tally) -> None:
    """Count what the paragraph and its questions have and SQuAD cannot represent."""
    if len(doc.passages) > 1 or doc.passages[0].offset:
        tally.note("passage offsets not written")
    if any(passage != Passage(passage.offset, passage.text, section=passage.section[:1]) for passage in doc.passages):
        tally.note("passage kinds and sections not written")
    if any(
        question.type or question.ideal or question.documents or question.concepts for question in doc.questions
    ) or any(answer.synonyms for question in doc.questions for answer in question.answers):
        tally.note("question details not written")


def _json(value: object) -> bytes:
    return encode_utf8(json.dumps(value, ensure_ascii=False))
