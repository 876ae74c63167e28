"""Relations of whole documents: mention pairs of several schemas in one pass, and the way back."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from errors import raises
from task_rows import frame, tokenizer

from lexome.document import Argument, Document, Passage, Relation, Span
from lexome.errors import UsageError
from lexome.models.encoder import Packing
from lexome.tasks import DocumentRelations, document_relation, task_of
from lexome.tasks.document_relation import FIRST, LABEL, NOVEL, PAIR, SECOND
from lexome.tasks.task import IGNORE_INDEX
from lexome.training.finetune.task_model import LossSettings, TaskBatch, TaskLoss, to_batch

TEXT = "Aspirin blocks COX1 and COX2. Ibuprofen blocks COX1 with aspirin."
MENTIONS = {
    "name": "mentions",
    "labels": ["INHIBITOR", "ACTIVATOR"],
    "pairs": [["Chemical", "Gene"]],
    "level": "mention",
    "scope": "sentence",
}
CONCEPTS = {
    "name": "concepts",
    "labels": ["Association", "Bind"],
    "pairs": [["Gene", "Gene"], ["Gene", "Chemical"]],
    "novelty": True,
}
WIDTH = 2


def span(number: int, type_: str, start: int, end: int, *concepts: str) -> Span:
    return Span(f"T{number}", type_, ((start, end),), TEXT[start:end], concepts)


def document(*relations: Relation) -> Document:
    spans = (
        span(1, "Chemical", 0, 7, "mesh:D001241"),
        span(2, "Gene", 15, 19, "NCBIGene:1"),
        span(3, "Gene", 24, 28, "NCBIGene:2"),
        span(4, "Chemical", 30, 39),
        span(5, "Gene", 47, 51, "NCBIGene:1"),
        span(6, "Chemical", 57, 64, "mesh:D001241"),
    )
    return Document("d", (Passage(0, TEXT, sentences=((0, 29), (30, len(TEXT)))),), spans, relations)


def task(**changes: object) -> DocumentRelations:
    return DocumentRelations([MENTIONS, CONCEPTS], width=WIDTH, **changes)  # type: ignore[arg-type]


INHIBITS = Relation("R1", "INHIBITOR", (Argument("Chemical", "T1"), Argument("Gene", "T2")))
BINDS = Relation("R2", "Bind", (Argument("a", concept="NCBIGene:2"), Argument("b", concept="mesh:D001241")), novel=True)


def test_one_window_has_the_mention_pairs_of_every_schema() -> None:
    (example,) = task().encode(document(INHIBITS, BINDS), tokenizer(), frame(128), with_targets=True)
    assert example.targets is not None
    # In sentences of two pairs each, by mention; by concept three chemicals with three genes, and two genes twice.
    assert Counter(example.targets[:, document_relation.SCHEMA].tolist()) == {0: 4, 1: 9 + 2}
    assert len(set(example.targets[:, PAIR].tolist())) == 4 + 4 + 1
    labels = Counter(example.targets[:, LABEL].tolist())
    # The concepts of "Bind" have two mentions of one and one of the other.
    assert labels == {0: 12, 1: 1, 4: 2}
    assert set(example.targets[example.targets[:, LABEL] == 4, NOVEL].tolist()) == {1}


def test_a_text_of_nothing_but_mentions_is_oversize() -> None:
    text = "TP53 " * 11
    genes = tuple(Span(f"T{n}", "Gene", ((5 * n, 5 * n + 4),), "TP53") for n in range(11))
    doc = Document("d", (Passage(0, text),), genes)
    assert task().oversize(doc, 3) is None
    assert "11 mentions" in (task().oversize(doc, 2) or "")
    # Mentions that nothing is related to do not count.
    others = replace(doc, spans=tuple(replace(gene, type="Species") for gene in genes))
    assert task().oversize(others, 2) is None


def test_a_token_before_each_mention_names_its_type() -> None:
    (example,) = task().encode(document(INHIBITS), tokenizer(), frame(128), with_targets=True)
    marked = np.flatnonzero((example.starts == example.ends) & (example.starts >= 0))
    assert example.starts[marked].tolist() == [span.start for span in document().spans]
    assert example.targets is not None
    row = example.targets[example.targets[:, LABEL] == 1][0]
    assert example.starts[row[[FIRST, SECOND]]].tolist() == [0, 15]


def test_without_marks_the_first_token_stands_for_a_mention() -> None:
    (example,) = task(marking="none").encode(document(INHIBITS), tokenizer(), frame(128), with_targets=True)
    assert example.targets is not None
    row = example.targets[example.targets[:, LABEL] == 1][0]
    assert example.starts[row[[FIRST, SECOND]]].tolist() == [0, 15]
    assert (example.ends[row[[FIRST, SECOND]]] > [0, 15]).all()


def test_a_source_teaches_nothing_about_schemas_that_it_does_not_annotate() -> None:
    some = task(annotated={"DrugProt": ["mentions"]}).for_source("DrugProt")
    (example,) = some.encode(document(INHIBITS, BINDS), tokenizer(), frame(128), with_targets=True)
    assert example.targets is not None
    assert set(example.targets[:, document_relation.SCHEMA].tolist()) == {0}
    assert some.source_types("DrugProt") == ("Chemical", "Gene")
    assert "concepts f1" not in some.score([document(BINDS)], [document()])


def decoded(own: DocumentRelations, doc: Document, *wanted: Relation, size: int = 128) -> Document:
    """The document as decoded from logits that say what is wanted: +4 for its pairs, -4 for all others."""
    gold = Document(doc.id, doc.passages, doc.spans, wanted)
    examples = own.encode(gold, tokenizer(), frame(size), with_targets=True)
    logits = []
    for example in examples:
        assert example.targets is not None
        array = np.zeros((len(example.ids), len(own.relations) + len(own.novelties), 2 * WIDTH + 2))
        array[:, :, -2] = -4.0
        for row in example.targets[example.targets[:, LABEL] > 0]:
            # A product of 8 outweighs the -4 of the first side; the factor undoes the division by the root of width.
            array[row[FIRST], row[LABEL] - 1, 0] = array[row[SECOND], row[LABEL] - 1, WIDTH] = np.sqrt(8 * np.sqrt(2))
            if row[NOVEL] == 1:
                array[row[FIRST], -1, -2] = 9.0
        logits.append(array.reshape(len(example.ids), -1))
    return own.decode(doc, examples, logits)


def test_decoding_gives_relations_of_both_levels_back() -> None:
    found = decoded(task(), document(), INHIBITS, BINDS)
    told = {
        (one.type, one.novel, frozenset(argument.target or argument.concept for argument in one.arguments))
        for one in found.relations
    }
    assert told == {
        ("INHIBITOR", None, frozenset({"T1", "T2"})),
        ("Bind", True, frozenset({"NCBIGene:2", "mesh:D001241"})),
    }
    assert all(0.9 < (one.score or 0) < 1 for one in found.relations)
    scores = task().score([document(INHIBITS, BINDS)], [found])
    assert (scores["f1"], scores["concepts novelty f1"]) == (1.0, 1.0)


def test_what_refers_to_a_replaced_relation_goes_with_it() -> None:
    """Its id may be that of a prediction, which it says nothing about."""
    because = Relation("R7", "because", (Argument("of", "R1"),))
    therefore = Relation("R8", "therefore", (Argument("of", "R7"), Argument("to", "T2")))
    beside = Relation("R9", "beside", (Argument("a", "T1"), Argument("b", "T2")))
    found = decoded(task(), document(INHIBITS, because, therefore, beside), INHIBITS)
    assert [one.type for one in found.relations] == ["beside", "INHIBITOR"]


def test_mentions_without_concepts_are_one_entity_by_their_text() -> None:
    other = Relation("R1", "Association", (Argument("Gene", concept="NCBIGene:1"), Argument("Chemical", "T4")))
    found = decoded(task(), document(), other)
    assert [[side.target or side.concept for side in one.arguments] for one in found.relations] == [
        ["NCBIGene:1", "T4"]
    ]


def test_pairs_in_several_windows_count_once() -> None:
    examples = task(overlap=20).encode(document(INHIBITS, BINDS), tokenizer(), frame(40), with_targets=True)
    assert len(examples) > 1
    places = [
        (int(example.starts[row[FIRST]]), int(example.starts[row[SECOND]]), int(row[document_relation.SCHEMA]))
        for example in examples
        if example.targets is not None
        for row in example.targets
    ]
    assert len(places) == len(set(places))


def test_each_of_several_mentions_that_begin_together_has_its_own_mark() -> None:
    text = "aspirin " * 30
    places = [(8 * word, 8 * word + 7) for word in range(30)]
    spans = [Span(f"C{n}", "Chemical", ((a, b),), text[a:b]) for n, (a, b) in enumerate(places)]
    spans += [Span(f"G{n}", "Gene", ((a, b),), text[a:b]) for n, (a, b) in enumerate(places)]
    doc = Document("d", (Passage(0, text.strip(), sentences=((0, len(text.strip())),)),), tuple(spans))
    ordered = sorted(spans, key=lambda span: (span.start, span.id))
    ids = {type_: tokenizer().encode(type_.lower())[0][0] for type_ in ("Chemical", "Gene")}
    for size in range(12, 40):
        for example in task(overlap=4).encode(doc, tokenizer(), frame(size), with_targets=False):
            for span, place in zip(ordered, task()._places(ordered, example), strict=True):
                assert place < 0 or example.ids[place] == ids[span.type]


def test_many_mentions_in_one_window_are_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_relation, "MAX_PAIRS", 5)
    own = task()
    (example,) = own.encode(document(), tokenizer(), frame(128), with_targets=True)
    assert example.targets is not None
    starts = example.starts[example.targets[:, [FIRST, SECOND]]]
    assert len({frozenset(row) for row in starts.tolist()}) == 5
    assert sum(own.notes.values()) > 0


def test_the_loss_pools_and_decides_as_decoding_does() -> None:
    torch.manual_seed(0)
    own = task()
    docs = [document(INHIBITS, BINDS), document(BINDS)]
    examples = [own.encode(doc, tokenizer(), frame(128), with_targets=True)[0] for doc in docs]
    batch = to_batch(examples, own, segments=False)
    logits_TC = torch.randn(len(batch.ids_T), len(own.labels))
    total = float(TaskLoss(own, LossSettings())(logits_TC, batch))
    expected = 0.0
    parts = np.split(logits_TC.double().numpy(), [len(examples[0].ids)])
    for example, array in zip(examples, parts, strict=True):
        assert example.targets is not None
        scores = document_relation.score_pairs(
            array, example.targets[:, FIRST], example.targets[:, SECOND], width=WIDTH
        )
        for pair in set(example.targets[:, PAIR].tolist()):
            rows = example.targets[:, PAIR] == pair
            pooled = np.logaddexp.reduce(scores[rows], axis=0)
            _, _, _, schema, label, novel = example.targets[rows][0]
            names = np.flatnonzero(own.pair_outputs.schema_of_relation == schema)
            choices = np.concatenate(([0.0], pooled[names]))
            right = 0 if label == 0 else 1 + names.tolist().index(label - 1)
            expected -= choices[right] - np.logaddexp.reduce(choices)
            if novel != IGNORE_INDEX:
                expected += np.logaddexp(0, -pooled[len(own.relations)] if novel else pooled[len(own.relations)])
    assert total == pytest.approx(expected, rel=1e-5)


def test_a_batch_without_pairs_has_a_loss_of_zero_with_gradients() -> None:
    own = task()
    logits_TC = torch.randn(4, len(own.labels), requires_grad=True)
    packing = Packing.of([4], longest=4, sequences=1)
    batch = TaskBatch(torch.zeros(4, dtype=torch.int64), None, packing, torch.zeros((0, 6), dtype=torch.int64), 1, 4)
    loss = TaskLoss(own, LossSettings())(logits_TC, batch)
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert logits_TC.grad is not None


def test_settings_make_the_task_again() -> None:
    own = task(annotated={"a": ["mentions"]})
    again = task_of(own.settings())
    assert isinstance(again, DocumentRelations)
    assert (again.settings(), again.labels) == (own.settings(), own.labels)
    assert own.document_labels == ("INHIBITOR", "ACTIVATOR", "Association", "Bind")


def test_a_schema_is_inferred_from_documents() -> None:
    settings = DocumentRelations.infer_settings([document(BINDS)])
    assert settings["schemas"] == [
        {"name": "relations", "labels": ["Bind"], "pairs": [["Chemical", "Gene"]], "level": "concept"}
    ]


def test_a_key_of_schemas_outside_of_them_is_pointed_to_them() -> None:
    settings = {"kind": "document-relation", "schemas": [MENTIONS], "passes": "subject"}
    with raises(UsageError, code="unknown-key", value="passes", mentions="[[task.schemas]]"):
        task_of(settings)


@pytest.mark.parametrize(
    ("schema", "code", "value"),
    [
        ({"name": "x", "labels": ["a"]}, "missing-key", "pairs"),
        ({**MENTIONS, "color": "red"}, "unknown-key", "color"),
        ({**MENTIONS, "level": "word"}, "invalid-choice", "word"),
    ],
)
def test_a_wrong_schema_is_refused(schema: dict[str, object], code: str, value: str) -> None:
    with raises(UsageError, code=code, value=value):
        DocumentRelations([schema])


def test_mentions_of_very_many_concepts_are_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_relation, "MAX_ENTITY_PAIRS", 1000)
    every = document()
    concepts = tuple(f"NCBIGene:{number}" for number in range(100))
    many = replace(every, spans=tuple(replace(one, concepts=concepts) for one in every.spans))
    own = task()
    (example,) = own.encode(many, tokenizer(), frame(128), with_targets=True)
    assert example.targets is not None
    assert len(example.targets) <= 1000
    (skipped,) = (count for note, count in own.notes.items() if "many concepts" in note)
    assert skipped >= 10_000


def test_two_schemas_may_contradict_each_other_and_one_may_not() -> None:
    blocks = {**MENTIONS, "name": "one", "labels": ["INHIBITOR", "ACTIVATOR"]}
    raises = {**MENTIONS, "name": "other", "labels": ["Positive_Correlation"]}
    own = DocumentRelations([blocks, raises], width=WIDTH)
    sides = INHIBITS.arguments
    found = decoded(own, document(), INHIBITS, Relation("R2", "Positive_Correlation", sides))
    assert [one.type for one in found.relations if one.arguments == sides] == ["INHIBITOR", "Positive_Correlation"]
    (example,) = own.encode(document(INHIBITS), tokenizer(), frame(128), with_targets=True)
    both = np.zeros((len(example.ids), len(own.labels)))
    scores = own.explain(document(), [example], [both])
    assert all(sum(one.probabilities.values()) == pytest.approx(1.0) for one in scores)


def test_windows_in_which_nothing_can_be_related_are_not_run() -> None:
    text = f"Aspirin blocks COX1. {'Nothing is said of it here. ' * 30}Ibuprofen and aspirin are drugs."
    places = [(text.index("Aspirin"), "Chemical", 7), (text.index("COX1"), "Gene", 4)]
    places += [(text.index("Ibuprofen"), "Chemical", 9), (text.index("aspirin"), "Chemical", 7)]
    spans = tuple(
        Span(f"T{number}", type_, ((start, start + length),), text[start : start + length])
        for number, (start, type_, length) in enumerate(places, 1)
    )
    own = task(overlap=4)
    doc = Document("d", (Passage(0, text),), spans)
    every = own.encode(doc, tokenizer(), frame(32), with_targets=True)
    (first,) = own.encode(doc, tokenizer(), frame(32), with_targets=False)
    assert len(every) > 4
    assert first.ids.tolist() == every[0].ids.tolist()
    assert own.encode(replace(doc, spans=spans[2:]), tokenizer(), frame(32), with_targets=False) == []


PER_SUBJECT = {**MENTIONS, "passes": "subject"}


def test_a_pass_per_subject_reads_the_sentence_of_each_marked() -> None:
    own = DocumentRelations([PER_SUBJECT], width=WIDTH)
    examples = own.encode(document(INHIBITS), tokenizer(), frame(128), with_targets=True)
    assert [example.key for example in examples] == [("T1",), ("T4",), ("T6",)]
    side = tokenizer().encode("@")[0][0]
    subjects, sentences = ((0, 7), (30, 39), (57, 64)), ((0, 29), (30, 65), (30, 65))
    for example, subject, sentence in zip(examples, subjects, sentences, strict=True):
        visible = example.starts >= 0
        assert (example.starts[visible].min(), example.ends[visible].max()) == sentence
        before, after = np.flatnonzero(example.ids == side)
        assert (example.starts[before + 1], example.ends[after - 1]) == subject
        assert example.targets is not None
        assert set(example.targets[:, FIRST].tolist()) == {before + 1}
    labels = [example.targets[:, LABEL].tolist() for example in examples if example.targets is not None]
    assert labels == [[1, 0], [0], [0]]


def test_both_kinds_of_passes_decode_to_the_same_relations() -> None:
    shared, apart = task(), DocumentRelations([PER_SUBJECT, CONCEPTS], width=WIDTH)
    told = [
        {(one.type, one.arguments, one.novel, one.score) for one in decoded(own, document(), INHIBITS, BINDS).relations}
        for own in (shared, apart)
    ]
    assert len(told[0]) == 2
    assert told[0] == told[1]
    assert len(apart.encode(document(), tokenizer(), frame(128), with_targets=False)) == 1 + 3


def test_a_sentence_longer_than_the_input_is_cut_around_its_subject() -> None:
    text = f"Aspirin {'is not what the text is of here, ' * 20}but ibuprofen blocks COX1"
    places = [(0, "Chemical", 7), (text.index("ibuprofen"), "Chemical", 9), (text.index("COX1"), "Gene", 4)]
    spans = tuple(
        Span(f"T{number}", type_, ((start, start + length),), text[start : start + length])
        for number, (start, type_, length) in enumerate(places, 1)
    )
    doc = Document(
        "d", (Passage(0, text),), spans, (Relation("R1", "INHIBITOR", (Argument("a", "T1"), Argument("b", "T3"))),)
    )
    own = DocumentRelations([PER_SUBJECT], width=WIDTH)
    far, near = own.encode(doc, tokenizer(), frame(48), with_targets=True)
    assert len(far.ids) == len(near.ids) == 48
    rows = [len(example.targets) for example in (far, near) if example.targets is not None]
    assert rows == [0, 1]
    assert sum(own.notes.values()) == 1


def test_subjects_of_one_sentence_are_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_relation, "MAX_SUBJECTS", 1)
    own = DocumentRelations([PER_SUBJECT], width=WIDTH)
    examples = own.encode(document(), tokenizer(), frame(128), with_targets=False)
    assert [example.key for example in examples] == [("T1",), ("T4",)]
    assert sum(own.notes.values()) == 1


@pytest.mark.parametrize("change", [{"level": "concept"}, {"scope": "document"}])
def test_passes_per_subject_are_for_mentions_of_a_sentence(change: dict[str, str]) -> None:
    with raises(UsageError, code="conflicting-settings", value="mentions"):
        DocumentRelations([{**PER_SUBJECT, **change}])
