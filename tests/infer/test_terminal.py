"""Documents in a terminal: brackets that nest, lines that fit, and text that is never obeyed."""

import re
from dataclasses import replace

import pytest

from lexome import Answer, Argument, Document, Passage, Question, Relation, Span
from lexome.infer.relation_explanation import RelationEvidence, RelationExplanation
from lexome.infer.terminal import color_code, explain_relation, render


def span(text: str, mention: str, type: str, *, id: str = "T1", score: float | None = None) -> Span:
    start = text.index(mention)
    return Span(id, type, ((start, start + len(mention)),), mention, score=score)


def page(text: str, *spans: Span, **options: object) -> str:
    return render(Document("d", (Passage(0, text),), spans), show_id=False, **options)  # type: ignore[arg-type]


def test_mentions_inside_others_have_brackets_inside() -> None:
    text = "BRCA1 breast cancer"
    spans = (span(text, "BRCA1 breast cancer", "Disease"), span(text, "BRCA1", "Gene", id="T2", score=0.5))
    assert page(text, *spans) == "[[BRCA1|Gene 0.50] breast cancer|Disease]"


def test_two_types_of_one_mention_are_both_shown() -> None:
    text = "p53 binds"
    assert page(text, span(text, "p53", "Gene"), span(text, "p53", "Protein", id="T2")) == "[[p53|Protein]|Gene] binds"


def test_mentions_that_cross_or_have_parts_are_named_below() -> None:
    text = "left and right ventricle"
    crossing = span(text, "and right", "B", id="T2")
    parts = Span("T3", "C", ((0, 4), (15, 24)), "left ventricle", score=0.25)
    lines = page(text, span(text, "left and", "A"), crossing, parts).splitlines()
    assert lines == ["[left and|A] right ventricle", "  also [left ventricle|C 0.25]", "  also [and right|B]"]


def test_passages_begin_where_their_offset_says() -> None:
    doc = Document("7", (Passage(3, "BRCA1"), Passage(20, "in TP53.")), (Span("T1", "Gene", ((23, 27),), "TP53"),))
    assert render(doc) == "7\nBRCA1\nin [TP53|Gene]."


@pytest.mark.parametrize("color", [False, True])
def test_lines_fit_and_lose_nothing(color: bool) -> None:
    text = "one two three four five six seven eight nine ten " * 5
    found = span(text, "two three four five six", "Long Type", score=0.5)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", page(text, found, width=30, color=color))
    assert max(map(len, plain.splitlines())) <= 30
    assert " ".join(plain.split()) == text.strip().replace(found.text, f"[{found.text}|Long Type 0.50]", 1)


def test_wide_characters_take_two_columns() -> None:
    assert page("基因 基因 基因", width=9).splitlines() == ["基因 基因", "基因"]


def test_type_and_score_stay_together() -> None:
    text = "aaaa BRCA1"
    assert page(text, span(text, "BRCA1", "Gene", score=0.5), width=12).splitlines() == ["aaaa", "[BRCA1|Gene 0.50]"]


@pytest.mark.parametrize("text", ["a\x1b[2Jb", "a\x07b", "a\x9b2Jb", "a\u202eb", "a\rb", "a\x7fb"])
def test_control_characters_are_shown_and_not_obeyed(text: str) -> None:
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", page(text))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", page(text, Span("T1", text, ((0, 1),), "a")))


def test_relations_labels_and_answers_come_last() -> None:
    text = "olaparib BRCA1"
    doc = Document(
        "d",
        (Passage(0, text),),
        (span(text, "olaparib", "Chemical"), span(text, "BRCA1", "Gene", id="T2")),
        (Relation("R1", "inhibits", (Argument("agent", "T1"), Argument("target", "T2")), score=0.75),),
        questions=(Question("Q1", "What?", answers=(Answer("BRCA1", 9, score=0.5),)),),
        labels=("cancer",),
    )
    assert render(doc, show_id=False).splitlines()[1:] == [
        "  inhibits(agent: olaparib, target: BRCA1) 0.75",
        "  labels: cancer",
        "  question: What?",
        "  answer: BRCA1 0.50",
    ]


