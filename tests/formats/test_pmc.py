"""JATS: what each element of an article becomes."""

import re

import pytest
from errors import raises
from memory_files import source_of
from patience import linear_work

from lexome import Document, Passage, Tally
from lexome.errors import BadDocument
from lexome.formats import pmc
from lexome.formats.jats import _HANDLERS, BLOCKS, FLOATS, role_of

MATHML = 'xmlns:mml="http://www.w3.org/1998/Math/MathML"'


def read(text: str | bytes, tally: Tally | None = None, *, references: bool = False) -> list[Document]:
    source = source_of("folder/a.nxml", text)
    return list(pmc.read(source, tally=tally or Tally(), references=references))


def article(inside: str) -> str:
    return f"<article {MATHML}>{inside}</article>"


def passages(body: str, tally: Tally | None = None, *, references: bool = False) -> list[tuple[str, str]]:
    """Kind and text of each passage of an article with this body."""
    (doc,) = read(article(f"<body>{body}</body>"), tally, references=references)
    return [(passage.kind, passage.text) for passage in doc.passages]


def test_an_article_becomes_passages_with_offsets_sections_and_roles() -> None:
    (doc,) = read(
        article(
            "<front><article-meta><title-group><article-title>On zorblins</article-title></title-group>"
            "<abstract><p>They bind.</p></abstract></article-meta></front>"
            "<body><sec><title>Methods</title><sec><title>Mice</title><p>We had two.</p></sec></sec></body>"
        )
    )
    assert doc.passages == (
        Passage(0, "On zorblins", "title", (), "TITLE"),
        Passage(12, "They bind.", "abstract", (), "ABSTRACT"),
        Passage(23, "Methods", "heading", (), "METHODS"),
        Passage(31, "Mice", "heading", ("Methods",), "METHODS"),
        Passage(36, "We had two.", "paragraph", ("Methods", "Mice"), "METHODS"),
    )
    assert doc.text == "On zorblins\nThey bind.\nMethods\nMice\nWe had two."


def test_thousands_of_forms_of_one_thing_are_read_at_once() -> None:
    forms = "<tex-math>x</tex-math>" * 20_000
    tally = Tally()
    with linear_work():
        assert passages(f"<p>So <alternatives>{forms}</alternatives></p>", tally) == [("paragraph", "So x")]
    assert tally.notes["alternative form of a formula or table skipped"] == 19_999


def test_a_label_is_in_the_heading_and_not_in_the_section_path() -> None:
    (doc,) = read(article("<body><sec><label>2.1</label><title>Mice</title><p>Two.</p></sec></body>"))
    assert [(passage.text, passage.section) for passage in doc.passages] == [("2.1 Mice", ()), ("Two.", ("Mice",))]


def test_a_section_without_title_is_named_by_its_label() -> None:
    (doc,) = read(article("<body><sec><label>3</label><p>Two.</p></sec></body>"))
    assert doc.passages[1].section == ("3",)


def test_white_space_is_folded_and_other_spaces_stay() -> None:
    assert passages("<p>\n  One\n\t two&#160;&#8201;three <italic>four</italic>\n</p>") == [
        ("paragraph", "One two\u00a0\u2009three four")
    ]


def test_inline_markup_is_flattened() -> None:
    text = "<p>10<sup>3</sup> cells<xref>[1]</xref>, H<sub>2</sub>O<break/>and <bold>T<italic>H</italic></bold></p>"
    assert passages(text) == [("paragraph", "103 cells[1], H2O and TH")]


def test_a_block_inside_a_paragraph_follows_it() -> None:
    mice, figure = "<list><list-item><p>mice</p></list-item></list>", "<fig><label>Fig 1</label></fig>"
    text = f"<p>We had {mice}and {figure}more.</p><p>So.</p>"
    assert passages(text) == [
        ("paragraph", "We had and more."),
        ("list", "mice"),
        ("caption", "Fig 1"),
        ("paragraph", "So."),
    ]


def test_words_around_a_block_are_not_glued() -> None:
    assert passages("<p>one<fig/>two<break/>three</p>") == [("paragraph", "one two three")]


