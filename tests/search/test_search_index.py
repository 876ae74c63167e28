"""Indexing and searching: what is found, incremental and interrupted runs, filters, and bad input."""

import json
import math
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from errors import raises
from hypothesis import given, settings
from hypothesis import strategies as st
from rights import without_rights
from typer.testing import CliRunner

import lexome
import lexome.search
from lexome.cli import app
from lexome.document import Document, Passage, Span, lay_out
from lexome.errors import FormatError, SearchIndexError, UsageError
from lexome.formats import write
from lexome.metadata import Journal, Metadata
from lexome.search import build, storage
from lexome.search.build import PASSAGE_CHARACTERS, cut_passage, index
from lexome.search.engine import K1, MAX_QUERY_CHARACTERS, B, Index, parse_years
from lexome.search.terms import query_terms, terms

MakeIndex = Callable[..., Path]


def annotated(id_: str, title: str, abstract: str, *mentions: tuple[str, str, str], **meta: Any) -> Document:
    """A document whose mentions are given as text, type and concept."""
    doc = Document(id_, lay_out([("title", title), ("abstract", abstract)]), meta=Metadata(**meta))
    spans = []
    for number, (text, type_, concept) in enumerate(mentions):
        at = doc.text.index(text)
        spans.append(Span(f"T{number}", type_, ((at, at + len(text)),), text, (concept,) if concept else ()))
    return Document(doc.id, doc.passages, tuple(spans), meta=doc.meta)


JAMA = Journal("The Journal", "J")
DOCS = (
    annotated("a", "BRCA1 and breast cancer", "BRCA1 is lost in breast cancer. Olaparib helps.", published="2019-02"),
    annotated(
        "b",
        "Diabetes and INS",
        "In type 2 diabetes (MODY), INS is expressed less. IL-2 is not.",
        ("MODY", "Disease", "mesh:D003924"),
        ("INS is", "Gene", "NCBIGene:3630"),
        published="2021",
        journal=JAMA,
    ),
    annotated("c", "Olaparib in ovarian cancer", "IL2 rises after olaparib.", ("IL2", "Gene", ""), journal=JAMA),
)


@pytest.fixture
def make_index(tmp_path: Path) -> MakeIndex:
    def make(*docs: Document, **options: Any) -> Path:
        folder = tmp_path / "docs"
        folder.mkdir(exist_ok=True)
        for doc in docs or DOCS:
            write(folder / f"{doc.id}.jsonl", [doc])
        index([folder], tmp_path / "index", progress_shown=False, **options)
        return tmp_path / "index"

    return make


def found(folder: Path, query: str = "", **options: Any) -> list[str]:
    with lexome.search.open(folder) as opened:
        return [hit.document for hit in opened.search(query, **options).hits]


def contents(folder: Path) -> dict[str, Any]:
    """All tables but meta; postings without the division into batches."""
    connection = storage.connect(folder)
    tables: dict[str, Any] = {
        name: connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall()
        for name in ("documents", "passages", "sizes", "mentions")
    }
    tables["files"] = connection.execute("SELECT name, documents, complete FROM files ORDER BY 1").fetchall()
    postings: dict[str, bytes] = {}
    for term, passages in connection.execute("SELECT term, passages FROM postings ORDER BY term, batch"):
        postings[term] = postings.get(term, b"") + passages
    connection.close()
    return {**tables, "postings": postings}


def test_words_are_found_wherever_they_stand_and_the_best_passage_is_first(make_index: MakeIndex) -> None:
    folder = make_index()
    assert found(folder, "breast cancer") == ["a", "c"]  # by its title
    assert found(folder, "IL-2") == ["b", "c"] or found(folder, "IL-2") == ["c", "b"]
    assert found(folder, "unheard") == []


def test_offsets_slice_to_the_documents_text(make_index: MakeIndex) -> None:
    with Index.open(make_index()) as opened:
        for hit in opened.search("olaparib cancer diabetes").hits:
            doc = next(doc for doc in DOCS if doc.id == hit.document)
            assert doc.slice(hit.start, hit.end) == hit.text
            assert hit.highlights
            for start, end in hit.highlights:
                assert doc.slice(start, end).lower() in {"olaparib", "cancer", "diabetes"}


