"""Tables: every layout of BLUE, BioBERT and LitCovid, quotes, and rows that do not fit."""

import csv
import io
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from errors import raises
from hypothesis import given
from hypothesis import strategies as st
from mutations import damaged
from strategies import texts

import lexome
from lexome import Document, LexomeError, Tally
from lexome.errors import BadDocument, FormatError, UsageError
from lexome.formats import labeled_table, rows
from lexome.formats.streams import open_stream


def read_raw(raw: bytes, name: str = "made/train.tsv", tally: Tally | None = None, **options: Any) -> list[Document]:
    tally = tally or Tally()
    return list(labeled_table.read(open_stream(io.BytesIO(raw), name, tally), tally=tally, **options))


def read_text(content: str, name: str = "made/train.tsv", tally: Tally | None = None, **options: Any) -> list[Document]:
    return read_raw(content.encode(), name, tally, **options)


def plain(docs: list[Document]) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(doc.id, doc.text, doc.labels) for doc in docs]


def test_blue_relations_have_index_sentence_and_label() -> None:
    docs = read_text("index\tsentence\tlabel\nd1.T1.T2\t@DRUG$ blocks @DRUG$.\tDDI-effect\n")
    assert plain(docs) == [("d1.T1.T2", "@DRUG$ blocks @DRUG$.", ("DDI-effect",))]
    assert docs[0].passages[0].kind == "sentence"


def test_columns_beside_those_of_an_article_are_ignored() -> None:
    tally = Tally()
    docs = read_text("PMID,Title,Notes\n7,A zorb,read this\n8,Two zorbs,\n", "made/list.csv", tally)
    assert plain(docs) == [("7", "A zorb", ()), ("8", "Two zorbs", ())]
    assert tally.notes == {"column 'Notes' ignored": 1}


@pytest.mark.parametrize(
    ("head", "kinds"),
    [("Pubmed Id,Article Title,Abstract Note", ["title", "abstract"]), ("Pubmed Id,Title,Article Title", ["title"])],
)
def test_columns_of_reference_managers_are_recognized(head: str, kinds: list[str]) -> None:
    (doc,) = read_text(f"{head}\n12,TNF in sepsis,IL-6 too\n", "list.csv")
    assert (doc.id, doc.meta.pmid, [passage.kind for passage in doc.passages]) == ("12", "12", kinds)


def test_a_pmid_has_no_fraction() -> None:
    (doc,) = read_text("PMID,Title\n12345.0,TNF\n", "list.csv")
    assert (doc.id, doc.meta.pmid) == ("12345", "12345")


def test_a_csv_of_excel_may_have_semicolons() -> None:
    docs = read_text("pmid;title;abstract\n7;A zorb;It wobbles, often, and falls.\n", "made/list.csv")
    assert plain(docs) == [("7", "A zorb\nIt wobbles, often, and falls.", ())]


@pytest.mark.parametrize("first", ["sep=;", "SEP=;\r", "\ufeffsep=;", '"sep=;"'])
def test_the_delimiter_that_the_first_line_declares_is_used(first: str) -> None:
    assert plain(read_text(f"{first}\npmid;text\n7;A zorb, a blick\n", "made/list.csv")) == [
        ("7", "A zorb, a blick", ())
    ]


def test_an_index_that_only_counts_follows_the_files_name() -> None:
    assert read_text("index\tsentence\tlabel\n0\tA zorb.\t1\n")[0].id == "train-0"


def test_gad_has_a_sentence_and_a_label_without_a_header() -> None:
    docs = read_text("The @GENE$ wobbles.\t1\nA zorb has no @DISEASE$.\t0\n")
    assert plain(docs) == [
        ("train-1", "The @GENE$ wobbles.", ("1",)),
        ("train-2", "A zorb has no @DISEASE$.", ("0",)),
    ]


def test_hoc_and_litcovid_have_pmid_text_and_joined_labels() -> None:
    (doc,) = read_text("pmid\ttext\tlabels\n77\tZorbs wobble.\tTreatment;Case Report\n")
    assert (doc.id, doc.meta.pmid, doc.labels) == ("77", "77", ("Treatment", "Case Report"))


def test_a_row_may_have_no_label() -> None:
    assert read_text("pmid\ttext\tlabels\n77\tZorbs wobble.\t\n")[0].labels == ()


