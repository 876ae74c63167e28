"""What stands under a document's text on the HTML page: mentions, relations, questions, the record."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any
from urllib.parse import quote

from lexome.document import Answer, Argument, Document, Question, Span
from lexome.formats.html.text import shown

# Vocabularies that identifiers.org resolves, by our prefix in small letters. Those of the OBO Foundry
# carry their own prefix in capitals.
_RESOLVED = {
    **{name: f"{name}:" for name in ("mesh", "ncbigene", "cellosaurus", "dbsnp", "hgnc", "uniprot", "drugbank")},
    **{name: f"{name}:" for name in ("ensembl", "umls", "pubchem.compound", "interpro", "orphanet")},
    **{name: f"{name.upper()}:" for name in ("chebi", "go", "hp", "mondo", "doid", "cl", "uberon", "so", "efo")},
    "ncbitaxon": "taxonomy:",
    "omim": "mim:",
}
_LOCAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class Places:
    """Where the parts of one document stand on the page: anchors by id, and type numbers by name."""

    spans: dict[str, str]
    relations: dict[str, str]
    types: dict[str, int]


def linked(concept: str) -> str:
    """A concept as HTML: a link to its resolver where its vocabulary is known, else its id."""
    prefix, _, local = concept.partition(":")
    resolved = _RESOLVED.get(prefix.casefold())
    if resolved is None or not _LOCAL.fullmatch(local):
        return f"<bdi>{shown(concept)}</bdi>"
    return outside(f"https://identifiers.org/{resolved}{quote(local)}", concept)


def outside(address: str, text: str) -> str:
    """A link that leaves the page and says nothing of where it was followed."""
    return f'<a rel="noreferrer noopener" href="{shown(address)}">{shown(text)}</a>'


def score_text(score: float | None) -> str:
    """A score as short as it can be said."""
    return "" if score is None else f"{score:.4g}"


def remarks_on(doc: Document) -> dict[str, list[str]]:
    """What the attributes say, by the id of what they are about."""
    remarks: dict[str, list[str]] = {}
    for attribute in doc.attributes:
        value = f": {attribute.value}" if attribute.value is not None else ""
        remarks.setdefault(attribute.target, []).append(attribute.name + value)
    return remarks


def mentions_table(doc: Document, places: Places, remarks: dict[str, list[str]]) -> str:
    """All spans with their place, concepts and scores, folded away: what the colours say, in words."""
    if not doc.spans:
        return ""
    rows = "".join(_mention_row(span, places, remarks) for span in doc.spans)
    head = _head("Mention", "Type", "Characters", "Concepts", "Score", "Remarks", "Id")
    return _folded("Mentions", len(doc.spans), f"<table>{head}{rows}</table>")


def _mention_row(span: Span, places: Places, remarks: dict[str, list[str]]) -> str:
    where = "<br>".join(f'<span class="n">{start}–{end}</span>' for start, end in span.parts)
    return _row(
        f'<a class="rel t{places.types[span.type]}" href="#{places.spans[span.id]}">{shown(span.text)}</a>',
        shown(span.type),
        where,
        "<br>".join(linked(concept) for concept in span.concepts),
        score_text(span.score),
        shown("; ".join(remarks.get(span.id, ()))),
        shown(span.id),
    )


def relations_table(doc: Document, places: Places, remarks: dict[str, list[str]]) -> str:
    """The relations, open: each with its arguments in their roles."""
    if not doc.relations:
        return ""
    texts = {span.id: span for span in doc.spans}
    rows = []
    for relation in doc.relations:
        arguments = "".join(_argument(argument, texts, places) for argument in relation.arguments)
        rows.append(
            _row(
                shown(relation.type),
                arguments,
                {True: "yes", False: "no", None: ""}[relation.novel],
                score_text(relation.score),
                shown("; ".join(remarks.get(relation.id, ()))),
                shown(relation.id),
                anchor=places.relations[relation.id],
            )
        )
    head = _head("Relation", "Between", "Novel", "Score", "Remarks", "Id")
    return _folded("Relations", len(rows), f"<table>{head}{''.join(rows)}</table>", is_open=True)


def _argument(argument: Argument, spans: dict[str, Span], places: Places) -> str:
    role = f' <span class="role"><bdi>{shown(argument.role)}</bdi></span>'
    if argument.target is None:
        what = f'<span class="rel">{linked(argument.concept or "")}</span>'
    elif argument.target in spans:
        span = spans[argument.target]
        link = f'href="#{places.spans[span.id]}" title="{shown(span.type)}"'
        what = f'<a class="rel t{places.types[span.type]}" {link}>{shown(span.text)}</a>'
    else:
        what = f'<a class="rel" href="#{places.relations[argument.target]}">{shown(argument.target)}</a>'
    return f'<span class="arg">{what}{role}</span>'


def questions_list(doc: Document) -> str:
    """The questions with their answers."""
    return "".join(_question(question) for question in doc.questions)


def _question(question: Question) -> str:
    facts = [question.type or "", "no answer in the text" if question.impossible else "", question.id]
    named = " · ".join(shown(fact) for fact in facts if fact)
    answers = "".join(f"<li>{_answer(answer)}</li>" for answer in question.answers)
    ideal = "".join(f"<p>{shown(text)}</p>" for text in question.ideal)
    about = ", ".join(linked(concept) for concept in question.concepts)
    documents = ", ".join(f"<bdi>{shown(name)}</bdi>" for name in question.documents)
    return (
        f'<section class="qa"><span class="kind">Question · {named}</span><p><b>{shown(question.text)}</b></p>'
        + (f"<ul>{answers}</ul>" if answers else "")
        + ideal
        + (f'<p class="role">Concepts: {about}</p>' if about else "")
        + (f'<p class="role">Documents: {documents}</p>' if documents else "")
        + "</section>"
    )


def _answer(answer: Answer) -> str:
    where = f" <span class=role>at {answer.start}</span>" if answer.start is not None else ""
    synonyms = f" <span class=role>also {shown(', '.join(answer.synonyms))}</span>" if answer.synonyms else ""
    return f"<bdi>{shown(answer.text)}</bdi>{where}{synonyms}"


def record_list(doc: Document) -> str:
    """Everything else that is known of the document, folded away."""
    listed = "".join(_facts(doc.meta))
    return _folded("Record", None, f"<dl>{listed}</dl>") if listed else ""


def _facts(record: Any) -> Iterator[str]:
    """A name and value for each field of a dataclass that is not at its default."""
    for field in fields(record):
        value = getattr(record, field.name)
        if value != field.default:
            yield f"<dt>{field.name.replace('_', ' ')}</dt><dd>{_fact(value)}</dd>"


def _fact(value: Any) -> str:
    if is_dataclass(value):
        return f"<dl>{''.join(_facts(value))}</dl>"
    if isinstance(value, tuple):
        return "".join(map(_fact, value)) if is_dataclass(value[0]) else "; ".join(map(_fact, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"<bdi>{shown(str(value))}</bdi>"


def _head(*names: str) -> str:
    return "<thead><tr>" + "".join(f'<th scope="col">{name}</th>' for name in names) + "</tr></thead>"


def _row(*cells: str, anchor: str | None = None) -> str:
    id_ = f' id="{anchor}"' if anchor is not None else ""
    return f"<tr{id_}>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _folded(name: str, count: int | None, content: str, *, is_open: bool = False) -> str:
    number = f" <b>{count}</b>" if count is not None else ""
    region = f'<div class="wide" tabindex="0" role="region" aria-label="{name}">{content}</div>'
    return f"<details{' open' if is_open else ''}><summary>{name}{number}</summary>{region}</details>\n"
