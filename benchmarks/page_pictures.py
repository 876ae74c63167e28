"""Screenshots of the web page for the documentation, in Chromium with a real model: docs/images/page-*.png.

    python benchmarks/page_pictures.py [MODEL...] [--relations MODEL]

With --relations, page-relations.png shows the table of relations.
"""

import argparse
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright

import lexome
from lexome.infer.annotator import default_model
from lexome.serve.limits import Limits
from lexome.serve.server import make_app

IMAGES = Path(__file__).parents[1] / "docs" / "images"
DESKTOP = {"width": 1280, "height": 900}
TALL = {"width": 1280, "height": 1360}
PHONE = {"width": 375, "height": 812}

HOSTILE = "<script>alert('run?')</script> in left and right ventricle of the mouse 🐭 heart, \u202eturned"
TANGLED: dict[str, Any] = {
    "id": "<img src=x onerror=alert(1)>",
    "passages": [{"offset": 0, "text": HOSTILE}],
    "spans": [
        {"id": "1", "type": "Anatomy", "parts": [[34, 38], [49, 58]], "text": "left ventricle"},
        {"id": "2", "type": "Anatomy", "parts": [[43, 58]], "text": "right ventricle"},
        {"id": "3", "type": "<b>Place</b>", "parts": [[49, 79]], "text": HOSTILE[49:79]},
        {"id": "4", "type": "Species", "parts": [[66, 71]], "text": "mouse"},
    ],
}


@contextmanager
def served(models: list[Path], limits: Limits | None = None) -> Iterator[str]:
    """Context manager: the address of a running server."""
    app = make_app(lexome.load(*models, threads=1), limits=limits, threads=1)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        thread.join(0.05)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join()


def opened(browser: Browser, address: str, **options: Any) -> Page:
    page = browser.new_page(**{"viewport": DESKTOP, "reduced_motion": "reduce", **options})
    page.goto(address)
    page.locator("#format option").first.wait_for(state="attached")
    return page


def example(page: Page, name: str) -> None:
    page.get_by_role("button", name=name).click()
    page.locator("mark").first.wait_for()


def take(browser: Browser, address: str) -> None:
    """All screenshots except that of an error."""
    page = opened(browser, address, viewport=TALL)
    example(page, "A drug trial")
    page.screenshot(path=IMAGES / "page-light.png")
    page = opened(browser, address, color_scheme="dark")
    example(page, "A rare disease")
    page.evaluate("document.querySelector('#results').scrollIntoView()")
    page.locator("mark").nth(3).hover()
    page.screenshot(path=IMAGES / "page-dark.png")
    page = opened(browser, address, viewport=PHONE, device_scale_factor=2, is_mobile=True, has_touch=True)
    example(page, "A mouse model")
    page.evaluate("document.querySelector('#documents').scrollIntoView()")
    page.locator("mark").nth(2).tap()
    page.screenshot(path=IMAGES / "page-phone.png")
    page = opened(browser, address)
    content = json.dumps(TANGLED).encode()
    page.set_input_files("#picker", {"name": "<img src=x>.jsonl", "mimeType": "text/plain", "buffer": content})
    page.locator("mark", has_text="mouse").last.focus()
    page.screenshot(path=IMAGES / "page-hostile.png")


def take_relations(browser: Browser, address: str) -> None:
    page = opened(browser, address)
    example(page, "A drug trial")
    page.evaluate("document.querySelector('#results').scrollIntoView()")
    page.locator("table.who tbody tr").first.hover()
    page.screenshot(path=IMAGES / "page-relations.png")


def take_error(browser: Browser, address: str) -> None:
    page = opened(browser, address)
    page.get_by_role("button", name="A drug trial").click()
    page.locator("#error").wait_for()
    page.screenshot(path=IMAGES / "page-error.png", clip={"x": 0, "y": 0, "width": 1280, "height": 680})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", type=Path, help="Exported models; the default model if none is given.")
    parser.add_argument("--relations", type=Path, metavar="MODEL", help="Exported model of relations.")
    given = parser.parse_args()
    models = given.models
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        with served(models) as address:
            take(browser, address)
        with served(models, Limits(characters=500)) as address:
            take_error(browser, address)
        if given.relations is not None:
            with served([*(models or [default_model()]), given.relations]) as address:
                take_relations(browser, address)
        browser.close()


if __name__ == "__main__":
    main()
