"""Normalized text: one way to write each character, and every offset moved along."""

import re
import unicodedata
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import documents, texts

import lexome
from lexome import Argument, Document, Passage, Relation, Span
from lexome.corpus.normalize import normalize, normalize_text
from lexome.document import Answer, Attribute, Question
from lexome.formats.tally import Tally

STRANGE = [
    *("ﬁ", "ﬃ", "ﬆ", "𝛼", "𝐱", "𝟙", "ℎ", "ℝ", "µ", "Ω", "Å", "K", "\u00ad", "\u200b", "\u200d", "\u2060", "\u2029"),
    *("e", "\u0301", "\u0323", "\u0340", "\u0344", "각", "\u1100", "\u1161", "\u11a8", "\u09c7", "\u09be", "\u2000"),
    *(" ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\x00", "\x1c", "\x9f", "\u05d0", "\ufb1d", "\u0f71", "\u0f72"),
]


def strange() -> st.SearchStrategy[str]:
    """Text in which nearly everything has to change, and much of it joins what stands beside it."""
    return st.lists(st.sampled_from(STRANGE), max_size=14).map("".join)


any_text = st.one_of(texts(), strange())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("e\u0301tude", "étude"),
        ("5\u00a0mg\u2009of\u3000it", "5 mg of it"),
        ("a  b\t\tc", "a b c"),
        ("in\u00adter\u200bleukin\ufeff-2\x00", "interleukin-2"),
        ("a \u200b b", "a b"),
        ("e\u200b\u0301", "é"),
        ("one \n two\r\nthree\rfour", "one\ntwo\nthree\nfour"),
        ("one\n\ntwo\n \n\nthree\u2029four", "one\n\ntwo\n\nthree\n\nfour"),
        ("ﬁbroblast eﬄux ﬅ", "fibroblast efflux st"),
        ("𝛼 𝐱 𝟙 ℎ ℝ", "α x 1 h R"),
        ("µm \u2126 \u212b \u212a", "μm Ω Å K"),
    ],
)
def test_what_is_written_in_many_ways_is_written_in_one(old: str, new: str) -> None:
    assert normalize_text(old)[0] == new


@pytest.mark.parametrize(
    "text",
    [
        "β-catenin",
        "♂ ♀ ± ≤ → ∞",
        "CO₂ at 10⁻³ M",
        "測試 한국어",
        "👩\u200d🔬 🧬",
        "“5′–3′” ‘it’s’ — ok…",
        "one\ntwo\n\nthree",
        "",
    ],
)
def test_what_carries_meaning_stays(text: str) -> None:
    assert normalize_text(text) == (text, None)


# Letters in another font that mean something else than the letter, or are drawings of it; they stay.
OTHER_FONTS = re.compile(
    "HEBREW|SEGMENTED|PLANCK CONSTANT OVER|^SCRIPT SMALL L$|INFORMATION SOURCE|DOUBLE-STRUCK ITALIC"
    "|DOUBLE-STRUCK (SMALL PI|SMALL GAMMA|CAPITAL GAMMA|CAPITAL PI|N-ARY SUMMATION)$"
)
INVISIBLE = {
    0xAD,
    0x61C,
    0x180E,
    0x200B,
    0x200C,
    0x200E,
    0x200F,
    0xFEFF,
    *range(0x202A, 0x202F),
    *range(0x2060, 0x2070),
}


def written(character: str) -> str:
    """What becomes of a character alone, white space in lines and spaces."""
    name = unicodedata.name(character, "")
    if character in "\n\x0b\x0c\r\x85\u2028\u2029":
        return "\n\n" if character == "\u2029" else character
    if character.isspace():
        return " "
    if unicodedata.category(character) == "Cc" or (ord(character) in INVISIBLE and name):
        return ""
    mathematical = unicodedata.decomposition(character).startswith("<font>") and not OTHER_FONTS.search(name)
    if mathematical or character in "µﬀﬁﬂﬃﬄﬅﬆ":
        return unicodedata.normalize("NFKC", character)
    return character


