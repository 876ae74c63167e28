"""Which findings a user wants: types, and the least score of each."""

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from lexome.document import Document
from lexome.errors import UsageError
from lexome.infer.model import Model
from lexome.tasks.ner import replace_spans


@dataclass(frozen=True, slots=True)
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
        return found if len(kept) == len(said) else replace_spans(doc, kept, own)


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


@dataclass(frozen=True, slots=True)
class Wanted:
    """Types to keep, all where there is None, and the least score, of all or by type."""

    types: tuple[str, ...] | None = None
    min_score: float | dict[str, float] | None = None


def wanted_of(
    types: Sequence[str],
    scores: Sequence[str],
    *,
    found: Collection[str],
    scored: Collection[str],
    extra: Collection[str] = (),
) -> Wanted:
    """What the options say: types as "Gene" or "Gene,Disease", scores as "0.5" or "Gene=0.7".

    `found` are the types of mentions there usually are, `extra` those found only by name, `scored` all that a least
    score can be set for besides these.
    """
    names = [name.strip() for given in types for name in given.split(",") if name.strip()]
    if types and not names:
        raise UsageError(f"--types names no type; expected some of {_listed(found, extra)}. Name one or leave it out.")
    for name in names:
        _require_known(name, found, extra, option=f"--types {name}")
    return Wanted(tuple(dict.fromkeys(names)) or None, _least(scores, scored, extra))


def _least(scores: Sequence[str], scored: Collection[str], extra: Collection[str]) -> float | dict[str, float] | None:
    overall: float | None = None
    by_type: dict[str, float] = {}
    for given in (part.strip() for score in scores for part in score.split(",")):
        name, equals, number = given.rpartition("=")
        score = _score(number, given)
        if equals:
            _require_known(name, scored, extra, option=f"--min-score {given}")
            by_type[name] = score
        else:
            overall = score
    if not by_type:
        return overall
    return {**({} if overall is None else dict.fromkeys((*scored, *extra), overall)), **by_type}


def _score(number: str, given: str) -> float:
    try:
        score = float(number)
    except ValueError:
        score = -1.0
    if not 0 <= score <= 1:
        raise UsageError(
            f"--min-score {given}: {number!r} is no score; expected a number from 0 to 1, such as 0.5 or Gene=0.7."
        )
    return score


def _require_known(name: str, usual: Collection[str], extra: Collection[str], *, option: str) -> None:
    known = (*usual, *extra)
    if name in known:
        return
    near = difflib.get_close_matches(name.casefold(), {type_.casefold(): type_ for type_ in known}, n=1)
    meant = next((type_ for type_ in known if near and type_.casefold() == near[0]), None)
    hint = f" Did you mean {meant!r}?" if meant else ""
    raise UsageError(f"{option}: the model has no type {name!r}.{hint} There are: {_listed(usual, extra)}.")


def _listed(usual: Collection[str], extra: Collection[str]) -> str:
    """The types by name, those that are found only so at the end."""
    return (", ".join(usual) or "none") + (f"; only by name: {', '.join(extra)}" if extra else "")
