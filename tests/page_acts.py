"""What a reader does on the page, and what the reader sees there."""

from pathlib import Path
from typing import Any

TEXT = "BRCA1 and TP53 in breast cancer; melanoma after olaparib."

# What the model of dictionary_models.py finds there.
FOUND = ["BRCA1", "TP53", "breast cancer", "melanoma", "olaparib"]


def annotate(page: Any, text: str = TEXT) -> None:
    """Type a text and press the button."""
    page.fill("#text", text)
    page.click("#annotate")
    recipe_of_run(page)


def recipe_of_run(page: Any) -> None:
    """Wait until the answer is shown."""
    page.locator("#annotate", has_text="Annotate").wait_for()
    page.locator("#results[aria-busy=false]").wait_for()
    # A document has no visible text before the first frame that it is in.
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def put(page: Any, text: str) -> None:
    """Put a long text into the field; typing one takes the browser long."""
    page.locator("#text").evaluate("(field, text) => { field.value = text; }", text)
    page.click("#annotate")
    recipe_of_run(page)


def drop(page: Any, name: str, content: str | bytes) -> None:
    """Drop a file on the page and wait for its mentions."""
    let_fall(page, name, content)
    recipe_of_run(page)


def let_fall(page: Any, name: str, content: str | bytes) -> None:
    """Drop a file on the page."""
    page.evaluate(
        """([name, content]) => {
          const held = new DataTransfer();
          const part = typeof content === "string" ? content : new Uint8Array(content);
          held.items.add(new File([part], name));
          document.body.dispatchEvent(new DragEvent("drop", {dataTransfer: held, bubbles: true, cancelable: true}));
        }""",
        [name, content if isinstance(content, str) else list(content)],
    )


def marked(page: Any) -> list[str]:
    """The texts of the marks, in reading order; a mark within another comes after it."""
    found: list[str] = page.locator("#documents mark").all_text_contents()
    return found


def rows(page: Any) -> list[list[str]]:
    """The cells of the table of mentions."""
    found: list[list[str]] = page.locator("#mentions tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    )
    return found


def slide(page: Any, score: float, slider: str = "#score") -> None:
    """Move the slider of the lowest score, as a pointer would, and wait for what follows."""
    page.locator(slider).evaluate(
        """async (slider, score) => {
          slider.value = score;
          slider.dispatchEvent(new Event("input", {bubbles: true}));
          await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
        }""",
        score,
    )


def saved(page: Any, form: str, folder: Path) -> Path:
    """The file that the page saves in a format."""
    page.select_option("#format", form)
    with page.expect_download() as waiting:
        page.click("#download")
    path = folder / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path
