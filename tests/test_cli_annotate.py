"""`lexome annotate` as a user meets it: texts, files and folders in, terminal, files and folders out."""

import gzip
import json
import os
import pty
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest
from dictionary_models import WORDS, dictionary_model
from interrupts import hear_interrupts
from patience import PATIENCE_S, wait_until
from rights import without_rights
from services import table_model
from typer.testing import CliRunner, Result

import lexome
from lexome import Document, Passage, Span
from lexome.cli import app
from lexome.errors import LexomeError
from lexome.infer.annotation import parse_inputs
from lexome.tasks import Classes, Inference

TEXT = "Mutations in BRCA1 raise the risk of breast cancer; olaparib helps, aspirin less."
FOUND = [("BRCA1", "Gene"), ("breast cancer", "Disease"), ("olaparib", "Chemical"), ("aspirin", "Chemical")]
DOCS = [Document(str(number), (Passage(0, TEXT, "abstract"),)) for number in (1, 2)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dictionary_model(tmp_path_factory.mktemp("models") / "dictionary")


def annotate(*words: object, stdin: str | None = None) -> Result:
    """The verb in this process: the model is opened in milliseconds, an interpreter is not."""
    return CliRunner().invoke(app, ["annotate", *map(str, words)], input=stdin)


def program(*words: object, **more: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "lexome", "annotate", *map(str, words)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=hear_interrupts, **more
    )


def mentions(path: Path, format: str | None = None) -> list[list[tuple[str, str]]]:
    return [[(span.text, span.type) for span in doc.spans] for doc in lexome.read(path, format)]


# Inputs


def test_a_classifier_gives_labels_with_their_probabilities(tmp_path: Path) -> None:
    folder = table_model(tmp_path / "classes", Classes(["good", "bad"]), {"good": 0, "bad": 1})
    done = annotate("--model", folder, "bad bad good")
    assert "  labels: bad 0." in done.stdout, done.stdout
    done = annotate("--model", folder, "bad bad good", "--to", "csv", "--quiet")
    head, row = done.stdout.removeprefix("\ufeff").splitlines()
    assert head == "document,pmid,label,score"
    assert row.startswith("text,,bad,0.")


@pytest.mark.parametrize("out", ["pairs.jsonl", "folder"])
def test_a_document_that_is_no_pair_is_rejected_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = table_model(tmp_path / "pairs", Inference(["good", "bad"]), {"good": 0, "bad": 1})
    pair = {"sentence1": "bad bad", "sentence2": "good"}
    lines = [{"id": "1", **pair}, {"id": "2", "text": "bad"}, {"id": "3", **pair}]
    Path("in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = annotate("--model", folder, "in.jsonl", "--out", out, *(["--jobs", "0"] if out == "folder" else []))
    assert done.exit_code == 0, done.output
    assert [doc.id for doc in lexome.read("folder/in.jsonl" if out == "folder" else out)] == ["1", "3"]
    (reject,) = Path(f"{out}.rejects.jsonl").read_text().splitlines()
    assert (json.loads(reject)["id"], json.loads(reject)["reason"]) == ("2", "not_a_pair")


def test_a_text_is_shown_with_types_and_scores(model: Path) -> None:
    done = annotate("--model", model, "Mutations in BRCA1 raise the risk of breast cancer.")
    assert (done.exit_code, done.stdout) == (
        0,
        "Mutations in [BRCA1|Gene NCBIGene:672 0.99] raise the risk of [breast\ncancer|Disease mesh:D001943 0.96].\n",
    )
    assert done.stderr.splitlines()[1:5] == [
        "found      1 Disease",
        "found      1 Gene",
        "linked     1 Disease",
        "linked     1 Gene",
    ]


def test_quiet_leaves_the_documents_alone(model: Path) -> None:
    done = annotate("--model", model, "BRCA1 again", "--quiet")
    assert (done.stdout, done.stderr) == ("[BRCA1|Gene NCBIGene:672 0.99] again\n", "")


def test_several_texts_are_numbered(model: Path) -> None:
    done = annotate("--model", model, "in BRCA1", "in TP53", "--quiet")
    assert done.stdout == "text-1\nin [BRCA1|Gene NCBIGene:672 0.99]\n\ntext-2\nin [TP53|Gene NCBIGene:7157 0.90]\n"


def test_a_word_is_a_text_where_that_is_said(model: Path) -> None:
    done = annotate("--model", model, "--text", "BRCA1", "--quiet")
    assert done.stdout == "[BRCA1|Gene NCBIGene:672 0.99]\n"


def test_a_very_long_text_is_no_path(model: Path) -> None:
    done = annotate("--model", model, "BRCA1 and " * 1000, "--json")
    assert len(json.loads(done.stdout)["spans"]) == 1000


@pytest.mark.parametrize("words", [(), ("-",)])
def test_standard_input_is_read(model: Path, words: tuple[str, ...]) -> None:
    done = annotate("--model", model, *words, "--quiet", stdin="TP53\n")
    assert done.stdout.splitlines()[-1] == "[TP53|Gene NCBIGene:7157 0.90]"


def test_standard_input_is_read_where_texts_are_said_and_none_is_given(model: Path) -> None:
    done = annotate("--model", model, "--text", "--quiet", "--no-link", stdin="TP53\n")
    assert done.stdout.splitlines()[-1] == "[TP53|Gene 0.90]"


def test_each_line_is_a_document_where_that_is_asked(model: Path) -> None:
    done = annotate("--model", model, "-", "--lines", "--to", "jsonl", stdin="in TP53\n\nin BRCA1\n")
    assert [json.loads(line)["spans"][0]["text"] for line in done.stdout.splitlines()] == ["TP53", "BRCA1"]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to stand in with a few documents, in files, a folder and an archive."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in" / "deep").mkdir(parents=True)
    lexome.write("in/a.bioc.xml", DOCS)
    lexome.write("in/deep/b.jsonl.gz", DOCS[:1])
    Path("in/my notes.txt").write_text("olaparib in melanoma")
    with tarfile.open("all.tar", "w") as archive:
        archive.add("in")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "documents"),
    [
        (["in/a.bioc.xml"], 2),
        (["in/my notes.txt"], 1),
        (["in"], 4),
        (["in/*.xml", "in/deep/*"], 3),
        (["in/**/*.gz"], 1),
        (["all.tar"], 4),
        (["in/a.bioc.xml", "BRCA1 by the way"], 3),
    ],
)
def test_files_folders_patterns_and_archives_are_read(
    model: Path, desk: Path, words: list[str], documents: int
) -> None:
    done = annotate("--model", model, *words, "--out", "out.jsonl", "--json")
    assert (done.exit_code, json.loads(done.stdout)["documents"]) == (0, documents), done.stderr
    assert len(mentions(Path("out.jsonl"))) == documents


