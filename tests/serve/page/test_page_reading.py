"""Reading: mentions in the text and in the table, types switched, scores slid, documents dropped."""

import json
from pathlib import Path
from typing import Any

import pytest
from page_acts import FOUND, TEXT, annotate, drop, marked, put, recipe_of_run, rows, slide

from lexome.infer.annotator import Annotator


def test_mentions_are_marked_where_the_model_found_them(page: Any) -> None:
    annotate(page)
    assert (marked(page), page.locator("#documents .text").inner_text()) == (FOUND, TEXT)


def test_the_table_has_what_the_annotator_says(page: Any, annotator: Annotator) -> None:
    annotate(page)
    expected = [(span.text, span.type, str(span.start), str(span.end)) for span in annotator(TEXT).spans]
    assert [(text, type_, start, end) for text, type_, _, start, end in rows(page)] == expected


def test_the_pointer_brings_up_type_score_and_place(page: Any) -> None:
    annotate(page)
    page.locator("mark", has_text="TP53").hover()
    assert page.locator("#tip").inner_text().split() == ["Gene", "0.900", "TP53", "10–14"]


def test_what_is_said_stays_with_its_mention_while_the_page_still_glides(visit: Any) -> None:
    page = visit(reduced_motion="no-preference", viewport={"width": 1280, "height": 400})
    annotate(page)
    at_rest(page)
    page.locator("mark", has_text="TP53").hover()
    before = distance(page)
    page.evaluate("scrollBy({top: 4, behavior: 'instant'})")
    at_rest(page)
    assert (page.locator("#tip").is_visible(), distance(page)) == (True, before)


def test_what_is_said_goes_with_its_mention_when_that_leaves_the_screen(page: Any) -> None:
    annotate(page)
    page.locator("mark", has_text="TP53").focus()
    assert page.locator("#tip").is_visible()
    page.evaluate("document.body.style.paddingBottom = '3000px', scrollBy({top: 2000, behavior: 'instant'})")
    page.locator("#tip").wait_for(state="hidden")


def at_rest(page: Any) -> None:
    """Wait until nothing has scrolled for a tenth of a second."""
    page.evaluate(
        """async () => {
          for (let still = 0, last = scrollY; still < 6; last = scrollY) {
            await new Promise(requestAnimationFrame);
            still = scrollY === last ? still + 1 : 0;
          }
        }"""
    )


def distance(page: Any) -> float:
    """From the top of a lit mention to the top of what is said of it."""
    found: float = page.evaluate(
        "document.getElementById('tip').getBoundingClientRect().top"
        " - document.querySelector('mark.on').getBoundingClientRect().top"
    )
    return found


def test_a_type_is_switched_off_and_on(page: Any) -> None:
    annotate(page)
    page.get_by_role("checkbox", name="Gene").uncheck()
    page.locator("mark", has_text="BRCA1").wait_for(state="detached")
    without = marked(page)
    page.get_by_role("checkbox", name="Gene").check()
    page.locator("mark", has_text="BRCA1").wait_for()
    assert (without, marked(page)) == (FOUND[2:], FOUND)


def test_the_slider_acts_without_asking_the_server(page: Any) -> None:
    annotate(page)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    slide(page, 0.97)
    counts = page.locator("#type-keys .count").all_text_contents()
    assert (marked(page), counts, asked) == (["BRCA1", "olaparib"], ["0", "1", "1"], [])


def test_offsets_count_characters_beyond_the_first_plane_once(page: Any) -> None:
    text = "🐭🧬 BRCA1 𝛼 TP53 👩‍⚕️ melanoma"
    annotate(page, text)
    words = ["BRCA1", "TP53", "melanoma"]
    assert (marked(page), [row[3] for row in rows(page)]) == (words, [str(text.index(word)) for word in words])


def test_an_example_is_annotated_and_undo_brings_the_old_text_back(page: Any) -> None:
    page.locator("#text").press_sequentially("BRCA1 mine")
    page.get_by_role("button", name="A drug trial").click()
    recipe_of_run(page)
    assert "BRCA1" in marked(page)
    page.locator("#text").press("Control+z")
    assert page.input_value("#text") == "BRCA1 mine"


def test_a_dropped_file_of_documents_is_shown_passage_by_passage(page: Any, sample: Path) -> None:
    drop(page, sample.name, sample.read_text("utf-8"))
    titles = page.locator("#documents h3").all_inner_texts()
    assert (titles, marked(page), page.locator("#found").inner_text()) == (
        ["BRCA1 in breast cancer", "TP53 and others"],
        ["BRCA1", "breast cancer", "Olaparib", "melanoma", "TP53"],
        "5 mentions in 2 documents",
    )


