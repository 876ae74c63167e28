"""Definitions of abbreviations: long forms, their places, lists, and what is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexome import write
from lexome.concepts import abbreviations
from lexome.concepts.abbreviations import abbreviation_spans, annotate_abbreviations, find_abbreviations, long_forms
from lexome.datasets import find, own_layouts
from lexome.document import Document, lay_out
from lexome.formats import read
from lexome.formats.streams import open_sources
from lexome.formats.tally import Tally


def _doc(*texts: str) -> Document:
    return Document("1", lay_out(("paragraph", text) for text in texts))


def _pairs(text: str) -> list[tuple[str, str]]:
    return [(one.short_text, one.long_text) for one in find_abbreviations(_doc(text))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("with amyotrophic lateral sclerosis (ALS).", [("ALS", "amyotrophic lateral sclerosis")]),
        (
            "the estrogen receptor (ER) and multiple sclerosis (MS)",
            [("ER", "estrogen receptor"), ("MS", "multiple sclerosis")],
        ),
        ("Kappa opioid receptors (KORs) bind", [("KORs", "Kappa opioid receptors")]),
        ("5-hydroxytryptamine (5HT)", [("5HT", "5-hydroxytryptamine")]),
        ("with 2,3-diaminonaphthalene (DAN) as", [("DAN", "2,3-diaminonaphthalene")]),
        ("neurofibromatosis type 1 (NF1)", [("NF1", "neurofibromatosis type 1")]),
        ("gamma-interferon (IFN-gamma)", [("IFN-gamma", "gamma-interferon")]),
        # Short form first, and both in the parentheses.
        ("TNF (tumour necrosis factor) is", [("TNF", "tumour necrosis factor")]),
        ("was amplified (PCR, polymerase chain reaction) and", [("PCR", "polymerase chain reaction")]),
        ("transthyretin (hereafter called TTR) is", [("TTR", "transthyretin")]),
        # Nested and other brackets.
        (
            "fell [forced expiratory volume in 1 s (FEV1)/forced vital capacity (FVC)]",
            [("FEV1", "forced expiratory volume in 1 s"), ("FVC", "forced vital capacity")],
        ),
        ("c-Jun N-terminal kinase [JNK]", [("JNK", "c-Jun N-terminal kinase")]),
        # Lists, and long forms that share a word.
        ("left and right ventricle (LV and RV, respectively)", [("LV", "left ventricle"), ("RV", "right ventricle")]),
        (
            "gas chromatography and mass spectrometry (GC and MS, respectively)",
            [("GC", "gas chromatography"), ("MS", "mass spectrometry")],
        ),
        (
            "scanning (SEM) and transmission electron microscopy (TEM)",
            [("SEM", "scanning electron microscopy"), ("TEM", "transmission electron microscopy")],
        ),
        (
            "polychromatic (PCE) and normochromatic (NCE) erythrocytes",
            [("PCE", "polychromatic erythrocytes"), ("NCE", "normochromatic erythrocytes")],
        ),
        # No definitions.
        ("patients (n = 12) and controls (range 3-5)", []),
        ("as shown (see Fig. 2) by others (Smith, 1999)", []),
        ("a drug (aspirin) was given", []),
        ("It was alive. Sclerosis (AS) began", []),
        ("(ALS)", []),
        ("an unclosed ( parenthesis and ] bracket (", []),
        ("", []),
    ],
)
def test_definitions(text: str, expected: list[tuple[str, str]]) -> None:
    assert _pairs(text) == expected


PIECES = st.sampled_from(
    [
        "(",
        ")",
        "[",
        "]",
        ", ",
        " and ",
        " or ",
        "; ",
        ". ",
        " ",
        "LV",
        "RV",
        "left",
        "right ventricle",
        "(LV)",
        "(LV and RV)",
        "respectively",
        "İ",
        "ß",
        "β",
        "2,3-",
        "IFN-gamma",
        "gamma interferon",
        "transmission electron microscopy",
        "(TEM)",
    ]
)


@given(st.lists(PIECES, max_size=14).map("".join))
def test_any_text_gives_definitions_that_are_in_it(text: str) -> None:
    doc = _doc(text) if text else _doc()
    (annotated,) = annotate_abbreviations([doc])  # constructing it checks every offset
    assert len(annotated.relations) == len(find_abbreviations(doc))


def test_offsets_are_of_the_document_and_long_forms_may_have_parts() -> None:
    doc = _doc("A title.", "left and right ventricle (LV and RV)")
    for one in find_abbreviations(doc):
        assert doc.slice(*one.short) == one.short_text
        assert " ".join(doc.slice(*part) for part in one.long) == one.long_text
    assert len(find_abbreviations(doc)[0].long) == 2


def test_step_adds_spans_and_relations_once(tmp_path) -> None:
    doc = _doc("amyotrophic lateral sclerosis (ALS) and multiple sclerosis (MS)")
    (first,) = annotate_abbreviations([doc])
    assert [(short.text, long.text) for short, long in abbreviation_spans(first)] == [
        ("ALS", "amyotrophic lateral sclerosis"),
        ("MS", "multiple sclerosis"),
    ]
    assert {relation.type for relation in first.relations} == {"Abbreviation"}
    (again,) = annotate_abbreviations([first])
    assert again == first
    write(tmp_path / "x.bioc.xml", [first])
    (back,) = read(tmp_path / "x.bioc.xml")
    assert [(short.text, long.text) for short, long in abbreviation_spans(back)] == [
        (short.text, long.text) for short, long in abbreviation_spans(first)
    ]


def test_long_forms_know_plurals() -> None:
    forms = long_forms(find_abbreviations(_doc("Kappa opioid receptors (KORs) and nerve growth factor (NGF)")))
    assert forms["KOR"] == forms["KORs"] == "Kappa opioid receptors"
    assert forms["NGFs"] == "nerve growth factor"


MED1250 = b"""8549581
Sodium citrate ingestion in hypoxia.
Either citrate (C) was given at local barometric pressure (N) or
 in hypobaric hypoxia (HH), left or right (LR).
  HH|hypobaric hypoxia
