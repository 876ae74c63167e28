"""BioASQ questions in SQuAD's format, with the provenance of each context: article, section and place of the snippet.

A factoid or list question is asked of each of its snippets, or, given the abstracts, of each of its articles. Answers
are located by their text or a synonym. Yes/no questions have no answer in the text and go to a separate file;
summary questions are skipped. Everything that is skipped is counted.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from lexome.datasets.transforms import single_question
from lexome.document import Answer, Document, Question
from lexome.errors import DataSetError, FormatError, UsageError
from lexome.files import write_json
from lexome.formats import bioasq, detect, squad
from lexome.formats.bioasq import answer_pattern, exact_answers
from lexome.formats.json_file import attempt, load, mapping, objects, required, string
from lexome.formats.streams import Source, open_sources
from lexome.formats.tally import Tally
from lexome.tasks.qa import base_question_id


def answered_from_golden(sources: Iterator[Source], *, tally: Tally) -> Iterator[Document]:
    """The documents of test files in SQuAD's format, with the questions' types and answers from golden files.

    In test files a question has the ids <id>_000, <id>_001, ..., one for each of its texts. A question that is in no
    golden file raises, because it could not be scored.
    """
    docs: list[Document] = []
    golden: dict[str, Question] = {}
    for source in sources:
        if detect(source).name == "bioasq":
            golden.update(
                (question.id, question) for doc in bioasq.read(source, tally=tally) for question in doc.questions
            )
        else:
            docs += squad.read(source, tally=tally)
    for doc in single_question(docs, tally):
        yield replace(doc, questions=tuple(_with_golden_answers(question, golden) for question in doc.questions))


def _with_golden_answers(question: Question, golden: dict[str, Question]) -> Question:
    known = golden.get(base_question_id(question.id))
    if known is None:
        raise DataSetError(
            f"the test question {question.id!r} is in no golden file; expected its answers there. Use the golden files "
            "of the same edition.",
            code="missing-answer",
            value=question.id,
        )
    return replace(question, type=known.type, answers=known.answers, documents=known.documents)


Unanswerable = Literal["drop", "keep"]
Json = dict[str, Any]

FORMS = ("factoid", "list")
_PMID = re.compile(r"(?:pubmed(?:\.ncbi\.nlm\.nih\.gov)?/|^)(\d+)/?$")


@dataclass
class ConvertedQuestions:
    """The result of a conversion.

    squad   factoid and list questions, as articles of paragraphs
    yesno   yes/no questions in the same format, with the answer in place of the list of answers
    counts  questions by type, and what became of them
    """

    squad: Json
    yesno: Json
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Passage:
    """A context of a question: its text, its provenance and, for an abstract, the ranges of its snippets."""

    text: str
    source: Json
    inside: tuple[tuple[int, int], ...] = ()


def convert_bioasq(
    paths: Iterable[str | Path],
    *,
    forms: Iterable[str] = FORMS,
    unanswerable: Unanswerable = "drop",
    abstracts: Iterable[Document] = (),
    tally: Tally | None = None,
) -> ConvertedQuestions:
    """The questions of BioASQ files in SQuAD's format.

    `forms` are the types of questions to convert. A context without an answer is dropped, or with unanswerable="keep"
    kept as an impossible question (SQuAD 2.0). All contexts of a question without answers, as in test files, are kept.
    `abstracts` are PubMed articles: a question is then asked of each whole title and abstract, and its answers are
    searched in the snippets' ranges first.
    """
    wanted = set(forms)
    unknown = sorted(wanted - set(FORMS))
    if unknown:
        raise UsageError(
            f"forms has {unknown[0]!r}; expected factoid, list or both.", code="invalid-choice", value=unknown[0]
        )
    tally = tally if tally is not None else Tally()
    # Title and abstract, separated by a space, as in BioBERT's contexts.
    texts = {
        doc.meta.pmid or doc.id: " ".join(part.text for part in doc.passages if part.kind in ("title", "abstract"))
        for doc in abstracts
    }
    squad: list[Json] = []
    yesno: list[Json] = []
    for where, record in _questions(paths, tally):
        converted = attempt(tally, partial(_convert, record, texts, wanted, unanswerable, tally), record, where=where)
        if converted is not None:
            type, articles = converted
            (yesno if type == "yesno" else squad).extend(articles)
    return ConvertedQuestions(
        {"version": "BioASQ" if unanswerable == "drop" else "BioASQ-v2.0", "data": squad},
        {"version": "BioASQ-yesno", "data": yesno},
        dict(tally.notes),
    )


def _convert(
    record: object, texts: Mapping[str, str], wanted: set[str], unanswerable: Unanswerable, tally: Tally
) -> tuple[str, list[Json]]:
    """The type of a question, and the question as a SQuAD article, in a list that is empty if it is skipped."""
    fields = mapping(record, "questions")
    type = string(fields, "type") or "factoid"
    tally.note(f"{type} question read")
    contexts = list(_contexts(fields, texts, tally))
    if type == "yesno":
        return type, list(_yes_or_no(fields, contexts, tally))
    if type in wanted:
        return type, list(_with_answers(fields, type, contexts, unanswerable, tally))
    tally.note(f"{type} question skipped")
    return type, []


def write_squad(path: Path, content: Json) -> None:
    """Write the content as JSON, atomically."""
    write_json(path, content)


def _questions(paths: Iterable[str | Path], tally: Tally) -> Iterator[tuple[str, object]]:
    for path in paths:
        for source in open_sources(Path(path), tally):
            content = load(source)
            if not isinstance(content, dict) or not isinstance(content.get("questions"), list):
                message = f"{source.name}: there is no list 'questions'; expected a BioASQ file."
                raise FormatError(message, code="missing-key", value="questions")
            for number, record in enumerate(content["questions"], 1):
                yield f"{source.name}, question {number}", record


def _contexts(record: Json, texts: Mapping[str, str], tally: Tally) -> Iterator[_Passage]:
    """The distinct snippets of a question, or the abstracts of its articles."""
    placed: dict[str, list[tuple[int, int]]] = {}
    seen: set[tuple[str, str]] = set()
    for snippet in objects(record, "snippets"):
        text, url = required(snippet, "text"), string(snippet, "document") or ""
        pmid = pmid_of(url)
        if (url, text) in seen:
            tally.note("duplicate snippet skipped")
            continue
        seen.add((url, text))
        if not texts:
            keys = ("beginSection", "offsetInBeginSection", "endSection", "offsetInEndSection")
            yield _Passage(text, {"document": url, "pmid": pmid, "snippet": {key: snippet.get(key) for key in keys}})
        elif pmid is None or pmid not in texts:
            tally.note("snippet skipped: its abstract is missing")
        else:
            at = texts[pmid].find(text)
            if at < 0:
                tally.note("snippet is not in its abstract verbatim")
            placed.setdefault(pmid, []).extend([(at, at + len(text))] if at >= 0 else [])
    for pmid, ranges in placed.items():
        source = {"document": f"http://www.ncbi.nlm.nih.gov/pubmed/{pmid}", "pmid": pmid}
        yield _Passage(texts[pmid], source, tuple(ranges))


def pmid_of(url: str) -> str | None:
    """The PMID at the end of an article's URL.

    >>> pmid_of("http://www.ncbi.nlm.nih.gov/pubmed/28293123")
    '28293123'
    """
    match = _PMID.search(url)
    return match[1] if match is not None else None


def _with_answers(
    record: Json, type: str, contexts: list[_Passage], unanswerable: Unanswerable, tally: Tally
) -> Iterator[Json]:
    """The question as a SQuAD article, or nothing if none of its contexts is kept."""
    name, question = required(record, "id"), required(record, "body")
    known = exact_answers(record)
    paragraphs: list[Json] = []
    for context in contexts:
        answers = [place for number, answer in enumerate(known) if (place := _locate_answer(answer, number, context))]
        if known and not answers:
            tally.note(f"context {'kept as unanswerable' if unanswerable == 'keep' else 'skipped'}: no answer in it")
            if unanswerable == "drop":
                continue
        qa: Json = {"id": f"{name}_{len(paragraphs):03}", "question": question, "type": type, "answers": answers}
        if unanswerable == "keep":
            qa["is_impossible"] = bool(known) and not answers
        paragraphs.append({"context": context.text, "qas": [qa], **context.source})
    if not any(qa["answers"] for paragraph in paragraphs for qa in paragraph["qas"]) and known:
        tally.note(f"{type} question without an answer in any context")
    if paragraphs:
        tally.note(f"{type} question written")
        yield {"title": name, "paragraphs": paragraphs}


def _locate_answer(answer: Answer, number: int, context: _Passage) -> Json | None:
    """The first place of the answer or a synonym, in a snippet's range before the rest of its abstract."""
    pattern = answer_pattern(answer)
    if pattern is None:
        return None
    for start, end in (*context.inside, (0, len(context.text))):
        match = pattern.search(context.text, start, end)
        if match is not None:
            return {"text": match[0], "answer_start": match.start(), "exact_answer": number}
    return None


def _yes_or_no(record: Json, contexts: list[_Passage], tally: Tally) -> Iterator[Json]:
    name, question = required(record, "id"), required(record, "body")
    known = exact_answers(record)
    answer = known[0].text.strip().lower().removesuffix(".") if known else None
    if answer not in ("yes", "no", None):
        tally.note("yesno question skipped: its answer is neither")
        return
    paragraphs = [
        {
            "context": context.text,
            "qas": [{"id": f"{name}_{number:03}", "question": question, "type": "yesno", "answers": answer}],
            **context.source,
        }
        for number, context in enumerate(contexts)
    ]
    if paragraphs:
        tally.note("yesno question written")
        yield {"title": name, "paragraphs": paragraphs}