def test_a_note_in_a_label_or_title_follows_what_they_head() -> None:
    note = "<fn><p>Note.</p></fn>"
    text = (
        f"<fig><label>F1{note}</label><caption><p>Mice.</p></caption></fig><sec><title>T{note}</title><p>P.</p></sec>"
    )
    assert passages(text) == [
        ("caption", "F1 Mice."),
        ("footnote", "Note."),
        ("heading", "T"),
        ("footnote", "Note."),
        ("paragraph", "P."),
    ]


def test_lists_nest_and_their_labels_lead() -> None:
    text = (
        "<list><title>Steps</title><list-item><label>1.</label><p>Wash</p><list><list-item><label>a</label><p>twice</p>"
        "</list-item></list></list-item><list-item><p>Dry</p><p>well</p></list-item></list>"
    )
    assert passages(text) == [
        ("heading", "Steps"),
        ("list", "1. Wash"),
        ("list", "a twice"),
        ("list", "Dry"),
        ("list", "well"),
    ]


def test_a_term_and_its_definition_are_apart_by_a_tab() -> None:
    text = "<def-list><def-item><term>ZBL</term><def><p>zorblin</p><p>A protein.</p></def></def-item></def-list>"
    assert passages(text) == [("list", "ZBL\tzorblin"), ("list", "A protein.")]


def test_a_figure_gives_its_label_with_the_title_and_then_its_paragraphs() -> None:
    text = (
        '<sec><title>Results</title><fig id="f1"><object-id>10.1/x</object-id><label>Figure 1</label>'
        "<caption><title>Growth.</title><p>(A) Mice.</p></caption><alt-text>a graph</alt-text><graphic/></fig></sec>"
    )
    tally = Tally()
    (doc,) = read(article(f"<body>{text}</body>"), tally)
    assert doc.passages[1:] == (
        Passage(8, "Figure 1 Growth.", "caption", ("Results",), "FIG"),
        Passage(25, "(A) Mice.", "caption", ("Results",), "FIG"),
    )
    assert tally.notes == {"<object-id> skipped": 1, "<alt-text> skipped": 1}


def test_a_caption_without_title_begins_with_the_label() -> None:
    text = "<table-wrap><label>Table 1.</label><caption><p>Doses.</p><p>In mg.</p></caption></table-wrap>"
    assert passages(text) == [("caption", "Table 1. Doses."), ("caption", "In mg.")]


def test_a_table_is_rows_of_cells_and_its_notes_follow() -> None:
    text = (
        "<table-wrap><caption><p>Doses</p></caption><table><colgroup><col/></colgroup><thead><tr><th/><th>Dose<break/>(mg)"
        "</th></tr></thead><tbody><tr><td><p>Mice</p><list><list-item><p>old</p></list-item></list></td></tr>"
        "<tr><td>Rats<fn><p>One died.</p></fn></td><td>5<sup>a</sup></td></tr><tr><td/><td> </td></tr></tbody></table>"
        "<table-wrap-foot><fn><label>a</label><p>Twice.</p></fn></table-wrap-foot></table-wrap>"
    )
    assert passages(text) == [
        ("caption", "Doses"),
        ("table", "\tDose (mg)\nMice old\nRats\t5a"),
        ("footnote", "One died."),
        ("footnote", "a Twice."),
    ]


def test_an_oasis_table_is_a_table() -> None:
    text = (
        '<table-wrap xmlns:oasis="http://docs.oasis-open.org/ns/oasis-exchange/table"><oasis:table><oasis:tgroup>'
        "<oasis:tbody><oasis:row><oasis:entry>a</oasis:entry><oasis:entry>b</oasis:entry></oasis:row></oasis:tbody>"
        "</oasis:tgroup></oasis:table></table-wrap>"
    )
    assert passages(text) == [("table", "a\tb")]


