"""Checks of a dataset's splits: counts, documents in two splits, empty splits and unknown labels."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from lexome.document import Document

DocumentsBySplit = Mapping[str, Sequence[Document]]
Identity = tuple[str, str, str, str, str]
"""The name, id and article of a document or question, its text unless that is short, and its text."""

# Shorter texts, such as headings, are the same in many articles by chance.
OVERLAP_WORDS = 6
# How many of the shared ids are listed.
LISTED = 10


@dataclass(frozen=True, slots=True)
class Overlap:
    """The overlap of two splits: documents or questions by id, by article, and by texts of OVERLAP_WORDS words or more.

    The counts are of documents of the first split that are also in the second. `examples` are ids of some of them.
    """

    splits: tuple[str, str]
    ids: int
    articles: int
    texts: int
    examples: tuple[str, ...]

    def __str__(self) -> str:
        first, second = self.splits
        counts = [
            f"{count:,} {what}"
            for count, what in ((self.ids, "by id"), (self.articles, "by article"), (self.texts, "by text"))
            if count
        ]
        return f"documents of {first} that are in {second} too: {', '.join(counts)} (such as {self.examples[0]})"


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The result of a check. Errors make scores meaningless; warnings are informative.

    `notes` counts what the reader ignored, repaired or changed.
    """

    counts: Mapping[str, Mapping[str, int]]
    overlaps: tuple[Overlap, ...] = ()
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    notes: Mapping[str, int] = field(default_factory=dict)


def audit_splits(
    splits: DocumentsBySplit,
    *,
    expected: Mapping[str, Mapping[str, int]],
    positive: Sequence[str] = (),
    labels: Sequence[str] = (),
) -> AuditReport:
    """The report on some splits.

    `expected` are known counts by split. Each split needs one of the labels in `positive`, without which scores are
    undefined. `labels` are all labels that documents and relations may have, if they are known.
    """
    counts = {name: count_contents(docs) for name, docs in splits.items()}
    errors = find_errors(counts, positive=positive, labels=labels)
    shared = find_overlaps(splits)
    warnings = [str(overlap) for overlap in shared] + warn_degenerate_splits(counts)
    for name, docs in splits.items():
        repeated = [id for id, count in Counter(doc.id for doc in docs).items() if count > 1]
        if repeated:
            warnings.append(f"the split {name} has {len(repeated):,} ids twice, such as {repeated[0]!r}")
    for name, expected_counts in expected.items():
        warnings += [
            f"the split {name} has {counts[name].get(what, 0):,} {what}; expected {number:,}: "
            "the files are damaged or another version"
            for what, number in expected_counts.items()
            if name in counts and counts[name].get(what, 0) != number
        ]
    return AuditReport(counts, shared, tuple(warnings), tuple(errors))


def count_contents(docs: Iterable[Document]) -> dict[str, int]:
    """The number of documents, passages, sentences, mentions, relations, labels and questions.

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


def find_errors(
    counts: Mapping[str, Mapping[str, int]], *, positive: Sequence[str] = (), labels: Sequence[str] = ()
) -> list[str]:
    """Errors that make scores of these splits meaningless, from their counts; see `audit_splits`."""
    errors = [f"the split {name} is empty" for name, count in counts.items() if not count]
    scored = {f"{kind} {label}" for kind in ("labels", "relations", "mentions") for label in positive}
    for name, count in counts.items():
        if count and positive and scored.isdisjoint(count):
            errors.append(f"the split {name} has none of the labels that are scored ({', '.join(positive)})")
    for name, count in counts.items():
        for what, number in count.items():
            kind, space, label = what.partition(" ")
            if labels and space and kind in ("labels", "relations") and label not in labels:
                errors.append(
                    f"the split {name} has the label {label!r} {number:,} times; expected one of {', '.join(labels)}"
                )
    return errors


def warn_degenerate_splits(counts: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Warnings about splits that lack what train has, or have one label only: scores there mean nothing."""
    train = counts.get("train", {})
    warnings = []
    for name, content in counts.items():
        for what in ("mentions", "relations", "labels"):
            own, trained = ([kind for kind in count if kind.startswith(f"{what} ")] for count in (content, train))
            if trained and not own:
                warnings.append(f"{name} has no {what}, and train has {train[what]:,}")
            elif what == "labels" and len(own) == 1 and len(trained) > 1:
                warnings.append(f"every label of {name} is {own[0].removeprefix('labels ')!r}")
    return warnings


def find_overlaps(splits: DocumentsBySplit) -> tuple[Overlap, ...]:
    """The overlaps of all pairs of splits; pairs without overlap are left out."""
    keys = {name: identities(docs) for name, docs in splits.items()}
    overlaps = (_overlap((second, first), keys[second], keys[first]) for first, second in combinations(splits, 2))
    return tuple(overlap for overlap in overlaps if overlap is not None)


def _overlap(names: tuple[str, str], first: Sequence[Identity], second: Sequence[Identity]) -> Overlap | None:
    articles, texts = ({key[place] for key in second} - {""} for place in (2, 3))
    texts_of_second = texts_by_id(second)
    by_id = [key[0] for key in first if shares_id(key, texts_of_second)]
    by_article = [key[0] for key in first if key[2] in articles]
    by_text = [key[0] for key in first if key[3] in texts]
    examples = tuple(dict.fromkeys((*by_id, *by_text, *by_article)))[:LISTED]
    return Overlap(names, len(by_id), len(by_article), len(by_text), examples) if examples else None


def identities(docs: Sequence[Document]) -> list[Identity]:
    """The identity of each document or question; a short text is left empty."""
    result: list[Identity] = []
    for doc in docs:
        article = doc.meta.pmid or doc.meta.part_of or ""
        if doc.questions:
            result += [(one.id, one.id, article, _long_text(one.text), one.text) for one in doc.questions]
        else:
            text = doc.text
            result.append((doc.id, doc.id, article, _long_text(text), text))
    return result


def texts_by_id(identities: Iterable[Identity]) -> dict[str, list[str]]:
    """The texts of documents or questions by their id."""
    texts: dict[str, list[str]] = {}
    for _, id, _, _, text in identities:
        if id:
            texts.setdefault(id, []).append(text)
    return texts


def shares_id(key: Identity, others: Mapping[str, Sequence[str]]) -> bool:
    """Whether a document is among others by id and has a text like theirs.

    File names are ids too: train/1.txt and dev/1.txt have the same one, and nothing else in common.
    """
    return any(_alike(key[4], text) for text in others.get(key[1], ()))


def _alike(first: str, second: str) -> bool:
    """Whether two texts have more than half of their words in common."""
    one, other = set(first.split()), set(second.split())
    return first == second or len(one & other) > len(one | other) / 2


def _long_text(text: str) -> str:
    words = text.split()
    return " ".join(words) if len(words) >= OVERLAP_WORDS else ""
