"""PubMedQA JSON: one document per abstract, with a question and its answer yes, no or maybe."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from lexome.document import Answer, Document, Passage, Question, lay_out
from lexome.errors import BadDocument
from lexome.formats.json_file import accept, mapping, members, note_unknown, required, string, strings
from lexome.formats.streams import Source
from lexome.formats.tally import Tally
from lexome.metadata import MeshHeading, Metadata

_FIELDS = frozenset({"QUESTION", "CONTEXTS", "LABELS", "MESHES", "YEAR", "final_decision", "LONG_ANSWER"})


def read(source: Source, *, tally: Tally) -> Iterator[Document]:
    """One document per PMID: its contexts are the passages, its question has the short and the long answer.

    A file of decisions only, such as the test set's ground truth, gives documents without text whose question is
    empty. Entries are streamed: the artificial set has 500 MB.
    """
    for pmid, record in members(source):
        yield from accept(
            tally, partial(_document, pmid, record, tally), record, where=f"{source.name}, {pmid!r}", id=pmid
        )


def _document(pmid: str, record: object, tally: Tally) -> Document:
    # Read like a field, so that it is validated like one.
    name = required({"PMID": pmid}, "PMID")
    meta = Metadata(pmid=name)
    if isinstance(record, str):
        question = Question(name, "", "yesno", (Answer(required({"decision": record}, "decision")),))
        return Document(name, questions=(question,), meta=meta)
    fields = mapping(record, name)
    decision = string(fields, "final_decision")
    question = Question(
        name,
        required(fields, "QUESTION"),
        "yesno",
        (Answer(decision),) if decision is not None else (),
        ideal=strings(fields, "LONG_ANSWER"),
    )
    mesh = tuple(MeshHeading(heading) for heading in strings(fields, "MESHES"))
    note_unknown(fields, _FIELDS, tally)
    meta = replace(meta, mesh=mesh, published=string(fields, "YEAR"))
    return Document(name, _contexts(fields), questions=(question,), meta=meta)


def _contexts(fields: dict[str, Any]) -> tuple[Passage, ...]:
    """The sections of the abstract, with their labels."""
    texts, labels = strings(fields, "CONTEXTS"), strings(fields, "LABELS")
    passages = lay_out(("abstract", text) for text in texts)
    if not labels:
        return passages
    if len(labels) != len(passages):
        message = f"there are {len(passages)} CONTEXTS and {len(labels)} LABELS; expected one label each"
        raise BadDocument("bad_field", message, value="LABELS")
    return tuple(replace(passage, section=(label,)) for passage, label in zip(passages, labels, strict=True))
