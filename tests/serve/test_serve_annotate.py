"""/annotate and its neighbors: what goes in, in any form, comes out annotated, in any form."""

import csv
import io
import json
import zipfile
from pathlib import Path

import httpx
import pytest
from dictionary_models import WORDS, dictionary_model
from office_files import make_pdf
from services import Serving, patient_limits

import lexome
from lexome.document import Document, Passage
from lexome.formats.jsonl import from_json, to_json
from lexome.infer.annotator import Annotator
from lexome.serve.payloads import media_type, output_formats, takes_process

TEXT = "Olaparib in BRCA1 breast cancer."
FOUND = [("Olaparib", "Chemical"), ("BRCA1", "Gene"), ("breast cancer", "Disease")]


def mentions(answer: httpx.Response) -> list[tuple[str, str]]:
    assert answer.status_code == 200, answer.text
    return [(span["text"], span["type"]) for doc in answer.json()["documents"] for span in doc.get("spans", [])]


def test_a_text_comes_back_with_its_mentions(client: httpx.Client) -> None:
    answer = client.post("/annotate", json={"text": TEXT})
    assert mentions(answer) == FOUND
    [doc] = answer.json()["documents"]
    assert [TEXT[slice(*part)] for span in doc["spans"] for part in span["parts"]] == [text for text, _ in FOUND]


def test_the_answer_is_what_the_annotator_says(client: httpx.Client, annotator: Annotator) -> None:
    text = f"{TEXT} {'w1 ' * 200} TP53, melanoma {'w2 ' * 100} aspirin é BRCA1"
    answer = client.post("/annotate", json={"text": text, "id": "d"})
    [raw] = answer.json()["documents"]
    doc = from_json(json.dumps(raw))
    assert doc.id == "d"
    assert doc.spans == annotator(text).spans


def test_documents_keep_their_order_and_what_they_say(client: httpx.Client) -> None:
    docs = [Document(str(number), (Passage(7, f"BRCA1 w{number}", "title"),)) for number in range(40)]
    body = b'{"documents":[' + b",".join(map(to_json, docs)) + b"]}"
    answer = client.post("/annotate", content=body, headers={"content-type": "application/json"})
    found = [from_json(json.dumps(raw)) for raw in answer.json()["documents"]]
    assert [(doc.id, doc.passages) for doc in found] == [(doc.id, doc.passages) for doc in docs]
    assert all(doc.spans[0].parts == ((7, 12),) for doc in found)


def test_types_and_scores_are_chosen(client: httpx.Client) -> None:
    assert mentions(client.post("/annotate?types=Gene", json={"text": TEXT})) == [("BRCA1", "Gene")]
    assert mentions(client.post("/annotate?types=Gene,%20Disease", json={"text": TEXT})) == FOUND[1:]
    sure = client.post("/annotate?min_score=0.98", json={"text": "BRCA1 and TP53"})
    assert mentions(sure) == [("BRCA1", "Gene")]


def test_a_word_in_the_query_that_means_nothing_is_said(client: httpx.Client) -> None:
    answer = client.post("/annotate?min-score=0.99", json={"text": TEXT})
    assert (answer.status_code, "'min-score'" in answer.json()["error"]) == (422, True)


@pytest.mark.parametrize(
    "path", ["/annotate?types=Gene&types=Disease", "/publications/export/pubtator?pmids=1&pmids=2"]
)
def test_a_query_parameter_is_given_once(client: httpx.Client, path: str) -> None:
    answer = client.post(path, json={"text": TEXT}) if path[1] == "a" else client.get(path)
    assert (answer.status_code, "2 times" in answer.json()["error"]) == (422, True)


def test_a_form_is_not_annotated_as_text(client: httpx.Client) -> None:
    for form in ({"files": {"file": ("a.txt", TEXT.encode())}}, {"data": {"text": TEXT}}):
        answer = client.post("/annotate", **form)  # type: ignore[arg-type]
        assert (answer.status_code, "--data-binary" in answer.json()["error"]) == (415, True)
    # curl -d calls any body a form.
    sent = {"content": TEXT, "headers": {"content-type": "application/x-www-form-urlencoded"}}
    assert mentions(client.post("/annotate", **sent)) == FOUND  # type: ignore[arg-type]


