"""Named entity recognition: mentions of a document as tags of its words or tokens, and back.

T tokens of a document, U units (words or tokens) of it, G groups of tags, K tags of a group, C = G K outputs
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise, takewhile
from operator import add
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from lexome.document import Document, Range, Span, numbered_ids
from lexome.errors import UsageError
from lexome.tasks.metrics import bc2gm, count_rows, mentions, spans_strict
from lexome.tasks.metrics.bootstrap import resample
from lexome.tasks.metrics.spans import Mention, merge_parts
from lexome.tasks.task import (
    IGNORE_INDEX,
    NO_OFFSET,
    SENTENCE,
    CalibrationExample,
    Example,
    Floats,
    Frame,
    Ints,
    NearMiss,
    PredictedMention,
    Scores,
    Task,
    TokenizedText,
    Tokenizer,
    Transitions,
    Types,
    Units,
    anchored_windows,
    assign_windows,
    drop_dangling,
    merge_windows,
    pad_special,
    require_choice,
    require_logits,
    require_names,
    require_overlap,
    require_same_length,
    single_example,
    split_units,
    text_capacity,
    tokenize,
)

Scheme = Literal["iob2", "iobes"]
UnitSpan = tuple[int, int, str]
"""A mention in units: the first one, the one after the last, and the type."""


LETTERS: dict[Scheme, str] = {"iob2": "BI", "iobes": "BIES"}
OUTSIDE = "O"

# Tags per group (O, B and I of one type) for which Viterbi searches only between units that are certainly O.
LOCAL_TAGS = 3
# The margin by which O must win to be certain, in log-probability: far above rounding.
MARGIN = 1e-6

# Up to this many groups of three tags, Python's floats are faster than numpy's arrays.
FEW_GROUPS = 8

# Fewer values than this, numpy sums one after the other, as Python does; of more, it sums blocks.
SUMMED_IN_ORDER = 8

# The score of a transition that the scheme forbids: far below every logit, and finite, so that sums can be compared.
FORBIDDEN = -1e9


def tag_set(types: Sequence[str], scheme: Scheme) -> tuple[str, ...]:
    """O, then the tags of each type.

    >>> tag_set(("Gene", "Drug"), "iob2")
    ('O', 'B-Gene', 'I-Gene', 'B-Drug', 'I-Drug')
    """
    return (OUTSIDE, *(f"{letter}-{type_}" for type_ in types for letter in LETTERS[scheme]))


def encode_tags(mentions: Sequence[UnitSpan], count: int, tags: Sequence[str], scheme: Scheme) -> Ints:
    """The tag indices of `count` units; mentions must not overlap.

    >>> encode_tags([(1, 3, "Gene")], 4, ("O", "B-Gene", "I-Gene"), "iob2").tolist()
    [0, 1, 2, 0]
    """
    index = {tag: place for place, tag in enumerate(tags)}
    encoded = np.zeros(count, np.int64)
    for start, end, type_ in mentions:
        letters = ["B", *"I" * (end - start - 1)]
        if scheme == "iobes":
            letters[-1] = "S" if end - start == 1 else "E"
        encoded[start:end] = [index[f"{letter}-{type_}"] for letter in letters]
    return encoded


def decode_tags(indices: Ints, tags: Sequence[str], begins: Collection[int] = ()) -> Iterator[UnitSpan]:
    """The mentions of a sequence of tag indices, read as conlleval reads them; none crosses one of `begins`.

    B begins a mention, S is one, E ends one; I continues one of its type and otherwise begins one.

    >>> tags = tag_set(("Gene", "Drug"), "iob2")
    >>> list(decode_tags(np.array([2, 2, 1, 4, 0]), tags))
    [(0, 2, 'Gene'), (2, 3, 'Gene'), (3, 4, 'Drug')]
    """
    places = np.flatnonzero(indices)  # all but O
    return _join_tags(places.tolist(), indices[places].tolist(), tags, begins)


def _join_tags(
    places: Sequence[int], indices: Sequence[int], tags: Sequence[str], begins: Collection[int]
) -> Iterator[UnitSpan]:
    """The mentions of tags other than O at some places."""
    start, last, previous = 0, NO_OFFSET, OUTSIDE
    for place, index in zip(places, indices, strict=True):
        tag = tags[index]
        continues = previous[0] in "BI" and tag[0] in "IE" and previous[1:] == tag[1:]
        if place != last + 1 or place in begins or not continues:
            if previous != OUTSIDE:
                yield start, last + 1, previous.partition("-")[2]
            start = place
        last, previous = place, tag
    if previous != OUTSIDE:
        yield start, last + 1, previous.partition("-")[2]


def scheme_transitions(tags: Sequence[str], scheme: Scheme) -> Transitions:
    """The scheme's grammar as a CRF of one group: 0 for valid transitions, FORBIDDEN for others."""
    count = len(tags)
    between = np.array([[0.0 if _may_follow(tag, other, scheme) else FORBIDDEN for other in tags] for tag in tags])
    first = np.array([0.0 if _may_follow(OUTSIDE, tag, scheme) else FORBIDDEN for tag in tags])
    last = np.array([0.0 if _may_follow(tag, OUTSIDE, scheme) else FORBIDDEN for tag in tags])
    return Transitions(between.reshape(1, count, count), first.reshape(1, count), last.reshape(1, count))


