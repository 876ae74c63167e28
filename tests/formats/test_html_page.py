"""The HTML page: exact text, every mention shown, nothing that runs, and colors that can be told apart."""

import base64
import hashlib
import io
import math
import re
from dataclasses import replace
from importlib.resources import files
from itertools import combinations
from pathlib import Path

import lxml.html
import pytest
from full_document import full_document, full_documents
from hypothesis import given
from strategies import documents

import lexome
from lexome import Answer, Argument, Attribute, Document, Passage, Question, Relation, Span, Tally
from lexome.document import lay_out
from lexome.formats import html as html_page
from lexome.formats.concept_ids import concept_url
from lexome.formats.html import COLORS, Color, color_of, concept_link

SENTENCE = "Left and right ventricle need ZBL1 kinase activity."
HEART = Document(
    "d1",
    lay_out([("title", "Zorblin"), ("abstract", SENTENCE)]),
    spans=(
        Span("T1", "Anatomy", ((8, 12), (23, 32)), "Left ventricle", ("uberon:0002084",), 0.75),
        Span("T2", "Anatomy", ((17, 32),), "right ventricle"),
        Span("T3", "Gene", ((38, 42),), "ZBL1", ("NCBIGene:1",), 0.5),
        Span("T4", "Protein", ((38, 49),), "ZBL1 kinase"),
        Span("T5", "Process", ((43, 58),), "kinase activity"),
    ),
    relations=(
        Relation("R1", "in", (Argument("what", "T3"), Argument("where", None, "mesh:D006352")), True, 0.25),
        Relation("R2", "cause", (Argument("of", "R1"),)),
    ),
    attributes=(Attribute("A1", "T3", "Negation"), Attribute("A2", "R1", "Certainty", "low")),
    questions=(
        Question("q1", "Which gene?", "factoid", (Answer("ZBL1", 38, ("zorblin 1",)),), ideal=("It is ZBL1.",)),
    ),
    labels=("heart",),
)


def written(docs, tally=None, **options) -> bytes:
    stream = io.BytesIO()
    html_page.write(docs, stream, tally=tally or Tally(), **options)
    return stream.getvalue()


def parsed(docs, **options) -> lxml.html.HtmlElement:
    return lxml.html.document_fromstring(written(docs, **options))


def texts_of(tree) -> list[str]:
    return [element.text_content() for element in tree.find_class("text")]


def marks_of(tree, type_: str) -> list[str]:
    """The text of each mention's elements, by the type that its explanation begins with."""
    return [mark.text_content() for mark in tree.iter("mark") if mark.get("title").startswith(f"{type_}:")]


def as_shown(text: str) -> str:
    return text.replace("\0", "␀")


def covered(element, around: tuple[str, ...] = ()) -> list[tuple[str, list[str]]]:
    """Each character of an element with the types of all mentions that it stands in."""
    found = [(character, sorted(around)) for character in element.text or ""]
    for child in element:
        inside = (*around, child.get("title").split(":")[0]) if child.tag == "mark" else around
        found += covered(child, inside)
        found += [(character, sorted(around)) for character in child.tail or ""]
    return found


@given(doc=documents())
def test_the_text_is_exact_and_every_character_has_the_mentions_that_cover_it(doc: Document) -> None:
    shown = parsed([doc]).find_class("text")
    assert [element.text_content() for element in shown] == [as_shown(passage.text) for passage in doc.passages]
    for element, passage in zip(shown, doc.passages, strict=True):
        wanted = [
            (as_shown(character), sorted(span.type for span in doc.spans if covers(span, position)))
            for position, character in enumerate(passage.text, passage.offset)
        ]
        assert covered(element) == wanted


def covers(span: Span, position: int) -> bool:
    return any(start <= position < end for start, end in span.parts)


def test_every_document_can_be_shown() -> None:
    docs = full_documents()
    tally = Tally()
    tree = lxml.html.document_fromstring(written(docs, tally))
    assert tally.written == len(docs)
    assert len(tree.find_class("doc")) == len(docs)
    assert texts_of(tree) == [as_shown(passage.text) for doc in docs for passage in doc.passages]
    assert tally.notes == {"sentence and token ranges not shown": 4, "NUL shown as a symbol": 4}


