"""Named entities: mentions of a document as tags of its words or tokens, and back.

T tokens of a document, U units (words or tokens) of it, G groups of tags, K tags of a group, C = G K outputs
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from typing import Any, Literal, Self, get_args

import numpy as np

from lexome.document import Document, Range, Span, numbered_ids
from lexome.errors import UsageError
from lexome.tasks.metrics import bc2gm, mentions, spans_strict
from lexome.tasks.tags import (
    LETTERS,
    Scheme,
    Transitions,
    UnitSpan,
    best_valid_tags,
    decode_tags,
    encode_tags,
    require_transitions,
    scheme_transitions,
    tag_set,
    viterbi,
)
from lexome.tasks.task import (
    IGNORE_INDEX,
    Example,
    Floats,
    Frame,
    Ints,
    NearMiss,
    Scores,
    Task,
    Tokenizer,
    require_choice,
    require_logits,
    require_names,
    require_overlap,
    require_same_length,
)
from lexome.tasks.windows import (
    SENTENCE,
    Tokens,
    Units,
    anchored_windows,
    assign_windows,
    merge_windows,
    pad_special,
    single_example,
    split_units,
    text_capacity,
    tokenize,
)

Discontinuous = Literal["hull", "longest", "skip"]


def align_mentions(
    doc: Document,
    units: Units,
    called: str,
    *,
    types: Collection[str],
    discontinuous: Discontinuous,
    notes: Counter[str],
) -> list[UnitSpan]:
    """The mentions of some types as ranges of units, which are called words or tokens.

    What is lost or moved on the way is counted in notes.
    """
    found = []
    for span in doc.spans:
        if span.type not in types:
            notes[f"mention of another type: {span.type}"] += 1
            continue
        kept = _one_part(doc, span, discontinuous, notes)
        covered = units.covered(*kept) if kept is not None else None
        if kept is None or covered is None:
            notes["mention left out: " + ("it is in parts" if kept is None else "no token stands in it")] += 1
            continue
        first, last = covered
        if not any(low <= first and last <= high for low, high in units.runs):
            notes["mention left out: it reaches over the end of a sentence"] += 1
            continue
        if (units.ranges[first][0], units.ranges[last - 1][1]) != kept:
            notes[f"mention moved to the bounds of {called}"] += 1
        found.append((first, last, span.type))
    return found


def _one_part(doc: Document, span: Span, discontinuous: Discontinuous, notes: Counter[str]) -> Range | None:
    """A mention as one range, as `discontinuous` says; None where it is left out."""
    if len(span.parts) == 1:
        return span.parts[0]
    if discontinuous == "skip":
        return None
    longest = max(span.parts, key=lambda part: part[1] - part[0])
    passage = doc.passage_at(span.start)
    in_one = passage is not None and span.end <= passage.end
    hull = discontinuous == "hull" and in_one
    notes["mention in parts taken as " + ("one" if hull else "its longest part")] += 1
    return (span.start, span.end) if hull else longest


def drop_overlaps(mentions: Sequence[UnitSpan], notes: Counter[str]) -> list[UnitSpan]:
    """Of mentions that overlap the longest, the first of those as long; the others are counted in notes."""
    kept: list[UnitSpan] = []
    taken: set[int] = set()
    for mention in sorted(mentions, key=lambda mention: (mention[0] - mention[1], mention[0])):
        start, end, _ = mention
        if taken.isdisjoint(range(start, end)):
            taken.update(range(start, end))
            kept.append(mention)
        else:
            twice = mention in kept
            notes["mention left out: it " + ("is there twice" if twice else "overlaps a longer one")] += 1
    return kept


def replace_spans(doc: Document, found: Sequence[Span], types: Sequence[str]) -> Document:
    """The document with these spans, numbered in reading order, in place of all of the types."""
    kept = tuple(span for span in doc.spans if span.type not in types)
    gone = {span.id for span in doc.spans} - {span.id for span in kept}
    unmentioned = {name for span in doc.spans for name in span.concepts}.difference(*(span.concepts for span in kept))
    gone |= {
        relation.id
        for relation in doc.relations
        if not unmentioned.isdisjoint(argument.concept for argument in relation.arguments)
    }
    relations = tuple(relation for relation in doc.relations if relation.id not in gone)
    attributes = doc.attributes
    while gone:
        lost = {
            relation.id for relation in relations if any(argument.target in gone for argument in relation.arguments)
        }
        relations = tuple(relation for relation in relations if relation.id not in lost)
        attributes = tuple(attribute for attribute in attributes if attribute.target not in gone)
        gone = lost
    taken = {span.id for span in kept} | {relation.id for relation in relations}
    names = (name for name in numbered_ids("T") if name not in taken)
    ordered = sorted(found, key=lambda span: (span.start, -span.end, span.type))
    spans = tuple(replace(span, id=name) for span, name in zip(ordered, names, strict=False))
    return replace(doc, spans=(*kept, *spans), relations=relations, attributes=attributes)


Labelling = Literal["first", "pieces", "words"]
Decoding = Literal["viterbi", "repair"]
Context = Literal["document", "passage", "sentence"]
Measure = Literal["strict", "bc2gm"]

# Minimum probability of each word of a near miss to be inside a mention.
NEAR_MISS = 0.1

# The type under which the reader of BC2GM's own files has what is accepted as well.
ALTERNATIVES = "ALTGENE"


@dataclass(frozen=True, slots=True)
class InsideProbabilities:
    """How probable it is that each unit is inside a mention of each type.

    ranges     where each unit stands
    runs       ranges of units that a mention may not reach out of
    probabilities_UT  the probabilities, types in the task's order
    """

    ranges: tuple[Range, ...]
    runs: tuple[Range, ...]
    probabilities_UT: Floats


class Ner(Task):
    """Mentions of some types.

    types          what is looked for; mentions of other types are counted in `notes` and left as they are
    nested         False: one choice among all tags, so mentions lie apart. True: each type is a group of tags of its
                   own, so that mentions of different types may overlap
    scheme         "iob2": B and I; "iobes": B, I, E and S
    labelling      "first": only the first token of a word is asked, and answers for it; "words": each token of a word
                   is asked for the word's tag, and their mean answers; "pieces": each token has a tag of its own
    decoding       "viterbi": the best sequence that the scheme allows; "repair": the best tag for each unit, read as
                   conlleval reads them
    discontinuous  a mention in parts is taken as all from its first to its last character ("hull"), as its longest
                   part, or left out ("skip"); each is counted
    context        what a model reads together, as far as it fits: all of a document, or each passage or sentence apart
    overlap        how many tokens two windows of a long text share at least
    annotated      for sources that do not annotate all types: their names, and what they annotate; see `for_source`
    extra          those of the types that annotation finds only where they are asked for by name
    measure        "strict": F1 of mentions with the same characters and type; "bc2gm": gene mentions with alternatives
    """

    kind = "ner"
    head = "token"
    loss = "choice"

    def __init__(
        self,
        types: Sequence[str],
        *,
        nested: bool = False,
        scheme: Scheme = "iob2",
        labelling: Labelling = "first",
        decoding: Decoding = "viterbi",
        discontinuous: Discontinuous = "hull",
        context: Context = "document",
        overlap: int = 64,
        annotated: Mapping[str, Sequence[str]] | None = None,
        extra: Sequence[str] = (),
        measure: Measure = "strict",
        transitions: Mapping[str, Any] | None = None,
    ) -> None:
        require_names(types, "types")
        for seen, known, what in (
            (scheme, Scheme, "scheme"),
            (labelling, Labelling, "labelling"),
            (decoding, Decoding, "decoding"),
            (discontinuous, Discontinuous, "discontinuous"),
            (context, Context, "context"),
            (measure, Measure, "measure"),
        ):
            require_choice(seen, get_args(known), what)
        require_overlap(overlap)
        self.types, self.nested, self.scheme = tuple(types), nested, scheme
        self.labelling, self.decoding, self.discontinuous = labelling, decoding, discontinuous
        self.context, self.overlap, self.measure = context, overlap, measure
        self.annotated = self._annotated(annotated or {})
        self.extra = self._extra(extra)
        self.asked: frozenset[str] = frozenset(types)
        self.notes: Counter[str] = Counter()
        self._tags = [tag_set((type_,), scheme) for type_ in types] if nested else [tag_set(types, scheme)]
        self._rules = scheme_transitions(self._tags[0], scheme)
        self.groups = tuple(map(len, self._tags))
        self.labels = self._tags[0]
        if nested:
            outside = [(f"O-{type_}", *tags[1:]) for type_, tags in zip(types, self._tags, strict=True)]
            self.labels = tuple(label for labels in outside for label in labels)
        self.transitions: Transitions | None = None
        if transitions is not None:
            arrays = (np.array(transitions[name], np.float64) for name in ("between", "first", "last"))
            self.transitions = self._checked(Transitions(*arrays))

    def with_transitions(self, transitions: Transitions) -> Self:
        """The same task with a CRF's numbers, (G, K, K) and twice (G, K), which decoding then adds to the tags'."""
        made = copy(self)
        made.transitions = self._checked(transitions)
        return made

    def for_source(self, name: str) -> Self:
        """The task as a source knows it: groups of types that it does not annotate are neither asked nor scored."""
        if name not in self.annotated:
            return self
        made = copy(self)
        made.asked = frozenset(self.annotated[name])
        return made

    def encode(self, doc: Document, tokenizer: Tokenizer, frame: Frame, *, with_targets: bool) -> list[Example]:
        """A row for each window of the document. A token that stands in two is asked in its own alone."""
        tokens = tokenize(doc.passages, tokenizer)
        if not len(tokens):
            self.notes["document without text"] += 1
            return []
        ranges = [
            (low + start, low + end)
            for low, high in self._sequences(doc, tokens)
            for start, end in anchored_windows(tokens.part(low, high), size=text_capacity(frame), overlap=self.overlap)
        ]
        targets = self._targets(doc, tokens) if with_targets else None
        owners = assign_windows(ranges, len(tokens)) if with_targets else None
        rows = []
        for number, (start, end) in enumerate(ranges):
            own: Ints | None = None
            if targets is not None and owners is not None:
                mine = owners[start:end, None] == number
                own = pad_special(np.where(mine, targets[start:end], IGNORE_INDEX), frame, IGNORE_INDEX)
            key = (str(start), str(len(frame.before)), str(len(frame.before) + end - start))
            rows.append(single_example(tokens.part(start, end), frame, targets=own, key=key))
        return rows

    def decode(
        self, doc: Document, rows: Sequence[Example], logits: Sequence[Floats], *, types: Collection[str] | None = None
    ) -> Document:
        """The document with mentions of the task's types as found, each with its mean probability as score.

        With `types`, only these are looked for. Mentions of other types stay, and relations and attributes that do not
        lean on what is gone.
        """
        require_same_length(len(rows), len(logits), "rows", "arrays of numbers")
        wanted = self.types if types is None else tuple(type_ for type_ in self.types if type_ in types)
        found: list[Span] = []
        if rows and wanted:
            groups = [self.types.index(type_) for type_ in wanted] if self.nested else [0]
            units, scores_UGK = self._scored(doc, rows, logits, groups)
            found = [span for span in self._spans(doc, units, scores_UGK, groups) if span.type in wanted]
        return replace_spans(doc, found, wanted)

    def inside(self, doc: Document, rows: Sequence[Example], logits: Sequence[Floats]) -> InsideProbabilities:
        """How probable each unit is to be inside a mention, whatever `decode` makes of it."""
        if not rows:
            return InsideProbabilities((), (), np.zeros((0, len(self.types))))
        units, scores_UGK = self._scored(doc, rows, logits, range(len(self.groups)))
        shares_UGK = np.exp(scores_UGK)
        letters = len(LETTERS[self.scheme])
        # Behind O each type has its tags together, in one group or in its own.
        probabilities_UT = shares_UGK[:, :, 1:].reshape(len(units.ranges), len(self.types), letters).sum(2)
        return InsideProbabilities(units.ranges, units.runs, probabilities_UT)

    @property
    def document_labels(self) -> tuple[str, ...]:
        """None: the labels of this task are tags."""
        return ()

    @property
    def uses_sentences(self) -> bool:
        """Whether each sentence is encoded separately."""
        return self.context == "sentence"

    def near_misses(
        self, doc: Document, rows: Sequence[Example], logits: Sequence[Floats], spans: Sequence[Span]
    ) -> Iterator[NearMiss]:
        """Longest runs of units that are each inside a mention of a type with probability NEAR_MISS or more.

        Runs that predicted mentions of their type cover are left out.
        """
        inside = self.inside(doc, rows, logits)
        for number, type_ in enumerate(self.types):
            same_type = [span for span in spans if span.type == type_]
            for low, high in inside.runs:
                start = low
                for place in range(low, high + 1):
                    if place < high and inside.probabilities_UT[place, number] >= NEAR_MISS:
                        continue
                    if place > start:
                        where = (inside.ranges[start][0], inside.ranges[place - 1][1])
                        # Mentions of different types exclude one another unless they may be nested.
                        reason = _reason_missed(where, type_, same_type, () if self.nested else spans)
                        if reason is not None:
                            score = float(inside.probabilities_UT[start:place, number].mean())
                            yield NearMiss(where, type_, score, reason)
                    start = place + 1

    def score(self, gold: Sequence[Document], found: Sequence[Document]) -> Scores:
        """F1 of all types together first, then precision and recall, then F1 of each type where there are several."""
        require_same_length(len(gold), len(found), "gold documents", "found ones")
        if self.measure == "bc2gm":
            wanted, given = ([_places(doc, self.asked) for doc in docs] for docs in (gold, found))
            accepted = [_places(doc, {ALTERNATIVES}) for doc in gold]
            counts = bc2gm(wanted, accepted, given, texts=[doc.text for doc in gold])
            return {"f1": counts.f1, "precision": counts.precision, "recall": counts.recall}
        strict = spans_strict(*([mentions(doc, self.asked) for doc in docs] for docs in (gold, found)))
        scores = {"f1": strict.f1, "precision": strict.precision, "recall": strict.recall}
        if len(self.asked) > 1:
            scores |= {f"f1 {type_}": counts.f1 for type_, counts in strict.types.items()}
        return scores

    def settings(self) -> Mapping[str, Any]:
        """All arguments, as JSON has them."""
        held: dict[str, Any] = {
            "kind": self.kind,
            "types": list(self.types),
            "nested": self.nested,
            "scheme": self.scheme,
            "labelling": self.labelling,
            "decoding": self.decoding,
            "discontinuous": self.discontinuous,
            "context": self.context,
            "overlap": self.overlap,
            "annotated": {name: list(types) for name, types in self.annotated.items()},
            "measure": self.measure,
        }
        if self.extra:
            held["extra"] = list(self.extra)
        if self.transitions is not None:
            crf = self.transitions
            numbers = {"between": crf.between, "first": crf.first, "last": crf.last}
            held["transitions"] = {name: value.tolist() for name, value in numbers.items()}
        return held

    def _annotated(self, annotated: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
        if annotated and not self.nested:
            raise UsageError("annotated is given, but not nested=True; one choice among all tags cannot be half asked.")
        for types in annotated.values():
            for type_ in types:
                require_choice(type_, self.types, "annotated type")
        return {name: tuple(types) for name, types in annotated.items()}

    def _extra(self, extra: Sequence[str]) -> tuple[str, ...]:
        if extra:
            require_names(extra, "extra types")
        for type_ in extra:
            require_choice(type_, self.types, "extra type")
        if len(extra) == len(self.types):
            raise UsageError(
                "extra names all types, so that nothing would be found unless it is asked for. Leave one or more out."
            )
        return tuple(extra)

    def _checked(self, transitions: Transitions) -> Transitions:
        require_transitions(transitions, len(self.groups), self.groups[0])
        return transitions

    def _sequences(self, doc: Document, tokens: Tokens) -> list[Range]:
        """The ranges of tokens that are read together."""
        if self.context == "document":
            bounds = [0]
        elif self.context == "sentence":
            bounds = np.flatnonzero(tokens.begins == SENTENCE).tolist()
        else:
            offsets = [passage.offset for passage in doc.passages]
            bounds = [int(place) for place in np.searchsorted(np.maximum.accumulate(tokens.starts), offsets)]
        cut = sorted({0, *bounds, len(tokens)})
        return list(pairwise(cut))

    def _units(self, doc: Document, starts: Ints, ends: Ints) -> Units:
        return split_units(doc, starts, ends, words=self.labelling != "pieces", sentences=self.context == "sentence")

    def _targets(self, doc: Document, tokens: Tokens) -> Ints:
        """The tags of all tokens, (T, G)."""
        units = self._units(doc, tokens.starts, tokens.ends)
        count = len(units.ranges)
        tags_UG = np.full((count, len(self.groups)), IGNORE_INDEX, np.int64)
        called = "tokens" if self.labelling == "pieces" else "words"
        known = align_mentions(doc, units, called, types=self.types, discontinuous=self.discontinuous, notes=self.notes)
        for group, tags in enumerate(self._tags):
            types = {self.types[group]} if self.nested else set(self.types)
            if types & self.asked:
                own = drop_overlaps([mention for mention in known if mention[2] in types], self.notes)
                tags_UG[:, group] = encode_tags(own, count, tags, self.scheme)
        targets = np.full((len(tokens), len(self.groups)), IGNORE_INDEX, np.int64)
        here = units.of >= 0
        if self.labelling == "first":
            here &= np.isin(np.arange(len(tokens)), units.firsts)
        targets[here] = tags_UG[units.of[here]]
        return targets

    def _scored(
        self, doc: Document, rows: Sequence[Example], logits: Sequence[Floats], groups: Sequence[int]
    ) -> tuple[Units, Floats]:
        """The units of a document with the log-probabilities of their tags in some groups, (U, G, K)."""
        for row, numbers in zip(rows, logits, strict=True):
            require_logits(numbers, (len(row.ids), len(self.labels)), doc)
        if len(groups) < len(self.groups):
            columns = np.arange(len(self.labels)).reshape(len(self.groups), -1)[list(groups)].ravel()
            logits = [numbers[:, columns] for numbers in logits]
        starts, ends, whole = _whole(rows, logits)
        units = self._units(doc, starts, ends)
        return units, self._scores(units, whole)

    def _scores(self, units: Units, logits_TC: Floats) -> Floats:
        """Log-probabilities of the units' tags, (U, G, K)."""
        tags = self.groups[0]
        logits_TGK = logits_TC.reshape(len(logits_TC), -1, tags)
        if self.labelling == "first" or not len(units.ranges):
            return _log_softmax(logits_TGK[units.firsts])
        log_TGK = _log_softmax(logits_TGK)
        here = units.of >= 0
        sums = np.zeros((len(units.ranges), *log_TGK.shape[1:]))
        np.add.at(sums, units.of[here], log_TGK[here])
        counts = np.bincount(units.of[here], minlength=len(units.ranges))
        return np.asarray(sums / counts[:, None, None])

    def _spans(self, doc: Document, units: Units, scores_UGK: Floats, groups: Sequence[int]) -> Iterator[Span]:
        """The mentions of some groups, with ids yet to be given."""
        chosen_UG = self._chosen(scores_UGK, units.runs, groups)
        shares_UG = np.exp(np.take_along_axis(scores_UGK, chosen_UG[:, :, None], 2)[:, :, 0])
        begins = {low for low, _ in units.runs}
        for place in np.flatnonzero(chosen_UG.any(0)).tolist():
            for start, end, type_ in decode_tags(chosen_UG[:, place], self._tags[groups[place]], begins):
                where = (units.ranges[start][0], units.ranges[end - 1][1])
                score = float(shares_UG[start:end, place].mean())
                yield Span("", type_, (where,), doc.slice(*where), score=score)

    def _chosen(self, scores_UGK: Floats, runs: Sequence[Range], groups: Sequence[int]) -> Ints:
        """The units' tags in some groups by number, (U, G)."""
        if self.transitions is None:
            return (
                best_valid_tags(scores_UGK, runs, self._rules) if self.decoding == "viterbi" else scores_UGK.argmax(2)
            )
        crf = _sum(self.transitions, self._rules, groups)
        chosen_UG = np.zeros(scores_UGK.shape[:2], np.int64)
        for low, high in runs:
            chosen_UG[low:high] = viterbi(scores_UGK[low:high], crf)
        return chosen_UG


