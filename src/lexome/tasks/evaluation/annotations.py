"""Evaluation of mentions, relations, labels, answers and concepts: metrics and differences."""

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product

import numpy as np

from lexome.document import Document, Question, Range, Relation, Span
from lexome.tasks.evaluation.comparison import (
    Difference,
    DocumentPair,
    DocumentPairs,
    MetricResult,
    Sentence,
    context_of,
    macro_f1_result,
    mean_result,
    micro_f1_result,
    sentence_tags,
)
from lexome.tasks.metrics.answers import CANDIDATES, answer_scores, list_scores, reciprocal_rank, yes_or_no
from lexome.tasks.metrics.bootstrap import Rows, Statistic
from lexome.tasks.metrics.classification import correlation, example_scores, ranks
from lexome.tasks.metrics.spans import (
    ANY_TYPE,
    NO_COUNTS,
    Agreement,
    Mention,
    characters,
    compare_sets,
    largest_matching,
    mean,
    mentions,
    merge_parts,
    overlapping,
    ratio,
    sentence_counts,
    spans_discontinuous,
    spans_relaxed,
    spans_strict,
    sum_agreements,
    without_spaces,
)
from lexome.tasks.metrics.tagging import (
    Chunk,
    Chunker,
    conll_chunks,
    conlleval,
    scheme_chunks,
    seqeval,
    strict_chunks,
    token_accuracy,
)
from lexome.tasks.qa import QuestionPair, base_question_id, merge_questions, normalize

# Mentions, by characters and by tags of tokens

MENTIONS, TOKENS = "mentions", "tokens"

# The type of BC2GM's alternatives, which do not count as mentions.
ALTERNATIVE = "ALTGENE"

_SCHEME_LETTERS = {"IOB1": set("BIO"), "IOB2": set("BIO"), "IOBES": set("BIOES"), "BILOU": set("BILOU")}


@dataclass(frozen=True, slots=True)
class _MentionPair:
    """A document's mentions, gold and predicted."""

    pair: DocumentPair
    gold: list[Mention]
    predicted: list[Mention]


def mention_metrics(pairs: Sequence[DocumentPair], only: Collection[str] | None = None) -> list[MetricResult]:
    """Every metric of mentions; none if neither gold nor predictions have any."""
    docs = _mention_pairs(pairs, only)
    if not any(doc.gold or doc.predicted for doc in docs):
        return []
    both = [([doc.gold], [doc.predicted]) for doc in docs]
    results = [
        micro_f1_result(MENTIONS, "strict", [spans_strict(*two) for two in both]),
        micro_f1_result(MENTIONS, "relaxed (overlap)", [spans_relaxed(*two) for two in both]),
        micro_f1_result(MENTIONS, "characters", [characters(*two) for two in both]),
    ]
    if len({mention.type for doc in docs for mention in (*doc.gold, *doc.predicted)}) > 1:
        for name, agreement in (("strict", spans_strict), ("relaxed", spans_relaxed)):
            untyped = [agreement(*two, typed=False) for two in both]
            results.append(micro_f1_result(MENTIONS, f"{name}, types ignored", untyped))
    discontinuous = [spans_discontinuous(*two) for two in both]
    if any(part.total != NO_COUNTS for part in discontinuous):
        results.append(micro_f1_result(MENTIONS, "discontinuous alone, strict", discontinuous))
    if any(span.type == ALTERNATIVE for pair in pairs for span in pair.gold.spans):
        results.append(micro_f1_result(MENTIONS, "BC2GM with alternatives", [_bc2gm(doc) for doc in docs]))
    return results


def _bc2gm(doc: _MentionPair) -> Agreement:
    """One sentence by the official rules: types are ignored, alternatives accepted."""
    text = doc.pair.gold.text
    gold, accepted, predicted = (
        without_spaces([(mention.parts[0][0], mention.parts[-1][1]) for mention in own], text)
        for own in (doc.gold, mentions(doc.pair.gold, {ALTERNATIVE}), doc.predicted)
    )
    return Agreement.from_types({ANY_TYPE: sentence_counts(gold, accepted, predicted)})


def _mention_pairs(pairs: Sequence[DocumentPair], only: Collection[str] | None) -> list[_MentionPair]:
    return [
        _MentionPair(pair, _scored_mentions(pair.gold, only), _scored_mentions(pair.predicted, only)) for pair in pairs
    ]


def _scored_mentions(doc: Document, only: Collection[str] | None) -> list[Mention]:
    return [mention for mention in mentions(doc, only) if mention.type != ALTERNATIVE]