def test_plain_records_are_sent_as_lines(client: httpx.Client) -> None:
    record = {"id": "1", "text": TEXT}
    refused = client.post("/annotate", json={"documents": [record]})
    assert (refused.status_code, "from=jsonl" in refused.json()["error"]) == (422, True)
    for sent in ({"json": record, "params": {"from": "jsonl"}}, {"json": [record]}):
        [doc] = client.post("/annotate", **sent).json()["documents"]
        assert doc["id"] == "1"


def test_extra_types_are_found_only_by_name(serving: Serving, tmp_path: Path) -> None:
    words = {**WORDS, "mice": ("B-Species", 6.0)}
    types = ("Gene", "Disease", "Chemical", "Species")
    made = dictionary_model(tmp_path / "words", words, types=types, extra=("Species",), nested=True)
    with serving(Annotator.open(made, threads=1)) as client:
        about = client.get("/model").json()
        assert (about["types"], about["extra_types"]) == (["Gene", "Disease", "Chemical"], ["Species"])
        assert mentions(client.post("/annotate", json={"text": "BRCA1 in mice"})) == [("BRCA1", "Gene")]
        assert mentions(client.post("/annotate?types=Species", json={"text": "BRCA1 in mice"})) == [("mice", "Species")]
        found = client.post("/plain", json={"text": "BRCA1 in mice"}).json()["annotations"]
        assert [one["mention"] for one in found] == ["BRCA1"]
        error = client.post("/annotate?types=Plant", json={"text": "BRCA1"})
        assert (error.status_code, "Plant" in error.text, "Species" in error.text) == (422, True, True)


@pytest.mark.parametrize("text", ["", " ", "\n"])
def test_a_text_without_words_has_no_mentions(client: httpx.Client, text: str) -> None:
    assert mentions(client.post("/annotate", json={"text": text})) == []


PUBTATOR = b"1|t|BRCA1 and aspirin\n1|a|\n\n"
BODIES = {
    "pubtator": PUBTATOR,
    "jsonl": b'{"id": "1", "text": "BRCA1 and aspirin"}\n',
    "text": b"BRCA1 and aspirin",
    "bioc-xml": b"<collection><document><id>1</id><passage><offset>0</offset><text>BRCA1 and aspirin</text></passage>"
    b"</document></collection>",
    "conll": b"BRCA1 O\nand O\naspirin O\n",
}


@pytest.mark.parametrize("form", BODIES)
def test_any_format_is_read(client: httpx.Client, form: str) -> None:
    answer = client.post("/annotate", params={"from": form}, content=BODIES[form])
    assert mentions(answer) == [("BRCA1", "Gene"), ("aspirin", "Chemical")]


@pytest.mark.parametrize(
    ("params", "kind", "body"),
    [
        ({"name": "a.pubtator"}, "application/octet-stream", PUBTATOR),
        ({"name": "a.txt"}, "application/octet-stream", BODIES["text"]),
        ({"name": "a.xml"}, "application/octet-stream", BODIES["bioc-xml"]),
        ({}, "text/plain; charset=utf-8", b'{"BRCA1 and aspirin"'),
        ({}, "application/xml", BODIES["bioc-xml"]),
        ({}, "application/x-www-form-urlencoded", b'{"text": "BRCA1 and aspirin"}'),
        (
            {"name": "saved.json"},
            "application/octet-stream",
            b'{"documents":[{"id":"1","passages":[{"offset":0,"text":"BRCA1 and aspirin"}]}]}',
        ),
    ],
)
def test_a_format_is_told_by_name_kind_or_first_bytes(
    client: httpx.Client, params: dict[str, str], kind: str, body: bytes
) -> None:
    answer = client.post("/annotate", params=params, content=body, headers={"content-type": kind})
    assert mentions(answer) == [("BRCA1", "Gene"), ("aspirin", "Chemical")]


