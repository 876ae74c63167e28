"""What the server refuses is said in its words, and the text stays."""

import re
from pathlib import Path
from typing import Any

import pytest
from page_acts import TEXT, annotate, let_fall, marked, recipe_of_run

from lexome.infer.annotator import Annotator
from lexome.serve.limits import Limits


def refused(page: Any, text: str = TEXT) -> tuple[str, str]:
    """What is said after a text was sent, and what the field holds."""
    page.fill("#text", text)
    page.click("#annotate")
    page.locator("#annotate", has_text="Annotate").wait_for()
    page.locator("#error").wait_for()
    return page.locator("#error strong").inner_text(), page.input_value("#text")


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (Limits(characters=20), "This is too long for the server."),
        (Limits(requests=0), "The server is busy."),
        (Limits(answer_s=1e-9), "The server is unavailable."),
    ],
    ids=["413", "429", "503"],
)
def test_a_refusal_is_shown_and_the_text_is_kept(
    visit: Any, serving: Any, annotator: Annotator, limits: Limits, words: str
) -> None:
    with serving(annotator, limits) as client:
        page = visit(str(client.base_url.join("/")))
        assert refused(page) == (words, TEXT)
        assert page.locator("#error").inner_text().lower().count("retry in") == (words.find("long") < 0)


def test_the_server_s_own_words_are_shown(visit: Any, serving: Any, annotator: Annotator) -> None:
    with serving(annotator, Limits(characters=20)) as client:
        page = visit(str(client.base_url.join("/")))
        refused(page)
        assert f"{len(TEXT)} characters" in page.locator("#error").inner_text()


def test_without_a_connection_the_text_and_the_last_result_stay(page: Any) -> None:
    annotate(page)
    page.context.set_offline(True)
    assert refused(page, "TP53 now") == ("The server cannot be reached.", "TP53 now")
    assert len(marked(page)) == 5
    page.context.set_offline(False)
    page.click("#annotate")
    page.locator("#error").wait_for(state="hidden")
    recipe_of_run(page)
    assert marked(page) == ["TP53"]


def test_a_file_that_cannot_be_read_leaves_the_text_alone(page: Any) -> None:
    page.fill("#text", TEXT)
    let_fall(page, "broken.xml", "<collection><document>")
    page.locator("#error").wait_for()
    page.click("#file-remove")
    assert page.input_value("#text") == TEXT


def test_a_folder_is_said_to_be_none(page: Any) -> None:
    page.fill("#text", TEXT)
    page.evaluate(
        """() => {
          const held = new DataTransfer(), folder = new File([""], "folder");
          folder.arrayBuffer = () => Promise.reject(new DOMException("gone", "NotFoundError"));
          held.items.add(folder);
          const fall = new DragEvent("drop", {dataTransfer: held, bubbles: true, cancelable: true});
          Object.defineProperty(fall.dataTransfer, "files", {value: [folder]});
          document.body.dispatchEvent(fall);
        }"""
    )
    page.locator("#error").wait_for()
    assert "folder is a folder" in page.locator("#error").inner_text()
    assert page.input_value("#text") == TEXT


def test_a_file_that_is_too_large_is_not_even_sent(visit: Any, serving: Any, annotator: Annotator) -> None:
    with serving(annotator, Limits(body_bytes=1000)) as client:
        page = visit(str(client.base_url.join("/")))
        page.locator("#format option").first.wait_for(state="attached")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        let_fall(page, "large.txt", "w" * 12_345)
        page.locator("#error").wait_for()
        said = page.locator("#error").inner_text()
        assert ("The file has 12 kB; this server takes up to 1 kB." in said, asked) == (True, [])


def test_without_a_text_the_page_says_what_to_do(page: Any) -> None:
    page.click("#annotate")
    page.locator("#error", has_text="There is no text to annotate.").wait_for()
    assert "Paste text into the field, open a file" in page.locator("#error").inner_text()
    annotate(page)
    assert page.locator("#error").is_hidden()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("list.zip", b"PK\x03\x04", "Unpack it"),
        ("rows.csv", b"gene;clone\nBRCA1;x\n", "gene"),
        ("genes.csv", b"No,Gene\n1,BRCA1\n", "names the column of the text (title, abstract, text or sentence)"),
        ("what.odd", b"BRCA1", "no format has this file extension"),
        ("pmids.csv", b"PMID\n29446767\n30102808\n", "https://pubmed.ncbi.nlm.nih.gov/?term=29446767,30102808"),
    ],
)
def test_errors_are_for_readers_and_not_for_users_of_the_terminal(
    page: Any, name: str, content: bytes, said: str
) -> None:
    let_fall(page, name, content)
    page.locator("#error").wait_for()
    shown = page.locator("#error").inner_text()
    assert said in shown
    assert not re.search(r"--\w|`lexome|in Python|header=|bytes|b'", shown), shown


@pytest.mark.parametrize(
    ("text", "note"), [("BRCA1", "very few words"), ("Les gènes BRCA1 sont mutés dans le cancer", "not look English")]
)
def test_a_text_that_models_read_badly_has_a_note(page: Any, text: str, note: str) -> None:
    annotate(page, text)
    assert note in page.locator("#notes").inner_text()
    annotate(page)
    assert page.locator("#notes").is_hidden()


def test_the_time_is_shown_while_the_server_works(page: Any) -> None:
    waiting: list[Any] = []
    page.route("**/annotate?*", lambda route: waiting.append(route))
    page.fill("#text", TEXT)
    page.click("#annotate")
    page.locator("#annotate", has_text=re.compile(r"Annotating… [12] s")).wait_for()
    waiting[0].continue_()
    recipe_of_run(page)
    assert page.locator("#annotate").inner_text() == "Annotate"
    page.unroute("**/annotate?*")


def test_a_reload_keeps_the_text(page: Any) -> None:
    page.fill("#text", TEXT)
    page.reload()
    page.locator("button.example").first.wait_for()
    assert page.input_value("#text") == TEXT


def test_a_server_with_a_token_asks_for_it(visit: Any, serving: Any, annotator: Annotator) -> None:
    with serving(annotator, token="secret") as client:
        page = visit(str(client.base_url.join("/")))
        page.locator("#token").fill("secret")
        page.locator("#token").press("Enter")
        page.locator("#error").wait_for(state="hidden")
        annotate(page)
        assert len(marked(page)) == 5


def test_the_page_has_no_inline_script_or_style(address: str) -> None:
    from importlib.resources import files

    page = (files("lexome.serve") / "static" / "index.html").read_text("utf-8")
    assert not any(sign in page for sign in ("<style", "style=", "onclick", "javascript:", "http://", "https://"))


def test_nothing_is_set_as_markup() -> None:
    from importlib.resources import files

    scripts = [Path(str(path)) for path in (files("lexome.serve") / "static").iterdir() if path.name.endswith(".js")]
    signs = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function")
    assert [(path.name, sign) for path in scripts for sign in signs if sign in path.read_text("utf-8")] == []
