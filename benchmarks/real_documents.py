"""PDF and Word files from the test data of packages: what is read of them.

    python benchmarks/real_documents.py FOLDER

FOLDER has source distributions of pypdf, pdftotext, tabula-py and python-docx, as
`pip download --no-deps --no-binary :all:` fetches them. Writes counts, no text, to results/real_documents.json.
"""

import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import lexome
from facts import facts
from lexome import Tally
from lexome.errors import LexomeError

RESULT = Path(__file__).resolve().parents[1] / "results" / "real_documents.json"
FILES = (
    ("pypdf", "resources/GeoBase_NHNC1_Data_Model_UML_EN.pdf"),
    ("pypdf", "resources/Seige_of_Vicksburg_Sample_OCR.pdf"),
    ("pypdf", "resources/crazyones.pdf"),
    ("pypdf", "resources/multilang.pdf"),
    ("pypdf", "resources/side-by-side-subfig.pdf"),
    ("pypdf", "resources/encrypted-file.pdf"),
    ("pypdf", "resources/jpeg.pdf"),
    ("pdftotext", "tests/three_columns.pdf"),
    ("pdftotext", "tests/corrupt.pdf"),
    ("tabula_py", "tests/resources/MultiColumn.pdf"),
    ("python_docx", "features/steps/test_files/blk-paras-and-tables.docx"),
    ("python_docx", "features/steps/test_files/doc-default.docx"),
    ("python_docx", "features/steps/test_files/par-known-styles.docx"),
    ("python_docx", "features/steps/test_files/tbl-having-tables.docx"),
    ("python_docx", "features/steps/test_files/hdr-header-footer.docx"),
    ("python_docx", "features/steps/test_files/comments-rich-para.docx"),
    ("python_docx", "tests/test_files/blk-inner-content.docx"),
    ("python_docx", "tests/test_files/having-images.docx"),
    ("python_docx", "tests/test_files/test.docx"),
    ("python_docx", "src/docx/templates/default.docx"),
)


def main() -> None:
    folder = Path(sys.argv[1])
    documents = []
    with tempfile.TemporaryDirectory() as scratch:
        for package, name in FILES:
            (path,) = folder.glob(f"{package}-*.tar.gz")
            with tarfile.open(path) as archive:
                member = archive.extractfile(f"{path.name.removesuffix('.tar.gz')}/{name}")
                assert member is not None
                copy = Path(scratch, Path(name).name)
                copy.write_bytes(member.read())
            documents.append({"file": copy.name, "package": path.name.removesuffix(".tar.gz"), **counted(copy)})
    RESULT.write_text(json.dumps({"facts": facts("pypdfium2", "python-docx"), "documents": documents}, indent=1) + "\n")
    print(json.dumps(documents, indent=1))


def counted(path: Path) -> dict[str, Any]:
    """Passages, headings and characters of a file, after a look at every offset; or why it is refused."""
    try:
        (doc,) = lexome.read(path, tally=Tally())
    except LexomeError as error:
        return {"passages": 0, "headings": 0, "characters": 0, "note": f"refused: {error.code}"}
    assert all(doc.text[one.offset : one.end] == one.text for one in doc.passages)
    headings = sum(one.kind in ("title", "heading") for one in doc.passages)
    return {"passages": len(doc.passages), "headings": headings, "characters": len(doc.text), "note": ""}


if __name__ == "__main__":
    main()
