"""Small PDF files, written by hand so that no library is needed for it."""

import zlib
from collections.abc import Sequence

Line = tuple[float, float, float, str]
"""Left edge, baseline and size of a line, and its text."""


def make_pdf(pages: Sequence[Sequence[Line]], *, media: str = "0 0 595 842", compress: bool = False) -> bytes:
    """A PDF with these lines, in Helvetica with the encoding of Windows."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for number, lines in enumerate(pages):
        content = b"BT\n"
        for x, y, size, text in lines:
            escaped = text.encode("cp1252").replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")
            content += f"/F1 {size} Tf 1 0 0 1 {x} {y} Tm (".encode() + escaped + b") Tj\n"
        content += b"ET"
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [{media}] /Contents {5 + 2 * number} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>".encode()
        )
        objects.append(
            stream_object(zlib.compress(content) if compress else content, "/FlateDecode" if compress else "")
        )
    return assemble(objects)


def stream_object(data: bytes, filters: str = "") -> bytes:
    """A stream with its filters."""
    name = f"/Filter {filters}" if filters else ""
    return f"<< /Length {len(data)} {name} >>\nstream\n".encode() + data + b"\nendstream"


def assemble(objects: Sequence[bytes]) -> bytes:
    """A PDF file of numbered objects, of which the first is the catalog."""
    out = b"%PDF-1.4\n"
    places = []
    for number, content in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n".encode() + content + b"\nendobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    trailer = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer\n"
    trailer += f"<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(out)}\n%%EOF\n"
    return out + trailer.encode()


def bomb(levels: int = 3, size: int = 1 << 30) -> bytes:
    """A page whose content is zeros compressed several times over: kilobytes that decompress to a gigabyte."""
    compressor = zlib.compressobj(9)
    block = bytes(1 << 20)
    data = b"".join(compressor.compress(block) for _ in range(size >> 20)) + compressor.flush()
    for _ in range(levels - 1):
        data = zlib.compress(data, 9)
    return assemble(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
            b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 5 0 R >>",
            stream_object(data, "[" + " /FlateDecode" * levels + " ]"),
        ]
    )