def reference(text: str) -> str:
    """The same text, found slowly: a character at a time, then runs of white space, then NFC."""
    lines = "".join(map(written, text)).replace("\r\n", "\n")
    lines = re.sub("[\x0b\x0c\r\x85\u2028]", "\n", lines)
    lines = re.sub(" *\n *", "\n", re.sub(" +", " ", lines))
    return unicodedata.normalize("NFC", re.sub("\n{3,}", "\n\n", lines))


def test_every_character_between_a_letter_and_an_accent_is_as_in_the_slow_way() -> None:
    for character in map(chr, range(0x110000)):
        category = unicodedata.category(character)
        ordinary = category == "Lo" and not unicodedata.decomposition(character)
        if category not in ("Cs", "Co", "Cn") and not ordinary:
            text = f"e{character}\u0301"
            assert normalize_text(text)[0] == reference(text), hex(ord(character))


def test_a_line_end_is_one_whatever_vanishes_inside_it() -> None:
    assert normalize_text("a\r\x1b\nb")[0] == "a\nb"


@given(any_text)
def test_any_text_is_as_in_the_slow_way(text: str) -> None:
    assert normalize_text(text)[0] == reference(text)


@given(any_text)
def test_once_is_enough(text: str) -> None:
    once, _ = normalize_text(text)
    assert normalize_text(once) == (once, None)


@given(any_text)
def test_none_means_that_nothing_changed(text: str) -> None:
    new, alignment = normalize_text(text)
    assert (alignment is None) == (new == text)


@given(any_text, st.data())
def test_a_range_becomes_what_its_text_becomes(text: str, data: st.DataObject) -> None:
    new, alignment = normalize_text(text)
    assume(alignment is not None)
    assert alignment is not None
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    moved = alignment.to_new(start, end)
    assert 0 <= moved[0] <= moved[1] <= len(new)
    back = alignment.to_old(*moved)
    if moved[0] < moved[1]:
        assert normalize_text(text[slice(*back)])[0] == new[slice(*moved)]
    if start <= back[0] and back[1] <= end:
        # No letter was cut from its marks.
        assert normalize_text(text[start:end])[0].strip() == new[slice(*moved)].strip()


@given(any_text)
def test_the_whole_text_becomes_the_whole_text(text: str) -> None:
    new, alignment = normalize_text(text)
    if alignment is not None:
        assert alignment.to_new(0, len(text)) == (0, len(new))


@given(any_text)
def test_borders_stay_in_order(text: str) -> None:
    _, alignment = normalize_text(text)
    if alignment is not None:
        places = [alignment.to_new(at, at)[0] for at in range(len(text) + 1)]
        assert places == sorted(places)
        assert all(alignment.to_new(0, left)[1] <= alignment.to_new(0, left + 1)[1] for left in range(len(text)))


@st.composite
def full_documents(draw: st.DrawFn) -> Document:
    """A document whose passages have sentences and tokens, with a question and a judgment on each span."""
    doc = draw(documents())
    passages = []
    for passage in doc.passages:
        cuts = draw(st.lists(st.integers(passage.offset, passage.end), max_size=5).map(sorted))
        ranges = tuple(pairwise(cuts))
        passages.append(replace(passage, sentences=ranges[:1], tokens=ranges))
    answers = tuple(Answer(span.text, span.start) for span in doc.spans if len(span.parts) == 1)
    judged = tuple(Attribute(f"A{span.id}", span.id, "Negation") for span in doc.spans)
    questions = (Question("q", "which?", answers=answers),)
    return replace(doc, passages=tuple(passages), attributes=judged, questions=questions)


@given(full_documents())
def test_a_document_keeps_what_its_spans_say(doc: Document) -> None:
    tally = Tally()
    new = normalize(doc, tally=tally)
    assert normalize(new) is new
    assert [passage.text for passage in new.passages] == [normalize_text(passage.text)[0] for passage in doc.passages]
    kept = {span.id: span for span in new.spans}
    assert len(doc.spans) - len(kept) == tally.notes["span dropped: no text left after normalization"]
    for span in doc.spans:
        if span.id in kept and whole(doc, span):
            pieces = [normalize_text(doc.slice(*part))[0].strip() for part in span.parts]
            assert kept[span.id].text.split() == " ".join(pieces).split()


