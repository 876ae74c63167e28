"""Changes that turn a dataset's own documents into those of its task, and splits that its authors define in code.

A change is a function of documents and a tally; a refinement is a function of all splits and the fold. Cards name them:
CHANGES, PARAMETRIC_CHANGES and REFINEMENTS.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from lexome.datasets.dataset import Change, Refinement, Splits, pubmedqa_splits
from lexome.document import Document
from lexome.errors import DataSetError
from lexome.formats.tally import Tally
from lexome.tasks.qa import base_question_id


def rename_types(names: Mapping[str, str]) -> Change:
    """Renames mention types; a type without a new name is an error, so that none is lost silently."""

    def change(docs: Iterable[Document], tally: Tally) -> Iterator[Document]:
        for doc in docs:
            unknown = sorted({span.type for span in doc.spans} - names.keys())
            if unknown:
                raise DataSetError(
                    f"document {doc.id!r} has a mention of type {unknown[0]!r}; expected one of {', '.join(names)}. "
                    "Check that the files are the dataset's own.",
                    code="unknown-type",
                    value=unknown[0],
                )
            yield replace(doc, spans=tuple(replace(span, type=names[span.type]) for span in doc.spans))

    return change


def keep_types(types: Collection[str]) -> Change:
    """Drops mentions of other types, with their relations and attributes; dropped mentions are counted."""

    def change(docs: Iterable[Document], tally: Tally) -> Iterator[Document]:
        for doc in docs:
            dropped = {span.id: span.type for span in doc.spans if span.type not in types}
            for type_ in dropped.values():
                tally.note(f"mention skipped: {type_}")
            yield replace(
                doc,
                spans=tuple(span for span in doc.spans if span.id not in dropped),
                relations=tuple(
                    relation
                    for relation in doc.relations
                    if not any(argument.target in dropped for argument in relation.arguments)
                ),
                attributes=tuple(attribute for attribute in doc.attributes if attribute.target not in dropped),
            )

    return change


def rename_labels(names: Mapping[str, str]) -> Change:
    """Renames the labels that have a new name."""
    return lambda docs, tally: (
        replace(doc, labels=tuple(names.get(label, label) for label in doc.labels)) for doc in docs
    )


def drop_relations(types: Collection[str]) -> Change:
    """Drops and counts relations of some types."""

    def change(docs: Iterable[Document], tally: Tally) -> Iterator[Document]:
        for doc in docs:
            kept = tuple(relation for relation in doc.relations if relation.type not in types)
            if len(kept) < len(doc.relations):
                tally.note("relation skipped: unknown type", len(doc.relations) - len(kept))
            yield replace(doc, relations=kept)

    return change


def keep_question_types(types: Collection[str]) -> Change:
    """Drops questions of other types, and documents without questions."""
    return lambda docs, tally: (
        replace(doc, questions=kept)
        for doc in docs
        if (kept := tuple(question for question in doc.questions if question.type in types))
    )


def drop_duplicates(docs: Iterable[Document], tally: Tally) -> Iterator[Document]:
    """Drops annotated documents whose text and mentions an earlier document has."""
    seen: set[tuple[str, tuple[tuple[tuple[int, int], ...], ...]]] = set()
    for doc in docs:
        key = (doc.text, tuple(span.parts for span in doc.spans))
        if key in seen and doc.spans:
            tally.note("duplicate document skipped")
            continue
        seen.add(key)
        yield doc


def merge_span_parts(docs: Iterable[Document], tally: Tally) -> Iterator[Document]:
    """Makes discontinuous mentions continuous, from the first to the last character, as BLUE masks them."""
    for doc in docs:
        discontinuous = sum(len(span.parts) > 1 for span in doc.spans)
        if discontinuous:
            tally.note("discontinuous mention taken as one", discontinuous)
            spans = tuple(
                replace(span, parts=((span.start, span.end),), text=doc.slice(span.start, span.end))
                for span in doc.spans
            )
            doc = replace(doc, spans=spans)
        yield doc


def split_passages(docs: Iterable[Document], tally: Tally) -> Iterator[Document]:
    """Makes a document of each passage, with the passage's id in the source, and the mentions and relations in it."""
    for doc in docs:
        for number, passage in enumerate(doc.passages, 1):
            offset = passage.offset
            inside = {span.id for span in doc.spans if offset <= span.start and span.end <= passage.end}
            spans = tuple(
                replace(span, parts=tuple((start - offset, end - offset) for start, end in span.parts))
                for span in doc.spans
                if span.id in inside
            )
            relations = tuple(
                relation for relation in doc.relations if {argument.target for argument in relation.arguments} <= inside
            )
            moved = replace(
                passage,
                offset=0,
                sentences=tuple((start - offset, end - offset) for start, end in passage.sentences),
                tokens=tuple((start - offset, end - offset) for start, end in passage.tokens),
            )
            meta = replace(doc.meta, part_of=doc.id)
            yield Document(passage.source or f"{doc.id}-{number}", (moved,), spans, relations, meta=meta)


