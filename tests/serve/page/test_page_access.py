"""Everyone can use it: from the keyboard, on a phone, in the dark, with any sight of colors."""

import json
from typing import Any

import pytest
from page_acts import FOUND, TEXT, annotate, drop, marked

from lexome.formats.html import COLORS, color_of

# The relative luminance and contrast of WCAG 2, over colors as the browser draws them.
CONTRAST = """
const pen = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
const light = color => {
  pen.fillStyle = color;
  pen.fillRect(0, 0, 1, 1);
  const [r, g, b] = [...pen.getImageData(0, 0, 1, 1).data].map(part => part / 255)
    .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
"""


def test_the_keyboard_alone_is_enough(page: Any) -> None:
    press = page.keyboard.press
    press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the text field"
    press("Enter")
    page.keyboard.type(TEXT)
    press("Control+Enter")
    page.locator("mark").first.wait_for()
    page.get_by_role("checkbox", name="Disease").focus()
    press("Space")
    page.locator("mark", has_text="melanoma").wait_for(state="detached")
    page.locator("#score").focus()
    press("End")
    page.locator("mark").first.wait_for(state="detached")
    press("Home")
    page.locator("mark").first.wait_for()
    assert marked(page) == ["BRCA1", "TP53", "olaparib"]


def test_tab_reaches_the_text_once_and_arrows_lead_through_the_mentions(page: Any) -> None:
    annotate(page)
    page.locator("#copy").focus()
    seen = []
    for key in ("Tab", "ArrowRight", "End", "ArrowLeft", "Home"):
        page.keyboard.press(key)
        seen.append(page.evaluate("document.activeElement.textContent"))
    said = page.locator("#tip").inner_text()
    page.keyboard.press("Escape")
    assert (seen, "0.985" in said) == ([FOUND[0], FOUND[1], FOUND[4], FOUND[3], FOUND[0]], True)
    assert page.locator("#tip").is_hidden()


def test_every_control_has_a_name_and_shows_its_focus(page: Any) -> None:
    annotate(page)
    nameless = page.locator("button:visible, input:visible, select:visible, textarea:visible").evaluate_all(
        """controls => controls.filter(control =>
             !(control.textContent.trim() || control.labels?.length || control.ariaLabel)).map(one => one.outerHTML)"""
    )
    page.locator("#annotate").focus()
    page.keyboard.press("Tab")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
    assert (nameless, outline) == ([], "3px")


def test_what_was_found_is_announced(page: Any) -> None:
    annotate(page)
    assert page.get_by_role("status").inner_text().startswith("5 mentions")


def test_a_phone_has_no_sideways_scroll(visit: Any) -> None:
    page = visit(viewport={"width": 375, "height": 812}, has_touch=True, is_mobile=True)
    annotate(page, TEXT + " " + "x" * 300)
    page.locator("mark").first.tap()
    assert page.locator("#tip").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 375


def test_a_tap_on_any_part_of_a_mention_stays(visit: Any) -> None:
    page = visit(viewport={"width": 375, "height": 812}, has_touch=True, is_mobile=True)
    span = {"id": "T1", "type": "X", "parts": [[0, 4], [9, 14]], "text": "left right"}
    text = "left and right ventricle"
    drop(page, "a.jsonl", json.dumps({"id": "d", "passages": [{"offset": 0, "text": text}], "spans": [span]}))
    page.locator("mark").last.tap()
    page.wait_for_timeout(300)
    assert page.locator("#tip").is_visible()
    page.locator("#found").tap()
    assert page.locator("#tip").is_hidden()


def test_dark_follows_the_system_and_the_button_overrules_it(visit: Any) -> None:
    page = visit(color_scheme="dark")
    seen = []
    for _ in range(3):
        seen.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        page.click("#theme")
    assert (seen[0] == seen[2], seen[0] != seen[1]) == (True, True)


def test_the_theme_chosen_is_kept(page: Any) -> None:
    page.click("#theme")
    page.click("#theme")
    page.reload()
    page.locator("#theme", has_text="dark").wait_for()
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"


def test_types_are_named_beside_their_mentions(page: Any) -> None:
    annotate(page)
    named = "marks => marks.map(mark => getComputedStyle(mark, '::after').content)"
    before = page.locator("mark").evaluate_all(named)
    page.get_by_role("checkbox", name="Names in text").uncheck()
    after = page.locator("mark").evaluate_all(named)
    assert (before[0], after[0]) == ('"Gene"', "none")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_on_every_color_has_contrast_enough(visit: Any, scheme: str) -> None:
    page = visit(color_scheme=scheme)
    types = [*COLORS, *(f"type {number}" for number in range(24))]
    text = " ".join("word" for _ in types)
    spans = [
        {"id": f"T{place}", "type": type_, "parts": [[5 * place, 5 * place + 4]], "text": "word"}
        for place, type_ in enumerate(types)
    ]
    drop(page, "all.jsonl", json.dumps({"id": "d", "passages": [{"offset": 0, "text": text}], "spans": spans}))
    least = page.locator("#documents mark").evaluate_all(
        f"""marks => {{ {CONTRAST}
          const card = getComputedStyle(document.querySelector(".doc")).backgroundColor;
          const all = marks.map(mark => [getComputedStyle(mark), getComputedStyle(mark, "::after").color]);
          return {{
            text: Math.min(...all.map(([own]) => contrast(own.color, own.backgroundColor))),
            name: Math.min(...all.map(([own, name]) => contrast(name, own.backgroundColor))),
            line: Math.min(...all.map(([own]) => contrast(own.borderBottomColor, card))),
          }}; }}"""
    )
    assert (least["text"] >= 4.5, least["name"] >= 4.5, least["line"] >= 3) == (True, True, True), least


def test_colors_are_those_of_the_html_files(page: Any) -> None:
    types = ["Gene", "GENE", "DiseaseOrPhenotypicFeature", "cell-line", "Mutation", "Other thing", "Ärzte", "<b>", ""]
    seen = page.evaluate(
        "async types => { const {colorOf} = await import('/static/colors.js'); return types.map(colorOf); }", types
    )
    known = [color_of(type_) for type_ in types]
    assert seen == [[color.light, color.dark, color.chroma, color.hue] for color in known]


def test_no_other_name_of_a_type_is_missing_from_the_page(page: Any) -> None:
    from lexome.formats.html import _FAMILIES

    seen = page.evaluate(
        "async types => { const {colorOf} = await import('/static/colors.js'); return types.map(colorOf); }",
        list(_FAMILIES),
    )
    known = [color_of(type_) for type_ in _FAMILIES]
    assert seen == [[color.light, color.dark, color.chroma, color.hue] for color in known]
