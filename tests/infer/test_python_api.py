"""What a data scientist calls from Python: lists of texts, dictionaries, DataFrames, notebooks, spaCy, processes."""

import json
import multiprocessing
import pickle
import re
import tomllib
from html import unescape
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path

import pandas
import pytest
import spacy
from errors import raises
from full_document import full_document

import lexome
import lexome.search
from lexome.document import Document, Passage, Span
from lexome.errors import LexomeError, UsageError
from lexome.formats.jsonl import from_json, to_json
from lexome.formats.mention_table import COLUMNS
from lexome.infer.annotator import Annotator

TEXTS = ["Mutations in BRCA1 raise the risk of breast cancer.", "Aspirin was given to mice."]


@pytest.fixture(scope="module")
def annotator(one_thread: None) -> Annotator:
    return lexome.load(threads=1)


def mentions(doc: Document) -> list[tuple[str, str]]:
    return [(span.text, span.type) for span in doc.spans]


def test_documents_are_written_one_or_several_and_nothing_else(tmp_path: Path) -> None:
    doc = Document("a", (Passage(0, "BRCA1"),))
    lexome.write(tmp_path / "one.jsonl", doc)
    lexome.write(tmp_path / "two.jsonl", iter([doc]))
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()
    for wrong in ("BRCA1", ["BRCA1"], None, [doc, 5]):
        with raises(UsageError, code="not-a-document"):
            lexome.write(tmp_path / "wrong.jsonl", wrong)  # type: ignore[arg-type]
    assert not (tmp_path / "wrong.jsonl").exists()


def test_an_empty_path_is_refused(tmp_path: Path) -> None:
    for wrong in (
        lambda: lexome.read(""),
        lambda: lexome.write("", []),
        lambda: lexome.search.index("", tmp_path / "i"),
    ):
        with raises(UsageError, code="empty-path"):
            wrong()
    with raises(UsageError, code="no-inputs"):
        lexome.search.index([], tmp_path / "i")


def test_a_list_of_texts_gives_a_list_of_documents(annotator: Annotator) -> None:
    docs = annotator(TEXTS)
    assert [doc.id for doc in docs] == ["text-1", "text-2"]
    assert [mentions(doc) for doc in docs] == [mentions(annotator(text)) for text in TEXTS]


def test_annotate_takes_texts_and_documents_as_they_come(annotator: Annotator) -> None:
    docs = annotator.annotate(iter([TEXTS[0], Document("d7", (Passage(0, TEXTS[1]),))]))
    assert [doc.id for doc in docs] == ["text-1", "d7"]


def test_an_item_that_is_neither_is_named(annotator: Annotator) -> None:
    with raises(UsageError, code="not-a-document", value=7):
        annotator([TEXTS[0], 7])  # type: ignore[list-item]


def test_a_dictionary_is_what_json_lines_have() -> None:
    doc = full_document()
    assert doc.to_dict() == json.loads(to_json(doc, all_keys=True))


def test_every_document_has_the_same_keys(tmp_path: Path) -> None:
    docs = [full_document(), Document("empty")]
    lexome.write(tmp_path / "docs.jsonl", docs)
    lines = [json.loads(line) for line in (tmp_path / "docs.jsonl").read_bytes().splitlines()]
    assert [list(line) for line in lines] == [list(docs[0].to_dict())] * 2
    assert [list(line["meta"]) for line in lines] == [list(docs[0].to_dict()["meta"])] * 2
    assert list(lexome.read(tmp_path / "docs.jsonl")) == docs


@pytest.mark.parametrize("all_keys", [False, True])
def test_json_with_and_without_empty_fields_restores_the_document(all_keys: bool) -> None:
    assert from_json(to_json(full_document(), all_keys=all_keys)) == full_document()


def test_a_dataframe_has_a_row_for_each_mention() -> None:
    doc = full_document()
    table = lexome.to_dataframe([doc, Document("empty")])
    assert tuple(table.columns) == COLUMNS
    assert table["text"].tolist() == [span.text for span in doc.spans]
    assert table["start"].tolist() == [span.start for span in doc.spans]
    assert table["document"].unique().tolist() == [doc.id]