def single_question(docs: Iterable[Document], tally: Tally) -> Iterator[Document]:
    """Marks documents of one BioASQ question each as parts of it: SQuAD files ask one question of many texts."""
    for doc in docs:
        if len(doc.questions) != 1:
            message = f"document {doc.id!r} has {len(doc.questions)} questions; expected one of BioASQ's."
            raise DataSetError(message, code="question-count", value=len(doc.questions))
        question = doc.questions[0]
        meta = replace(doc.meta, part_of=base_question_id(question.id))
        yield replace(doc, questions=(replace(question, type=question.type or "factoid"),), meta=meta)


CHANGES: Mapping[str, Change] = {
    function.__name__: function for function in (drop_duplicates, merge_span_parts, split_passages, single_question)
}
PARAMETRIC_CHANGES: Mapping[str, Callable[[Any], Change]] = {
    function.__name__: function
    for function in (rename_types, keep_types, rename_labels, drop_relations, keep_question_types)
}


def named_change(change: Any) -> Change:
    """The change that a card names: "drop_duplicates", or {"keep_types": ["Gene"]} for one with settings."""
    name, settings = (change, None) if isinstance(change, str) else next(iter(change.items()))
    if settings is None and name in CHANGES:
        return CHANGES[name]
    if settings is not None and name in PARAMETRIC_CHANGES:
        return PARAMETRIC_CHANGES[name](settings)
    known = ", ".join((*CHANGES, *PARAMETRIC_CHANGES))
    raise DataSetError(f"unknown change {name!r}; expected one of {known}.", code="unknown-change", value=name)


def split_pubmedqa(splits: Splits, fold: str | None) -> Splits:
    """PubMedQA's own split: train and dev of the fold, and the test split that all folds share."""
    docs = {doc.id: doc for doc in splits["all"]}
    test, folds = pubmedqa_splits((doc.id, doc.questions[0].answers[0].text) for doc in splits["all"])
    dev = folds[int(fold or 0)]
    train = [id for part in folds if part is not dev for id in part]
    return {name: [docs[id] for id in ids] for name, ids in (("train", train), ("dev", dev), ("test", test))}


def split_ddi(splits: Splits, fold: str | None) -> Splits:
    """Takes the sentences of BLUE's dev file out of train; without that file, train stays whole."""
    dev_ids = {doc.id.rpartition(".")[0] for doc in splits.pop("blue_dev", [])}
    if not dev_ids or "train" not in splits:
        return splits
    docs = splits["train"]
    splits["dev"] = [doc for doc in docs if doc.id in dev_ids]
    splits["train"] = [doc for doc in docs if doc.id not in dev_ids]
    return splits


REFINEMENTS: Mapping[str, Refinement] = {"pubmedqa": split_pubmedqa, "ddi-blue-dev": split_ddi}


def named_refinement(name: str) -> Refinement:
    """The refinement that a card names."""
    if name not in REFINEMENTS:
        message = f"unknown refinement {name!r}; expected one of {', '.join(REFINEMENTS)}."
        raise DataSetError(message, code="unknown-refinement", value=name)
    return REFINEMENTS[name]
