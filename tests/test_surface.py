"""Today's public surface is the first edition's, with the changes that the record of the second edition lists."""

import json
from pathlib import Path

import pytest
from surface import (
    COMMAND_LINE,
    FIRST_EDITION,
    INHERITANCE_KEY,
    PYTHON_NAMES,
    RECIPE_KEYS,
    RECORD,
    ROOT,
    SECTIONS,
    differences,
    public_surface,
    read_record,
)
from typer.testing import CliRunner

from lexome.cli import app

HINT = """\
{count} differences from the public surface of the first edition:

{problems}

Restore what is missing, or list the change in {record}: a row `old | new | why` under "## Recipe keys",
"## Command line" or "## Python names" ("removed" in place of a new name), or `section | name | why` under "## Added".
A row also covers what is below its name: a table's keys, a key's values, a command's options, a module's names."""


def test_the_surface_is_the_first_editions_with_the_changes_of_the_record() -> None:
    before = json.loads(FIRST_EDITION.read_text(encoding="utf-8"))
    problems = differences(before, public_surface(), read_record(RECORD.read_text(encoding="utf-8")))
    lines = "\n".join(problems)
    assert not problems, HINT.format(count=len(problems), problems=lines, record=RECORD.relative_to(ROOT))


def test_a_recipe_inherits_by_the_key_that_the_surface_lists(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text((ROOT / "recipes" / "tiny" / "build.toml").read_text(encoding="utf-8"))
    (tmp_path / "other.toml").write_text(f'stage = "build"\n{INHERITANCE_KEY} = "base"\nseed = 7\n')
    result = CliRunner().invoke(app, ["check", str(tmp_path / "other.toml")], catch_exceptions=False)
    assert result.exit_code == 0
    assert "seed = 7" in result.stdout
    assert "samples/pubmed_toy.xml" in result.stdout


BEFORE = {
    RECIPE_KEYS: ["finetune clip", "finetune head", "finetune head.width", "pretrain clip", "pretrain clip=never"],
    COMMAND_LINE: ["lexome embed", "lexome embed --batch VALUE", "lexome embed-all"],
    PYTHON_NAMES: ["lexome.sets.find", "lexome.sets.own.folder"],
}
RECORD_TEXT = """
# 20. Title

| not | a | change |
| --- | --- | --- |
| `of` | `any` | section |

## Recipe keys

Some words.

| old | new | why |
| --- | --- | --- |
| `clip` | `max_norm` | clearer |
| `finetune clip` | `norm` | a stage of its own |
| `head` | removed | unused |

## Command line

| old | new | why |
| --- | --- | --- |
| `lexome embed` | `lexome vectors` | clearer |

## Python names

| old | new | why |
| --- | --- | --- |
| `lexome.sets` | `lexome.datasets` | clearer |
| `lexome.sets.own.folder` | `lexome.datasets.dataset` | one module less |

## Added

| section | name | why |
| --- | --- | --- |
| Recipe keys | `pretrain mode` | needed |
"""
NOW = {
    RECIPE_KEYS: ["finetune norm", "pretrain max_norm", "pretrain max_norm=never", "pretrain mode", "pretrain mode=a"],
    COMMAND_LINE: ["lexome vectors", "lexome vectors --batch VALUE", "lexome embed-all"],
    PYTHON_NAMES: ["lexome.datasets.find", "lexome.datasets.dataset"],
}


def test_rows_rename_and_remove_names_and_all_below_them() -> None:
    assert differences(BEFORE, NOW, read_record(RECORD_TEXT)) == []


def test_without_rows_nothing_may_change() -> None:
    record = read_record("")
    assert differences(BEFORE, BEFORE, record) == []
    problems = differences(BEFORE, NOW, record)
    assert "Recipe keys: missing 'finetune clip'" in problems
    assert "Recipe keys: not in the first edition 'pretrain mode=a'" in problems
    assert len([problem for problem in problems if problem.startswith("Python names")]) == 4


@pytest.mark.parametrize("section", SECTIONS)
def test_a_row_about_a_name_that_never_was_is_a_problem(section: str) -> None:
    record = read_record(f"## {section}\n| old | new | why |\n|---|---|---|\n| `x.y` | `x.z` | none |\n")
    assert differences(BEFORE, BEFORE, record) == [
        f"{section}: the record changes 'x.y', which the first edition does not have"
    ]


def test_a_row_whose_new_name_is_not_there_is_a_problem() -> None:
    record = read_record(
        "## Recipe keys\n| old | new | why |\n|---|---|---|\n| `pretrain clip` | `pretrain norm` | w |\n"
    )
    assert differences(BEFORE, BEFORE, record) == [
        "Recipe keys: missing 'pretrain norm' (renamed from 'pretrain clip')",
        "Recipe keys: missing 'pretrain norm=never' (renamed from 'pretrain clip=never')",
        "Recipe keys: not in the first edition 'pretrain clip'",
        "Recipe keys: not in the first edition 'pretrain clip=never'",
    ]


def test_an_addition_that_is_not_there_is_a_problem() -> None:
    record = read_record("## Added\n| section | name | why |\n|---|---|---|\n| Python names | `lexome.new` | w |\n")
    assert differences(BEFORE, BEFORE, record) == [
        "Python names: the record adds 'lexome.new', which is not there, or not new"
    ]


@pytest.mark.parametrize(
    ("row", "seen"),
    [("Recipe keys\n| a | b |", "a"), ("Recipe keys\n| a | b | |", "a"), ("Added\n| Keys | a | b |", "Keys")],
)
def test_a_row_that_is_not_complete_is_refused(row: str, seen: str) -> None:
    with pytest.raises(ValueError, match=seen):
        read_record(f"## {row}\n")


def test_a_name_with_two_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="two rows"):
        read_record("## Recipe keys\n| a | b | c |\n| a | d | e |\n")