# Outputs


@pytest.mark.parametrize("format", ["bioc-xml", "bioc-json", "pubtator", "conll", "jsonl", "parquet"])
def test_every_format_holds_the_same_mentions(model: Path, desk: Path, format: str) -> None:
    done = annotate("--model", model, "in/a.bioc.xml", "--to", format, "--out", "made.out")
    assert done.exit_code == 0, done.stderr
    found = mentions(Path("made.out"), format)
    flat = [mention for doc in found for mention in doc]
    assert flat == FOUND * 2


def test_a_table_has_the_mentions_and_counts_their_names(model: Path, desk: Path) -> None:
    assert annotate("--model", model, "in/a.bioc.xml", "--out", "m.tsv").exit_code == 0
    rows = [line.split("\t") for line in (desk / "m.tsv").read_text().splitlines()]
    assert rows[0][5] == "text"
    assert len(rows) > 1
    assert annotate("--model", model, "in/a.bioc.xml", "--to", "csv", "--counts", "--out", "c.csv").exit_code == 0
    counts = [line.split(",") for line in (desk / "c.csv").read_text(encoding="utf-8-sig").splitlines()]
    assert sum(int(row[-1]) for row in counts[1:]) == len(rows) - 1


def test_options_of_formats_are_set_as_in_convert(model: Path, desk: Path) -> None:
    (desk / "latin.txt").write_bytes("Caf\u00e9 au lait spots and BRCA1.".encode("latin-1"))
    words = ("--from", "text", "--set", "encoding=latin-1", "--set", "write.scheme=iobes", "--out", "out.conll")
    assert annotate("--model", model, "latin.txt", *words).exit_code == 0
    assert "Caf\u00e9\tO" in (desk / "out.conll").read_text()