def test_of_two_forms_of_a_formula_the_mathml_is_read() -> None:
    tex = r"<tex-math>\documentclass{minimal}\begin{document}$$x$$\end{document}</tex-math>"
    math = "<mml:math><mml:mi>y</mml:mi></mml:math>"
    tally = Tally()
    text = f"<p>So <inline-formula><alternatives>{tex}{math}</alternatives></inline-formula> and {tex}.</p>"
    assert passages(text, tally) == [("paragraph", "So y and $$x$$.")]
    assert passages(f"<disp-formula><label>(1)</label>{tex}{math}</disp-formula>", tally) == [("formula", "(1) y")]
    assert tally.notes == {"alternative form of a formula or table skipped": 2}


@pytest.mark.parametrize(
    ("mathml", "text"),
    [
        ("<mfrac><mn>1</mn><mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow></mfrac>", "1/(a+b)"),
        ("<mfrac><mfrac><mi>a</mi><mi>b</mi></mfrac><mi>c</mi></mfrac>", "(a/b)/c"),
        ("<mfenced><mi>a</mi><mi>b</mi></mfenced>", "(a,b)"),
        ('<mfenced open="[" close="" separators=""><mi>a</mi><mi>b</mi></mfenced>', "[ab"),
        ("<mfenced/>", "()"),
        ("<msqrt><mi>x</mi></msqrt>", "√(x)"),
        ("<mi> x </mi>\n <mo>=</mo> <mtext>if  any</mtext>", "x=if any"),
        ("<mtable><mtr><mtd><mi>a</mi></mtd><mtd><mi>b</mi></mtd></mtr></mtable>", "a b"),
        ("<semantics><mi>x</mi><annotation>TeX</annotation></semantics>", "x"),
        ("<msup><mi>x</mi><mn>2</mn></msup>", "x2"),
    ],
)
def test_mathml_is_written_on_one_line(mathml: str, text: str) -> None:
    assert passages(f"<p>Is <math>{mathml}</math>.</p>") == [("paragraph", f"Is {text}.")]
    prefixed = re.sub(r"(</?)(?=\w)", r"\1mml:", mathml)
    assert passages(f"<p>Is <mml:math>{prefixed}</mml:math>.</p>") == [("paragraph", f"Is {text}.")]


def test_verse_code_quotes_boxes_and_statements() -> None:
    text = (
        "<verse-group><verse-line>Roses</verse-line><verse-line>are</verse-line></verse-group><code>if x:\n    y</code>"
        "<disp-quote><p>Said.</p><attrib>Her</attrib></disp-quote><speech><speaker>A:</speaker><p>Hm.</p></speech>"
        "<boxed-text><caption><title>Box</title></caption><p>In it.</p></boxed-text>"
        "<statement><label>Lemma 1</label><p>True.</p></statement>"
    )
    (doc,) = read(article(f"<body>{text}</body>"))
    assert [(passage.kind, passage.text, passage.section) for passage in doc.passages] == [
        ("paragraph", "Roses\nare", ()),
        ("code", "if x:\n    y", ()),
        ("paragraph", "Said.", ()),
        ("paragraph", "Her", ()),
        ("paragraph", "A: Hm.", ()),
        ("heading", "Box", ()),
        ("paragraph", "In it.", ("Box",)),
        ("heading", "Lemma 1", ()),
        ("paragraph", "True.", ("Lemma 1",)),
    ]


def test_back_matter_has_its_names_and_roles() -> None:
    back = (
        "<ack><title>Thanks</title><p>To all.</p></ack><app-group><app><title>A</title><p>Extra.</p></app></app-group>"
        "<glossary><p>x</p></glossary><fn-group><title>Competing interests</title><fn><p>None.</p></fn></fn-group>"
        '<sec sec-type="data-availability"><title>Data Availability</title><p>Here.</p></sec>'
        "<notes><title>Author contributions</title><p>Both.</p></notes><bio><p>She works.</p></bio>"
    )
    (doc,) = read(article(f"<back>{back}</back>"))
    assert [(p.text, p.section, p.category) for p in doc.passages if p.kind != "heading"] == [
        ("To all.", ("Thanks",), "ACK_FUND"),
        ("Extra.", ("A",), "APPENDIX"),
        ("x", (), "ABBR"),
        ("None.", ("Competing interests",), "COMP_INT"),
        ("Here.", ("Data Availability",), None),
        ("Both.", ("Author contributions",), "AUTH_CONT"),
        ("She works.", (), None),
    ]


