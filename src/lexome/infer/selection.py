"""Filters predictions by type and score, and applies a model's rules to its mentions, marking what rules added."""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

from lexome.concepts.abbreviations import find_abbreviations
from lexome.document import Attribute, Document, Relation, Span, as_names, numbered_ids
from lexome.errors import UsageError, did_you_mean
from lexome.infer.boundary_rules import apply_boundaries, apply_glued_alleles, join_chemicals
from lexome.infer.name_rules import apply_name_forms
from lexome.infer.rules import (
    RULES,
    Definition,
    Drop,
    Mention,
    abbreviations,
    apply_cell_lines,
    apply_coordination,
    apply_lexicon,
    repeated_names,
    repeated_sentences,
    resolve_overlaps,
)
from lexome.infer.variant_rules import apply_variants
from lexome.tasks.ner import replace_spans
from lexome.tasks.task import PredictedMention

MinScore = float | Mapping[str, float]
"""Minimum score of mentions and relations: of all types, or by type."""


Overlaps = Literal["resolve", "keep"]
"""Whether mentions of different types at one place are resolved to the best one, or all are kept."""

ALL_RULES = "all"


@dataclass(frozen=True, slots=True)
class SelectionRequest:
    """Which predictions a user requests, by name; None means the default of the models.

    types            mention types; by default all but those that are predicted only on request
    min_score        minimum score of mentions and relations; by default the models' own
    overlaps         whether mentions of different types at one place are resolved to the best one
    without_rules    rules that are switched off
    relation_types   types of relations; by default all

    `Annotator.resolve` turns it into a Selection, which knows the types of the models.
    """

    types: Collection[str] | None = None
    min_score: MinScore | None = None
    overlaps: Overlaps | None = None
    without_rules: Collection[str] = ()
    relation_types: Collection[str] | None = None


EVERYTHING = SelectionRequest()

# Other names of types, and the type that covers each.
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
    unwanted         relation types that the models know but should not predict; documents keep their own relations
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
    request: SelectionRequest,
    *,
    default: Sequence[str],
    extra: Sequence[str] = (),
    relations: Sequence[str] = (),
    floors: Mapping[str, float] | None = None,
) -> Selection:
    """The selection for a request, by default of all `default` types and of no `extra` ones.

    UsageError if a type is unknown. `relations` are the types of relations that models predict. `floors` are the
    models' own minimum scores, which apply to types without one in the request.
    """
    types, min_score = request.types, request.min_score
    overlaps = parse_overlaps(request.overlaps)
    disabled = parse_rules(request.without_rules)
    selected = tuple(default) if types is None else as_names(types)
    selected = match_case(selected, (*default, *extra))
    _require_known(selected, default, extra)
    unwanted = _unwanted_relations(request.relation_types, relations)
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


def _unwanted_relations(wanted: Collection[str] | None, relations: Sequence[str]) -> frozenset[str]:
    """The relation types of the models that are not requested; UsageError for one that no model predicts."""
    if wanted is None:
        return frozenset()
    if not relations:
        message = f"relation types {', '.join(wanted)}, but no relation model is loaded. Load one with --relations."
        raise UsageError(message, code="no-relation-model", value=tuple(wanted))
    names = match_case(as_names(wanted), relations)
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
    rules = frozenset(name.strip() for part in as_names(names) for name in part.split(",") if name.strip())
    for name in sorted(rules - {*RULES, ALL_RULES}):
        message = f"unknown rule {name!r}. Rules: {', '.join((*RULES, ALL_RULES))}."
        raise UsageError(message, code="unknown-rule", value=name)
    return rules


def match_case(names: Sequence[str], known: Collection[str]) -> tuple[str, ...]:
    """The names in the spelling of the known types: gene becomes Gene, unless there is also a type gene."""
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
    covering = _COVERED_BY.get(unknown[0].casefold().removesuffix("s"))
    if covering in default:
        hint = f" Use {covering!r}, which covers it."
    else:
        hint = did_you_mean(unknown[0], (*default, *extra))
    listed = (", ".join(default) or "none") + (f"; on request only: {', '.join(extra)}" if extra else "")
    message = f"no model predicts the type {unknown[0]!r}.{hint} Types: {listed}."
    raise UsageError(message, code="unknown-type", value=unknown[0])


# Mentions after a model's rules

# Name of the attribute of mentions that a rule added; its value is the rule.
RULE_ATTRIBUTE = "rule"

Key = tuple[int, int, str]
"""Place and type of a mention."""


@dataclass(frozen=True, slots=True)
class Refinement:
    """Rules to apply to a model's mentions of `types`, and whether to keep one type per place."""

    types: tuple[str, ...]
    rules: tuple[str, ...]
    resolve: bool

    @classmethod
    def of(cls, types: Sequence[str], rules: Collection[str] | None, selection: Selection) -> "Refinement | None":
        """The rules of a model that a selection enables; None if there is nothing to do."""
        enabled = tuple(rule for rule in RULES if rule in (rules or ()) and selection.enables(rule))
        resolve = selection.overlaps == "resolve" or (selection.overlaps is None and rules is not None)
        if not (enabled or resolve) or not any(type_ in types for type_ in selection.types):
            return None
        return cls(tuple(types), enabled, resolve)


@dataclass(frozen=True, slots=True)
class Refined:
    """The document with the selected mentions, and the reasons why others that the model predicted were dropped."""

    doc: Document
    reasons: dict[Key, str]


