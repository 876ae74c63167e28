"""DrugProt's three tables as documents."""

from pathlib import Path

import pytest

from lexome.datasets.own_layouts import read_drugprot
from lexome.document import Document
from lexome.errors import BadDocument
from lexome.formats.streams import open_sources
from lexome.formats.tally import Tally

TABLES = {
    "x_abstracts.tsv": "7\tAspirin and COX1\tAspirin blocks COX1.\n",
    "x_entities.tsv": "7\tT1\tCHEMICAL\t17\t24\tAspirin\n7\tT2\tGENE-Y\t32\t36\tCOX1\n8\tT1\tGENE-N\t0\t1\tx\n",
    "x_relations.tsv": "7\tINHIBITOR\tArg1:T1\tArg2:T2\n",
}


def documents(folder: Path, tally: Tally, **changes: str) -> list[Document]:
    paths = []
    for name, text in {**TABLES, **{f"x_{name}.tsv": text for name, text in changes.items()}}.items():
        paths.append(folder / name)
        paths[-1].write_text(text)
    return list(read_drugprot((source for path in paths for source in open_sources(path, tally)), tally=tally))


def test_offsets_count_from_the_title_and_relations_name_mentions(tmp_path: Path) -> None:
    tally = Tally()
    (doc,) = documents(tmp_path, tally)
    assert [(span.text, span.type) for span in doc.spans] == [("Aspirin", "CHEMICAL"), ("COX1", "GENE-Y")]
    assert [(side.role, side.target) for side in doc.relations[0].arguments] == [("Arg1", "T1"), ("Arg2", "T2")]
    assert tally.notes == {"entities of an abstract that is not there skipped": 1}


@pytest.mark.parametrize(
    "changes",
    [{"abstracts": "7\tno abstract\n"}, {"entities": "7\tT1\tGENE-Y\tone\t2\tx\n"}, {"relations": "7\tX\tArg1:T1\n"}],
)
def test_a_row_with_other_columns_is_a_bad_document(changes: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(BadDocument) as caught:
        documents(tmp_path, Tally(), **changes)
    assert (caught.value.reason, caught.value.value) == ("bad_field", "7")