def test_concepts_are_found_together_and_in_any_case(make_index: MakeIndex) -> None:
    folder = make_index()
    assert found(folder, concepts=["MESH:D003924"]) == ["b"]
    assert found(folder, concepts=["mesh:d003924", "NCBIGene:3630"]) == ["b"]
    assert found(folder, concepts=["mesh:D003924", "NCBIGene:672"]) == []
    with Index.open(folder) as opened:
        (hit,) = opened.search(concepts=["MESH:D003924"]).hits
    assert [(mention.text, mention.concept) for mention in hit.mentions] == [("MODY", "mesh:D003924")]
    assert [DOCS[1].slice(*place) for place in hit.highlights] == ["MODY"]


def test_filters_combine_with_words(make_index: MakeIndex) -> None:
    folder = make_index()
    assert found(folder, types=["gene"]) == ["b", "c"]
    assert found(folder, "cancer", types=["Gene"]) == ["c"]
    assert found(folder, "cancer", years=(2019, 2019)) == ["a"]
    assert found(folder, "diabetes", years=(2020, None)) == ["b"]
    assert found(folder, "cancer", journals=["the journal"]) == ["c"]
    assert found(folder, "cancer", journals=["J"]) == ["c"]


@pytest.mark.parametrize(
    ("text", "years"),
    [("2019", (2019, 2019)), ("2015-2020", (2015, 2020)), ("2015-", (2015, None)), ("-2020", (None, 2020))],
)
def test_years_are_one_or_a_range(text: str, years: tuple[int | None, int | None]) -> None:
    assert parse_years(text) == years


@pytest.mark.parametrize("text", ["", "-", "last", "2015-now", "20155", "2015--2016", "2020-2015"])
def test_other_years_are_refused(text: str) -> None:
    with raises(UsageError, code="invalid-year", value=text):
        parse_years(text)


def test_totals_count_more_than_is_shown(make_index: MakeIndex) -> None:
    with Index.open(make_index()) as opened:
        result = opened.search("cancer olaparib", limit=1)
        assert (result.total, len(result.hits), result.ranking) == (2, 1, "bm25")
        assert len(opened.search("cancer olaparib", limit=0).hits) == 2


def test_the_python_result_is_that_of_json(make_index: MakeIndex) -> None:
    with Index.open(make_index()) as opened:
        result = opened.search("olaparib")
    again = json.loads(json.dumps(result.as_dict()))
    assert [hit["document"] for hit in again["hits"]] == [hit.document for hit in result.hits]


# Ranking


def exhaustive_bm25(texts: dict[str, str], query: str) -> dict[str, float]:
    """The BM25 score of every text that has a term of the query, term by term in plain Python."""
    counts = {name: Counter(term for term, _, _ in terms(text)) for name, text in texts.items()}
    mean = sum(own.total() for own in counts.values()) / len(counts)
    scores: dict[str, float] = {}
    for term in query_terms(query):
        having = [name for name, own in counts.items() if term in own]
        rarity = math.log(1 + (len(counts) - len(having) + 0.5) / (len(having) + 0.5))
        for name in having:
            count, length = counts[name][term], counts[name].total()
            saturated = count * (K1 + 1) / (count + K1 * (1 - B + B * length / mean))
            scores[name] = scores.get(name, 0.0) + rarity * saturated
    return scores


