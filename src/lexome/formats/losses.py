"""What a format has no place for, counted once a document so that nothing goes missing unsaid."""

from lexome.document import NOTHING_KNOWN, Document, Passage
from lexome.formats.tally import Tally


def note_losses(doc: Document, tally: Tally, *, held: frozenset[str] = frozenset(), lost: tuple[str, ...] = ()) -> None:
    """Note everything the document has that is not among what the format has `held`, and what else was `lost`."""
    present = {
        "relations": doc.relations,
        "attributes": doc.attributes,
        "questions": doc.questions,
        "labels": doc.labels,
        "metadata": doc.meta != NOTHING_KNOWN,
        "concepts": any(span.concepts for span in doc.spans),
        "scores": any(span.score is not None for span in doc.spans)
        or any(relation.score is not None for relation in doc.relations),
        "novelty of relations": any(relation.novel is not None for relation in doc.relations),
        "places of passages": len(doc.passages) > 1 or (doc.passages and doc.passages[0].offset),
        "kinds and sections of passages": any(map(_is_described, doc.passages)),
        "sentences and tokens": any(passage.sentences or passage.tokens for passage in doc.passages),
    }
    for name, has in present.items():
        if has and name not in held:
            tally.note(f"{name} not written")
    for name in lost:
        tally.note(f"{name} not written")


def _is_described(passage: Passage) -> bool:
    told = passage.section or passage.category or passage.language or passage.source
    return bool(told) or passage.kind not in ("sentence", "paragraph")
