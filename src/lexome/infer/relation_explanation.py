"""Explains why two entities of a document are related, or not: mentions, sentences and probabilities of labels."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lexome.document import Argument, Document, Range, Relation, Span
from lexome.infer.selection import Selection
from lexome.tasks.document_relation import EntityKey, PairScores, key_arguments

# The minimum probability of the best label of an unrelated pair to list, and the number of mention pairs to show.
NEAR = 0.1
MAX_EVIDENCE = 3
# Stands for the text between two sentences of evidence.
BETWEEN_SENTENCES = " ... "


@dataclass(frozen=True, slots=True)
class RelationEvidence:
    """One mention of each side of a relation, their sentences, and the probability from these two mentions alone."""

    first: Range
    second: Range
    sentences: tuple[Range, ...]
    text: str
    probability: float

    def texts(self) -> tuple[str, ...]:
        """The text of each sentence."""
        texts: list[str] = []
        begin = 0
        for start, end in self.sentences:
            texts.append(self.text[begin : begin + end - start])
            begin += end - start + len(BETWEEN_SENTENCES)
        return tuple(texts)


@dataclass(frozen=True, slots=True)
class RelationExplanation:
    """A model's prediction for two entities. `probabilities` are uncalibrated; the key None means no relation.

    label     the predicted relation, or None
    score     of the label, on the scale of the relations' scores; without a label, the probability of the best one
    reason    why the relation is not in the result, or None
    evidence  pairs of mentions of the two, the most probable first
    """

    schema: str
    label: str | None
    first: str
    second: str
    score: float
    novelty: float | None
    probabilities: dict[str | None, float]
    evidence: tuple[RelationEvidence, ...]
    reason: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """All of it for JSON; no relation is "none"."""
        probabilities = {label or "none": round(value, 4) for label, value in self.probabilities.items()}
        return {**asdict(self), "score": round(self.score, 4), "probabilities": probabilities}


def explain_pair(
    doc: Document, scores: PairScores, selection: Selection, *, calibrate: Callable[[str, float], float]
) -> RelationExplanation:
    """The explanation of a pair in a document with sentences; `calibrate` maps the probability of a label."""
    spans = {span.id: span for span in doc.spans}
    sentences = [sentence for passage in doc.passages for sentence in passage.sentences]

    def sentences_of(*mentions: Span) -> tuple[Range, ...]:
        containing = (
            next(((a, b) for a, b in sentences if a <= one.start < b), (one.start, one.end)) for one in mentions
        )
        return tuple(sorted(dict.fromkeys(containing)))

    evidence = []
    for first, second, probability in sorted(scores.mentions, key=lambda row: -row[2])[:MAX_EVIDENCE]:
        one, other = spans[first], spans[second]
        places = sentences_of(one, other)
        text = BETWEEN_SENTENCES.join(doc.slice(*place) for place in places)
        evidence.append(RelationEvidence((one.start, one.end), (other.start, other.end), places, text, probability))
    ranked = sorted(scores.probabilities.items(), key=lambda item: -item[1])
    best = next(label for label, _ in ranked if label is not None)
    score = calibrate(best, scores.probabilities[best]) if scores.label else scores.probabilities[best]
    sides = key_arguments(scores.key)
    reason: str | None = f"no relation is more likely ({scores.probabilities[None]:.2f})"
    if scores.label is not None:
        reason = selection.reason_relation_dropped(Relation("R", scores.label, sides, score=score))
    return RelationExplanation(
        scores.schema.name,
        scores.label,
        _side_name(sides[0], scores.key[1], spans),
        _side_name(sides[1], scores.key[2], spans),
        score,
        scores.novelty,
        dict(ranked),
        tuple(evidence),
        reason,
    )


def _side_name(side: Argument, entity: EntityKey, spans: Mapping[str, Span]) -> str:
    if side.concept is None:
        return spans[str(side.target)].text
    mentions = sorted((span for span in spans.values() if side.concept in span.concepts), key=lambda span: span.start)
    return f"{mentions[0].text} ({side.concept})" if mentions else entity.name
