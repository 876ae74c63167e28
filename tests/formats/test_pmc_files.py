"""JATS: files of several articles, articles inside articles, and files that are not as they should be."""

from pathlib import Path

import pytest
from errors import raises
from memory_files import source_of

import lexome
from lexome import Document, Tally
from lexome.errors import BadDocument, FormatError
from lexome.formats import pmc


def read(text: str, tally: Tally | None = None) -> list[Document]:
    source = source_of("folder/a.nxml", text)
    return list(pmc.read(source, tally=tally or Tally()))


def article(inside: str) -> str:
    return f'<article xmlns:mml="http://www.w3.org/1998/Math/MathML">{inside}</article>'


def passages(body: str, tally: Tally | None = None) -> list[tuple[str, str]]:
    """Kind and text of each passage of an article with this body."""
    (doc,) = read(article(f"<body>{body}</body>"), tally)
    return [(passage.kind, passage.text) for passage in doc.passages]


def test_sub_articles_and_responses_follow_as_documents_of_their_own() -> None:
    text = (
        '<article article-type="research-article" xml:lang="en"><front><article-meta>'
        '<article-id pub-id-type="pmc">12</article-id><permissions><copyright-statement>© A</copyright-statement>'
        "</permissions></article-meta></front><body><p>One.</p></body>"
        '<sub-article article-type="reply"><front-stub><article-id pub-id-type="doi">10.1/s</article-id><title-group>'
        "<article-title>Reply</article-title></title-group></front-stub><body><p>Two.</p></body>"
        "<response response-type='reply'><body><p>Three.</p></body></response></sub-article>"
        '<sub-article xml:lang="fr" article-type="translation"><body><p>Quatre.</p></body></sub-article></article>'
    )
    docs = read(text)
    assert [(doc.id, doc.meta.part_of, doc.text) for doc in docs] == [
        ("PMC12", None, "One."),
        ("PMC12.s1", "PMC12", "Reply\nTwo."),
        ("PMC12.s1.s1", "PMC12.s1", "Three."),
        ("PMC12.s2", "PMC12", "Quatre."),
    ]
    assert [doc.meta.languages for doc in docs] == [("en",), ("en",), ("en",), ("fr",)]
    assert {doc.meta.copyright for doc in docs} == {"© A"}
    assert [doc.meta.article_types for doc in docs][1:] == [("reply",), ("reply",), ("translation",)]


def test_a_set_of_articles_and_an_answer_of_oai_are_read() -> None:
    one = '<article xmlns="https://jats.nlm.nih.gov/ns/archiving/1.2/" xmlns:xlink="http://www.w3.org/1999/xlink">'
    records = "".join(
        f"<record><header><identifier>oai:{n}</identifier></header><metadata>{one}<body><p>Text {n}.</p></body>"
        "</article></metadata></record>"
        for n in (1, 2)
    )
    text = f"<OAI-PMH><responseDate>2021</responseDate><ListRecords>{records}</ListRecords></OAI-PMH>"
    assert [doc.text for doc in read(text)] == ["Text 1.", "Text 2."]
    assert [doc.id for doc in read(f"<pmc-articleset>{article('<body><p>x</p></body>')}\n</pmc-articleset>")] == ["a-1"]


def test_one_bad_article_leaves_the_others(tmp_path: Path) -> None:
    path = tmp_path / "set.xml"
    path.write_text(
        "<articles><article><body><p>One.</p></body></article>\n<article><p></article>\n<article/></articles>"
    )
    tally = Tally(tmp_path / "rejects.jsonl")
    docs = list(lexome.read(path, tally=tally))
    assert [doc.text for doc in docs] == ["One."]
    assert tally.rejected == {"malformed_xml": 1, "no_text": 1}


def test_articles_that_never_end_take_no_time(tmp_path: Path) -> None:
    with Tally(tmp_path / "rejects.jsonl") as tally:
        assert read("<set>" + "<article>" * 100_000 + "</article></set>", tally) == []
    assert tally.rejected == {"too_large": 1, "no_text": 1}


def test_an_article_that_has_lost_its_end_leaves_the_next(tmp_path: Path) -> None:
    path = tmp_path / "set.xml"
    path.write_text("<articles><article><body><p>One.</p>\n<article><body><p>Two.</p></body></article></articles>")
    tally = Tally(tmp_path / "rejects.jsonl")
    assert [(doc.id, doc.text) for doc in lexome.read(path, tally=tally)] == [("set-2", "Two.")]
    assert tally.rejected == {"malformed_xml": 1}


def test_text_that_stands_outside_any_paragraph_is_kept_and_noted() -> None:
    tally = Tally()
    assert passages("Lost<sec>\n and <p>found</p> <italic>here</italic></sec>", tally) == [
        ("paragraph", "Lost"),
        ("paragraph", "and"),
        ("paragraph", "found"),
        ("paragraph", "here"),
    ]
    assert tally.notes == {
        "text outside any paragraph, kept as one": 2,
        "element outside any paragraph, its text kept": 1,
    }


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(BadDocument) as caught:
        read(article("<body>" + "<sec>" * 10_000 + "<p>x</p>" + "</sec>" * 10_000 + "</body>"))
    assert caught.value.reason in ("malformed_xml", "too_large", "too_deep")


@pytest.mark.parametrize("tag", ["sec", "p", "list-item", "italic", "boxed-text", "td", "mml:mrow", "unheard-of", "fn"])
def test_nesting_as_deep_as_a_parser_takes_is_read_or_refused(tag: str, tmp_path: Path) -> None:
    text = article(f"<body><p>{f'<{tag}>' * 250}x{f'</{tag}>' * 250}</p></body>")
    tally = Tally(tmp_path / "rejects.jsonl")
    with tally:
        docs = read(text, tally)
    assert [doc.text for doc in docs] == ["x"] or tally.rejected == {"too_deep": 1}


def test_a_file_of_another_kind_is_refused() -> None:
    with raises(FormatError, code="no-records", value="article"):
        read("<PubmedArticleSet><PubmedArticle><PMID>1</PMID></PubmedArticle></PubmedArticleSet>")


def test_names_of_characters_and_entities_of_a_dtd() -> None:
    assert passages("<p>&alpha;&nbsp;x</p>") == [("paragraph", "α\u00a0x")]
    bomb = '<!DOCTYPE article [<!ENTITY a "aaa"><!ENTITY b "&a;&a;">]><article><body><p>&b;</p></body></article>'
    with pytest.raises(BadDocument):
        read(bomb)
