"""Benchmark documents found in a corpus."""

from pathlib import Path

import pytest

import lexome
from lexome.corpus import dedup
from lexome.corpus.dedup import word_hashes, words_of
from lexome.document import Document, Question, lay_out
from lexome.metadata import Metadata

SENTENCE = "Loss of the zebrafish gene slowmo2 delays the hatching of embryos by two full days in cold water ."
OTHER = "Hatching took longer in the cold and shorter in the warm tanks of the same building that year ."


@pytest.fixture
def benchmarks(tmp_path: Path) -> dedup.Benchmarks:
    tagged = "\n".join(f"{word}\tO" for word in SENTENCE.split())
    (tmp_path / "test.tsv").write_text(tagged + "\n\nShort\tO\none\tO\n\n")
    (tmp_path / "set.pubtator").write_text("1234567|t|A title\n1234567|a|An abstract.\n\n")
    return dedup.index_benchmarks([tmp_path / "test.tsv", tmp_path / "set.pubtator"], run_words=10)


def found(benchmarks: dedup.Benchmarks, text: str, *, id: str = "x", pmid: str | None = None) -> str | None:
    doc = Document(id, lay_out([("abstract", text)]), meta=Metadata(pmid=pmid))
    return benchmarks.match(doc, word_hashes([words_of(text)])[0])


def test_a_document_with_a_test_sentence_is_found_by_text(benchmarks: dedup.Benchmarks) -> None:
    running = SENTENCE.replace(" .", ".").upper()
    assert found(benchmarks, f"{OTHER} {running} {OTHER}") == "benchmark_text"


def test_the_beginning_of_a_sentence_alone_is_no_leak(benchmarks: dedup.Benchmarks) -> None:
    beginning = " ".join(SENTENCE.split()[:12])
    assert found(benchmarks, f"{beginning} was seen in no other place . {OTHER}") is None


def test_a_document_of_a_benchmark_is_found_by_its_pubmed_id(benchmarks: dedup.Benchmarks) -> None:
    assert found(benchmarks, OTHER, pmid="1234567") == "benchmark_id"
    assert found(benchmarks, OTHER, id="1234567") == "benchmark_id"
    assert found(benchmarks, OTHER, pmid="7654321") is None


def test_short_sentences_and_row_numbers_find_nothing(tmp_path: Path, benchmarks: dedup.Benchmarks) -> None:
    assert benchmarks.sentences == 1
    assert found(benchmarks, "Short one") is None
    lexome.write(tmp_path / "rows.jsonl", [Document("12", lay_out([("sentence", OTHER)]))])
    rows = dedup.index_benchmarks([tmp_path / "rows.jsonl"], run_words=10)
    assert rows.pmids == frozenset()


def test_a_sentence_that_a_set_has_twice_is_a_phrase_and_no_leak(tmp_path: Path) -> None:
    tagged = "\n".join(f"{word}\tO" for word in SENTENCE.split())
    (tmp_path / "phrase.tsv").write_text(f"{tagged}\n\n{tagged}\n\n")
    (tmp_path / "again.tsv").write_text(f"{tagged}\n\n")
    assert dedup.index_benchmarks([tmp_path / "phrase.tsv", tmp_path / "again.tsv"], run_words=10).sentences == 0


def test_a_text_that_a_set_has_again_for_another_question_is_still_looked_for(tmp_path: Path) -> None:
    asked = [
        Document(id, lay_out([("context", SENTENCE)]), questions=(Question(id, "What delays hatching?"),))
        for id in "ab"
    ]
    lexome.write(tmp_path / "test.jsonl", asked)
    assert found(dedup.index_benchmarks([tmp_path / "test.jsonl"], run_words=10), SENTENCE) == "benchmark_text"


def test_an_index_is_the_same_after_saving(tmp_path: Path, benchmarks: dedup.Benchmarks) -> None:
    with (tmp_path / "index.npz").open("wb") as file:
        benchmarks.save(file)
    again = dedup.load_benchmarks(tmp_path / "index.npz")
    assert (again.pmids, again.run_words) == (benchmarks.pmids, 10)
    assert found(again, SENTENCE) == "benchmark_text"


def test_without_sets_nothing_is_found() -> None:
    assert found(dedup.index_benchmarks([], run_words=10), SENTENCE) is None


def test_a_set_whose_mentions_stand_at_wrong_places_is_still_looked_for(tmp_path: Path) -> None:
    text = "Ten words of a sentence that some set tests its models on"
    (tmp_path / "wrong.pubtator").write_text(f"11121057|t|{text}\n11121057\t3\t8\tsentence\tGene\t1\n")
    wrong = dedup.index_benchmarks([tmp_path / "wrong.pubtator"], run_words=10)
    assert found(wrong, f"{text}.") == dedup.BY_TEXT
    assert found(wrong, "Nothing.", pmid="11121057") == dedup.BY_ID
