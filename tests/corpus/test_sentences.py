"""Sentences: biomedical traps, ranges that cover the text, and time that grows with it."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from patience import linear_work
from strategies import documents, texts

import lexome
from lexome import Document, Passage
from lexome.corpus.sentences import split_sentences, with_sentences


def sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in split_sentences(text)]


@pytest.mark.parametrize(
    "marked",
    [
        "We grew E. coli and N. meningitidis. | Both died.",
        "As Smith et al. showed in Fig. 2, i.e. at 37 °C vs. 42 °C, approx. 5 grew.",
        "It was reported by Smith et al. | We disagree.",
        "Dr. Who and Prof. J. R. Smith agreed. | So did St. John.",
        "The change was significant (p < 0.05). | The rest was not.",
        "The change was significant, p < 0.05. | The rest (n = 3) was not.",
        "It rose to 3.5 mg. | Then it fell to 0.5. | 12 patients were left.",
        "This was shown before [12]. | Others doubt it.(13) | We do not.",
        "It grows in cells.12 | We saw that.[3,4] | So did they.",
        "We looked at tumours. | p53 is lost. | c-Myc is not. | mRNA rose.",
        "It rose. | α-synuclein fell. | beta 2-microglobulin did too.",
        "BACKGROUND: Little is known. | METHODS: We asked. | RESULTS: 12 answered.",
        "Activated by NF-kappa B. | Inhibitors stop it. | This is so in hepatitis C. | Others differ.",
        "It was read after 24 h. | Cells were fixed for 10 min. | Slides were kept.",
        "Drugs were given i.p. or i.v. to rats. | They were given s.c. | The rest had none.",
        "It is a radical, NO. | Nothing else is. | See no. 5 and vol. 3.",
        "Is it so? | Yes! | It is (we think!) and will be.",
        "He said \"it grows.\" | Then he left. | (It did.) | [It did not.]",
        "1. First we asked. | 2. Then they answered. | ii. Later we left.",
        "The 5'-end binds. | 5'-Azacytidine does not.",
        "In rats (Smith, J. Virol. 65: 6790, 1991) it binds. | Here it does not.",
        "a b . | The next one .",
        "She waited ... and waited... | Then she left.",
        "It acts on the U.S. population. | It is so in the U.S. | This is new.",
        "Rats died.  |  *Not all of them. | - Some lived.",
        "",
        "   ",
        "No stop at all",
    ],
)  # fmt: skip
def test_sentences_end_where_they_do(marked: str) -> None:
    wanted = [piece.strip() for piece in marked.split("|") if piece.strip()]
    assert sentences(" ".join(wanted)) == wanted


def test_lines_that_go_on_are_one_sentence_and_paragraphs_and_items_are_not() -> None:
    text = " The cells\nwere grown. \n\n Materials \n \n- first\n- second: e.g.\n\nsmall\u2029(a) last\n"
    assert sentences(text) == ["The cells\nwere grown.", "Materials", "- first", "- second: e.g.", "small", "(a) last"]


PIECES = [
    "E. coli",
    ". ",
    "? ",
    "The",
    "p53",
    " ",
    "\n",
    "\n\n",
    "\u2029",
    ".)",
    "(",
    '"',
    "et al.",
    "1.",
    "- ",
    "\u3000",
    "。",
    "12",
]


@given(st.one_of(texts(), st.lists(st.sampled_from(PIECES), max_size=20).map("".join)))
def test_ranges_are_in_order_and_hold_everything_but_white_space(text: str) -> None:
    ranges = split_sentences(text)
    assert all(left[1] < right[0] for left, right in pairwise(ranges))
    assert "".join("".join(text[start:end].split()) for start, end in ranges) == "".join(text.split())
    for start, end in ranges:
        assert start < end
        assert text[start:end] == text[start:end].strip()


STUBBORN = [
    *("a. ", ".", "(", ". (", "(a. B", "\n ", "a.) ", ".1,1,1,1", "\n", "a.\u2029", " ", "e.g. ", "A.", ". - ", "\n- "),
    *(".[", ". \n", ".\n("),
]


@pytest.mark.parametrize("piece", STUBBORN)
def test_a_megabyte_of_anything_takes_a_moment(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    # The slowest takes about a second, a sentence for every three characters.
    with linear_work():
        split_sentences(f"{text}a")


def test_a_document_gets_sentences_where_it_has_none() -> None:
    known = Passage(20, "It is. It was.", sentences=((20, 34),))
    doc = Document("1", (Passage(0, "One. Two."), Passage(10, "  "), known))
    filled = with_sentences(doc)
    assert [passage.sentences for passage in filled.passages] == [((0, 4), (5, 9)), (), ((20, 34),)]
    assert replace(filled, passages=doc.passages) == doc


@given(documents())
def test_any_document_can_be_filled_and_once_is_enough(doc: Document) -> None:
    filled = with_sentences(doc)
    assert filled.text == doc.text
    assert with_sentences(filled) == filled


def test_sentences_of_genia_are_found(real_data: Path) -> None:
    path = real_data / "benchmarks" / "JNLPBA" / "typed-5class" / "devel.tsv.xz"
    right = wanted = found = 0
    for doc in lexome.read(path):
        for passage in doc.passages:
            # The file has one sentence a line and spaces around its stops.
            theirs = {end for _, end in passage.sentences}
            ours = {end for _, end in split_sentences(passage.text.replace("\n", " "))}
            right, wanted, found = right + len(theirs & ours), wanted + len(theirs), found + len(ours)
    assert right / wanted > 0.98
    assert right / found > 0.98