def mention_differences(pairs: Sequence[DocumentPair], only: Collection[str] | None = None) -> Iterator[Difference]:
    """Each wrong mention: wrong type, wrong boundary, both, missed or spurious.

    Every mention is in one difference at most. Those with only a wrong boundary are right in relaxed scoring; those
    with only a wrong type are right if types are ignored.
    """
    for doc in _mention_pairs(pairs, only):
        right = set(doc.gold) & set(doc.predicted)
        gold, predicted = ([mention for mention in own if mention not in right] for own in (doc.gold, doc.predicted))
        for kind, fits in (
            ("wrong boundary", lambda left, right: left.type == right.type),
            ("wrong type", lambda left, right: left.parts == right.parts),
            ("wrong boundary and type", lambda left, right: True),
        ):
            near = overlapping([mention.parts for mention in gold], [mention.parts for mention in predicted])
            allowed = [
                [place for place in places if fits(mention, predicted[place])]
                for mention, places in zip(gold, near, strict=True)
            ]
            matching = largest_matching(allowed)
            for left, place in sorted(matching.items()):
                yield _difference(doc.pair.gold, kind, gold[left], predicted[place])
            matched = set(matching.values())
            gold = [mention for place, mention in enumerate(gold) if place not in matching]
            predicted = [mention for place, mention in enumerate(predicted) if place not in matched]
        yield from (_difference(doc.pair.gold, "missed", mention, None) for mention in gold)
        yield from (_difference(doc.pair.gold, "spurious", None, mention) for mention in predicted)


def _difference(doc: Document, kind: str, gold: Mention | None, predicted: Mention | None) -> Difference:
    both = [mention for mention in (gold, predicted) if mention is not None]
    start = min(mention.parts[0][0] for mention in both)
    end = max(mention.parts[-1][1] for mention in both)
    gold_text, predicted_text = (_mention_text(doc, mention) for mention in (gold, predicted))
    return Difference(MENTIONS, kind, doc.id, gold_text, predicted_text, context_of(doc, start, end))


def _mention_text(doc: Document, mention: Mention | None) -> str | None:
    if mention is None:
        return None
    text = " ".join(" … ".join(doc.slice(start, end) for start, end in mention.parts).split())
    return f"{mention.type} {text!r}"


@dataclass(frozen=True, slots=True)
class TagPairs:
    """Both taggings of each document, and notes on mentions that have no tags."""

    gold: tuple[tuple[Sentence, ...], ...]
    predicted: tuple[tuple[Sentence, ...], ...]
    scheme: str
    notes: tuple[str, ...]


def tag_pairs(pairs: DocumentPairs, only: Collection[str] | None = None) -> TagPairs | None:
    """The tags of all documents: those of the files if both are CoNLL files, else tags of gold's tokens, if any.

    Tags of files are used as they are, unless `only` some types are scored, or the files' schemes differ.
    """
    notes: list[str] = []
    if pairs.with_tags and only is None:
        gold = tuple(pair.gold_tags for pair in pairs.pairs)
        predicted = tuple(pair.predicted_tags for pair in pairs.pairs)
        scheme = _scheme(_letters(gold))
        if _letters(gold) | _letters(predicted) <= _SCHEME_LETTERS[scheme]:
            return TagPairs(gold, predicted, scheme, ())
        notes.append("the files' tags have different schemes, and are compared as IOB2")
    if not any(passage.tokens for pair in pairs.pairs for passage in pair.gold.passages):
        return None
    lost = 0
    sides: list[list[tuple[Sentence, ...]]] = [[], []]
    for pair in pairs.pairs:
        for side, doc in zip(sides, (pair.gold, pair.predicted), strict=True):
            sentences, untagged = _tag_tokens(pair.gold, doc, only)
            side.append(sentences)
            lost += untagged
    if lost:
        notes.append(f"{lost:,} mentions that overlap a longer one, are discontinuous or hold no token have no tags")
    return TagPairs(tuple(sides[0]), tuple(sides[1]), "IOB2", tuple(notes))


def _letters(sides: Iterable[Iterable[Sentence]]) -> set[str]:
    return {tag[:1] for doc in sides for sentence in doc for _, tag in sentence}


def _scheme(letters: set[str]) -> str:
    """The scheme of tags with these letters. Without any B, an I begins mentions, as in IOB1."""
    if letters & set("LU"):
        return "BILOU"
    if letters & set("ES"):
        return "IOBES"
    return "IOB2" if "B" in letters or "I" not in letters else "IOB1"


