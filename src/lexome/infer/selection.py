"""Filters predictions by type and score."""

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

from lexome.document import Document, Relation, Span
from lexome.errors import UsageError
from lexome.infer.rules import RULES
from lexome.tasks.ner import replace_spans

MinScore = float | Mapping[str, float]
"""Minimum score of mentions and relations: of all types, or by type."""


Overlaps = Literal["resolve", "keep"]
"""Whether mentions of different types at one place are resolved to the best one, or all are kept."""

ALL_RULES = "all"
# What users look for under a name of their own, and the type that has it.
_COVERED_BY = {
    "protein": "Gene",
    "drug": "Chemical",
    "organism": "Species",
    "taxon": "Species",
    "mutation": "Variant",
    "snp": "Variant",
}


@dataclass(frozen=True, slots=True)
class Selection:
    """Mention types to predict, minimum scores by type of mention or relation, and which rules to apply.

    overlaps         None: a model with rules resolves them, others do not
    without_rules    rules that are switched off, or "all"
    unwanted         relation types that models know and are not to predict: a document keeps its own
    """

    types: tuple[str, ...]
    min_scores: Mapping[str, float]
    overlaps: Overlaps | None = None
    without_rules: frozenset[str] = frozenset()
    unwanted: frozenset[str] = frozenset()

    def enables(self, rule: str) -> bool:
        """Whether a rule is not switched off."""
        return rule not in self.without_rules and ALL_RULES not in self.without_rules

    def of(self, types: Sequence[str]) -> "Selection":
        """The selection of those of its types that a model predicts."""
        return replace(self, types=tuple(type_ for type_ in types if type_ in self.types))

    def needs(self, model_types: Sequence[str]) -> bool:
        """Whether a model that predicts these mention types has to run; one that predicts none always does."""
        return not model_types or any(type_ in self.types for type_ in model_types)

    def apply(self, model_types: Sequence[str], doc: Document, predicted: Document) -> Document:
        """A model's prediction for `doc` without mentions and relations below their minimum score.

        The model predicted the selected types only: mentions of other types are those of `doc`.
        """
        if not model_types:
            return self._without_relations(predicted)
        selected = [type_ for type_ in model_types if type_ in self.types]
        spans = [span for span in predicted.spans if span.type in selected]
        kept = [span for span in spans if self.reason_dropped(span) is None]
        return predicted if len(kept) == len(spans) else replace_spans(doc, kept, selected)

    def keeps(self, type_: str, score: float) -> bool:
        """Whether a predicted mention of this type and score is in the result."""
        return type_ in self.types and score >= self.min_scores.get(type_, 0.0)

    def reason_dropped(self, span: Span, by_rule: Mapping[tuple[int, int, str], str] | None = None) -> str | None:
        """Why a predicted mention is not in the result, or None; `by_rule` are the reasons of rules."""
        if span.type not in self.types:
            return f"type {span.type} is not selected"
        if by_rule and (reason := by_rule.get((span.start, span.end, span.type))) is not None:
            return reason
        score, min_score = span.score or 0.0, self.min_scores.get(span.type, 0.0)
        return f"score {score:.2f} is below {min_score:g}" if score < min_score else None

    def reason_relation_dropped(self, relation: Relation) -> str | None:
        """Why a relation is not in the result, or None."""
        if relation.type in self.unwanted:
            return f"type {relation.type} is not selected"
        score, min_score = relation.score, self.min_scores.get(relation.type, 0.0)
        return f"score {score:.2f} is below {min_score:g}" if score is not None and score < min_score else None

    def _without_relations(self, doc: Document) -> Document:
        """The document without relations that are not selected, and what refers to those."""
        relations = doc.relations
        known = {span.id for span in doc.spans} | {relation.id for relation in relations}
        while True:
            kept = tuple(
                relation
                for relation in relations
                if (relation.type in self.unwanted or self.reason_relation_dropped(relation) is None)
                and all(argument.target is None or argument.target in known for argument in relation.arguments)
            )
            if len(kept) == len(relations):
                break
            relations = kept
            known = {span.id for span in doc.spans} | {relation.id for relation in relations}
        if relations == doc.relations:
            return doc
        attributes = tuple(attribute for attribute in doc.attributes if attribute.target in known)
        return replace(doc, relations=relations, attributes=attributes)


def select(
    types: Collection[str] | None,
    min_score: MinScore | None,
    *,
    default: Sequence[str],
    extra: Sequence[str] = (),
    relations: Sequence[str] = (),
    relation_types: Collection[str] | None = None,
    floors: Mapping[str, float] | None = None,
    overlaps: Overlaps | None = None,
    without_rules: Collection[str] = (),
) -> Selection:
    """The selection of `types`, by default of all `default` types but none of `extra`; UsageError if one is unknown.

    `relations` are the types of relations that models predict, and `relation_types` those of them that are wanted.
    `floors` are the models' own minimum scores, which hold for the types that `min_score` does not name.
    """
    overlaps = parse_overlaps(overlaps)
    disabled = parse_rules(without_rules)
    selected = tuple(default) if types is None else (types,) if isinstance(types, str) else tuple(types)
    selected = match_case(selected, (*default, *extra))
    _require_known(selected, default, extra)
    unwanted = _unwanted(relation_types, relations)
    scored = (*default, *relations)
    if min_score is None:
        return Selection(selected, dict(floors or {}), overlaps, disabled, unwanted)
    # Readers have floors by the form of questions.
    forms = tuple(name for name in floors or () if name not in scored and name not in extra)
    every = (*scored, *extra, *forms)
    min_scores = min_score if isinstance(min_score, Mapping) else dict.fromkeys(every, min_score)
    min_scores = dict(zip(match_case(tuple(min_scores), every), min_scores.values(), strict=True))
    _require_known(tuple(min_scores), scored, (*extra, *forms))
    for score in min_scores.values():
        _require_score(score)
    return Selection(selected, {**(floors or {}), **min_scores}, overlaps, disabled, unwanted)