def _may_follow(tag: str, other: str, scheme: Scheme) -> bool:
    """Whether the second tag may come right after the first."""
    letter, _, type_ = tag.partition("-")
    next_letter, _, next_type = other.partition("-")
    continues = next_letter in ("I", "E")
    if scheme == "iob2":
        return not continues or (letter != OUTSIDE and type_ == next_type)
    is_open = letter in ("B", "I")
    return continues == is_open and (not is_open or type_ == next_type)


def require_transitions(transitions: Transitions, groups: int, tags: int) -> None:
    """Raise unless transition scores have this many groups and tags."""
    shapes = (transitions.between.shape, transitions.first.shape, transitions.last.shape)
    expected = ((groups, tags, tags), (groups, tags), (groups, tags))
    if shapes != expected:
        message = f"transitions have shapes {shapes}; expected {expected}, groups before tags."
        raise UsageError(message, code="shape-mismatch", value=shapes)


def best_valid_tags(scores_UGK: Floats, runs: Sequence[Range], grammar: Transitions) -> Ints:
    """The best tags (U, G) that the scheme allows, in each run of units on its own; `grammar` has one group.

    Viterbi is needed only where the best tags of the units are not a valid sequence.
    """
    best_UG = _most_probable(scores_UGK)
    previous_UG = np.zeros_like(best_UG)
    previous_UG[1:] = best_UG[:-1]
    previous_UG[[low for low, high in runs if low < high]] = 0
    if local := scores_UGK.shape[2] == LOCAL_TAGS:
        invalid_UG = (best_UG == 2) & (previous_UG == 0)
    else:
        ends = [high - 1 for low, high in runs if low < high]
        invalid_UG = grammar.between[0][previous_UG, best_UG] < 0
        invalid_UG[ends] |= grammar.last[0][best_UG[ends]] < 0
    if invalid_UG.any():
        for low, high in runs:
            for group in np.flatnonzero(invalid_UG[low:high].any(0)).tolist():
                places = low + np.flatnonzero(invalid_UG[low:high, group])
                certain_U = _certainly_outside(scores_UGK[low:high, group]) if local else np.zeros(high - low, bool)
                for start, end in _between(low + np.flatnonzero(certain_U), places.tolist(), low, high):
                    best_UG[start:end, group] = viterbi(scores_UGK[start:end, group : group + 1], grammar)[:, 0]
    return best_UG


def _most_probable(scores_UGK: Floats) -> Ints:
    """The first of the best tags, (U, G); column by column, as argmax takes longer for so few tags."""
    best_UG = np.zeros(scores_UGK.shape[:2], np.int64)
    most_UG = scores_UGK[:, :, 0]
    for tag in range(1, scores_UGK.shape[2]):
        np.putmask(best_UG, scores_UGK[:, :, tag] > most_UG, tag)
        most_UG = np.maximum(most_UG, scores_UGK[:, :, tag])
    return best_UG


def _certainly_outside(scores_UK: Floats) -> NDArray[np.bool_]:
    """The units that are O in the best valid sequence of O, B and I, whatever their neighbors are.

    O may follow any tag, and all that another tag can change for the next unit is to allow I instead of B.
    """
    lost_U = scores_UK[:, 0] - scores_UK[:, 1:].max(1)
    won_U = np.append(scores_UK[1:, 2] - scores_UK[1:, 1], 0.0)
    certain_U: NDArray[np.bool_] = lost_U > np.maximum(won_U, 0.0) + MARGIN
    return certain_U


def _between(certain: Ints, places: Sequence[int], low: int, high: int) -> Iterator[Range]:
    """The ranges of uncertain units around some places."""
    end = low
    for place in places:
        if place >= end:
            index = int(np.searchsorted(certain, place))
            start = int(certain[index - 1]) + 1 if index else low
            end = int(certain[index]) if index < len(certain) else high
            yield start, end