def _tag_tokens(gold: Document, doc: Document, only: Collection[str] | None) -> tuple[tuple[Sentence, ...], int]:
    """The document's mentions as tags of gold's tokens, and the number of mentions without tags.

    A mention has all tokens that it shares a character with; of mentions that overlap, the longest is kept.
    """
    scored = _scored_mentions(doc, only)
    continuous = [mention for mention in scored if len(mention.parts) == 1]
    continuous.sort(key=lambda mention: mention.parts[0][1] - mention.parts[0][0])
    sentences = [(places, ["O"] * len(places)) for places in _token_sentences(gold)]
    lost = len(scored) - len(continuous)
    for mention in reversed(continuous):
        lost += not any(_put_tags(places, tags, mention.type, mention.parts[0]) for places, tags in sentences)
    return tuple(
        tuple((gold.slice(*place), tag) for place, tag in zip(places, tags, strict=True)) for places, tags in sentences
    ), lost


def _put_tags(places: Sequence[Range], tags: list[str], type: str, mention: Range) -> bool:
    """Tag the tokens of a mention, unless one of them has a tag; returns whether they were tagged."""
    inside = [number for number, (start, end) in enumerate(places) if start < mention[1] and mention[0] < end]
    if not inside or any(tags[number] != "O" for number in inside):
        return False
    for number in inside:
        tags[number] = f"{'B' if number == inside[0] else 'I'}-{type}"
    return True


def _token_sentences(doc: Document) -> Iterator[list[Range]]:
    """The tokens of each sentence; of a passage without sentences, all of them."""
    for passage in doc.passages:
        boundaries = [start for start, _ in passage.sentences[1:]]
        places: list[Range] = []
        for place in passage.tokens:
            if boundaries and place[0] >= boundaries[0]:
                if places:
                    yield places
                places = []
                while boundaries and place[0] >= boundaries[0]:
                    boundaries.pop(0)
            places.append(place)
        if places:
            yield places


def token_metrics(tags: TagPairs) -> list[MetricResult]:
    """conlleval, seqeval by default, and strict seqeval."""
    both = [(sentence_tags(gold), sentence_tags(own)) for gold, own in zip(tags.gold, tags.predicted, strict=True)]
    gold, predicted = ([sentence for side in both for sentence in side[place]] for place in (0, 1))
    accuracy = token_accuracy(gold, predicted)
    results: list[MetricResult] = []
    # conlleval merges two adjacent mentions of S or U tags into one, and ignores bare S and U tags.
    if tags.scheme in ("IOB1", "IOB2"):
        conll = [conlleval(*two) for two in both]
        results.append(micro_f1_result(TOKENS, "conlleval", conll, {"token accuracy": accuracy}))
    if tags.scheme != "BILOU":
        results.append(micro_f1_result(TOKENS, "seqeval default", [seqeval(*two) for two in both]))
    strict = [seqeval(*two, mode="strict", scheme=tags.scheme) for two in both]
    results.append(micro_f1_result(TOKENS, f"seqeval strict ({tags.scheme})", strict))
    return results


def token_differences(pairs: Sequence[DocumentPair], tags: TagPairs) -> Iterator[Difference]:
    """The mentions that only one of conlleval (for IOBES, default seqeval) and strict seqeval reads in the tags."""
    loose = {"IOBES": ("seqeval default", scheme_chunks), "BILOU": None}.get(tags.scheme, ("conlleval", conll_chunks))
    if loose is None:
        return
    for pair, gold, predicted in zip(pairs, tags.gold, tags.predicted, strict=True):
        for left, right in zip(gold, predicted, strict=True):
            for is_gold, sentence in ((True, left), (False, right)):
                for kind, text, context in _read_by_one(sentence, tags.scheme, *loose):
                    gold_text, predicted_text = (text, None) if is_gold else (None, text)
                    yield Difference(TOKENS, kind, pair.gold.id, gold_text, predicted_text, context)


def _read_by_one(sentence: Sentence, scheme: str, name: str, loose: Chunker) -> Iterator[tuple[str, str, str]]:
    """Mentions that only one program reads: the program, the mention, and the tags around it."""
    tags = [tag for _, tag in sentence]
    loosely, strictly = _with_named_types(loose(tags)), _with_named_types(strict_chunks(tags, scheme=scheme))
    for kind, chunks in ((f"{name} alone", loosely - strictly), ("strict seqeval alone", strictly - loosely)):
        for type, start, end in sorted(chunks, key=lambda chunk: chunk[1:]):
            context = " ".join(f"{word}/{tag}" for word, tag in sentence[max(0, start - 3) : end + 3])
            yield kind, f"{type} {' '.join(word for word, _ in sentence[start:end])!r}", context


def _with_named_types(chunks: Iterable[Chunk]) -> set[Chunk]:
    """The mentions, with one name for the type of bare tags, which the programs name differently."""
    return {("(no type)" if type in ("", "_") else type, start, end) for type, start, end in chunks}


# Relations

RELATIONS = "relations"

Key = tuple[str, tuple[str, ...]]
"""The identity of a relation: its type, and its arguments in the order of their text."""