def test_a_dataframe_has_the_names_of_the_default_dictionaries_unless_others_are_given() -> None:
    concepts = (("NCBITaxon:10090",), ("mine:1",), ())
    spans = tuple(Span(f"T{n}", "X", ((2 * n, 2 * n + 1),), "abc"[n], own) for n, own in enumerate(concepts))
    doc = Document("d", (Passage(0, "a b c"),), spans)
    assert lexome.to_dataframe(doc)["name"].fillna("").tolist() == ["Mus musculus", "", ""]
    own = lexome.to_dataframe(doc, preferred_name={"mine:1": "Mine"}.get)
    assert own["name"].fillna("").tolist() == ["", "Mine", ""]


def test_an_empty_dataframe_has_columns_of_the_same_types() -> None:
    full, empty = lexome.to_dataframe(full_document()), lexome.to_dataframe([])
    assert isinstance(empty, pandas.DataFrame)
    for column in ("start", "end", "score"):
        assert empty.dtypes[column] == full.dtypes[column]


@pytest.mark.parametrize(("library", "code"), [("polars", "missing-package"), ("numpy", "unknown-library")])
def test_a_library_that_is_not_there_is_named(library: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lexome.formats.mention_table.find_spec", lambda name: None)
    with raises(LexomeError, code=code, value=library):
        lexome.to_dataframe([], library=library)


def test_a_notebook_shows_the_page_escaped_and_without_scripts() -> None:
    doc = Document('<script>alert("id")</script>', (Passage(0, '"><script>alert(1)</script>'),))
    shown = doc._repr_html_()
    frame = re.fullmatch(r'<iframe title="[^"<>]*" sandbox="[^"]*" style="[^"]*" srcdoc="([^"<>]*)"></iframe>', shown)
    assert frame is not None
    page = unescape(frame[1])
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", page)


def test_a_frame_of_a_notebook_may_not_run_scripts() -> None:
    sandbox = re.search('sandbox="([^"]*)"', full_document()._repr_html_())
    assert sandbox is not None
    assert "allow-scripts" not in sandbox[1]
    assert "allow-same-origin" not in sandbox[1]


def test_a_pickled_annotator_annotates(annotator: Annotator) -> None:
    assert pickle.loads(pickle.dumps(annotator))(TEXTS[0]) == annotator(TEXTS[0])


def test_annotators_are_sent_to_spawned_processes(annotator: Annotator) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(annotator, TEXTS) == [annotator(text) for text in TEXTS]


@pytest.mark.parametrize("call", ["__call__", "annotate"])
def test_a_table_is_refused_with_its_columns(annotator: Annotator, call: str) -> None:
    table = pandas.DataFrame({"pmid": [1, 2], "abstract": TEXTS[:2]})
    with raises(UsageError, code="not-documents", mentions="'abstract'"):
        getattr(annotator, call)(table)
    assert annotator(table["abstract"]) == annotator(TEXTS[:2])


# spaCy


@pytest.fixture(scope="module")
def component() -> None:
    """The factory, as the entry point of an installed Lexome has it found."""
    table = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["entry-points"]
    assert EntryPoint("lexome", table["spacy_factories"]["lexome"], "spacy_factories").load()


def test_spacy_pipelines_have_mentions_as_entities(component: None, annotator: Annotator) -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("lexome", config={"threads": 1})
    docs = list(nlp.pipe(TEXTS))
    for text, spacy_doc in zip(TEXTS, docs, strict=True):
        expected = mentions(annotator(text))
        assert [(entity.text, entity.label_) for entity in spacy_doc.ents] == expected
        assert [(span.text, span.label_) for span in spacy_doc.spans["lexome"]] == expected
        assert spacy_doc.spans["lexome"].attrs["scores"] == [span.score for span in annotator(text).spans]
        again = spacy.tokens.Doc(nlp.vocab).from_bytes(spacy_doc.to_bytes())
        assert again.spans["lexome"].attrs == spacy_doc.spans["lexome"].attrs


def test_spacy_keeps_the_entities_of_other_components(component: None) -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "VERB", "pattern": "raise"}])
    nlp.add_pipe("lexome", config={"threads": 1, "types": ["Gene"]})
    labels = [(entity.text, entity.label_) for entity in nlp(TEXTS[0]).ents]
    assert labels == [("BRCA1", "Gene"), ("raise", "VERB")]


