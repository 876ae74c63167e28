"""PubTator text: mentions, relations, the traps of published files, and what a block can hold."""

import io
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from errors import raises
from hypothesis import given
from hypothesis import strategies as st
from memory_files import source_of
from mutations import damaged
from strategies import documents, spans_of, texts

from lexome import Argument, Attribute, Document, Metadata, Passage, Relation, Span, Tally
from lexome.errors import BadDocument, LexomeError, UsageError
from lexome.formats import pubtator

BLOCK = (
    "901|t|Zorin and ulcers\n"
    "901|a|Zorin may cause quux failure.\n"
    "901\t0\t5\tZorin\tChemical\tD000001\n"
    "901\t10\t16\tulcers\tDisease\tMESH:D000002|OMIM:100001\n"
    "901\t17\t22\tZorin\tChemical\t-1\n"
    "901\tCID\tD000001\tD000002\n"
)


def read(content: str | bytes, tally: Tally | None = None, **options: str) -> list[Document]:
    source = source_of("a.txt", content)
    return list(pubtator.read(source, tally=tally or Tally(), **options))  # type: ignore[arg-type]


def written(*docs: Document, tally: Tally | None = None) -> str:
    stream = io.BytesIO()
    pubtator.write(docs, stream, tally=tally or Tally())
    return stream.getvalue().decode()


def test_a_block_is_a_document() -> None:
    assert read(BLOCK) == [
        Document(
            "901",
            (Passage(0, "Zorin and ulcers", "title"), Passage(17, "Zorin may cause quux failure.", "abstract")),
            (
                Span("T1", "Chemical", ((0, 5),), "Zorin", ("mesh:D000001",)),
                Span("T2", "Disease", ((10, 16),), "ulcers", ("mesh:D000002", "omim:100001")),
                Span("T3", "Chemical", ((17, 22),), "Zorin"),
            ),
            (
                Relation(
                    "R1",
                    "CID",
                    (Argument("Chemical", concept="mesh:D000001"), Argument("Disease", concept="mesh:D000002")),
                ),
            ),
        )
    ]


def test_line_ends_and_blank_lines_do_not_matter() -> None:
    spread = ("\n\n" + BLOCK + " \n\n" + BLOCK.replace("901", "902") + "\n\n").replace("\n", "\r\n")
    assert [doc.id for doc in read("\ufeff" + spread.lstrip())] == ["901", "902"]
    assert read(spread)[0] == read(BLOCK)[0]


def test_a_title_begins_a_document_without_a_blank_line() -> None:
    assert [doc.id for doc in read(BLOCK + BLOCK.replace("901", "902"))] == ["901", "902"]


def test_relations_may_say_whether_they_are_new() -> None:
    lines = "901|t|a\n901\tBinds\t672\t673\tNovel\n901\tBinds\t672\t673\tNo\n901\tBinds\t672\t673\n"
    assert [relation.novel for relation in read(lines)[0].relations] == [True, False, None]


def test_roles_are_the_types_of_the_mentions_where_these_differ() -> None:
    lines = "901|t|ab\n901\t0\t1\ta\tGene\t672\n901\t1\t2\tb\tSpecies\t9606\n901\tIn\t672\t9606\n901\tOf\t672\t7\n"
    (doc,) = read(lines)
    assert [relation.arguments for relation in doc.relations] == [
        (Argument("Gene", concept="NCBIGene:672"), Argument("Species", concept="NCBITaxon:9606")),
        (Argument("Arg1", concept="NCBIGene:672"), Argument("Arg2", concept="local:7")),
    ]


def test_a_side_of_a_relation_may_have_several_concepts() -> None:
    (doc,) = read("901|t|a\n901\tBinds\tD000001|D000002\tD000003\n")
    assert [(argument.role, argument.concept) for argument in doc.relations[0].arguments] == [
        ("Arg1", "mesh:D000001"),
        ("Arg1", "mesh:D000002"),
        ("Arg2", "mesh:D000003"),
    ]
    assert read(written(doc)) == [doc]


def test_types_before_the_ids_of_a_relation_are_its_roles() -> None:
    (doc,) = read("901|t|a\n901\ttreat\tChemical|MESH:D000001\tVariant|tmVar:p|SUB|V|6|E;RS#:7\n")
    assert [(argument.role, argument.concept) for argument in doc.relations[0].arguments] == [
        ("Chemical", "mesh:D000001"),
        ("Variant", "tmvar:p|SUB|V|6|E"),
        ("Variant", "dbsnp:rs7"),
    ]