def test_the_best_passages_are_those_of_exhaustive_bm25(tmp_path: Path) -> None:
    """Of a Zipfian vocabulary, in many batches, after removals, with many ties: scores and order of every top k."""
    rng = np.random.default_rng(5)
    words = np.array([f"w{number}" for number in range(60)])
    frequency = 1 / np.arange(1, 61)
    drawn = [rng.choice(words, rng.integers(1, 12), p=frequency / frequency.sum()) for _ in range(300)]
    texts = {f"d{number}": " ".join(some) for number, some in enumerate(drawn)}
    (tmp_path / "docs").mkdir()
    for part in range(4):
        own = [Document(name, (Passage(0, text),)) for name, text in texts.items() if int(name[1:]) % 4 == part]
        write(tmp_path / "docs" / f"{part}.jsonl", own)
    index([tmp_path / "docs"], tmp_path / "index", batch=17, progress_shown=False)
    (tmp_path / "docs" / "3.jsonl").unlink()
    index([tmp_path / "docs"], tmp_path / "index", batch=17, progress_shown=False)
    kept = {name: text for name, text in texts.items() if int(name[1:]) % 4 != 3}
    with Index.open(tmp_path / "index") as opened:
        for query in [" ".join(rng.choice(words, size)) for size in (1, 2, 3, 5, 9, 30)] + ["w0 w1 w2"]:
            expected = exhaustive_bm25(kept, query)
            best = sorted(expected.values(), reverse=True)
            for limit in (1, 3, 10, 0):
                result = opened.search(query, limit=limit)
                assert result.total == len(expected)
                assert [hit.score for hit in result.hits] == pytest.approx(best[: limit or None], rel=1e-5)
                assert [expected[hit.document] for hit in result.hits] == pytest.approx(
                    [hit.score for hit in result.hits], rel=1e-5
                )
                assert len({hit.document for hit in result.hits}) == len(result.hits)


# Incremental and interrupted runs


def test_a_second_run_reads_only_what_is_new_or_changed_and_drops_what_is_gone(
    make_index: MakeIndex, tmp_path: Path
) -> None:
    folder = make_index()
    (tmp_path / "docs" / "a.jsonl").unlink()
    write(tmp_path / "docs" / "c.jsonl", [annotated("c", "Aspirin", "Aspirin is old, and more words than before.")])
    write(tmp_path / "docs" / "d.jsonl", [annotated("d", "Statins", "Statins and aspirin.")])
    result = index([tmp_path / "docs"], folder, progress_shown=False)
    counts = (result.new_files, result.changed_files, result.removed_files, result.unchanged_files)
    assert (counts, result.new_documents, result.documents) == ((1, 1, 1, 1), 2, 3)
    assert found(folder, "olaparib breast cancer") == []
    assert found(folder, "aspirin") == ["c", "d"]
    fresh = tmp_path / "fresh"
    index([tmp_path / "docs"], fresh, progress_shown=False)
    with Index.open(folder) as one, Index.open(fresh) as other:
        for query in ("aspirin statins", "type 2 diabetes", "words"):
            scores = [[(hit.document, hit.score) for hit in opened.search(query).hits] for opened in (one, other)]
            assert scores[0] == scores[1]


def many(count: int) -> list[Document]:
    return [
        annotated(f"n{number}", f"Title {number}", f"Word{number % 7} and text {number}.") for number in range(count)
    ]


def test_an_interrupted_run_resumes_in_the_middle_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "many.jsonl", many(50))
    folder, calls = tmp_path / "index", []
    real = build._write_batch

    def interrupted(*arguments: Any) -> None:
        calls.append(1)
        real(*arguments)
        if len(calls) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(build, "_write_batch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        index([tmp_path / "many.jsonl"], folder, batch=8, progress_shown=False)
    with raises(SearchIndexError, code="incomplete-index"):
        Index.open(folder)
    result = index([tmp_path / "many.jsonl"], folder, batch=8, progress_shown=False)
    assert (result.new_documents, result.documents) == (50 - 3 * 8, 50)
    index([tmp_path / "many.jsonl"], tmp_path / "unbroken", batch=8, progress_shown=False)
    assert contents(folder) == contents(tmp_path / "unbroken")


KILLED = """
import os, sys
from pathlib import Path
from lexome.search import build
real = build._write_batch
def write(*arguments):
    real(*arguments)
    if arguments[2] == 3:
        os._exit(9)  # before the commit, without any clean-up
build._write_batch = write
build.index([Path(sys.argv[1])], Path(sys.argv[2]), batch=8, progress_shown=False)
"""


def test_a_killed_run_leaves_whole_batches_and_no_lock(tmp_path: Path) -> None:
    write(tmp_path / "many.jsonl", many(40))
    paths = [str(tmp_path / "many.jsonl"), str(tmp_path / "index")]
    assert subprocess.run([sys.executable, "-c", KILLED, *paths]).returncode == 9
    connection = storage.connect(tmp_path / "index", writable=True)
    assert connection.execute("SELECT documents, complete FROM files").fetchall() == [(16, 0)]
    connection.close()
    assert index([tmp_path / "many.jsonl"], tmp_path / "index", batch=8, progress_shown=False).documents == 40
    index([tmp_path / "many.jsonl"], tmp_path / "unbroken", batch=8, progress_shown=False)
    assert contents(tmp_path / "index") == contents(tmp_path / "unbroken")


def test_many_batches_are_merged_and_removed_passages_leave_the_postings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "MERGED_BATCHES", 2)
    write(tmp_path / "many.jsonl", many(40))
    index([tmp_path / "many.jsonl"], tmp_path / "index", batch=8, progress_shown=False)
    index([tmp_path / "many.jsonl"], tmp_path / "whole", progress_shown=False)
    assert contents(tmp_path / "index") == contents(tmp_path / "whole")
    write(tmp_path / "many.jsonl", many(4))
    index([tmp_path / "many.jsonl"], tmp_path / "index", batch=8, progress_shown=False)
    connection = storage.connect(tmp_path / "index")
    ((passages,),) = connection.execute("SELECT passages FROM postings WHERE term = 'text'").fetchall()
    connection.close()
    assert len(passages) == 4 * 4
    assert len(found(tmp_path / "index", "text")) == 4


