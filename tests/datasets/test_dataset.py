"""Data sets as they are found: splits, folds, what is missing, what is drawn, what is refused."""

import lzma
from pathlib import Path

import pytest
from errors import raises
from made_sets import GENES, LONG, columns, folds, packed, write

from lexome import Tally, datasets
from lexome.errors import DataSetError, FormatError, UsageError


def test_a_set_in_the_folder_that_is_named(tmp_path: Path) -> None:
    found = datasets.find("BC2GM", data=columns(tmp_path))
    assert found.available
    splits = found.splits()
    assert list(splits) == ["train", "dev", "test"]
    assert [[span.text for span in doc.spans] for doc in splits["test"]] == [["BRCA1", "TP53"]]
    assert {span.type for span in splits["test"][0].spans} == {"Gene"}


def test_a_set_in_the_folder_data_needs_no_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not datasets.find("BC2GM").available
    columns(tmp_path / "data")
    assert datasets.find("BC2GM").available


def test_the_set_s_own_folder_may_be_named(tmp_path: Path) -> None:
    assert datasets.find("BC2GM", data=columns(tmp_path) / "BC2GM").available


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with raises(DataSetError, code="missing-folder", value=str(tmp_path / "nowhere")):
        datasets.find("BC2GM", data=tmp_path / "nowhere")


def test_files_may_be_compressed(tmp_path: Path) -> None:
    for name in ("train", "devel", "test"):
        path = tmp_path / "NERdata" / "BC2GM" / f"{name}.tsv.xz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lzma.compress(GENES.encode()))
    assert len(datasets.find("BC2GM", data=tmp_path).splits()["dev"]) == 1


def test_names_are_forgiving_and_helpful(tmp_path: Path) -> None:
    assert datasets.find("bc2gm", data=tmp_path).name == "BC2GM"
    with raises(UsageError, code="unknown-dataset", value="BC2MG", mentions="BC2GM"):
        datasets.find("BC2MG", data=tmp_path)


def test_a_missing_split_says_where_to_get_it(tmp_path: Path) -> None:
    found = datasets.find("BC2GM", data=write(tmp_path, {"BC2GM/test.tsv": GENES}))
    assert (found.available, found.missing) == (False, ["train", "dev"])
    with raises(DataSetError, code="missing-split", value="train", mentions="NERdata"):
        found.splits()
    assert list(found.splits(partial=True)) == ["test"]


def test_an_empty_split_is_refused(tmp_path: Path) -> None:
    found = datasets.find("BC2GM", data=columns(tmp_path, devel="\n\n"))
    with raises(DataSetError, code="empty-split", value="dev"):
        found.splits()
    assert any("split dev is empty" in error for error in found.check().errors)


def test_a_file_without_a_byte_is_refused(tmp_path: Path) -> None:
    with raises(FormatError, code="empty-file", value=str(tmp_path / "BC2GM" / "train.tsv")):
        datasets.find("BC2GM", data=columns(tmp_path, train="")).splits()


def test_a_split_that_the_set_does_not_have(tmp_path: Path) -> None:
    with raises(UsageError, code="unknown-split", value="validation"):
        datasets.find("BC2GM", data=columns(tmp_path)).split("validation")


def test_an_overlap_is_warned_of_listed_and_refused_where_asked(tmp_path: Path) -> None:
    found = datasets.find(
        "BC2GM", data=columns(tmp_path, train=f"{GENES}\n{LONG}", test=f"{LONG}\n{GENES}", devel=GENES)
    )
    (overlap,) = found.check().overlaps
    assert (overlap.splits, overlap.ids, overlap.texts, overlap.examples) == (("test", "train"), 0, 1, ("test-1",))
    assert len(found.splits()["train"]) == 2
    with raises(DataSetError, code="overlapping-splits", value=1, mentions="train-6"):
        found.splits(overlap="error")
    tally = Tally()
    assert [doc.id for doc in found.splits(overlap="drop", tally=tally)["train"]] == ["train-1"]
    assert tally.notes == {"document of train skipped: it is in dev or test": 1}


def test_short_sentences_are_no_overlap(tmp_path: Path) -> None:
    assert datasets.find("BC2GM", data=columns(tmp_path)).check().overlaps == ()


def test_counts_that_differ_from_the_papers_are_told(tmp_path: Path) -> None:
    warnings = datasets.find("BC2GM", data=columns(tmp_path)).check().warnings
    assert "the split train has 2 mentions; expected 15,197: the files are damaged or another version" in warnings


def test_folds_are_sets_of_their_own(tmp_path: Path) -> None:
    found = datasets.find("GAD", data=folds(tmp_path))
    assert [fold.name for fold in found.folds] == [f"GAD fold {number}" for number in range(1, 11)]
    splits = found.folds[9].splits()
    assert [doc.id for doc in splits["test"]] == ["GAD/10/test-0", "GAD/10/test-1"]
    assert splits["train"][0].text == "fold 10 : @GENE$ causes @DISEASE$ ."
    assert [doc.labels for doc in splits["train"]] == [("1",), ("0",)]
    with raises(UsageError, code="has-folds", value="GAD"):
        found.splits()