def test_common_types_have_colors_of_their_own() -> None:
    types = ("Gene", "Disease", "Chemical", "Species", "Variant", "CellLine", "Protein")
    assert len({color_code(type_) for type_ in types}) == len(types)
    assert color_code("Gene") == color_code("genes")


def test_an_empty_document_is_its_name() -> None:
    assert render(Document("9")) == "9"


def test_a_concept_in_a_relation_is_named_by_its_first_mention() -> None:
    spans = (
        Span("T1", "Chemical", ((0, 7),), "Lithium", ("mesh:D008094",)),
        Span("T2", "Chemical", ((13, 15),), "Li", ("mesh:D008094",)),
    )
    sides = (Argument("Chemical", concept="mesh:D008094"), Argument("Disease", concept="mesh:D014202"))
    relation = Relation("R1", "CID", sides, novel=True, score=0.5)
    doc = Document("d", (Passage(0, "Lithium gave Li tremor."),), spans, (relation,))
    assert render(doc).endswith("\n  Lithium (mesh:D008094) - CID - mesh:D014202 0.50, novel")
    # The first of the text: mentions that a document brings come before those of a model.
    assert render(replace(doc, spans=spans[::-1])) == render(doc)


def explanation(text: str, *sentences: tuple[int, int], label: str | None) -> RelationExplanation:
    """Of olaparib and PARP1 in these sentences of a text."""
    places = [(text.index(name), text.index(name) + len(name)) for name in ("olaparib", "PARP1")]
    shown = " ... ".join(text[start:end] for start, end in sentences)
    evidence = RelationEvidence(places[0], places[1], sentences, shown, 0.4)
    probabilities = {None: 0.5, "INHIBITOR": 0.3, "AGONIST": 0.2}
    reason = None if label else "no relation is more likely (0.50)"
    return RelationExplanation(
        "DrugProt", label, "olaparib", "PARP1", 0.3, None, probabilities, (evidence,), reason=reason
    )


def test_evidence_shows_both_mentions_of_long_sentences() -> None:
    first, second = f"{'Long ' * 40}olaparib{' words' * 40}.", f"PARP1{' more' * 40}."
    text = f"{first} {second}"
    one = explanation(text, (0, len(first)), (len(first) + 1, len(text)), label="INHIBITOR")
    line = explain_relation(one)[1]
    assert re.search(r"'…[Long ]+ olaparib[ words]+… \.\.\. PARP1[ more]+…'$", line)
    assert len(line) < 250
    together = f"{'Long ' * 20}olaparib inhibits PARP1{' words' * 20}."
    line = explain_relation(explanation(together, (0, len(together)), label="INHIBITOR"))[1]
    assert re.search(r"'…[Long ]+ olaparib inhibits PARP1[ words]+…'$", line)
    short = "We give olaparib. It hits PARP1."
    line = explain_relation(explanation(short, (0, 17), (18, 32), label="INHIBITOR"))[1]
    assert line.endswith("'We give olaparib. ... It hits PARP1.'")


def test_that_no_relation_is_likely_is_told_once() -> None:
    text = "olaparib PARP1"
    related, near = (explain_relation(explanation(text, (0, 14), label=one))[0] for one in ("INHIBITOR", None))
    assert related.endswith("0.30: others: no relation 0.50, AGONIST 0.20")
    assert near.endswith("(0.50); others: AGONIST 0.20")


def test_relations_that_read_the_same_are_one_line() -> None:
    text = "aspirin COX1 aspirin COX1"
    places = ((0, 7), (8, 12), (13, 20), (21, 25))
    spans = tuple(Span(f"T{n}", "Gene" if n % 2 else "Drug", (at,), text[slice(*at)]) for n, at in enumerate(places))
    relations = tuple(
        Relation(f"R{n}", "INHIBITOR", (Argument("Drug", one), Argument("Gene", other)), score=score)
        for n, (one, other, score) in enumerate([("T0", "T1", 0.5), ("T0", "T3", None), ("T2", "T3", 0.75)])
    )
    doc = Document("d", (Passage(0, text),), spans, relations)
    assert render(doc).splitlines()[-1] == "  aspirin - INHIBITOR - COX1 0.75 (3 times)"
    assert len(render(doc).splitlines()) == 3
