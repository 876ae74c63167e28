"""The splits of a fine-tuning: what is chosen by them, what is kept apart, and what is refused before it learns."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from errors import raises
from finetuning import (
    class_documents,
    context_of,
    done,
    ner_documents,
    pair_documents,
    recipe_of,
    relation_documents,
    write_splits,
)

from lexome.errors import LexomeError, RecipeError, UsageError

NER = {"kind": "ner", "types": ["Gene", "Drug"]}


@pytest.mark.parametrize("misspelled", ["Durg", "gene"])
def test_a_misspelled_type_is_refused_with_the_types_of_the_documents(
    misspelled: str, start: Path, data: Path, tmp_path: Path
) -> None:
    task = {"kind": "ner", "types": ["Gene", misspelled]}
    meant = {"Durg": "Drug", "gene": "Gene"}[misspelled]
    with raises(UsageError, code="unknown-type", value=misspelled, mentions=repr(meant)):
        done(recipe_of(start, data, tmp_path / "out", task, epochs=1))


def test_types_of_pairs_must_be_those_of_mentions(start: Path, tmp_path: Path) -> None:
    folder = write_splits(tmp_path / "data", train=relation_documents(), dev=relation_documents(4))
    task = {"kind": "relation", "labels": ["none", "blocks"], "none": "none", "pairs": [["Drug", "Genes"]]}
    with raises(UsageError, code="unknown-type", value="Genes"):
        done(recipe_of(start, folder, tmp_path / "out", task, epochs=1))


@pytest.mark.parametrize("score_test", ["every", "best"])
def test_a_test_split_that_cannot_be_scored_is_refused_before_anything_is_learned(
    score_test: str, start: Path, tmp_path: Path
) -> None:
    docs = pair_documents(numbers=True)
    blind = [replace(doc, id=f"test-{doc.id}", labels=()) for doc in docs]
    folder = write_splits(tmp_path / "data", train=docs, dev=docs[:6], test=blind)
    keys: dict[str, Any] = {"epochs": 1, "score_test": score_test, "grid": {"lr": [1e-3, 1e-4]}}
    with raises(UsageError, code="not-scorable", value="test", mentions="test-p0"):
        done(recipe_of(start, folder, tmp_path / "out", {"kind": "similarity"}, **keys))
    assert not list(tmp_path.rglob("metrics.jsonl"))


def test_a_measure_that_test_alone_could_have_is_refused_before_anything_is_learned(
    start: Path, data: Path, tmp_path: Path
) -> None:
    keys: dict[str, Any] = {"data": {"folder": data, "dev": "none"}, "evaluation": {"metric": "f2"}, "epochs": 1}
    with raises(UsageError, code="unknown-metric", value="f2"):
        done(recipe_of(start, data, tmp_path / "out", NER, score_test="every", **keys))
    assert not list(tmp_path.rglob("metrics.jsonl"))


def test_a_grid_without_dev_has_no_best_cell(start: Path, data: Path, tmp_path: Path) -> None:
    keys: dict[str, Any] = {"data": {"folder": data, "dev": "none"}, "evaluation": {}, "score_test": "best"}
    with raises(RecipeError, code="invalid-value", value="score_test"):
        done(recipe_of(start, data, tmp_path, NER, grid={"lr": [1e-3, 1e-4]}, **keys))


@pytest.mark.parametrize("grid", [{"lr": [1e-3, 1e-4]}, {"lr": [1e-3, 1e-4], "seeds": "first"}])
def test_a_grid_goes_by_the_dev_split_that_a_sets_own_folds_have(
    grid: dict[str, Any], start: Path, tmp_path: Path
) -> None:
    (tmp_path / "PubMedQA").mkdir()
    asked = {"QUESTION": "is the gene seen ?", "CONTEXTS": ["the gene is seen ."], "LONG_ANSWER": "it is ."}
    content = {str(10_000 + n): {**asked, "final_decision": ("yes", "no", "maybe")[n % 3]} for n in range(60)}
    (tmp_path / "PubMedQA" / "ori_pqal.json").write_text(json.dumps(content))
    keys: dict[str, Any] = {"data": {"sets": ["PubMedQA"], "root": tmp_path}, "folds": {"use": [0]}, "epochs": 1}
    found = done(recipe_of(start, tmp_path, tmp_path / "out", {}, grid=grid, score_test="best", **keys)).summary
    assert found.best is not None
    assert set(found.rows[found.best].spreads) == {"dev", "test"}


def test_a_grid_has_no_best_cell_in_folds_without_dev(start: Path, tmp_path: Path) -> None:
    keys: dict[str, Any] = {"data": {"sets": ["EU-ADR"], "root": _eu_adr(tmp_path)}, "folds": {"use": [0]}}
    keys |= {"grid": {"lr": [1e-3, 1e-4]}, "score_test": "best", "evaluation": {}}
    with raises(UsageError, code="missing-split", value="dev"):
        done(recipe_of(start, tmp_path, tmp_path / "out", {}, **keys))


def test_a_sets_own_folds_are_not_drawn_anew(start: Path, tmp_path: Path) -> None:
    keys: dict[str, Any] = {
        "data": {"sets": ["EU-ADR"], "root": _eu_adr(tmp_path)},
        "folds": {"count": 5, "dev_fraction": 0.1},
    }
    with raises(UsageError, code="own-folds", value=5):
        done(recipe_of(start, tmp_path, tmp_path / "out", {}, **keys))


def test_patience_needs_a_dev_split_in_a_sets_own_folds(start: Path, tmp_path: Path) -> None:
    keys: dict[str, Any] = {"data": {"sets": ["EU-ADR"], "root": _eu_adr(tmp_path)}, "folds": {"use": [0]}}
    with raises(LexomeError, code="missing-split", value="dev"):
        done(recipe_of(start, tmp_path, tmp_path / "out", {}, **keys))


def _eu_adr(root: Path) -> Path:
    """A folder of sets with a fold of EU-ADR, which has no dev split."""
    folder = root / "EU-ADR" / "folds" / "1"
    folder.mkdir(parents=True)
    rows = "".join(f"the @GENE$ blocks {word} @DISEASE$\t{number % 2}\n" for number, word in enumerate("abcdef"))
    (folder / "train.tsv").write_text(rows)
    (folder / "test.tsv").write_text("index\tsentence\tlabel\n0\tthe @GENE$ needs @DISEASE$\t1\n")
    return root


def test_a_test_split_that_is_learned_from_is_not_kept_apart(start: Path, tmp_path: Path) -> None:
    docs = ner_documents(10)
    folder = write_splits(tmp_path / "data", train=docs[:4], dev=docs[4:6], test=docs[6:])
    data = {"folder": folder, "train": ["train", "test"], "overlap": "drop"}
    with context_of(recipe_of(start, folder, tmp_path / "out", NER, data=data)) as context:
        parts = context.data.splits(None)
    assert [doc.id for doc in parts.train.docs] == [doc.id for doc in (*docs[:4], *docs[6:])]
    assert parts.warnings == ()


@pytest.mark.parametrize("folds", [None, {"count": 2, "use": [0]}])
def test_what_is_in_test_is_not_learned_however_the_splits_are_made(
    folds: dict[str, Any] | None, start: Path, tmp_path: Path
) -> None:
    docs = ner_documents(10)
    again = [replace(doc, id=f"again-{doc.id}") for doc in docs]
    folder = write_splits(tmp_path / "data", train=docs[4:], dev=[*docs[:4], *again[4:]], test=again[:4])
    data = {"folder": folder, "train": ["train", "dev"], "dev": "none", "overlap": "drop"}
    recipe = recipe_of(start, folder, tmp_path / "out", NER, data=data, folds=folds, evaluation={})
    with context_of(recipe) as context:
        parts = context.data.splits(None if folds is None else 0)
    assert parts.test is not None
    assert {doc.text for doc in parts.train.docs}.isdisjoint(doc.text for doc in parts.test.docs)
    assert parts.warnings == ()
    assert parts.notes["document of train skipped: it is in dev or test"] > 0


def test_what_reading_ignores_is_noted(start: Path, tmp_path: Path) -> None:
    for split in ("train", "dev"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "a.txt").write_text(f"the gene TP53 of {split} is seen .")
        (tmp_path / split / "a.ann").write_text("T1\tGene 9 13\tTP53\nX garbage\n")
    (tmp_path / "train" / "b.txt").write_text("its annotations are missing .")
    recipe = recipe_of(start, tmp_path, tmp_path / "out", {"kind": "ner"})
    with context_of(recipe) as context:
        notes = context.data.splits(None).notes
    assert notes["unknown line ignored"] == 2
    assert notes["text without an annotation file (.ann), read as one without mentions"] == 1


def test_a_fold_without_positives_is_told(start: Path, tmp_path: Path) -> None:
    docs = relation_documents(6)
    folder = write_splits(tmp_path / "data", train=docs[:4], dev=[docs[1], docs[2]])
    task = {"kind": "relation", "labels": ["none", "blocks"], "none": "none", "pairs": [["Drug", "Gene"]]}
    found = done(recipe_of(start, folder, tmp_path / "out", task, epochs=1))
    assert any("dev has no relations, and train has 2" in said for said in found.summary.warnings)


def test_labels_that_are_lacking_are_told_where_they_change_what_is_learned(start: Path, tmp_path: Path) -> None:
    docs = class_documents(several=False)
    folder = write_splits(tmp_path / "data", train=[replace(docs[0], labels=()), *docs[1:]], dev=docs)
    for task, said in (({}, 1), ({"several": True, "labels": ["gene", "drug", "both"]}, 0)):
        with context_of(recipe_of(start, folder, tmp_path / "out", {"kind": "classes", **task})) as context:
            warnings = context.data.splits(None).warnings
        assert sum("1 documents of train have no label" in warning for warning in warnings) == said


def test_a_run_goes_on_where_dev_has_nothing_to_find_and_nothing_is_found(start: Path, tmp_path: Path) -> None:
    docs = relation_documents(10)
    folder = write_splits(tmp_path / "data", train=docs, dev=[doc for doc in docs if not doc.relations][:3])
    task = {"kind": "relation", "labels": ["none", "blocks"], "none": "none", "pairs": [["Drug", "Gene"]]}
    found = done(recipe_of(start, folder, tmp_path / "out", task, epochs=30)).summary
    assert found.rows[0].spreads["dev"]["f1"].mean == 0