def test_postings_are_merged_when_the_first_and_the_last_passages_are_gone(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for name, count in (("a", 100), ("b", 5), ("c", 100)):
        write(docs / f"{name}.jsonl", many(count))
    index([docs], tmp_path / "index", progress_shown=False)
    for name in ("a", "c"):
        (docs / f"{name}.jsonl").unlink()
    result = index([docs], tmp_path / "index", progress_shown=False)
    assert (result.removed_files, result.documents) == (2, 5)
    assert len(found(tmp_path / "index", "text")) == 5


def test_postings_are_not_merged_again_until_as_many_more_passages_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merged: list[int] = []
    real = build._merge_rows
    monkeypatch.setattr(build, "_merge_rows", lambda *given: merged.append(1) or real(*given))
    docs = tmp_path / "docs"
    docs.mkdir()
    write(docs / "b.jsonl", many(5))
    for number in range(4):
        write(docs / "a.jsonl", many(100 + number))
        index([docs], tmp_path / "index", progress_shown=False)
    before = len(merged)
    assert before
    for number in range(3):
        write(docs / "b.jsonl", many(6 + number))
        index([docs], tmp_path / "index", progress_shown=False)
    assert len(merged) == before
    with Index.open(tmp_path / "index") as opened:
        assert opened.search("text").total == 103 + 8


def test_an_update_that_begins_while_it_is_loaded_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, make_index: MakeIndex
) -> None:
    folder = make_index()
    writer = storage.connect(folder, writable=True)
    real = Index._data_version

    def interrupted(self: Index) -> int:
        with storage.transaction(writer):
            storage.write_meta(writer, {"complete": False})
            writer.execute("DELETE FROM sizes")
        return real(self)

    with Index.open(folder) as opened:
        with monkeypatch.context() as patch:
            patch.setattr(Index, "_data_version", interrupted)
            assert [hit.document for hit in opened.search("olaparib").hits] == ["c", "a"]
        assert opened._meta["complete"]
    writer.close()


def test_an_open_index_shows_updates_when_they_are_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_index: MakeIndex
) -> None:
    folder = make_index()
    real = build._write_batch

    def interrupted(*arguments: Any) -> None:
        real(*arguments)
        if arguments[2] == 3:
            raise KeyboardInterrupt

    with Index.open(folder) as opened:
        assert [hit.document for hit in opened.search("olaparib").hits] == ["c", "a"]
        new = [annotated(id_, "New", "Olaparib and INS.", ("INS", "Gene", "X:1")) for id_ in ("new", "last")]
        write(tmp_path / "docs" / "new.jsonl", new)
        with monkeypatch.context() as patch:
            patch.setattr(build, "_write_batch", interrupted)
            with pytest.raises(KeyboardInterrupt):
                index([tmp_path / "docs"], folder, batch=1, progress_shown=False)
        assert {hit.document for hit in opened.search("olaparib").hits} == {"a", "c"}
        assert not opened.search(concepts=["X:1"]).hits
        index([tmp_path / "docs"], folder, progress_shown=False)
        assert {hit.document for hit in opened.search("olaparib").hits} == {"a", "c", "new", "last"}
        assert [hit.document for hit in opened.search(concepts=["X:1"]).hits] == ["new", "last"]
        assert opened.documents == 5
        (tmp_path / "docs" / "new.jsonl").unlink()
        index([tmp_path / "docs"], folder, progress_shown=False)
        assert {hit.document for hit in opened.search("olaparib").hits} == {"a", "c"}