def test_brat_is_a_folder_of_pairs(model: Path, desk: Path) -> None:
    assert annotate("--model", model, "in/a.bioc.xml", "--to", "brat", "--out", "brat").exit_code == 0
    assert mentions(Path("brat")) == [FOUND, FOUND]


def test_a_brat_folder_below_the_inputs_is_not_read(model: Path, desk: Path) -> None:
    for _ in range(2):
        done = annotate("--model", model, "in", "--to", "brat", "--out", "in/brat", "--json")
        assert json.loads(done.stdout)["documents"] == 4


def test_html_marks_the_mentions(model: Path, desk: Path) -> None:
    assert annotate("--model", model, "in/a.bioc.xml", "--out", "page.html").exit_code == 0
    assert Path("page.html").read_text().count("<mark") == 8


def test_a_format_goes_to_standard_output_as_it_is(model: Path) -> None:
    done = annotate("--model", model, TEXT, "--to", "pubtator", "--quiet")
    assert "text\t13\t18\tBRCA1\tGene" in done.stdout


def test_json_is_a_document_a_line(model: Path) -> None:
    done = annotate("--model", model, TEXT, "--json", "--quiet")
    assert [(span["text"], span["type"]) for span in json.loads(done.stdout)["spans"]] == FOUND


def test_mentions_that_were_there_stay_and_are_not_counted_as_found(model: Path, desk: Path) -> None:
    spans = (Span("T1", "Species", ((0, 9),), "Mutations"), Span("T2", "Gene", ((19, 24),), "raise"))
    lexome.write("gold.jsonl", [Document("1", (Passage(0, TEXT),), spans)])
    done = annotate("--model", model, "gold.jsonl", "--out", "out.jsonl", "--json")
    assert json.loads(done.stdout)["mentions"] == {"Chemical": 2, "Disease": 1, "Gene": 1}
    assert mentions(Path("out.jsonl"))[0] == [("Mutations", "Species"), *FOUND]


# Choosing


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (["--types", "Gene"], {"BRCA1"}),
        (["--types", "Gene,Disease"], {"BRCA1", "breast cancer"}),
        (["--min-score", "0.7"], {"BRCA1", "breast cancer", "olaparib"}),
        (["--min-score", "Chemical=0.7"], {"BRCA1", "breast cancer", "olaparib"}),
        (["--min-score", "0.98", "--min-score", "Disease=0.5"], {"BRCA1", "breast cancer", "olaparib"}),
        (["--min-score", "0.98,Disease=0.99"], {"BRCA1", "olaparib"}),
    ],
)
def test_types_and_scores_choose(model: Path, options: list[str], left: set[str]) -> None:
    done = annotate("--model", model, TEXT, "--json", *options)
    assert {span["text"] for span in json.loads(done.stdout)["spans"]} == left