// comment
  N|normal
  XY|nowhere at all
8549581
\x94 More text with maximal voluntary contraction (MVC).
  MVC|maximal voluntary contraction

17
No abbreviations.
"""


def test_reader_of_med1250(tmp_path) -> None:
    (tmp_path / "MED1250_labeled").write_bytes(MED1250)
    tally = Tally()
    docs = list(own_layouts.read_abbreviations(open_sources(tmp_path / "MED1250_labeled", tally), tally=tally))
    assert [doc.id for doc in docs] == ["8549581", "17"]
    assert [(short.text, long.text) for short, long in abbreviation_spans(docs[0])] == [
        ("HH", "hypobaric hypoxia"),
        ("MVC", "maximal voluntary contraction"),
    ]
    assert tally.notes[own_layouts.NOT_FOUND] == 2
    assert (own_layouts.SHORT_FORM, own_layouts.LONG_FORM, own_layouts.ABBREVIATION) == (
        abbreviations.SHORT_FORM,
        abbreviations.LONG_FORM,
        abbreviations.ABBREVIATION,
    )


def test_real_articles(real_data) -> None:
    docs = find("MED1250", data=real_data / "benchmarks").split("train")
    assert len(docs) == 1250
    correct = found = gold = 0
    for doc in docs:
        pairs = {(one.short_text, one.long_text) for one in find_abbreviations(doc)}
        annotated = {(short.text, long.text) for short, long in abbreviation_spans(doc)}
        correct, found, gold = correct + len(pairs & annotated), found + len(pairs), gold + len(annotated)
    assert correct / found >= 0.96
    assert correct / gold >= 0.85