def test_an_index_with_other_settings_is_refused_unless_made_anew(make_index: MakeIndex, tmp_path: Path) -> None:
    folder = make_index()
    with raises(UsageError, code="other-settings", value="from"):
        index([tmp_path / "docs"], folder, from_="jsonl", progress_shown=False)
    index([tmp_path / "docs"], folder, from_="jsonl", redo=True, progress_shown=False)
    assert found(folder, "diabetes") == ["b"]


def test_two_writers_exclude_each_other(make_index: MakeIndex, tmp_path: Path) -> None:
    folder = make_index()
    with storage.only_writer(folder), raises(SearchIndexError, code="index-in-use", value=folder):
        index([tmp_path / "docs"], folder, progress_shown=False)
    index([tmp_path / "docs"], folder, progress_shown=False)


# Passages


def test_long_passages_are_cut_at_sentence_ends() -> None:
    text = " ".join(f"Sentence number {number} has a few words." for number in range(400))
    ranges = list(cut_passage(Passage(0, text)))
    assert len(ranges) > 3
    assert all(end - start <= PASSAGE_CHARACTERS and text[end - 1] == "." for start, end in ranges)
    assert " ".join(text[start:end] for start, end in ranges) == text


@settings(max_examples=100)
@given(st.text("ab .\n", max_size=300), st.integers(10, 60))
def test_cuts_lose_no_visible_character(text: str, limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "PASSAGE_CHARACTERS", limit)
        ranges = list(cut_passage(Passage(0, text)))
    assert "".join(text[start:end] for start, end in ranges).split() or not text.strip()
    kept = {place for start, end in ranges for place in range(start, end)}
    assert not any(not character.isspace() and place not in kept for place, character in enumerate(text))
    assert all(end - start <= limit for start, end in ranges)
    assert ranges == sorted(ranges)