def _unwanted(wanted: Collection[str] | None, relations: Sequence[str]) -> frozenset[str]:
    """The relation types that models predict and are not wanted; UsageError for one that no model predicts."""
    if wanted is None:
        return frozenset()
    if not relations:
        message = f"relation types {', '.join(wanted)}, but no relation model is loaded. Load one with --relations."
        raise UsageError(message, code="no-relation-model", value=tuple(wanted))
    names = match_case((wanted,) if isinstance(wanted, str) else tuple(wanted), relations)
    _require_known(names, relations, ())
    return frozenset(relations) - set(names)


def parse_overlaps(name: str | None) -> Overlaps | None:
    """The name if it is one of `Overlaps`, or None; UsageError for another one."""
    for choice in get_args(Overlaps):
        if name == choice:
            return cast(Overlaps, choice)
    if name is not None:
        message = f"overlaps {name!r}: expected {' or '.join(get_args(Overlaps))}."
        raise UsageError(message, code="invalid-overlaps", value=name)
    return None


def parse_rules(names: Collection[str]) -> frozenset[str]:
    """Names of rules, also several with commas between them; UsageError for an unknown one."""
    parts = (names,) if isinstance(names, str) else names
    rules = frozenset(name.strip() for part in parts for name in part.split(",") if name.strip())
    for name in sorted(rules - {*RULES, ALL_RULES}):
        message = f"unknown rule {name!r}. Rules: {', '.join((*RULES, ALL_RULES))}."
        raise UsageError(message, code="unknown-rule", value=name)
    return rules


def match_case(names: Sequence[str], known: Collection[str]) -> tuple[str, ...]:
    """The names in the spelling of the known types: gene is Gene, unless a type is called gene too."""
    spellings: dict[str, list[str]] = {}
    for type_ in dict.fromkeys(known):
        spellings.setdefault(type_.casefold(), []).append(type_)
    matches = [spellings.get(name.casefold(), []) for name in names]
    return tuple(
        spelled[0] if len(spelled) == 1 and name not in known else name
        for name, spelled in zip(names, matches, strict=True)
    )


def parse_types(
    options: Sequence[str], known: Collection[str] = (), *, name: str = "--types"
) -> tuple[str, ...] | None:
    """Types of options such as "Gene" or "gene,Disease", in the spelling of the known ones; None without options."""
    names = [name.strip() for option in options for name in option.split(",") if name.strip()]
    if options and not names:
        raise UsageError(f"{name} is empty; expected types. Name one, or omit it.", code="empty-types")
    return tuple(dict.fromkeys(match_case(names, known))) or None


def parse_min_score(
    options: Sequence[str], scored: Sequence[str], *, relations: tuple[Sequence[str], float | None] = ((), None)
) -> float | dict[str, float] | None:
    """Minimum scores of options such as "0.5" or "Gene=0.7"; one without a type is that of all types in `scored`.

    `relations` are types of relations, and the minimum score of those that no option names.
    """
    overall: float | None = None
    by_type: dict[str, float] = {}
    for part in (part.strip() for option in options for part in option.split(",")):
        name, equals, number = part.rpartition("=")
        try:
            score = float(number)
        except ValueError:
            raise _invalid_score(part) from None
        _require_score(score, part)
        if equals:
            by_type[name] = score
        else:
            overall = score
    if relations[1] is not None:
        if not relations[0]:
            message = "a minimum score of relations, but no relation model is loaded. Load one with --relations."
            raise UsageError(message, code="no-relation-model", value=relations[1])
        by_type = {**dict.fromkeys(relations[0], relations[1]), **by_type}
    if not by_type:
        return overall
    return {**({} if overall is None else dict.fromkeys(scored, overall)), **by_type}


def _require_score(score: float, text: str | None = None) -> None:
    if not 0 <= score <= 1:
        raise _invalid_score(score if text is None else text)


def _invalid_score(score: float | str) -> UsageError:
    message = f"minimum score {score}: expected a number from 0 to 1, on the command line 0.5 or Gene=0.7."
    return UsageError(message, code="invalid-score", value=score)


def _require_known(names: Sequence[str], default: Sequence[str], extra: Sequence[str]) -> None:
    unknown = [name for name in names if name not in default and name not in extra]
    if not unknown:
        return
    known = {type_.casefold(): type_ for type_ in (*default, *extra)}
    near = difflib.get_close_matches(unknown[0].casefold(), known, n=1)
    covering = _COVERED_BY.get(unknown[0].casefold().removesuffix("s"))
    if covering in default:
        hint = f" Use {covering!r}, which covers it."
    else:
        hint = f" Did you mean {known[near[0]]!r}?" if near else ""
    listed = (", ".join(default) or "none") + (f"; on request only: {', '.join(extra)}" if extra else "")
    message = f"no model predicts the type {unknown[0]!r}.{hint} Types: {listed}."
    raise UsageError(message, code="unknown-type", value=unknown[0])
