"""JATS: nothing of an article's text is lost, doubled or put out of order, whatever is nested in what."""

import contextlib
import json
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree
from memory_files import source_of
from mutations import damaged

import lexome
from lexome import Document, Tally
from lexome.formats import pmc

# An account of JATS of its own, by which the reader is judged.
BLOCKS = {
    *("p", "list", "def-list", "fig", "fig-group", "table-wrap", "disp-formula", "boxed-text", "disp-quote", "media"),
    *("supplementary-material", "statement", "verse-group", "speech", "preformat", "code", "fn", "array", "graphic"),
}
LEFT_OUT = {
    *(
        "ref-list",
        "permissions",
        "object-id",
        "alt-text",
        "long-desc",
        "tex-math",
        "corresp",
        "award-group",
        "alt-title",
    ),
    *("journal-meta", "article-id", "article-categories", "aff", "contrib", "pub-date", "volume", "issue", "history"),
    *("fpage", "lpage", "elocation-id", "self-uri", "related-article", "counts", "custom-meta-group", "kwd-group"),
    *("article-version", "processing-meta", "contrib-id", "alt-title"),
}
MATH = "{http://www.w3.org/1998/Math/MathML}math"
LAYOUT = Counter("/()√[]{}|,")

# Paragraphs, then documents' passages, of each real file.
REAL = {
    "biopython_efetch_pmc.xml": (1, (2,)),
    "elife-00306-v1.xml": (91, (107, 9, 12)),
    "europepmc_PMC5977093_fulltext.xml": (37, (57,)),
    "evinf_PMC4566202.nxml": (61, (90,)),
    "plos_journal.pcbi.1004141.xml": (107, (214,)),
    "titipata_1471-2180-11-174.nxml": (58, (90,)),
    "titipata_6605965a.nxml": (26, (38,)),
    "titipata_ehp-116-1694.nxml": (48, (72,)),
    "titipata_mds526.nxml": (45, (65,)),
    "titipata_pone.0046493.nxml": (62, (95,)),
}


def read(text: str, tally: Tally | None = None, *, references: bool = False) -> list[Document]:
    source = source_of("a.nxml", text)
    return list(pmc.read(source, tally=tally or Tally(), references=references))


def bare(text: str) -> str:
    return re.sub(r"\s", "", text)


def pieces_of(element: etree._Element) -> list[str]:
    """The element's own text, cut where something stands in it that is read in its own way."""
    pieces = [element.text or ""]
    for child in element:
        if child.tag in BLOCKS | LEFT_OUT | {"inline-formula"}:
            pieces.append("")
        elif isinstance(child.tag, str):
            first, *rest = pieces_of(child)
            pieces[-1] += first
            pieces += rest
        pieces[-1] += child.tail or ""
    return pieces


def has_ancestor(element: etree._Element, tags: set[str]) -> bool:
    return any(outer.tag in tags for outer in element.iterancestors())


def paragraphs_of(root: etree._Element) -> list[list[str]]:
    """Each paragraph that has text of its own, as its pieces."""
    found = [pieces_of(p) for p in root.iter("p", "license-p") if not has_ancestor(p, LEFT_OUT)]
    return [pieces for pieces in ([bare(piece) for piece in found] for found in found) if any(pieces)]


def characters_of(element: etree._Element) -> Counter[str]:
    """Every character that is to be read, white space apart."""
    if not isinstance(element.tag, str) or element.tag in LEFT_OUT or element.tag == "annotation":
        return Counter()
    counted = Counter(bare(element.text or ""))
    for child in element:
        counted += characters_of(child)
        counted.update(bare(child.tail or ""))
    return counted


def stands_in(pieces: list[str], passage: str) -> bool:
    at = 0
    for piece in pieces:
        at = passage.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return True


@pytest.mark.parametrize("name", REAL)
def test_every_paragraph_of_the_real_files_is_read(name: str, real_data: Path) -> None:
    path = real_data / "formats" / "jats" / name
    docs = list(lexome.read(path))
    passages = [bare(passage.text) for doc in docs for passage in doc.passages]
    paragraphs = paragraphs_of(etree.parse(path).getroot())
    assert (len(paragraphs), tuple(len(doc.passages) for doc in docs)) == REAL[name]
    assert [pieces for pieces in paragraphs if not any(stands_in(pieces, passage) for passage in passages)] == []


@pytest.mark.parametrize("name", REAL)
def test_every_paragraph_of_the_real_files_is_read_once(name: str, real_data: Path) -> None:
    path = real_data / "formats" / "jats" / name
    passages = "\0".join(bare(passage.text) for doc in lexome.read(path) for passage in doc.passages)
    paragraphs = paragraphs_of(etree.parse(path).getroot())
    whole = "\0".join("\1".join(pieces) for pieces in paragraphs)
    long = {piece for pieces in paragraphs for piece in pieces if len(piece) >= 40}
    assert {piece for piece in long if passages.count(piece) != whole.count(piece)} == set()


