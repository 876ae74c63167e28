"""Named entities: what a document says comes back from a model that says the same."""

from dataclasses import replace

import numpy as np
import pytest
from errors import raises
from hypothesis import given
from hypothesis import strategies as st
from task_rows import frame, perfect, tokenizer

from lexome.document import Argument, Attribute, Document, Passage, Relation, Span, lay_out
from lexome.errors import UsageError
from lexome.tasks import Ner, task_of
from lexome.tasks.ner import FORBIDDEN, Labelling
from lexome.tasks.task import IGNORE_INDEX, Transitions

LABELLINGS: tuple[Labelling, ...] = ("first", "pieces", "words")


def document(text: str, *mentions: tuple[str, str], passages: tuple[Passage, ...] | None = None) -> Document:
    """A document with a mention for each word and type; the same word again is its next occurrence."""
    passages = passages or lay_out((("abstract", text),))
    whole = Document("d", passages).text
    spans, at = [], dict.fromkeys((word for word, _ in mentions), 0)
    for number, (word, type_) in enumerate(mentions, 1):
        start = whole.index(word, at[word])
        at[word] = start + 1
        spans.append(Span(f"T{number}", type_, ((start, start + len(word)),), word))
    return Document("d", passages, tuple(spans))


def told(doc: Document) -> list[tuple[str, tuple[tuple[int, int], ...], str]]:
    """What a document says of its mentions, in order."""
    return sorted((span.type, span.parts, span.text) for span in doc.spans)


def again(task: Ner, doc: Document, *, size: int = 64) -> Document:
    """The document as a model says it that is always right."""
    rows = task.encode(doc, tokenizer(), frame(size), with_targets=True)
    return task.decode(Document(doc.id, doc.passages), rows, perfect(task, rows))


@pytest.mark.parametrize("labelling", LABELLINGS)
@pytest.mark.parametrize("scheme", ["iob2", "iobes"])
def test_mentions_come_back(labelling: Labelling, scheme: str) -> None:
    doc = document("The BRCA1 gene, TNF-α and é中 (breast cancer).", ("BRCA1 gene", "Gene"), ("TNF-α", "Gene"),
                   ("é中", "Drug"), ("breast cancer", "Disease"))  # fmt: skip
    task = task_of({"kind": "ner", "types": ["Gene", "Drug", "Disease"], "labelling": labelling, "scheme": scheme})
    assert isinstance(task, Ner)
    assert told(again(task, doc)) == told(doc)
    assert not task.notes


@given(text=st.text(st.characters(codec="utf-8"), min_size=1, max_size=60), data=st.data())
def test_every_mention_that_is_found_is_what_stands_in_the_text(text: str, data: st.DataObject) -> None:
    task = Ner(["A", "B"], labelling=data.draw(st.sampled_from(LABELLINGS)), nested=data.draw(st.booleans()))
    doc = Document("d", (Passage(3, text),))
    rows = task.encode(doc, tokenizer(cased=data.draw(st.booleans())), frame(9), with_targets=False)
    rng = np.random.default_rng(len(text))
    found = task.decode(doc, rows, [rng.normal(size=(len(row.ids), sum(task.groups))) for row in rows])
    for span in found.spans:
        assert doc.text[span.start : span.end] == span.text
        assert 0 < (span.score or 0) <= 1


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("labelling", LABELLINGS)
def test_mentions_of_a_long_document_come_back_from_many_windows(labelling: Labelling, nested: bool) -> None:
    sentence = "Mutated BRCA1 in breast cancer, and long-named XYZZYFACTORGENE."
    passages = lay_out([("title", sentence)] + [("abstract", " ".join([sentence] * 12))] * 3)
    mentions = [("BRCA1", "Gene"), ("breast cancer", "Disease"), ("XYZZYFACTORGENE", "Gene")] * 37
    doc = document("", *mentions, passages=passages)
    task = Ner(["Gene", "Disease"], labelling=labelling, nested=nested, overlap=10)
    assert len(task.encode(doc, tokenizer(), frame(40), with_targets=True)) > 50
    assert told(again(task, doc, size=40)) == told(doc)
    assert not task.notes


