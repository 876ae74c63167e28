"""Where models relate, classify and answer, the page shows that too."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page_acts import annotate, saved, slide

from lexome.infer.annotator import Annotator


@pytest.fixture
def full_page(visit: Any, serving: Any, everything: Annotator) -> Iterator[Any]:
    with serving(everything) as client:
        page = visit(str(client.base_url.join("/")))
        annotate(page, "BRCA1 melanoma good olaparib breast cancer .")
        yield page


def test_a_question_is_answered_from_the_text(full_page: Any) -> None:
    full_page.fill("#question", "which ?")
    full_page.keyboard.press("Enter")
    assert full_page.locator("#answers li").first.inner_text().startswith("olaparib breast cancer")


def test_relations_and_classes_are_listed(full_page: Any) -> None:
    full_page.locator(".relations summary").click()
    assert full_page.locator(".relation").first.inner_text() == "raises"
    assert full_page.locator(".chips li").all_inner_texts() == ["good"]


def test_a_relation_goes_with_its_mentions(full_page: Any) -> None:
    full_page.get_by_role("checkbox", name="Gene").uncheck()
    full_page.locator(".relations").wait_for(state="hidden")
    assert full_page.locator(".relation").count() == 0


def test_a_relation_of_too_low_a_score_is_not_saved(full_page: Any, tmp_path: Path) -> None:
    slide(full_page, 0.7)
    [doc] = json.loads(saved(full_page, "json", tmp_path).read_text("utf-8"))["documents"]
    assert (len(doc["spans"]), doc.get("relations", [])) == (4, [])


def test_an_answer_that_comes_too_late_is_not_shown(full_page: Any) -> None:
    late: list[Any] = []
    full_page.route("**/ask", lambda route: late.append(route))
    full_page.fill("#question", "which ?")
    with full_page.expect_request("**/ask"):
        full_page.keyboard.press("Enter")
    annotate(full_page, "TP53")
    with full_page.expect_response("**/ask") as answer:
        late[0].continue_()
    answer.value.finished()
    full_page.wait_for_timeout(100)  # time in which it could be shown
    assert full_page.locator("#answers li").count() == 0


def test_without_such_a_model_there_is_no_question(page: Any) -> None:
    annotate(page)
    assert page.locator("#ask").is_hidden()