def viterbi(scores_UGK: Floats, transitions: Transitions) -> Ints:
    """The tags (U, G) with the largest sum of scores and transitions; transitions of one group apply to all groups."""
    count, groups, tags = scores_UGK.shape
    if count == 0:
        return np.zeros((0, groups), np.int64)
    if tags == 3 and groups <= FEW_GROUPS:
        arrays = (transitions.between, transitions.first, transitions.last)
        by_group = [[array[group % len(array)] for array in arrays] for group in range(groups)]
        paths = [_viterbi_of_three(scores_UGK[:, group], *by_group[group]) for group in range(groups)]
        return np.array(paths, np.int64).T
    total_GK = scores_UGK[0] + transitions.first
    back_UGK = np.zeros(scores_UGK.shape, np.int64)
    for place in range(1, count):
        paths_GKK = total_GK[:, :, None] + transitions.between
        back_UGK[place] = paths_GKK.argmax(1)
        total_GK = paths_GKK.max(1) + scores_UGK[place]
    best_UG = np.zeros((count, groups), np.int64)
    best_UG[-1] = (total_GK + transitions.last).argmax(1)
    for place in range(count - 1, 0, -1):
        best_UG[place - 1] = back_UGK[place][np.arange(groups), best_UG[place]]
    return best_UG


def _viterbi_of_three(scores_UK: Floats, between_KK: Floats, first_K: Floats, last_K: Floats) -> list[int]:
    """The best sequence of one group of three tags, in a tenth of the time that numpy takes for so few numbers.

    Sums are made in the same order, and ties take the first tag, so the result is the same.
    """
    (oo, ob, oi), (bo, bb, bi), (io, ib, ii) = between_KK.tolist()
    scores = scores_UK.tolist()
    o, b, i = map(add, scores[0], first_K.tolist())
    steps: list[tuple[int, int, int]] = []
    for score_o, score_b, score_i in scores[1:]:
        # For each tag the best path to it, and the tag that this path comes from.
        to_o, from_o = (o + oo, 0) if o + oo >= b + bo else (b + bo, 1)
        to_b, from_b = (o + ob, 0) if o + ob >= b + bb else (b + bb, 1)
        to_i, from_i = (o + oi, 0) if o + oi >= b + bi else (b + bi, 1)
        if i + io > to_o:
            to_o, from_o = i + io, 2
        if i + ib > to_b:
            to_b, from_b = i + ib, 2
        if i + ii > to_i:
            to_i, from_i = i + ii, 2
        steps.append((from_o, from_b, from_i))
        o, b, i = to_o + score_o, to_b + score_b, to_i + score_i
    total = list(map(add, (o, b, i), last_K.tolist()))
    best = [total.index(max(total))]
    for step in reversed(steps):
        best.append(step[best[-1]])
    return best[::-1]


Discontinuous = Literal["hull", "longest", "skip"]
Labelling = Literal["first", "pieces", "words"]
Decoding = Literal["viterbi", "repair"]
Context = Literal["document", "passage", "sentence"]
Measure = Literal["strict", "bc2gm"]

# The minimum probability that each word of a near miss is inside a mention.
NEAR_MISS = 0.1

# The type of BC2GM's alternative mentions, which its scoring accepts as well.
ALTERNATIVES = "ALTGENE"


@dataclass(frozen=True, slots=True)
class InsideProbabilities:
    """The probability that each unit is inside a mention of each type.

    ranges            the characters of each unit
    runs              ranges of units that a mention may not cross
    probabilities_UT  types in the task's order
    """

    ranges: tuple[Range, ...]
    runs: tuple[Range, ...]
    probabilities_UT: Floats