def test_extra_types_are_found_and_counted_only_by_name(tmp_path: Path) -> None:
    words = {**WORDS, "risk": ("B-Risk", 5.0)}
    model = dictionary_model(tmp_path / "words", words, types=("Gene", "Disease", "Chemical", "Risk"), extra=("Risk",))
    for options, left in (([], {"BRCA1", "breast cancer"}), (["--types", "Gene,Risk"], {"BRCA1", "risk"})):
        done = annotate("--model", model, TEXT, "--json", "--min-score", "0.8,Chemical=0.999", *options)
        assert {span["text"] for span in json.loads(done.stdout)["spans"]} == left
        assert ("1 Risk" in done.stderr) == bool(options)
    done = annotate("--model", model, TEXT, "--types", "Plant")
    error = done.exception
    assert isinstance(error, LexomeError)
    assert (error.code, error.value, "Risk" in str(error)) == ("unknown-type", "Plant", True)


def test_explain_says_what_was_dropped_and_why(model: Path) -> None:
    done = annotate("--model", model, TEXT, "--explain", "--types", "Gene,Chemical", "--min-score", "0.7", "--quiet")
    lines = [line for line in done.stdout.splitlines() if line.startswith("  dropped ")]
    for place in ("68-75 'aspirin' Chemical 0.67: ", "37-50 'breast cancer' Disease 0.96: "):
        assert any(line.startswith(f"  dropped {place}") for line in lines)


def test_explain_for_programs(model: Path) -> None:
    done = annotate("--model", model, TEXT, "--explain", "--json", "--min-score", "Chemical=0.7")
    first = json.loads(done.stdout)["dropped"][0]
    assert (first["text"], first["start"], "0.67" in first["why"]) == ("aspirin", 68, True)


def test_what_explaining_takes_is_not_counted(model: Path) -> None:
    plain, explained = (annotate("--model", model, TEXT, TEXT, *more).stderr for more in ([], ["--explain"]))
    assert explained.splitlines()[0] == plain.splitlines()[0]


def test_two_models_work_one_after_another(model: Path, tmp_path: Path) -> None:
    other = dictionary_model(tmp_path / "species", {"mice": ("B-Species", 6.0)}, types=("Species",))
    done = annotate("--model", model, "--model", other, "BRCA1 in mice", "--quiet")
    assert done.stdout == "[BRCA1|Gene MGI:104537 0.99] in [mice|Species NCBITaxon:10090 1.00]\n"


# Colors


def test_color_adds_codes_and_takes_nothing_away(model: Path) -> None:
    plain = annotate("--model", model, TEXT, "--quiet").stdout
    colored = annotate("--model", model, TEXT, "--quiet", "--color").stdout
    assert "\x1b[" not in plain
    assert "\x1b[" in colored
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == plain