def test_a_word_longer_than_a_window_comes_back() -> None:
    doc = document("The " + "x" * 90 + " gene", ("x" * 90, "Gene"))
    for labelling in LABELLINGS:
        assert told(again(Ner(["Gene"], labelling=labelling), doc, size=20)) == told(doc)


def test_a_token_is_asked_once_however_many_windows_hold_it() -> None:
    doc = document("the gene " * 30)
    rows = Ner(["Gene"]).encode(doc, tokenizer(), frame(20), with_targets=True)
    assert sum(int((row.targets != IGNORE_INDEX).sum()) for row in rows if row.targets is not None) == 60


def test_mentions_of_different_types_may_overlap_where_each_has_its_own_tags() -> None:
    doc = document("breast cancer gene BRCA1", ("breast cancer", "Disease"), ("breast cancer gene", "Gene"),
                   ("breast", "Anatomy"), ("BRCA1", "Gene"))  # fmt: skip
    task = Ner(["Disease", "Gene", "Anatomy"], nested=True)
    assert task.labels[:4] == ("O-Disease", "B-Disease", "I-Disease", "O-Gene")
    assert task.groups == (3, 3, 3)
    assert told(again(task, doc)) == told(doc)


def test_in_one_group_the_longest_of_overlapping_mentions_is_kept_and_the_rest_counted() -> None:
    doc = document("breast cancer gene", ("breast cancer", "Disease"), ("breast cancer gene", "Gene"))
    task = Ner(["Disease", "Gene"])
    assert [span.text for span in again(task, doc).spans] == ["breast cancer gene"]
    assert task.notes == {"mention skipped: overlaps a longer one": 1}


@pytest.mark.parametrize(
    ("policy", "expected", "note"),
    [
        ("hull", ["breast and lung cancer"], "discontinuous mention taken as one"),
        ("longest", ["breast"], "discontinuous mention taken as its longest part"),
        ("skip", [], "mention skipped: discontinuous"),
    ],
)
def test_a_mention_in_parts_is_taken_as_the_setting_says(policy: str, expected: list[str], note: str) -> None:
    text = "with breast and lung cancer"
    doc = Document("d", lay_out((("abstract", text),)), (Span("T1", "Disease", ((5, 11), (21, 27)), "breast cancer"),))
    task = task_of({"kind": "ner", "types": ["Disease"], "discontinuous": policy})
    assert isinstance(task, Ner)
    assert [span.text for span in again(task, doc).spans] == expected
    assert task.notes == {note: 1}


def test_parts_in_two_passages_are_never_one() -> None:
    passages = lay_out((("title", "breast"), ("abstract", "and lung cancer")))
    doc = Document("d", passages, (Span("T1", "Disease", ((0, 6), (16, 22)), "breast cancer"),))
    assert [span.text for span in again(Ner(["Disease"]), doc).spans] == ["breast"]


def test_a_mention_that_ends_inside_a_word_is_widened_and_counted() -> None:
    doc = document("BRCA1 5-HT6", ("HT", "Gene"))
    by_words, by_pieces = Ner(["Gene"]), Ner(["Gene"], labelling="pieces")
    assert [span.text for span in again(by_words, doc).spans] == ["HT6"]
    assert by_words.notes == {"mention moved to word boundaries": 1}
    assert [span.text for span in again(by_pieces, doc).spans] == ["HT"]
    assert not by_pieces.notes


def test_words_are_the_sources_own_where_it_has_them() -> None:
    passage = Passage(0, "p53-dependent", tokens=((0, 13),))
    doc = document("", ("p53", "Gene"), passages=(passage,))
    assert [span.text for span in again(Ner(["Gene"]), doc).spans] == ["p53-dependent"]


def test_what_a_tokenizer_drops_belongs_to_the_word_it_touches() -> None:
    doc = document("cafe\u0301 \u200bBR\u200bCA", ("cafe\u0301", "A"), ("\u200bBR\u200bCA", "A"))
    for labelling in LABELLINGS:
        task = Ner(["A"], labelling=labelling)
        rows = task.encode(doc, tokenizer(cased=False), frame(), with_targets=True)
        assert told(task.decode(doc, rows, perfect(task, rows))) == told(doc)


