"""Reports on vocabularies: counts that can be checked by hand, and the numbers of a paper."""

import json
from pathlib import Path

import pytest
from errors import raises

from lexome.corpus.vocab.report import VocabReport, named_paths, plot, vocab_report
from lexome.errors import FormatError, UsageError

CONLL = "Zorin\tB\nbinds\tO\n\nzor\tB\n-\tI\nine\tI\n\nZorin\tB\n"


@pytest.fixture
def report(tmp_path: Path) -> VocabReport:
    """A vocabulary that knows Zorin beside one that spells it, on three names and one text."""
    pieces = ["[UNK]", "Z", "##or", "##in", "binds", "zor", "-", "ine", "β"]
    (tmp_path / "spells.txt").write_text("\n".join(pieces))
    (tmp_path / "knows.txt").write_text("\n".join([*pieces, "Zorin"]))
    (tmp_path / "names.conll").write_text(CONLL)
    (tmp_path / "text.txt").write_text("Zorin binds (twice)")
    vocabularies = {"knows": tmp_path / "knows.txt", "spells": tmp_path / "spells.txt"}
    return vocab_report(vocabularies, ner={"names": tmp_path / "names.conll"}, texts=[tmp_path / "text.txt"])


def test_words_are_the_files_own_tokens_and_each_mention_counts(report: VocabReport) -> None:
    knows, spells = (row.entities["names"] for row in report.vocabularies)
    # Zorin twice, and zor - ine: five words.
    assert (knows.words, knows.pieces) == (5, 5)
    assert (spells.words, spells.pieces) == (5, 3 + 3 + 3)


def test_text_is_measured_with_what_is_unknown(report: VocabReport) -> None:
    knows = report.as_dict()["vocabularies"][0]
    # Zorin, binds, and three unknown: a bracket, twice, a bracket.
    assert knows["text"] == {
        "words": 5,
        "pieces": 5,
        "pieces_per_word": 1.0,
        "characters_per_piece": 3.8,
        "unknown_rate": 0.6,
    }
    assert knows["symbols_whole"] == 1
    assert "♂" in knows["symbols_unknown"]
    assert "β" not in knows["symbols_unknown"]


def test_examples_are_names_that_are_broken_differently(report: VocabReport) -> None:
    assert list(report.examples) == ["Zorin", "zor - ine"]
    assert report.examples["Zorin"] == {"knows": ["Zorin"], "spells": ["Z", "##or", "##in"]}


def test_the_table_has_a_line_for_each_vocabulary(report: VocabReport) -> None:
    head, knows, spells, *examples = report.as_table().split("\n")
    assert head.split()[-2:] == ["names", "symbols"]
    assert knows.startswith("knows")
    assert " 1.000 " in knows
    assert spells.startswith("spells")
    assert " 1.800 " in spells
    assert "  spells  Z ##or ##in" in examples


def test_json_and_pictures_are_the_same_each_time(report: VocabReport, tmp_path: Path) -> None:
    report.write_json(tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text()) == report.as_dict()
    for ending in ("svg", "png"):
        for name in "ab":
            plot(report, tmp_path / f"{name}.{ending}")
        assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()
    assert "pieces per word" in (tmp_path / "a.svg").read_text()
    with raises(UsageError, code="image-format"):
        plot(report, tmp_path / "a.gif")


def test_words_of_files_without_tokens_are_cut_at_signs(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("[UNK]")
    (tmp_path / "a.pubtator").write_text("1|t|L-dopa helps\n1|a|\n1\t0\t6\tL-dopa\tChemical\tD007980\n")
    made = vocab_report({"v": tmp_path / "v.txt"}, ner={"a": tmp_path / "a.pubtator"})
    assert made.vocabularies[0].entities["a"].words == 3


def test_wrong_calls_say_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("[UNK]")
    with raises(UsageError, code="no-vocabulary"):
        vocab_report({})
    with raises(UsageError, code="unknown-vocabulary", value="w"):
        vocab_report({"v": tmp_path / "v.txt"}, cased={"w": True})
    with raises(FormatError, code="no-entities"):
        vocab_report({"v": tmp_path / "v.txt"}, ner={"a": tmp_path / "v.txt"})
    with raises(UsageError, code="duplicate-name"):
        named_paths(["a=b", "a=c"])
    assert named_paths(["a=b", "c/d.txt"]) == {"a": Path("b"), "d.txt": Path("c/d.txt")}
    with raises(UsageError, code="name-path"):
        named_paths(["=b"])


def test_berts_break_up_rates_are_those_of_the_biomegatron_paper(real_data: Path) -> None:
    sets = {name: real_data / "benchmarks" / f"BC5CDR-{name}" / "train.tsv.xz" for name in ("chem", "disease")}
    made = vocab_report({"bert": real_data / "vocabs" / "bert_base_cased.vocab.txt"}, ner=sets)
    chem, disease = (broken.pieces / broken.words for broken in made.vocabularies[0].entities.values())
    # Table 3 has 3.012 and 2.42.
    assert chem == pytest.approx(3.012, abs=0.005)
    assert disease == pytest.approx(2.42, abs=0.025)
