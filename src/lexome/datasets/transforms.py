"""What a set's own documents need before they are a task's: types renamed, doubles dropped, pairs cut out.

Each is a function of documents and a tally; what takes settings returns such a function.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from lexome.datasets.splits import Change
from lexome.document import Document, Span
from lexome.errors import DataSetError
from lexome.formats.tally import Tally
from lexome.tasks.qa import base_question_id


def types_called(names: Mapping[str, str]) -> Change:
    """Spans under other types; a type that is not among the names is an error, so that none is lost in silence."""

    def change(docs: Iterable[Document], tally: Tally) -> Iterator[Document]:
        for doc in docs:
            unknown = sorted({span.type for span in doc.spans} - names.keys())
            if unknown:
                raise DataSetError(
                    f"document {doc.id!r} has a mention of the type {unknown[0]!r}; expected one of "
                    f"{', '.join(names)}. Check that the files are the set's own."
                )
            yield replace(doc, spans=tuple(replace(span, type=names[span.type]) for span in doc.spans))

    return change


def only_types(types: Collection[str]) -> Change:
    """Spans of these types alone, with the relations between them; the others are counted."""

    def change(docs: Iterable[Document], tally: Tally) -> Iterator[Document]:
        for doc in docs:
            yield _without(doc, [span for span in doc.spans if span.type not in types], tally)

    return change


def labels_called(names: Mapping[str, str]) -> Change:
    """Labels under other names, where they have one."""

    def change(docs: Iterable[Document], tally: Tally) -> Iterator[Document]:
        for doc in docs:
            yield replace(doc, labels=tuple(names.get(label, label) for label in doc.labels))

    return change


def each_once(docs: Iterable[Document], tally: Tally) -> Iterator[Document]:
    """Each document once: one that comes again under its id or, numbered by the reader, as a part of it, is dropped.

    Only what has the same text and mentions is a double; other documents of the id are kept.
    """
    seen: set[tuple[str, tuple[tuple[tuple[int, int], ...], ...]]] = set()
    for doc in docs:
        key = (doc.text, tuple(span.parts for span in doc.spans))
        if key in seen and doc.spans:
            tally.note("document given twice left out")
            continue
        seen.add(key)
        yield doc


def in_one_part(docs: Iterable[Document], tally: Tally) -> Iterator[Document]:
    """Mentions in parts as all from their first to their last character, as BLUE masks them."""
    for doc in docs:
        parted = [span for span in doc.spans if len(span.parts) > 1]
        if parted:
            tally.note("mention in parts taken as one", len(parted))
            spans = tuple(
                replace(span, parts=((span.start, span.end),), text=doc.slice(span.start, span.end))
                for span in doc.spans
            )
            yield replace(doc, spans=spans)
        else:
            yield doc


def sentences(docs: Iterable[Document], tally: Tally) -> Iterator[Document]:
    """A document for each passage, called by its source's id, with the mentions and relations inside it."""
    for doc in docs:
        for number, passage in enumerate(doc.passages, 1):
            at = passage.offset
            inside = {span.id for span in doc.spans if at <= span.start and span.end <= passage.end}
            spans = tuple(
                replace(span, parts=tuple((start - at, end - at) for start, end in span.parts))
                for span in doc.spans
                if span.id in inside
            )
            relations = tuple(
                relation for relation in doc.relations if {argument.target for argument in relation.arguments} <= inside
            )
            moved = replace(
                passage,
                offset=0,
                sentences=tuple((start - at, end - at) for start, end in passage.sentences),
                tokens=tuple((start - at, end - at) for start, end in passage.tokens),
            )
            meta = replace(doc.meta, part_of=doc.id)
            yield Document(passage.source or f"{doc.id}-{number}", (moved,), spans, relations, meta=meta)


def typed_relations(names: Mapping[str, str | None]) -> Change:
    """Relations under other types; None leaves one out, counted."""

    def change(docs: Iterable[Document], tally: Tally) -> Iterator[Document]:
        for doc in docs:
            kept = tuple(
                replace(relation, type=name)
                for relation in doc.relations
                if (name := names.get(relation.type, relation.type)) is not None
            )
            if len(kept) < len(doc.relations):
                tally.note("relation left out: its type is not known", len(doc.relations) - len(kept))
            yield replace(doc, relations=kept)

    return change


def questions_of(types: Collection[str]) -> Change:
    """Documents whose question is of one of these types."""

    def change(docs: Iterable[Document], tally: Tally) -> Iterator[Document]:
        for doc in docs:
            kept = tuple(question for question in doc.questions if question.type in types)
            if kept:
                yield replace(doc, questions=kept)

    return change


def of_one_question(docs: Iterable[Document], tally: Tally) -> Iterator[Document]:
    """Documents of a factoid question each, marked as part of it: SQuAD's form asks one question of many texts."""
    for doc in docs:
        if len(doc.questions) != 1:
            raise DataSetError(f"document {doc.id!r} has {len(doc.questions)} questions; expected one of BioASQ's.")
        asked = doc.questions[0]
        meta = replace(doc.meta, part_of=base_question_id(asked.id))
        yield replace(doc, questions=(replace(asked, type=asked.type or "factoid"),), meta=meta)


def _without(doc: Document, dropped: list[Span], tally: Tally) -> Document:
    if not dropped:
        return doc
    for span in dropped:
        tally.note(f"mention left out: {span.type}")
    gone = {span.id for span in dropped}
    relations = tuple(
        relation for relation in doc.relations if not any(argument.target in gone for argument in relation.arguments)
    )
    return Document(
        doc.id,
        doc.passages,
        tuple(span for span in doc.spans if span.id not in gone),
        relations,
        tuple(attribute for attribute in doc.attributes if attribute.target not in gone),
        doc.questions,
        doc.labels,
        doc.meta,
    )
