"""Real BioC files: what is read, exactly which documents are refused and why, and exact round trips."""

import io
import json
from pathlib import Path

import pytest

from lexome import Document, Tally, read
from lexome.formats import bioc_json, bioc_xml, pubtator
from lexome.formats.streams import Source
from lexome.metadata import Author

# File, documents, mentions, relations; then documents refused; then documents and mentions when repaired.
COUNTS = [
    ("formats/bioc/bionlplab_everything.xml", 2, 5, 3, 0, 2, 5),
    ("formats/bioc/bionlplab_everything.json", 2, 5, 3, 0, 2, 5),
    # 34 documents have the annotations of the full text over the title and abstract alone.
    ("formats/bioc/greenelab_2-sample-docs.xml", 98, 1353, 0, 34, 132, 1886),
    ("formats/bioc/greenelab_batch_0.xml", 100, 2493, 0, 0, 100, 2493),
    # Terms are spelled as MeSH has them, not as the text does, and their offsets begin anew in each passage.
    ("formats/bioc/pubmedportable_annotated_text_BioC.xml", 0, 0, 0, 3, 3, 0),
    # The abstract's offset leaves no gap after the title, which the mentions count; and terms as above.
    ("formats/pubtator/pubmedportable_annotated_text_PubTator.xml", 0, 0, 0, 3, 3, 19),
    ("formats/pubtator/pubmedportable_text_PubTator.xml", 0, 0, 0, 3, 3, 19),
    # Three documents have a discontinuous mention with one range around all of it.
    ("benchmarks/EU-ADR/euadr.bioc.xml.xz", 35, 673, 159, 3, 38, 726),
]
FILES = [row[0] for row in COUNTS]


@pytest.mark.parametrize(("name", "documents", "mentions", "relations", "refused", "mended", "kept"), COUNTS, ids=FILES)
def test_counts(
    real_data: Path,
    tmp_path: Path,
    name: str,
    documents: int,
    mentions: int,
    relations: int,
    refused: int,
    mended: int,
    kept: int,
) -> None:
    tally = Tally(tmp_path / "rejects.jsonl")
    docs = list(read(real_data / name, tally=tally, offsets="strict"))
    assert (len(docs), tally.spans.total(), tally.relations.total()) == (documents, mentions, relations)
    assert tally.rejected.total() == refused
    assert set(tally.rejected) <= {"offset_mismatch", "bad_offset"}
    again = Tally()
    assert (len(list(read(real_data / name, tally=again, offsets="repair"))), again.spans.total()) == (mended, kept)


@pytest.mark.parametrize("name", FILES)
def test_round_trips_are_exact(real_data: Path, name: str) -> None:
    docs = list(read(real_data / name, offsets="repair"))
    for format in (bioc_xml, bioc_json):
        stream, tally = io.BytesIO(), Tally()
        format.write(docs, stream, tally=tally)
        stream.seek(0)
        source = Source("a", io.BufferedReader(stream))  # type: ignore[arg-type]
        assert list(format.read(source, tally=tally)) == docs
        assert not tally.notes


@pytest.mark.parametrize("name", FILES)
def test_mentions_keep_their_places_in_pubtator_text(real_data: Path, tmp_path: Path, name: str) -> None:
    docs = list(read(real_data / name, offsets="repair"))
    stream = io.BytesIO()
    with Tally(tmp_path / "rejects.jsonl") as tally:
        pubtator.write(docs, stream, tally=tally)
    stream.seek(0)
    found = {doc.id: doc for doc in pubtator.read(Source("a", io.BufferedReader(stream)), tally=Tally())}  # type: ignore[arg-type]
    # The documents of three of these files leave no gap between title and abstract, which PubTator needs.
    assert tally.rejected == ({"no_gap": 3} if "pubmedportable" in name else {})
    for doc in docs:
        if doc.id in found:
            assert _places(found[doc.id]) == _places(doc)


def _places(doc: Document) -> list[object]:
    return [(span.type, span.parts, span.text, span.concepts) for span in doc.spans]


def test_the_article_is_known_from_pubtator_central(real_data: Path) -> None:
    first = next(iter(read(real_data / "formats/bioc/greenelab_batch_0.xml")))
    assert (first.meta.pmid, first.meta.pmcid, first.meta.published) == ("1560033", "PMC2289422", "1992-04")
    assert first.meta.authors[0] == Author(family="Descalzi Cancedda", initials="F")
    assert first.meta.license_url == "http://creativecommons.org/licenses/by-nc-sa/4.0/"


def test_xml_and_json_of_one_collection_are_the_same_documents(real_data: Path) -> None:
    folder = real_data / "formats" / "bioc"
    assert list(read(folder / "bionlplab_everything.xml")) == list(read(folder / "bionlplab_everything.json"))


def test_the_bioc_package_finds_the_same_mentions_in_what_is_written(real_data: Path, tmp_path: Path) -> None:
    biocxml = pytest.importorskip("bioc.biocxml")
    docs = list(read(real_data / "formats/bioc/greenelab_batch_0.xml"))
    with (tmp_path / "a.xml").open("wb") as stream:
        bioc_xml.write(docs, stream, tally=Tally())
    with (tmp_path / "a.xml").open("rb") as stream:
        collection = biocxml.load(stream)
    assert [
        (mention.id, mention.infons["type"], mention.total_span.offset, mention.text)
        for document in collection.documents
        for passage in document.passages
        for mention in passage.annotations
    ] == [(span.id, span.type, span.start, span.text) for doc in docs for span in doc.spans]


def test_refused_documents_are_kept_whole(real_data: Path, tmp_path: Path) -> None:
    tally = Tally(tmp_path / "rejects.jsonl")
    list(read(real_data / "benchmarks/EU-ADR/euadr.bioc.xml.xz", tally=tally, offsets="strict"))
    rejects = [json.loads(line) for line in (tmp_path / "rejects.jsonl").read_text().split("\n") if line]
    assert [reject["id"] for reject in rejects] == ["17599377", "18341639", "18497344"]
    assert all(reject["raw"].startswith("<document>") for reject in rejects)