class Bytes:
    """A tokenizer as byte-level ones are: a piece for each byte, and a space is part of what follows it."""

    def encode(self, text: str) -> list[tuple[int, int, int]]:
        pieces = []
        for at, character in enumerate(text):
            start = at - 1 if at and text[at - 1] == " " else at
            pieces += [(byte, start, at + 1) for byte in character.encode() if character != " "]
        return pieces


@pytest.mark.parametrize("labelling", LABELLINGS)
def test_pieces_of_one_character_are_labeled_together(labelling: Labelling) -> None:
    doc = document("In é中 a 中 gene", ("é中", "A"), ("中 gene", "A"))
    task = Ner(["A"], labelling=labelling)
    rows = task.encode(doc, Bytes(), frame(9), with_targets=True)
    assert told(task.decode(doc, rows, perfect(task, rows))) == told(doc)
    assert not task.notes


def test_a_source_that_does_not_annotate_a_type_does_not_teach_its_absence() -> None:
    doc = document("BRCA1 in cancer", ("cancer", "Disease"))
    task = Ner(["Gene", "Disease"], nested=True, annotated={"NCBI-disease": ["Disease"]})
    (row,) = task.for_source("NCBI-disease").encode(doc, tokenizer(), frame(), with_targets=True)
    assert row.targets is not None
    assert set(row.targets[:, 0].tolist()) == {IGNORE_INDEX}
    assert 1 in row.targets[:, 1]
    (full,) = task.for_source("BioRED").encode(doc, tokenizer(), frame(), with_targets=True)
    assert full.targets is not None
    assert 0 in full.targets[:, 0]


def test_types_that_a_source_does_not_annotate_are_not_scored() -> None:
    gold = document("BRCA1 in cancer", ("cancer", "Disease"))
    found = document("BRCA1 in cancer", ("cancer", "Disease"), ("BRCA1", "Gene"))
    task = Ner(["Gene", "Disease"], nested=True, annotated={"NCBI-disease": ["Disease"]})
    assert task.score([gold], [found])["precision"] == 0.5
    assert task.for_source("NCBI-disease").score([gold], [found])["precision"] == 1


def test_mentions_do_not_reach_over_passages() -> None:
    doc = Document("d", lay_out((("title", "breast"), ("abstract", "cancer"))))
    task = Ner(["Disease"])
    rows = task.encode(doc, tokenizer(), frame(), with_targets=False)
    inside = np.tile([0.0, 1.0, 5.0], (4, 1))
    assert [span.text for span in task.decode(doc, rows, [inside]).spans] == ["breast", "cancer"]


def test_sentences_are_read_apart_where_the_setting_says() -> None:
    text = "BRCA1 binds. The gene."
    passage = Passage(0, text, sentences=((0, 12), (13, 22)))
    doc = document("", ("BRCA1", "Gene"), ("gene", "Gene"), passages=(passage,))
    task = Ner(["Gene"], context="sentence")
    assert len(task.encode(doc, tokenizer(), frame(), with_targets=True)) == 2
    assert told(again(task, doc)) == told(doc)


def test_a_mention_over_two_sentences_is_left_out_and_counted() -> None:
    doc = document("", ("St. Anthony", "A"), passages=(Passage(0, "St. Anthony", sentences=((0, 3), (4, 11))),))
    task = Ner(["A"], context="sentence")
    assert again(task, doc).spans == ()
    assert task.notes == {"mention skipped: crosses a sentence boundary": 1}


def test_invalid_tags_are_read_as_conlleval_does_or_made_valid() -> None:
    doc = document("the gene")
    numbers = [np.array([[9.0, 0, 0], [2, 0, 0], [0, 1, 2], [9, 0, 0]])]
    for decoding, expected in (("repair", [0.665]), ("viterbi", [0.245])):
        task = task_of({"kind": "ner", "types": ["Gene"], "decoding": decoding})
        rows = task.encode(doc, tokenizer(), frame(), with_targets=False)
        found = task.decode(doc, rows, numbers)
        assert [span.text for span in found.spans] == ["gene"]
        assert [span.score for span in found.spans] == pytest.approx(expected, abs=0.01)