def refine_document(
    doc: Document, predicted: Iterable[PredictedMention], selection: Selection, refinement: Refinement
) -> Refined:
    """Replace the selected types' mentions of `doc` with the refined ones of `predicted`, whose scores are calibrated.

    `predicted` has all types of the refinement.
    """
    layout = Layout(doc)
    mentions: list[Mention] = []
    spans: list[Span] = []
    for one in predicted:
        if one.type in refinement.types:
            mentions.append(Mention(*layout.to_text(one.start, one.end), one.type, one.score))
        elif selection.keeps(one.type, one.score):
            spans.append(Span("", one.type, ((one.start, one.end),), doc.slice(one.start, one.end), (), one.score))
    definitions = [
        (layout.to_text(one.long[0][0], one.long[-1][1]), layout.to_text(*one.short))
        for one in (find_abbreviations(doc) if mentions and "abbreviations" in refinement.rules else ())
    ]
    refined, drops = apply_rules(
        layout.text,
        mentions,
        types=refinement.types,
        rules=refinement.rules,
        resolve=refinement.resolve,
        definitions=definitions,
    )
    rules: dict[Key, str] = {}
    for mention in refined:
        if selection.keeps(mention.type, mention.score):
            place = layout.to_document(mention.start, mention.end)
            text = layout.text[mention.start : mention.end]
            spans.append(Span("", mention.type, (place,), text, (), mention.score))
            if mention.rule is not None:
                rules[(*place, mention.type)] = mention.rule
    reasons = {(*layout.to_document(*drop.mention.place), drop.mention.type): drop.reason for drop in drops}
    result = replace_spans(doc, spans, selection.types)
    return Refined(_with_marks(result, rules) if rules else result, reasons)


# Hyphens, minus signs and spaces of publishers, each as the character that rules and lexicon know: "COVID‑19".
PLAIN = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2212"), "-") | dict.fromkeys(
    map(ord, "\u00a0\u2009\u202f"), " "
)


def apply_rules(
    text: str,
    mentions: Sequence[Mention],
    *,
    types: Collection[str],
    rules: Collection[str],
    resolve: bool = True,
    definitions: Sequence[Definition] = (),
) -> tuple[list[Mention], list[Drop]]:
    """The mentions that a model of these types predicted, after rules, and those that rules removed or moved.

    With `resolve`, one type per place is kept. `definitions` are the abbreviations that the text defines.
    """
    drops: list[Drop] = []
    text = text if text.isascii() else text.translate(PLAIN)
    current = list(mentions)
    if "boundaries" in rules:
        current = join_chemicals(text, list(apply_boundaries(text, current, drops)), drops)
        if "Gene" in types:
            current = apply_glued_alleles(text, current, drops)
    if "cell-lines" in rules and "CellLine" in types:
        current = list(apply_cell_lines(text, current, drops))
    if "variants" in rules and "Variant" in types:
        current = apply_variants(text, current, drops)
    if "coordination" in rules and "Gene" in types:
        current = apply_coordination(text, current, drops)
    if "name-forms" in rules:
        current = apply_name_forms(text, current, drops, types=types)
    if "lexicon" in rules:
        current = apply_lexicon(text, current, drops, types=types)
    if resolve:
        current = resolve_overlaps(current, drops)
    if "abbreviations" in rules and definitions:
        current = list(abbreviations(text, current, definitions, drops))
    if "repeated-names" in rules:
        current = repeated_names(text, current)
    if "repeated-sentences" in rules:
        agreed = repeated_sentences(text, current)
        # Copies may outvote each other with two types for one place.
        current = resolve_overlaps(agreed, drops) if resolve and len(agreed) > len(current) else agreed
    return sorted(current, key=lambda mention: (mention.start, -mention.end, mention.type)), drops


def _with_marks(doc: Document, rules: dict[Key, str]) -> Document:
    """The document with an attribute for each mention that a rule added."""
    used = {attribute.id for attribute in doc.attributes}
    ids = (name for name in numbered_ids("A") if name not in used)
    marks = tuple(
        Attribute(next(ids), span.id, RULE_ATTRIBUTE, rule)
        for span in doc.spans
        if len(span.parts) == 1 and (rule := rules.get((span.start, span.end, span.type))) is not None
    )
    return replace(doc, attributes=(*doc.attributes, *marks))


def made_by_rule(doc: Document) -> Iterator[tuple[Span, str]]:
    """The mentions that a rule added, each with the rule."""
    rules = {mark.target: mark.value or "" for mark in doc.attributes if mark.name == RULE_ATTRIBUTE}
    return ((span, rules[span.id]) for span in doc.spans if span.id in rules)


class Layout:
    """The passages of a document joined by line breaks into one text, and the mapping of offsets between the two."""

    def __init__(self, doc: Document) -> None:
        self.text = "\n".join(passage.text for passage in doc.passages)
        self._offsets = [passage.offset for passage in doc.passages]
        self._starts: list[int] = []
        start = 0
        for passage in doc.passages:
            self._starts.append(start)
            start += len(passage.text) + 1
        self._same = self._offsets == self._starts

    def to_text(self, start: int, end: int) -> tuple[int, int]:
        """A range of the document in the text."""
        if self._same:
            return start, end
        index = bisect_right(self._offsets, start) - 1
        shift = self._starts[index] - self._offsets[index]
        return start + shift, end + shift

    def to_document(self, start: int, end: int) -> tuple[int, int]:
        """A range of the text in the document."""
        if self._same:
            return start, end
        index = bisect_right(self._starts, start) - 1
        shift = self._offsets[index] - self._starts[index]
        return start + shift, end + shift
