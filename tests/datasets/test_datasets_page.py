"""The page of the sets says what the cards say."""

from pathlib import Path

from lexome import datasets
from lexome.cli.datasets import set_table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "datasets.md"


def test_the_page_has_the_table_of_the_cards() -> None:
    assert set_table(datasets.every()) in PAGE.read_text(encoding="utf-8")
