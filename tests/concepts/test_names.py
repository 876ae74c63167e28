"""Names: folded, keyed and compared."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexome.concepts.names import (
    Agreement,
    compare_names,
    composite_parts,
    fold_name,
    name_key,
    reduced_forms,
    tidy_name,
)


@pytest.mark.parametrize(
    ("name", "folded"),
    [
        ("BRCA1", "brca1"),
        ("TNF-α", "tnf alpha"),
        ("TNFα", "tnfalpha"),
        ("β‑catenin", "beta catenin"),
        ("μ-opioid", "mu opioid"),
        ("Sjögren’s syndrome", "sjogren syndrome"),
        ("Alzheimer's disease", "alzheimer disease"),
        ("5′-nucleotidase", "5 nucleotidase"),
        ("Ca2+", "ca2+"),
        ("(−)-epicatechin", "epicatechin"),
        ("Ménétrier", "menetrier"),
        ("ﬁbroma", "fibroma"),
        ("рак", "рак"),
        ("--", ""),
    ],
)
def test_names_fold(name: str, folded: str) -> None:
    assert fold_name(name) == folded


@pytest.mark.parametrize(
    ("first", "second", "agreement"),
    [
        ("HeLa", "HeLa", Agreement.EXACT),
        ("HeLa", "HELA", Agreement.CASE),
        ("IL-2", "IL 2", Agreement.FOLDED),
        ("IL-2", "IL2", Agreement.LOOSE),
        ("TNF-α", "TNFA", None),
        ("cancer of the breast", "Breast Cancers", Agreement.LOOSE),
        ("tumours of lung", "lung tumor", Agreement.LOOSE),
        ("haemophilia A", "Hemophilia A", Agreement.LOOSE),
        ("oesophageal atresia", "esophageal atresia", Agreement.LOOSE),
        ("sulphate", "sulfate", Agreement.LOOSE),
        ("type 2 diabetes mellitus", "Diabetes Mellitus, Type 2", Agreement.LOOSE),
        ("type 2 diabetes mellitus", "Diabetes Mellitus, Type 1", None),
        ("A2M", "M2A", None),
        ("Na+", "Na", None),
    ],
)
def test_names_agree_at_a_level(first: str, second: str, agreement: Agreement | None) -> None:
    assert compare_names(first, second) == agreement
    assert compare_names(second, first) == agreement


@given(st.text())
def test_folding_is_idempotent_and_keys_are_those_of_the_folded_name(name: str) -> None:
    folded = fold_name(name)
    assert fold_name(folded) == folded
    assert name_key(folded) == name_key(name)


@given(st.text())
def test_spaces_case_and_composition_do_not_change_the_key(name: str) -> None:
    tidy = tidy_name(name)
    assert tidy_name(tidy) == tidy
    assert name_key(f" {tidy}  ") == name_key(name)
    assert compare_names(tidy, tidy) is Agreement.EXACT


@given(st.lists(st.sampled_from(["breast", "cancer", "2", "of", "type", "-", "tumours", "α"]), max_size=6))
def test_the_key_of_words_does_not_depend_on_their_order(words: list[str]) -> None:
    key = name_key(" ".join(words))
    if " " in key:
        assert name_key(" ".join(reversed(words))) == key


@pytest.mark.parametrize(
    ("text", "genes"),
    [
        ("ERK1/2", "ERK1 ERK2"),
        ("IL-1alpha/beta", "IL-1alpha IL-1beta"),
        ("IKKα/β", "IKKα IKKβ"),
        ("IL-17A/F", "IL-17A IL-17F"),
        ("S100A7/A8/A9", "S100A7 S100A8 S100A9"),
        ("CYP1A1/2", "CYP1A1 CYP1A2"),
        ("CYP11B2/B1", "CYP11B2 CYP11B1"),
        ("KIR2DL1/DL2", "KIR2DL1 KIR2DL2"),
        ("C/EBPalpha/beta", "C/EBPalpha C/EBPbeta"),
        ("Notch1-4", "Notch1 Notch2 Notch3 Notch4"),
        ("RagA–D", "RagA RagB RagC RagD"),
        ("E- and P-selectin", "E-selectin P-selectin"),
        ("TGF-beta1 and -beta2", "TGF-beta1 TGF-beta2"),
        ("ROCK-I/II", "ROCK-I ROCK-II"),
        ("FMO-1, -2, and 5", "FMO-1 FMO-2 FMO-5"),
        ("ATM/ATR", "ATM ATR"),
        ("Abeta1-42", ""),  # a part of a protein
        ("miR-17-92", ""),
        ("cp12-1", ""),
        ("UGT1A9 and 1A1", "UGT1A9 UGT1A1"),
    ],
)
def test_listed_genes_are_taken_apart(text: str, genes: str) -> None:
    assert composite_parts(text, "Gene") == genes.split()


def test_signs_of_oxidation_and_deletion_are_left_out() -> None:
    assert ("copper", 1) in reduced_forms("copper(II)", "Chemical")
    assert ("phoP", 1) in reduced_forms("ΔphoP", "Gene")