@pytest.mark.parametrize(
    ("heading", "role"),
    [
        ("Introduction", "INTRO"),
        ("1. Background", "INTRO"),
        ("II. MATERIALS AND METHODS", "METHODS"),
        ("Experimental procedures", "METHODS"),
        ("Results and discussion", "RESULTS"),
        ("4 Discussion", "DISCUSS"),
        ("Conclusions:", "CONCL"),
        ("Case presentation", "CASE"),
        ("Supporting Information", "SUPPL"),
        ("Authors’ contributions", "AUTH_CONT"),
        ("Conflicts of Interest", "COMP_INT"),
        ("Abbreviations", "ABBR"),
        ("Peer review information", "REVIEW_INFO"),
        ("Zorblins in mice", None),
        ("Methylation", None),
    ],
)
def test_headings_tell_the_role_of_a_section(heading: str, role: str | None) -> None:
    assert role_of(None, heading) == role


def test_the_heading_goes_before_the_section_type() -> None:
    assert role_of("conclusions", "Discussion") == "DISCUSS"
    assert role_of("conclusions", "What we think") == "CONCL"


def test_references_are_left_out_and_counted_or_read() -> None:
    text = (
        "<article><body><p>Text.</p></body><back><ref-list><title>References</title>"
        "<ref id='a'><label>1</label><element-citation><person-group><name><surname>Ab</surname>"
        "<given-names>C</given-names></name><name><surname>De</surname></name></person-group>"
        "<article-title>On <italic>E</italic>s</article-title><year>2001</year></element-citation></ref>"
        "<ref id='b'><mixed-citation>Xy Z. <source>J</source>, 2002.</mixed-citation></ref></ref-list></back></article>"
    )
    tally = Tally()
    (without,) = read(text, tally)
    assert [passage.text for passage in without.passages] == ["Text."]
    assert tally.notes == {"reference skipped": 2}
    (doc,) = read(text, references=True)
    assert [(passage.kind, passage.text) for passage in doc.passages[1:]] == [
        ("heading", "References"),
        ("reference", "1 Ab C, De On Es 2001"),
        ("reference", "Xy Z. J, 2002."),
    ]


@pytest.mark.parametrize(
    "inside",
    [
        "<!-- <ref id='x'> --><p>Kept.</p><!-- </ref> -->",
        "<?x <ref id='x'>?><p>Kept.</p><?x </ref>?>",
        "<ref id='x'/><p>Kept.</p><ref id='y'><note><p>Gone.</p></note></ref>",
        "<ref id='x'></ref ><p>Kept.</p><ref id='y'></ref>",
        "<p><![CDATA[<ref id='x'>]]>Kept.<![CDATA[</ref>]]></p>",
        "<ref id='x'>a</ref><p>Kept.</p><ref id='y'>b</ref><!-- <ref > -->",
        "<ref id='x'>" + "!?" * 2000 + "</ref><p>Kept.</p><ref id='y'><?b?></ref>",
        "<ref>" + "!?" * 2000 + "</ref><p>Kept.</p><ref id='y'/>",
    ],
)
def test_leaving_references_out_never_takes_text_with_them(inside: str) -> None:
    (doc,) = read(f"<article><back><ref-list>{inside}</ref-list></back></article>")
    assert ["Kept." in passage.text for passage in doc.passages] == [True]


def test_a_fault_after_the_references_is_told_with_its_own_line() -> None:
    with raises(BadDocument, code="malformed_xml", value=6):
        read("<article><body>\n<ref id='a'>\n\n\n</ref>\n<p>x</q></body></article>")


def test_every_block_has_a_handler() -> None:
    assert BLOCKS - _HANDLERS.keys() == set()
    assert FLOATS < BLOCKS