def _whole(rows: Sequence[Example], logits: Sequence[Floats]) -> tuple[Ints, Ints, Floats]:
    """The places of all tokens of a document and their numbers, from the rows that they are spread over."""
    bounds = [tuple(map(int, row.key)) for row in rows]
    ranges = [(first, first + end - begin) for first, begin, end in bounds]
    count = max(end for _, end in ranges)
    starts, ends = np.zeros(count, np.int64), np.zeros(count, np.int64)
    inner = []
    for row, numbers, (low, high), (_, begin, end) in zip(rows, logits, ranges, bounds, strict=True):
        starts[low:high], ends[low:high] = row.starts[begin:end], row.ends[begin:end]
        inner.append(numbers[begin:end])
    return starts, ends, merge_windows(ranges, inner, count)


def _reason_missed(place: Range, type_: str, same_type: Sequence[Span], others: Sequence[Span]) -> str | None:
    """Why a range was not predicted as a mention; None where mentions of its type cover it.

    `others` are mentions that exclude it. Both sequences are ordered, and their mentions do not overlap.
    """
    near = list(_overlapping(same_type, place))
    if near and near[0].start <= place[0] and place[1] <= near[-1].end:
        return None
    if near:
        return f"predicted with other boundaries: {', '.join(repr(span.text) for span in near)}"
    best = max(_overlapping(others, place), key=lambda span: span.score or 0.0, default=None)
    if best is not None:
        return f"predicted as {best.type}: {best.text!r}, {best.score or 0.0:.2f}"
    return f"the most probable tag sequence has no {type_} here"


def _overlapping(spans: Sequence[Span], place: Range) -> Iterator[Span]:
    """Of ordered spans that do not overlap one another, those that overlap a range."""
    first = bisect_right(spans, place[0], key=lambda span: span.end)
    return takewhile(lambda span: span.start < place[1], (spans[number] for number in range(first, len(spans))))


def _places(doc: Document, types: Collection[str]) -> list[Range]:
    return [(span.start, span.end) for span in doc.spans if span.type in types]


def _log_softmax(logits: Floats) -> Floats:
    shifted = logits - logits.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


def _sum(crf: Transitions, grammar: Transitions, groups: Sequence[int]) -> Transitions:
    """A CRF's numbers for some groups, which keep to the scheme as well."""
    own = list(groups)
    return Transitions(crf.between[own] + grammar.between, crf.first[own] + grammar.first, crf.last[own] + grammar.last)
