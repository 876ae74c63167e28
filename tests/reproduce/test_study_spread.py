"""Ranges between labs for one checkpoint."""

from lexome.recipe.study import shipped
from lexome.reproduce.aggregate import lab_ranges

BIOBERT = "BioBERT-v1.1"


def test_five_labs_report_biobert_on_ncbi_disease() -> None:
    found = lab_ranges(shipped())[BIOBERT, "NCBI-disease", "f1"]
    assert found.labs == {
        "lee2020": 89.71,
        "dmis-lab/biobert-pytorch": 88.3,
        "lewis2020": 87.6,
        "fang2023": 88.48,
        "shin2020": 87.5,
    }
    assert (found.low, found.high) == (87.5, 89.71)
    assert found.contains(88)
    assert not found.contains(90)


def test_macro_and_micro_averages_are_not_compared() -> None:
    found = lab_ranges(shipped())
    assert set(found[BIOBERT, "ChemProt", "f1"].labs) == {"lee2020", "lewis2020", "shin2020"}
    assert set(found[BIOBERT, "ChemProt", "macro_f1"].labs) == {"fang2023"}


def test_question_answering_with_and_without_squad_is_separate() -> None:
    found = lab_ranges(shipped())
    assert set(found[BIOBERT, "BioASQ-7b-after-SQuAD", "mrr"].labs) == {"fang2023", "shin2020"}
    assert set(found[BIOBERT, "BioASQ-7b", "mrr"].labs) == {"fang2023"}