def test_folds_that_were_unpacked(tmp_path: Path) -> None:
    files = {
        f"GAD/{fold}/{split}.tsv": "@GENE$ and @DISEASE$\t1\n" for fold in range(1, 11) for split in ("train", "test")
    }
    assert len(datasets.find("GAD", data=write(tmp_path, files)).folds[3].splits()["test"]) == 1


def test_a_fold_that_is_missing_is_told(tmp_path: Path) -> None:
    files = {
        f"GAD/{fold}/{split}.tsv": "@GENE$ and @DISEASE$\t1\n" for fold in range(1, 10) for split in ("train", "test")
    }
    found = datasets.find("GAD", data=write(tmp_path, files))
    assert found.missing == ["train", "test"]
    (error,) = found.check().errors
    assert error.startswith("fold 10: GAD fold 10 is not in ")


def test_an_overlap_is_handled_in_one_of_three_ways(tmp_path: Path) -> None:
    with raises(UsageError, code="invalid-choice", value="eror"):
        datasets.find("BC2GM", data=columns(tmp_path)).splits(overlap="eror")  # type: ignore[arg-type]


def test_a_fold_without_positives_is_refused(tmp_path: Path) -> None:
    found = datasets.find("GAD", data=folds(tmp_path, last="0"))
    assert len(found.folds[8].splits()) == 2
    with raises(DataSetError, code="invalid-split", value="GAD fold 10"):
        found.folds[9].splits()
    assert found.check().errors == ("fold 10: the split test has none of the labels that are scored (1)",)


def test_a_label_that_the_task_does_not_have_is_refused(tmp_path: Path) -> None:
    with raises(DataSetError, code="invalid-split", value="GAD fold 10", mentions="'2'"):
        datasets.find("GAD", data=folds(tmp_path, last="1;2")).folds[9].splits()


def test_dev_is_drawn_where_a_set_has_none(tmp_path: Path) -> None:
    block = "{0}|t|Gene {0}\n{0}|a|It is BRCA1 again.\n{0}\t11\t16\tBRCA1\tGene\t672\n\n"
    text = "".join(block.format(1000 + number) for number in range(20)).replace("\t11\t16", "\t16\t21")
    root = write(tmp_path, {f"AIONER-pubtator/GNormPlus_{name}.PubTator": text for name in ("Train", "Test")})
    found = datasets.find("GNormPlus", data=root)
    tally = Tally()
    splits = found.splits(tally=tally)
    assert {name: len(docs) for name, docs in splits.items()} == {"train": 18, "dev": 2, "test": 20}
    assert tally.notes["document of train split off as dev"] == 2
    assert splits == found.splits()
    assert splits["dev"] != found.splits(seed=1)["dev"]
    assert "dev" not in found.splits(dev_fraction=0)


def test_interacting_drugs_by_sentence_with_blue_s_dev(tmp_path: Path) -> None:
    def document(name: str) -> str:
        sentence = (
            '<sentence id="{0}.s{1}" text="Aspirin raises warfarin.">'
            '<entity id="{0}.s{1}.e0" charOffset="0-6" type="drug" text="Aspirin"/>'
            '<entity id="{0}.s{1}.e1" charOffset="15-22" type="drug" text="warfarin"/>'
            '<pair id="{0}.s{1}.p0" e1="{0}.s{1}.e0" e2="{0}.s{1}.e1" ddi="true" type="effect"/></sentence>'
        )
        inner = sentence.format(name, 0) + sentence.format(name, 1)
        return f'<?xml version="1.0"?><document id="{name}">{inner}</document>'

    packed(
        tmp_path / "DDI-2013" / "DDICorpus-2013-xml.tar.xz",
        {
            "DDICorpus/Train/DrugBank/a.xml": document("D1"),
            "DDICorpus/Test/Test for DDI Extraction task/MedLine/b.xml": document("D2"),
            "DDICorpus/Test/Test for DrugNER task/MedLine/c.xml": document("D3"),
        },
    )
    found = datasets.find("DDI-2013", data=tmp_path)
    assert found.available
    assert {name: [doc.id for doc in docs] for name, docs in found.splits(dev_fraction=0).items()} == {
        "train": ["D1.s0", "D1.s1"],
        "test": ["D2.s0", "D2.s1"],
    }
    write(tmp_path, {"DDI-2013/blue_dev.tsv": "index\tsentence\tlabel\nD1.s1.p0\t@DRUG$ raises @DRUG$.\tDDI-effect\n"})
    splits = datasets.find("DDI-2013", data=tmp_path).splits()
    assert {name: [doc.id for doc in docs] for name, docs in splits.items()} == {
        "train": ["D1.s0"],
        "dev": ["D1.s1"],
        "test": ["D2.s0", "D2.s1"],
    }
    (doc,) = splits["dev"]
    assert [(relation.type, len(relation.arguments)) for relation in doc.relations] == [("DDI-effect", 2)]
    assert [span.text for span in doc.spans] == ["Aspirin", "warfarin"]
