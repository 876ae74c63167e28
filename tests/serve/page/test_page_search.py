"""Where the server has an index, the page searches it and asks it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lexome.document import Document, lay_out
from lexome.formats import write
from lexome.infer.annotator import Annotator
from lexome.search.build import index
from lexome.search.engine import Index


@pytest.fixture
def search_page(visit: Any, serving: Any, everything: Annotator, tmp_path: Path) -> Iterator[Any]:
    # A character of two UTF-16 units before the words: offsets count characters.
    text = "𝛼 <b>BRCA1</b> is lost. Olaparib cancer trials began."
    write(tmp_path / "docs.jsonl", [Document("d1", lay_out([("abstract", text)]))])
    index([tmp_path / "docs.jsonl"], tmp_path / "papers", progress_shown=False)
    with serving(everything, indexes={"papers": Index.open(tmp_path / "papers")}) as client:
        page = visit(str(client.base_url.join("/")))
        page.locator("#search").wait_for()
        yield page


def test_found_words_are_marked(search_page: Any) -> None:
    search_page.fill("#query", "brca1 trials")
    search_page.keyboard.press("Enter")
    search_page.locator("#hits b").first.wait_for()
    assert search_page.locator("#hits b").all_inner_texts() == ["BRCA1", "trials"]
    assert "<b>" in search_page.locator("#hits").inner_text()


def test_a_question_is_answered_with_its_sentence(search_page: Any) -> None:
    search_page.fill("#query", "Where is BRCA1?")
    search_page.click("#ask-index")
    search_page.locator("#hits strong").first.wait_for()
    assert search_page.locator("#hits strong").first.inner_text() == "Olaparib cancer"
    assert search_page.locator("#hits b").first.inner_text() == "Olaparib cancer"


def test_a_concept_may_be_given_by_name(search_page: Any) -> None:
    search_page.fill("#concepts", "breast cancer, NCBIGene:672")
    search_page.keyboard.press("Enter")
    search_page.locator("#error").wait_for()
    # The documents of this index are not annotated.
    said = search_page.locator("#error").inner_text()
    assert "no mentions: its documents are not annotated. The operator of this server can change that." in said


def test_results_of_an_earlier_request_are_cleared(search_page: Any) -> None:
    search_page.fill("#query", "brca1 trials")
    search_page.keyboard.press("Enter")
    search_page.locator("#hits b").first.wait_for()
    search_page.fill("#query", "")
    search_page.keyboard.press("Enter")
    assert search_page.locator("#hits").inner_text() == "Type words, or the name or id of a concept, to search for."
    search_page.fill("#query", "Quels sont les gènes du cancer et pourquoi ?")
    search_page.click("#ask-index")
    search_page.locator("#error", has_text="French").wait_for()
    assert search_page.locator("#hits li").count() == 0


def test_an_improbable_answer_is_hedged_as_in_the_terminal(search_page: Any) -> None:
    body = '{"answers": [], "evidence": [], "calibrated": true, "note": "m does not know. The closest sentences:"}'
    search_page.route("**/search/ask", lambda route: route.fulfill(content_type="application/json", body=body))
    search_page.fill("#query", "Where is BRCA1?")
    search_page.click("#ask-index")
    search_page.locator("#hits li", has_text="M does not know. The closest sentences:").wait_for()


def test_without_an_index_there_is_no_search(page: Any) -> None:
    assert page.locator("#search").is_hidden()