def test_nested_mentions_are_one_element_inside_another() -> None:
    doc = replace(HEART, spans=HEART.spans[2:4], relations=(), attributes=(), questions=())
    (outer,) = [mark for mark in parsed([doc]).iter("mark") if mark.get("title").startswith("Protein")]
    (inner,) = outer.iterdescendants("mark")
    assert (outer.text_content(), inner.text_content()) == ("ZBL1 kinase", "ZBL1")
    assert "l1" in outer.get("class").split()
    assert "l0" in inner.get("class").split()


def test_what_is_said_of_a_mention_names_those_around_it() -> None:
    titles = [mark.get("title") for mark in parsed([HEART]).iter("mark")]
    assert "Gene: ZBL1\nNCBIGene:1\nNegation\nscore 0.5\n\nProtein: ZBL1 kinase" in [
        title.replace("\n\nAnswer: ZBL1\nWhich gene?", "") for title in titles
    ]


def test_overlapping_mentions_are_cut_where_they_cross() -> None:
    doc = replace(HEART, spans=HEART.spans[3:], relations=(), attributes=(), questions=())
    tree = parsed([doc])
    assert marks_of(tree, "Protein") == ["ZBL1 ", "kinase"]
    assert marks_of(tree, "Process") == ["kinase activity"]


def test_parts_of_a_discontinuous_mention_are_dashed_and_share_a_number() -> None:
    cut = [mark for mark in parsed([HEART]).iter("mark") if "cut" in mark.get("class").split()]
    assert [(mark.text_content(), mark.get("data-n")) for mark in cut] == [("Left", "1"), ("ventricle", "1")]


def test_the_legend_counts_each_type_and_can_hide_it() -> None:
    tree = parsed([HEART, HEART])
    group = tree.xpath('//div[@aria-label="Types of mention"]')[0]
    keys = {key.text_content().strip(): key.find(".//input") for key in group.find_class("key")}
    assert [" ".join(name.split()) for name in keys] == [
        "Anatomy 4", "Gene 2", "Protein 2", "Process 2", "Answer 2", "Type names"
    ]  # fmt: skip
    style = tree.findtext(".//style")
    for name, box in keys.items():
        if name != "Type names":
            assert box.get("checked") is not None
            assert f"body:has(#{box.get('id')}:not(:checked)) mark.{box.get('id')}{{display:contents}}" in style
    assert "2 documents · 10 mentions · 4 relations" in tree.text_content()


def test_relations_stand_in_a_table_that_leads_to_the_mentions() -> None:
    tree = parsed([HEART])
    table = tree.find(".//table")
    rows = [[cell.text_content() for cell in row.iter("td")] for row in table.iter("tr")][1:]
    assert rows == [
        ["ZBL1 what", "in", "mesh:D006352 where", "0.25", "yes", "Certainty: low", "R1"],
        ["R1 of", "cause", "", "", "", "", "R2"],
    ]
    for link in table.xpath('.//a[starts-with(@href, "#")]'):
        assert tree.get_element_by_id(link.get("href")[1:]) is not None


def related() -> Document:
    spans = (
        Span("T1", "Gene", ((38, 42),), "ZBL1", ("NCBIGene:1",)),
        Span("T2", "Anatomy", ((17, 32),), "right ventricle", ("uberon:2",)),
        Span("T3", "Gene", ((8, 12),), "Left", ("NCBIGene:1",)),
    )
    sides = (Argument("Gene", concept="NCBIGene:1"), Argument("Anatomy", "T2"))
    relations = (Relation("R1", "in", sides, score=0.75), Relation("R2", "near", sides[::-1], score=0.5))
    return replace(HEART, spans=spans, relations=relations, attributes=(), questions=())


def test_a_relation_under_the_pointer_outlines_all_mentions_of_its_concepts() -> None:
    tree = parsed([related()])
    style = tree.findtext(".//style")
    assert "#d1:has(#d1-r1:is(:hover,:focus-within)) :is(.d1-m3,.d1-m1,.d1-m2){outline" in style
    assert "#d1:has(.d1-m2:is(:hover,:focus)) :is(#d1-r1,#d1-r2) td{" in style
    assert {mark.text_content() for mark in tree.find_class("d1-m2")} == {"right ventricle"}
    # The roles of mentions are their types, and are not told twice.
    assert "role" not in [element.get("class") for element in tree.find_class("arg")[1].iter("span")]