ConceptKey = tuple[str, frozenset[str], bool | None]
"""The identity of a relation between concepts: its type, the concepts and whether it is novel."""

ROLES_IGNORED = "type and arguments, roles ignored"

_NEGATIVE = frozenset({"false", "none", "na", "0", "negative"})


def relation_metrics(pairs: Sequence[DocumentPair], only: Collection[str] | None = None) -> list[MetricResult]:
    """Typed, untyped and macro F1; none if neither side has a relation that is scored.

    If roles make a difference, typed and macro F1 are also computed without them: models of pairs do not predict roles.
    """
    keys = [(_keys(pair.gold, only), _keys(pair.predicted, only)) for pair in pairs]
    if not any(gold or predicted for gold, predicted in keys):
        return []
    typed = [compare_sets(_by_type(gold), _by_type(predicted)) for gold, predicted in keys]
    untyped = [compare_sets(*({ANY_TYPE: {key[1] for key in own}} for own in both)) for both in keys]
    types = list(sum_agreements(typed).types)
    results = [
        micro_f1_result(RELATIONS, "type and arguments", typed),
        micro_f1_result(RELATIONS, "arguments alone", untyped),
    ]
    if len(types) > 1:
        results.append(macro_f1_result(RELATIONS, "type and arguments", typed, types))
    bare = [tuple(_keys(doc, only, roles=False) for doc in (pair.gold, pair.predicted)) for pair in pairs]
    unordered = [compare_sets(_by_type(gold), _by_type(predicted)) for gold, predicted in bare]
    if sum_agreements(unordered).total != sum_agreements(typed).total:
        results.append(micro_f1_result(RELATIONS, ROLES_IGNORED, unordered))
        if len(types) > 1:
            results.append(macro_f1_result(RELATIONS, ROLES_IGNORED, unordered, types))
    return results + _concept_metrics(pairs, only)


def _concept_metrics(pairs: Sequence[DocumentPair], only: Collection[str] | None) -> list[MetricResult]:
    """F1 of the related concepts of a document, as BioCreative scores them from raw text; with types, and with novelty.

    A mention stands for each of its concepts, and roles are ignored. Only for gold relations between concepts, where
    predictions are between mentions or gold has novelty; otherwise the scores above are the same.
    """
    gold = [relation for pair in pairs for relation in pair.gold.relations]
    predicted = [relation for pair in pairs for relation in pair.predicted.relations]
    between_concepts = any(all(side.concept for side in relation.arguments) for relation in gold)
    novelty = any(relation.novel is not None for relation in gold)
    of_mentions = any(side.target for relation in predicted for side in relation.arguments)
    if not between_concepts or not (novelty or of_mentions):
        return []
    keys = [(_concept_keys(pair.gold, only), _concept_keys(pair.predicted, only)) for pair in pairs]
    items: dict[str, Callable[[ConceptKey], Hashable]] = {
        "concepts": lambda key: key[1],
        "concepts and type": lambda key: key[:2],
    }
    if novelty:
        items["concepts, type and novelty"] = lambda key: key
    return [
        micro_f1_result(
            RELATIONS,
            name,
            [compare_sets({ANY_TYPE: set(map(item, own))}, {ANY_TYPE: set(map(item, found))}) for own, found in keys],
        )
        for name, item in items.items()
    ]


def _concept_keys(doc: Document, only: Collection[str] | None) -> set[ConceptKey]:
    """Type, concepts and novelty of each relation; several for a mention of several concepts, none for one without."""
    concepts = {span.id: span.concepts for span in doc.spans}
    keys: set[ConceptKey] = set()
    for relation in doc.relations:
        if is_negative(relation.type) if only is None else relation.type not in only:
            continue
        sides = [
            (side.concept,) if side.concept else concepts.get(side.target or "", ()) for side in relation.arguments
        ]
        keys |= {(relation.type, frozenset(names), relation.novel) for names in product(*sides)}
    return keys


def relation_differences(pairs: Sequence[DocumentPair], only: Collection[str] | None = None) -> Iterator[Difference]:
    """Each relation that was missed, is spurious, or has a wrong type."""
    for pair in pairs:
        gold, predicted = _keys(pair.gold, only), _keys(pair.predicted, only)
        missed, spurious = sorted(gold - predicted), sorted(predicted - gold)
        for key in missed:
            other = next((one for one in spurious if one[1] == key[1]), None)
            if other is not None:
                spurious.remove(other)
            kind = "missed" if other is None else "wrong type"
            yield Difference(RELATIONS, kind, pair.gold.id, _relation_text(key), _relation_text(other))
        for key in spurious:
            yield Difference(RELATIONS, "spurious", pair.gold.id, None, _relation_text(key))