@pytest.mark.parametrize("name", REAL)
def test_every_character_of_the_real_files_is_read_once(name: str, real_data: Path) -> None:
    path = real_data / "formats" / "jats" / name
    root = etree.parse(path, etree.XMLParser(remove_comments=True, remove_pis=True)).getroot()
    read_ = Counter(bare("".join(passage.text for doc in lexome.read(path) for passage in doc.passages)))
    there = characters_of(root)
    assert there - read_ == Counter()
    # What a formula's layout shows is written out; nothing else is added.
    assert not set(read_ - there) - (set(LAYOUT) if next(root.iter(MATH), None) is not None else set())


def test_references_of_the_real_files_are_read_on_demand(real_data: Path) -> None:
    tally = Tally()
    docs = list(lexome.read(real_data / "formats" / "jats", "pmc", tally=tally, references=True))
    found = [passage for doc in docs for passage in doc.passages if passage.kind == "reference"]
    assert len(found) == 453
    assert "reference skipped" not in tally.notes
    assert {passage.category for passage in found} == {"REF"}


def test_leaving_references_out_changes_nothing_else(real_data: Path) -> None:
    paths = sorted((real_data / "formats" / "jats").iterdir())
    assert len(paths) == len(REAL)
    for path in paths:
        without = list(lexome.read(path, "pmc"))
        with_ = list(lexome.read(path, "pmc", references=True))
        for short, long in zip(without, with_, strict=True):
            kept = [passage.text for passage in long.passages if passage.category != "REF"]
            assert kept == [passage.text for passage in short.passages]
            assert short.meta == long.meta


def test_the_table_in_the_docs_is_the_stored_result() -> None:
    root = Path(__file__).resolve().parents[2]
    result = json.loads((root / "results" / "jats_recall.json").read_text())
    page = (root / "docs" / "explanation" / "jats.md").read_text()
    table = page.partition("<!-- table: jats_recall -->\n")[2].partition("<!-- end -->")[0]
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.split("\n") if line.startswith("|")
    ]
    stored = {**result["files"], "all files": result["total"]}
    assert cells[2:] == [[name, *map(str, counts.values())] for name, counts in stored.items()]
    assert result["total"]["lexome"] == result["total"]["paragraphs"] == sum(count for count, _ in REAL.values())


# From here on, articles made of any block inside any other, with a word of its own in each place for text.

INLINE = ("italic", "bold", "sup", "sub", "xref", "ext-link", "named-content", "styled-content", "monospace")
# What may hold blocks, as it is written around them; "#" is a place for text of its own.
HOLDERS = (
    "<p>#{}#</p>",
    "<p>#<italic>#{}#</italic>#</p>",
    "<sec><label>#</label><title>#</title>{}</sec>",
    "<sec>{}</sec>",
    "<list><title>#</title><list-item><label>#</label>{}</list-item><list-item><p>#</p></list-item></list>",
    "<def-list><title>#</title><def-item><term>#</term><def>{}</def></def-item></def-list>",
    "<boxed-text><label>#</label><caption><title>#</title><p>#</p></caption>{}</boxed-text>",
    "<disp-quote>{}<attrib>#</attrib></disp-quote>",
    "<statement><label>#</label><title>#</title>{}</statement>",
    "<speech><speaker>#</speaker>{}</speech>",
    "<fig><label>#</label><caption><title>#</title>{}</caption><graphic/></fig>",
    "<fig-group><label>#</label><caption>{}</caption><fig><caption><p>#</p></caption></fig></fig-group>",
    "<table-wrap><label>#</label><caption>{}</caption><table><tr><td>#</td></tr></table></table-wrap>",
    "<table-wrap><table><thead><tr><th>#</th><td/></tr></thead><tbody><tr><td>#{}#</td></tr></tbody></table></table-wrap>",
    "<table-wrap><table-wrap-foot><fn><label>#</label>{}</fn><p>#</p></table-wrap-foot></table-wrap>",
    "<supplementary-material><label>#</label><caption>{}</caption></supplementary-material>",
    "<fn-group><title>#</title><fn><label>#</label>{}</fn></fn-group>",
    "<ack><title>#</title>{}</ack>",
    "<app-group><app><label>#</label><title>#</title>{}</app></app-group>",
    "<glossary><title>#</title>{}</glossary>",
    "<notes><title>#</title>{}</notes>",
    "<bio>{}</bio>",
    "<chem-struct-wrap><label>#</label>{}<chem-struct>#</chem-struct></chem-struct-wrap>",
    "<disp-formula-group>{}</disp-formula-group>",
    "<question-wrap><question><label>#</label>{}</question><answer>{}</answer></question-wrap>",
    "<table-wrap><table>#<tbody>#<tr>#<td>#</td>#</tr>#</tbody><caption>{}</caption>#</table></table-wrap>",
    "<table-wrap><table><tr><italic>#</italic><td><bold>#{}</bold></td></tr></table></table-wrap>",
    "<alternatives>#<boxed-text>{}</boxed-text></alternatives>",
    "<ref-list><title>#</title>{}</ref-list>",
    "<unheard-of>{}</unheard-of>",
    "<unheard-of>#{}</unheard-of>",
    "<sec>#{}#</sec>",
)
LEAVES = (
    "<p>#</p>",
    "<p># <bold>#<sup>#</sup></bold>#<break/>#</p>",
    "<disp-formula><label>#</label>#</disp-formula>",
    "<disp-formula><alternatives><tex-math>left out</tex-math><math><mi>#</mi></math></alternatives></disp-formula>",
    "<verse-group><title>#</title><verse-line>#</verse-line><verse-line>#</verse-line></verse-group>",
    "<preformat># \n #</preformat>",
    "<code>#</code>",
    "<array><tbody><tr><td>#</td><td>#</td></tr></tbody></array>",
    "<media><label>#</label><caption><p>#</p></caption></media>",
    "<p/>",
    "<fig><alt-text>left out</alt-text></fig>",
    "<sig-block><sig>#</sig></sig-block>",
    "<alternatives><graphic/><table><tr><td>#</td></tr></table></alternatives>",
    "<p><element-citation><source>#<italic>#<fn><p>#</p></fn></italic></source></element-citation></p>",
    "<mixed-citation>#<name><surname>#</surname><given-names>#</given-names></name>#</mixed-citation>",
)


