"""SQuAD 1.1 and 2.0 JSON: a paragraph with its questions is a document."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, BinaryIO, Literal

from lexome.document import Answer, Document, Passage, Question, shorten
from lexome.errors import BadDocument, FormatError
from lexome.formats.bioasq import SNIPPET, spread_snippets
from lexome.formats.json_file import attempt, flag, load, mapping, note_unknown_fields, objects, required, string
from lexome.formats.streams import Source
from lexome.formats.tally import Tally, find_nearest, note_losses

_ARTICLE = frozenset({"title", "paragraphs"})
_PARAGRAPH = frozenset({"id", "context", "qas"})
_QUESTION = frozenset({"id", "question", "answers", "is_impossible"})
_ANSWER = frozenset({"text", "answer_start"})

# Written, gone with the spans, or noted a paragraph at a time by _note_details.
_NOTED_ELSEWHERE = frozenset(
    {
        "questions",
        "concepts",
        "scores",
        "novelty of relations",
        "places of passages",
        "kinds and sections of passages",
        "sentences and tokens",
    }
)


def read(source: Source, *, tally: Tally, offsets: Literal["strict", "repair"] = "strict") -> Iterator[Document]:
    """A document a paragraph: its context as one passage, with the article's title as section.

    Ids are the title and the paragraph's number. A paragraph with an answer that does not stand at
    its answer_start is refused; with offsets="repair" that answer is moved to where its text stands
    nearest, or loses its start.
    """
    numbers: Counter[str] = Counter()
    for title, paragraph in _paragraphs(source, tally):
        numbers[title] += 1
        name = f"{title or source.stem}-{numbers[title]}"
        doc = attempt(
            tally,
            partial(_document, paragraph, title, name, offsets, tally),
            paragraph,
            where=f"{source.name}, paragraph {name!r}",
            id=name,
        )
        if doc is not None:
            yield doc


def write(docs: Iterable[Document], stream: BinaryIO, *, tally: Tally, version: Literal["1.1", "2.0"] = "2.0") -> None:
    """Each document with questions as a paragraph; paragraphs in a row that share a title are an article.

    The context is the document's whole text, so that answers keep their offsets. Documents of
    snippets (BioASQ) become a paragraph a snippet, as `bioasq.spread_snippets` says. Version 1.1 has
    no unanswerable questions: they are left out and counted.
    """
    stream.write(b'{"version": "1.1", "data": [' if version == "1.1" else b'{"version": "v2.0", "data": [')
    numbers: Counter[str] = Counter()
    last: str | None = None
    for doc in docs:
        wrote = False
        for part in _parts(doc, tally):
            title = _title(part)
            where = f"document {doc.id!r}"
            made = tally.attempt(partial(_written, part, title, numbers, version, tally), where=where, id=doc.id)
            if made is not None:
                stream.write(_joint(title, last) + made)
                numbers[title] += 1
                last, wrote = title, True
        if wrote:
            tally.written += 1
            note_losses(doc, tally, supported=_NOTED_ELSEWHERE, lost=("spans",) if doc.spans else ())
    stream.write(b"]}" if last is None else b"\n]}]}")
    stream.write(b"\n")


def _paragraphs(source: Source, tally: Tally) -> Iterator[tuple[str, object]]:
    """Each paragraph with the title of its article."""
    content = load(source)
    articles = content.get("data") if isinstance(content, dict) else None
    if not isinstance(articles, list):
        seen = shorten(", ".join(map(repr, content)), 200) if isinstance(content, dict) else type(content).__name__
        raise FormatError(
            f"{source.name}: there is no list 'data' of articles, only {seen}; expected SQuAD. If it is of another "
            "format, name that with --from (in Python: format=)."
        )
    note_unknown_fields(content, frozenset({"version", "data"}), tally)
    for number, article in enumerate(articles, 1):
        opened = attempt(tally, partial(_article, article, tally), article, where=f"{source.name}, article {number}")
        if opened is not None:
            title, paragraphs = opened
            yield from ((title, paragraph) for paragraph in paragraphs)


def _article(article: object, tally: Tally) -> tuple[str, list[object]]:
    fields = mapping(article, "data")
    paragraphs = fields.get("paragraphs")
    if not isinstance(paragraphs, list):
        raise BadDocument("bad_field", "an article has no list 'paragraphs'; expected one")
    note_unknown_fields(fields, _ARTICLE, tally)
    return string(fields, "title") or "", paragraphs


def _document(paragraph: object, title: str, name: str, offsets: str, tally: Tally) -> Document:
    fields = mapping(paragraph, "paragraphs")
    context = required(fields, "context")
    questions = tuple(_question(qa, context, offsets, tally) for qa in objects(fields, "qas"))
    note_unknown_fields(fields, _PARAGRAPH, tally)
    passage = Passage(0, context, section=(title,) if title else ())
    own = string(fields, "id")
    return Document(name if own is None else own, (passage,), questions=questions)


def _question(fields: dict[str, Any], context: str, offsets: str, tally: Tally) -> Question:
    note_unknown_fields(fields, _QUESTION, tally)
    answers = [_answer(answer, context, offsets, tally) for answer in objects(fields, "answers")]
    return Question(
        required(fields, "id"),
        required(fields, "question"),
        answers=tuple(answer for answer in answers if answer is not None),
        impossible=flag(fields, "is_impossible"),
    )


def _answer(fields: dict[str, Any], context: str, offsets: str, tally: Tally) -> Answer | None:
    note_unknown_fields(fields, _ANSWER, tally)
    text, start = required(fields, "text"), fields.get("answer_start")
    if not text:
        tally.note("answer without text ignored")
        return None
    if start is None:
        return Answer(text)
    if not isinstance(start, int) or isinstance(start, bool):
        raise BadDocument("bad_field", "'answer_start' is no whole number; expected where the answer begins")
    # The model checks this too; here the message can say what to do, and -1 means the same as a miss.
    if start >= 0 and context.startswith(text, start):
        return Answer(text, start)
    if offsets == "repair":
        return _moved(text, start, context, tally)
    raise BadDocument(
        "offset_mismatch",
        f"the answer {shorten(text)!r} does not stand at its answer_start {start}, where the context says "
        f"{context[max(0, start) : max(0, start) + min(len(text), 60)]!r}. Mend it, or read with offsets=repair.",
    )


def _moved(text: str, start: int, context: str, tally: Tally) -> Answer:
    """The answer at the nearest place where its text stands, or without a start."""
    place = find_nearest(context, text, start)
    if place is None:
        tally.note("answer_start dropped: the answer stands nowhere near it")
    else:
        tally.note("answer moved to where its text stands")
    return Answer(text, place)


def _parts(doc: Document, tally: Tally) -> Iterable[Document]:
    """The document as one or more that make a paragraph each."""
    if doc.questions and any(passage.kind == SNIPPET for passage in doc.passages):
        return spread_snippets(doc, tally)
    return (doc,)


def _title(doc: Document) -> str:
    """The title of the article that the document's paragraph belongs to."""
    if len(doc.passages) == 1:
        return doc.passages[0].section[0] if doc.passages[0].section else ""
    return doc.title or ""