def test_transitions_of_a_crf_decide_and_travel_with_the_settings() -> None:
    doc = document("the gene")
    never_begin = Transitions(np.array([[[0, FORBIDDEN, 0], [0, 0, 0], [0, 0, 0]]]), np.array([[0, FORBIDDEN, 0]]),
                              np.zeros((1, 3)))  # fmt: skip
    task = task_of(Ner(["Gene"]).with_transitions(never_begin).settings())
    rows = task.encode(doc, tokenizer(), frame(), with_targets=False)
    assert task.decode(doc, rows, [np.array([[0.0, 9, 0]] * 4)]).spans == ()


def test_transitions_of_another_shape_are_refused() -> None:
    wrong = Transitions(np.zeros((1, 2, 2)), np.zeros((1, 2)), np.zeros((1, 2)))
    with raises(UsageError, code="shape-mismatch", value=((1, 2, 2), (1, 2), (1, 2))):
        Ner(["Gene"]).with_transitions(wrong)


def test_mentions_of_other_types_stay_and_what_leans_on_the_replaced_goes() -> None:
    doc = document("BRCA1 in cancer", ("BRCA1", "Gene"), ("cancer", "Disease"))
    related = Relation("R1", "causes", (Argument("a", "T1"), Argument("b", "T2")))
    doc = Document(doc.id, doc.passages, doc.spans, (related,), (Attribute("A1", "T2", "Negation"),
                   Attribute("A2", "R1", "Speculation")))  # fmt: skip
    task = Ner(["Gene"])
    rows = task.encode(doc, tokenizer(), frame(), with_targets=True)
    found = task.decode(doc, rows, perfect(task, rows))
    assert [(span.id, span.type) for span in found.spans] == [("T2", "Disease"), ("T1", "Gene")]
    assert found.relations == ()
    assert [attribute.id for attribute in found.attributes] == ["A1"]
    assert task.notes == {"mention of another type: Disease": 1}


def test_a_relation_of_concepts_goes_with_their_last_mention() -> None:
    doc = document("BRCA1 in cancer", ("BRCA1", "Gene"), ("cancer", "Disease"))
    spans = tuple(replace(span, concepts=(f"mesh:{span.id}",)) for span in doc.spans)
    sides = (Argument("a", concept="mesh:T1"), Argument("b", concept="mesh:T2"))
    doc = replace(doc, spans=spans, relations=(Relation("R1", "causes", sides),))
    for types, left in ((["Gene"], 0), (["Drug"], 1)):
        task = Ner(types)
        rows = task.encode(doc, tokenizer(), frame(), with_targets=True)
        assert len(task.decode(doc, rows, perfect(task, rows)).relations) == left


def test_a_document_without_text_has_no_rows_and_no_mentions() -> None:
    task = Ner(["Gene"])
    for doc in (Document("d"), Document("d", (Passage(0, "  \n"),))):
        assert task.encode(doc, tokenizer(), frame(), with_targets=True) == []
        assert task.decode(doc, [], []).spans == ()
    assert task.notes == {"document without text": 2}


def test_official_bc2gm_scoring_accepts_alternatives() -> None:
    gold = document("the BRCA1 gene", ("BRCA1", "GENE"), ("BRCA1 gene", "ALTGENE"))
    found = document("the BRCA1 gene", ("BRCA1 gene", "GENE"))
    assert Ner(["GENE"], measure="bc2gm").score([gold], [found])["f1"] == 1
    assert Ner(["GENE"]).score([gold], [found])["f1"] == 0


