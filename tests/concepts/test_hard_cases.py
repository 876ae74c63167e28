"""The hard cases of linking, with the default index: what fails is printed, and a floor is kept."""

import tomllib
from pathlib import Path

import pytest
from small_terms import marked

from lexome.concepts.linker import Linker

CASES = tomllib.loads((Path(__file__).parent / "hard_cases.toml").read_text(encoding="utf-8"))["case"]
# How many of the 50 are right.
FLOOR = 50


@pytest.fixture(scope="module")
def linker() -> Linker:
    return Linker.load()


def test_there_are_fifty_cases() -> None:
    assert len(CASES) == 50
    assert all(len(marked(case["text"]).spans) == len(case["expected"]) for case in CASES)


def test_hard_cases(linker: Linker, capsys: pytest.CaptureFixture[str]) -> None:
    failed = []
    for case in CASES:
        linked = [list(span.concepts) for span in linker.link(marked(case["text"])).spans]
        if linked != case["expected"]:
            failed.append(f"{case['kind']}: {case['text']}\n    {linked}, expected {case['expected']} ({case['why']})")
    with capsys.disabled():
        print(f"\n{len(CASES) - len(failed)} of {len(CASES)} hard cases are right")
        print("\n".join(failed))
    assert len(CASES) - len(failed) >= FLOOR, "\n".join(failed)


def test_chemicals_that_only_resemble_others_have_no_id_unless_misspelled(linker: Linker) -> None:
    doc = linker.link(marked("{Trulance|Chemical}, {benzoylecgonine|Chemical} or {ibuprophen|Chemical}"))
    assert [span.concepts for span in doc.spans] == [(), (), ("mesh:D007052",)]
