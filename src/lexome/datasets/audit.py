"""What a set's splits hold, and what is wrong with them: counts, documents in two splits, empty splits."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from lexome.document import Document

Splits = Mapping[str, Sequence[Document]]

# Shorter texts, such as headings, are the same in many articles by chance.
OVERLAP_WORDS = 6
# So many of the shared ids or texts are listed.
LISTED = 10


@dataclass(frozen=True, slots=True)
class Overlap:
    """What two splits share: documents or questions of one id, articles, and texts of at least OVERLAP_WORDS words.

    The counts are of the first split's documents that are also in the second. `examples` are some of them, by id.
    """

    splits: tuple[str, str]
    ids: int
    articles: int
    texts: int
    examples: tuple[str, ...]

    def __str__(self) -> str:
        first, second = self.splits
        said = [
            f"{count:,} {what}"
            for count, what in ((self.ids, "by id"), (self.articles, "by article"), (self.texts, "by text"))
            if count
        ]
        return f"documents of {first} that are in {second} too: {', '.join(said)} (such as {self.examples[0]})"


@dataclass(frozen=True, slots=True)
class Report:
    """What a check of a set found. Errors make numbers wrong; warnings are facts to know about."""

    counts: Mapping[str, Mapping[str, int]]
    overlaps: tuple[Overlap, ...] = ()
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


def counted(docs: Iterable[Document]) -> dict[str, int]:
    """How many documents, passages, sentences, mentions, relations, labels and questions there are.

    The last four are also counted by type: "mentions Gene". Sentences are those that the source marks.
    """
    total: Counter[str] = Counter()
    for doc in docs:
        total["documents"] += 1
        total["passages"] += len(doc.passages)
        total["sentences"] += sum(len(passage.sentences) for passage in doc.passages)
        for what, names in (
            ("mentions", [span.type for span in doc.spans]),
            ("relations", [relation.type for relation in doc.relations]),
            ("labels", doc.labels),
            ("questions", [question.type or "" for question in doc.questions]),
        ):
            total[what] += len(names)
            total.update(f"{what} {name}" for name in names if name)
        total["answered questions"] += sum(1 for question in doc.questions if question.answers)
    return {name: count for name, count in total.items() if count}


def overlaps(splits: Splits) -> tuple[Overlap, ...]:
    """What each two splits share; the pairs of splits that share nothing are left out."""
    keys = {name: identities(docs) for name, docs in splits.items()}
    found = (_overlap(second, first, keys) for first, second in combinations(splits, 2))
    return tuple(overlap for overlap in found if overlap is not None)


def faults(
    counts: Mapping[str, Mapping[str, int]], *, positive: Sequence[str] = (), labels: Sequence[str] = ()
) -> list[str]:
    """What makes scores of some splits meaningless, by what is counted in them; `check` says what is looked for."""
    found = [f"the split {name} is empty" for name, count in counts.items() if not count]
    found += [
        f"the split {name} has none of the labels that are scored ({', '.join(positive)})"
        for name, count in counts.items()
        if count and positive and not any(_of_label(count, label) for label in positive)
    ]
    found += [
        f"the split {name} has the label {label!r} {count[what]:,} times; expected one of {', '.join(labels)}"
        for name, count in counts.items()
        for what in count
        if labels and (label := _label_in(what)) is not None and label not in labels
    ]
    return found


def check(
    splits: Splits,
    *,
    expected: Mapping[str, Mapping[str, int]],
    positive: Sequence[str] = (),
    labels: Sequence[str] = (),
) -> Report:
    """The report on some splits.

    `expected` are counts that are known of a split; `positive` the labels of which each split needs one, because a
    score over them is not defined without; `labels` all that documents and relations may have, where that is known.
    """
    counts = {name: counted(docs) for name, docs in splits.items()}
    errors = faults(counts, positive=positive, labels=labels)
    shared = overlaps(splits)
    warnings = [str(overlap) for overlap in shared]
    warnings += [
        f"the split {name} has an id twice: {twice}" for name, docs in splits.items() if (twice := _twice(docs))
    ]
    for name, wanted in expected.items():
        warnings += [
            f"the split {name} has {counts[name].get(what, 0):,} {what}; expected {number:,}: "
            "the files are damaged or another version"
            for what, number in wanted.items()
            if name in counts and counts[name].get(what, 0) != number
        ]
    return Report(counts, shared, tuple(warnings), tuple(errors))


def _of_label(count: Mapping[str, int], label: str) -> int:
    return count.get(f"labels {label}", 0) + count.get(f"relations {label}", 0) + count.get(f"mentions {label}", 0)


def _label_in(what: str) -> str | None:
    """The label that a count is of: "CID" for "relations CID"."""
    kind, space, label = what.partition(" ")
    return label if space and kind in ("labels", "relations") else None


def _twice(docs: Sequence[Document]) -> str:
    ids = Counter(doc.id for doc in docs)
    doubled = [name for name, count in ids.items() if count > 1]
    return f"{len(doubled):,} of them, such as {doubled[0]!r}" if doubled else ""


Identities = list[tuple[str, str, str, str]]


def identities(docs: Sequence[Document]) -> Identities:
    """For each document or question its name, its id, its article and its text, empty where that says nothing."""
    found: Identities = []
    for doc in docs:
        article = doc.meta.pmid or doc.meta.part_of or ""
        if doc.questions:
            found += [(asked.id, asked.id, article, _text(asked.text)) for asked in doc.questions]
        else:
            found.append((doc.id, doc.id, article, _text(doc.text)))
    return found


def _text(text: str) -> str:
    words = text.split()
    return " ".join(words) if len(words) >= OVERLAP_WORDS else ""


def _overlap(first: str, second: str, keys: Mapping[str, Identities]) -> Overlap | None:
    ids, articles, texts = ({key[place] for key in keys[second]} - {""} for place in (1, 2, 3))
    by_id = [name for name, id, _, _ in keys[first] if id in ids]
    by_article = [name for name, _, article, _ in keys[first] if article in articles]
    by_text = [name for name, _, _, text in keys[first] if text in texts]
    examples = tuple(dict.fromkeys((*by_id, *by_text, *by_article)))[:LISTED]
    if not examples:
        return None
    return Overlap((first, second), len(by_id), len(by_article), len(by_text), examples)
