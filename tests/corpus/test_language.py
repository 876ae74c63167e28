"""Languages told from common words."""

import pytest

from lexome.corpus.languages import language_code, language_of

TEXTS = {
    "en": "The patients were treated with aspirin and the risk of stroke was lower than in the other group",
    "fr": "Les patients ont été traités par une dose de fer et le risque est plus faible dans le groupe",
    "de": "Die Patienten wurden mit Eisen behandelt und das Risiko ist bei der Gruppe nicht höher",
    "es": "Los pacientes se trataron con hierro y el riesgo fue menor en las personas del grupo",
    "it": "I pazienti sono trattati con ferro e il rischio della malattia è più basso nel gruppo",
    "pt": "Os pacientes foram tratados com ferro e o risco não foi mais alto em uma das cidades do norte",
}


@pytest.mark.parametrize(("code", "text"), TEXTS.items())
def test_a_sentence_is_told_by_its_common_words(code: str, text: str) -> None:
    assert language_of(text.lower().split()) == code


def test_names_and_numbers_are_no_language() -> None:
    assert language_of("BRCA1 TP53 EGFR 12 34 56 KRAS".lower().split()) is None
    assert language_of([]) is None


@pytest.mark.parametrize(
    ("code", "short"), [("eng", "en"), ("en", "en"), ("en-US", "en"), ("FRE", "fr"), ("fin", "fin")]
)
def test_codes_are_made_two_letters(code: str, short: str) -> None:
    assert language_code(code) == short