class Ner(Task):
    """Mentions of some types.

    types          the types to predict; mentions of other types are counted in `notes` and left unchanged
    nested         False: one choice among all tags, so mentions cannot overlap. True: each type is a group of tags, so
                   mentions of different types may overlap
    scheme         "iob2": B and I; "iobes": B, I, E and S
    labelling      "first": only the first token of a word is labeled, and decides for it; "words": each token of a
                   word has the word's tag, and their mean decides; "pieces": each token has its own tag
    decoding       "viterbi": the best sequence that is valid in the scheme; "repair": the best tag of each unit, read
                   as conlleval reads them
    discontinuous  a discontinuous mention is taken from its first to its last character ("hull"), as its longest part,
                   or skipped ("skip"); each is counted
    context        what a model reads together, as far as it fits: the document, or each passage or sentence
    overlap        the minimum number of tokens that two windows of a long text share
    annotated      for sources that do not annotate all types: their names, and what they annotate; see `for_source`
    measure        "strict": F1 of mentions with the same characters and type; "bc2gm": gene mentions with alternatives
    extra          those of the types that annotation reports only on request
    transitions    a CRF's transition scores, as `settings` has them
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
        measure: Measure = "strict",
        extra: Sequence[str] = (),
        transitions: Mapping[str, Any] | None = None,
    ) -> None:
        require_names(types, "types")
        for value, choices, what in (
            (scheme, Scheme, "scheme"),
            (labelling, Labelling, "labelling"),
            (decoding, Decoding, "decoding"),
            (discontinuous, Discontinuous, "discontinuous"),
            (context, Context, "context"),
            (measure, Measure, "measure"),
        ):
            require_choice(value, get_args(choices), what)
        require_overlap(overlap)
        self.types, self.nested, self.scheme = tuple(types), nested, scheme
        self.labelling, self.decoding, self.discontinuous = labelling, decoding, discontinuous
        self.context, self.overlap, self.measure = context, overlap, measure
        self.annotated = self._check_annotated(annotated or {})
        self.extra = self._check_extra(extra)
        self.asked = frozenset(types)
        self.notes = Counter()
        self._tags = [tag_set((type_,), scheme) for type_ in types] if nested else [tag_set(types, scheme)]
        self._grammar = scheme_transitions(self._tags[0], scheme)
        self.groups = tuple(map(len, self._tags))
        self.labels = self._tags[0]
        if nested:
            by_type = [(f"O-{type_}", *tags[1:]) for type_, tags in zip(types, self._tags, strict=True)]
            self.labels = tuple(label for labels in by_type for label in labels)
        if transitions is not None:
            arrays = (np.array(transitions[name], np.float64) for name in ("between", "first", "last"))
            self.transitions = Transitions(*arrays)
            require_transitions(self.transitions, len(self.groups), self.groups[0])

    def _check_annotated(self, annotated: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
        if annotated and not self.nested:
            message = "annotated needs nested=True: one choice among all tags cannot ignore some types."
            raise UsageError(message, code="conflicting-settings", value="annotated")
        for types in annotated.values():
            for type_ in types:
                require_choice(type_, self.types, "annotated type")
        return {name: tuple(types) for name, types in annotated.items()}

    def _check_extra(self, extra: Sequence[str]) -> tuple[str, ...]:
        if extra:
            require_names(extra, "extra types")
        for type_ in extra:
            require_choice(type_, self.types, "extra type")
        if len(extra) == len(self.types):
            message = "extra names all types, so that nothing would be reported by default. Leave at least one out."
            raise UsageError(message, code="conflicting-settings", value="extra")
        return tuple(extra)

    def settings(self) -> dict[str, Any]:
        """Kind and constructor arguments in JSON's types; without `extra` and `transitions` if there are none."""
        settings = super().settings()
        del settings["transitions"]
        if not self.extra:
            del settings["extra"]
        if self.transitions is not None:
            names = ("between", "first", "last")
            settings["transitions"] = {name: getattr(self.transitions, name).tolist() for name in names}
        return settings

    @classmethod
    def infer_settings(cls, docs: Iterable[Document]) -> dict[str, Any]:
        """The mention types of the documents."""
        return {"kind": cls.kind, "types": sorted({span.type for doc in docs for span in doc.spans})}

    @property
    def document_labels(self) -> tuple[str, ...]:
        """None: predictions are mentions."""
        return ()

    @property
    def uses_sentences(self) -> bool:
        """Whether each sentence is read on its own."""
        return self.context == "sentence"

    def for_source(self, name: str) -> Self:
        """The task for a source: groups of types that it does not annotate are neither learned nor scored."""
        if name not in self.annotated:
            return self
        task = copy(self)
        task.asked = frozenset(self.annotated[name])
        return task

    def require_crf(self) -> None:
        """Raise for a labelling that has no sequence of units to learn transitions on."""
        if self.labelling == "words":
            raise UsageError(
                'head.crf needs labelling = "first" or "pieces", not "words".', code="crf-unsupported", value="words"
            )

    def with_transitions(self, transitions: Transitions) -> Self:
        """The task with a CRF's transition scores, (G, K, K) and twice (G, K), which decoding adds to the logits."""
        require_transitions(transitions, len(self.groups), self.groups[0])
        task = copy(self)
        task.transitions = transitions
        return task

    def encode(self, doc: Document, tokenizer: Tokenizer, frame: Frame, *, with_targets: bool) -> list[Example]:
        """An example for each window of the document; a token of two windows has a target in only one of them."""
        tokens = tokenize(doc.passages, tokenizer)
        if not len(tokens):
            self.notes["document without text"] += 1
            return []
        capacity = text_capacity(frame)
        ranges = [
            (low + start, low + end)
            for low, high in self._sequences(doc, tokens)
            for start, end in anchored_windows(tokens.part(low, high), size=capacity, overlap=self.overlap)
        ]
        targets = self._targets(doc, tokens) if with_targets else None
        owners = assign_windows(ranges, len(tokens)) if with_targets else None
        examples = []
        for number, (start, end) in enumerate(ranges):
            window_targets: Ints | None = None
            if targets is not None and owners is not None:
                owned = owners[start:end, None] == number
                window_targets = pad_special(np.where(owned, targets[start:end], IGNORE_INDEX), frame, IGNORE_INDEX)
            key = (str(start), str(len(frame.before)), str(len(frame.before) + end - start))
            examples.append(single_example(tokens.part(start, end), frame, targets=window_targets, key=key))
        return examples

    def _sequences(self, doc: Document, tokens: TokenizedText) -> list[Range]:
        """The ranges of tokens that are read together."""
        if self.context == "document":
            bounds = [0]
        elif self.context == "sentence":
            bounds = np.flatnonzero(tokens.begins == SENTENCE).tolist()
        else:
            offsets = [passage.offset for passage in doc.passages]
            bounds = [int(place) for place in np.searchsorted(np.maximum.accumulate(tokens.starts), offsets)]
        return list(pairwise(sorted({0, *bounds, len(tokens)})))

    def _units(self, doc: Document, starts: Ints, ends: Ints) -> Units:
        return split_units(doc, starts, ends, words=self.labelling != "pieces", sentences=self.context == "sentence")

    def _targets(self, doc: Document, tokens: TokenizedText) -> Ints:
        """The tag indices of all tokens, (T, G)."""
        units = self._units(doc, tokens.starts, tokens.ends)
        count = len(units.ranges)
        tags_UG = np.full((count, len(self.groups)), IGNORE_INDEX, np.int64)
        name = "token" if self.labelling == "pieces" else "word"
        aligned = align_mentions(doc, units, name, types=self.types, discontinuous=self.discontinuous, notes=self.notes)
        for group, tags in enumerate(self._tags):
            types = {self.types[group]} if self.nested else set(self.types)
            if types & self.asked:
                kept = drop_overlaps([mention for mention in aligned if mention[2] in types], self.notes)
                tags_UG[:, group] = encode_tags(kept, count, tags, self.scheme)
        targets = np.full((len(tokens), len(self.groups)), IGNORE_INDEX, np.int64)
        labeled = units.of >= 0
        if self.labelling == "first":
            labeled &= np.isin(np.arange(len(tokens)), units.firsts)
        targets[labeled] = tags_UG[units.of[labeled]]
        return targets

    def decode(
        self, doc: Document, examples: Sequence[Example], logits: Sequence[Floats], *, types: Types | None = None
    ) -> Document:
        """The document with predicted mentions of the task's types, scored by their mean probability.

        With `types`, only these are predicted. Mentions of other types stay, and so do relations and attributes that do
        not refer to removed ones.
        """
        predicted = self.types if types is None else tuple(type_ for type_ in self.types if type_ in types)
        mentions = self.predict_mentions(doc, examples, logits, types=predicted)
        spans = [
            Span("", one.type, ((one.start, one.end),), doc.slice(one.start, one.end), (), one.score)
            for one in mentions
        ]
        return replace_spans(doc, spans, predicted)

    def predict_mentions(
        self, doc: Document, examples: Sequence[Example], logits: Sequence[Floats], *, types: Types
    ) -> list[PredictedMention]:
        """The mentions that `decode` gives a document, in reading order."""
        require_same_length(len(examples), len(logits), "examples", "arrays of logits")
        groups: Sequence[int] = [0]
        if self.nested:
            groups = [group for group, type_ in enumerate(self.types) if type_ in types]
        if not examples or not groups:
            return []
        units, scores_UGK, groups = self._unit_scores(doc, examples, logits, groups, prune=True)
        mentions = [one for one in self._mentions(units, scores_UGK, groups) if one.type in types]
        return sorted(mentions, key=lambda one: (one.start, -one.end, one.type))

    def calibration_examples(
        self, source: str, gold: Sequence[Document], predicted: Sequence[Document]
    ) -> Iterator[CalibrationExample]:
        """The predicted mentions of types that the source annotates; correct are those with gold's type and offsets."""
        if source in self.annotated:
            types: Collection[str] = self.for_source(source).asked
        else:
            # A source that the task does not know annotates the types it has mentions of.
            types = self.asked & {span.type for doc in gold for span in doc.spans}
        for number, (own, predicted_doc) in enumerate(zip(gold, predicted, strict=True)):
            expected = set(mentions(own, types))
            for span in predicted_doc.spans:
                if span.type in types and span.score is not None:
                    correct = Mention(span.type, merge_parts(span.parts)) in expected
                    yield CalibrationExample(span.type, "", span.score, correct, number)

    def columns_of(self, types: Types) -> tuple[int, ...]:
        """The labels that decoding these types needs: all of them, unless types have groups of their own."""
        groups = [group for group, type_ in enumerate(self.types) if type_ in types]
        return tuple((self._columns_of_groups(groups) if self.nested else np.arange(len(self.labels))).tolist())

    def _columns_of_groups(self, groups: Sequence[int]) -> Ints:
        return np.arange(len(self.labels)).reshape(len(self.groups), -1)[list(groups)].ravel()

    def inside_probabilities(
        self, doc: Document, examples: Sequence[Example], logits: Sequence[Floats]
    ) -> InsideProbabilities:
        """The probability that each unit is inside a mention of each type."""
        if not examples:
            return InsideProbabilities((), (), np.zeros((0, len(self.types))))
        units, scores_UGK, _ = self._unit_scores(doc, examples, logits, range(len(self.groups)))
        # After O come the tags of each type together, whether in one group or in its own.
        tags_UTK = np.exp(scores_UGK)[:, :, 1:].reshape(len(units.ranges), len(self.types), len(LETTERS[self.scheme]))
        return InsideProbabilities(units.ranges, units.runs, tags_UTK.sum(2))

    def near_misses(
        self, doc: Document, examples: Sequence[Example], logits: Sequence[Floats], spans: Sequence[Span]
    ) -> Iterator[NearMiss]:
        """Longest runs of units with probability NEAR_MISS or more of a type, unless mentions of it cover them."""
        inside = self.inside_probabilities(doc, examples, logits)
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

    def _unit_scores(
        self,
        doc: Document,
        examples: Sequence[Example],
        logits: Sequence[Floats],
        groups: Sequence[int],
        *,
        prune: bool = False,
    ) -> tuple[Units, Floats, Sequence[int]]:
        """The units of a document, and log-probabilities of their tags in some groups, (U, G, K).

        With `prune`, groups whose most probable tags are all O may be left out: decoding finds nothing there.
        """
        for example, array in zip(examples, logits, strict=True):
            require_logits(array, (len(example.ids), len(self.labels)), doc)
        if len(groups) < len(self.groups):
            columns = self._columns_of_groups(groups)
            logits = [array.take(columns, axis=1) for array in logits]
        starts, ends, logits_TC = _merge_examples(examples, logits)
        units = self._units(doc, starts, ends)
        logits_TGK = logits_TC.reshape(len(logits_TC), -1, self.groups[0])
        if self.labelling == "first" or not len(units.ranges):
            logits_UGK = logits_TGK[units.firsts]
            if prune and self.transitions is None:
                some = np.flatnonzero(_most_probable(logits_UGK).any(0)).tolist()
                logits_UGK, groups = logits_UGK[:, some], [groups[group] for group in some]
            return units, _log_softmax(logits_UGK), groups
        log_TGK = _log_softmax(logits_TGK)
        labeled = units.of >= 0
        sums_UGK = np.zeros((len(units.ranges), *log_TGK.shape[1:]))
        np.add.at(sums_UGK, units.of[labeled], log_TGK[labeled])
        counts_U = np.bincount(units.of[labeled], minlength=len(units.ranges))
        return units, np.asarray(sums_UGK / counts_U[:, None, None]), groups

    def _mentions(self, units: Units, scores_UGK: Floats, groups: Sequence[int]) -> Iterator[PredictedMention]:
        """The mentions of some groups."""
        best_UG = self._best_tags(scores_UGK, units.runs, groups)
        # All tags but O, group after group: few enough for Python.
        group_N, unit_N = np.nonzero(best_UG.T)
        tag_N = best_UG[unit_N, group_N]
        probabilities = np.exp(scores_UGK[unit_N, group_N, tag_N]).tolist()
        bounds = np.searchsorted(group_N, range(len(groups) + 1)).tolist()
        places, indices = unit_N.tolist(), tag_N.tolist()
        begins = {low for low, _ in units.runs}
        for group, low, high in zip(groups, bounds, bounds[1:], strict=False):
            number = low
            for start, end, type_ in _join_tags(places[low:high], indices[low:high], self._tags[group], begins):
                score = _mean(probabilities[number : number + end - start])
                number += end - start
                yield PredictedMention(units.ranges[start][0], units.ranges[end - 1][1], type_, score)

    def _best_tags(self, scores_UGK: Floats, runs: Sequence[Range], groups: Sequence[int]) -> Ints:
        """The tag indices of the units in some groups, (U, G)."""
        if self.transitions is None:
            if self.decoding == "repair":
                return np.asarray(scores_UGK.argmax(2), np.int64)
            return best_valid_tags(scores_UGK, runs, self._grammar)
        # The CRF's scores, which keep to the scheme as well.
        crf, grammar, chosen = self.transitions, self._grammar, list(groups)
        transitions = Transitions(
            crf.between[chosen] + grammar.between, crf.first[chosen] + grammar.first, crf.last[chosen] + grammar.last
        )
        best_UG = np.zeros(scores_UGK.shape[:2], np.int64)
        for low, high in runs:
            best_UG[low:high] = viterbi(scores_UGK[low:high], transitions)
        return best_UG

    def score(self, gold: Sequence[Document], predicted: Sequence[Document]) -> Scores:
        """Micro F1, precision and recall, then the F1 of each type if there are several."""
        require_same_length(len(gold), len(predicted), "gold documents", "predicted ones")
        if self.measure == "bc2gm":
            gold_ranges, predicted_ranges = (
                [_span_ranges(doc, self.asked) for doc in docs] for docs in (gold, predicted)
            )
            alternatives = [_span_ranges(doc, {ALTERNATIVES}) for doc in gold]
            counts = bc2gm(gold_ranges, alternatives, predicted_ranges, texts=[doc.text for doc in gold])
            return {"f1": counts.f1, "precision": counts.precision, "recall": counts.recall}
        strict = spans_strict(*([mentions(doc, self.asked) for doc in docs] for docs in (gold, predicted)))
        scores = {"f1": strict.f1, "precision": strict.precision, "recall": strict.recall}
        if len(self.asked) > 1:
            scores |= {f"f1 {type_}": counts.f1 for type_, counts in strict.types.items()}
        return scores

    def predictions(self, doc: Document) -> set[Hashable]:
        """The mentions of the task's types."""
        return set(mentions(doc, self.types))

    def resampled_scores(
        self, gold: Sequence[Document], predicted: Sequence[Document], *, samples: int, seed: int = 0
    ) -> Iterator[Scores]:
        """Scores of bootstrap samples, for strict scoring from each document's counts."""
        if self.measure != "strict":
            yield from super().resampled_scores(gold, predicted, samples=samples, seed=seed)
            return
        pairs = zip(gold, predicted, strict=True)
        counts = count_rows([spans_strict(*([mentions(doc, self.types)] for doc in pair)) for pair in pairs])
        for places in resample(len(counts), samples=samples, seed=seed):
            right, spurious, missed = counts[places].sum(axis=0).tolist()
            yield {
                "f1": 2 * right / max(1, 2 * right + spurious + missed),
                "precision": right / max(1, right + spurious),
                "recall": right / max(1, right + missed),
            }


