"""Tag metrics: conlleval's rules by hand, seqeval against the package itself on random tags."""

import random
import warnings

import pytest
from errors import raises
from seqeval.metrics.sequence_labeling import precision_recall_fscore_support as seqeval_default
from seqeval.metrics.v1 import precision_recall_fscore_support as seqeval_strict
from seqeval.scheme import BILOU, IOB1, IOB2, IOBES, IOE1, IOE2

from lexome.errors import UsageError
from lexome.tasks.metrics import Agreement, Counts, conlleval, seqeval, token_accuracy
from lexome.tasks.metrics.tagging import conll_chunks

SCHEMES = {"IOB1": IOB1, "IOB2": IOB2, "IOE1": IOE1, "IOE2": IOE2, "IOBES": IOBES, "BILOU": BILOU}
SEQUENCES = 10_000


def tagging(
    letters: str, types: tuple[str, ...], seed: int, *, longest: int = 9
) -> tuple[list[list[str]], list[list[str]]]:
    """Random tags, most of them no valid mentions, and a copy in which three tenths are drawn anew."""
    rng = random.Random(seed)
    tags = ["O", *(f"{letter}{type}" for letter in letters if letter != "O" for type in types)]
    gold = [[rng.choice(tags) for _ in range(rng.randint(1, longest))] for _ in range(SEQUENCES)]
    found = [[tag if rng.random() < 0.7 else rng.choice(tags) for tag in sentence] for sentence in gold]
    return gold, found


def by_type(ours: Agreement) -> list[tuple[float, ...]]:
    return [(counts.precision, counts.recall, counts.f1, counts.gold) for counts in ours.types.values()]


@pytest.mark.parametrize("types", [("-Gene", "-Disease", "-Cell-line"), ("",)])
def test_seqeval_by_default_is_the_package(types: tuple[str, ...]) -> None:
    gold, found = tagging("BIOES", types, seed=1)
    ours = seqeval(gold, found)
    assert by_type(ours) == [pytest.approx(row) for row in zip(*seqeval_default(gold, found), strict=True)]
    assert ours.f1 == pytest.approx(seqeval_default(gold, found, average="micro")[2])
    assert ours.macro_f1 == pytest.approx(seqeval_default(gold, found, average="macro")[2])
    assert ours.weighted_f1 == pytest.approx(seqeval_default(gold, found, average="weighted")[2])


@pytest.mark.parametrize("types", [("-Gene", "-Disease", "-Cell-line"), ("",)])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_strict_seqeval_is_the_package(scheme: str, types: tuple[str, ...]) -> None:
    letters = {"IOB1": "IOB", "IOB2": "IOB", "IOE1": "IOE", "IOE2": "IOE"}.get(scheme, scheme)
    gold, found = tagging(letters, types, seed=2, longest=6)
    ours = seqeval(gold, found, mode="strict", scheme=scheme)
    theirs = seqeval_strict(gold, found, scheme=SCHEMES[scheme])
    assert by_type(ours) == [pytest.approx(row) for row in zip(*theirs, strict=True)]


def test_seqeval_and_conlleval_agree_on_iob_tags() -> None:
    gold, found = tagging("BIO", ("-Gene", "-Disease"), seed=3)
    assert conlleval(gold, found) == seqeval(gold, found)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O I-G I-G O", [("G", 1, 3)]),  # an I after O begins
        ("I-G I-D", [("G", 0, 1), ("D", 1, 2)]),  # so does a new type
        ("B-G B-G I-G", [("G", 0, 1), ("G", 1, 3)]),
        ("B-G I-D", [("G", 0, 1), ("D", 1, 2)]),
        ("B I O I", [("", 0, 2), ("", 3, 4)]),  # bare tags
        ("O E-G O", [("G", 1, 2)]),
        ("B-G E-G E-G", [("G", 0, 2), ("G", 2, 3)]),
        ("B-G E-G I-G", [("G", 0, 2), ("G", 2, 3)]),
        ("E-G B-G", [("G", 0, 2)]),  # not between E and B: the program has no such rule
        ("S-G S-G O", [("G", 0, 2)]),  # S means nothing to it
        ("B-Cell-line O", [("Cell-line", 0, 1)]),
        ("", []),
    ],
)
def test_conlleval_sees_these_mentions(tags: str, expected: list[tuple[str, int, int]]) -> None:
    assert list(conll_chunks(tags.split())) == expected


