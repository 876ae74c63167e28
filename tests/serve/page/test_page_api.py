"""The API page in a browser: all of it comes from the service, and its content security policy holds."""

from typing import Any


def test_the_operations_are_listed_and_one_can_be_opened(bare_page: Any, address: str) -> None:
    bare_page.goto(f"{address}docs")
    bare_page.locator("#operations-annotation-annotate_annotate_post").wait_for()
    assert bare_page.locator(".opblock").count() >= 10
    bare_page.locator("#operations-annotation-annotate_annotate_post .opblock-summary-control").click()
    bare_page.locator("text=Try it out").wait_for()
