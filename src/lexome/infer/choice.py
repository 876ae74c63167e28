"""What is kept of that which models say: mentions of some types, and what has a score that is high enough."""

from collections.abc import Mapping
from dataclasses import replace

from lexome.document import Document
from lexome.infer.model import Model
from lexome.tasks.mentions import with_spans
from lexome.values import value


@value
class Choice:
    """The types of mentions that are asked for, and the least score by type of mention and relation."""

    types: tuple[str, ...]
    least: Mapping[str, float]

    def wants(self, model: Model) -> bool:
        """Whether a model has to be run: one whose types are all unasked need not."""
        return not model.types or any(type_ in self.types for type_ in model.types)

    def kept(self, model: Model, doc: Document, found: Document) -> Document:
        """A document as a model left it, without what scores too little; `doc` is what the model was given.

        The model was asked for these types alone: mentions of others are as they were.
        """
        if not model.types:
            return _kept_relations(found, self.least)
        own = [type_ for type_ in model.types if type_ in self.types]
        said = [span for span in found.spans if span.type in own]
        kept = [span for span in said if (span.score or 0.0) >= self.least.get(span.type, 0.0)]
        return found if len(kept) == len(said) else with_spans(doc, kept, own)


def _kept_relations(doc: Document, least: Mapping[str, float]) -> Document:
    """The document without relations whose score is too low, and without what leans on these."""
    relations = doc.relations
    known = {span.id for span in doc.spans} | {relation.id for relation in relations}
    while True:
        left = tuple(
            relation
            for relation in relations
            if (relation.score is None or relation.score >= least.get(relation.type, 0.0))
            and all(argument.target is None or argument.target in known for argument in relation.arguments)
        )
        if len(left) == len(relations):
            break
        relations = left
        known = {span.id for span in doc.spans} | {relation.id for relation in relations}
    if relations == doc.relations:
        return doc
    attributes = tuple(attribute for attribute in doc.attributes if attribute.target in known)
    return replace(doc, relations=relations, attributes=attributes)