@pytest.mark.parametrize("form", [form for form in output_formats() if form not in ("json", "brat", "squad", "conll")])
def test_any_format_is_written(client: httpx.Client, form: str, tmp_path: object) -> None:
    doc = Document("1", (Passage(0, TEXT, "title"),))
    body = b'{"documents":[' + to_json(doc) + b"]}"
    answer = client.post(f"/annotate?to={form}", content=body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == media_type(form)
    assert answer.headers["content-disposition"].startswith("attachment; filename=")
    path = tmp_path / answer.headers["content-disposition"].partition('"')[2].strip('"')  # type: ignore[operator]
    path.write_bytes(answer.content)
    if form in ("html", "csv", "tsv"):
        assert "BRCA1" in answer.text
    elif form == "xlsx":
        assert answer.content.startswith(b"PK")
    elif form == "text":
        assert answer.text.strip() == TEXT
    elif form in ("csv", "tsv"):
        rows = list(csv.DictReader(io.StringIO(answer.content.decode("utf-8-sig")), delimiter=",\t"[form == "tsv"]))
        assert [(row["text"], row["type"]) for row in rows] == FOUND
    elif form == "xlsx":
        assert zipfile.is_zipfile(path)
    else:
        [read] = lexome.read(path, form)
        assert [(span.text, span.type) for span in read.spans] == FOUND


def test_a_format_of_several_files_is_a_zip(client: httpx.Client) -> None:
    answer = client.post("/annotate?to=brat", json={"text": TEXT, "id": "paper"})
    with zipfile.ZipFile(io.BytesIO(answer.content)) as files:
        assert files.read("paper.txt").decode() == TEXT
        assert b"Gene 12 17\tBRCA1" in files.read("paper.ann")


def test_a_conll_file_has_tags(client: httpx.Client) -> None:
    answer = client.post("/annotate?to=conll", json={"text": TEXT})
    assert "BRCA1\tB-Gene" in answer.text.replace(" ", "\t")


def test_the_model_says_what_it_is(client: httpx.Client) -> None:
    about = client.get("/model").json()
    assert about["types"] == ["Gene", "Disease", "Chemical"]
    assert about["models"][0]["task"] == "ner"
    assert {"json", "bioc-xml", "html"} <= set(about["formats"])
    assert about["limits"]["characters"] == 500_000
    assert about["documents"] == 2


def test_classes_relations_and_answers_come_in_the_same_call(full_client: httpx.Client) -> None:
    question = {"id": "q", "text": "which?"}
    doc = {"id": "1", "passages": [{"offset": 0, "text": "BRCA1 good olaparib breast cancer"}], "questions": [question]}
    answer = full_client.post("/annotate", json={"documents": [doc]})
    [found] = answer.json()["documents"]
    assert found["labels"] == ["good"]
    assert [relation["type"] for relation in found["relations"]] == ["raises"]
    assert found["questions"][0]["answers"][0]["text"] == "olaparib breast cancer"


def test_documents_are_only_written_where_no_type_is_asked_for(full_client: httpx.Client) -> None:
    doc = {"id": "1", "passages": [{"offset": 0, "text": "BRCA1 good melanoma"}]}
    answer = full_client.post("/annotate?types=", json={"documents": [doc]})
    assert answer.json() == {"documents": [from_json(json.dumps(doc)).to_dict()], "concepts": {}, "notes": []}
    # As it was saved, it can be sent again.
    assert full_client.post("/annotate?types=", content=answer.content).json() == answer.json()


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("BRCA1", "very few words"),
        ("PMID: 29446767, 30102808", "list of PMIDs"),
        ("BRCA1 wird bei einer Mutation untersucht", "does not look English"),
        ("BRCA1 is lost in melanoma", None),
    ],
)
def test_a_text_on_which_models_do_badly_has_a_note(client: httpx.Client, text: str, note: str | None) -> None:
    notes = client.post("/annotate", json={"text": text}).json()["notes"]
    assert [note in one for one in notes] == [True] * (note is not None)


