"""Hostile input is shown and never run. That nothing ran, the fixture that opens the page checks at the end."""

import json
from typing import Any

from page_acts import annotate, drop, let_fall, marked

SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def strangers(page: Any) -> int:
    """Elements on the page that the page did not make itself."""
    count: int = page.locator("body script, body img, body iframe, body b:not(.count), [onerror]").count()
    return count


def test_script_in_the_text_is_text(page: Any) -> None:
    text = f"{SCRIPT} BRCA1 <b>olaparib</b> &lt;"
    annotate(page, text)
    assert (page.locator("#documents .text").inner_text(), strangers(page)) == (text, 0)
    assert marked(page) == ["BRCA1", "olaparib"]


def test_script_in_every_field_of_a_document_is_text(page: Any) -> None:
    doc = {
        "id": SCRIPT,
        "passages": [{"offset": 0, "text": SCRIPT, "kind": "title"}, {"offset": 99, "text": "x", "section": [SCRIPT]}],
        "spans": [{"id": SCRIPT, "type": SCRIPT, "parts": [[0, 8]], "text": "<script>", "concepts": [f"x:{SCRIPT}"]}],
        "relations": [{"id": "R1", "type": SCRIPT, "arguments": [{"role": SCRIPT, "target": SCRIPT}]}],
        "labels": [SCRIPT],
    }
    drop(page, f"{SCRIPT}.jsonl".replace("/", "_"), json.dumps(doc))
    page.locator("mark").first.hover()
    shown = [page.locator(place).first.inner_text() for place in (".ids", "#documents h3", ".chips li", "#tip .type")]
    assert (shown, page.locator("bdi#file-name").inner_text()[:8], strangers(page)) == ([SCRIPT] * 4, "<script>", 0)


def test_script_in_an_error_is_text(page: Any) -> None:
    let_fall(page, f"{SCRIPT}.xml".replace("/", "_"), "<script>")
    page.locator("#error").wait_for()
    assert ("<script>" in page.locator("#error").inner_text(), strangers(page)) == (True, 0)


def test_mentions_without_end_on_the_same_words_can_be_opened(page: Any) -> None:
    text = "w" * 3000
    spans = [{"id": f"T{n}", "type": "X", "parts": [[0, n + 1]], "text": text[: n + 1]} for n in range(3000)]
    drop(page, "deep.jsonl", json.dumps({"id": "d", "passages": [{"offset": 0, "text": text}], "spans": spans}))
    depth = page.locator("#documents mark").evaluate_all(
        """marks => Math.max(...marks.map(mark => {
          let deep = 0;
          for (let at = mark; at.matches("mark"); at = at.parentElement) deep += 1;
          return deep;
        }))"""
    )
    assert (depth, page.locator("#found").inner_text()) == (64, "3,000 mentions")


def test_a_type_cannot_turn_the_text_beside_it(page: Any) -> None:
    span = {"id": "T1", "type": "\u202eeneG", "parts": [[0, 1]], "text": "a"}
    drop(page, "a.jsonl", json.dumps({"id": "d", "passages": [{"offset": 0, "text": "ab"}], "spans": [span]}))
    assert page.locator("mark").get_attribute("data-t") == "‹U+202E›eneG"


def test_characters_that_turn_or_hide_text_are_named(page: Any) -> None:
    annotate(page, "BRCA1 \u202eTP53 \u0007 \u200f \u200b 👩\u200d⚕️")
    assert page.locator("#documents .ctl").evaluate_all("boxes => boxes.map(box => box.dataset.c)") == [
        "U+202E",
        "U+0007",
        "U+200F",
        "U+200B",
    ]