def test_individual_mentions_are_an_attribute() -> None:
    line = "901\t0\t17\tleft and right ax\tDisease\tD000001|D000002\tleft ax|right ax\n"
    (doc,) = read("901|t|left and right axis\n" + line)
    assert doc.attributes == (Attribute("A1", "T1", "IndividualMentions", "left ax|right ax"),)
    assert read(written(doc)) == [doc]


def test_spaces_that_end_a_title_are_text_where_mentions_count_them() -> None:
    (doc,) = read("901|t|Title \n901|a|Zorin\n901\t7\t12\tZorin\tGene\t1\n")
    assert [passage.text for passage in doc.passages] == ["Title ", "Zorin"]


def test_spaces_that_end_a_title_go_where_mentions_do_not_count_them() -> None:
    tally = Tally()
    (doc,) = read("901|t|Title \n901|a|Zorin\n901\t6\t11\tZorin\tGene\t1\n", tally)
    assert [(passage.offset, passage.text) for passage in doc.passages] == [(0, "Title"), (6, "Zorin")]
    assert tally.notes == {"trailing spaces of a title removed: offsets do not count them": 1}


def test_mentions_may_hold_bars_and_tabs() -> None:
    (doc,) = read("901|t|a|b\tc d\n901\t0\t5\ta|b\tc\tGene\t672\n901\t1\t2\t|\tGene\n")
    assert [span.text for span in doc.spans] == ["a|b\tc", "|"]


def test_blocks_of_one_article_are_told_apart() -> None:
    docs = read("901|t|a\n\n901|t|b\n\n902|t|c\n\n901|t|d\n")
    assert [(doc.id, doc.meta.part_of) for doc in docs] == [
        ("901", None),
        ("901-2", "901"),
        ("902", None),
        ("901", None),
    ]
    assert written(*docs).count("901|t|") == 3
    assert read(written(*docs)) == docs


def test_an_offset_that_misses_refuses_the_document_and_no_other(tmp_path: Path) -> None:
    tally = Tally(tmp_path / "rejects.jsonl")
    docs = read(BLOCK.replace("\t0\t5\t", "\t1\t6\t") + "\n" + BLOCK.replace("901", "902"), tally, offsets="strict")
    tally.close()
    assert [doc.id for doc in docs] == ["902"]
    assert tally.rejected == {"offset_mismatch": 1}
    assert '"where": "a.txt, line 1"' in (tmp_path / "rejects.jsonl").read_text()


def test_offsets_are_repaired_on_request() -> None:
    tally = Tally()
    wrong = BLOCK.replace("\t0\t5\t", "\t1\t6\t").replace("\t17\t22\tZorin", "\t3\t3\tquux")
    (doc,) = read(wrong, tally, offsets="repair")
    assert [(span.parts, span.text) for span in doc.spans] == [
        (((0, 5),), "Zorin"),
        (((10, 16),), "ulcers"),
        (((33, 37),), "quux"),
    ]
    assert tally.notes == {"span moved to its text": 2}


def test_a_range_that_is_too_long_does_not_swallow_the_type() -> None:
    (doc,) = read("901|t|A zorin of mice\n901\t2\t12\tzorin\tGene\t672\n", offsets="repair")
    assert doc.spans == (Span("T1", "Gene", ((2, 7),), "zorin", ("NCBIGene:672",)),)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("901|t|a\n901|a\n", "malformed_line"),
        ("901|t|a\n901\t0\t1\ta\n", "malformed_line"),
        ("901|t|a\nno tab\n", "malformed_line"),
        ("901|t|a\n902|a|b\n", "mixed_ids"),
        ("901|t|a\n902\t0\t1\ta\tGene\t1\n", "mixed_ids"),
        ("901\t0\t1\ta\tGene\t1\n", "no_text"),
        ("901|t|a\n901\t1\t0\ta\tGene\t1\n", "bad_span"),
        ("901|t|a\n901\t0\t9\ta\tGene\t1\n", "bad_offset"),
    ],
)
def test_a_block_that_makes_no_sense_is_refused(lines: str, reason: str) -> None:
    with pytest.raises(BadDocument) as caught:
        read(lines, offsets="strict")
    assert caught.value.reason == reason


def test_bytes_of_another_encoding_say_so() -> None:
    with raises(BadDocument, code="wrong_encoding", value=9):
        read(b"901|t|caf\xe9\n")
    assert read(b"\xe9|t|caf\xe9\n", encoding="latin-1")[0] == Document("é", (Passage(0, "café", "title"),))
    with raises(UsageError, code="unknown-encoding", value="nope"):
        read(BLOCK, encoding="nope")


