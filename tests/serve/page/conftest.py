"""The page in a real Chromium, served by the real service with a model that knows a few words."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest

from lexome.infer.annotator import Annotator

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

Serving = Callable[..., AbstractContextManager[httpx.Client]]

NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def address(serving: Serving, annotator: Annotator) -> Iterator[str]:
    """Where the page is."""
    with serving(annotator) as client:
        yield str(client.base_url.join("/"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("no Chromium here: install the package chromium, as make test does where it may")
    # Chromium's sandbox does not work for root.
    args = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=args)
        yield browser
        browser.close()


class Watch:
    """Pages whose every step is seen: nothing may run, fail, or be asked of other servers."""

    def __init__(self) -> None:
        self.wrong: list[str] = []

    def open(self, browser: Any, address: str, **options: Any) -> Any:
        """A page of its own, not loaded yet. It jumps where it would glide: a test that looks has to see it at rest."""
        usual = {"viewport": {"width": 1280, "height": 860}, "reduced_motion": "reduce"}
        context = browser.new_context(**{**usual, **options})
        context.set_default_timeout(60_000)
        page = context.new_page()
        page.on("dialog", lambda dialog: self.wrong.append(f"dialog: {dialog.message}"))
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("console", lambda said: self.wrong.append(said.text) if "Content Security" in said.text else None)
        page.on("request", lambda asked: asked.url.startswith((address, "blob:")) or self.wrong.append(asked.url))
        return page

    def check(self) -> None:
        seen, self.wrong = self.wrong, []
        assert seen == []


@pytest.fixture
def visit(browser: Any, address: str) -> Iterator[Callable[..., Any]]:
    """A function that opens the page at an address, in a browser with options."""
    watch = Watch()
    pages: list[Any] = []

    def opened(url: str = address, **options: Any) -> Any:
        page = watch.open(browser, url, **options)
        pages.append(page)
        page.goto(url)
        page.locator("button.example").first.wait_for()
        return page

    yield opened
    for page in pages:
        page.context.close()
    watch.check()


@pytest.fixture(scope="session")
def shared(browser: Any, address: str) -> Iterator[tuple[Any, Watch]]:
    """One page for all tests that need nothing special; a new one for each would take half of the time."""
    watch = Watch()
    page = watch.open(browser, address)
    yield page, watch
    page.context.close()


@pytest.fixture
def page(shared: tuple[Any, Watch], address: str) -> Iterator[Any]:
    """The page, loaded anew, with nothing kept of what other tests did."""
    page, watch = shared
    page.goto(address)
    page.locator("#format option").first.wait_for(state="attached")
    yield page
    page.evaluate("sessionStorage.clear(), localStorage.clear()")
    watch.check()


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """A file of two documents, of several passages each."""
    path = tmp_path / "two.pubtator"
    path.write_text(
        "1|t|BRCA1 in breast cancer\n1|a|Olaparib causes melanoma.\n\n2|t|TP53 and others\n2|a|Nothing to see.\n\n",
        encoding="utf-8",
    )
    return path


@pytest.fixture
def bare_page(browser: Any, address: str) -> Iterator[Any]:
    """A page that is not loaded yet, watched as the others are."""
    watch = Watch()
    page = watch.open(browser, address)
    yield page
    page.context.close()
    watch.check()
