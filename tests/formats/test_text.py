"""Plain text: how it is cut into documents, and what is lost in it."""

import io
from pathlib import Path

import pytest
from errors import raises
from memory_files import source_of

import lexome
from lexome import Document, Passage, Span, Tally
from lexome.errors import FormatError
from lexome.formats import plain_text


def read(content: str, **options: str) -> list[Document]:
    source = source_of("a.txt", content)
    return list(plain_text.read(source, tally=Tally(), **options))  # type: ignore[arg-type]


def written(*docs: Document, tally: Tally) -> str:
    stream = io.BytesIO()
    plain_text.write(docs, stream, tally=tally)
    return stream.getvalue().decode()


def test_paragraphs_are_apart_by_blank_lines() -> None:
    docs = read("\nZorin\n binds.\n \n\nNothing.\n", per="paragraph")
    assert [(doc.id, doc.text) for doc in docs] == [("a-2", "Zorin\n binds."), ("a-6", "Nothing.")]


def test_a_paragraph_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_text, "MAX_RECORD_BYTES", 100)
    with raises(FormatError, code="too-large", value=2, mentions="a.txt"):
        read("\n" + "Zorin\n" * 100, per="paragraph")


def test_what_text_has_no_place_for_is_noted() -> None:
    tally = Tally()
    doc = Document("1", (Passage(0, "Zorin binds.", "title"),), (Span("T1", "Gene", ((0, 5),), "Zorin"),))
    assert written(doc, Document("2"), tally=tally) == "Zorin binds.\n\n\n"
    assert tally.notes == {
        "passage kinds and sections not written": 1,
        "ids not written": 2,
        "spans not written": 1,
    }


@pytest.mark.parametrize(("articles", "notes"), [(1, 0), (2, 1)])
def test_articles_saved_as_text_by_pubmed_are_noted(tmp_path: Path, articles: int, notes: int) -> None:
    citation = "{0}. Cell. 2021 Feb;180(1):10-20.\n\nTP53 acts.\n\nDoe J(1).\n\nIt does.\n\nPMID: 3190000{0}\n"
    (tmp_path / "abstracts.txt").write_text("\n\n".join(citation.format(number + 1) for number in range(articles)))
    tally = Tally()
    assert len(list(lexome.read(tmp_path / "abstracts.txt", tally=tally))) == 1
    assert sum(tally.notes.values()) == notes
