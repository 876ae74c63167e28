"""Bad documents: raised, or set aside with their reason and their bytes."""

import base64
import json
from pathlib import Path

import pytest
from errors import raises

import lexome
from lexome import Tally
from lexome.errors import BadDocument, DocumentError, UsageError

GOOD = b'{"id":"1","passages":[{"offset":0,"text":"BRCA1 binds."}]}'
OFF = (
    b'{"id":"2","passages":[{"offset":0,"text":"BRCA1 binds."}],'
    b'"spans":[{"id":"T1","type":"Gene","parts":[[1,6]],"text":"BRCA1"}]}'
)
LATIN = '{"id":"3","text":"Ménière"}'.encode("latin-1")


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    path = tmp_path / "mixed.jsonl"
    path.write_bytes(b"\n".join([GOOD, OFF, LATIN, b'{"id":', GOOD]))
    return path


def test_a_file_of_somebody_else_is_not_replaced_by_rejects(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    for _ in range(2):  # the second time, the file is one of rejects
        with Tally(tmp_path / "rejects.jsonl") as tally:
            tally.reject(BadDocument("bad", "so bad"), where="line 1")
    with raises(UsageError, code="foreign-output", value=tmp_path / "thesis.txt"):
        Tally(tmp_path / "thesis.txt")


def test_without_a_place_for_rejects_the_first_bad_document_raises(mixed: Path) -> None:
    with raises(DocumentError, code="offset_mismatch", value="T1", mentions="mixed.jsonl, line 2"):
        list(lexome.read(mixed))


def test_with_rejects_the_rest_is_read_and_reasons_are_counted(mixed: Path, tmp_path: Path) -> None:
    with Tally(tmp_path / "rejects.jsonl") as tally:
        assert [doc.id for doc in lexome.read(mixed, tally=tally)] == ["1", "1"]
    assert tally.rejected == {"offset_mismatch": 1, "wrong_encoding": 1, "malformed_json": 1}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", '{"pmid": 7.0, "title": ""}\n'),
        ("a.json", '[{"PMID": 7, "title": ""}]'),
        ("a.csv", "pmid,title\n7.0,\n"),
        ("export.csv", "PMID,Title,Authors,Citation\n7,,A B,x\n"),
        ("a.ris", "TY  - JOUR\nID  - 7\nER  - \n"),
        ("a.bioc.json", '{"documents": [{"_id": 7, "id": 7, "passages": 1}]}'),
        ("ddi.xml", '<document id="7"><sentence id="7.s0" text="a"><entity id="e"/></sentence></document>'),
        ("a.conll", "-DOCSTART- (7)\n\nBRCA1 B-Gene\nx O y z\n"),
    ],
)
def test_a_reject_has_the_id_of_its_document(name: str, content: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(content)
    assert not list(lexome.read(path, rejects=tmp_path / "rejects.jsonl"))
    [reject] = map(json.loads, (tmp_path / "rejects.jsonl").read_text().splitlines())
    assert reject["id"] == "7"


def test_a_reject_keeps_place_reason_and_bytes(mixed: Path, tmp_path: Path) -> None:
    list(lexome.read(mixed, rejects=tmp_path / "rejects.jsonl"))
    off, latin, _ = map(json.loads, (tmp_path / "rejects.jsonl").read_text().splitlines())
    assert (off["where"], off["reason"], off["raw"].encode()) == (f"{mixed}, line 2", "offset_mismatch", OFF)
    assert base64.b64decode(latin["raw_base64"]) == LATIN


def test_no_rejects_file_is_made_when_all_is_well(tmp_path: Path) -> None:
    (tmp_path / "good.jsonl").write_bytes(GOOD)
    list(lexome.read(tmp_path / "good.jsonl", rejects=tmp_path / "rejects.jsonl"))
    assert not (tmp_path / "rejects.jsonl").exists()


def test_a_rejects_file_closed_and_opened_again_keeps_what_it_had(tmp_path: Path) -> None:
    tally = Tally(tmp_path / "rejects.jsonl")
    for number in range(2):
        tally.reject(BadDocument("odd", f"document {number}"), where="here")
        tally.close()
    assert len((tmp_path / "rejects.jsonl").read_text().splitlines()) == 2


def test_a_huge_reject_is_named_and_not_kept(tmp_path: Path) -> None:
    with Tally(tmp_path / "rejects.jsonl") as tally:
        tally.reject(BadDocument("odd", "too much"), where="here", raw=b"x" * (2 << 20))
    line = json.loads((tmp_path / "rejects.jsonl").read_text())
    assert (line["raw_bytes"], len(line["raw_start"])) == (2 << 20, 1000)


def test_half_a_surrogate_pair_in_an_id_does_not_stop_the_rejects(tmp_path: Path) -> None:
    with Tally(tmp_path / "rejects.jsonl") as tally:
        tally.reject(BadDocument("x", "y"), where="z", id="\ud800")
    assert json.loads((tmp_path / "rejects.jsonl").read_text())["id"] == "\ud800"