def test_litcovid_csv_has_title_abstract_and_topics_that_repeat_the_label() -> None:
    tally = Tally()
    (doc,) = read_text(
        'pmid,title,abstract,label,Case Report,Diagnosis\n77,Zorbs,"They wobble, often.",Diagnosis,0,1\n',
        "a.csv",
        tally,
    )
    assert [(passage.kind, passage.text) for passage in doc.passages] == [
        ("title", "Zorbs"),
        ("abstract", "They wobble, often."),
    ]
    assert doc.labels == ("Diagnosis",)
    assert tally.notes == {"column 'Case Report' ignored": 1, "column 'Diagnosis' ignored": 1}


def test_keywords_are_metadata_and_an_empty_abstract_is_no_passage() -> None:
    (doc,) = read_text("pmid,title,keywords,abstract,labels\n77,Zorbs,zorb;wobble,,A;B\n", "a.csv")
    assert (doc.text, doc.meta.keywords, doc.labels) == ("Zorbs", ("zorb", "wobble"), ("A", "B"))


def test_pairs_of_sentences_are_two_passages_and_their_score_is_the_label() -> None:
    head = "\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
    tally = Tally()
    (doc,) = read_text(head + "4\tG\tF\t1997\t7\tA\tB\tZorbs wobble.\tWobbling zorbs.\t3.5\n", tally=tally)
    assert (doc.id, [passage.text for passage in doc.passages]) == ("train-4", ["Zorbs wobble.", "Wobbling zorbs."])
    assert doc.labels == ("3.5",)
    assert set(tally.notes.values()) == {1}
    assert len(tally.notes) == 6


def test_mednli_in_blue_form() -> None:
    (doc,) = read_text("index\tsentence1\tsentence2\tlabel\nid-1a\tHe wobbles.\tHe moves.\tentailment\n")
    assert (doc.id, len(doc.passages), doc.labels) == ("id-1a", 2, ("entailment",))


def test_chemprot_pairs_have_nine_columns_without_a_header() -> None:
    tally = Tally()
    (doc,) = read_text("CPR:4\tCHEMICAL\tGENE-Y\t9\t0\tgene and chemical .\tT1\tT22\t1234\n", tally=tally)
    assert plain([doc]) == [("1234.T1.T22", "gene and chemical .", ("CPR:4",))]
    assert doc.meta.pmid == "1234"
    assert len(tally.notes) == 4


def test_next_line_and_line_separator_are_text() -> None:
    (doc,) = read_text("pmid\ttext\tlabels\n77\tZorbs\u0085wobble\u2028often\x0c.\tA\n")
    assert doc.text == "Zorbs\u0085wobble\u2028often\x0c."


def test_lines_may_end_in_carriage_return_and_line_feed() -> None:
    assert plain(read_text("index\tsentence\tlabel\r\na\tA zorb.\tfalse\r\n")) == [("a", "A zorb.", ("false",))]


def test_a_stray_quote_swallows_nothing() -> None:
    docs = read_text('pmid\ttext\tlabels\n1\t"Zorbs wobble.\tA\n2\t5" zorbs "x" y\tB\n3\t"Zorbs."\tC\n')
    assert [doc.text for doc in docs] == ['"Zorbs wobble.', '5" zorbs "x" y', '"Zorbs."']


def test_a_cell_that_a_csv_writer_quoted_is_read_as_it_was() -> None:
    docs = read_text('pmid\ttext\tlabels\n1\t"The ""high"" zorb."\tA\n2\t"A tab\tin it"\tB\n')
    assert [doc.text for doc in docs] == ['The "high" zorb.', "A tab\tin it"]


def test_a_table_quoted_throughout_is_csv_between_tabs() -> None:
    docs = read_text('"index"\t"sentence"\t"label"\r\n"a"\t"A\nzorb."\t"1"\r\n')
    assert plain(docs) == [("a", "A\nzorb.", ("1",))]


def test_a_header_between_rows_is_no_document() -> None:
    tally = Tally()
    head = "pmid\ttext\tlabels\n"
    assert len(read_text(head + "1\tA zorb.\tA\n" + head + "2\tA zorb.\tB\n", tally=tally)) == 2
    assert tally.notes == {"header repeated between rows": 1}


LINES = texts(lambda character: character not in "\r\n", min_size=1).filter(lambda text: not text.isspace())


