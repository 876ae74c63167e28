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
    # The first item is "Reading…" until the server has answered.
    items = full_page.locator("#answers li:not(.soft)")
    items.first.wait_for()
    answers = items.all_inner_texts()
    assert answers[0].startswith("olaparib breast cancer")
    # Each further one is elsewhere in the text.
    assert not any(one.startswith(("olaparib", "breast")) for one in answers[1:])


def test_a_question_that_no_model_answers_is_explained(full_page: Any) -> None:
    full_page.fill("#question", "Is olaparib good?")
    full_page.keyboard.press("Enter")
    full_page.locator("#answers li", has_text="yes/no").wait_for()
    full_page.fill("#question", "Welche Gene sind das und was ist der Grund?")
    full_page.keyboard.press("Enter")
    full_page.locator("#error", has_text="Translate it.").wait_for()
    shown = full_page.locator("#error").inner_text()
    assert ("cannot be answered" in shown, "format" in shown) == (True, False)


def relations_of(page: Any) -> list[list[str]]:
    """Who, relation and whom of each row."""
    found: list[list[str]] = page.locator("table.who tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].slice(0, 3).map(cell => cell.textContent))"
    )
    return found


def test_relations_and_classes_are_listed(full_page: Any) -> None:
    assert relations_of(full_page) == [["BRCA1", "raises", "melanoma"], ["BRCA1", "raises", "breast cancer"]]
    assert full_page.locator(".chips li").all_inner_texts() == ["good"]


def test_the_mentions_of_a_relation_under_the_pointer_are_lit(full_page: Any) -> None:
    full_page.locator("table.who tbody tr").first.hover()
    assert full_page.locator("mark.related").all_text_contents() == ["BRCA1", "melanoma"]
    full_page.locator("table.who tbody tr").nth(1).focus()
    full_page.locator("#found").hover()
    assert full_page.locator("mark.related").all_text_contents() == ["BRCA1", "breast cancer"]


def test_a_relation_goes_with_its_mentions(full_page: Any) -> None:
    full_page.get_by_role("checkbox", name="Gene").uncheck()
    full_page.locator(".relations").wait_for(state="hidden")
    assert relations_of(full_page) == []


def test_relations_of_a_type_that_is_off_are_neither_shown_nor_saved(full_page: Any, tmp_path: Path) -> None:
    full_page.get_by_role("checkbox", name="raises").uncheck()
    assert relations_of(full_page) == []
    [doc] = json.loads(saved(full_page, "json", tmp_path).read_text("utf-8"))["documents"]
    assert (len(doc["spans"]), doc["relations"]) == (4, [])


def test_a_relation_of_too_low_a_score_is_not_saved(full_page: Any, tmp_path: Path) -> None:
    slide(full_page, 0.655, "#relation-score")
    assert relations_of(full_page) == [["BRCA1", "raises", "breast cancer"]]
    full_page.select_option("#format", "tsv")
    full_page.select_option("#table", "relations")
    lines = saved(full_page, "tsv", tmp_path).read_text("utf-8").splitlines()
    assert [line.split("\t")[8] for line in lines] == ["relation", "raises"]


def test_without_relations_asked_for_none_are_predicted(full_page: Any) -> None:
    full_page.get_by_role("checkbox", name="Relations", exact=True).uncheck()
    annotate(full_page, "BRCA1 melanoma .")
    assert relations_of(full_page) == []
    assert full_page.locator("#relation-types").is_hidden()


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
