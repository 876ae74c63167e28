"""A warning for text that is not English."""

import pytest

from lexome import Document, Passage
from lexome.infer.annotation import looks_foreign

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