def test_a_passage_of_one_endless_sentence_is_cut_and_found(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("acgt" * 5000 + " needle")
    index([tmp_path / "long.txt"], tmp_path / "index", progress_shown=False)
    with Index.open(tmp_path / "index") as opened:
        (hit,) = opened.search("needle").hits
    assert (hit.text[-6:], hit.end) == ("needle", 20_007)


def test_a_mention_that_begins_with_a_space_between_sentences_is_found(tmp_path: Path) -> None:
    sentence = "It was lost again. " * 150
    # The second sentence would make the passage too long.
    text = sentence + "BRCA1 was lost" + " again and again" * 20 + "."
    at = len(sentence) - 1
    span = Span("T1", "Gene", ((at, at + 6),), " BRCA1", ("NCBIGene:672",))
    write(tmp_path / "a.jsonl", [Document("a", (Passage(0, text),), (span,))])
    index([tmp_path / "a.jsonl"], tmp_path / "index", progress_shown=False)
    with lexome.search.open(tmp_path / "index") as opened:
        [hit] = opened.search(concepts="NCBIGene:672").hits
    [mention] = hit.mentions
    assert hit.text[mention.start - hit.start : mention.end - hit.start] == mention.text == "BRCA1"


def test_references_and_headings_are_not_found_by_words_but_their_mentions_are(tmp_path: Path) -> None:
    parts = [("title", "T"), ("heading", "Zebrafish"), ("paragraph", "Body."), ("reference", "Zebrafish BRCA1 papers")]
    doc = Document("r", lay_out(parts))
    at = doc.text.index("BRCA1")
    write(tmp_path / "r.jsonl", [Document("r", doc.passages, (Span("1", "Gene", ((at, at + 5),), "BRCA1"),))])
    index([tmp_path / "r.jsonl"], tmp_path / "index", progress_shown=False)
    assert found(tmp_path / "index", "zebrafish") == []
    assert found(tmp_path / "index", types=["Gene"]) == ["r"]


# Bad input

HOSTILE = [
    '"',
    "'; DROP TABLE passages; --",
    'NEAR("a" b)',
    "title:brca1 OR *",
    "a AND NOT (",
    "%_\\",
    "\0",
    "-",
    "*" * 99,
]


@pytest.mark.parametrize("query", HOSTILE)
def test_nothing_in_a_query_is_syntax(make_index: MakeIndex, query: str) -> None:
    folder = make_index()
    found(folder, query)
    assert found(folder, concepts=[f"x:{query}"], types=[query], journals=[query]) == []
    assert "b" in found(folder, f"{query} diabetes")


def test_a_query_of_a_hundred_thousand_characters_is_answered_and_a_longer_one_refused(make_index: MakeIndex) -> None:
    folder = make_index()
    assert found(folder, "diabetes " + "x " * 49_000) == ["b"]
    with raises(UsageError, code="too-long", value=MAX_QUERY_CHARACTERS + 1):
        found(folder, "x" * (MAX_QUERY_CHARACTERS + 1))


def test_a_concept_may_be_given_by_name(make_index: MakeIndex) -> None:
    with lexome.search.open(make_index()) as opened:
        # By a name of Lexome's dictionaries, and by one that only the text has.
        for name, curie in (("insulin", "NCBIGene:3630"), ("Mody", "mesh:D003924")):
            result = opened.search(concepts=[name])
            assert ([hit.document for hit in result.hits], result.concepts) == (["b"], {name: curie})
        with raises(UsageError, code="bad_concept", value="breast cancer") as error:
            opened.search(concepts=["breast cancer"])
        assert "is mesh:D001943, which no document in the index mentions" in str(error.value)
        with raises(UsageError, code="bad_concept", value="zorblin"):
            opened.search(concepts=["zorblin"])


def test_operators_are_told_to_have_no_meaning(make_index: MakeIndex) -> None:
    folder = make_index()
    assert found(folder, "diabetes AND olaparib", limit=1) == found(folder, "diabetes olaparib", limit=1)
    done = CliRunner().invoke(app, ["search", str(folder), '"breast cancer" AND diabet*'])
    assert "There is no query syntax; ignored: quotation marks, AND, *." in done.stderr
    assert CliRunner().invoke(app, ["search", str(folder), "breast cancer and IL-2"]).stderr == ""


@pytest.mark.parametrize("words", [["breast", "cancer"], ["-2"]])
def test_a_query_without_quotes_is_told_to_have_them(make_index: MakeIndex, words: list[str]) -> None:
    done = CliRunner().invoke(app, ["search", str(make_index()), *words])
    assert done.exit_code == 2
    assert "Put several words in quotes" in done.output.replace("\n", " ")


def test_a_search_for_nothing_is_refused(make_index: MakeIndex) -> None:
    folder = make_index()
    with raises(UsageError, code="empty-query"):
        found(folder, "  ")
    with raises(UsageError, code="bad_concept", value="BRCA1"):
        found(folder, concepts=["BRCA1"])
    with raises(UsageError, code="out-of-range", value=-1):
        found(folder, "x", limit=-1)
    with raises(UsageError, code="invalid-choice", value="magic"):
        found(folder, "x", method="magic")
    with raises(SearchIndexError, code="no-vectors"):
        found(folder, "x", method="vectors")


def test_a_folder_that_is_no_index_is_refused(tmp_path: Path) -> None:
    with raises(SearchIndexError, code="no-index", value=tmp_path / "nowhere"):
        Index.open(tmp_path / "nowhere")
    with raises(SearchIndexError, code="no-index"):
        Index.open(tmp_path)
    (tmp_path / "a.txt").write_text("A text.")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.doc").write_text("precious")
    with raises(UsageError, code="not-an-index"):
        index([tmp_path / "a.txt"], tmp_path / "other", progress_shown=False)
    with raises(UsageError, code="not-a-folder"):
        index([tmp_path / "a.txt"], tmp_path / "other" / "thesis.doc", progress_shown=False)


def test_an_empty_folder_and_documents_that_are_all_rejected_are_errors(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with raises(FormatError, code="empty-folder"):
        index([tmp_path / "empty"], tmp_path / "index", progress_shown=False)
    assert not (tmp_path / "index").exists()
    (tmp_path / "bad.jsonl").write_text('{"no": "text"}\n')
    with raises(FormatError, code="no-documents"):
        index([tmp_path / "bad.jsonl"], tmp_path / "index", rejects=tmp_path / "rejects", progress_shown=False)


def test_the_rejects_are_those_of_all_files_and_quiet_still_tells_of_them(tmp_path: Path) -> None:
    docs, rejects = tmp_path / "docs", tmp_path / "index.rejects.jsonl"
    docs.mkdir()
    for name in ("a", "b"):
        write(docs / f"{name}.jsonl", [DOCS[0]])
    bad = '{"no": "text"}\n'

    def run(*options: str) -> tuple[str, str]:
        shown = CliRunner().invoke(app, ["index", str(docs), str(tmp_path / "index"), *options], catch_exceptions=False)
        assert shown.exit_code == 0
        return shown.stdout, shown.stderr

    (docs / "bad-1.jsonl").write_text((docs / "a.jsonl").read_text() + bad)
    assert run("-q") == ("", f"rejected   1 no_text, see {rejects}\n")
    (docs / "bad-2.jsonl").write_text(bad)
    run()
    assert [name in rejects.read_text() for name in ("bad-1", "bad-2")] == [True, True]
    write(docs / "bad-1.jsonl", [DOCS[0]])
    assert run("-q") == ("", "")
    assert [name in rejects.read_text() for name in ("bad-1", "bad-2")] == [False, True]
    (docs / "bad-2.jsonl").unlink()
    run()
    assert not rejects.exists()


def test_a_document_whose_names_are_not_unicode_is_rejected_alone(tmp_path: Path) -> None:
    lines = [json.dumps({"id": name, "text": "BRCA1 is lost."}) for name in ("\ud800", "good")]
    (tmp_path / "docs.jsonl").write_text("\n".join(lines))
    result = index([tmp_path / "docs.jsonl"], tmp_path / "index", rejects=tmp_path / "rejects", progress_shown=False)
    assert (dict(result.tally.rejected), found(tmp_path / "index", "brca1")) == ({"not_unicode": 1}, ["good"])


def test_a_damaged_file_does_not_keep_others_from_the_index(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    write(tmp_path / "docs" / "good.jsonl", [DOCS[0]])
    (tmp_path / "docs" / "broken.jsonl.gz").write_bytes(b"\x1f\x8b no gzip")
    result = index([tmp_path / "docs"], tmp_path / "index", progress_shown=False)
    assert len(result.tally.failures) == 1
    assert found(tmp_path / "index", "olaparib") == ["a"]


def test_an_index_of_another_version_is_refused(make_index: MakeIndex) -> None:
    folder = make_index()
    with sqlite3.connect(folder / storage.DATABASE) as connection:
        storage.write_meta(connection, {"version": 99})
    connection.close()
    with raises(SearchIndexError, code="unsupported-version", value=99):
        Index.open(folder)


def test_a_damaged_database_is_reported(make_index: MakeIndex) -> None:
    folder = make_index()
    path = folder / storage.DATABASE
    content = bytearray(path.read_bytes())
    path.write_bytes(b"no database at all" * 500)
    with raises(SearchIndexError, code="damaged-index"):
        Index.open(folder)
    for at in range(4096, len(content), 4096):
        content[at : at + 200] = b"\xff" * 200
    path.write_bytes(content)
    with raises(SearchIndexError, code="damaged-index"):
        found(folder, "olaparib breast cancer diabetes")


def test_one_path_and_one_name_may_be_plain_text(tmp_path: Path) -> None:
    lexome.write(tmp_path / "docs.jsonl", DOCS)
    lexome.search.index(str(tmp_path / "docs.jsonl"), str(tmp_path / "index"), progress_shown=False)
    assert set(found(tmp_path / "index", types="Gene")) == {"b", "c"}
    assert found(tmp_path / "index", concepts="mesh:D003924") == found(tmp_path / "index", "mody") == ["b"]
    assert set(found(tmp_path / "index", journals="J")) == {"b", "c"}
    for years in ((2021,), ("2021", None)):
        with raises(UsageError, code="invalid-year"):
            found(tmp_path / "index", "x", years=years)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE postings SET counts = 'x'",
        "UPDATE passages SET start = 'x'",
        "UPDATE passages SET text = x'fffe'",
        "UPDATE passages SET text = CAST(x'fffe' AS TEXT)",
        "UPDATE passages SET section = 0",
        "UPDATE mentions SET passage = 'x'",
        "UPDATE sizes SET words = ''",
        "UPDATE sizes SET year = x'ffff'",
        "UPDATE meta SET value = '[]'",
        "DELETE FROM meta WHERE key = 'settings'",
        "DELETE FROM meta WHERE key = 'complete'",
        "DROP TABLE passages",
    ],
)
def test_a_database_with_other_values_than_lexome_writes_is_damaged(make_index: MakeIndex, change: str) -> None:
    folder = make_index()
    with sqlite3.connect(folder / storage.DATABASE) as connection:
        connection.execute(change)
    connection.close()
    with raises(SearchIndexError, code="unsupported-version" if "'[]'" in change else "damaged-index"):
        found(folder, "cancer")
        found(folder, "il2", types=["Gene"])


def test_a_closed_index_says_so(make_index: MakeIndex) -> None:
    with Index.open(make_index()) as opened:
        pass
    for options in ({}, {"timeout_s": 1.0}):
        with raises(SearchIndexError, code="closed-index"):
            opened.search("cancer", **options)


def test_words_and_filters_that_are_not_unicode_find_nothing(make_index: MakeIndex) -> None:
    folder = make_index()
    assert found(folder, journals=["J\udcff"]) == found(folder, "\udcff") == []


def test_an_index_on_a_read_only_disk_is_searched_but_not_changed(make_index: MakeIndex, tmp_path: Path) -> None:
    folder = make_index()
    write(tmp_path / "docs" / "new.jsonl", [annotated("new", "New", "Not there yet.")])
    for path in (*folder.iterdir(), folder):
        path.chmod(0o555 if path.is_dir() else 0o444)
    # pytest's own folders are closed to others.
    closed = [path for path in (tmp_path, *tmp_path.parents) if path.stat().st_mode & 0o077 == 0]
    for path in closed:
        path.chmod(0o755)
    try:
        with without_rights():
            assert found(folder, "diabetes") == ["b"]
            with raises(SearchIndexError, code="not-writable"):
                index([tmp_path / "docs"], folder, progress_shown=False)
    finally:
        folder.chmod(0o755)
        for path in closed:
            path.chmod(0o700)


def test_a_filter_by_mention_says_where_no_document_is_annotated_or_linked(make_index: MakeIndex) -> None:
    folder = make_index(DOCS[0])
    for filters in ({"concepts": ["mesh:D003924"]}, {"types": ["Gene"]}):
        with raises(UsageError, code="no-mentions", value="mentions"):
            found(folder, "cancer", **filters)
    unlinked = make_index(*DOCS[::2], redo=True)
    assert found(unlinked, types=["Gene"]) == ["c"]
    with raises(UsageError, code="no-mentions", value="concepts"):
        found(unlinked, concepts=["mesh:D003924"])


def test_an_index_that_was_never_written_to_is_not_complete(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / storage.DATABASE).touch()
    with raises(SearchIndexError, code="incomplete-index"):
        Index.open(tmp_path / "index")


def test_an_encoder_for_an_index_without_vectors_is_refused(make_index: MakeIndex, tmp_path: Path) -> None:
    folder = make_index()
    with raises(SearchIndexError, code="no-vectors"):
        Index.open(folder, encoder=tmp_path)


def test_the_search_command_names_types_that_are_there_and_swapped_arguments(make_index: MakeIndex) -> None:
    folder = make_index()
    shown = CliRunner().invoke(app, ["search", str(folder), "--type", "Protein"], catch_exceptions=False).stdout
    assert shown.startswith("0 passages found\nno mention in the index has the type 'Protein'. Types: ")
    one = CliRunner().invoke(app, ["search", str(folder), "MODY", "--year", "2021"], catch_exceptions=False).stdout
    assert "1 passage found" in one
    swapped = CliRunner().invoke(app, ["search", "cancer", str(folder)]).exception
    assert isinstance(swapped, UsageError)
    assert (swapped.code, swapped.value) == ("swapped-arguments", str(folder))