def align_mentions(
    doc: Document, units: Units, unit_name: str, *, types: Types, discontinuous: Discontinuous, notes: Counter[str]
) -> list[UnitSpan]:
    """The mentions of some types as ranges of units, which are words or tokens; what is lost or moved is noted."""
    aligned = []
    for span in doc.spans:
        if span.type not in types:
            notes[f"mention of another type: {span.type}"] += 1
            continue
        part = _single_part(doc, span, discontinuous, notes)
        covered = units.covered(*part) if part is not None else None
        if part is None or covered is None:
            notes["mention skipped: " + ("discontinuous" if part is None else "no token in it")] += 1
            continue
        first, last = covered
        if not any(low <= first and last <= high for low, high in units.runs):
            notes["mention skipped: crosses a sentence boundary"] += 1
            continue
        if (units.ranges[first][0], units.ranges[last - 1][1]) != part:
            notes[f"mention moved to {unit_name} boundaries"] += 1
        aligned.append((first, last, span.type))
    return aligned


def _single_part(doc: Document, span: Span, discontinuous: Discontinuous, notes: Counter[str]) -> Range | None:
    """A mention as one range, by the rule for discontinuous ones; None if it is skipped."""
    if len(span.parts) == 1:
        return span.parts[0]
    if discontinuous == "skip":
        return None
    passage = doc.passage_at(span.start)
    hull = discontinuous == "hull" and passage is not None and span.end <= passage.end
    notes["discontinuous mention taken as " + ("one" if hull else "its longest part")] += 1
    return (span.start, span.end) if hull else max(span.parts, key=lambda part: part[1] - part[0])