@pytest.mark.parametrize(
    ("options", "environment", "colored"),
    [([], {}, True), (["--no-color"], {}, False), ([], {"NO_COLOR": "1"}, False), ([], {"TERM": "dumb"}, False)],
)
def test_a_terminal_has_colors_unless_told_not_to(
    model: Path, options: list[str], environment: dict[str, str], colored: bool
) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "lexome", "annotate", "--model", model, "BRCA1 here", "--quiet", *options]
    base = {name: held for name, held in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm"}
    subprocess.run(command, stdout=theirs, check=True, env=base | environment)
    os.close(theirs)
    shown = os.read(ours, 4096).decode()
    os.close(ours)
    assert ("\x1b[" in shown, "BRCA1" in shown) == (colored, True)


# Errors


@pytest.mark.parametrize(
    ("words", "exit_code", "code", "value"),
    [
        (["missing.xml"], 1, "missing-file", "missing.xml"),
        (["my notes/missing file.xml"], 1, "missing-file", "my notes/missing file.xml"),
        (["nothing/*.xml"], 1, "missing-file", "nothing/*.xml"),
        (["BRCA1"], 1, "missing-file", "BRCA1"),
        (["29446767"], 1, "missing-file", "29446767"),
        ([""], 2, "empty-text", None),
        ([TEXT, "--types", "genes"], 2, "unknown-type", "genes"),
        ([TEXT, "--types", ","], 2, "empty-types", None),
        ([TEXT, "--min-score", "high"], 2, "invalid-score", "high"),
        ([TEXT, "--min-score", "Gene=1.5"], 2, "invalid-score", "Gene=1.5"),
        ([TEXT, "--min-score", "Plant=0.5"], 2, "unknown-type", "Plant"),
        ([TEXT, "--to", "brat"], 2, "needs-folder", "brat"),
        ([TEXT, "--out", "folder/"], 2, "conflicting-options", "--out"),
        ([TEXT, "--explain", "--to", "jsonl"], 2, "conflicting-options", "--explain"),
        (["in", "--explain", "--out", "folder"], 2, "conflicting-options", "--explain"),
        ([TEXT, "--out", ""], 2, "empty-option", "--out"),
        ([TEXT, "--jobs", "2"], 2, "conflicting-options", "--out"),
        ([TEXT, "--address", "head:6379"], 2, "conflicting-options", "--out"),
        ([TEXT, "--set", "encoding=latin-1"], 2, "conflicting-options", "--set"),
        ([TEXT, "--threads", "99999"], 2, "invalid-threads", 99999),
        (["in/my notes.txt", "--set", "encoding=punycode"], 2, "unknown-encoding", "punycode"),
        (["in", "--rejects", "in"], 1, "is-a-directory", Path("in")),
        ([TEXT, "--engine", "dask", "--out", "folder"], 2, "conflicting-options", "--out"),
        (["in", "--part", "1/2", "--redo", "--out", "folder"], 2, "conflicting-options", "--redo"),
        (["in", "--out", "in"], 2, "same-file", Path("in")),
        (["all.tar", "in/a.bioc.xml", "--out", "in"], 2, "same-file", Path("in/a.bioc.xml")),
    ],
)
def test_what_is_wrong_is_said(
    model: Path, desk: Path, words: list[str], exit_code: int, code: str, value: object
) -> None:
    error = annotate("--model", model, *words).exception
    assert isinstance(error, LexomeError)
    assert (error.exit_code, error.code, error.value) == (exit_code, code, value), str(error)
    assert ("PMID" in str(error)) == (words == ["29446767"])


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ([TEXT, "--to", "docx"], "docx"),
        ([TEXT, "--to", "pubmed"], "pubmed"),
        ([TEXT, "--out", "file.odd"], "file.odd"),
        (["in", "--engine", "dask", "--out", "folder"], "dask"),
        (["in", "--part", "3/2", "--out", "folder"], "3/2"),
    ],
)
def test_options_that_other_packages_refuse_are_named(model: Path, desk: Path, words: list[str], value: str) -> None:
    error = annotate("--model", model, *words).exception
    assert isinstance(error, LexomeError)
    assert (error.exit_code, value in str(error)) == (2, True), str(error)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda folder: None, "missing-folder"),
        (lambda folder: folder.mkdir(), "missing-file"),
        (lambda folder: folder.write_text("{}"), "not-a-folder"),
        (lambda folder: (dictionary_model(folder) / "model.onnx").write_bytes(b"broken"), "invalid-graph"),
    ],
)
def test_what_is_no_model_is_refused(tmp_path: Path, make: object, code: str) -> None:
    make(tmp_path / "model")  # type: ignore[operator]
    error = annotate("--model", tmp_path / "model", TEXT).exception
    assert isinstance(error, LexomeError)
    assert (error.exit_code, error.code, str(tmp_path / "model") in str(error)) == (1, code, True), str(error)


def test_a_command_that_fails_says_so_in_one_line(model: Path, desk: Path) -> None:
    done = program("--model", model, "missing.xml")
    out, err = done.communicate(timeout=PATIENCE_S)
    assert (done.returncode, out, err.startswith("error: missing.xml"), err.count("\n")) == (1, "", True, 1)


