"""Relations: what holds between two entities of a text, from annotated documents or from sentences already marked."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import Any, Literal, get_args

import numpy as np

from lexome.document import Argument, Document, Passage, Range, Relation, Span, numbered_ids, shorten
from lexome.errors import BadDocument, UsageError
from lexome.tasks.classify import Average, label_scores, label_target, pool_logits, text_examples
from lexome.tasks.task import (
    IGNORE_INDEX,
    Example,
    Floats,
    Frame,
    Ints,
    Scores,
    Task,
    Tokenizer,
    label_index,
    require_choice,
    require_names,
    require_overlap,
    require_same_length,
)
from lexome.tasks.windows import INSIDE, Tokens, text_capacity, tokenize

Scope = Literal["sentence", "document"]
Level = Literal["mention", "concept"]
Marking = Literal["mask", "markers"]


@dataclass(frozen=True, slots=True)
class Entity:
    """One side of a pair: a mention or a concept by its name, the type, and where it is mentioned."""

    name: str
    type: str
    places: tuple[Range, ...]
    concepts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EntityPair:
    """Two entities that may be related, the first of the first type, in a stretch of text."""

    first: Entity
    second: Entity
    stretch: Range


@dataclass(frozen=True, slots=True)
class MarkedText:
    """A text with a pair marked in it, and where the marks stand in that text."""

    text: str
    places: tuple[Range, ...]


def candidate_pairs(
    doc: Document, types: Sequence[tuple[str, str]], *, scope: Scope, level: Level
) -> Iterator[EntityPair]:
    """All pairs of these types in each sentence, or in the document.

    A passage whose sentences are not known counts as one. Of two of the same type the one that comes first is first.
    """
    entities = _concepts(doc) if level == "concept" else [_mention(span) for span in doc.spans]
    for start, end in _stretches(doc, scope):
        inside = [entity for entity in entities if all(start <= low and high <= end for low, high in entity.places)]
        for one, other in combinations(sorted(inside, key=lambda entity: (entity.places, entity.name)), 2):
            pair = _ordered(one, other, types)
            if pair is not None:
                yield EntityPair(*pair, (start, end))


def relation_key(relation: Relation) -> frozenset[str] | None:
    """The two names that a relation is between, or None where they are not two."""
    names = frozenset(argument.target or argument.concept or "" for argument in relation.arguments)
    return names if len(names) == len(relation.arguments) == 2 else None


def mark_pair(doc: Document, pair: EntityPair, *, marking: Marking, masks: Mapping[str, str]) -> MarkedText:
    """The stretch of a pair with its two entities masked (@GENE$) or between markers ([E1] BRCA1 [/E1]).

    Two that share characters are one mark: @CHEMICAL-GENE$, or both markers around all of it. Of a mention in parts the
    first is marked.
    """
    start, end = pair.stretch
    text = doc.text[start:end]
    pieces: list[str] = []
    places: list[Range] = []
    size = done = 0
    for (low, high), sides in _joined(pair):
        before = text[done : low - start]
        inner = _mark(text[low - start : high - start], sides, pair, marking, masks)
        pieces += (before, inner)
        places.append((size + len(before), size + len(before) + len(inner)))
        size = places[-1][1]
        done = high - start
    return MarkedText("".join((*pieces, text[done:])), tuple(places))


def _mark(text: str, sides: Sequence[int], pair: EntityPair, marking: Marking, masks: Mapping[str, str]) -> str:
    if marking == "markers":
        opened = " ".join(f"[E{side}]" for side in sides)
        closed = " ".join(f"[/E{side}]" for side in reversed(sides))
        return f"{opened} {text} {closed}"
    types = [(pair.first, pair.second)[side - 1].type for side in sides]
    if len(types) == 1:
        return mask_token(types[0], masks)
    return masks.get("-".join(types), f"@{'-'.join(mask_token(type_, masks).strip('@$') for type_ in types)}$")


def mask_token(type_: str, masks: Mapping[str, str]) -> str:
    """What stands in place of an entity of a type: @GENE$ for Gene, unless another is named."""
    return masks.get(type_, f"@{type_.upper()}$")


def _joined(pair: EntityPair) -> list[tuple[Range, tuple[int, ...]]]:
    """The places of both entities in order, those that share characters as one, each with whose it is."""
    places = sorted(
        [(place, 1) for place in pair.first.places] + [(place, 2) for place in pair.second.places],
        key=lambda item: (item[0][0], -item[0][1], item[1]),
    )
    found: list[tuple[Range, tuple[int, ...]]] = []
    for (start, end), side in places:
        if found and start < found[-1][0][1]:
            (low, high), sides = found[-1]
            found[-1] = ((low, max(high, end)), tuple(sorted({*sides, side})))
        else:
            found.append(((start, end), (side,)))
    return found


def _ordered(one: Entity, other: Entity, types: Sequence[tuple[str, str]]) -> tuple[Entity, Entity] | None:
    if (one.type, other.type) in types:
        return one, other
    return (other, one) if (other.type, one.type) in types else None


def _mention(span: Span) -> Entity:
    return Entity(span.id, span.type, span.parts[:1], span.concepts)


def _concepts(doc: Document) -> list[Entity]:
    """Each concept that is mentioned, under the type of its first mention."""
    found: dict[str, tuple[str, list[Range]]] = {}
    for span in sorted(doc.spans, key=lambda span: (span.start, span.end)):
        for concept in span.concepts:
            found.setdefault(concept, (span.type, []))[1].append(span.parts[0])
    return [Entity(name, type_, tuple(places), (name,)) for name, (type_, places) in found.items()]


def _stretches(doc: Document, scope: Scope) -> Iterator[Range]:
    if scope == "document":
        if doc.passages:
            yield doc.passages[0].offset, doc.passages[-1].end
        return
    for passage in doc.passages:
        yield from passage.sentences or ((passage.offset, passage.end),)


Others = Literal["refuse", "none", "skip"]


class Relations(Task):
    """The relation between two entities, or that there is none.

    With `pairs`, each pair of entities of these types is asked for, and documents carry mentions and relations.
    Without, each document is a sentence whose entities are marked in its text, and carries one label.

    labels   the types of relations, and what says that there is none
    none     that one of the labels; where it is not named, the only one that is not scored
    scored   the labels that count in F1; where they are not named, all but none
    pairs    pairs of types, such as [("Chemical", "Gene")]
    scope    whether both entities have to stand in one sentence, or anywhere in the document
    level    "mention": between two mentions; "concept": between two concepts, all mentions of which are marked
    marking  "mask": an entity is replaced by @GENE$, or as `masks` says; "markers": it is put between [E1] and [/E1]
    roles    the roles of the two entities in relations that are found; else their types, or Arg1 and Arg2
    others   a relation of a type that is no label is an error ("refuse"), counts as none ("none"), or is not asked
             ("skip")
    overlap  how many tokens two windows share at least, where a pair does not fit into a row
    average  what models are chosen by: "micro", "macro" or "accuracy"
    """

    kind = "relation"
    head = "sequence"
    loss = "choice"

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
        for seen, known, what in (
            (scope, Scope, "scope"),
            (level, Level, "level"),
            (marking, Marking, "marking"),
            (others, Others, "others"),
            (average, Average, "average"),
        ):
            require_choice(seen, get_args(known), what)
        require_overlap(overlap)
        self.labels, self.groups = tuple(labels), (len(labels),)
        self.none = _none(self.labels, none, scored)
        self.scored = tuple(scored) if scored is not None else tuple(name for name in labels if name != self.none)
        for label in self.scored:
            require_choice(label, labels, "scored label")
        self.pairs = tuple((str(first), str(second)) for first, second in pairs)
        if self.pairs and self.none is None:
            raise UsageError("pairs are given, but not which label says that there is no relation. Name it as none.")
        if level == "concept" and scope == "sentence":
            raise UsageError("the level is concept and the scope sentence; concepts are related over a whole document.")
        self.scope, self.level, self.marking, self.masks = scope, level, marking, dict(masks or {})
        self.roles = tuple(roles) if roles is not None else None
        self.others, self.overlap, self.average = others, overlap, average
        self.notes: Counter[str] = Counter()

    def encode(self, doc: Document, tokenizer: Tokenizer, frame: Frame, *, with_targets: bool) -> list[Example]:
        """A row for each pair, or several for one that is too long for it."""
        if not self.pairs:
            targets = self._one_label(doc) if with_targets else None
            return text_examples(tokenize(doc.passages, tokenizer), frame, overlap=self.overlap, targets=targets)
        gold = self._gold(doc, self.notes) if with_targets else {}
        rows: list[Example] = []
        asked: set[frozenset[str]] = set()
        for pair in self.candidates(doc):
            targets = self._target(pair, gold, asked) if with_targets else None
            text = mark_pair(doc, pair, marking=self.marking, masks=self.masks)
            tokens = tokenize((Passage(0, text.text),), tokenizer)
            key = (pair.first.name, pair.second.name)
            rows += self._pair_rows(text, tokens, frame, targets, key)
        missed = sum(1 for key, label in gold.items() if key not in asked and label != self.none)
        if missed:
            self.notes["relation left out: its entities are no pair of these types in one " + self.scope] += missed
        return rows

    @property
    def input_types(self) -> tuple[str, ...]:
        """The types of all pairs."""
        return tuple(dict.fromkeys(type_ for pair in self.pairs for type_ in pair))

    @property
    def uses_sentences(self) -> bool:
        """Whether both entities have to be in one sentence."""
        return self.scope == "sentence"

    def oversize(self, doc: Document, limit: int) -> str | None:
        """Pairs grow with the square of the mentions."""
        if not self.pairs:
            return None
        mentions = sum(span.type in self.input_types for span in doc.spans)
        # Counting the pairs of so many mentions would itself take too long.
        if mentions > limit or sum(1 for _ in islice(self.candidates(doc), limit + 1)) > limit:
            return f"{mentions:,} mentions in more than {limit:,} pairs. Send it in parts, or with sentence boundaries."
        return None

    def candidates(self, doc: Document) -> Iterator[EntityPair]:
        """All pairs of a document that are asked for."""
        return candidate_pairs(doc, self.pairs, scope=self.scope, level=self.level)

    def decode(
        self, doc: Document, rows: Sequence[Example], logits: Sequence[Floats], *, types: Collection[str] | None = None
    ) -> Document:
        """The document with the relations found, each with its probability, or with the sentence's label.

        Relations of types that are no labels of the task stay; those of its own are replaced.
        """
        require_same_length(len(rows), len(logits), "rows", "arrays of numbers")
        if not self.pairs:
            numbers = pool_logits(logits, "mean", doc, outputs=len(self.labels))
            return replace(doc, labels=(self.labels[int(numbers.argmax())],))
        said: dict[tuple[str, ...], list[Floats]] = {}
        for row, numbers in zip(rows, logits, strict=True):
            said.setdefault(row.key, []).append(numbers)
        kept = tuple(relation for relation in doc.relations if relation.type not in self.labels)
        taken = {span.id for span in doc.spans} | {relation.id for relation in kept}
        names = (name for name in numbered_ids("R") if name not in taken)
        found: list[Relation] = []
        for pair in self.candidates(doc):
            key = (pair.first.name, pair.second.name)
            if key not in said:
                raise UsageError(
                    f"document {shorten(doc.id)!r}: there are no rows for the pair {key}; expected all of them."
                )
            numbers = pool_logits(said[key], "mean", doc, outputs=len(self.labels))
            best = int(numbers.argmax())
            if self.labels[best] != self.none:
                found.append(self._relation(pair, next(names), self.labels[best], _probability(numbers, best)))
        attributes = tuple(attribute for attribute in doc.attributes if attribute.target in taken)
        return replace(doc, relations=(*kept, *found), attributes=attributes)

    def score(self, gold: Sequence[Document], found: Sequence[Document]) -> Scores:
        """Micro and macro F1 over the scored labels, and accuracy. Relations that are no candidates count as missed."""
        require_same_length(len(gold), len(found), "gold documents", "found ones")
        wanted: list[str] = []
        given: list[str] = []
        for doc, other in zip(gold, found, strict=True):
            if self.pairs:
                for own, said in self._compared(doc, other):
                    wanted.append(own)
                    given.append(said)
            else:
                wanted.append(self.labels[int(self._one_label(doc)[0])])
                given.append(self.labels[int(self._one_label(other)[0])])
        both = [[(label,) for label in labels] for labels in (wanted, given)]
        return label_scores(*both, scored=self.scored, several=False, average=self.average)

    def settings(self) -> Mapping[str, Any]:
        """All arguments, as JSON has them."""
        return {
            "kind": self.kind,
            "labels": list(self.labels),
            "none": self.none,
            "scored": list(self.scored),
            "pairs": [list(pair) for pair in self.pairs],
            "scope": self.scope,
            "level": self.level,
            "marking": self.marking,
            "masks": self.masks,
            "roles": list(self.roles) if self.roles is not None else None,
            "others": self.others,
            "overlap": self.overlap,
            "average": self.average,
        }

    def _one_label(self, doc: Document) -> Ints:
        """The number of the label of a sentence whose entities are marked."""
        if doc.relations and not doc.labels:
            raise BadDocument(
                "no_label",
                f"document {shorten(doc.id)!r} has relations and no label; expected the label of a sentence whose "
                "entities are marked, for the task has no pairs. Name the pairs of types and the label none.",
            )
        return label_target(doc, self.labels)

    def _gold(self, doc: Document, notes: Counter[str]) -> dict[frozenset[str], str | None]:
        """The label of each two names that are related, None where it is not to be asked.

        A relation of a type that is no label never takes the place of one that is, whichever comes first.
        """
        found: dict[frozenset[str], str | None] = {}
        given: Sequence[Relation] = doc.relations
        if self.others != "refuse":
            given = sorted(given, key=lambda relation: relation.type not in self.labels)
        for relation in given:
            key = relation_key(relation)
            if key is None:
                notes["relation left out: it is not between two entities"] += 1
            elif key in found and found[key] != relation.type:
                notes["relation left out: its entities are related in another way"] += 1
            else:
                found[key] = self._label(relation, doc, notes)
        return found

    def _label(self, relation: Relation, doc: Document, notes: Counter[str]) -> str | None:
        if relation.type in self.labels or self.others == "refuse":
            return self.labels[label_index(relation.type, self.labels, doc)]
        how = "counted as none" if self.others == "none" else "not asked"
        notes[f"relation of another type {how}: {relation.type}"] += 1
        return self.none if self.others == "none" else None

    def _target(self, pair: EntityPair, gold: Mapping[frozenset[str], str | None], asked: set[frozenset[str]]) -> Ints:
        key = _found_key(pair, gold)
        label = gold[key] if key is not None else self.none
        if key is not None:
            asked.add(key)
        return np.array([self.labels.index(label) if label is not None else IGNORE_INDEX], np.int64)

    def _pair_rows(
        self, text: MarkedText, tokens: Tokens, frame: Frame, targets: Ints | None, key: tuple[str, ...]
    ) -> list[Example]:
        """One row where the text or the stretch around the pair fits, else a row for each window."""
        size = text_capacity(frame)
        here = np.flatnonzero(
            (tokens.starts >= 0) & (tokens.ends > text.places[0][0]) & (tokens.starts < text.places[-1][1])
        )
        if len(tokens) > size and self.level == "mention" and len(here) and here[-1] - here[0] < size:
            self.notes["text far from a pair left out"] += 1
            tokens = tokens.part(*_around(tokens, int(here[0]), int(here[-1]) + 1, size))
        elif len(tokens) > size:
            self.notes["pair in several rows: it is longer than one"] += 1
        return text_examples(tokens, frame, overlap=self.overlap, targets=targets, key=key)

    def _relation(self, pair: EntityPair, name: str, label: str, score: float) -> Relation:
        different = pair.first.type != pair.second.type
        roles = self.roles or ((pair.first.type, pair.second.type) if different else ("Arg1", "Arg2"))
        names = (pair.first.name, pair.second.name)
        if self.level == "concept":
            sides = tuple(Argument(role, concept=name) for role, name in zip(roles, names, strict=True))
        else:
            sides = tuple(Argument(role, name) for role, name in zip(roles, names, strict=True))
        return Relation(name, label, sides, score=score)

    def _compared(self, gold: Document, found: Document) -> Iterator[tuple[str, str]]:
        """The labels of each pair in both, none where it is not related."""
        own, other = (self._gold(doc, Counter()) for doc in (gold, found))
        seen: set[frozenset[str]] = set()
        for pair in self.candidates(gold):
            keys = [_found_key(pair, labels) for labels in (own, other)]
            seen |= {key for key in keys if key is not None}
            wanted, given = (
                labels[key] if key is not None else self.none for key, labels in zip(keys, (own, other), strict=True)
            )
            if wanted is not None:
                yield wanted, given or str(self.none)
        for key in {*own, *other} - seen:
            wanted = own.get(key, self.none)
            if wanted is not None:
                yield wanted, other.get(key) or str(self.none)


def _none(labels: Sequence[str], none: str | None, scored: Sequence[str] | None) -> str | None:
    """The label that says that there is no relation, if one does."""
    if none is not None:
        require_choice(none, labels, "none")
        return none
    left = [label for label in labels if scored is not None and label not in scored]
    return left[0] if len(left) == 1 else None


def _found_key(pair: EntityPair, gold: Mapping[frozenset[str], str | None]) -> frozenset[str] | None:
    """Under which names a pair is related: its own, or else concepts that its mentions refer to."""
    own = frozenset((pair.first.name, pair.second.name))
    if own in gold:
        return own
    keys = (frozenset((one, other)) for one in pair.first.concepts for other in pair.second.concepts)
    return next((key for key in keys if key in gold), None)


def _around(tokens: Tokens, first: int, last: int, size: int) -> tuple[int, int]:
    """A range of `size` tokens with first to last in its middle, as far as the text goes; it begins at a word."""
    start = max(0, first - (size - (last - first)) // 2)
    end = min(len(tokens), start + size)
    start = max(0, end - size)
    while start < first and tokens.begins[start] == INSIDE:
        start += 1
    return start, end


def _probability(logits: Floats, place: int) -> float:
    shifted = np.exp(logits - logits.max())
    return float(shifted[place] / shifted.sum())