def test_relations_are_filtered_by_type_and_score() -> None:
    tree = parsed([related(), related()])
    group = tree.xpath('//div[@aria-label="Types of relation"]')[0]
    assert [" ".join(key.text_content().split()) for key in group.find_class("key")][:2] == ["in 2", "near 2"]
    assert [row.get("class") for row in tree.xpath("//tr[@id]")] == ["q0 p7", "q1 p5"] * 2
    style = tree.findtext(".//style")
    assert "body:has(#q1:not(:checked)) tr.q1{display:none}" in style
    assert 'option[value="6"]:checked) :is(tr.p0,tr.p1,tr.p2,tr.p3,tr.p4,tr.p5){display:none}' in style
    alone = parsed([replace(related(), relations=())])
    assert not alone.xpath('//div[@aria-label="Types of relation"]')


def test_the_style_sheet_of_many_relations_is_bounded() -> None:
    sides = (Argument("Gene", "T1"), Argument("Anatomy", "T2"))
    many = tuple(Relation(f"R{number}", "in", sides) for number in range(html_page.MAX_LINKED + 50))
    tree = parsed([replace(related(), relations=many)])
    assert len(tree.xpath("//tr[@id]")) == len(many)
    assert tree.findtext(".//style").count("outline:2px") == html_page.MAX_LINKED


def test_mentions_labels_and_questions_are_told_in_words() -> None:
    text = parsed([HEART]).text_content()
    for told in ("Left ventricle", "8–1223–32", "heart", "Which gene?", "also zorblin 1", "It is ZBL1."):
        assert told in text


def test_answers_are_marked_in_the_text() -> None:
    assert marks_of(parsed([HEART]), "Answer") == ["ZBL1"]


def test_section_headings_are_told_once() -> None:
    passages = (
        Passage(0, "1 Methods", "heading"),
        Passage(10, "Mice.", section=("Methods",)),
        Passage(20, "More.", section=("Methods", "Care")),
        Passage(30, "Rest.", section=("Results",)),
    )
    tree = parsed([Document("d", passages)])
    headings = [(element.tag, element.text_content()) for element in tree.iter("h2", "h3", "h4")]
    assert headings == [("h2", "d"), ("h3", "1 Methods"), ("h4", "Care"), ("h3", "Results")]


def test_every_fact_of_the_record_is_there() -> None:
    doc = full_document()
    text = parsed([doc]).text_content()
    for value in (doc.meta.journal.nlm_id, doc.meta.mesh[0].qualifiers[0].id, doc.meta.authors[1].affiliations[1]):
        assert value.replace("\0", "‹U+0000›") in text


HOSTILE = (
    "<script>alert(1)</script>",
    "</style><script>alert(2)</script>",
    '" onmouseover="alert(3)" x=\'',
    "--><img src=x onerror=alert(4)>",
    "</title><svg/onload=alert(5)>",
    "javascript:alert(6)",
    "a\x00b\u202egnp.exe\u2066\u0085\x1b[31m\r\n\ufffe",
    "]]>{{7*7}}${8}&lt;&#x3c;",
    "t0{background:url(https://example.org/x)}",
)


def everywhere(evil: str) -> Document:
    """A document with the text in every place that holds any."""
    return Document(
        evil,
        (Passage(0, evil, evil, (evil, evil), evil, evil, evil),),
        (
            Span(evil, evil, ((0, 4),), evil[:4], (f"{evil}:{evil}", f"mesh:{evil}")),
            Span("b", evil, ((2, 6),), evil[2:6]),
        ),
        (Relation("r", evil, (Argument(evil, "b"), Argument(evil, None, f"go:{evil}"))),),
        (Attribute(evil, "b", evil, evil),),
        (
            Question(
                evil, evil, evil, (Answer(evil, 0, (evil,)),), ideal=(evil,), documents=(evil,), concepts=(f"x:{evil}",)
            ),
        ),
        (evil,),
        replace(full_document().meta, pmid=evil, pmcid=evil, doi=f"10.1234/{evil}", license_url=evil),
    )