def drop_overlaps(mentions: Sequence[UnitSpan], notes: Counter[str]) -> list[UnitSpan]:
    """The longest of mentions that overlap, the first on ties; dropped ones are noted."""
    kept: list[UnitSpan] = []
    occupied: set[int] = set()
    for mention in sorted(mentions, key=lambda mention: (mention[0] - mention[1], mention[0])):
        start, end, _ = mention
        if occupied.isdisjoint(range(start, end)):
            occupied.update(range(start, end))
            kept.append(mention)
        else:
            notes["mention skipped: " + ("duplicate" if mention in kept else "overlaps a longer one")] += 1
    return kept


def replace_spans(doc: Document, spans: Sequence[Span], types: Sequence[str]) -> Document:
    """The document with these spans, numbered in reading order, in place of all its spans of some types.

    Relations and attributes that refer to removed spans, or to concepts that are no longer mentioned, are removed too.
    """
    kept = tuple(span for span in doc.spans if span.type not in types)
    removed = {span.id for span in doc.spans} - {span.id for span in kept}
    unmentioned = {name for span in doc.spans for name in span.concepts}.difference(*(span.concepts for span in kept))
    removed |= {
        relation.id
        for relation in doc.relations
        if not unmentioned.isdisjoint(argument.concept for argument in relation.arguments)
    }
    relations, removed = drop_dangling((one for one in doc.relations if one.id not in removed), removed)
    attributes = tuple(attribute for attribute in doc.attributes if attribute.target not in removed)
    used = {span.id for span in kept} | {relation.id for relation in relations}
    ids = (name for name in numbered_ids("T") if name not in used)
    ordered = sorted(spans, key=lambda span: (span.start, -span.end, span.type))
    added = tuple(
        Span(name, span.type, span.parts, span.text, span.concepts, span.score)
        for span, name in zip(ordered, ids, strict=False)
    )
    return replace(doc, spans=(*kept, *added), relations=relations, attributes=attributes)


