"""The i2b2 challenges in made files: concepts and relations, events, identifiers, and what is wrong with them."""

from pathlib import Path

from errors import raises
from made_sets import packed, write

from lexome import Tally, datasets
from lexome.errors import BadDocument

NOTE = "Admission Date :\n the cough was treated with Zorblin 5 mg .\nChest film showed no change .\n"
CONCEPTS = 'c="the cough" 2:1 2:2||t="problem"\nc="zorblin" 2:6 2:6||t="treatment"\nc="chest film" 3:0 3:1||t="test"\n'
RELATIONS = 'c="zorblin" 2:6 2:6||r="TrAP"||c="the cough" 2:1 2:2\n'
TRAINING = "concept_assertion_relation_training_data"
REFERENCE = "reference_standard_for_test_data"


def challenge_2010(root: Path, concepts: str = CONCEPTS) -> Path:
    packed(
        root / "i2b2-2010" / f"{TRAINING}.tar.gz",
        {
            f"{TRAINING}/beth/txt/record-1.txt": NOTE,
            f"{TRAINING}/beth/concept/record-1.con": concepts,
            f"{TRAINING}/beth/rel/record-1.rel": RELATIONS,
            f"{TRAINING}/beth/ast/record-1.ast": "",
        },
    )
    packed(
        root / "i2b2-2010" / f"{REFERENCE}.tar.gz",
        {f"{REFERENCE}/concepts/0001.con": CONCEPTS, f"{REFERENCE}/rel/0001.rel": RELATIONS},
    )
    packed(root / "i2b2-2010" / "test_data.tar.gz", {"test_data/0001.txt": NOTE, "test_data/0002.txt": "Unlabeled ."})
    return root


def test_concepts_and_relations_of_2010(tmp_path: Path) -> None:
    found = datasets.find("i2b2-2010", data=challenge_2010(tmp_path))
    assert found.available
    tally = Tally()
    splits = found.splits(dev_fraction=0, tally=tally)
    (doc,) = splits["train"]
    assert [(span.type, span.text) for span in doc.spans] == [
        ("problem", "the cough"),
        ("treatment", "Zorblin"),
        ("test", "Chest film"),
    ]
    (relation,) = doc.relations
    assert (relation.type, [argument.target for argument in relation.arguments]) == ("TrAP", ["T2", "T1"])
    assert doc.text[slice(*doc.passages[0].sentences[0])] == "Admission Date :"
    assert [doc.id for doc in splits["test"]] == ["0001"]
    assert tally.notes == {"note without concepts skipped": 1}


def test_relations_of_2010_are_a_set_of_their_own(tmp_path: Path) -> None:
    found = datasets.find("i2b2-2010-RE", data=challenge_2010(tmp_path))
    splits = found.splits(dev_fraction=0)
    assert [relation.type for doc in splits["test"] for relation in doc.relations] == ["TrAP"]
    assert found.check().errors == ()


def test_a_concept_that_is_not_in_its_place_is_refused(tmp_path: Path) -> None:
    found = datasets.find("i2b2-2010", data=challenge_2010(tmp_path, 'c="the cough" 1:0 1:1||t="problem"\n'))
    with raises(BadDocument, code="offset_mismatch", mentions="the cough"):
        found.splits()


def test_a_line_that_is_no_concept_is_refused(tmp_path: Path) -> None:
    found = datasets.find("i2b2-2010", data=challenge_2010(tmp_path, "cough 2:1 2:2 problem\n"))
    with raises(BadDocument, code="bad_line"):
        found.splits()


def note_2012(tags: str, text: str = "The cough\nwas treated .") -> str:
    return (
        '<?xml version="1.0" encoding="UTF-8" ?>\n<ClinicalNarrativeTemporalAnnotation>\n'
        f"<TEXT><![CDATA[{text}]]></TEXT>\n<TAGS>\n{tags}</TAGS>\n</ClinicalNarrativeTemporalAnnotation>\n"
    )


def test_events_of_2012(tmp_path: Path) -> None:
    tags = (
        '<EVENT id="E0" start="5" end="10" text="cough" modality="FACTUAL" polarity="POS" type="PROBLEM" />\n'
        '<EVENT id="E1" start="90" end="97" text="treated" modality="FACTUAL" polarity="POS" type="OCCURRENCE" />\n'
        '<EVENT id="E2" start="90" end="97" text="nowhere" type="TEST" />\n'
        '<TIMEX3 id="T0" start="1" end="4" text="The" type="DATE" val="" mod="NA" />\n'
    )
    release, truth = "2012-07-15.original-annotation.release", "2012-08-23.test-data.groundtruth"
    packed(tmp_path / "i2b2-2012" / f"{release}.tar.gz", {f"{release}/1.xml": note_2012(tags), f"{release}/1.txt": ""})
    bare = note_2012('<EVENT id="E0" start="1" end="7" text="R & D" type="TEST" />', "R & D  was done")
    packed(tmp_path / "i2b2-2012" / f"{truth}.tar.gz", {"ground_truth/merged_xml/9.xml": bare})
    tally = Tally()
    splits = datasets.find("i2b2-2012", data=tmp_path).splits(dev_fraction=0, tally=tally)
    (doc,) = splits["train"]
    assert [(span.type, span.text) for span in doc.spans] == [("PROBLEM", "cough"), ("OCCURRENCE", "treated")]
    assert [span.text for span in splits["test"][0].spans] == ["R & D"]
    assert tally.notes == {
        "mention moved to its text": 1,
        "mention skipped: its text is not near its offsets": 1,
        "<TIMEX3> skipped": 1,
        "XML with a bare & repaired": 1,
    }


def test_identifiers_of_2014(tmp_path: Path) -> None:
    note = (
        '<?xml version="1.0" encoding="UTF-8" ?>\n<deIdi2b2>\n'
        "<TEXT><![CDATA[Record date: 2067-05-03\nDr. Q. Zorb]]></TEXT>\n"
        '<TAGS>\n<DATE id="P0" start="13" end="23" text="2067-05-03" TYPE="DATE" comment="" />\n'
        '<NAME id="P1" start="28" end="35" text="Q. Zorb" TYPE="DOCTOR" comment="" />\n</TAGS>\n</deIdi2b2>\n'
    )
    folders = ("training-PHI-Gold-Set1", "training-PHI-Gold-Set2", "testing-PHI-Gold-fixed")
    write(tmp_path, {f"i2b2-2014/{name}/{number}-01.xml": note for number, name in enumerate(folders)})
    splits = datasets.find("i2b2-2014", data=tmp_path).splits(dev_fraction=0)
    assert {name: [doc.id for doc in docs] for name, docs in splits.items()} == {
        "train": ["0-01", "1-01"],
        "test": ["2-01"],
    }
    assert [(span.type, span.text) for span in splits["test"][0].spans] == [
        ("DATE", "2067-05-03"),
        ("DOCTOR", "Q. Zorb"),
    ]
