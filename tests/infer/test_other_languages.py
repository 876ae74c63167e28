"""A warning for text that is not English."""

import pytest
from patience import linear_work

from lexome import Document, Passage
from lexome.formats.citation import find_pmids
from lexome.infer.annotation import describe_concerns, looks_foreign

ENGLISH = (
    "Mutations in BRCA1 raise the risk of breast cancer, and olaparib is used to treat it; these patients were "
    "followed for five years."
)
OTHERS = {
    "German": "Mutationen in BRCA1 erhöhen das Risiko für Brustkrebs, und Olaparib wird zur Behandlung der "
    "Patientinnen mit einer solchen Mutation eingesetzt, die bei der Untersuchung gefunden wurde.",
    "French": "Les mutations du gène BRCA1 augmentent le risque de cancer du sein, et les patientes sont traitées "
    "par olaparib dans une étude qui a été menée avec des médecins.",
    "Spanish": "Las mutaciones del gen aumentan el riesgo de cáncer de mama, y los pacientes fueron tratados con un "
    "fármaco para la enfermedad por los médicos del hospital.",
    "Chinese": "乳腺癌患者的基因突变会增加患病风险，奥拉帕利用于治疗这些患者，研究持续了五年。",
    "Russian": "Мутации гена повышают риск рака молочной железы, и для лечения больных применяют препарат.",
}


def doc(text: str) -> Document:
    return Document("d", (Passage(0, text),))


@pytest.mark.parametrize("language", OTHERS)
def test_other_languages_are_told(language: str) -> None:
    assert looks_foreign(doc(OTHERS[language]))


@pytest.mark.parametrize(
    "text", ["", "BRCA1", ENGLISH, "α-synuclein β-catenin " * 12, "BRCA1 TP53 EGFR KRAS " * 10, ENGLISH.upper()]
)
def test_english_and_lists_of_names_are_not(text: str) -> None:
    assert not looks_foreign(doc(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Olaparib wird bei einer Mutation eingesetzt.", True),
        ("Le gène BRCA1 est muté dans le cancer du sein.", True),
        ("Patients die per day, do no harm", False),
        ("Breast cancer, van der Woude syndrome", False),
        ("BRCA1 is mutated in der Hoeven's patients", False),
    ],
)
def test_a_sentence_is_told_where_no_word_is_english(text: str, expected: bool) -> None:
    assert looks_foreign(doc(text)) == expected


def test_concerns_are_told_with_the_number_of_documents() -> None:
    assert describe_concerns([doc(ENGLISH)]) == []
    assert ["English" in one for one in describe_concerns([doc(OTHERS["German"])])] == [True]
    short, pmids = describe_concerns([doc("PMID: 29446767, 30102808"), doc("BRCA1"), doc(ENGLISH), doc("")])
    assert pmids.startswith("1 of 4 documents: The text is a list of PMIDs.")
    assert short.startswith("1 of 4 documents: The text has very few words.")


@pytest.mark.parametrize("text", ["PMID" + " " * 100_000 + "x", "1 " * 50_000 + "x", "12345," * 20_000 + "!"])
def test_text_that_is_almost_a_list_of_pmids_takes_linear_work(text: str) -> None:
    with linear_work():
        assert find_pmids(text) == []
        assert describe_concerns([doc(text)] * 20) is not None