@pytest.mark.parametrize("evil", HOSTILE)
def test_hostile_text_is_shown_and_never_becomes_markup(evil: str) -> None:
    raw = written([everywhere(evil)], title=evil)
    tree = lxml.html.document_fromstring(raw)
    assert texts_of(tree) == [as_shown(evil)]
    tags = {element.tag for element in tree.iter() if isinstance(element.tag, str)}
    assert not tags & {"script", "img", "svg", "iframe", "object", "embed", "link", "base", "form", "audio", "video"}
    assert len(tree.findall(".//style")) == len(tree.findall(".//title")) == 1
    for element in tree.iter():
        for name, value in element.items():
            assert not name.startswith("on")
            assert name != "style"
            if name in ("href", "src"):
                assert value.startswith(("#", "https://meshb.nlm.nih.gov/", "https://doi.org/10.1234/"))
    assert "example.org" not in tree.findtext(".//style")
    assert b"\x00" not in raw


def test_marks_that_turn_text_around_stand_alone() -> None:
    """Each is isolated in its own element, with its code beside it, so that it turns nothing."""
    tree = parsed([Document("d", (Passage(0, "a\u202eb\u2069\x07"),))])
    controls = [(element.get("data-c"), element.text_content()) for element in tree.find_class("ctl")]
    assert controls == [("U+202E", "\u202e"), ("U+2069", "\u2069"), ("U+0007", "\x07")]
    rest = written(
        [Document("\u202eid", (Passage(0, "x"),), (Span("T1", "\u202etype", ((0, 1),), "x"),), labels=("\u2067",))]
    )
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", rest.decode())


def test_half_a_surrogate_pair_in_an_id_is_told_and_not_written() -> None:
    assert "‹U+D800›" in parsed([Document("x\ud800")]).text_content()