def negative_types(pairs: Sequence[DocumentPair], only: Collection[str] | None = None) -> list[str]:
    """The types that mean no relation, which are not scored unless they were asked for."""
    types = {relation.type for pair in pairs for doc in (pair.gold, pair.predicted) for relation in doc.relations}
    return sorted(type for type in types if is_negative(type)) if only is None else []


def is_negative(type: str) -> bool:
    """Whether a type means no relation, as DDI-false does."""
    return type.lower() in _NEGATIVE or type.lower().endswith(("-false", ":false"))


def _keys(doc: Document, only: Collection[str] | None, *, roles: bool = True) -> set[Key]:
    scored = [
        relation
        for relation in doc.relations
        if (not is_negative(relation.type) if only is None else relation.type in only)
    ]
    # Ids differ between files, so mentions are named by text and place.
    names = {
        span.id: f"{span.text!r} at {','.join(f'{start}-{end}' for start, end in merge_parts(span.parts))}"
        for span in (doc.spans if scored else ())
    }
    relations = {relation.id: relation for relation in doc.relations}
    return {(relation.type, _arguments(relation, names, relations, (relation.id,), roles=roles)) for relation in scored}


def _arguments(
    relation: Relation, names: dict[str, str], relations: dict[str, Relation], above: tuple[str, ...], *, roles: bool
) -> tuple[str, ...]:
    """The arguments as texts, sorted; a relation among them is named by its own arguments."""
    texts: list[str] = []
    for argument in relation.arguments:
        target = argument.target
        if target is None:
            name = str(argument.concept)
        elif target in names:
            name = names[target]
        elif target in above:
            name = "itself"
        else:
            inner = relations[target]
            name = f"{inner.type}({'; '.join(_arguments(inner, names, relations, (*above, target), roles=roles))})"
        texts.append(f"{argument.role}: {name}" if roles else name)
    return tuple(sorted(texts))


def _by_type(keys: set[Key]) -> dict[str, set[Key]]:
    types: defaultdict[str, set[Key]] = defaultdict(set)
    for key in keys:
        types[key[0]].add(key)
    return types


def _relation_text(key: Key | None) -> str | None:
    return None if key is None else f"{key[0]}: {'; '.join(key[1])}"


# Labels

LABELS = "labels"


def label_metrics(pairs: Sequence[DocumentPair], only: Collection[str] | None = None) -> list[MetricResult]:
    """The metrics that fit the labels: of numbers, of one label per document, or of sets of labels."""
    if not any(pair.gold.labels or pair.predicted.labels for pair in pairs):
        return []
    if are_numbers(pairs):
        return _number_metrics(pairs)
    if all(len(pair.gold.labels) == 1 and len(pair.predicted.labels) <= 1 for pair in pairs):
        return _single_metrics(pairs, only)
    return _multi_metrics(pairs, only)


def label_differences(pairs: Sequence[DocumentPair], only: Collection[str] | None = None) -> Iterator[Difference]:
    """Each document with wrong labels."""
    if are_numbers(pairs):
        return
    for pair in pairs:
        gold, predicted = (
            sorted({label for label in doc.labels if only is None or label in only})
            for doc in (pair.gold, pair.predicted)
        )
        if gold != predicted:
            kind = "wrong label" if gold and predicted else ("missed" if gold else "spurious")
            text = " ".join(pair.gold.text[:80].split())
            gold_text, predicted_text = (", ".join(labels) or None for labels in (gold, predicted))
            yield Difference(LABELS, kind, pair.gold.id, gold_text, predicted_text, text or None)


def are_numbers(pairs: Sequence[DocumentPair]) -> bool:
    """Whether labels are similarities: all of gold are numbers, one per document, and one number has a decimal point.

    Gold similarities may be whole numbers, as of scales from 0 to 4; predicted ones hardly are, unlike classes.
    """
    if not all(len(pair.gold.labels) == 1 and _number(pair.gold.labels[0]) is not None for pair in pairs):
        return False
    labels = (label for pair in pairs for label in (*pair.gold.labels, *pair.predicted.labels))
    return any("." in label and _number(label) is not None for label in labels)


def without_number(pairs: Sequence[DocumentPair]) -> int:
    """How many documents with a number as gold label have none predicted, and so are in no correlation."""
    predicted = [pair.predicted.labels for pair in pairs] if are_numbers(pairs) else []
    return sum(len(labels) != 1 or _number(labels[0]) is None for labels in predicted)


