"""`lexome evaluate` as a user meets it, in its own process."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from patience import PATIENCE_S

import lexome
from lexome import Argument, Document, Passage, Relation, Span

TEXT = "BRCA1 causes breast cancer."


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lexome", "evaluate", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)


def doc(id: str, *mentions: tuple[str, int, int]) -> Document:
    spans = (Span(f"T{start}", type, ((start, end),), TEXT[start:end]) for type, start, end in mentions)
    return Document(id, (Passage(0, TEXT),), tuple(spans))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    both = (("Gene", 0, 5), ("Disease", 13, 26))
    lexome.write(tmp_path / "gold.jsonl", [doc("1", *both), doc("2", *both), doc("3", *both)])
    lexome.write(tmp_path / "pred.jsonl", [doc("1", *both), doc("2", ("Gene", 0, 5), ("Disease", 20, 26)), doc("9")])
    lexome.write(tmp_path / "other.jsonl", [doc("1", *both), doc("2"), doc("3")])
    return tmp_path


def test_all_measures_side_by_side(folder: Path) -> None:
    result = run(folder / "pred.jsonl", folder / "gold.jsonl", "--samples", "50", "--no-types", "--explain", "1")
    assert result.returncode == 0, result.stderr
    assert re.sub(r"\d+\.\d+-\d+\.\d+ +", "low-high  ", result.stdout).splitlines() == [
        "documents  3 gold, 2 of them predicted (matched by id)",
        "missing    1 gold documents are not among the predictions (3)",
        "           and are scored as documents without predictions",
        "extra      1 predicted documents are not gold (9)",
        "           and are not scored",
        "",
        "mentions                                P      R     F1  95%             right  spurious  missed",
        "  strict                            75.00  50.00  60.00  low-high  3         1       3",
        "  relaxed (overlap)                100.00  66.67  80.00  low-high  4         0       2",
        "  characters                       100.00  53.70  69.88  low-high  29         0      25",
        "  strict, types ignored             75.00  50.00  60.00  low-high  3         1       3",
        "  relaxed, types ignored           100.00  66.67  80.00  low-high  4         0       2",
        "",
        "mentions that differ: 1 wrong boundary, 2 missed",
        "  wrong boundary",
        "    2: gold Disease 'breast cancer', predicted Disease 'cancer'",
        "      BRCA1 causes [breast cancer].",
        "  missed",
        "    3: gold Gene 'BRCA1'",
        "      [BRCA1] causes breast cancer.",
        "    and 1 more",
    ]


def test_json_is_for_programs(folder: Path) -> None:
    result = run(
        folder / "pred.jsonl", folder / "gold.jsonl", "--against", folder / "other.jsonl", "--json", "--explain", "1"
    )
    told = json.loads(result.stdout)
    strict = told["scores"][0]
    assert (strict["section"], strict["measure"], strict["score"], strict["value"]) == ("mentions", "strict", "F1", 0.6)
    assert strict["types"]["Gene"]["true_positives"] == 2
    assert told["documents"] == {"gold": 3, "matched": 2, "matched_by": "id", "missing": ["3"], "extra": ["9"]}
    assert told["differences"] == {"mentions": {"wrong boundary": 1, "missed": 2}}
    assert [one["kind"] for one in told["examples"]] == ["wrong boundary", "missed"]
    assert told["against"][0]["difference"] == pytest.approx(0.6 - 0.5)
    assert 0 < told["against"][0]["p_randomization"] <= 1


def test_types_have_lines_and_the_other_system_a_table(folder: Path) -> None:
    result = run(folder / "pred.jsonl", folder / "gold.jsonl", "--against", folder / "other.jsonl", "--samples", "20")
    assert "    Gene                           100.00  66.67  80.00" in result.stdout
    assert "    mean of types" in result.stdout
    assert "  mentions: strict, F1                           60.00   50.00   +10.00" in result.stdout


def test_relations_are_scored_unless_they_are_switched_off(folder: Path) -> None:
    one = doc("1", ("Gene", 0, 5), ("Disease", 13, 26))
    cause = Relation("R1", "causes", (Argument("cause", "T0"), Argument("effect", "T13")))
    lexome.write(folder / "related.jsonl", [replace(one, relations=(cause,))])
    sections = {}
    for option in ("--relations", "--no-relations"):
        told = json.loads(run(folder / "related.jsonl", folder / "related.jsonl", option, "--json").stdout)
        sections[option] = {score["section"] for score in told["scores"]}
    assert sections == {"--relations": {"mentions", "relations"}, "--no-relations": {"mentions"}}


def test_formats_may_differ_and_have_options(folder: Path) -> None:
    (folder / "gold.tsv").write_text("BRCA1\tB\ncauses\tO\n")
    (folder / "pred.conll").write_text("BRCA1\tB-Gene\ncauses\tO\n")
    result = run(
        folder / "pred.conll", folder / "gold.tsv", "--gold-from", "conll", "--set", "gold.type=Gene", "--json"
    )
    assert json.loads(result.stdout)["scores"][0]["value"] == 1


@pytest.mark.parametrize(
    ("arguments", "value", "code"),
    [
        (("pred.jsonl", "absent.jsonl"), "absent.jsonl", 1),
        (("pred.jsonl", "gold.jsonl", "--only", "Cell"), "Cell", 2),
        (("pred.jsonl", "gold.jsonl", "--set", "type"), "'type'", 2),
        (("pred.jsonl", "gold.jsonl", "--set", "them.type=G"), "'them'", 2),
        (("pred.jsonl", "gold.jsonl", "--from", "jsnl"), "'jsnl'", 2),
        (("-", "gold.jsonl"), "standard input", 1),
    ],
)
def test_wrong_usage_names_the_value(folder: Path, arguments: tuple[str, ...], value: str, code: int) -> None:
    paths = [folder / argument if argument.endswith(".jsonl") else argument for argument in arguments]
    result = run(*paths)
    assert value in result.stderr
    assert "Traceback" not in result.stderr
    assert result.returncode == code