def _joint(title: str, last: str | None) -> bytes:
    """What stands before a paragraph: a comma, or the beginning of its article."""
    if title == last:
        return b",\n"
    begin = b"\n" if last is None else b"\n]},\n"
    return begin + b'{"title": ' + _json(title) + b', "paragraphs": [\n'


def _written(doc: Document, title: str, numbers: Counter[str], version: str, tally: Tally) -> bytes | None:
    """The document's paragraph as JSON, or None where it has no question that can be written."""
    if not doc.passages:
        tally.note("document without text left out")
        return None
    qas = [qa for question in doc.questions if (qa := _qa(question, version, tally)) is not None]
    if not qas:
        tally.note("document without questions left out")
        return None
    _note_details(doc, tally)
    paragraph = {"context": doc.text, "qas": qas}
    if not title or doc.id != f"{title}-{numbers[title] + 1}":
        paragraph["id"] = doc.id
    _json(title)  # refused here, before anything of the paragraph is written
    return _json(paragraph)


def _qa(question: Question, version: str, tally: Tally) -> dict[str, Any] | None:
    if question.impossible and version == "1.1":
        tally.note("unanswerable question left out: version 1.1 has none")
        return None
    placed = [answer for answer in question.answers if answer.start is not None and answer.text]
    if len(placed) < len(question.answers):
        tally.note("answer left out: it has no place in the text", len(question.answers) - len(placed))
        if not placed and not question.impossible:
            tally.note("question left out: its answer has no place in the text")
            return None
    answers = [{"text": answer.text, "answer_start": answer.start} for answer in placed]
    qa = {"id": question.id, "question": question.text, "answers": answers}
    return qa if version == "1.1" else {**qa, "is_impossible": question.impossible}


def _note_details(doc: Document, tally: Tally) -> None:
    """Count what the paragraph and its questions have and SQuAD has no place for."""
    if len(doc.passages) > 1 or doc.passages[0].offset:
        tally.note("places of passages not written")
    if any(passage != Passage(passage.offset, passage.text, section=passage.section[:1]) for passage in doc.passages):
        tally.note("kinds and sections of passages not written")
    if any(
        question.type or question.ideal or question.documents or question.concepts for question in doc.questions
    ) or any(answer.synonyms for question in doc.questions for answer in question.answers):
        tally.note("question details not written")


def _json(value: object) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise BadDocument(
            "not_unicode",
            f"the document has half a surrogate pair, {error.object[error.start]!r}; expected whole characters",
        ) from None
