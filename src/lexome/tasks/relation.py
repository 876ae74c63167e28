"""Relation extraction: between two entities of an annotated document, or in a sentence with marked entities."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Any, Literal, get_args

import numpy as np

from lexome.document import Argument, Document, Passage, Range, Relation, shorten
from lexome.errors import BadDocument, UsageError
from lexome.tasks.classify import (
    Average,
    label_scores,
    label_target,
    pool_logits,
    text_examples,
    with_best_label,
)
from lexome.tasks.task import (
    IGNORE_INDEX,
    INSIDE,
    Example,
    Floats,
    Frame,
    Ints,
    Scores,
    Task,
    TokenizedText,
    Tokenizer,
    Types,
    label_index,
    relation_keys,
    relation_roles,
    replace_relations,
    require_choice,
    require_names,
    require_overlap,
    require_same_length,
    text_capacity,
    tokenize,
)

Scope = Literal["sentence", "document"]
Level = Literal["mention", "concept"]
Marking = Literal["mask", "markers"]
Others = Literal["refuse", "none", "skip"]


@dataclass(frozen=True, slots=True)
class Entity:
    """One side of a pair: the name of a mention or concept, its type, and the ranges where it is mentioned."""

    name: str
    type: str
    places: tuple[Range, ...]
    concepts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EntityPair:
    """Two entities that may be related, in a range of the text; the first is of the first type of its pair."""

    first: Entity
    second: Entity
    stretch: Range

    @property
    def names(self) -> tuple[str, str]:
        """The names of both."""
        return self.first.name, self.second.name


@dataclass(frozen=True, slots=True)
class MarkedText:
    """A text with a marked pair, and the ranges of the marks."""

    text: str
    places: tuple[Range, ...]


def candidate_pairs(
    doc: Document, types: Sequence[tuple[str, str]], *, scope: Scope, level: Level
) -> Iterator[EntityPair]:
    """All pairs of these types in each sentence, or in the document.

    A passage without sentences counts as one. Of two entities of the same type, the first in the text comes first.
    """
    if level == "concept":
        entities = _concepts(doc)
    else:
        entities = [Entity(span.id, span.type, span.parts[:1], span.concepts) for span in doc.spans]
    stretches = [part for one in doc.passages for part in one.sentences or ((one.offset, one.end),)]
    if scope == "document":
        stretches = [(doc.passages[0].offset, doc.passages[-1].end)] if doc.passages else []
    for start, end in stretches:
        inside = [entity for entity in entities if all(start <= low and high <= end for low, high in entity.places)]
        for one, other in combinations(sorted(inside, key=lambda entity: (entity.places, entity.name)), 2):
            if (one.type, other.type) in types:
                yield EntityPair(one, other, (start, end))
            elif (other.type, one.type) in types:
                yield EntityPair(other, one, (start, end))


# Above this fraction of relations across sentences, pairs of a document are classified, which takes much longer.
FAR_RELATIONS = 0.05


def _related_types(doc: Document) -> Iterator[tuple[tuple[str, str], Scope]]:
    """The types of the two entities of each relation, and whether they are in one sentence."""
    spans = {span.id: span for span in doc.spans}
    spans |= {concept: span for span in reversed(doc.spans) for concept in span.concepts}
    stretches = [part for one in doc.passages for part in one.sentences or ((one.offset, one.end),)]
    for relation in doc.relations:
        names = [argument.target or argument.concept or "" for argument in relation.arguments]
        if len(names) == 2 and all(name in spans for name in names):
            one, other = (spans[name] for name in names)
            low, high = min(one.start, other.start), max(one.end, other.end)
            near = any(start <= low and high <= end for start, end in stretches)
            yield (one.type, other.type), "sentence" if near else "document"


def _concepts(doc: Document) -> list[Entity]:
    """Each concept that is mentioned, with the type of its first mention."""
    by_name: dict[str, tuple[str, list[Range]]] = {}
    for span in sorted(doc.spans, key=lambda span: (span.start, span.end)):
        for concept in span.concepts:
            by_name.setdefault(concept, (span.type, []))[1].append(span.parts[0])
    return [Entity(name, type_, tuple(places), (name,)) for name, (type_, places) in by_name.items()]


def relation_key(relation: Relation) -> frozenset[str] | None:
    """The two names that a relation is between, or None if there are not two."""
    names = frozenset(argument.target or argument.concept or "" for argument in relation.arguments)
    return names if len(names) == len(relation.arguments) == 2 else None


def mark_pair(doc: Document, pair: EntityPair, *, marking: Marking, masks: Mapping[str, str]) -> MarkedText:
    """The text of a pair with its entities masked (@GENE$) or between markers ([E1] BRCA1 [/E1]).

    Two that overlap share one mask, @CHEMICAL-GENE$, or both markers around all of it. Of a discontinuous mention the
    first part is marked.
    """
    start, end = pair.stretch
    text = doc.text[start:end]
    pieces: list[str] = []
    places: list[Range] = []
    size = done = 0
    for (low, high), sides in _merge_places(pair):
        before = text[done : low - start]
        mark = _mark(text[low - start : high - start], sides, pair, marking, masks)
        pieces += (before, mark)
        places.append((size + len(before), size + len(before) + len(mark)))
        size = places[-1][1]
        done = high - start
    return MarkedText("".join((*pieces, text[done:])), tuple(places))


def _merge_places(pair: EntityPair) -> list[tuple[Range, tuple[int, ...]]]:
    """The ranges of both entities in order, overlapping ones merged, each with the sides that it belongs to."""
    places = sorted(
        [(place, 1) for place in pair.first.places] + [(place, 2) for place in pair.second.places],
        key=lambda item: (item[0][0], -item[0][1], item[1]),
    )
    merged: list[tuple[Range, tuple[int, ...]]] = []
    for (start, end), side in places:
        if merged and start < merged[-1][0][1]:
            (low, high), sides = merged[-1]
            merged[-1] = ((low, max(high, end)), tuple(sorted({*sides, side})))
        else:
            merged.append(((start, end), (side,)))
    return merged


def _mark(text: str, sides: Sequence[int], pair: EntityPair, marking: Marking, masks: Mapping[str, str]) -> str:
    if marking == "markers":
        opening = " ".join(f"[E{side}]" for side in sides)
        closing = " ".join(f"[/E{side}]" for side in reversed(sides))
        return f"{opening} {text} {closing}"
    types = [(pair.first, pair.second)[side - 1].type for side in sides]
    if len(types) == 1:
        return mask_token(types[0], masks)
    return masks.get("-".join(types), f"@{'-'.join(mask_token(type_, masks).strip('@$') for type_ in types)}$")


def mask_token(type_: str, masks: Mapping[str, str]) -> str:
    """The text that replaces an entity of a type: @GENE$ for Gene, unless `masks` has another."""
    return masks.get(type_, f"@{type_.upper()}$")


class Relations(Task):
    """Relation extraction: the relation between two entities, or none.

    With `pairs`, each pair of entities of these types is classified, and documents carry mentions and relations.
    Without, each document is a sentence with marked entities, and carries one label.

    labels   relation types, and the label for no relation
    none     the label for no relation; by default the only label that is not scored
    scored   the labels that count in F1; by default all but none
    pairs    pairs of types, such as [("Chemical", "Gene")]
    scope    whether both entities must be in one sentence, or may be anywhere in the document
    level    "mention": between two mentions; "concept": between two concepts, all mentions of which are marked
    marking  "mask": an entity is replaced by @GENE$, or by its entry in `masks`; "markers": it is put between [E1] and
             [/E1]
    roles    the roles of the two entities in predicted relations; by default their types, or Arg1 and Arg2
    others   a relation of a type that is no label is an error ("refuse"), counts as none ("none"), or is ignored
             ("skip")
    overlap  the minimum number of tokens that two windows share if a pair does not fit into one example
    average  the metric that selects models: "micro", "macro" or "accuracy"
    """

    kind = "relation"
    head = "sequence"
    loss = "choice"
    relates = True

    def __init__(
        self,
        labels: Sequence[str],
        *,
        none: str | None = None,
        scored: Sequence[str] | None = None,
        pairs: Sequence[Sequence[str]] = (),
        scope: Scope = "sentence",
        level: Level = "mention",
        marking: Marking = "mask",
        masks: Mapping[str, str] | None = None,
        roles: Sequence[str] | None = None,
        others: Others = "refuse",
        overlap: int = 64,
        average: Average = "micro",
    ) -> None:
        require_names(labels, "labels")
        for value, choices, what in (
            (scope, Scope, "scope"),
            (level, Level, "level"),
            (marking, Marking, "marking"),
            (others, Others, "others"),
            (average, Average, "average"),
        ):
            require_choice(value, get_args(choices), what)
        require_overlap(overlap)
        self.labels, self.groups = tuple(labels), (len(labels),)
        if none is not None:
            require_choice(none, labels, "none")
        elif scored is not None:
            unscored = [label for label in labels if label not in scored]
            none = unscored[0] if len(unscored) == 1 else None
        self.none = none
        self.scored = tuple(scored) if scored is not None else tuple(name for name in labels if name != self.none)
        for label in self.scored:
            require_choice(label, labels, "scored label")
        self.pairs = tuple((str(first), str(second)) for first, second in pairs)
        if self.pairs and self.none is None:
            message = "pairs need a label for no relation. Name it as none."
            raise UsageError(message, code="missing-key", value="none")
        if level == "concept" and scope == "sentence":
            message = 'level is "concept" and scope "sentence"; concepts are related over a whole document.'
            raise UsageError(message, code="conflicting-settings", value="scope")
        self.scope, self.level, self.marking, self.masks = scope, level, marking, dict(masks or {})
        self.roles = tuple(roles) if roles is not None else None
        self.others, self.overlap, self.average = others, overlap, average
        self.notes = Counter()

    @classmethod
    def infer_settings(cls, docs: Iterable[Document]) -> dict[str, Any]:
        """The labels of sentences with marked entities, or else the types of relations and of the pairs they relate."""
        labels: set[str] = set()
        types: set[str] = set()
        pairs: Counter[tuple[str, str]] = Counter()
        places: Counter[Scope] = Counter()
        concepts = False
        for doc in docs:
            labels.update(doc.labels)
            types.update(relation.type for relation in doc.relations)
            concepts |= any(argument.concept for relation in doc.relations for argument in relation.arguments)
            for pair, scope in _related_types(doc):
                pairs[pair] += 1
                places[scope] += 1
        settings: dict[str, Any] = {"kind": cls.kind, "labels": sorted(labels or types)}
        if labels or not pairs:
            return settings
        none = next(name for name in ("none", "no_relation", "NONE", "") if name not in types)
        # Of both orders of two types, the one that is more frequent.
        ordered = [pair for pair, count in pairs.items() if (count, pair) >= (pairs[pair[::-1]], pair[::-1])]
        far = places["document"] > FAR_RELATIONS * places.total()
        settings |= {"labels": [none, *settings["labels"]], "none": none, "pairs": sorted(map(list, ordered))}
        settings["scope"] = "document" if concepts or far else "sentence"
        return settings | ({"level": "concept"} if concepts else {})

    @property
    def closed_labels(self) -> tuple[str, ...]:
        """All labels, unless other relation types are allowed."""
        return self.labels if self.others == "refuse" else ()

    @property
    def input_types(self) -> tuple[str, ...]:
        """The types of the pairs."""
        return tuple(dict.fromkeys(type_ for pair in self.pairs for type_ in pair))

    @property
    def input_pairs(self) -> tuple[tuple[str, str], ...]:
        """The pairs of types that are classified."""
        return self.pairs

    @property
    def uses_sentences(self) -> bool:
        """Whether pairs are those of each sentence."""
        return self.scope == "sentence"

    def oversize(self, doc: Document, limit: int) -> str | None:
        """Pairs grow with the square of the number of mentions."""
        if not self.pairs:
            return None
        mentions = sum(span.type in self.input_types for span in doc.spans)
        # Counting the pairs of too many mentions would itself take too long.
        if mentions > limit or sum(1 for _ in islice(self.candidates(doc), limit + 1)) > limit:
            return f"{mentions:,} mentions in more than {limit:,} pairs. Send it in parts, or with sentence boundaries."
        return None

    def candidates(self, doc: Document) -> Iterator[EntityPair]:
        """All pairs of a document that are classified."""
        return candidate_pairs(doc, self.pairs, scope=self.scope, level=self.level)

    def encode(self, doc: Document, tokenizer: Tokenizer, frame: Frame, *, with_targets: bool) -> list[Example]:
        """An example for each pair, or several for one that is too long."""
        if not self.pairs:
            targets = self._label_target(doc) if with_targets else None
            return text_examples(tokenize(doc.passages, tokenizer), frame, overlap=self.overlap, targets=targets)
        gold = self._gold(doc, self.notes) if with_targets else {}
        examples: list[Example] = []
        seen: set[frozenset[str]] = set()
        for pair in self.candidates(doc):
            targets = None
            if with_targets:
                key = _matching_key(pair, gold)
                label = gold[key] if key is not None else self.none
                seen |= {key} if key is not None else set()
                targets = np.array([self.labels.index(label) if label is not None else IGNORE_INDEX], np.int64)
            marked = mark_pair(doc, pair, marking=self.marking, masks=self.masks)
            examples += self._pair_examples(marked, tokenizer, frame, targets, pair.names)
        missed = sum(1 for key, label in gold.items() if key not in seen and label != self.none)
        if missed:
            self.notes[f"relation skipped: its entities are no pair of these types in one {self.scope}"] += missed
        return examples

    def _label_target(self, doc: Document) -> Ints:
        """The label of a sentence with marked entities."""
        if doc.relations and not doc.labels:
            raise BadDocument(
                "no_label",
                f"document {shorten(doc.id)!r} has relations and no label; a task without pairs expects sentences with "
                "marked entities and a label. Name the pairs of types and the label none.",
            )
        return label_target(doc, self.labels)

    def _gold(self, doc: Document, notes: Counter[str]) -> dict[frozenset[str], str | None]:
        """The label of each two names that are related, None if the relation is to be ignored.

        A relation of a type that is no label never replaces one that is, whichever comes first.
        """
        gold: dict[frozenset[str], str | None] = {}
        relations: Sequence[Relation] = doc.relations
        if self.others != "refuse":
            relations = sorted(relations, key=lambda relation: relation.type not in self.labels)
        for relation in relations:
            key = relation_key(relation)
            if key is None:
                notes["relation skipped: not between two entities"] += 1
            elif key in gold and gold[key] != relation.type:
                notes["relation skipped: its entities have another relation"] += 1
            elif relation.type in self.labels or self.others == "refuse":
                gold[key] = self.labels[label_index(relation.type, self.labels, doc)]
            else:
                how = "counted as none" if self.others == "none" else "ignored"
                notes[f"relation of another type {how}: {relation.type}"] += 1
                gold[key] = self.none if self.others == "none" else None
        return gold

    def _pair_examples(
        self, marked: MarkedText, tokenizer: Tokenizer, frame: Frame, targets: Ints | None, key: tuple[str, ...]
    ) -> list[Example]:
        """One example if the text, or the text around the pair, fits; else one for each window."""
        tokens = tokenize((Passage(0, marked.text),), tokenizer)
        capacity = text_capacity(frame)
        between = np.flatnonzero(
            (tokens.starts >= 0) & (tokens.ends > marked.places[0][0]) & (tokens.starts < marked.places[-1][1])
        )
        if len(tokens) > capacity and self.level == "mention" and len(between) and between[-1] - between[0] < capacity:
            self.notes["text far from a pair skipped"] += 1
            tokens = tokens.part(*_center(tokens, int(between[0]), int(between[-1]) + 1, capacity))
        elif len(tokens) > capacity:
            self.notes["pair longer than one example"] += 1
        return text_examples(tokens, frame, overlap=self.overlap, targets=targets, key=key)

    def decode(
        self, doc: Document, examples: Sequence[Example], logits: Sequence[Floats], *, types: Types | None = None
    ) -> Document:
        """The document with predicted relations in place of those of the task's types, or with the sentence's label.

        With `types`, only relations of these are predicted, and replaced.
        """
        require_same_length(len(examples), len(logits), "examples", "arrays of logits")
        if not self.pairs:
            pooled = pool_logits(logits, "mean", doc, outputs=len(self.labels))
            return with_best_label(doc, self.labels, pooled)
        by_pair: dict[tuple[str, ...], list[Floats]] = {}
        for example, array in zip(examples, logits, strict=True):
            by_pair.setdefault(example.key, []).append(array)
        replaced = [label for label in self.labels if types is None or label in types]
        predicted: list[Relation] = []
        for pair in self.candidates(doc):
            if pair.names not in by_pair:
                raise UsageError(
                    f"document {shorten(doc.id)!r}: there are no examples for the pair {pair.names}; expected all.",
                    code="missing-example",
                    value=pair.names,
                )
            pooled = pool_logits(by_pair[pair.names], "mean", doc, outputs=len(self.labels))
            best = int(pooled.argmax())
            if self.labels[best] != self.none and self.labels[best] in replaced:
                exponents = np.exp(pooled - pooled.max())
                score = float(exponents[best] / exponents.sum())
                roles = self.roles or relation_roles(pair.first.type, pair.second.type)
                arguments = tuple(
                    Argument(role, concept=name) if self.level == "concept" else Argument(role, name)
                    for role, name in zip(roles, pair.names, strict=True)
                )
                predicted.append(Relation("", self.labels[best], arguments, score=score))
        return replace_relations(doc, predicted, replaced)

    def score(self, gold: Sequence[Document], predicted: Sequence[Document]) -> Scores:
        """Micro and macro F1 over the scored labels, and accuracy; gold relations that are no candidates are missed."""
        require_same_length(len(gold), len(predicted), "gold documents", "predicted ones")
        labels: list[tuple[str, str]] = []
        for doc, other in zip(gold, predicted, strict=True):
            if self.pairs:
                labels += self._label_pairs(doc, other)
            else:
                one, two = (self.labels[int(self._label_target(side)[0])] for side in (doc, other))
                labels.append((one, two))
        both = [[(pair[side],) for pair in labels] for side in (0, 1)]
        return label_scores(*both, scored=self.scored, several=False, average=self.average)

    def _label_pairs(self, gold: Document, predicted: Document) -> Iterator[tuple[str, str]]:
        """The gold and predicted label of each pair; none if it is not related."""
        own, other = (self._gold(doc, Counter()) for doc in (gold, predicted))
        seen: set[frozenset[str]] = set()
        for pair in self.candidates(gold):
            keys = [_matching_key(pair, labels) for labels in (own, other)]
            seen |= {key for key in keys if key is not None}
            gold_label, label = (
                labels[key] if key is not None else self.none for key, labels in zip(keys, (own, other), strict=True)
            )
            if gold_label is not None:
                yield gold_label, label or str(self.none)
        for key in {*own, *other} - seen:
            gold_label = own.get(key, self.none)
            if gold_label is not None:
                yield gold_label, other.get(key) or str(self.none)

    def predictions(self, doc: Document) -> set[Hashable]:
        """The relations of the task's types, or the sentence's label."""
        return relation_keys(doc, self.labels) if self.pairs else set(doc.labels)


def _matching_key(pair: EntityPair, gold: Mapping[frozenset[str], str | None]) -> frozenset[str] | None:
    """The key under which a pair is related: its own names, or else concepts of its mentions."""
    own = frozenset(pair.names)
    if own in gold:
        return own
    keys = (frozenset((one, other)) for one in pair.first.concepts for other in pair.second.concepts)
    return next((key for key in keys if key in gold), None)


def _center(tokens: TokenizedText, first: int, last: int, size: int) -> Range:
    """A range of `size` tokens with first to last in its middle, as far as the text goes; it begins at a word."""
    start = max(0, first - (size - (last - first)) // 2)
    end = min(len(tokens), start + size)
    start = max(0, end - size)
    while start < first and tokens.begins[start] == INSIDE:
        start += 1
    return start, end