@given(texts=st.lists(LINES, min_size=1, max_size=4))
def test_what_a_csv_writer_puts_between_tabs_comes_back(texts: list[str]) -> None:
    stream = io.StringIO()
    csv.writer(stream, delimiter="\t", lineterminator="\n").writerows([
        ("pmid", "text", "labels"), *((str(number), text, "A;B") for number, text in enumerate(texts))
    ])  # fmt: skip
    assert [doc.text for doc in read_text(stream.getvalue())] == texts


@given(texts=st.lists(texts(min_size=1), min_size=1, max_size=4), delimiter=st.sampled_from([",", "\t"]))
def test_what_a_csv_writer_quotes_comes_back_with_its_line_breaks(texts: list[str], delimiter: str) -> None:
    stream = io.StringIO(newline="")
    csv.writer(stream, delimiter=delimiter).writerows([
        ("pmid", "text", "labels"), *((str(number), text, "A;B") for number, text in enumerate(texts))
    ])  # fmt: skip
    name = "a.csv" if delimiter == "," else "a.tsv"
    assert [doc.text for doc in read_text(stream.getvalue(), name, quotes="csv")] == texts


def test_a_row_with_another_number_of_cells_is_refused_alone(tmp_path: Path) -> None:
    with Tally(tmp_path / "rejects.jsonl") as tally:
        docs = read_text("index\tsentence\tlabel\na\tA zorb.\nb\tA zorb.\t1\nc\tA\tzorb.\t1\n", tally=tally)
    assert [doc.id for doc in docs] == ["b"]
    assert tally.rejected == {"wrong_columns": 2}


def test_the_message_of_a_bad_row_lists_the_columns() -> None:
    with raises(BadDocument, code="wrong_columns", value=2, mentions="index, sentence, label"):
        read_text("index\tsentence\tlabel\na\tA zorb.\n")


def test_a_row_without_text_is_refused() -> None:
    with raises(BadDocument, code="no_text", value="text"):
        read_text("pmid\ttext\tlabels\n77\t\tA\n")


@pytest.mark.parametrize(
    "head",
    [
        "number\tcomment\tcategory\n1\tZorbs wobble.\tA\n",
        "comment\tcategory\nZorbs wobble.\tA\n",
        "pmid\tlabel\n1\tA\n",
        "text\tweight\nZorbs wobble.\t3\n",
        "Zorbs wobble.\n",
    ],
)
def test_unknown_columns_say_what_was_seen_what_is_known_and_what_to_do(head: str) -> None:
    with raises(FormatError, code="unknown-columns", mentions="header=yes"):
        read_text(head)


def test_a_table_of_mentions_is_named_as_such() -> None:
    with raises(FormatError, code="unknown-columns", mentions="lexome link"):
        read_text("document\tpmid\tstart\tend\ttext\tconcept\n1\t1\t0\t4\tzorb\t\n")


@pytest.mark.parametrize(
    "options", [{"text": "comment", "label": "category"}, {"text": "2", "label": "3", "header": "yes"}]
)
def test_columns_can_be_named(options: dict[str, str]) -> None:
    tally = Tally()
    docs = read_text("number\tcomment\tcategory\n1\tZorbs wobble.\tA\n", tally=tally, **options)
    assert plain(docs) == [("train-2", "Zorbs wobble.", ("A",))]
    assert tally.notes == {"column 'number' ignored": 1}


def test_columns_can_be_numbered_without_a_header() -> None:
    docs = read_text("7,yes,Zorbs wobble.\n", "a.csv", text="3", label="2", id="1")
    assert plain(docs) == [("7", "Zorbs wobble.", ("yes",))]


def test_named_columns_leave_the_known_ones_known() -> None:
    docs = read_text("pmid\tbody_text\tlabel\n7\tZorbs wobble.\tA\n", text="body_text")
    assert plain(docs) == [("7", "Zorbs wobble.", ("A",))]


