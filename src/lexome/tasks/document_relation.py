"""Relation extraction over whole documents: one pass of the encoder scores all pairs of mentions.

A schema may ask for a pass per subject instead: each sentence is encoded once for each of its subjects, which is
marked, so that the encoder knows whose relations to look for.

A token head gives each mention a vector per relation as its first and as its second side; the logit of a relation is
the scaled product of the two, plus a bias for each side. Logits of the mention pairs of two entities are pooled by
logsumexp, and a softmax over the relations of a schema and "no relation" (logit 0) decides.

N mention pairs, P entity pairs, T tokens of an example, C outputs of the head, R relations of all schemas, V schemas
with novelty, W width of a vector
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import combinations
from threading import Lock
from types import MappingProxyType
from typing import Any, Literal, Self, get_args

import numpy as np

from lexome.document import Argument, Document, Relation, Span, shorten
from lexome.errors import BadDocument, UsageError
from lexome.tasks.metrics.spans import NO_COUNTS, Counts
from lexome.tasks.relation import Level, Others, Scope
from lexome.tasks.task import (
    IGNORE_INDEX,
    INSIDE,
    NO_OFFSET,
    CalibrationExample,
    Example,
    Floats,
    Frame,
    Ints,
    PairOutputs,
    Scores,
    Task,
    TokenizedText,
    Tokenizer,
    Types,
    anchored_windows,
    relation_keys,
    relation_roles,
    replace_relations,
    require_choice,
    require_logits,
    require_names,
    require_overlap,
    require_same_length,
    single_example,
    text_capacity,
    tokenize,
)

Marking = Literal["type", "none"]
Passes = Literal["document", "subject"]

# Mention pairs of one window; in a window of more, those farthest apart are not scored.
MAX_PAIRS = 4096
# Pairs of entities that these mentions stand for: mentions of many concepts each stand for all pairs of those.
MAX_ENTITY_PAIRS = 8 * MAX_PAIRS
# Subjects of one sentence; the pairs of later ones are not scored.
MAX_SUBJECTS = 32
# The token on either side of a subject: in the vocabularies of BERT, RoBERTa and SentencePiece, but rare in text.
SUBJECT_MARK = "@"
# Mentions that count as one window: decoding 4,096 pairs, of 90 mentions, takes as long as encoding a few windows.
MENTIONS_PER_WINDOW = 5
# Threads that annotate share one task.
NOTING = Lock()
# Columns of an example's targets, one row for each mention pair. NOVEL is 1, 0, or IGNORE_INDEX.
PAIR, FIRST, SECOND, SCHEMA, LABEL, NOVEL = range(6)
COLUMNS = 6


@dataclass(frozen=True, slots=True)
class Schema:
    """Relations between entities of given types, as one source annotates them.

    name     of the schema, as [task.annotated] lists it
    labels   relation types, of which a pair has at most one
    pairs    pairs of entity types, first and second role
    level    "concept": between two concepts, all mentions of which count; "mention": between two mentions
    scope    mentions further apart than a sentence are pairs ("document") or not ("sentence")
    novelty  whether relations are predicted to be novel or not
    others   a relation of another type between such entities is ignored ("skip"), counts as none ("none"), or is an
             error ("refuse")
    passes   of the encoder: "document": one for all pairs; "subject": one over the sentence of each mention of a first
             type, which is marked; for pairs of mentions within a sentence
    """

    name: str
    labels: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    level: Level = "concept"
    scope: Scope = "document"
    novelty: bool = False
    others: Others = "skip"
    passes: Passes = "document"

    @classmethod
    def parse(cls, settings: "Mapping[str, Any] | Schema") -> "Schema":
        """A schema of JSON's or TOML's types; UsageError if it is not one."""
        if isinstance(settings, Schema):
            return settings
        known = cls.__slots__
        if unknown := sorted(settings.keys() - set(known)):
            message = f"a schema has the key {unknown[0]!r}; expected some of {', '.join(known)}."
            raise UsageError(message, code="unknown-key", value=unknown[0])
        if missing := [key for key in known[:3] if not settings.get(key)]:
            message = f"a schema of relations needs the key {missing[0]!r}. Add it."
            raise UsageError(message, code="missing-key", value=missing[0])
        require_names(settings["labels"], "labels of a schema")
        pairs = tuple((str(first), str(second)) for first, second in settings["pairs"])
        schema = cls(**{**settings, "labels": tuple(settings["labels"]), "pairs": pairs})
        require_choice(schema.level, get_args(Level), "level of a schema")
        require_choice(schema.scope, get_args(Scope), "scope of a schema")
        require_choice(schema.others, get_args(Others), "others of a schema")
        require_choice(schema.passes, get_args(Passes), "passes of a schema")
        if schema.passes == "subject" and (schema.level, schema.scope) != ("mention", "sentence"):
            message = (
                f"schema {schema.name!r} has passes = 'subject', level {schema.level!r} and scope {schema.scope!r}; "
                "passes per subject need level = 'mention' and scope = 'sentence'. Change these, or passes."
            )
            raise UsageError(message, code="conflicting-settings", value=schema.name)
        return schema

    def roles(self, first: str, second: str) -> tuple[str, str] | None:
        """These types in the order of the schema, or None if it relates no such types."""
        if (first, second) in self.pairs:
            return first, second
        return (second, first) if (second, first) in self.pairs else None

    def as_settings(self) -> dict[str, Any]:
        """The schema in JSON's types."""
        settings = {name: getattr(self, name) for name in self.__slots__}
        return {**settings, "labels": list(self.labels), "pairs": [list(pair) for pair in self.pairs]}


