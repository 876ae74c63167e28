"""Units hold all text that is not apart from tokens, in order, and every token belongs to one."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from task_rows import tokenizer

from lexome.document import Document, Passage, lay_out
from lexome.tasks.task import _WORD, Tokenizer, Units, _words, split_units, tokenize


def units(doc: Document, using: Tokenizer, *, words: bool, sentences: bool = False) -> Units:
    tokens = tokenize(doc.passages, using)
    return split_units(doc, tokens.starts, tokens.ends, words=words, sentences=sentences)


@given(
    texts=st.lists(st.text(st.characters(codec="utf-8"), max_size=30), max_size=3),
    words=st.booleans(),
    cased=st.booleans(),
)
def test_units_hold_all_text_that_touches_a_token(texts: list[str], words: bool, cased: bool) -> None:
    doc = Document("d", lay_out(("abstract", text) for text in texts))
    found = units(doc, tokenizer(cased=cased), words=words)
    assert [end for _, end in found.ranges[:-1]] <= [start for start, _ in found.ranges[1:]]
    held = {place for start, end in found.ranges for place in range(start, end)}
    for passage in doc.passages:
        for stretch in re.finditer(r"\S+", passage.text):
            places = set(range(passage.offset + stretch.start(), passage.offset + stretch.end()))
            assert places <= held or not places & held
    assert sorted(set(found.of.tolist())) == list(range(len(found.ranges)))
    assert [found.of[token] for token in found.firsts] == list(range(len(found.ranges)))


@given(st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from("aB2_-. \n\u0301é²ǅ中´")), max_size=40))
def test_words_are_those_of_the_pattern(text: str) -> None:
    """Found without it in texts whose letters have no accents of their own."""
    expected = [(match.start() + 7, match.end() + 7) for match in _WORD.finditer(text)]
    assert list(map(tuple, _words(Passage(7, text)).tolist())) == expected


def test_tokens_of_a_word_are_one_unit_and_tokens_alone_are_several() -> None:
    doc = Document("d", (Passage(4, "BRCA1-gene"),))
    ranges = {words: units(doc, tokenizer(), words=words).ranges for words in (True, False)}
    assert ranges[True] == ((4, 9), (9, 10), (10, 14))
    assert ranges[False] == ((4, 6), (6, 8), (8, 9), (9, 10), (10, 14))


class Pairs:
    """A tokenizer whose tokens reach over words: two characters each."""

    def encode(self, text: str) -> list[tuple[int, int, int]]:
        return [(1, at, min(at + 2, len(text))) for at in range(0, len(text), 2)]


def test_words_that_share_a_token_are_one_unit() -> None:
    passage = Passage(0, "abcdef", tokens=((0, 3), (3, 4), (4, 6)))
    assert units(Document("d", (passage,)), Pairs(), words=True).ranges == ((0, 4), (4, 6))


def test_runs_are_passages_or_sentences() -> None:
    passage = Passage(0, "a b. c d.", sentences=((0, 4), (5, 9)))
    doc = Document("d", (passage, Passage(12, "e")))
    assert units(doc, tokenizer(), words=True).runs == ((0, 6), (6, 7))
    assert units(doc, tokenizer(), words=True, sentences=True).runs == ((0, 3), (3, 6), (6, 7))


@pytest.mark.parametrize("blank", ["\n\n", "\r\n\r\n", "\n \t\n\n"])
def test_no_run_goes_over_a_blank_line(blank: str) -> None:
    doc = Document("d", (Passage(7, f"{blank}a b{blank}c\nd{blank}"),))
    assert units(doc, tokenizer(), words=True).runs == ((0, 2), (2, 4), (4, 4))


def test_a_range_covers_the_units_it_touches() -> None:
    found = units(Document("d", (Passage(0, "ab cd ef"),)), tokenizer(), words=True)
    assert found.covered(1, 4) == (0, 2)
    assert found.covered(2, 3) is None
    assert found.covered(6, 99) == (2, 3)