@pytest.mark.parametrize("text", ["Heading,Summary", "2, 3"])
def test_several_columns_of_text_are_selected(text: str) -> None:
    docs = read_text("Ref,Heading,Summary\n7,BRCA1.,It binds.\n", "a.csv", text=text, id="1", header="yes")
    assert [(doc.id, [passage.text for passage in doc.passages]) for doc in docs] == [("7", ["BRCA1.", "It binds."])]
    [doc] = read_text('Ref,"Heading, in full"\n7,BRCA1.\n', "a.csv", text="Heading, in full", id="Ref")
    assert doc.text == "BRCA1."
    with raises(FormatError, code="unknown-columns", value="4"):
        read_text("Ref,Heading,Summary\n7,BRCA1.,It binds.\n", "a.csv", text="Heading,4")


@pytest.mark.parametrize("text", ["4", "0", "comments", "9" * 5000])
def test_a_named_column_that_is_not_there_says_so(text: str) -> None:
    with raises(FormatError, code="unknown-columns", value=text, mentions="'number'"):
        read_text("number\tcomment\tcategory\n1\tZorbs wobble.\tA\n", text=text)


def test_a_header_can_be_denied() -> None:
    assert plain(read_text("text label\tlabel\n", header="no")) == [("train-1", "text label", ("label",))]


def test_blank_lines_are_no_rows() -> None:
    docs = read_text("\n\nindex\tsentence\tlabel\n\na\tA zorb.\t1\n  \n")
    assert plain(docs) == [("a", "A zorb.", ("1",))]


def test_an_empty_table_has_no_documents_and_is_counted() -> None:
    tally = Tally()
    assert read_text("\n \n", tally=tally) == []
    assert tally.notes == {"empty table": 1}


def test_wrong_bytes_refuse_their_row_and_latin_1_can_be_named() -> None:
    raw = b"index\tsentence\tlabel\na\tNa\xefve zorbs.\t1\n"
    with raises(BadDocument, code="wrong_encoding", mentions="encoding=latin-1"):
        read_raw(raw)
    assert read_raw(raw, encoding="latin-1")[0].text == "Naïve zorbs."
    assert read_raw(raw.replace(b"\t", b","), "a.csv", encoding="latin-1")[0].text == "Naïve zorbs."


def test_an_encoding_that_does_not_exist_is_wrong_usage() -> None:
    with raises(UsageError, code="unknown-encoding", value="latin-99"):
        read_text("index\tsentence\tlabel\na\tA zorb.\t1\n", encoding="latin-99")


def test_a_csv_cell_quoted_badly_is_refused_alone(tmp_path: Path) -> None:
    with Tally(tmp_path / "rejects.jsonl") as tally:
        docs = read_text('pmid,text,label\n1,"A" zorb,x\n2,A zorb,y\n', "a.csv", tally)
    assert [doc.id for doc in docs] == ["2"]
    assert tally.rejected == {"malformed_csv": 1}


