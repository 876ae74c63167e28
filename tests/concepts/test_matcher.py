"""The names of a dictionary in text: word ends, case, length, and offsets in all of Unicode."""

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import TRICKY, texts

from lexome.concepts.matcher import MAX_NAME, NameHit, NameMatcher, fold_case, keep_case
from lexome.errors import UsageError


def found(names: list[str], text: str, **options: str) -> list[str]:
    return [text[hit.start : hit.end] for hit in NameMatcher(names, **options).find(text)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("cat", "a category, a cat, concat", ["cat"]),
        ("cat", "Cat CAT cats cat-like", ["Cat", "CAT", "cat"]),
        ("breast cancer", "breast\n  cancer, breast-cancer", ["breast\n  cancer"]),
        ("TNF-alpha", "TNF‑alpha TNF–ALPHA TNF alpha TNFalpha", ["TNF‑alpha", "TNF–ALPHA"]),
        ("Sjögren's syndrome", "Sjo\u0308gren’s Syndrome", ["Sjo\u0308gren’s Syndrome"]),
        ("straße", "STRASSE, Strasse, straße", ["STRASSE", "Strasse", "straße"]),
        ("strasse", "İİİ straße", ["straße"]),
        ("p53", "p53-dependent, p533, xp53, (p53)", ["p53", "p53"]),
        ("Na+", "Na+ and Na++ and Na", ["Na+", "Na+"]),
        ("(+)-catechin", "the (+)-catechin", ["(+)-catechin"]),
        ("fish", "ﬁsh fi\u00adsh", ["ﬁsh", "fi\u00adsh"]),
        ("i", "ﬁ i", ["i"]),
        ("e", "e\u0301 é e", ["e"]),
        ("β-catenin", "Β-CATENIN and ß-catenin", ["Β-CATENIN"]),
        ("測試", "一個測試文本", ["測試"]),
        ("하나", "하나는 한나", ["하나"]),
        ("alpha", "\u202ealpha\u202c", ["alpha"]),
        ("🧬", "a🧬b", ["🧬"]),
    ],
)
def test_a_name_is_found_where_words_begin_and_end(name: str, text: str, expected: list[str]) -> None:
    assert found([name], text) == expected


def test_short_names_in_capitals_match_in_case() -> None:
    text = "It was set by WAS and SET. Brca1 and BRCA1; impdh2 IMPDH2"
    assert found(["WAS", "SET", "BRCA1", "IMPDH2"], text) == ["WAS", "SET", "BRCA1", "impdh2", "IMPDH2"]
    assert found(["WAS", "SET"], text, case="ignore") == ["was", "set", "WAS", "SET"]
    assert found(["brca1", "impdh2"], text, case="match") == ["impdh2"]
    # White space and dashes have no case.
    assert found(["A-B C"], "a-b c A–B\tC") == ["A–B\tC"]


def test_the_longest_name_that_is_there_is_found() -> None:
    names = ["breast", "breast cancer", "cancer", "breast cancer type 9", "TYPE"]
    assert found(names, "Breast cancer type 2 and breast cancer type 9") == [
        "Breast cancer",
        "breast cancer type 9",
    ]
    # The longer one is there in other letters only.
    assert found(["CAT S", "cat"], "cat s") == ["cat"]


def test_each_name_of_a_place_is_reported() -> None:
    matcher = NameMatcher(["CAT", "cat", "Cat", "dog"])
    assert matcher.find("cat CAT") == [NameHit(0, 3, (1, 2)), NameHit(4, 7, (0, 1, 2))]
    assert [matcher.name(number) for number in (0, 3)] == ["CAT", "dog"]


def test_names_that_no_text_can_have_are_counted() -> None:
    matcher = NameMatcher(["", "  ", "x" * (MAX_NAME + 1), "a\0b", "\ud800", "good  name"])
    assert (matcher.dropped, len(matcher), matcher.name(5)) == (5, 6, "good name")
    assert matcher.find("a good name, a\0b") == [NameHit(2, 11, (5,))]
    assert NameMatcher([]).find("text") == []
    assert NameMatcher(["name"]).find("") == []
    assert NameMatcher(["-"]).find("\u200b\u00ad") == []


def test_an_unknown_case_rule_is_refused() -> None:
    with pytest.raises(UsageError) as error:
        NameMatcher([], case="some")  # type: ignore[arg-type]
    assert (error.value.code, error.value.value) == ("unknown-case-rule", "some")


def test_many_names_are_found_in_a_long_text() -> None:
    rng = random.Random(1)
    names = ["".join(rng.choices("abcdefgh", k=rng.randint(3, 9))) for _ in range(60_000)]
    words = rng.choices(names, k=2_000)
    matcher = NameMatcher(names)
    hits = matcher.find(" ; ".join(words))
    assert [names[hit.names[0]] for hit in hits] == words


def test_a_word_of_a_million_letters_and_a_name_in_many_places() -> None:
    assert NameMatcher(["aa", "a a a"]).find("a" * 1_000_000) == []
    assert len(NameMatcher(["a a a", "a a"]).find("a " * 30_000)) == 10_000


PIECES = [*TRICKY, "a", "A", "ab", "BA", "b c", "C", "-", "–", "  ", "'", "’", "ς", "Σ", "ŉ", "ǰ", "\u0345", "½", "ﬀ"]
MIXED = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


def is_word_edge(text: str, place: int) -> bool:
    """Whether no word goes on at this place, by each character's own form."""
    from lexome.concepts.matcher import _WORD, _kind_of

    before = [character for character in fold_of(text[:place]) if character][-1:]
    after = [character for character in fold_of(text[place:]) if character][:1]
    return not (before and after and _kind_of(before[0]) == _kind_of(after[0]) == _WORD)


def fold_of(text: str) -> str:
    from lexome.concepts.matcher import _FOLDED

    return text.translate(_FOLDED)


@pytest.mark.property
@given(st.lists(MIXED, max_size=6), st.one_of(MIXED, texts()), st.sampled_from(["match", "ignore"]))
@example(["a"], "ŉ a", "ignore")
@example(["'n"], "ŉ", "ignore")
def test_hits_are_equal_to_their_names_and_the_longest_at_their_place(names: list[str], text: str, case: str) -> None:
    matcher = NameMatcher(names, case=case)  # type: ignore[arg-type]
    compared = keep_case if case == "match" else fold_case
    hits = matcher.find(text)
    position = 0
    for hit in hits:
        assert position <= hit.start < hit.end <= len(text)
        position = hit.end
        assert hit.names
        for number in hit.names:
            assert compared(text[hit.start : hit.end]) == compared(matcher.name(number))
        assert is_word_edge(text, hit.start)
        assert is_word_edge(text, hit.end)
    assert matcher.find_all([text, "", text]) == [hits, [], hits]


@pytest.mark.property
@given(st.lists(st.text("ab -", min_size=1, max_size=5), max_size=6), st.text("abAB -", max_size=20))
def test_the_same_is_found_as_by_comparing_every_range(names: list[str], text: str) -> None:
    usable = {" ".join(name.split()).casefold() for name in names} - {""}
    expected = []
    start = 0
    while start < len(text):
        ends = [
            end
            for end in range(len(text), start, -1)
            if is_word_edge(text, start)
            and is_word_edge(text, end)
            and not text[start].isspace()
            and not text[end - 1].isspace()
            and " ".join(text[start:end].split()).casefold() in usable
        ]
        if ends:
            expected.append((start, ends[0]))
        start = ends[0] if ends else start + 1
    assert [(hit.start, hit.end) for hit in NameMatcher(names, case="ignore").find(text)] == expected