def _merge_examples(examples: Sequence[Example], logits: Sequence[Floats]) -> tuple[Ints, Ints, Floats]:
    """The offsets of all tokens of a document and their logits, from its windows."""
    bounds = [tuple(map(int, example.key)) for example in examples]
    ranges = [(first, first + end - begin) for first, begin, end in bounds]
    count = max(end for _, end in ranges)
    starts, ends = np.zeros(count, np.int64), np.zeros(count, np.int64)
    if len(examples) == 1 and ranges[0][0] == 0:
        (_, begin, end), example = bounds[0], examples[0]
        return example.starts[begin:end], example.ends[begin:end], logits[0][begin:end]
    inner = []
    for example, array, (low, high), (_, begin, end) in zip(examples, logits, ranges, bounds, strict=True):
        starts[low:high], ends[low:high] = example.starts[begin:end], example.ends[begin:end]
        inner.append(array[begin:end])
    return starts, ends, merge_windows(ranges, inner, count)


def _mean(values: Sequence[float]) -> float:
    """The mean exactly as numpy computes it; of a few values in Python, which is faster."""
    return reduce(add, values) / len(values) if len(values) < SUMMED_IN_ORDER else float(np.mean(values))


def _reason_missed(place: Range, type_: str, same_type: Sequence[Span], others: Sequence[Span]) -> str | None:
    """Why a range was not predicted as a mention; None if mentions of its type cover it.

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
    """The spans that overlap a range, among ordered spans that do not overlap one another."""
    first = bisect_right(spans, place[0], key=lambda span: span.end)
    return takewhile(lambda span: span.start < place[1], (spans[number] for number in range(first, len(spans))))


def _span_ranges(doc: Document, types: Collection[str]) -> list[Range]:
    return [(span.start, span.end) for span in doc.spans if span.type in types]


def _log_softmax(logits: Floats) -> Floats:
    """The log-softmax, column by column if there are few: numpy is slow at summing few numbers."""
    values = np.asarray(logits, np.float64)
    if values.shape[-1] >= FEW_GROUPS:
        shifted = values - values.max(-1, keepdims=True)
        return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))
    columns = range(values.shape[-1])
    shifted = values - reduce(np.maximum, (values[..., column] for column in columns))[..., None]
    exponents = np.exp(shifted)
    return np.asarray(shifted - np.log(reduce(np.add, (exponents[..., column] for column in columns)))[..., None])