def _number_metrics(pairs: Sequence[DocumentPair]) -> list[MetricResult]:
    """Correlations over the documents with a predicted number."""
    both = [
        (float(pair.gold.labels[0]), number)
        for pair in pairs
        if len(pair.predicted.labels) == 1 and (number := _number(pair.predicted.labels[0])) is not None
    ]
    if not both:
        return []
    statistics: list[tuple[str, Statistic]] = [
        ("Pearson", lambda rows: correlation(rows[:, 0], rows[:, 1])),
        ("Spearman", lambda rows: correlation(ranks(rows[:, 0]), ranks(rows[:, 1]))),
    ]
    rows = np.asarray(both, dtype=np.float64)
    return [MetricResult(LABELS, name, "correlation", rows, statistic) for name, statistic in statistics]


def _single_metrics(pairs: Sequence[DocumentPair], only: Collection[str] | None) -> list[MetricResult]:
    """Accuracy, and F1 over all classes and, if one is negative or some were asked for, over the scored ones."""
    right = [[float(pair.gold.labels == pair.predicted.labels)] for pair in pairs]
    results = [mean_result(LABELS, "one label each", "accuracy", right)]
    classes = {label for pair in pairs for label in (*pair.gold.labels, *pair.predicted.labels)}
    positive = {name for name in classes if (not is_negative(name) if only is None else name in only)}
    results += _f1_metrics(pairs, classes, "all classes")
    if positive and positive != classes:
        names = ", ".join(sorted(classes - positive))
        results += _f1_metrics(pairs, positive, "asked classes" if only is not None else f"without {names}")
    return results


def _multi_metrics(pairs: Sequence[DocumentPair], only: Collection[str] | None) -> list[MetricResult]:
    """Micro and macro F1, and means over documents."""
    names = {label for pair in pairs for label in (*pair.gold.labels, *pair.predicted.labels)}
    chosen = names if only is None else names & set(only)
    rows = [example_scores(chosen & set(pair.gold.labels), chosen & set(pair.predicted.labels)) for pair in pairs]
    others = {name: mean([row[place] for row in rows]) for place, name in enumerate(("precision", "recall", "mean F1"))}
    matrix = np.asarray(rows, dtype=np.float64)
    by_example = MetricResult(LABELS, "example-based", "F1", matrix, _example_f1, others=others)
    exact = mean_result(LABELS, "all labels right", "accuracy", [[row[3]] for row in rows])
    return [*_f1_metrics(pairs, chosen, "any number of labels"), by_example, exact]


def _f1_metrics(pairs: Sequence[DocumentPair], classes: Collection[str], name: str) -> list[MetricResult]:
    sides = ((pair.gold.labels, pair.predicted.labels) for pair in pairs)
    documents = [compare_sets(*({label: {0} for label in own if label in classes} for own in both)) for both in sides]
    return [micro_f1_result(LABELS, name, documents), macro_f1_result(LABELS, name, documents, sorted(classes))]


def _example_f1(rows: Rows) -> float:
    """The harmonic mean of mean precision and mean recall, as BLUE scores HoC."""
    precision, recall = (float(column) for column in rows[:, :2].mean(axis=0))
    return ratio(2 * precision * recall, precision + recall)


def _number(label: str) -> float | None:
    try:
        number = float(label)
    except ValueError:
        return None
    return number if np.isfinite(number) else None


# Answers

QUESTIONS = "questions"

TYPES = ("factoid", "list", "yesno")


@dataclass(frozen=True, slots=True)
class _ScoredQuestion:
    """A question with its gold answers, and with predicted ones if there are any."""

    document: str
    gold: Question
    predicted: Question | None

    @property
    def forms(self) -> list[list[str]]:
        """The gold answers, each with its synonyms."""
        return [[answer.text, *answer.synonyms] for answer in self.gold.answers]

    @property
    def answers(self) -> list[str]:
        """The predicted answers, best first."""
        if self.predicted is None or self.predicted.impossible:
            return []
        return [answer.text for answer in self.predicted.answers]


def question_metrics(pairs: Sequence[DocumentPair]) -> list[MetricResult]:
    """The metrics of each type of question that occurs."""
    questions = _scored_questions(pairs)
    results: list[MetricResult] = []
    for type in (*TYPES, None):
        own = [[one for one in doc if _type(one.gold) == type] for doc in questions]
        if any(own):
            results += _METRICS[type](own)
    return results


def question_differences(pairs: Sequence[DocumentPair]) -> Iterator[Difference]:
    """Each question whose first answer, or whose list, is wrong."""
    for one in chain.from_iterable(_scored_questions(pairs)):
        kind = _problem(one)
        if kind is not None:
            gold = "; ".join(answer.text for answer in one.gold.answers) or None
            yield Difference(QUESTIONS, kind, one.document, gold, "; ".join(one.answers) or None, one.gold.text)