def test_what_reading_drops_is_noted(client: httpx.Client) -> None:
    body = "1|t|BRCA1\n1|a|\n1\t90\t95\tTP53\tGene\t-\n\n"
    note = "1 mention dropped: the text at its offsets is another"
    assert client.post("/annotate?from=pubtator&types=", content=body).json()["notes"] == [note]
    answer = client.post("/annotate?from=pubtator&to=bioc-xml", content=body)
    assert json.loads(answer.headers["lexome-notes"]) == [note]


LINES = b'{"id": "1", "text": "BRCA1 is lost"}\n{"id": "2"\n{"id": "3", "title": ""}\n'


def test_a_bad_document_of_a_file_is_skipped_and_noted(client: httpx.Client) -> None:
    answer = client.post("/annotate?name=notes.jsonl&types=", content=LINES)
    assert [doc["id"] for doc in answer.json()["documents"]] == ["1"]
    count, *reasons = answer.json()["notes"]
    assert count == "2 documents skipped"
    assert [place in reason for place, reason in zip(("line 2", "line 3"), reasons, strict=True)] == [True, True]
    table = client.post("/annotate?from=csv&to=jsonl", content=b"id,title\n1,BRCA1\n2,\n")
    assert len(table.text.splitlines()) == 1
    assert json.loads(table.headers["lexome-notes"])[0] == "1 document skipped"


@pytest.mark.parametrize(("query", "body"), [("&strict=true", LINES), ("", LINES.partition(b"\n")[2])])
def test_a_file_without_a_good_document_and_a_strict_request_are_refused(
    client: httpx.Client, query: str, body: bytes
) -> None:
    answer = client.post(f"/annotate?name=notes.jsonl{query}", content=body)
    assert (answer.status_code, "line" in answer.json()["error"]) == (422, True)


@pytest.mark.parametrize("body", [b"{}", b"[1]"])
def test_advice_names_the_query_parameter(client: httpx.Client, body: bytes) -> None:
    error = client.post("/annotate?name=a.json", content=body).json()["error"]
    assert ("with from=." in error, "--from" in error, "Python" in error) == (True, False, False)


def test_a_text_has_the_id_that_it_has_in_json(client: httpx.Client) -> None:
    [doc] = client.post("/annotate", content="BRCA1 is lost").json()["documents"]
    assert doc["id"] == "text"


def test_classify_gives_classes(full_client: httpx.Client) -> None:
    answer = full_client.post("/classify", json={"text": "bad bad good"})
    [classified] = answer.json()["documents"]
    assert (classified["id"], classified["labels"]) == ("text", ["bad"])
    assert 0.5 < classified["scores"][0] <= 1


def test_ask_gives_answers_with_their_places(full_client: httpx.Client) -> None:
    text = "good olaparib breast cancer"
    said = full_client.post("/ask", json={"text": text, "question": "which?"}).json()
    first = said["answers"][0]
    assert first["text"] == text[first["start"] : first["end"]] == "olaparib breast cancer"
    assert ("is not sure" in (said["note"] or "")) == (first["score"] < 0.5)
    empty = full_client.post("/ask", json={"text": "", "question": "which?"}).json()
    assert (empty["answers"], "does not know" in empty["note"]) == ([], True)


def test_a_list_question_is_answered_by_a_reader_of_factoids_and_yes_or_no_is_not(full_client: httpx.Client) -> None:
    body = {"text": "olaparib breast cancer", "question": "which?"}
    listed = full_client.post("/ask", json={**body, "type": "list"})
    assert listed.json()["answers"][0]["text"] == "olaparib breast cancer"
    answer = full_client.post("/ask", json={**body, "type": "yesno"})
    assert (answer.status_code, "yesno" in answer.json()["error"]) == (404, True)


def test_a_question_to_a_text_is_refused_as_one_to_an_index_is(full_client: httpx.Client) -> None:
    text = "olaparib breast cancer"
    answer = full_client.post("/ask", json={"text": text, "question": "Does olaparib help?"}).json()
    assert (answer["answers"], "yes/no" in answer["note"]) == ([], True)
    german = {"text": text, "question": "Welche Gene sind das und was ist der Grund?"}
    assert full_client.post("/ask", json=german).status_code == 422