@pytest.mark.parametrize(
    ("settings", "code", "value"),
    [
        ({"types": []}, "invalid-names", []),
        ({"types": "Gene"}, "invalid-names", "Gene"),
        ({"types": ["A", "A"]}, "invalid-names", ["A", "A"]),
        ({"types": ["A"], "scheme": "iob1"}, "invalid-choice", "iob1"),
        ({"types": ["A"], "annotated": {"x": ["B"]}, "nested": True}, "invalid-choice", "B"),
        ({"types": ["A"], "annotated": {"x": ["A"]}}, "conflicting-settings", "annotated"),
        ({"types": ["A", "B"], "extra": ["C"]}, "invalid-choice", "C"),
        ({"types": ["A", "B"], "extra": "A"}, "invalid-names", "A"),
        ({"types": ["A", "B"], "extra": ["B", "A"]}, "conflicting-settings", "extra"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, object], code: str, value: object) -> None:
    with raises(UsageError, code=code, value=value):
        task_of({"kind": "ner", **settings})


def test_numbers_of_another_model_are_refused() -> None:
    doc = document("the gene")
    task = Ner(["Gene"])
    rows = task.encode(doc, tokenizer(), frame(), with_targets=False)
    with raises(UsageError, code="shape-mismatch", value=(4, 5)):
        task.decode(doc, rows, [np.zeros((4, 5))])


def test_extra_types_travel_with_the_settings_and_others_have_no_word_of_them() -> None:
    task = task_of(Ner(["A", "B"], extra=["B"]).settings())
    assert isinstance(task, Ner)
    assert (task.types, task.extra) == (("A", "B"), ("B",))
    assert "extra" not in Ner(["A", "B"]).settings()


@pytest.mark.parametrize("crf", [False, True])
@pytest.mark.parametrize("nested", [False, True])
@given(size=st.integers(5, 40), seed=st.integers(0, 1000), data=st.data())
def test_some_types_are_read_as_all_are(nested: bool, crf: bool, size: int, seed: int, data: st.DataObject) -> None:
    types = ("A", "B", "C", "D")
    task, rng = Ner(types, nested=nested), np.random.default_rng(seed)
    if crf:
        groups, tags = len(task.groups), task.groups[0]
        shapes = ((groups, tags, tags), (groups, tags), (groups, tags))
        task = task.with_transitions(Transitions(*(rng.normal(size=shape) for shape in shapes)))
    there = Span("T1", "A", ((4, 8),), "BRCA")
    doc = Document("d", (Passage(0, "the BRCA 1 gene of breast cancer and p53 in mice"),), (there,))
    rows = task.encode(doc, tokenizer(), frame(size), with_targets=False)
    numbers = [rng.normal(size=(len(row.ids), sum(task.groups))) for row in rows]
    asked = data.draw(st.sets(st.sampled_from(types)))
    everything = [span for span in task.decode(doc, rows, numbers).spans if span.type in asked]
    some = task.decode(doc, rows, numbers, types=asked)
    assert [(span.type, span.parts, span.score) for span in some.spans if span is not there] == [
        (span.type, span.parts, span.score) for span in everything
    ]
    assert (there in some.spans) == ("A" not in asked)


@st.composite
def annotated(draw: st.DrawFn) -> Document:
    """A document of one to three passages, with mentions of whole words; those of one type lie apart."""
    words = st.sampled_from(["gene", "BRCA1", "α", "p53", "é", "中", "supercalifragilistic", "(", "x-y", "Zürich"])
    texts = draw(st.lists(st.lists(words, min_size=1, max_size=25), min_size=1, max_size=3))
    passages = lay_out([("abstract", " ".join(text)) for text in texts], gap=draw(st.integers(1, 3)))
    spans = []
    for type_ in ("A", "B"):
        for passage, text in zip(passages, texts, strict=True):
            at = 0
            while at < len(text):
                first = at + draw(st.integers(0, 6))
                at = first + draw(st.integers(1, 4))
                if at <= len(text):
                    start = passage.offset + len(" ".join([*text[:first], ""]))
                    inner = " ".join(text[first:at])
                    spans.append(Span(f"T{len(spans)}", type_, ((start, start + len(inner)),), inner))
    return Document("d", passages, tuple(spans))


@given(doc=annotated(), size=st.integers(5, 40), overlap=st.integers(0, 20), data=st.data())
def test_any_document_comes_back_from_windows_of_any_size(
    doc: Document, size: int, overlap: int, data: st.DataObject
) -> None:
    settings = {
        "kind": "ner",
        "types": ["A", "B"],
        "nested": True,
        "overlap": overlap,
        "labelling": data.draw(st.sampled_from(LABELLINGS)),
        "scheme": data.draw(st.sampled_from(["iob2", "iobes"])),
        "context": data.draw(st.sampled_from(["document", "passage"])),
        "decoding": data.draw(st.sampled_from(["viterbi", "repair"])),
    }
    task = task_of(settings)
    assert isinstance(task, Ner)
    assert told(again(task, doc, size=size)) == told(doc)
    assert not task.notes