def unscored(pairs: Sequence[DocumentPair]) -> int:
    """How many questions have no gold answer, or only one in prose."""
    return sum(not _can_be_scored(question) for pair in pairs for question in pair.gold.questions)


def count_repeated(pairs: Sequence[DocumentPair]) -> int:
    """How often a question is asked again, of another document."""
    scored = sum(_can_be_scored(question) for pair in pairs for question in pair.gold.questions)
    return scored - sum(map(len, _scored_questions(pairs)))


def _can_be_scored(question: Question) -> bool:
    """Whether it has a gold answer, or is marked as unanswerable; summaries cannot be scored."""
    return bool(question.answers or question.impossible) and question.type != "summary"


def _scored_questions(pairs: Sequence[DocumentPair]) -> list[list[_ScoredQuestion]]:
    """The questions that can be scored, document by document.

    A question of BioASQ's types that several documents ask counts once, for the first one, with the answers of all.
    """
    same: dict[tuple[int | str, str, str], list[tuple[int, QuestionPair]]] = {}
    for place, pair in enumerate(pairs):
        predicted = {question.id: question for question in pair.predicted.questions}
        for question in filter(_can_be_scored, pair.gold.questions):
            once = _type(question) is not None
            key = ("", base_question_id(question.id), normalize(question.text)) if once else (place, question.id, "")
            same.setdefault(key, []).append((place, (question, predicted.get(question.id))))
    documents: dict[int, list[_ScoredQuestion]] = {}
    for group in same.values():
        place = group[0][0]
        for question, answered in merge_questions(asked for _, asked in group):
            documents.setdefault(place, []).append(_ScoredQuestion(pairs[place].gold.id, question, answered))
    return [documents[place] for place in sorted(documents)]


def _type(question: Question) -> str | None:
    return question.type if question.type in TYPES else None


def _factoid(docs: Sequence[Sequence[_ScoredQuestion]]) -> list[MetricResult]:
    ranks = [[reciprocal_rank(one.forms, one.answers[:CANDIDATES]) for one in doc] for doc in docs]
    return [
        mean_result(QUESTIONS, "factoid, strict", "accuracy", [[float(rank == 1) for rank in own] for own in ranks]),
        mean_result(QUESTIONS, "factoid, lenient", "accuracy", [[float(rank > 0) for rank in own] for own in ranks]),
        mean_result(QUESTIONS, "factoid", "MRR", ranks),
    ]


def _list(docs: Sequence[Sequence[_ScoredQuestion]]) -> list[MetricResult]:
    scores = [[list_scores(one.forms, one.answers) for one in doc] for doc in docs]
    return [
        mean_result(QUESTIONS, "list", f"mean {name}", [[score[place] for score in own] for own in scores])
        for place, name in ((2, "F1"), (0, "precision"), (1, "recall"))
    ]


def _yes_no(docs: Sequence[Sequence[_ScoredQuestion]]) -> list[MetricResult]:
    """BioASQ's metrics; if gold has other answers too, such as maybe, accuracy and macro F1."""
    gold = {one.gold.answers[0].text.lower() for doc in docs for one in doc}
    if gold - {"yes", "no"}:
        return _choices(docs, sorted(gold))
    both = [[[yes_or_no(text) for text in (one.gold.answers[0].text, *one.answers[:1])] for one in doc] for doc in docs]
    right = [[answers[0] for answers in doc if answers[0] in answers[1:]] for doc in both]
    # The number of right yes answers, of right no answers, and of wrong ones.
    rows = [(own.count("yes"), own.count("no"), len(doc) - len(own)) for own, doc in zip(right, docs, strict=True)]
    counts = np.asarray(rows, dtype=np.float64).reshape(-1, 3)
    return [
        MetricResult(QUESTIONS, "yes/no", "macro F1", counts, _yes_no_f1),
        mean_result(QUESTIONS, "yes/no", "accuracy", [[float(one[0] in one[1:]) for one in doc] for doc in both]),
    ]


def _yes_no_f1(rows: Rows) -> float:
    yes, no, wrong = (float(number) for number in rows.sum(axis=0))
    return (ratio(2 * yes, 2 * yes + wrong) + ratio(2 * no, 2 * no + wrong)) / 2


def _choices(docs: Sequence[Sequence[_ScoredQuestion]], classes: Sequence[str]) -> list[MetricResult]:
    pairs = [
        [(one.gold.answers[0].text.lower(), [text.lower() for text in one.answers[:1]]) for one in doc] for doc in docs
    ]
    agreements = [
        compare_sets(
            {name: {place for place, (gold, _) in enumerate(doc) if gold == name} for name in classes},
            {name: {place for place, (_, answer) in enumerate(doc) if answer == [name]} for name in classes},
        )
        for doc in pairs
    ]
    right = [[float([gold] == answer) for gold, answer in doc] for doc in pairs]
    return [
        mean_result(QUESTIONS, "/".join(classes), "accuracy", right),
        macro_f1_result(QUESTIONS, "/".join(classes), agreements, classes),
    ]


