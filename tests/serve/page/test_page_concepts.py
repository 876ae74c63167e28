"""Ids on the page: linked to their databases, with names, and nothing in them becomes markup."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from page_acts import annotate
from services import Serving

from lexome.infer.annotator import Annotator
from lexome.infer.concepts import ConceptOptions

EVIL = "<img src=x onerror=alert(1)>"
TERMS = f"""id\tname\tsynonyms\ttype
NCBIGene:672\tBRCA1 name\tBRCA1\tGene
mesh:D001943\t{EVIL}\tbreast cancer|BC\tDisease
"""


@pytest.fixture
def linked_address(serving: Serving, ner_folder: Path, tmp_path: Path) -> Iterator[str]:
    (tmp_path / "terms.tsv").write_text(TERMS)
    options = ConceptOptions(terms=(str(tmp_path / "terms.tsv"),), only_terms=True)
    with serving(Annotator.open(ner_folder, threads=1, concepts=options)) as client:
        yield str(client.base_url.join("/"))


def test_ids_are_links_with_names(visit: Callable[..., Any], linked_address: str) -> None:
    page = visit(linked_address)
    page.check("#abbreviations")
    annotate(page, "BRCA1 in breast cancer (BC).")
    links = page.locator("#mentions .concept a")
    assert [link.get_attribute("href") for link in links.all()] == [
        "https://www.ncbi.nlm.nih.gov/gene/672",
        "https://meshb.nlm.nih.gov/record/ui?ui=D001943",
    ]
    assert {link.get_attribute("rel") for link in links.all()} == {"noreferrer noopener"}
    assert page.locator("#mentions .concept").first.inner_text() == "NCBIGene:672 BRCA1 name"
    page.locator("#documents mark", has_text="breast cancer").last.focus()
    assert EVIL in page.locator("#tip").inner_text()
    assert page.locator("#tip .concept a").count() >= 1
    assert page.locator("img").count() == 0
    page.locator("#documents mark", has_text="BC").first.focus()
    assert "breast cancer" in page.locator("#tip").inner_text()