def test_what_is_left_out_is_noted() -> None:
    tally = Tally()
    read("901|t|a\n901|b|c\n901\t0\t1\ta\tGene\t1\tx\ty\n901\tBinds\t-\t5\n901\tBinds\t5\t6\tmaybe\n", tally)
    assert tally.notes == {
        "text marked |b| read as a paragraph": 1,
        "column after the individual mentions ignored": 1,
        "relation without an id on one side ignored": 1,
        "column of a relation ignored": 1,
    }


def test_a_document_is_written_as_pubtator_has_it() -> None:
    assert written(*read(BLOCK)) == (
        "901|t|Zorin and ulcers\n"
        "901|a|Zorin may cause quux failure.\n"
        "901\t0\t5\tZorin\tChemical\tMESH:D000001\n"
        "901\t10\t16\tulcers\tDisease\tMESH:D000002;OMIM:100001\n"
        "901\t17\t22\tZorin\tChemical\t-\n"
        "901\tCID\tMESH:D000001\tMESH:D000002\n\n"
    )


def test_passages_keep_their_offsets_with_spaces_between() -> None:
    tally = Tally()
    passages = (
        Passage(0, "Title", "title"),
        Passage(8, "one\ntwo", "abstract"),
        Passage(15, "three"),
        Passage(25, "x"),
    )
    doc = Document("d", passages, (Span("T1", "Gene", ((15, 20),), "three"),))
    assert written(doc, tally=tally) == "d|t|Title\nd|a|  one twothree     x\nd\t15\t20\tthree\tGene\t-\n\n"
    assert tally.notes == {
        "passage kinds, gaps, sections and sentences not written": 1,
        "line breaks in the text written as spaces": 1,
    }


def test_tabs_in_mentions_become_spaces_in_the_text_too() -> None:
    doc = Document("d", (Passage(0, "a\tb\tc", "title"),), (Span("T1", "Gene", ((0, 3),), "a\tb"),))
    assert written(doc).startswith("d|t|a b\tc\nd|a|\nd\t0\t3\ta b\tGene")


def test_a_discontinuous_mention_is_written_as_its_parts() -> None:
    tally = Tally()
    spans = (Span("T1", "Disease", ((0, 4), (15, 17)), "left ax", ("mesh:D000001",)),)
    doc = Document("d", (Passage(0, "left and right ax", "title"),), spans)
    assert [(span.start, span.end, span.concepts) for span in read(written(doc, tally=tally))[0].spans] == [
        (0, 4, ("mesh:D000001",)),
        (15, 17, ("mesh:D000001",)),
    ]
    assert tally.notes == {"discontinuous mention written as its parts": 1}


def test_a_relation_between_mentions_becomes_one_between_their_concepts() -> None:
    tally = Tally()
    (doc,) = read(BLOCK)
    related = replace(doc, relations=(Relation("R1", "CID", (Argument("x", "T1"), Argument("y", "T2"))),))
    assert "901\tCID\tMESH:D000001\tMESH:D000002;OMIM:100001\n" in written(related, tally=tally)
    assert tally.notes == {"relation between mentions written as one between their concepts": 1}


def test_what_a_block_cannot_hold_is_noted_once_a_document() -> None:
    tally = Tally()
    doc = Document(
        "d",
        (Passage(0, "ab", "title"),),
        (Span("x", "Gene", ((0, 1),), "a", ("mesh:D1", "local:a;b"), 0.5),),
        (Relation("R1", "alone", (Argument("x", "x"),)), Relation("R2", "12", (Argument("x", concept="a:b"),))),
        (Attribute("A1", "x", "Negation"),),
        labels=("y",),
        meta=Metadata(pmid="1"),
    )
    assert read(written(doc, tally=tally))[0].spans == (Span("T1", "Gene", ((0, 1),), "a"),)
    assert tally.notes == {
        "concepts that PubTator cannot represent not written": 1,
        "relation that PubTator cannot represent not written": 2,
        "ids of mentions, relations and attributes not written": 1,
        "scores not written": 1,
        "attributes not written": 1,
        "labels not written": 1,
        "metadata not written": 1,
    }


