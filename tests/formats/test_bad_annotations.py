"""A document is kept when one of its annotations is bad."""

import json
from pathlib import Path

import pytest
from errors import raises

import lexome
from lexome import Document, Tally
from lexome.errors import BadDocument
from lexome.formats.tally import is_respelling


def read(path: Path, content: str, **options: str) -> tuple[list[Document], Tally]:
    path.write_text(content, encoding="utf-8", newline="")
    tally = Tally()
    return list(lexome.read(path, tally=tally, **options)), tally


PUBTATOR = "1|t|Of α-synuclein in mice\n1|a|Text\n1\t3\t14\ta-synuclein\tGene\t6622\n1\t18\t22\tmice\tSpecies\t10090\n"


def test_a_mention_with_other_letters_takes_the_spelling_of_the_text(tmp_path: Path) -> None:
    (doc,), tally = read(tmp_path / "a.pubtator", PUBTATOR)
    assert [span.text for span in doc.spans] == ["α-synuclein", "mice"]
    assert dict(tally.notes) == {"mention spelled as in the text": 1}


@pytest.mark.parametrize("bad", ["1\t3\t14\tsomething..\tGene\t1\n", "1\t3\t3\t\tGene\t1\n", "1\t3\t14\tx\n"])
def test_a_bad_mention_is_dropped_and_counted(tmp_path: Path, bad: str) -> None:
    (doc,), tally = read(tmp_path / "a.pubtator", PUBTATOR + bad)
    assert [span.text for span in doc.spans] == ["α-synuclein", "mice"]
    assert sum(times for note, times in tally.notes.items() if "dropped" in note) == 1


def test_a_document_whose_mentions_are_all_elsewhere_is_kept_and_counted(tmp_path: Path) -> None:
    shifted = "".join(f"1\t{at}\t{at + 4}\tmice\tSpecies\t1\n" for at in (3, 5, 7))
    with raises(BadDocument, code="offset_mismatch"):
        read(tmp_path / "a.pubtator", PUBTATOR.partition("1\t3")[0] + shifted)
    tally = Tally(tmp_path / "rejects.jsonl")
    (doc,) = lexome.read(tmp_path / "a.pubtator", tally=tally)
    assert (doc.spans, dict(tally.rejected)) == ((), {})
    assert dict(tally.notes) == {
        "mention dropped: the text at its offsets is another": 3,
        "document kept without most of its mentions, which do not fit its text: try --set offsets=repair": 1,
    }


def test_strict_rejects_the_document(tmp_path: Path) -> None:
    with raises(BadDocument, code="offset_mismatch"):
        read(tmp_path / "a.pubtator", PUBTATOR, offsets="strict")


def bioc(**fields: object) -> str:
    passage = {"offset": 0, "infons": {}, "annotations": [], "relations": [], **fields}
    return json.dumps({"documents": [{"id": "1", "infons": {}, "passages": [passage]}]})


def annotation(id: str, text: str, offset: object) -> dict[str, object]:
    return {"id": id, "infons": {"type": "Gene"}, "text": text, "locations": [{"offset": offset, "length": len(text)}]}


def test_a_sentence_with_plain_spaces_is_that_of_its_passage(tmp_path: Path) -> None:
    text = "BRCA1\u00a0binds."
    sentence = {"offset": 0, "infons": {}, "text": text.replace("\u00a0", " "), "annotations": [], "relations": []}
    (doc,), tally = read(tmp_path / "a.bioc.json", bioc(text=text, sentences=[sentence]))
    assert doc.passages[0].sentences == ((0, len(text)),)
    assert dict(tally.notes) == {"sentence spelled as in its passage": 1}


def test_bioc_keeps_a_document_with_a_bad_annotation(tmp_path: Path) -> None:
    annotations = [annotation("1", "BRCA1", 0), annotation("2", "BARD1", 3), annotation("3", "BARD1", "x")]
    relation = {
        "id": "R1",
        "infons": {"type": "binds"},
        "nodes": [{"refid": "1", "role": ""}, {"refid": "2", "role": ""}],
    }
    content = bioc(text="BRCA1 binds.", annotations=annotations, relations=[relation])
    (doc,), tally = read(tmp_path / "a.bioc.json", content)
    assert ([span.text for span in doc.spans], doc.relations) == (["BRCA1"], ())
    assert tally.notes["relation dropped: it refers to a dropped span"] == 1


STANDOFF = "T1\tGene 0 5\tBRCA1\nT2\tGene x\nR1\tBinds Arg1:T1 Arg2:T9\nN1\tReference T8 a:1\n"


def test_brat_keeps_a_document_with_bad_lines(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("BRCA1 binds.")
    (doc,), tally = read(tmp_path / "a.ann", STANDOFF)
    assert ([span.text for span in doc.spans], doc.relations) == (["BRCA1"], ())
    assert sum(tally.notes.values()) == 3


@pytest.mark.parametrize("named", ["folder", "a1", "txt.ann"])
def test_annotations_beside_a_text_are_found(tmp_path: Path, named: str) -> None:
    (tmp_path / "a.txt").write_text("BRCA1 binds BARD1.")
    if named == "txt.ann":
        (tmp_path / "a.txt.ann").write_text("T1\tGene 0 5\tBRCA1\nT2\tBinding 6 11\tbinds\nE1\tBinding:T2 Theme:T1\n")
    else:
        (tmp_path / "a.a1").write_text("T1\tGene 0 5\tBRCA1\n")
        (tmp_path / "a.a2").write_text("T2\tBinding 6 11\tbinds\nE1\tBinding:T2 Theme:T1\n")
    path = tmp_path if named == "folder" else tmp_path / f"a.{named}"
    (doc,) = lexome.read(path)
    assert ([span.text for span in doc.spans], [relation.type for relation in doc.relations]) == (
        ["BRCA1", "binds"],
        ["Binding"],
    )


@pytest.mark.parametrize(
    ("mention", "text", "same"),
    [
        ("a", "α", True),
        ("TGF-b", "TGF-β", True),
        ("TGF&lt;b", "TGF<b", True),
        ("a b", "a\u2009b", True),
        ("Ca2+", "Ca2−", True),
        ("mice", "mice", True),
        ("mice", "rats", False),
        ("???", "αβγ", False),
        ("BRCA1", "BRCA2", False),
        ("alpha", "α", False),
    ],
)
def test_respellings_are_told_from_other_words(mention: str, text: str, same: bool) -> None:
    assert is_respelling(mention, text) == same