def test_the_policy_allows_this_style_and_nothing_else() -> None:
    tree = parsed([HEART])
    policy = tree.find('.//meta[@http-equiv="Content-Security-Policy"]').get("content")
    digest = base64.b64encode(hashlib.sha256(tree.findtext(".//style").encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert "url(" not in tree.findtext(".//style")
    assert "@import" not in tree.findtext(".//style")
    assert tree.xpath("//@src | //link") == []


def test_links_leave_only_for_known_vocabularies() -> None:
    assert concept_link("NCBITaxon:9606") == (
        '<a rel="noreferrer noopener" href="https://www.ncbi.nlm.nih.gov/Taxonomy/Browser/wwwtax.cgi?id=9606">'
        "NCBITaxon:9606</a>"
    )
    assert "ebi.ac.uk/chebi/searchId.do?chebiId=CHEBI:35522" in concept_link("CHEBI:35522")
    for other in ("local:LAB-17", "mesh:D 1", "mesh:../x", "http://example.org/x", "tmvar:p|SUB|V|600|E"):
        assert "<a " not in concept_link(other)


def test_each_known_vocabulary_has_a_page_and_nothing_but_the_id_gets_into_its_address() -> None:
    ids = (
        "NCBIGene:672 NCBITaxon:9606 mesh:D001943 omim:114480 CHEBI:35522 cellosaurus:CVCL_0030 MONDO:0007254 "
        "DOID:1612 dbsnp:rs113488022 MGI:104537 RGD:2218 HGNC:1100 GO:0005515 pubchem.compound:2244"
    )
    for concept in ids.split():
        address = concept_url(concept)
        assert address is not None
        assert address.startswith("https://")
        assert address.endswith(concept.partition(":")[2])
    for evil in ('NCBIGene:672"onload=x', "NCBIGene:../672", "mesh:D1?x=", "MGI:1&x", "dbsnp:rs1\n", "NCBIGene:٣"):
        assert concept_url(evil) is None


def test_preferred_names_of_concepts_are_shown_and_escaped() -> None:
    span = Span("T1", "Gene", ((0, 1),), "x", ("NCBIGene:672", "local:1"))
    names = {"NCBIGene:672": "<b>BRCA1</b>"}
    tree = parsed([Document("d", (Passage(0, "x"),), (span,))], preferred_name=names.get)
    assert tree.find(".//mark").get("title") == "Gene: x\nNCBIGene:672 <b>BRCA1</b>, local:1"
    cell = tree.xpath("//details//td")[3]
    assert cell.text_content() == "NCBIGene:672 <b>BRCA1</b>local:1"
    assert [link.get("href") for link in cell.findall("a")] == ["https://www.ncbi.nlm.nih.gov/gene/672"]


def test_documents_wait_on_disk_and_not_in_memory(monkeypatch) -> None:
    """The page is begun only when the last document is known, and none is kept until then."""
    monkeypatch.setattr(html_page, "MAX_INDEXED", 2)
    tree = parsed(Document(str(number), (Passage(0, "x"),)) for number in range(5))
    assert len(tree.find_class("doc")) == 5
    assert tree.find_class("index") == []


def test_thousands_of_mentions_of_the_same_words_stay_writable() -> None:
    spans = tuple(Span(f"T{number}", "X", ((0, 4),), "ZBL1") for number in range(3000))
    raw = written([Document("d", (Passage(0, "ZBL1"),), spans)])
    assert raw.count(b"<mark ") == 3000
    assert len(raw) < 3_000_000


def test_no_documents_are_a_page_that_says_so() -> None:
    assert "No documents." in parsed([]).text_content()


def test_the_ending_writes_a_page(tmp_path: Path) -> None:
    lexome.write(tmp_path / "page.html", [HEART], title="Hearts")
    assert lxml.html.parse(tmp_path / "page.html").findtext(".//title") == "Hearts"


def test_the_same_documents_give_the_same_page() -> None:
    assert written([HEART, *full_documents()]) == written([HEART, *full_documents()])


def test_real_abstracts_are_exact(real_data: Path) -> None:
    path = next(iter(sorted((real_data / "corpus" / "abstracts").glob("*.jsonl.xz"))))
    docs = [doc for doc, _ in zip(lexome.read(path), range(500), strict=False)]
    assert texts_of(parsed(docs)) == [passage.text for doc in docs for passage in doc.passages]


def test_common_types_keep_their_color_under_all_their_names() -> None:
    for family, names in {
        "gene": ("Gene", "GENE", "GeneOrGeneProduct", "gene_or_gene_product", "GENE-Y"),
        "disease": ("Disease", "DiseaseOrPhenotypicFeature", "SpecificDisease"),
        "chemical": ("Chemical", "ChemicalEntity", "drug", "Simple_chemical"),
        "species": ("Species", "OrganismTaxon", "Organism"),
        "cellline": ("CellLine", "cell_line", "Cell line"),
        "variant": ("Variant", "SequenceVariant", "DNAMutation", "SNP", "mutation"),
    }.items():
        assert {color_of(name) for name in names} == {COLORS[family]}
    assert color_of("Zorblin class") == color_of("Zorblin class") != color_of("Quuxoid class")


def test_lines_and_text_have_contrast_in_both_themes() -> None:
    light, dark = themes()
    others = [Color(0.50, 0.76, 0.12, hue) for hue in range(0, 360, 5)]
    for color in (*COLORS.values(), *others):
        line = oklch(color.light, color.chroma, color.hue)
        tint = oklch(0.94, color.chroma * 0.3, color.hue)
        assert contrast(line, light["card"]) >= 3.5
        assert contrast(light["ink"], tint) >= 10
        line = oklch(color.dark, color.chroma * 0.8, color.hue)
        tint = oklch(0.33, color.chroma * 0.36, color.hue)
        assert contrast(line, dark["card"]) >= 4.5
        assert contrast(dark["ink"], tint) >= 7
    for theme in (light, dark):
        for name in ("ink", "soft", "link", "warn"):
            assert contrast(theme[name], theme["card"]) >= 4.5
            assert contrast(theme[name], theme["page"]) >= 4.5


def test_the_main_colors_differ_for_every_reader() -> None:
    """Also without red or green: simulated after Machado and others (2009), at full strength."""
    full = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
    protan = ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998))
    deutan = ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881))
    main = [COLORS[name] for name in ("gene", "protein", "disease", "chemical", "species", "variant", "cellline")]
    for one, other in combinations(main, 2):
        for matrix in (full, protan, deutan):
            for a, b in (
                (oklch(one.light, one.chroma, one.hue), oklch(other.light, other.chroma, other.hue)),
                (oklch(one.dark, one.chroma * 0.8, one.hue), oklch(other.dark, other.chroma * 0.8, other.hue)),
            ):
                assert math.dist(oklab(seen(matrix, a)), oklab(seen(matrix, b))) >= 0.08


