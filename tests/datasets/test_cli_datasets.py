"""`lexome datasets` and `lexome convert-bioasq` from the command line."""

import json
import subprocess
import sys
from pathlib import Path

from made_sets import GENES, LONG, columns, write

LEXOME = [sys.executable, "-m", "lexome"]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*LEXOME, *map(str, arguments)], capture_output=True, text=True)


def test_the_list_has_what_was_found_and_the_source_of_the_rest(tmp_path: Path) -> None:
    columns(tmp_path)
    write(tmp_path, {"s800/test.tsv": GENES})
    result = run("datasets", "--data", tmp_path)
    assert result.returncode == 0, result.stderr
    lines = {line.split()[0]: line for line in result.stdout.splitlines()}
    assert lines["dataset"].split() == ["dataset", "task", "train/dev/test", "license", "found"]
    assert "15,197/3,061/6,325 mentions" in lines["BC2GM"]
    assert lines["BC2GM"].endswith("  yes")
    assert "incomplete: no train, dev; source: NERdata of BioBERT's authors" in lines["s800"]
    assert "portal.dbmi.hms.harvard.edu" in lines["i2b2-2014"]
    assert "5,330 documents in 10 folds" in lines["GAD"]


def test_the_table_as_json(tmp_path: Path) -> None:
    described = json.loads(run("datasets", "--data", columns(tmp_path), "--json").stdout)
    (own,) = (one for one in described if one["name"] == "BC2GM")
    assert (own["here"], own["missing"], own["folder"]) == (True, [], str(tmp_path / "BC2GM"))
    assert own["task"] == {"kind": "ner", "types": ["Gene"]}


def test_one_dataset_is_described_and_checked(tmp_path: Path) -> None:
    columns(tmp_path, train=LONG, test=LONG)
    result = run("datasets", "BC2GM", "--data", tmp_path)
    assert result.returncode == 0, result.stderr
    assert "license   not stated" in result.stdout
    assert "dev       1 documents, 1 passages, 1 sentences, 2 mentions, 2 mentions Gene" in result.stdout
    assert "warning   documents of test that are in train too: 1 by text (such as test-1)" in result.stdout
    assert run("datasets", "BC2GM", "--data", tmp_path, "--strict").returncode == 1


def test_notes_of_the_reader_are_shown(tmp_path: Path) -> None:
    rows = '{"text": "BRCA1 binds.", "label": "a", "color": "red"}\n'
    folder = write(tmp_path / "own", {"train.jsonl": rows, "dev.jsonl": rows})
    result = run("datasets", folder, "--task", "classes")
    assert "noted     2 field 'color' ignored" in result.stdout, result.stdout
    (note,) = json.loads(run("datasets", folder, "--task", "classes", "--json").stdout)["check"]["notes"].items()
    assert note == ("field 'color' ignored", 2)


def test_a_folder_without_a_task_is_asked_for_one(tmp_path: Path) -> None:
    result = run("datasets", tmp_path)
    assert (result.returncode, "--task" in result.stderr) == (2, True)


def test_an_empty_split_ends_with_one(tmp_path: Path) -> None:
    result = run("datasets", "BC2GM", "--data", columns(tmp_path, devel="\n"), "--json")
    assert result.returncode == 1
    assert "the split dev is empty" in json.loads(result.stdout)["check"]["errors"][0]


def test_a_missing_dataset_has_its_source(tmp_path: Path) -> None:
    result = run("datasets", "MedNLI", "--data", tmp_path)
    assert result.returncode == 0
    assert "source    physionet.org/content/mednli" in result.stdout
    assert "expected  train: mli_train_v1.jsonl or train.tsv" in result.stdout


def test_an_unknown_dataset_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    result = run("datasets", "BC2MG", "--data", tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert "'BC2GM'" in result.stderr


def test_a_folder_of_one_s_own_is_checked(tmp_path: Path) -> None:
    result = run("datasets", write(tmp_path / "own", {"train.tsv": GENES, "dev.tsv": GENES}), "--task", "ner")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[:2] == [f"dataset   own: the folder {tmp_path / 'own'}", "task      ner: Entity"]
    assert "dev       1 documents" in result.stdout
    assert run("datasets", "--task", "ner").returncode == 2


def golden(tmp_path: Path) -> Path:
    shared = {"body": "Which?", "snippets": [{"text": "It is BRCA1.", "document": "http://x/pubmed/1"}]}
    questions = [
        {**shared, "id": "a", "type": "factoid", "exact_answer": [["BRCA1"]]},
        {**shared, "id": "b", "type": "yesno", "exact_answer": "no"},
    ]
    return write(tmp_path, {"golden.json": json.dumps({"questions": questions})}) / "golden.json"


def test_bioasq_is_converted(tmp_path: Path) -> None:
    out, yesno = tmp_path / "out.json", tmp_path / "yesno.json"
    result = run("convert-bioasq", golden(tmp_path), out, "--yesno", yesno)
    assert result.returncode == 0, result.stderr
    assert "1 factoid question written" in result.stdout
    assert [article["title"] for article in json.loads(out.read_text())["data"]] == ["a"]
    assert [article["title"] for article in json.loads(yesno.read_text())["data"]] == ["b"]


def test_skipped_yes_no_questions_are_counted(tmp_path: Path) -> None:
    result = run("convert-bioasq", golden(tmp_path), tmp_path / "out.json")
    assert "1 yes/no questions" in result.stderr
    assert "--yesno" in result.stderr


def test_wrong_usage_of_convert_bioasq(tmp_path: Path) -> None:
    assert run("convert-bioasq", golden(tmp_path)).returncode == 2
    assert run("convert-bioasq", golden(tmp_path), tmp_path / "o.json", "--unanswerable", "maybe").returncode == 2