def test_answers_to_a_text_do_not_overlap(full_client: httpx.Client) -> None:
    body = {"text": "olaparib breast cancer good olaparib cancer", "question": "which?"}
    answers = full_client.post("/ask", json=body).json()["answers"]
    places = [place for answer in answers for place in range(answer["start"], answer["end"])]
    assert len(answers) > 1
    assert len(places) == len(set(places))


@pytest.mark.parametrize("path", ["/classify", "/ask"])
def test_what_no_model_does_is_said(client: httpx.Client, path: str) -> None:
    answer = client.post(path, json={"text": "x", "question": "which?"})
    assert (answer.status_code, "words" in answer.json()["error"]) == (404, True)


# Office documents


def office_files(folder: Path) -> dict[str, bytes]:
    """A Word document, a PDF and a sheet of the same sentence."""
    docx, openpyxl = pytest.importorskip("docx"), pytest.importorskip("openpyxl")
    pytest.importorskip("pypdfium2")
    word, book = docx.Document(), openpyxl.Workbook()
    word.add_heading("A trial", 0)
    word.add_paragraph(TEXT)
    word.save(folder / "a.docx")
    book.active.append(["id", "text"])
    book.active.append(["1", TEXT])
    book.save(folder / "a.xlsx")
    pdf = make_pdf([[(50, 780, 18, "A trial"), (50, 700, 11, TEXT)]])
    return {"a.pdf": pdf, **{name: (folder / name).read_bytes() for name in ("a.docx", "a.xlsx")}}


def test_office_documents_are_annotated_as_the_command_line_does(
    client: httpx.Client, annotator: Annotator, tmp_path: Path
) -> None:
    reads = client.get("/model").json()["reads"]
    for name, body in office_files(tmp_path).items():
        assert name.partition(".")[2] in reads
        (tmp_path / name).write_bytes(body)
        (expected,) = annotator.annotate(lexome.read(tmp_path / name))
        headers = {"content-type": "application/octet-stream"}
        for params in ({"name": name}, {"from": name.partition(".")[2]}, {}):
            answer = client.post("/annotate", params=params, content=body, headers=headers)
            assert mentions(answer) == FOUND
            [raw] = answer.json()["documents"]
            assert from_json(json.dumps(raw)).passages == expected.passages


def test_a_word_document_with_others_inside_is_one(client: httpx.Client, tmp_path: Path) -> None:
    files = office_files(tmp_path)
    with zipfile.ZipFile(tmp_path / "a.docx", "a", zipfile.ZIP_STORED) as word:
        word.writestr("word/embeddings/a.pdf", files["a.pdf"])
        word.writestr("word/embeddings/a.xlsx", files["a.xlsx"])
    answer = client.post("/annotate", content=(tmp_path / "a.docx").read_bytes())
    assert mentions(answer) == FOUND


def test_an_office_document_has_the_limits_of_others(serving: Serving, annotator: Annotator, tmp_path: Path) -> None:
    files = office_files(tmp_path)
    with serving(annotator, limits=patient_limits(characters=20)) as client:
        for name, body in files.items():
            answer = client.post("/annotate", params={"name": name}, content=body)
            assert (answer.status_code, "characters" in answer.text) == (413, True), answer.text


@pytest.mark.parametrize(
    ("body", "format", "name", "expected"),
    [
        (b"%PDF-1.4", None, None, True),
        # Readers of PDF and zip files skip what is before their beginning.
        (b"\n%PDF-1.4", "pdf", None, True),
        (b"x", None, "A.XLSX", True),
        (b"x", None, "a.docx.gz", True),
        (b"x", "text", "pdf-notes.txt", False),
        (b"{}", None, None, False),
    ],
)
def test_what_may_be_an_office_document_is_not_read_in_the_event_loop(
    body: bytes, format: str | None, name: str | None, expected: bool
) -> None:
    assert takes_process(body, format=format, name=name) == expected