@dataclass(frozen=True, slots=True)
class EntityKey:
    """An entity of a document at one level: a mention's id, a concept, or the text of mentions without concepts."""

    name: str
    type: str
    target: str | None = None
    concept: str | None = None


PairKey = tuple[int, EntityKey, EntityKey]
"""Schema, first and second entity."""


@dataclass(frozen=True, slots=True)
class MentionPair:
    """Two mentions, as token positions in one example and as span ids, and the entities that they belong to."""

    key: PairKey
    first: int
    second: int
    mentions: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class PairScores:
    """A model's prediction for two entities: the probability of each label of a schema, and of no relation.

    label          the most probable one; None for no relation
    novelty        probability that the relation is novel, if the schema has novelty
    mentions       pairs of span ids that stand for the entities, each with the probability of the label by itself
    """

    key: PairKey
    schema: Schema
    probabilities: dict[str | None, float]
    novelty: float | None
    mentions: tuple[tuple[str, str, float], ...]

    @property
    def label(self) -> str | None:
        """The most probable label; None for no relation."""
        return max(self.probabilities, key=lambda label: self.probabilities[label])


class DocumentRelations(Task):
    """Relations between the entities of a document, for several schemas at once, from one pass over the text.

    schemas    which relations between which types (Schema)
    annotated  the schemas that a source annotates; other schemas are neither learned nor scored there. By default all
    width      numbers in the vector of a mention, for each relation and side
    marking    "type": a token that names its type is put before each mention; "none": only subjects are marked
    overlap    the minimum number of tokens that two windows of a long document share
    """

    kind = "document-relation"
    head = "token"
    loss = "pairs"
    relates = True
    table_keys = MappingProxyType({"schemas": Schema.__slots__})

    def __init__(
        self,
        schemas: Sequence[Mapping[str, Any] | Schema],
        *,
        annotated: Mapping[str, Sequence[str]] | None = None,
        width: int = 16,
        marking: Marking = "type",
        overlap: int = 128,
    ) -> None:
        self._schemas = tuple(map(Schema.parse, schemas))
        require_names([schema.name for schema in self._schemas], "names of schemas")
        require_choice(marking, get_args(Marking), "marking")
        require_overlap(overlap)
        if width < 1:
            raise UsageError(f"width is {width}; expected 1 or more.", code="out-of-range", value=width)
        self.width, self.marking, self.overlap = width, marking, overlap
        names = {schema.name for schema in self._schemas}
        self.annotated = {source: tuple(own) for source, own in (annotated or {}).items()}
        for own in self.annotated.values():
            for name in own:
                require_choice(name, sorted(names), "annotated schema")
        self.relations = tuple((schema.name, label) for schema in self._schemas for label in schema.labels)
        self.novelties = tuple(schema.name for schema in self._schemas if schema.novelty)
        heads = [
            *(f"{schema}/{label}" for schema, label in self.relations),
            *(f"{name}/Novel" for name in self.novelties),
        ]
        self.labels = tuple(f"{head}/{number}" for head in heads for number in range(self.outputs_per_relation))
        self.groups = (len(self.labels),)
        numbers = {schema.name: number for number, schema in enumerate(self._schemas)}
        self.pair_outputs = PairOutputs(
            width,
            schema_of_relation=np.array([numbers[schema] for schema, _ in self.relations], np.int64),
            schema_of_novelty=np.array([numbers[name] for name in self.novelties], np.int64),
        )
        self.active = tuple(range(len(self._schemas)))
        self.notes = Counter()

    @property
    def schemas(self) -> tuple[dict[str, Any], ...]:
        """The schemas in JSON's types, as settings have them."""
        return tuple(schema.as_settings() for schema in self._schemas)

    @property
    def outputs_per_relation(self) -> int:
        """A vector and a number for either side."""
        return 2 * self.width + 2

    @property
    def document_labels(self) -> tuple[str, ...]:
        """The relation types of all schemas."""
        return tuple(dict.fromkeys(label for _, label in self.relations))

    @property
    def input_types(self) -> tuple[str, ...]:
        """The types of all pairs."""
        return tuple(dict.fromkeys(type_ for schema in self._schemas for pair in schema.pairs for type_ in pair))

    @property
    def input_pairs(self) -> tuple[tuple[str, str], ...]:
        """The pairs of types of all schemas."""
        return tuple(dict.fromkeys(pair for schema in self._schemas for pair in schema.pairs))

    @property
    def uses_sentences(self) -> bool:
        """Whether some schema pairs mentions within a sentence."""
        return any(schema.scope == "sentence" for schema in self._schemas)

    @property
    def needs_sentences(self) -> bool:
        """Datasets of abstracts lack them, and pairs within a sentence must be the same in training and annotation."""
        return self.uses_sentences

    def oversize(self, doc: Document, limit: int) -> str | None:
        """Windows have bounded pairs, but text of nothing but mentions takes longer to decode than to encode."""
        mentions, most = len(self._spans(doc)), MENTIONS_PER_WINDOW * limit
        if mentions > most:
            return f"{mentions:,} mentions to relate; expected at most {most:,}. Send it in parts."
        return None

    def source_types(self, source: str) -> tuple[str, ...]:
        """The entity types of the schemas that a source annotates."""
        return self.for_source(source).active_types

    @property
    def active_types(self) -> tuple[str, ...]:
        """The entity types of the schemas that are learned and scored."""
        pairs = (pair for number in self.active for pair in self._schemas[number].pairs)
        return tuple(dict.fromkeys(type_ for pair in pairs for type_ in pair))

    def for_source(self, name: str) -> Self:
        """The task for a source that annotates some of the schemas."""
        if name not in self.annotated:
            return self
        task = copy(self)
        own = self.annotated[name]
        task.active = tuple(number for number, schema in enumerate(self._schemas) if schema.name in own)
        return task

    # --- Encoding

    def encode(self, doc: Document, tokenizer: Tokenizer, frame: Frame, *, with_targets: bool) -> list[Example]:
        """An example for each window of the document, most often one; targets have a row for each mention pair.

        Without targets, windows in which nothing can be related are left out: they need not be run.
        """
        tokens = tokenize(doc.passages, tokenizer)
        if not len(tokens):
            self.notes["document without text"] += 1
            return []
        examples = []
        if any(self._schemas[number].passes == "document" for number in self.active):
            marked = self._mark(tokens, self._spans(doc), tokenizer) if self.marking == "type" else tokens
            ranges = anchored_windows(marked, size=text_capacity(frame), overlap=self.overlap)
            examples = [single_example(marked.part(start, end), frame) for start, end in ranges]
        examples += self._subject_examples(doc, tokens, tokenizer, frame)
        if not with_targets:
            return self._with_pairs(doc, examples)
        gold = self._gold(doc, self.notes)
        labeled = []
        every = self._pairs(doc, examples, self.notes)
        scored = {pair.key for pairs in every for pair in pairs}
        if missed := sum(relation is not None and key not in scored for key, relation in gold.items()):
            self.notes["relation skipped: its entities are no pair of these types in one window"] += missed
        for example, pairs in zip(examples, every, strict=True):
            numbers = {key: number for number, key in enumerate(dict.fromkeys(pair.key for pair in pairs))}
            rows = [self._target(pair, numbers[pair.key], gold) for pair in pairs]
            labeled.append(replace(example, targets=np.array(rows, np.int64).reshape(-1, COLUMNS)))
        return labeled

    def _subject_examples(
        self, doc: Document, tokens: TokenizedText, tokenizer: Tokenizer, frame: Frame
    ) -> list[Example]:
        """The sentence of each subject of the schemas with one pass per subject; the key is the subject's id."""
        pairs = self._subject_pairs()
        if not pairs:
            return []
        spans = self._spans(doc)
        by_sentence: dict[int, list[Span]] = {}
        for span, number in zip(spans, _sentence_numbers(doc, spans), strict=True):
            by_sentence.setdefault(number, []).append(span)
        bounds = [0, *_sentence_starts(doc).tolist(), doc.passages[-1].end]
        size = text_capacity(frame)
        examples = []
        for number, mentions in by_sentence.items():
            subjects = [
                one
                for one in mentions
                if any((one.type, other.type) in pairs for other in mentions if other is not one)
            ]
            if len(subjects) > MAX_SUBJECTS:
                self.notes["subject skipped: too many in one sentence"] += len(subjects) - MAX_SUBJECTS
            inside = np.flatnonzero((tokens.starts >= bounds[number]) & (tokens.starts < bounds[number + 1]))
            if not len(inside):
                continue
            sentence = tokens.part(int(inside[0]), int(inside[-1]) + 1)
            for subject in subjects[:MAX_SUBJECTS]:
                marked = self._mark(sentence, mentions, tokenizer, subject)
                place = int(np.searchsorted(np.maximum.accumulate(marked.starts), subject.start))
                start = max(0, min(place - size // 2, len(marked) - size))
                examples.append(single_example(marked.part(start, start + size), frame, key=(subject.id,)))
        return examples

    def _subject_pairs(self) -> set[tuple[str, str]]:
        """The pairs of types of the active schemas with one pass per subject."""
        schemas = (self._schemas[number] for number in self.active)
        return {pair for schema in schemas if schema.passes == "subject" for pair in schema.pairs}

    def _mark(
        self, tokens: TokenizedText, mentions: Sequence[Span], tokenizer: Tokenizer, subject: Span | None = None
    ) -> TokenizedText:
        """The tokens with one before each mention that names its type; it has the offsets of an empty range.

        A subject has a mark on either side as well, which has no offsets.
        """
        marks = {type_: tokenizer.encode(type_.lower())[0][0] for type_ in self.input_types}
        visible = np.flatnonzero(tokens.starts != NO_OFFSET)
        starts = tokens.starts[visible]

        def place_of(offset: int) -> int:
            # A mention that begins inside a token has its mark after it.
            place = int(np.searchsorted(starts, offset))
            return int(visible[place]) if place < len(visible) else len(tokens)

        inserted: list[tuple[int, int, int]] = []  # place, id, offset
        for span in mentions:
            place = place_of(span.start)
            mark = (place, marks[span.type], span.start)
            if span is not subject:
                inserted.append(mark)
                continue
            side = tokenizer.encode(SUBJECT_MARK)[-1][0]
            end = place_of(span.end)
            inserted += [(place, side, NO_OFFSET), mark]
            # Marks of mentions that begin where the subject ends are after the mark at its end.
            inserted.insert(len(inserted) if end == place else 0, (end, side, NO_OFFSET))
        inserted.sort(key=lambda one: one[0])
        at, ids, offsets = np.array(inserted, np.int64).reshape(-1, 3).T
        begins = tokens.begins.copy()
        own = np.array([begins[place] if place < len(tokens) else INSIDE for place in at.tolist()], np.int64)
        # No window may begin between the marks of mentions that begin at one place.
        own[1:][at[1:] == at[:-1]] = INSIDE
        begins[at[at < len(tokens)]] = INSIDE
        return TokenizedText(
            np.insert(tokens.ids, at, ids),
            np.insert(tokens.starts, at, offsets),
            np.insert(tokens.ends, at, offsets),
            np.insert(begins, at, own),
        )

    def _target(self, pair: MentionPair, number: int, gold: "Mapping[PairKey, Relation | None]") -> list[int]:
        schema = self._schemas[pair.key[0]]
        label, novel = 0, IGNORE_INDEX
        if pair.key in gold:
            relation = gold[pair.key]
            label = IGNORE_INDEX
            if relation is not None:
                # No relation is 0, and relations of all schemas are counted on from 1.
                label = 1 + self.relations.index((schema.name, relation.type))
                novel = int(relation.novel) if schema.novelty and relation.novel is not None else IGNORE_INDEX
        return [number, pair.first, pair.second, pair.key[0], label, novel]

    def _with_pairs(self, doc: Document, examples: Sequence[Example]) -> list[Example]:
        """The examples with two mentions whose types are related."""
        spans = self._spans(doc)
        pairs = {
            pair
            for number in self.active
            for pair in self._schemas[number].pairs
            if self._schemas[number].passes == "document"
        }
        kept = []
        for example in examples:
            if example.key:
                kept.append(example)
                continue
            types = Counter(
                span.type for span, place in zip(spans, self._places(spans, example), strict=True) if place >= 0
            )
            if any(types[first] and types[second] > (first == second) for first, second in pairs):
                kept.append(example)
        return kept

    def _spans(self, doc: Document) -> list[Span]:
        """The mentions of types that are related, in the order of the text."""
        spans = (span for span in doc.spans if span.type in self.input_types)
        return sorted(spans, key=lambda span: (span.start, -span.end, span.id))

    # --- Pairs of mentions and entities

    def _pairs(self, doc: Document, examples: Sequence[Example], notes: Counter[str]) -> list[list[MentionPair]]:
        """The mention pairs of each example. Two mentions that share several windows are a pair in the first."""
        spans = self._spans(doc)
        entities = {level: self._entities(spans, level) for level in get_args(Level)}
        order = {
            level: {entity: number for number, entity in enumerate(dict.fromkeys(e for own in every for e in own))}
            for level, every in entities.items()
        }
        pairs = {pair for number in self.active for pair in self._schemas[number].pairs}
        related = pairs | {(second, first) for first, second in pairs}
        sentence_of = _sentence_numbers(doc, spans)
        by_sentence: dict[int, list[int]] = {}
        for number, sentence in enumerate(sentence_of):
            by_sentence.setdefault(sentence, []).append(number)
        number_of = {span.id: number for number, span in enumerate(spans)}
        seen: set[tuple[int, int]] = set()
        every: list[list[MentionPair]] = []
        for example in examples:
            subject = number_of[example.key[0]] if example.key else None
            schemas = [
                number for number in self.active if (self._schemas[number].passes == "subject") == (subject is not None)
            ]
            present = range(len(spans)) if subject is None else by_sentence[sentence_of[subject]]
            placed = zip(present, self._places([spans[number] for number in present], example), strict=True)
            places = {number: place for number, place in placed if place >= 0}
            if subject is None:
                couples = [couple for couple in combinations(places, 2) if couple not in seen]
            elif subject in places:
                couples = [(min(subject, other), max(subject, other)) for other in places if other != subject]
            else:
                couples = []
            relevant = [(one, other) for one, other in couples if (spans[one].type, spans[other].type) in related]
            if len(relevant) > MAX_PAIRS:
                notes["mention pair skipped: too many in one window, and these are farthest apart"] += (
                    len(relevant) - MAX_PAIRS
                )
                relevant.sort(key=lambda couple: (spans[couple[1]].start - spans[couple[0]].start, couple))
                relevant = sorted(relevant[:MAX_PAIRS])
            if subject is None:
                seen.update(relevant)
            rows: list[MentionPair] = []
            skipped = 0
            for one, other in relevant:
                same_sentence = sentence_of[one] == sentence_of[other]
                for number in schemas:
                    schema = self._schemas[number]
                    if schema.scope == "sentence" and not same_sentence:
                        continue
                    own = entities[schema.level]
                    if len(rows) + len(own[one]) * len(own[other]) > MAX_ENTITY_PAIRS:
                        skipped += len(own[one]) * len(own[other])
                        continue
                    for first in own[one]:
                        for second in own[other]:
                            key = self._key(number, first, second, order[schema.level])
                            if key is not None:
                                swapped = key[1] is not first
                                left, right = (other, one) if swapped else (one, other)
                                mentions = spans[left].id, spans[right].id
                                if subject is not None and left != subject:
                                    continue
                                rows.append(MentionPair(key, places[left], places[right], mentions))
            if skipped:
                notes["entity pair skipped: too many in one window, and mentions have many concepts"] += skipped
            every.append(rows)
        return every

    def _key(self, number: int, first: EntityKey, second: EntityKey, order: Mapping[EntityKey, int]) -> PairKey | None:
        """The pair in the schema's order of types, of one type in the order of first mentions; None if not related."""
        if first == second:
            return None
        roles = self._schemas[number].roles(first.type, second.type)
        if roles is None:
            return None
        if first.type == second.type:
            return (number, first, second) if order[first] < order[second] else (number, second, first)
        return (number, first, second) if roles[0] == first.type else (number, second, first)

    def _entities(self, spans: Sequence[Span], level: Level) -> list[tuple[EntityKey, ...]]:
        """The entities of each mention: itself, or its concepts, or without concepts all mentions of the same text."""
        if level == "mention":
            return [(EntityKey(span.id, span.type, target=span.id),) for span in spans]
        types: dict[str, str] = {}
        first_of: dict[tuple[str, str], str] = {}
        entities: list[tuple[EntityKey, ...]] = []
        for span in spans:
            if span.concepts:
                own = tuple(dict.fromkeys(span.concepts))
                # A concept has the type of its first mention.
                entities.append(tuple(EntityKey(name, types.setdefault(name, span.type), concept=name) for name in own))
            else:
                name = (span.type, span.text.casefold())
                target = first_of.setdefault(name, span.id)
                entities.append((EntityKey(target, span.type, target=target),))
        return entities

    def _places(self, spans: Sequence[Span], example: Example) -> list[int]:
        """The token of each mention in an example, its mark or else its first token; -1 if it is not in the example."""
        starts, ends = example.starts, example.ends
        marks = np.flatnonzero((starts == ends) & (starts != NO_OFFSET))
        text = np.flatnonzero(starts < ends)
        if not len(text):
            return [-1] * len(spans)
        low, high = int(starts[text[0]]), int(ends[text].max())
        by_start: dict[int, list[int]] = {}
        for place in marks.tolist():
            by_start.setdefault(int(starts[place]), []).append(place)
        positions = np.searchsorted(starts[text], [span.start for span in spans])
        places = []
        for span, position in zip(spans, positions.tolist(), strict=True):
            own = by_start.get(span.start)
            if span.start < low or span.start >= high:
                places.append(-1)
            elif own:
                # Mentions that begin at one place have their marks in the order of the mentions.
                places.append(own.pop(0))
            elif self.marking == "type" or example.key:
                places.append(-1)
            else:
                places.append(int(text[min(position, len(text) - 1)]))
        return places

    # --- Gold relations

    def _gold(self, doc: Document, notes: Counter[str]) -> "dict[PairKey, Relation | None]":
        """The relation of each related pair of the active schemas; None if its type is ignored."""
        spans = self._spans(doc)
        gold: dict[PairKey, Relation | None] = {}
        for number in self.active:
            schema = self._schemas[number]
            own = self._entities(spans, schema.level)
            order = {entity: place for place, entity in enumerate(dict.fromkeys(e for each in own for e in each))}
            by_name: dict[str, EntityKey] = {entity.name: entity for entity in order}
            by_span = {span.id: each for span, each in zip(spans, own, strict=True)}
            # A relation of a type that is ignored never replaces one that counts.
            for relation in sorted(doc.relations, key=lambda relation: relation.type not in schema.labels):
                sides = [self._sides(argument, by_name, by_span) for argument in relation.arguments]
                if len(sides) != 2:
                    continue
                keys = {self._key(number, first, second, order) for first in sides[0] for second in sides[1]}
                for key in keys - {None}:
                    assert key is not None
                    if relation.type in schema.labels:
                        if gold.get(key) is not None and gold[key] != relation:
                            notes["relation skipped: its entities have another relation"] += 1
                        gold.setdefault(key, relation)
                    elif relation.type in self.document_labels:
                        continue  # of another schema
                    elif schema.others == "refuse":
                        raise BadDocument(
                            "unknown_label",
                            f"document {shorten(doc.id)!r} has the relation {relation.type!r}; the schema "
                            f"{schema.name} has {', '.join(schema.labels)}. Add it there, or set others.",
                        )
                    elif schema.others == "skip" and key not in gold:
                        notes[f"relation of another type ignored: {relation.type}"] += 1
                        gold[key] = None
        return gold

    def _sides(
        self, argument: Argument, by_name: Mapping[str, EntityKey], by_span: Mapping[str, tuple[EntityKey, ...]]
    ) -> tuple[EntityKey, ...]:
        if argument.target is not None and argument.target in by_span:
            return by_span[argument.target]
        named = by_name.get(argument.concept or "")
        return () if named is None else (named,)

    # --- Decoding

    def decode(
        self, doc: Document, examples: Sequence[Example], logits: Sequence[Floats], *, types: Types | None = None
    ) -> Document:
        """The document with predicted relations in place of those of the task's types, or of those among `types`."""
        notes: Counter[str] = Counter()
        rows = self._score(doc, examples, logits, notes)
        with NOTING:
            self.notes.update(notes)
        replaced = [label for label in self.document_labels if types is None or label in types]
        predicted = (self._relation(key, [row for _, row in own], replaced) for key, own in rows.items())
        return replace_relations(doc, (relation for relation in predicted if relation is not None), replaced)

    def explain(self, doc: Document, examples: Sequence[Example], logits: Sequence[Floats]) -> list[PairScores]:
        """The probabilities of all pairs of entities, related or not."""
        return [self._pair_scores(key, own) for key, own in self._score(doc, examples, logits, Counter()).items()]

    def _score(
        self, doc: Document, examples: Sequence[Example], logits: Sequence[Floats], notes: Counter[str]
    ) -> dict[PairKey, list[tuple[MentionPair, Floats]]]:
        """The mention pairs of each pair of entities, with their logits."""
        require_same_length(len(examples), len(logits), "examples", "arrays of logits")
        rows: dict[PairKey, list[tuple[MentionPair, Floats]]] = {}
        for example, array, pairs in zip(examples, logits, self._pairs(doc, examples, notes), strict=True):
            require_logits(array, (len(example.ids), len(self.labels)), doc)
            # Mentions of several concepts, and pairs of several schemas, are the same tokens.
            places = {
                ends: number for number, ends in enumerate(dict.fromkeys((one.first, one.second) for one in pairs))
            }
            if not places:
                continue
            ends_N2 = np.array(list(places), np.int64)
            scores_NR = score_pairs(np.asarray(array, np.float64), ends_N2[:, 0], ends_N2[:, 1], width=self.width)
            for pair in pairs:
                rows.setdefault(pair.key, []).append((pair, scores_NR[places[pair.first, pair.second]]))
        return rows

    def _pair_scores(self, key: PairKey, rows: Sequence[tuple[MentionPair, Floats]]) -> PairScores:
        schema = self._schemas[key[0]]
        pooled_R = np.logaddexp.reduce(np.stack([row for _, row in rows]), axis=0)
        names = (None, *schema.labels)
        probabilities = dict(zip(names, self._probabilities(key[0], pooled_R).tolist(), strict=True))
        best = max(range(1, len(names)), key=lambda number: probabilities[names[number]])
        mentions = tuple((*pair.mentions, float(self._probabilities(key[0], row)[best])) for pair, row in rows)
        novelty = None
        if schema.novelty:
            novelty = float(1 / (1 + np.exp(-np.clip(pooled_R[self._novelty_output(key[0])], -500, 500))))
        return PairScores(key, schema, probabilities, novelty, mentions)

    def _probabilities(self, number: int, logits_R: Floats) -> Floats:
        """The probability of no relation, then of each label of a schema."""
        logits = np.concatenate(([0.0], logits_R[np.flatnonzero(self.pair_outputs.schema_of_relation == number)]))
        exponents = np.exp(logits - logits.max())
        probabilities: Floats = exponents / exponents.sum()
        return probabilities

    def _novelty_output(self, number: int) -> int:
        return len(self.relations) + int(np.flatnonzero(self.pair_outputs.schema_of_novelty == number)[0])

    def _relation(self, key: PairKey, rows: Sequence[Floats], types: Collection[str]) -> Relation | None:
        """The predicted relation of a pair, if it has one of these types, or None."""
        schema = self._schemas[key[0]]
        pooled_R = np.logaddexp.reduce(np.stack(rows), axis=0)
        probabilities = self._probabilities(key[0], pooled_R)
        best = int(probabilities.argmax())
        if best == 0 or schema.labels[best - 1] not in types:
            return None
        novel = bool(pooled_R[self._novelty_output(key[0])] > 0) if schema.novelty else None
        score = float(probabilities[best])
        return Relation("", schema.labels[best - 1], key_arguments(key), novel, score=score)

    # --- Scores

    def score(self, gold: Sequence[Document], predicted: Sequence[Document]) -> Scores:
        """F1 of typed relations, over all active schemas together; of pairs, types and novelty for each schema."""
        require_same_length(len(gold), len(predicted), "gold documents", "predicted ones")
        counts: dict[tuple[int, str], Counts] = {}
        for doc, other in zip(gold, predicted, strict=True):
            gold_pairs, predicted_pairs = self._gold(doc, Counter()), self._gold(other, Counter())
            for number in self.active:
                for what, sides in self._comparisons(number, gold_pairs, predicted_pairs).items():
                    one, two = sides
                    hits = len(one & two)
                    added = Counts(hits, len(two) - hits, len(one) - hits)
                    counts[number, what] = counts.get((number, what), NO_COUNTS) + added
        total = sum((counts.get((number, "f1"), NO_COUNTS) for number in self.active), NO_COUNTS)
        scores = {"f1": total.f1, "precision": total.precision, "recall": total.recall}
        for (number, what), count in counts.items():
            scores[f"{self._schemas[number].name} {what}"] = count.f1
        return scores

    def _comparisons(
        self, number: int, gold: "Mapping[PairKey, Relation | None]", predicted: "Mapping[PairKey, Relation | None]"
    ) -> dict[str, tuple[set[Hashable], set[Hashable]]]:
        """The items to compare for a schema: relations with their types, pairs, and novelty, without ignored pairs."""
        schema = self._schemas[number]
        ignored = {_names(key) for key, relation in gold.items() if relation is None and key[0] == number}
        sides = [
            {
                _names(key): relation
                for key, relation in every.items()
                if key[0] == number and relation is not None and _names(key) not in ignored
            }
            for every in (gold, predicted)
        ]
        compared: dict[str, tuple[set[Hashable], set[Hashable]]] = {
            "f1": _both(sides, lambda pair, relation: (pair, relation.type)),
            "pair f1": _both(sides, lambda pair, relation: pair),
        }
        if schema.novelty:
            compared["novelty f1"] = _both(sides, lambda pair, relation: (pair, relation.type, relation.novel))
        return compared

    @property
    def calibrated_types(self) -> tuple[tuple[str, str], ...]:
        """The relation types, rare ones with the others of their schema."""
        return self.relations

    def calibration_examples(
        self, source: str, gold: Sequence[Document], predicted: Sequence[Document]
    ) -> Iterator[CalibrationExample]:
        """The predicted relations of schemas that the source annotates, by schema as pool."""
        present = {relation.type for doc in gold for relation in doc.relations}
        # A source that the task does not know annotates the schemas that it has relations of.
        unknown = source not in self.annotated
        silent = {one.name for one in self._schemas if unknown and not present.intersection(one.labels)}
        task = self.for_source(source)
        for number, pair in enumerate(zip(gold, predicted, strict=True)):
            for schema, type_, score, correct in task.match_relations(*pair):
                if schema not in silent:
                    yield CalibrationExample(type_, schema, score, correct, number)

    def match_relations(self, gold: Document, predicted: Document) -> Iterator[tuple[str, str, float, bool]]:
        """Schema, type and score of each predicted relation, and whether gold has it; without ignored pairs."""
        expected = {(key[0], _names(key)): one for key, one in self._gold(gold, Counter()).items()}
        for key, relation in self._gold(predicted, Counter()).items():
            place = key[0], _names(key)
            ignored = place in expected and expected[place] is None
            if relation is not None and relation.score is not None and not ignored:
                other = expected.get(place)
                correct = other is not None and other.type == relation.type
                yield self._schemas[key[0]].name, relation.type, relation.score, correct

    def predictions(self, doc: Document) -> set[Hashable]:
        """The relations of the task's types."""
        return relation_keys(doc, self.document_labels)

    @classmethod
    def infer_settings(cls, docs: Iterable[Document]) -> dict[str, Any]:
        """One schema of all relation types, between the types of mentions or concepts that have one."""
        labels: set[str] = set()
        pairs: set[tuple[str, str]] = set()
        concepts = False
        for doc in docs:
            types = {span.id: span.type for span in doc.spans}
            types |= {concept: span.type for span in doc.spans for concept in span.concepts}
            for relation in doc.relations:
                kinds = [types.get(argument.target or argument.concept or "") for argument in relation.arguments]
                if len(kinds) == 2 and None not in kinds:
                    labels.add(relation.type)
                    first, second = sorted(map(str, kinds))
                    pairs.add((first, second))
                    concepts |= any(argument.concept for argument in relation.arguments)
        level = "concept" if concepts else "mention"
        schema = {"name": "relations", "labels": sorted(labels), "pairs": sorted(map(list, pairs)), "level": level}
        return {"kind": cls.kind, "schemas": [schema]}


def key_arguments(key: PairKey) -> tuple[Argument, ...]:
    """The arguments of a relation between two entities: the roles are their types, or Arg1 and Arg2 for one type."""
    entities = key[1:]
    roles = relation_roles(entities[0].type, entities[1].type)
    return tuple(
        Argument(role, concept=entity.concept) if entity.concept else Argument(role, entity.target)
        for role, entity in zip(roles, entities, strict=True)
    )


def score_pairs(logits_TC: Floats, first_N: Ints, second_N: Ints, *, width: int) -> Floats:
    """The logit of each relation for each mention pair, (N, R).

    The outputs of a token are, for each relation, its vector as first side, as second side, and a number for each side.
    """
    outputs = 2 * width + 2
    first_NRO = logits_TC[first_N].reshape(len(first_N), -1, outputs)
    second_NRO = logits_TC[second_N].reshape(len(second_N), -1, outputs)
    product_NR = (first_NRO[..., :width] * second_NRO[..., width : 2 * width]).sum(-1) / np.sqrt(width)
    scores_NR: Floats = product_NR + first_NRO[..., -2] + second_NRO[..., -1]
    return scores_NR


def _names(key: PairKey) -> frozenset[str]:
    return frozenset((key[1].name, key[2].name))


def _both(sides: Sequence[Mapping[frozenset[str], Relation]], item: Any) -> tuple[set[Hashable], set[Hashable]]:
    one, two = ({item(pair, relation) for pair, relation in side.items()} for side in sides)
    return one, two


def _sentence_numbers(doc: Document, spans: Sequence[Span]) -> list[int]:
    """The number of the sentence, or of the passage without sentences, that each mention begins in."""
    starts = _sentence_starts(doc)
    return [int(np.searchsorted(starts, span.start, side="right")) for span in spans]


def _sentence_starts(doc: Document) -> Ints:
    """The start of each sentence, or of each passage without sentences."""
    return np.array(
        sorted(start for passage in doc.passages for start, _ in passage.sentences or ((passage.offset, passage.end),)),
        np.int64,
    )