def test_lines_of_a_text_are_documents() -> None:
    inputs = parse_inputs(["BRCA1 binds RAD51.\n\nTP53", "a b"], text=True, lines=True)
    assert [(doc.id, doc.text) for doc in inputs.text_documents()] == [
        ("text-1", "BRCA1 binds RAD51."),
        ("text-2", "TP53"),
        ("text-3", "a b"),
    ]


def test_a_file_in_a_folder_that_may_not_be_opened_is_not_said_to_be_missing() -> None:
    with tempfile.TemporaryDirectory() as closed:
        Path(closed).chmod(0)
        with without_rights():
            inputs = parse_inputs([f"{closed}/note.txt"])
            with pytest.raises(PermissionError):
                lexome.read(inputs.paths)


def test_bad_documents_are_set_aside(model: Path, desk: Path) -> None:
    Path("mixed.jsonl").write_text('{"id": "1", "text": "BRCA1"}\nnonsense\n')
    done = annotate("--model", model, "mixed.jsonl", "--out", "out.jsonl")
    assert (done.exit_code, len(mentions(Path("out.jsonl")))) == (0, 1)
    assert "rejected   1 " in done.stdout
    assert json.loads(Path("out.jsonl.rejects.jsonl").read_text())["raw"] == "nonsense"


def test_a_file_of_nothing_but_bad_documents_is_an_error(model: Path, desk: Path) -> None:
    Path("latin.txt").write_bytes("naïve ".encode() + b"caf\xe9")
    error = annotate("--model", model, "latin.txt", "--quiet").exception
    assert isinstance(error, LexomeError)
    assert (error.code, error.value) == ("all-rejected", Path("rejects.jsonl"))
    assert json.loads(Path("rejects.jsonl").read_text())["reason"] == "wrong_encoding"


def test_what_is_said_of_another_encoding_leads_to_the_document(model: Path, desk: Path) -> None:
    Path("latin.txt").write_bytes(b"olaparib in caf\xe9 \x9d")  # which Windows-1252 does not have
    annotate("--model", model, "latin.txt", "--quiet")
    said = json.loads(Path("rejects.jsonl").read_text())["message"]
    command = said.partition("`lexome ")[2].partition("`")[0].replace("IN", "latin.txt")
    assert CliRunner().invoke(app, command.split()).exit_code == 0
    done = annotate("--model", model, "OUT.jsonl", "--quiet")
    assert done.stdout.splitlines()[-1].startswith("[olaparib|Chemical mesh:C531550 0.99] in café")


def test_strict_stops_at_the_first_bad_document(model: Path, desk: Path) -> None:
    Path("mixed.jsonl").write_text('{"id": "1", "text": "BRCA1"}\nnonsense\n')
    done = annotate("--model", model, "mixed.jsonl", "--out", "out.jsonl", "--strict")
    assert isinstance(done.exception, LexomeError)
    assert not Path("out.jsonl").exists()


