"""What the readers of citations share."""

import pytest
from patience import linear_work

from lexome.formats.citation import fold, pmcid


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("zorb  blin", "zorb  blin"),
        (" zorb \t\r\n\n \t blin\n", "zorb blin"),
        ("\u00a0zorb\u0085\nblin\u2003", "\u00a0zorb\u0085 blin\u2003"),
        ("\n \n", ""),
        ("", ""),
    ],
)
def test_line_breaks_and_the_blanks_around_them_become_one_space(text: str, folded: str) -> None:
    assert fold(text) == folded


def test_long_runs_of_blanks_are_folded_at_once() -> None:
    blanks = " " * 300_000
    with linear_work():
        assert fold(f"a{blanks}b\n{blanks}c{blanks}\n") == f"a{blanks}b c"


@pytest.mark.parametrize(("given", "id_"), [("77", "PMC77"), ("PMC77", "PMC77"), ("77.1", "77.1")])
def test_a_bare_number_gets_the_letters_of_a_pmc_id(given: str, id_: str) -> None:
    assert pmcid(given) == id_