def _squad(docs: Sequence[Sequence[_ScoredQuestion]]) -> list[MetricResult]:
    scores = [[_squad_scores(one) for one in doc] for doc in docs]
    results = [
        mean_result(QUESTIONS, "SQuAD", name, [[score[place] for score in own] for own in scores])
        for place, name in ((1, "F1"), (0, "exact match"))
    ]
    for name, impossible in (("SQuAD, with an answer", False), ("SQuAD, without an answer", True)):
        own = [[_squad_scores(one)[1] for one in doc if one.gold.impossible == impossible] for doc in docs]
        if any(own) and any(one.gold.impossible for doc in docs for one in doc):
            results.append(mean_result(QUESTIONS, name, "F1", own))
    return results


def _squad_scores(one: _ScoredQuestion) -> tuple[float, float]:
    gold = [] if one.gold.impossible else [answer.text for answer in one.gold.answers]
    return answer_scores(gold, one.answers[0] if one.answers else "")


def _problem(one: _ScoredQuestion) -> str | None:
    """The kind of error in an answer, or None."""
    if one.gold.impossible:
        return "answered, but unanswerable" if one.answers and one.answers[0] else None
    if not one.answers:
        return "not answered"
    type = _type(one.gold)
    if type == "list":
        precision, recall, _ = list_scores(one.forms, one.answers)
        return None if precision == recall == 1 else "wrong list"
    if type == "factoid":
        rank = reciprocal_rank(one.forms, one.answers[:CANDIDATES])
        return None if rank == 1 else ("wrong" if not rank else "right, but not first")
    if type == "yesno":
        return None if one.answers[0].lower() == one.gold.answers[0].text.lower() else "wrong"
    exact, f1 = _squad_scores(one)
    return None if exact else ("partly right" if f1 else "wrong")


_METRICS = {"factoid": _factoid, "list": _list, "yesno": _yes_no, None: _squad}

# Concepts: whether mentions and documents have the right concepts


CONCEPTS = "concepts"

Ids = Callable[[Iterable[str]], Collection[str]]
"""Maps concept ids to the ids to compare, if several mean the same."""


def concept_metrics(pairs: Sequence[DocumentPair], only: Collection[str] | None = None) -> list[MetricResult]:
    """F1 of concepts by document, as BioCreative scores them, and by mention, and accuracy on the gold mentions.

    None if either side has no concepts. By document, a concept is correct if the gold document has it anywhere, with
    the same type; by mention, offsets, type and concept must be correct. Accuracy is over the gold mentions that were
    also predicted: the first predicted concept is one of the gold concepts.
    """
    sides = [(_linked_mentions(pair.gold, only), _linked_mentions(pair.predicted, only)) for pair in pairs]
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
        for span in _linked_mentions(pair.gold, only):
            other = predicted.get(_place(span))
            if other is None or set(other.concepts) == set(span.concepts):
                continue
            kind = "wrong concept" if other.concepts else "not linked"
            gold, wrong = (", ".join(one.concepts) or None for one in (span, other))
            yield Difference(CONCEPTS, kind, pair.gold.id, gold, wrong, context_of(pair.gold, span.start, span.end))


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
    counts as wrong, one without a gold concept not at all. If a mention has several gold concepts, any of them is
    correct, as in BioSyn's evaluation.

        linking_accuracy(docs, lambda doc: {id: [one.concept for one in why.candidates]
                                            for id, why in linker.explain_all(doc).items()})
    """
    right = dict.fromkeys(at, 0)
    total = 0
    for doc in docs:
        ranked = candidates(doc)
        for span in doc.spans:
            if not span.concepts or type not in (None, span.type):
                continue
            total += 1
            gold = same(span.concepts)
            own = ranked.get(span.id, ())
            for k in at:
                right[k] += any(concept in gold for concept in same(own[:k]))
    return {k: count / total if total else 0.0 for k, count in right.items()}


def _linked_mentions(doc: Document, only: Collection[str] | None) -> list[Span]:
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
    """Whether the first concept is right, for each gold mention that is predicted at the same place."""
    predicted = {_place(span): span.concepts for span in pair.predicted.spans}
    both = (
        (span.concepts, predicted[_place(span)])
        for span in _linked_mentions(pair.gold, only)
        if _place(span) in predicted
    )
    return [float(bool(own) and own[0] in gold) for gold, own in both]


def _place(span: Span) -> tuple[object, str]:
    return merge_parts(span.parts), span.type
