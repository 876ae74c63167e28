"""PDF, Word and Excel files in: text, headings, and files made to break a reader."""

import io
import re
import zipfile
from pathlib import Path

import pytest
from errors import raises
from office_files import Line, bomb, make_pdf

import lexome
from lexome import Document, Tally
from lexome.errors import FormatError
from lexome.formats import office

pytest.importorskip("pypdfium2")
docx = pytest.importorskip("docx")
openpyxl = pytest.importorskip("openpyxl")

# Left edge, baseline, size, text.
PAGE: list[Line] = [
    (72, 780, 20, "A study of BRCA1"),
    (72, 740, 10, "Breast cancer is a disease of the breast that immuno-"),
    (72, 728, 10, "precipitation shows; IL-2 is café."),
    (72, 700, 14, "Methods"),
    (72, 680, 10, "The cells were kept and then"),
    (72, 668, 10, "washed."),
]
SECOND: list[Line] = [(72, 780, 10, "Another page begins a paragraph.")]


def blocks(docs: list[Document]) -> list[tuple[str, tuple[str, ...], str]]:
    return [(passage.kind, passage.section, passage.text) for doc in docs for passage in doc.passages]


@pytest.mark.parametrize("compress", [False, True])
def test_a_pdf_has_title_headings_and_paragraphs(tmp_path: Path, compress: bool) -> None:
    (tmp_path / "a.pdf").write_bytes(make_pdf([PAGE, SECOND], compress=compress))
    tally = Tally()
    docs = list(lexome.read(tmp_path / "a.pdf", tally=tally))
    assert blocks(docs) == [
        ("title", (), "A study of BRCA1"),
        ("paragraph", (), "Breast cancer is a disease of the breast that immunoprecipitation shows; IL-2 is café."),
        ("heading", (), "Methods"),
        ("paragraph", ("Methods",), "The cells were kept and then washed."),
        ("paragraph", ("Methods",), "Another page begins a paragraph."),
    ]
    assert dict(tally.notes) == {
        "text extracted from a PDF: offsets count the extracted text": 1,
        "hyphen at the end of a line removed": 1,
    }


def test_a_pdf_without_text_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(make_pdf([[]]))
    with raises(lexome.errors.BadDocument, code="no_text", mentions="OCR"):
        list(lexome.read(tmp_path / "a.pdf"))


def test_characters_are_recognized_in_pdfs_only(tmp_path: Path) -> None:
    docx = pytest.importorskip("docx")
    docx.Document().save(tmp_path / "a.docx")
    with pytest.raises(lexome.errors.BadDocument) as error:
        list(lexome.read(tmp_path / "a.docx"))
    assert (error.value.code, "OCR" in str(error.value)) == ("no_text", False)