def test_ids_in_an_archive_tell_its_folders_apart(tmp_path: Path) -> None:
    import tarfile

    for fold in "12":
        (tmp_path / "GAD" / fold).mkdir(parents=True)
        (tmp_path / "GAD" / fold / "train.tsv").write_text("A @GENE$ wobbles.\t1\n")
    with tarfile.open(tmp_path / "folds.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "GAD", "GAD")
    assert [doc.id for doc in lexome.read(tmp_path / "folds.tar.gz", "tsv")] == ["GAD/1/train-1", "GAD/2/train-1"]


SAMPLES = {
    "a.tsv": b'index\tsentence\tlabel\r\na\tA "zorb".\t1\r\nb\t"A ""z"" "\t0\n',
    "b.tsv": "CPR:4\tCHEMICAL\tGENE-Y\t9\t0\tgène .\tT1\tT22\t1\n".encode(),
    "c.csv": b'pmid,title,abstract,label\n1,A zorb,"It ""w"",\nyes",B;C\n',
}


@pytest.mark.parametrize("name", SAMPLES)
@given(data=st.data())
def test_damaged_tables_raise_only_errors_of_ours(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    raw = data.draw(damaged(SAMPLES[name]))
    for tally in (Tally(), Tally(tmp_path_factory.getbasetemp() / "table-rejects.jsonl")):
        with suppress(FormatError if tally.rejects_path else LexomeError), tally:
            read_raw(raw, name, tally)


def test_a_cell_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_CELL_BYTES", 1 << 18)
    csv.field_size_limit(1 << 18)
    raw = b'pmid,text,label\n1,"' + b"zorbs wobble\n" * 30_000 + b'",A\n'
    with raises(FormatError, code="unclosed-quote", value=2, mentions="a.csv"):
        read_raw(raw, "a.csv")


BENCHMARKS = "benchmarks"


def count_labels(docs: list[Document]) -> Counter[str]:
    return Counter(label for doc in docs for label in doc.labels)


@pytest.mark.parametrize(("name", "abstracts"), [("train", 1108), ("dev", 157), ("test", 315)])
def test_hoc_is_read_whole(real_data: Path, name: str, abstracts: int) -> None:
    docs = list(lexome.read(real_data / BENCHMARKS / f"HoC/{name}.tsv.xz"))
    assert len({doc.id for doc in docs}) == len(docs) == abstracts
    assert all(doc.labels for doc in docs)
    assert len(count_labels(docs)) == 10
    assert not any('""' in doc.text for doc in docs)


def test_litcovid_has_its_labels(real_data: Path) -> None:
    docs = list(lexome.read(real_data / BENCHMARKS / "LitCovid/test.tsv.xz"))
    assert len({doc.id for doc in docs}) == len(docs) == 2500
    assert count_labels(docs) == {
        "Treatment": 1035, "Prevention": 926, "Diagnosis": 722, "Mechanism": 567, "Case Report": 197,
        "Transmission": 128, "Epidemic Forecasting": 41,
    }  # fmt: skip
    assert not any('""' in doc.text for doc in docs)


@pytest.mark.parametrize(("name", "count"), [("val_a", 3423), ("val_b", 3490), ("epidemic_forecasting_scraped", 1103)])
def test_litcovid_csv_files_are_read(real_data: Path, name: str, count: int) -> None:
    docs = list(lexome.read(real_data / BENCHMARKS / f"LitCovid/aux-lossy/{name}.csv.xz"))
    assert len({doc.id for doc in docs}) == len(docs) == count


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("training", {"CPR:3": 690, "CPR:4": 2041, "CPR:5": 160, "CPR:6": 212, "CPR:9": 685, "NA": 11704}),
        ("development", {"CPR:3": 497, "CPR:4": 989, "CPR:5": 112, "CPR:6": 184, "CPR:9": 407, "NA": 7341}),
        ("test", {"CPR:3": 593, "CPR:4": 1510, "CPR:5": 161, "CPR:6": 270, "CPR:9": 569, "NA": 9981}),
    ],
)
def test_chemprot_pairs_have_their_labels(real_data: Path, name: str, labels: dict[str, int]) -> None:
    docs = list(lexome.read(real_data / BENCHMARKS / f"ChemProt-pairs/{name}.tsv.xz"))
    assert count_labels(docs) == labels
    assert len({doc.id for doc in docs}) == len(docs)


@pytest.mark.parametrize(
    ("name", "negative", "count", "positive"),
    [
        ("ChemProt-pairs/blue_dev", "false", 11820, 2416),
        ("DDI-2013/blue_dev", "DDI-false", 7244, 1004),
        ("DDI-2013/blue_test", "DDI-false", 5761, 979),
    ],
)
def test_blue_relations_are_read(real_data: Path, name: str, negative: str, count: int, positive: int) -> None:
    docs = list(lexome.read(real_data / BENCHMARKS / f"{name}.tsv.xz"))
    assert len(docs) == count
    assert sum(doc.labels != (negative,) for doc in docs) == positive


@pytest.mark.parametrize(
    ("name", "tests", "distinct", "labels", "first"),
    [
        ("GAD", 5330, 5122, {"1": 2801, "0": 2529}, (4796, 534)),
        ("EU-ADR", 355, 355, {"1": 262, "0": 93}, (318, 37)),
    ],
)
def test_folds_are_read_from_their_archive(
    real_data: Path, name: str, tests: int, distinct: int, labels: dict[str, int], first: tuple[int, int]
) -> None:
    docs = list(lexome.read(real_data / BENCHMARKS / f"{name}/folds.tar.xz", "tsv"))
    tested = [doc for doc in docs if "/test-" in doc.id]
    assert len({doc.id for doc in docs}) == len(docs) == 10 * tests
    assert (len(tested), len({doc.text for doc in tested})) == (tests, distinct)
    assert count_labels(tested) == labels
    assert first == tuple(sum(doc.id.startswith(f"{name}/1/{part}-") for doc in docs) for part in ("train", "test"))