@pytest.mark.parametrize(
    ("letters", "types", "right", "found", "gold", "right_tags"),
    [
        ("BIO", ("-Gene", "-Disease", "-Cell-line"), 27051, 37969, 37880, 37295),
        ("BIO", ("",), 17912, 24588, 24733, 40302),
        ("BIOE", ("-Gene", "-Disease", "-Cell-line"), 27130, 39084, 39058, 36688),
        ("BIOE", ("",), 16192, 24854, 24911, 38829),
        ("BIOES", ("-Gene", "-Disease", "-Cell-line"), 25589, 37843, 37818, 36620),
    ],
)
def test_conlleval_counts_what_the_program_printed(
    letters: str, types: tuple[str, ...], right: int, found: int, gold: int, right_tags: int
) -> None:
    # What conlleval.pl (2004-01-26) printed for these very tags: correct, found, phrases and correct tags.
    tags, others = tagging(letters, types, seed=5)
    ours = conlleval(tags, others).total
    assert (ours.true_positives, ours.predicted, ours.gold) == (right, found, gold)
    assert round(token_accuracy(tags, others) * sum(map(len, tags))) == right_tags


def test_bare_tags_that_conlleval_does_not_know_are_refused() -> None:
    with raises(UsageError, code="invalid-tag", value="S"):
        conlleval([["S", "O"]], [["O", "O"]])


def test_conlleval_counts_by_hand() -> None:
    gold = [["B-G", "I-G", "O", "B-D"], ["B-G", "O"]]
    found = [["B-G", "O", "O", "I-D"], ["I-G", "O"]]
    ours = conlleval(gold, found)
    assert ours.types == {"D": Counts(1, 0, 0), "G": Counts(1, 1, 1)}
    assert (ours.precision, ours.recall, ours.f1) == pytest.approx((2 / 3, 2 / 3, 2 / 3))
    assert token_accuracy(gold, found) == 3 / 6


def test_an_i_without_its_b_divides_the_three() -> None:
    gold, found = [["O", "B-G", "I-G"]], [["O", "I-G", "I-G"]]
    scores = (conlleval(gold, found), seqeval(gold, found), seqeval(gold, found, mode="strict"))
    assert [score.f1 for score in scores] == [1, 1, 0]


@pytest.mark.parametrize(
    ("gold", "found", "code", "value"),
    [
        ([["O"]], [], "length-mismatch", (1, 0)),
        ([["O", "O"]], [["O"]], "length-mismatch", 1),
        ([["O"]], [["X-Gene"]], "invalid-tag", "X-Gene"),
        ([["O"]], [["O-Gene"]], "invalid-tag", "O-Gene"),
        ([["O"]], [[""]], "invalid-tag", ""),
    ],
)
def test_bad_tags_are_named(gold: list[list[str]], found: list[list[str]], code: str, value: object) -> None:
    for measure in (conlleval, seqeval):
        with raises(UsageError, code=code, value=value):
            measure(gold, found)


def test_tags_outside_the_scheme_are_named() -> None:
    with raises(UsageError, code="invalid-tag", value="S-G"):
        seqeval([["S-G"]], [["O"]], mode="strict", scheme="IOB2")
    with raises(UsageError, code="invalid-choice", value="IOB3"):
        seqeval([["O"]], [["O"]], mode="strict", scheme="IOB3")


def test_nothing_to_find_and_nothing_found_is_0() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = seqeval_default([["O"]], [["O"]], average="micro")
    assert (seqeval([["O"]], [["O"]]).f1, conlleval([["O"]], [["O"]]).f1) == (theirs[2], 0)
