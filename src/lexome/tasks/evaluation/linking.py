"""Evaluation of linking: whether mentions and documents have the right concepts."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from lexome.document import Document, Span
from lexome.tasks.evaluation.comparison import (
    Difference,
    DocumentPair,
    MetricResult,
    context_of,
    mean_result,
    micro_f1_result,
)
from lexome.tasks.metrics.spans import compare_sets, merge_parts

CONCEPTS = "concepts"

Ids = Callable[[Iterable[str]], Collection[str]]
"""From concept ids to the ids that are compared, where several mean the same."""


def concept_metrics(pairs: Sequence[DocumentPair], only: Collection[str] | None = None) -> list[MetricResult]:
    """F1 of concepts by document, as BioCreative scores them, and by mention, and accuracy on the gold mentions.

    None if either side has no concepts. By document, a concept is right if the gold document has it anywhere, with the
    type; by mention, place, type and concept must be right. Accuracy is of the gold mentions that the predictions have
    too: the first predicted concept is one of the gold ones.
    """
    sides = [(_linked(pair.gold, only), _linked(pair.predicted, only)) for pair in pairs]
    if not any(gold for gold, _ in sides) or not any(predicted for _, predicted in sides):
        return []
    documents = [compare_sets(_of_document(gold), _of_document(predicted)) for gold, predicted in sides]
    mentions = [compare_sets(_of_mentions(gold), _of_mentions(predicted)) for gold, predicted in sides]
    results = [
        micro_f1_result(CONCEPTS, "by document", documents),
        micro_f1_result(CONCEPTS, "by mention", mentions),
    ]
    right = [_first_right(pair, only) for pair in pairs]
    if any(right):
        results.append(mean_result(CONCEPTS, "gold mentions that are found", "accuracy@1", right))
    return results


def concept_differences(pairs: Sequence[DocumentPair], only: Collection[str] | None = None) -> Iterator[Difference]:
    """Each mention of both sides that has another concept, or none."""
    if not concept_metrics(pairs, only):
        return
    for pair in pairs:
        predicted = {_place(span): span for span in pair.predicted.spans}
        for span in _linked(pair.gold, only):
            other = predicted.get(_place(span))
            if other is None or set(other.concepts) == set(span.concepts):
                continue
            kind = "wrong concept" if other.concepts else "not linked"
            gold, found = (", ".join(one.concepts) or None for one in (span, other))
            yield Difference(CONCEPTS, kind, pair.gold.id, gold, found, context_of(pair.gold, span.start, span.end))


def linking_accuracy(
    docs: Iterable[Document],
    candidates: Callable[[Document], Mapping[str, Sequence[str]]],
    *,
    type: str | None = None,
    at: Sequence[int] = (1, 5),
    same: Ids = set,
) -> dict[int, float]:
    """How many gold mentions have a gold concept among the first k candidates, for each k.

    `candidates` are the concepts of each mention of a document by span id, the best first; a mention without candidates
    counts as wrong, one without a gold concept not at all. Where a mention has several gold concepts, any of them is
    right, as in BioSyn's evaluation.

        linking_accuracy(docs, lambda doc: {id: [one.concept for one in why.candidates]
                                            for id, why in linker.explain_all(doc).items()})
    """
    right = dict.fromkeys(at, 0)
    total = 0
    for doc in docs:
        found = candidates(doc)
        for span in doc.spans:
            if not span.concepts or type not in (None, span.type):
                continue
            total += 1
            gold = same(span.concepts)
            own = found.get(span.id, ())
            for k in at:
                right[k] += any(concept in gold for concept in same(own[:k]))
    return {k: count / total if total else 0.0 for k, count in right.items()}


def _linked(doc: Document, only: Collection[str] | None) -> list[Span]:
    return [span for span in doc.spans if span.concepts and (only is None or span.type in only)]


def _of_document(spans: Iterable[Span]) -> dict[str, set[str]]:
    types: defaultdict[str, set[str]] = defaultdict(set)
    for span in spans:
        types[span.type].update(span.concepts)
    return types


def _of_mentions(spans: Iterable[Span]) -> dict[str, set[tuple[object, str]]]:
    types: defaultdict[str, set[tuple[object, str]]] = defaultdict(set)
    for span in spans:
        types[span.type].update((merge_parts(span.parts), concept) for concept in span.concepts)
    return types


def _first_right(pair: DocumentPair, only: Collection[str] | None) -> list[float]:
    """For each gold mention that is predicted at the same place, whether its first concept is right."""
    predicted = {_place(span): span.concepts for span in pair.predicted.spans}
    found = ((span.concepts, predicted[_place(span)]) for span in _linked(pair.gold, only) if _place(span) in predicted)
    return [float(bool(own) and own[0] in gold) for gold, own in found]


def _place(span: Span) -> tuple[object, str]:
    return merge_parts(span.parts), span.type
