"""The published PubTator corpora: their counts to the mention, their traps, and exact round trips."""

import io
import json
import re
from pathlib import Path

import pytest

from lexome import Document, Tally, read
from lexome.formats import bioc_json, bioc_xml, pubtator
from lexome.formats.streams import Source

CDR = "BC5CDR-pubtator/CDR_{}Set.PubTator.txt.xz"
NCBI = "NCBI-disease-pubtator/NCBI{}set_corpus.txt.xz"
AIO = "AIONER-pubtator/{}.PubTator.xz"

# File, blocks, mentions, relations; then blocks refused and mentions in them; then mentions lost when repaired.
COUNTS = [
    (CDR.format("Training"), 500, 5203 + 4182, 1038, 0, 0, 0),
    (CDR.format("Development"), 500, 5347 + 4244, 1012, 0, 0, 0),
    (CDR.format("Test"), 500, 5385 + 4424, 1066, 0, 0, 0),
    (NCBI.format("train"), 593, 5145, 0, 1, 13, 0),
    (NCBI.format("develop"), 100, 787, 0, 0, 0, 0),
    (NCBI.format("test"), 100, 960, 0, 0, 0, 0),
    ("BioRED/Train.PubTator.xz", 400, 13351, 4178, 0, 0, 0),
    ("BioRED/Dev.PubTator.xz", 100, 3533, 1162, 0, 0, 0),
    ("BioRED/Test.PubTator.xz", 100, 3535, 1163, 0, 0, 0),
    (AIO.format("BioRED_TrainDev"), 500, 16884, 0, 0, 0, 0),
    (AIO.format("BioRED_Test"), 100, 3535, 0, 0, 0, 0),
    (AIO.format("NLMgene_Train"), 450, 13797, 0, 2, 68, 1),
    (AIO.format("NLMgene_Test"), 100, 3053, 0, 0, 0, 0),
    (AIO.format("NLMchem_Test"), 3428, 12411, 0, 0, 0, 0),
    (AIO.format("GNormPlus_Train"), 432, 5793, 0, 4, 71, 1),
    (AIO.format("GNormPlus_Test"), 262, 4849, 0, 4, 83, 2),
    (AIO.format("SPECIES_Train"), 639, 3053, 0, 0, 0, 0),
    (AIO.format("SPECIES_Test"), 160, 739, 0, 0, 0, 0),
    (AIO.format("Linnaeus_Train"), 80, 2321, 0, 0, 0, 0),
    (AIO.format("Linnaeus_Test"), 20, 576, 0, 0, 0, 0),
    (AIO.format("DrugProt_Test"), 750, 18339, 0, 0, 0, 0),
]
FILES = [row[0] for row in COUNTS]
_MENTION = re.compile(r"^[^\t\n]+\t[0-9]+\t[0-9]+\t", re.MULTILINE)


def docs_of(path: Path, tally: Tally, **options: str) -> list[Document]:
    return list(read(path, tally=tally, **options))


@pytest.mark.parametrize(("name", "blocks", "mentions", "relations", "refused", "inside", "lost"), COUNTS, ids=FILES)
def test_counts(
    real_data: Path,
    tmp_path: Path,
    name: str,
    blocks: int,
    mentions: int,
    relations: int,
    refused: int,
    inside: int,
    lost: int,
) -> None:
    path = real_data / "benchmarks" / name
    tally = Tally(tmp_path / "rejects.jsonl")
    docs = docs_of(path, tally, offsets="strict")
    assert (len(docs), tally.rejected.total()) == (blocks - refused, refused)
    assert (tally.spans.total(), tally.relations.total()) == (mentions - inside, relations)
    rejects = (tmp_path / "rejects.jsonl").read_text() if refused else ""
    raws = [json.loads(line)["raw"] for line in rejects.split("\n") if line]
    assert sum(len(_MENTION.findall(raw)) for raw in raws) == inside
    mended = Tally()
    assert len(docs_of(path, mended, offsets="repair")) == blocks
    assert mended.spans.total() == mentions - lost
    assert mended.notes["span dropped: its text is not near its offsets"] == lost


@pytest.mark.parametrize(
    ("name", "types"), [("Training", (5203, 4182)), ("Development", (5347, 4244)), ("Test", (5385, 4424))]
)
def test_bc5cdr_by_type(real_data: Path, name: str, types: tuple[int, int]) -> None:
    tally = Tally()
    docs = docs_of(real_data / "benchmarks" / CDR.format(name), tally)
    assert (tally.spans["Chemical"], tally.spans["Disease"]) == types
    roles = [tuple(argument.role for argument in relation.arguments) for doc in docs for relation in doc.relations]
    assert set(roles) == {("Chemical", "Disease")}


def test_a_corpus_may_hold_one_article_twice(real_data: Path) -> None:
    docs = docs_of(real_data / "benchmarks" / NCBI.format("train"), Tally(), offsets="repair")
    assert (len(docs), len({doc.id for doc in docs})) == (593, 592)


def test_the_passages_of_nlm_chem_are_documents_of_their_article(real_data: Path) -> None:
    docs = docs_of(real_data / "benchmarks" / AIO.format("NLMchem_Test"), Tally())
    assert len({doc.id for doc in docs}) == 3428
    assert len({doc.meta.part_of or doc.id for doc in docs}) == 50


@pytest.mark.parametrize(("name", "moved"), [("GNormPlus_Train", 34), ("NLMgene_Train", 10)])
def test_offsets_that_miss_are_mostly_repaired(real_data: Path, name: str, moved: int) -> None:
    tally = Tally()
    docs_of(real_data / "benchmarks" / AIO.format(name), tally, offsets="repair")
    assert tally.notes["span moved to its text"] == moved


def test_annotations_of_full_text_over_an_abstract_are_refused(real_data: Path, tmp_path: Path) -> None:
    tally = Tally(tmp_path / "rejects.jsonl")
    docs = docs_of(real_data / "formats" / "pubtator" / "greenelab_1-sample-annotations.txt", tally, offsets="strict")
    assert (len(docs), tally.rejected.total()) == (98, 34)
    assert tally.notes["trailing spaces of a title removed: offsets do not count them"] == 125
    assert {concept.partition(":")[0] for doc in docs for span in doc.spans for concept in span.concepts} == {
        "mesh", "NCBITaxon", "NCBIGene", "cellosaurus", "hgvs", "omim",
    }  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_round_trips_are_exact(real_data: Path, tmp_path: Path, name: str) -> None:
    docs = docs_of(real_data / "benchmarks" / name, Tally(tmp_path / "rejects.jsonl"), offsets="strict")
    for format in (pubtator, bioc_xml, bioc_json):
        stream, tally = io.BytesIO(), Tally()
        format.write(docs, stream, tally=tally)
        stream.seek(0)
        source = Source("a", io.BufferedReader(stream))  # type: ignore[arg-type]
        assert list(format.read(source, tally=tally)) == docs
        assert {note for note in tally.notes if "not written" in note} == set()
