"""What is learned from: types under other names, and articles that are held out because another set tests on them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from errors import raises, rejects
from finetuning import context_of, recipe_of, write_splits

from lexome.document import Argument, Document, Question, Relation, Span, lay_out
from lexome.errors import DataSetError, UsageError
from lexome.formats import read
from lexome.models.checkpoint import load
from lexome.recipe.finetune import DataTable, FinetuneRecipe
from lexome.tasks import Relations
from lexome.training.finetune.examples import (
    BY_ID,
    BY_TEXT,
    DataSettings,
    HeldOut,
    TaskData,
    rename_types,
    require_types,
)

TESTED = "Mice without the gene p53 grew tumours in the liver within six months"
OTHER = "Nothing of this sentence is said anywhere else in all of the sets"
SHORT = "The gene p53 again"
TASK = {
    "kind": "ner",
    "types": ["Gene", "Protein"],
    "nested": True,
    "annotated": {"BC2GM": ["Gene"], "JNLPBA": ["Protein"]},
}


def columns(*sentences: str) -> str:
    """Sentences in BioBERT's columns, in which p53 is a mention."""
    return "\n".join(
        "".join(f"{word}\t{'B' if word == 'p53' else 'O'}\n" for word in text.split()) for text in sentences
    )


def abstract(pmid: str, text: str) -> str:
    """An abstract of BC5CDR's files, whose last word is a mention."""
    full = f"A title\t{text}".replace("\t", " ")
    start = full.rindex(" ") + 1
    return f"{pmid}|t|A title\n{pmid}|a|{text}\n{pmid}\t{start}\t{len(full)}\t{full[start:]}\tDisease\tD1\n\n"


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sets in columns, and one of abstracts that shares a sentence with them."""
    made = tmp_path_factory.mktemp("sets")
    for name, splits in {
        "BC2GM": {"train": [f"{TESTED} .", OTHER, SHORT, "Here p53 is"], "devel": ["A gene p53"], "test": ["The p53"]},
        "JNLPBA": {"train": [OTHER, "Protein p53 binds"], "devel": ["A protein p53"], "test": ["That p53"]},
    }.items():
        (made / name).mkdir()
        for split, sentences in splits.items():
            (made / name / f"{split}.tsv").write_text(columns(*sentences))
    (made / "BC5CDR-pubtator").mkdir()
    for split, pmid, text in (
        ("Training", "100001", "Some text on fever"),
        ("Development", "100002", "Other text on fever"),
        ("Test", "100003", f"It is so. {TESTED}. {SHORT}."),
    ):
        (made / "BC5CDR-pubtator" / f"CDR_{split}Set.PubTator.txt").write_text(abstract(pmid, text))
    return made


def task_data(start: Path, root: Path, **data: Any) -> TaskData:
    """The data of a recipe that trains on two datasets."""
    given = {"sets": ["BC2GM", "JNLPBA"], "root": root, "rename": {"JNLPBA": {"Entity": "Protein"}}, **data}
    settings = DataSettings(**DataTable.model_validate(given).model_dump())
    return TaskData.open(load(start, kind="encoder"), start, settings, TASK)


def types_in(docs: list[Document], sources: list[str]) -> set[tuple[str, str]]:
    return {(source, span.type) for doc, source in zip(docs, sources, strict=True) for span in doc.spans}


def test_a_type_is_learned_and_scored_under_its_other_name(start: Path, root: Path) -> None:
    parts = task_data(start, root).splits(None)
    assert parts.dev is not None
    for split in (parts.train, parts.dev):
        assert types_in(split.docs, split.sources) == {("BC2GM", "Gene"), ("JNLPBA", "Protein")}
    assert not [note for note in parts.notes if "another type" in note]


@pytest.mark.parametrize(
    ("rename", "code", "value"),
    [
        ({"JNLPBA": {"Entitty": "Protein"}}, "unknown-type", "Entitty"),
        ({"JNLBPA": {"Entity": "Protein"}}, "unknown-source", "JNLBPA"),
        ({"JNLPBA": {"Entity": "Protien"}}, "unknown-type", "Protien"),
        ({"JNLPBA": {"Entity": ["Protein", "DNA"]}}, "unknown-type", "DNA"),
        ({"JNLPBA": {"Entity": "Gene"}}, "unknown-type", "Gene"),
        ({"JNLPBA": {"Entity": ["Protein", "Gene"]}}, "unknown-type", "Gene"),
    ],
)
def test_unknown_names_are_rejected(rename: dict[str, Any], code: str, value: str, start: Path, root: Path) -> None:
    with raises(UsageError, code=code, value=value):
        task_data(start, root, rename=rename).splits(None)


def test_a_name_must_be_one_of_the_types_that_are_related() -> None:
    task = Relations(["blocks", "none"], none="none", pairs=[("Drug", "Gene")])
    require_types({"made": {"Protein": "Gene"}}, task)
    with raises(UsageError, code="unknown-type", value="Gen"):
        require_types({"made": {"Protein": "Gen"}}, task)


def test_a_sentence_that_another_set_tests_on_is_not_learned(start: Path, root: Path) -> None:
    every, kept = (task_data(start, root, exclude=names).splits(None) for names in ([], ["BC5CDR:test"]))
    lost = {doc.text for doc in every.train.docs} - {doc.text for doc in kept.train.docs}
    assert lost == {f"{TESTED} ."}
    assert kept.notes == {f"document of BC2GM left out of training: {BY_TEXT}": 1}
    assert kept.dev is not None
    assert every.dev is not None
    assert kept.dev.docs == every.dev.docs


def test_an_article_is_held_out_by_its_id_or_by_any_sentence(root: Path) -> None:
    held = HeldOut.of(["BC5CDR:test"], root=root, ngram_words=6)
    (tested,) = read(root / "BC5CDR-pubtator" / "CDR_TestSet.PubTator.txt", "pubtator")
    (other,) = read(root / "BC5CDR-pubtator" / "CDR_TrainingSet.PubTator.txt", "pubtator")
    assert held.reason(tested) == BY_ID
    assert held.reason(other) is None
    assert held.reason(Document("x", tested.passages)) == BY_TEXT
    assert held.reason(Document("100003", other.passages)) == BY_ID


def test_the_middle_of_a_sentence_and_phrases_are_not_held_out() -> None:
    held = HeldOut(6)
    held.add([_document("a", f"{TESTED}. {OTHER}."), _document("b", f"{OTHER}.")])
    assert held.reason(_document("x", f"We saw: {TESTED.upper()} - at last")) == BY_TEXT
    assert held.reason(_document("x", TESTED.rpartition(" ")[0])) is None
    assert held.reason(_document("x", OTHER)) is None


def test_a_text_that_is_there_again_is_held_out() -> None:
    twice, asked = HeldOut(6), HeldOut(6)
    twice.add([_document("a", f"{TESTED}."), _document("b", f"{TESTED}."), _document("c", f"{OTHER}. So. {OTHER}.")])
    assert [twice.reason(_document("x", text)) for text in (TESTED, OTHER)] == [BY_TEXT, BY_TEXT]
    question = (Question("q", "What grew?", "factoid"),)
    part, whole = _document("a", f"{TESTED}."), _document("b", f"{TESTED}. {OTHER}.")
    asked.add([replace(doc, questions=question) for doc in (part, whole)])
    assert asked.reason(_document("x", TESTED)) == BY_TEXT


def test_a_split_to_hold_out_must_be_there(root: Path) -> None:
    with raises(DataSetError, code="missing-split", value="tset"):
        HeldOut.of(["BC5CDR:tset"], root=root, ngram_words=6)
    with rejects("data.exclude.0"):
        FinetuneRecipe.model_validate({"data": {"sets": ["BC2GM"], "exclude": ["BC5CDR"]}})


def _document(id_: str, text: str) -> Document:
    return Document(id_, lay_out([("abstract", text)]))


def test_a_mention_may_have_several_names() -> None:
    doc = Document("1", lay_out([("title", "The gene p53")]), (Span("T1", "Gene", ((9, 12),), "p53"),))
    twice = rename_types(doc, {"Gene": ("Gene", "BC2GM_Gene")})
    assert [(span.id, span.type) for span in twice.spans] == [("T1", "Gene"), ("T1.BC2GM_Gene", "BC2GM_Gene")]
    assert rename_types(doc, {"Drug": "Chemical"}) == doc


@pytest.mark.parametrize("names", [[], ["Gene", "Gene"], ["Gene", ""], ""])
def test_names_that_are_none_or_there_twice_are_refused(names: list[str] | str) -> None:
    with rejects("rename.BC2GM.Gene"):
        DataTable(sets=("BC2GM",), rename={"BC2GM": {"Gene": names}})


def test_abstracts_without_sentences_are_split_where_pairs_are_those_of_a_sentence(start: Path, tmp_path: Path) -> None:
    text = "aspirin blocks BRCA1 . Heparin blocks TP53 ."
    words = (("aspirin", "Drug"), ("BRCA1", "Gene"), ("Heparin", "Drug"), ("TP53", "Gene"))
    spans = [
        Span(f"T{number}", type_, ((at := text.index(word), at + len(word)),), word)
        for number, (word, type_) in enumerate(words)
    ]
    sides = (Argument("Arg1", "T0"), Argument("Arg2", "T1"))
    doc = Document("d", lay_out([("abstract", text)]), tuple(spans), (Relation("R1", "blocks", sides),))
    schema = {"name": "a", "labels": ["blocks"], "pairs": [["Drug", "Gene"]], "level": "mention", "scope": "sentence"}
    data = write_splits(tmp_path / "data", train=[doc], dev=[doc])
    recipe = recipe_of(start, data, tmp_path / "out", {"kind": "document-relation", "schemas": [schema]})
    with context_of(recipe) as context:
        (example,) = context.data.splits(None).train.examples
    assert example.targets is not None
    # Not the four pairs of the abstract.
    assert len(example.targets) == 2