def test_a_mention_inside_a_token_covers_it_and_keeps_its_own_offsets(component: None) -> None:
    add_mentions = import_module("lexome.formats.spacy_docs").add_mentions
    spacy_doc = spacy.tokens.Doc(spacy.blank("en").vocab, words=["BRCA1-deficient", "mice"])
    doc = Document("d", (Passage(0, spacy_doc.text),), spans=(lexome.Span("T1", "Gene", ((0, 5),), "BRCA1"),))
    add_mentions(spacy_doc, doc)
    assert [entity.text for entity in spacy_doc.ents] == ["BRCA1-deficient"]
    assert from_json(spacy_doc.user_data["lexome"]) == doc


def test_the_component_takes_models_by_name(component: None) -> None:
    named = spacy.blank("en").add_pipe("lexome", config={"models": ["default"], "threads": 1})
    assert named.annotator.about()["models"] == lexome.load("default", threads=1).about()["models"]
    with raises(UsageError, code="unknown-model", value="defualt"):
        spacy.blank("en").add_pipe("lexome", config={"models": ["defualt"]})


def test_an_unknown_type_is_reported_when_the_pipeline_is_built(component: None) -> None:
    with raises(UsageError, code="unknown-type"):
        spacy.blank("en").add_pipe("lexome", config={"types": ["Verb"], "threads": 1})


# Training from Python


def test_a_recipe_is_a_dictionary_or_a_path(tmp_path: Path) -> None:
    from lexome.recipe import of
    from lexome.recipe.pretrain import PretrainRecipe

    keys = {"shards": "s", "out": "o", "preset": "bert-base", "steps": 3}
    (tmp_path / "r.toml").write_text('stage = "pretrain"\nshards = "s"\nout = "o"\npreset = "bert-base"\nsteps = 3\n')
    assert (
        of(keys, PretrainRecipe)
        == of(tmp_path / "r.toml", PretrainRecipe)
        == of(str(tmp_path / "r.toml"), PretrainRecipe)
    )


def test_overrides_change_keys_of_a_recipe(tmp_path: Path) -> None:
    from lexome.recipe import of
    from lexome.recipe.pretrain import PretrainRecipe

    keys = {"shards": "s", "out": "o", "preset": "bert-base", "steps": 3}
    (tmp_path / "r.toml").write_text('stage = "pretrain"\nshards = "s"\nout = "o"\npreset = "bert-base"\nsteps = 3\n')
    overrides = {"optimizer.lr": 1e-3, "optimizer.eps": 1e-8, "steps": None, "epochs": 2}
    for source in (keys, tmp_path / "r.toml", of(keys, PretrainRecipe)):
        changed = of(source, PretrainRecipe, overrides=overrides)
        assert (changed.optimizer.lr, changed.optimizer.eps, changed.steps, changed.epochs) == (1e-3, 1e-8, None, 2)
    with raises(LexomeError, code="unknown-key", value="optimizer.rate"):
        of(keys, PretrainRecipe, overrides={"optimizer.rate": 1})


@pytest.mark.parametrize("recipe", [7, {"stage": "distill"}])
def test_a_recipe_of_another_kind_is_refused(recipe: object) -> None:
    with raises(LexomeError, code="wrong-stage"):
        lexome.pretrain(recipe)  # type: ignore[arg-type]


def test_an_unknown_key_of_a_dictionary_is_named() -> None:
    with raises(LexomeError, code="unknown-key", value="sedd"):
        lexome.finetune({"start": "a", "out": "b", "data": {"sets": ["x"]}, "epochs": 1, "sedd": 1})