@pytest.mark.parametrize(
    ("doc", "reason"),
    [
        (Document("a|b"), "bad_id"),
        (Document(""), "bad_id"),
        (Document(" a"), "bad_id"),
        (Document("a\nb"), "bad_id"),
        (Document("a", (Passage(0, "x", "title"), Passage(1, "y"))), "no_gap"),
        (Document("a", (Passage(0, "x", "title"), Passage(10**7, "y"))), "wide_gap"),
        (Document("a", (Passage(0, "x"),), (Span("T1", "a\tb", ((0, 1),), "x"),)), "bad_type"),
        (Document("a", (Passage(0, "x"),), (Span("T1", "\ud800", ((0, 1),), "x"),)), "not_unicode"),
    ],
)
def test_a_document_that_no_block_can_hold_is_refused(doc: Document, reason: str) -> None:
    with pytest.raises(BadDocument) as caught:
        written(doc)
    assert caught.value.reason == reason


@st.composite
def blocks(draw: st.DrawFn) -> Document:
    """Documents of all that PubTator can hold."""
    kept = texts(lambda character: character not in "\n\r\t")
    title, abstract = draw(kept), draw(kept)
    placed = ((0, title, "title"), (len(title) + 1, abstract, "abstract"))
    passages = tuple(Passage(offset, text, kind) for offset, text, kind in placed if text)
    spans = draw(spans_of(passages, discontinuous=False))
    concepts = sorted({concept for span in spans for concept in span.concepts} | {"mesh:D000001", "NCBIGene:7"})
    sides = st.lists(st.sampled_from(concepts), min_size=2, max_size=2)
    relations = tuple(
        Relation(f"R{number}", "binds", tuple(Argument("x", concept=concept) for concept in pair), novel)
        for number, (pair, novel) in enumerate(
            draw(st.lists(st.tuples(sides, st.sampled_from([True, False, None])))), 1
        )
    )
    return Document(draw(st.from_regex(r"[A-Za-z0-9]{1,8}", fullmatch=True)), passages, spans, relations)


@given(st.lists(blocks(), max_size=3, unique_by=lambda doc: doc.id))
def test_round_trip_is_exact_for_all_that_a_block_can_hold(docs: list[Document]) -> None:
    # Roles are not in the file: they are made from the mentions.
    once = read(written(*docs))
    assert [replace(doc, relations=()) for doc in once] == [replace(doc, relations=()) for doc in docs]
    for before, after in zip(docs, once, strict=True):
        assert [_bare(relation) for relation in after.relations] == [_bare(relation) for relation in before.relations]
    assert read(written(*once)) == once


def _bare(relation: Relation) -> tuple[object, ...]:
    return relation.id, relation.type, relation.novel, [argument.concept for argument in relation.arguments]


@given(documents())
def test_any_document_keeps_its_mentions_in_place_or_is_refused_for_its_gap(doc: Document) -> None:
    stream = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder, Tally(Path(folder, "rejects.jsonl")) as tally:
        pubtator.write([doc], stream, tally=tally)
    assert tally.written + tally.rejected["no_gap"] == 1
    for after in read(stream.getvalue()):
        assert [(part, span.type) for span in doc.spans for part in span.parts] == [
            (part, span.type) for span in after.spans for part in span.parts
        ]


@given(damaged((BLOCK + "\n" + BLOCK).encode()), st.sampled_from(["strict", "repair"]))
def test_no_damage_raises_anything_but_our_errors(raw: bytes, offsets: str) -> None:
    with suppress(LexomeError):
        read(raw, offsets=offsets)


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ("q q q-2", "q q-2 q-2-2"),
        ("q q q q-2 q-3 q-4", "q q-2 q-3 q-2-2 q-3-2 q-4"),
        ("q q q-02 q-1", "q q-2 q-02 q-1"),
        ("-2 -3", "-2 -3"),
    ],
)
def test_no_number_makes_an_id_that_follows_at_once_a_second_one(ids: str, expected: str) -> None:
    tally = Tally()
    docs = read("\n".join(f"{id}|t|Zorin\n" for id in ids.split()), tally)
    assert [doc.id for doc in docs] == expected.split()
    assert tally.notes["repeated id numbered"] == sum(doc.meta.part_of is not None for doc in docs)


def test_only_tabs_inside_mentions_become_spaces() -> None:
    spans = (Span("T1", "Gene", ((0, 3),), "a\tb"), Span("T2", "Gene", ((2, 5),), "b\tc"))
    tally = Tally()
    text = written(Document("1", (Passage(0, "a\tb\tc\td", "title"),), spans), tally=tally)
    assert text.startswith("1|t|a b c\td\n")
    assert tally.notes == {"tabs in mentions written as spaces": 1}
