"""Terms: Porter's stems, biomedical spellings, stop words, and where a text has a query's terms."""

from unicodedata import normalize

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import linear_work

from lexome.search.terms import MAX_QUERY_TERMS, matching_ranges, query_terms, stem, terms

# From the paper (Porter, 1980), one or more of each step.
STEMS = {
    "caresses": "caress", "ponies": "poni", "cats": "cat", "feed": "feed", "agreed": "agre", "plastered": "plaster",
    "bled": "bled", "motoring": "motor", "sing": "sing", "conflated": "conflat", "troubled": "troubl", "hopping": "hop",
    "falling": "fall", "filing": "file", "happy": "happi", "sky": "sky", "relational": "relat", "valenci": "valenc",
    "vietnamization": "vietnam", "operator": "oper", "sensibiliti": "sensibl", "triplicate": "triplic",
    "formalize": "formal", "hopefulness": "hope", "goodness": "good", "revival": "reviv", "adjustment": "adjust",
    "adoption": "adopt", "probate": "probat", "rate": "rate", "controll": "control", "roll": "roll", "yes": "ye",
}  # fmt: skip


@pytest.mark.parametrize("word", STEMS)
def test_stems_are_porters(word: str) -> None:
    assert stem(word) == STEMS[word]


SAME = [
    ("TNF-α", "TNFα", "TNF-alpha", "TNFalpha", "tnf alpha"),
    ("IL-2", "IL2", "il‐2", "IL–2"),
    ("β-catenin", "beta-catenin", "Beta Catenin"),
    ("NF-κB", "NF-kappaB"),
    ("inhibits", "inhibition", "INHIBITED"),
    ("H₂O", "h2o"),
]


@pytest.mark.parametrize("spellings", SAME, ids=lambda spellings: spellings[0])
def test_spellings_of_one_name_share_a_term(spellings: tuple[str, ...]) -> None:
    shared = set.intersection(*({term for term, _, _ in terms(spelling)} for spelling in spellings))
    assert shared, spellings


@pytest.mark.parametrize("plain", ["Sjögren-Köln", "NF-κB", "cancer", "IL-2"])
def test_accents_of_their_own_and_invisible_characters_change_no_term(plain: str) -> None:
    expected = [term for term, _, _ in terms(plain)]
    for text in (normalize("NFD", plain), plain[:1] + "\u00ad" + plain[1:], plain.replace("-", "-\u200b")):
        assert [term for term, _, _ in terms(text)] == expected
        assert matching_ranges(text, query_terms(plain)) == [(0, len(text))]


def test_terms_of_a_long_word_take_linear_work() -> None:
    with linear_work():
        assert len(list(terms("a" * 300_000))) == 1


def test_stop_words_are_left_out_unless_they_are_names_or_all_there_is() -> None:
    assert list(query_terms("What is the role of BRCA1?")) == ["role", "brca1"]
    assert list(query_terms("vaccines against hepatitis A")) == ["vaccin", "against", "hepat", "a"]
    assert list(query_terms("the WAS gene")) == ["wa", "gene"]
    assert list(query_terms("who was it")) == ["who", "wa", "it"]


def test_a_query_has_a_bounded_number_of_terms() -> None:
    assert len(query_terms(" ".join(f"w{number}" for number in range(100_000)))) == MAX_QUERY_TERMS


def test_ranges_are_of_the_text_as_it_is() -> None:
    text = "The IL-2 level and IL2Rα; interleukins."
    wanted = query_terms("il2 interleukin")
    assert [text[start:end] for start, end in matching_ranges(text, wanted)] == ["IL-2", "interleukins"]


@settings(max_examples=100)
@given(st.text())
def test_any_text_has_terms_inside_it(text: str) -> None:
    for term, start, end in terms(text):
        assert term
        assert 0 <= start < end <= len(text)
    for start, end in matching_ranges(text, query_terms(text)):
        assert text[start:end].strip()