def themes() -> tuple[dict[str, tuple[float, ...]], dict[str, tuple[float, ...]]]:
    """The named colors of the light and of the dark theme, in linear light."""
    style = files("lexome.formats").joinpath("page.css").read_text("utf-8")
    found = [
        {name: linear(code) for name, code in re.findall(r"--(\w+): #(\w{6}|\w{3});", block)}
        for block in re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    ]
    return found[0], found[1]


def linear(code: str) -> tuple[float, ...]:
    code = code if len(code) == 6 else "".join(digit * 2 for digit in code)
    parts = (int(code[index : index + 2], 16) / 255 for index in (0, 2, 4))
    return tuple(part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)


def oklch(lightness: float, chroma: float, hue: float) -> tuple[float, ...]:
    """A color in linear light, cut to what a screen can show."""
    a, b = chroma * math.cos(math.radians(hue)), chroma * math.sin(math.radians(hue))
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    middle = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    light = (
        4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * middle + 1.7076147010 * short,
    )
    return tuple(min(max(part, 0.0), 1.0) for part in light)


def oklab(light: tuple[float, ...]) -> tuple[float, ...]:
    red, green, blue = light
    long = math.cbrt(0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue)
    middle = math.cbrt(0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue)
    short = math.cbrt(0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue)
    return (
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    )


def seen(matrix: tuple[tuple[float, ...], ...], light: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(min(max(sum(m * part for m, part in zip(row, light, strict=True)), 0.0), 1.0) for row in matrix)


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """The contrast of two colors as WCAG measures it."""
    low, high = sorted(0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2] for light in (one, other))
    return (high + 0.05) / (low + 0.05)


def test_relations_without_mentions_can_be_hidden() -> None:
    sides = (Argument("Gene", concept="NCBIGene:1"), Argument("Disease", concept="mesh:D006352"))
    page = parsed([Document("d", relations=(Relation("R1", "Association", sides, score=0.5),))])
    (group,) = page.xpath("//div[@class='legend']/div")
    assert group.get("aria-label") == "Types of relation"
    assert [box.get("id") for box in group.iter("input")] == ["q0"]


def test_relations_of_concepts_with_very_many_mentions_leave_the_page_usable() -> None:
    count = 1000
    spans = tuple(Span(f"T{n}", "Gene", ((3 * n, 3 * n + 2),), "ab", (f"x:{n % 2}",)) for n in range(count))
    sides = (Argument("Gene", concept="x:0"), Argument("Gene", concept="x:1"))
    relations = tuple(Relation(f"R{n}", "Bind", sides) for n in range(200))
    text = " ".join(["ab"] * count)
    plain, related = (
        written([Document("d", (Passage(0, text),), spans, own)]).decode() for own in (relations[:1], relations)
    )
    assert ".d1-m1000" in plain
    assert len(related) < len(plain) + 1_000_000


def test_columns_that_are_blank_are_left_out() -> None:
    def columns(doc: Document) -> list[list[str]]:
        return [[cell.text_content() for cell in table.iter("th")] for table in parsed([doc]).iter("table")]

    relations = ["Entity 1", "Relation", "Entity 2", "Score", "Novel", "Attributes", "Id"]
    mentions = ["Mention", "Type", "Characters", "Concepts", "Score", "Attributes", "Id"]
    assert columns(HEART) == [relations, mentions]
    without = replace(HEART, relations=(), attributes=())
    assert columns(without) == [[name for name in mentions if name != "Attributes"]]