def test_a_broken_file_is_named_and_ends_with_code_1(model: Path, desk: Path) -> None:
    Path("cut.jsonl.gz").write_bytes(gzip.compress(b'{"id": "1", "text": "BRCA1"}\n' * 1000)[:-30])
    done = annotate("--model", model, "cut.jsonl.gz", "in", "--out", "out.jsonl")
    assert (done.exit_code, "broken     cut.jsonl.gz" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("out", "said"),
    [
        (["--out", "-"], "broken     all.tar!cut.jsonl.gz: "),
        (["--out", "out.jsonl"], "broken     all.tar!cut.jsonl.gz: "),
        (["--out", "out", "--jobs", "0"], "error: 1 broken files in archives; see out.rejects.jsonl."),
    ],
)
def test_a_broken_file_inside_an_archive_ends_with_code_1_wherever_documents_go(
    model: Path, desk: Path, out: list[str], said: str
) -> None:
    Path("cut.jsonl.gz").write_bytes(gzip.compress(b'{"id": "1", "text": "BRCA1"}\n' * 1000)[:-30])
    with tarfile.open("all.tar", "w") as archive:
        for name in ("in/a.bioc.xml", "cut.jsonl.gz"):
            archive.add(name)
    done = annotate("--model", model, "all.tar", *out, "--quiet")
    assert (done.exit_code, said in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize(
    ("out", "aside"), [("-", "rejects.jsonl"), ("out.jsonl", "out.jsonl.rejects.jsonl"), ("out", "out.rejects.jsonl")]
)
def test_quiet_still_tells_what_was_set_aside(model: Path, desk: Path, out: str, aside: str) -> None:
    Path("mixed.jsonl").write_text('{"id": "1", "text": "BRCA1"}\nnonsense\n')
    done = annotate("--model", model, "mixed.jsonl", "--out", out, "--quiet")
    assert (done.exit_code, done.stderr) == (0, f"rejected   1 malformed_json, see {aside}\n")


def test_a_folder_of_nothing_but_bad_documents_is_an_error(model: Path, desk: Path) -> None:
    Path("bad.jsonl").write_text("nonsense\n")
    error = annotate("--model", model, "bad.jsonl", "--out", "out", "--quiet").exception
    assert isinstance(error, LexomeError)
    assert (error.code, error.value) == ("all-rejected", Path("out.rejects.jsonl"))


@pytest.mark.parametrize("out", [["--out", "out.pubtator"], ["--out", "out", "--to", "pubtator", "--jobs", "0"]])
def test_documents_that_the_writer_rejects_are_not_counted(model: Path, desk: Path, out: list[str]) -> None:
    Path("many.jsonl").write_text('{"id": "a|b", "text": "BRCA1"}\n' * 3)
    done = annotate("--model", model, "many.jsonl", *out, "--json")
    counts = json.loads(done.stdout)
    assert (counts["documents"], counts["mentions"], sum(counts["rejected"].values())) == (0, {}, 3)
    assert isinstance(done.exception, LexomeError)
    assert (done.exit_code, done.exception.exit_code, done.exception.code) == (1, 1, "all-rejected")
    Path("many.jsonl").write_text('{"id": "a|b", "text": "BRCA1"}\n{"id": "1", "text": "BRCA1 in TP53"}\n')
    done = annotate("--model", model, "many.jsonl", *out, "--json")
    counts = json.loads(done.stdout)
    assert (done.exit_code, counts["documents"], counts["mentions"]) == (0, 1, {"Gene": 2})


@pytest.mark.parametrize("out", [["--out", "-"], ["--out", "out", "--jobs", "0"]])
def test_hidden_files_in_a_folder_are_told_of(model: Path, desk: Path, out: list[str]) -> None:
    Path("in/.DS_Store").write_bytes(b"Bud1")
    done = annotate("--model", model, "in", *out)
    assert "noted      1 hidden file or folder skipped" in done.output.splitlines()


def test_an_output_that_is_also_input_is_refused(model: Path, desk: Path) -> None:
    error = annotate("--model", model, "in/a.bioc.xml", "--out", "in/a.bioc.xml").exception
    assert isinstance(error, LexomeError)
    assert (error.code, error.value) == ("same-file", Path("in/a.bioc.xml"))


@pytest.mark.parametrize("options", [["--out", "out.jsonl"], ["--rejects", "out.jsonl.rejects.jsonl"]])
def test_an_input_is_never_the_place_for_bad_documents(model: Path, desk: Path, options: list[str]) -> None:
    given = Path("out.jsonl.rejects.jsonl")
    given.write_text('{"id": "1", "text": "BRCA1"}\nnonsense\n')
    before = given.read_bytes()
    error = annotate("--model", model, given, *options).exception
    assert isinstance(error, LexomeError)
    assert (error.code, error.value) == ("foreign-output", given)
    assert given.read_bytes() == before


def test_bad_documents_of_before_are_not_read(model: Path, desk: Path) -> None:
    Path("in/mixed.jsonl").write_text('{"id": "1", "text": "BRCA1"}\nnonsense\n')
    said = [
        annotate("--model", model, "in", "--rejects", "in/rejects.jsonl", "--json", "--quiet").stdout for _ in range(2)
    ]
    assert said[0] == said[1]
    assert Path("in/rejects.jsonl").read_text().count("\n") == 1


def test_stopped_it_leaves_nothing_and_can_run_again(model: Path, desk: Path) -> None:
    os.mkfifo("docs.jsonl")
    started = program("--model", model, "docs.jsonl", "--out", "out.jsonl")
    with Path("docs.jsonl").open("w") as stream:
        stream.write('{"id": "1", "text": "w1"}\n')
        stream.flush()
        wait_until(lambda: list(desk.glob(".out.jsonl.*.part")) or started.poll() is not None)
        assert started.poll() is None
        started.send_signal(signal.SIGINT)
        _, message = started.communicate(timeout=PATIENCE_S)
    assert started.returncode == 130
    assert message == "interrupted: out.jsonl was not written. Run the same command again.\n"
    assert not list(desk.glob(".out.jsonl.*"))


def test_a_reader_that_has_seen_enough_is_no_error(model: Path, desk: Path) -> None:
    Path("many.txt").write_text("BRCA1 in melanoma\n" * 20_000)
    command = f"{sys.executable} -m lexome annotate --model {model} many.txt --lines | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.stdout, done.stderr) == ("many-1\n", "")


def test_a_run_with_nothing_left_to_do_says_so(model: Path, desk: Path) -> None:
    command = ("--model", model, "in", "--out", "out", "--jobs", "0")
    assert "complete" not in annotate(*command).stdout
    again = annotate(*command).stdout
    assert "outputs are complete already: nothing was done" in again
    assert "skipped" not in again
    Path("in/new.txt").write_text("BRCA1 binds.")
    assert "files that were done before" in annotate(*command).stdout


def test_what_was_not_written_is_named_in_one_line(tmp_path: Path) -> None:
    span = Span("T1", "Gene", ((0, 5),), "BRCA1", ("NCBIGene:672",), 0.9)
    lexome.write(tmp_path / "in.jsonl", [Document("1", (Passage(0, "BRCA1", "title"), Passage(6, "x")), (span,))])
    done = CliRunner().invoke(app, ["convert", str(tmp_path / "in.jsonl"), str(tmp_path / "out.conll")])
    noted = [line for line in done.stdout.splitlines() if "not written" in line]
    assert len(noted) == 1
    assert re.fullmatch(r"noted      (\d+) not written: (\d+ [a-z ]+, )+\d+ [a-z ]+", noted[0])
    assert all(f"1 {name}" in noted[0] for name in ("concepts", "scores", "passage offsets"))


@pytest.mark.parametrize(
    "words", [["29446767", "30102808"], ["PMID:29446767", "30102808"], ["PMID: 29446767, 30102808"]]
)
def test_pmids_are_answered_with_where_to_get_their_texts(model: Path, words: list[str]) -> None:
    error = annotate("--model", model, *words).exception
    assert isinstance(error, LexomeError)
    assert "Open https://pubmed.ncbi.nlm.nih.gov/?term=29446767,30102808, choose Save" in str(error)


def test_a_text_without_quotes_is_told_to_have_them(model: Path) -> None:
    error = annotate("--model", model, "BRCA1", "causes", "cancer").exception
    assert 'in quotes: "BRCA1 causes cancer"' in str(error)


def test_files_of_pmids_are_noted_or_refused(model: Path, tmp_path: Path) -> None:
    (tmp_path / "pmids.txt").write_text("29446767\n30102808\n")
    assert "1 document of PMIDs without text" in annotate("--model", model, tmp_path / "pmids.txt").stderr
    (tmp_path / "pmids.csv").write_text("PMID\n29446767\n30102808\n")
    error = annotate("--model", model, tmp_path / "pmids.csv").exception
    assert "has 2 PMIDs and no text. Lexome downloads nothing." in str(error)