def test_a_page_as_large_as_a_country_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(make_pdf([SECOND], media="0 0 1e9 1e9"))
    assert blocks(list(lexome.read(tmp_path / "a.pdf"))) == [("paragraph", (), SECOND[0][3])]


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of readers in their own process, so low that small bombs reach it soon."""
    monkeypatch.setattr(office, "MEMORY_BYTES", 384 << 20)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    "content",
    [
        b"%PDF-1.4 and nothing more",
        make_pdf([PAGE])[:300],
        bomb(size=512 << 20),
        make_pdf([PAGE]).replace(b"/Kids [4 0 R] /Count 1", b"/Kids [2 0 R] /Count 9"),
    ],
    ids=["header alone", "truncated", "bomb", "cycle of pages"],
)
def test_a_pdf_that_cannot_be_read_is_refused_with_a_reason(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.pdf").write_bytes(content)
    with pytest.raises((FormatError, lexome.errors.BadDocument)):
        list(lexome.read(tmp_path / "a.pdf"))


def word_file(path: Path) -> None:
    document = docx.Document()
    document.add_heading("A title", 0)
    document.add_heading("Methods", 1)
    document.add_heading("Cells", 2)
    document.add_paragraph("BRCA1 binds α.")
    table = document.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "left", "right"
    document.save(str(path))


def test_a_word_document_has_headings_paragraphs_and_cells(tmp_path: Path) -> None:
    word_file(tmp_path / "a.docx")
    assert blocks(list(lexome.read(tmp_path / "a.docx"))) == [
        ("title", (), "A title"),
        ("heading", (), "Methods"),
        ("heading", ("Methods",), "Cells"),
        ("paragraph", ("Methods", "Cells"), "BRCA1 binds α."),
        ("table", ("Methods", "Cells"), "left"),
        ("table", ("Methods", "Cells"), "right"),
    ]


def rewritten(path: Path, body: str) -> Path:
    """A copy of a Word document with another body."""
    word_file(path)
    out = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for item in old.infolist():
            content = old.read(item)
            if item.filename == "word/document.xml":
                content = re.sub(
                    rb"<w:body>.*</w:body>", b"<w:body>" + body.encode() + b"</w:body>", content, flags=re.S
                )
            new.writestr(item, content)
    path.write_bytes(out.getvalue())
    return path


MC = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'


def text_boxes(depth: int) -> str:
    """A text box in a text box ...; each is stored twice, the second time for old versions."""
    if not depth:
        return "<w:p><w:r><w:t>inside</w:t></w:r></w:p>"
    inner = text_boxes(depth - 1)
    box = f"<w:txbxContent>{inner}</w:txbxContent>"
    return (
        f"<w:p><w:r><mc:AlternateContent {MC}><mc:Choice>{box}</mc:Choice><mc:Fallback>{box}</mc:Fallback>"
        "</mc:AlternateContent></w:r></w:p>"
    )


def test_text_boxes_are_read_once_however_deep(tmp_path: Path) -> None:
    path = rewritten(tmp_path / "a.docx", text_boxes(10))
    assert blocks(list(lexome.read(path))) == [("paragraph", (), "inside")]


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    "body",
    ["<w:p>" * 5000 + "</w:p>" * 5000, "<w:unclosed>"],
    ids=["deep", "malformed"],
)
def test_a_word_document_that_cannot_be_read_is_refused_with_a_reason(tmp_path: Path, body: str) -> None:
    path = rewritten(tmp_path / "a.docx", body)
    with pytest.raises((FormatError, lexome.errors.BadDocument)):
        list(lexome.read(path))


def test_a_sheet_is_read_as_a_table_is(tmp_path: Path) -> None:
    workbook = openpyxl.Workbook()
    workbook.active.append(["id", "text", "label"])
    workbook.active.append([7, "=BRCA1 α".removeprefix("="), "yes"])
    workbook.active.append([8, "Without a label"])
    workbook.create_sheet("more").append(["text"])
    workbook["more"].append(["Of the second sheet"])
    workbook.save(tmp_path / "a.xlsx")
    docs = list(lexome.read(tmp_path / "a.xlsx"))
    # Whatever the file is called.
    (tmp_path / "a.xlsx").rename(tmp_path / "a")
    assert list(lexome.read(tmp_path / "a", format="xlsx")) == docs
    assert [(doc.id, doc.text, doc.labels) for doc in docs] == [
        ("7", "BRCA1 α", ("yes",)),
        ("8", "Without a label", ()),
        ("a-2-2", "Of the second sheet", ()),
    ]


@pytest.mark.parametrize("legend_first", [True, False])
def test_a_sheet_with_other_columns_is_skipped_and_noted(tmp_path: Path, legend_first: bool) -> None:
    workbook = openpyxl.Workbook()
    sheets = [workbook.active, workbook.create_sheet("more")]
    legend, texts = sheets if legend_first else reversed(sheets)
    legend.append(["Another", "table"])
    texts.append(["text"])
    texts.append(["BRCA1"])
    workbook.save(tmp_path / "a.xlsx")
    tally = lexome.Tally()
    assert [doc.text for doc in lexome.read(tmp_path / "a.xlsx", tally=tally)] == ["BRCA1"]
    assert [note for note in tally.notes if f"sheet {1 if legend_first else 2} skipped" in note]


def test_the_first_sheet_is_named_if_no_sheet_has_texts(tmp_path: Path) -> None:
    workbook = openpyxl.Workbook()
    workbook.active.append(["Another", "table"])
    workbook.create_sheet("more").append(["One", "more"])
    workbook.save(tmp_path / "a.xlsx")
    with raises(FormatError, code="unknown-columns", mentions="Another"):
        list(lexome.read(tmp_path / "a.xlsx"))


@pytest.mark.parametrize("name", ["a.docx", "a.xlsx"])
@pytest.mark.parametrize("content", [b"PK\x03\x04 and no more", b"text", bytes(500)], ids=["zip", "text", "zeros"])
def test_what_is_no_office_document_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with raises(FormatError, code="unreadable-document") as error:
        list(lexome.read(tmp_path / name))
    # Libraries name the file that they open, which for a client of a service is a temporary one of the server.
    assert str(error.value).count(str(tmp_path)) == 1