def whole(doc: Document, span: Span) -> bool:
    """Whether no border of the span cuts a letter from its marks."""
    for start, end in span.parts:
        passage = doc.passage_at(start)
        assert passage is not None
        _, alignment = normalize_text(passage.text)
        if alignment is not None:
            low, high = start - passage.offset, end - passage.offset
            back = alignment.to_old(*alignment.to_new(low, high))
            if back[0] < low or high < back[1]:
                return False
    return True


@given(full_documents())
def test_gaps_between_passages_keep_their_width(doc: Document) -> None:
    gaps = [[right.offset - left.end for left, right in pairwise(d.passages)] for d in (doc, normalize(doc))]
    assert gaps[0] == gaps[1]


def test_spans_sentences_tokens_and_answers_move_with_the_text() -> None:
    doc = Document(
        "1",
        (
            Passage(0, "The  ﬁrst.", sentences=((0, 10),), tokens=((0, 3), (5, 9), (9, 10))),
            Passage(12, "\u00a05 µg of inter\u00adferon"),
        ),
        (Span("T1", "Ordinal", ((5, 9),), "ﬁrst"), Span("T2", "Drug", ((21, 32),), "inter\u00adferon")),
        questions=(Question("q", "Which?", answers=(Answer("inter\u00adferon", 21),)),),
    )
    new = normalize(doc)
    assert [passage.text for passage in new.passages] == ["The first.", " 5 μg of interferon"]
    assert [passage.offset for passage in new.passages] == [0, 12]
    assert (new.passages[0].sentences, new.passages[0].tokens) == (((0, 10),), ((0, 3), (4, 9), (9, 10)))
    assert [(span.parts, span.text) for span in new.spans] == [(((4, 9),), "first"), (((21, 31),), "interferon")]
    assert new.questions[0].answers == (Answer("interferon", 21),)


def test_a_span_of_which_nothing_is_left_falls_with_what_refers_to_it() -> None:
    spans = (Span("T1", "Gene", ((1, 2),), "\u200b"), Span("T2", "Gene", ((2, 5),), "p53"))
    relation = Relation("R1", "binds", (Argument("a", "T1"), Argument("b", "T2")))
    doc = Document("1", (Passage(0, "a\u200bp53"),), spans, (relation,), (Attribute("A1", "T1", "Negation"),))
    tally = Tally()
    new = normalize(doc, tally=tally)
    assert (new.spans, new.relations, new.attributes) == ((Span("T2", "Gene", ((1, 4),), "p53"),), (), ())
    assert tally.notes == {
        "span dropped: no text left after normalization": 1,
        "relation dropped: it refers to a dropped span": 1,
        "attribute dropped: its target was dropped": 1,
    }


def test_a_span_that_loses_one_part_keeps_the_others() -> None:
    span = Span("T1", "Gene", ((0, 1), (2, 3)), "a \u200b")
    tally = Tally()
    new = normalize(Document("1", (Passage(0, "a-\u200b"),), (span,)), tally=tally)
    assert new.spans == (Span("T1", "Gene", ((0, 1),), "a"),)
    assert tally.notes == {"span kept without a part: the part has no text left": 1}


def test_an_answer_of_which_nothing_is_left_stands_nowhere() -> None:
    question = Question("q", "?", answers=(Answer("\u200b", 1), Answer("free  text")))
    new = normalize(Document("1", (Passage(0, "a\u200bb"),), questions=(question,)))
    assert new.questions[0].answers == (Answer(""), Answer("free  text"))


def test_a_letter_cut_from_its_accent_belongs_to_the_first_token() -> None:
    doc = Document("1", (Passage(0, "e\u0301a", tokens=((0, 1), (1, 2), (2, 3))),))
    assert normalize(doc).passages[0].tokens == ((0, 1), (1, 2))


def test_real_mentions_stay_what_they_are(real_data: Path) -> None:
    path = real_data / "benchmarks" / "BC5CDR-pubtator" / "CDR_TestSet.PubTator.txt.xz"
    changed = 0
    for doc in lexome.read(path):
        new = normalize(doc)
        changed += new is not doc
        for old, moved in zip(doc.spans, new.spans, strict=True):
            assert moved.text == normalize_text(old.text)[0]
    assert changed < 500