@st.composite
def block(draw: st.DrawFn, depth: int = 4) -> str:
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from(LEAVES))
    holder = draw(st.sampled_from(HOLDERS))
    while "{}" in holder:
        inner = "".join(draw(st.lists(block(depth - 1), min_size=1, max_size=2)))
        holder = holder.replace("{}", inner.replace("{}", ""), 1)
    return holder


def with_words(xml: str) -> tuple[str, list[str]]:
    """The text with a word of its own at each "#"."""
    words: list[str] = []

    def word(_: re.Match[str]) -> str:
        words.append(f"Wörd{len(words)}x")
        return words[-1]

    return re.sub("#", word, xml), words


@given(body=st.lists(block(), max_size=3), back=st.lists(block(), max_size=2), floats=st.lists(block(3), max_size=1))
def test_every_word_is_read_once_however_blocks_are_nested(body: list[str], back: list[str], floats: list[str]) -> None:
    inside = f"<body><p>#</p>{''.join(body)}</body><back>{''.join(back)}</back><floats-group>{''.join(floats)}"
    text, words = with_words(f"<article><front/>{inside}</floats-group></article>")
    (doc,) = read(text)
    found = Counter(word for passage in doc.passages for word in re.findall(r"Wörd\d+x", passage.text))
    assert found == Counter(words)
    assert not any("left out" in passage.text for passage in doc.passages)


@given(st.lists(block(), max_size=4))
def test_passages_stand_in_reading_order(blocks: list[str]) -> None:
    text, _ = with_words(f"<article><body><p>#</p>{''.join(blocks)}</body></article>")
    (doc,) = read(text)
    first = [int(re.findall(r"Wörd(\d+)x", passage.text)[0]) for passage in doc.passages]
    assert first == sorted(first)


@given(block(), block())
def test_the_own_words_of_a_paragraph_stay_together_and_apart_from_what_stands_in_it(one: str, two: str) -> None:
    inner, _ = with_words(one + two)
    (doc,) = read(f"<article><body><p>Before <list><list-item>{inner}</list-item></list> after</p></body></article>")
    assert doc.passages[0].text == "Before after"
    assert doc.passages[0].kind == "paragraph"


@given(st.lists(block(), min_size=1, max_size=3))
def test_passages_never_begin_or_end_with_white_space_or_hold_two_spaces(blocks: list[str]) -> None:
    text, _ = with_words(f"<article><body>\n  <p> #\n\t # </p>\n{' '.join(blocks)}\n</body></article>")
    (doc,) = read(text)
    for passage in doc.passages:
        if passage.kind not in ("code", "table"):
            assert passage.text == passage.text.strip(" \n\t")
            assert "  " not in passage.text


@given(st.data())
def test_damage_rejects_or_reads_and_never_raises_anything_else(data: st.DataObject) -> None:
    blocks = data.draw(st.lists(block(3), min_size=1, max_size=2))
    text, _ = with_words(f"<article><body><p>#</p>{''.join(blocks)}</body></article>")
    raw = data.draw(damaged(text.encode()))
    source = source_of("a.nxml", raw)
    with contextlib.suppress(lexome.LexomeError):
        list(pmc.read(source, tally=Tally()))