def test_a_dropped_word_document_is_read_and_a_zip_file_is_refused_with_a_reason(page: Any, tmp_path: Path) -> None:
    docx = pytest.importorskip("docx")
    word = docx.Document()
    word.add_heading("A trial", 0)
    word.add_paragraph("BRCA1 in breast cancer.")
    word.save(tmp_path / "trial.docx")
    drop(page, "trial.docx", (tmp_path / "trial.docx").read_bytes())
    assert marked(page) == ["BRCA1", "breast cancer"]
    assert page.locator("#documents h3").all_inner_texts() == ["A trial"]
    drop(page, "trial.zip", b"PK\x03\x04")
    assert "archive" in page.get_by_role("alert").inner_text()


def span(number: int, type_: str, text: str, *parts: tuple[int, int]) -> dict[str, Any]:
    chosen = " ".join(text[start:end] for start, end in parts)
    return {"id": f"T{number}", "type": type_, "parts": parts, "text": chosen}


@pytest.fixture
def tangled(page: Any) -> Any:
    """A document whose mentions nest, cross and are in two parts."""
    text = "left and right ventricle of the mouse heart"
    spans = [
        span(1, "Anatomy", text, (0, 4), (15, 24)),
        span(2, "Anatomy", text, (9, 24)),
        span(3, "Site", text, (15, 37)),
        span(4, "Species", text, (32, 37)),
    ]
    doc = {"id": "tangled", "passages": [{"offset": 0, "text": text}], "spans": spans}
    drop(page, "tangled.jsonl", json.dumps(doc))
    return page


def test_tangled_mentions_leave_every_character_in_its_place(tangled: Any) -> None:
    assert tangled.locator("#documents .text").inner_text() == "left and right ventricle of the mouse heart"


def test_each_piece_of_text_is_in_a_mark_for_each_mention_there(tangled: Any) -> None:
    covering = tangled.locator("#documents .text").evaluate(
        """holder => {
          const found = [], walker = document.createTreeWalker(holder, NodeFilter.SHOW_TEXT);
          while (walker.nextNode()) {
            const types = [];
            for (let at = walker.currentNode.parentElement; at.matches("mark"); at = at.parentElement)
              types.push(at.dataset.m.split("-")[1]);
            found.push([walker.currentNode.data, types.sort().join("")]);
          }
          return found;
        }"""
    )
    assert covering == [
        ["left", "0"],
        [" and ", ""],
        ["right ", "1"],
        ["ventricle", "012"],
        [" of the ", "2"],
        ["mouse", "23"],
        [" heart", ""],
    ]


def test_what_is_said_of_a_mention_names_those_around_it(tangled: Any) -> None:
    tangled.locator("mark", has_text="mouse").last.hover()
    assert tangled.locator("#tip .said-text").all_inner_texts() == ["mouse", "ventricle of the mouse"]


def test_scores_below_zero_are_hidden_only_by_the_slider(page: Any) -> None:
    spans = [{"id": f"T{n}", "type": "X", "parts": [[n, n + 1]], "text": "ab"[n], "score": n - 0.5} for n in (0, 1)]
    drop(page, "a.jsonl", json.dumps({"id": "d", "passages": [{"offset": 0, "text": "ab"}], "spans": spans}))
    first = marked(page)
    slide(page, 0.1)
    assert (first, marked(page)) == (["a", "b"], ["b"])


def test_the_table_is_sorted_by_a_column(page: Any) -> None:
    annotate(page)
    page.get_by_role("button", name="Score").click()
    up = [row[0] for row in rows(page)]
    page.get_by_role("button", name="Score").click()
    assert (up[0], rows(page)[-1][0]) == ("melanoma", "melanoma")
    assert page.locator("th[aria-sort=descending]").inner_text().startswith("Score")


def test_a_long_text_stays_responsive(page: Any) -> None:
    put(page, "BRCA1 was found in a sample of breast cancer, where nothing else was seen. " * 1400)
    # In chunks, of which the browser lays out those in sight: what keeps thousands of mentions quick to filter.
    chunks = page.locator("#documents .text").evaluate_all(
        "all => all.map(one => [one.textContent.length, getComputedStyle(one).contentVisibility])"
    )
    assert len(chunks) > 10
    assert max(length for length, _ in chunks) < 20_000
    # All but one that may have the focus.
    assert sum(visibility == "auto" for _, visibility in chunks) >= len(chunks) - 1
    slide(page, 0.99)
    assert page.locator("#found").inner_text() == "0 mentions"


def test_the_last_mention_of_a_long_text_can_be_gone_to(page: Any) -> None:
    put(page, "Nothing was seen in any of these samples.\n" * 2400 + "At last BRCA1.")
    page.locator('mark[tabindex="0"]').wait_for()
    page.locator("#mentions .link").click()
    assert page.evaluate("document.activeElement.textContent") == "BRCA1"
