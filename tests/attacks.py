"""Attacks on readers: damaged archives, and damaged files of every format, with what came of each.

The tests run some of them; benchmarks/reliability.py runs thousands, under limits of memory and time.
"""

import bz2
import gzip
import io
import json
import random
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import lexome
from lexome import Document, Passage, Tally
from lexome.errors import LexomeError
from lexome.formats import FORMATS

ROOT = Path(__file__).resolve().parents[1]
MEMBERS = 12

# What came of an attack. "lost" and "fault" are ours to answer for.
OUTCOMES = ("read", "refused", "lost", "fault")


@dataclass(frozen=True, slots=True)
class Attack:
    """A damaged file, and how many documents the sound one has if losing one without a word would be a fault."""

    name: str
    content: bytes
    documents: int | None = None


def outcome(attack: Attack, folder: Path, *, rejects: bool = True) -> tuple[str, str]:
    """One of OUTCOMES, and the reason: the code of an error, or the exception that should not have been one."""
    path = folder / attack.name
    path.write_bytes(attack.content)
    tally = Tally(folder / "rejects.jsonl" if rejects else None)
    try:
        count = sum(1 for _ in lexome.read(path, tally=tally))
    except LexomeError as error:
        return "refused", error.code
    except MemoryError:
        return "fault", "MemoryError"
    except Exception as error:  # any other exception is the fault that is looked for
        return "fault", f"{type(error).__name__}: {str(error)[:200]}"
    if tally.failures or tally.rejected:
        return "refused", "broken file" if tally.failures else next(iter(tally.rejected))
    if attack.documents is not None and count < attack.documents and not tally.notes:
        return "lost", f"{count} of {attack.documents} documents"
    return "read", ""


def damage(content: bytes, rng: random.Random) -> bytes:
    """The content with one to three places flipped, cut, dropped, doubled, filled or put in."""
    raw = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(raw) + 1)
        end = min(len(raw), at + rng.choice((1, 4, 32, 512)))
        way = rng.choice(("flip", "flip", "cut", "drop", "double", "fill", "put in"))
        if way == "flip" and at < len(raw):
            raw[at] ^= 1 << rng.randrange(8)
        elif way == "cut":
            del raw[at:]
        elif way == "drop":
            del raw[at:end]
        elif way == "double":
            raw[at:at] = raw[at:end]
        elif way == "fill":
            raw[at:end] = bytes([rng.choice((0, 255, 32, 10))]) * (end - at)
        else:
            raw[at:at] = rng.choice((b'"', b"\t", b"\n", b"\r", b"{", b"[[", b"\x00", b"</", b"&x;", b"\xff\xfe"))
    return bytes(raw)


# Archives


def _members() -> list[tuple[str, bytes]]:
    docs = [Document(str(number), (Passage(0, f"Document {number} of BRCA1."),)) for number in range(MEMBERS)]
    return [(f"folder/{doc.id}.jsonl", json.dumps({"id": doc.id, "text": doc.text}).encode() + b"\n") for doc in docs]


def tar_archive(format: int = tarfile.PAX_FORMAT) -> bytes:
    """A sound tar archive of MEMBERS documents."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=format) as archive:
        for name, content in _members():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def zip_archive(compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A sound zip archive of MEMBERS documents."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, content in _members():
            archive.writestr(name, content)
    return stream.getvalue()


def archive_attacks(rng: random.Random, count: int) -> list[Attack]:
    """Damaged tar and zip archives, of the kinds that people have."""
    sound = [
        ("a.tar", tar_archive()),
        ("a.tar", tar_archive(tarfile.GNU_FORMAT)),
        ("a.tar", tar_archive(tarfile.USTAR_FORMAT)),
        ("a.zip", zip_archive()),
        ("a.zip", zip_archive(zipfile.ZIP_STORED)),
        ("a.tgz", gzip.compress(tar_archive(), 1)),
    ]
    chosen = (rng.choice(sound) for _ in range(count))
    return [Attack(name, damage(content, rng), MEMBERS) for name, content in chosen]


def headers_of_tar() -> list[int]:
    """Where the headers of the archive are: damage there is what loses documents."""
    raw = tar_archive(tarfile.USTAR_FORMAT)
    return [at for at in range(0, len(raw), 512) if raw[at : at + 7] == b"folder/"]


def header_attacks(rng: random.Random, count: int) -> list[Attack]:
    """Tar archives with one damaged byte in a header, or cut at one."""
    sound, places = tar_archive(tarfile.USTAR_FORMAT), headers_of_tar()
    attacks = []
    for number in range(count):
        place = rng.choice(places[1:])
        raw = bytearray(sound)
        if number % 4 == 0:
            del raw[place:]
        else:
            raw[place + rng.randrange(257)] ^= 1 << rng.randrange(8)
        attacks.append(Attack("a.tar", bytes(raw), MEMBERS))
    return attacks


# Files of every format


@cache
def sound_files() -> dict[str, tuple[str, bytes]]:
    """By format, the name and content of a sound file; formats of several files are left out."""
    docs = list(lexome.read(ROOT / "samples" / "mentions.pubtator"))
    files: dict[str, tuple[str, bytes]] = {}
    for format in FORMATS:
        if format.writes and format.reads and not format.folder and format.writer == "" and format.name != "squad":
            stream = io.BytesIO()
            try:
                format.write_function()(docs, stream, tally=Tally())
            except LexomeError:  # an extra that is not installed
                continue
            files[format.name] = (f"a{format.extensions[0]}", stream.getvalue())
    files["pubmed"] = ("a.xml", (ROOT / "samples" / "pubmed.xml").read_bytes())
    files["bioasq"] = ("a.json", (ROOT / "samples" / "bioasq.json").read_bytes())
    files["medline"] = (
        "a.nbib",
        b"PMID- 1\nTI  - Of BRCA1\n      and more\nAB  - Text.\n\nPMID- 2\nTI  - Two\n" * 5,
    )
    files["ris"] = ("a.ris", b"TY  - JOUR\nTI  - A title\nAB  - Text\nAU  - Smith, J\nER  - \n\n" * 5)
    files["html"] = ("a.html", b"<html><head><title>T</title></head><body><h1>H</h1><p>A <b>b</b> &alpha;" * 5)
    files["csv"] = ("a.csv", b'id,text,label\n1,"BRCA1, in text",yes\n2,Other,no\n' * 5)
    files["tsv"] = ("a.tsv", b"id\ttext\tlabel\n1\tBRCA1 in text\tyes\n2\tOther\tno\n" * 5)
    files["names"] = ("a.tsv", b"name\tid\ttype\nBRCA1\tNCBIGene:672\tGene\nasthma\tmesh:D001249\tDisease\n" * 5)
    files["mimic"] = ("a.csv", b'"ROW_ID","SUBJECT_ID","TEXT"\n1,2,"BRCA1"\n2,3,"Text"\n')
    files["pmc"] = (
        "a.nxml",
        b"<article><front><article-meta><title-group><article-title>T</article-title></title-group></article-meta>"
        b"</front><body><sec><title>S</title><p>Text of <italic>BRCA1</italic>.</p></sec></body></article>",
    )
    return files


def file_attacks(rng: random.Random, count: int) -> list[tuple[str, Attack]]:
    """Damaged files, each with its format; the same number of all formats."""
    files = sorted(sound_files().items())
    attacks = []
    for number in range(count):
        format, (name, content) = files[number % len(files)]
        attacks.append((format, Attack(name, damage(content, rng))))
    return attacks


# Single attacks that once took gigabytes, hours, or documents


def _tar_of(header: Callable[[tarfile.TarInfo], None], content: bytes = b"") -> bytes:
    stream = io.BytesIO()
    member = tarfile.TarInfo("a.jsonl")
    member.size = len(content)
    header(member)
    stream.write(member.tobuf(tarfile.USTAR_FORMAT))
    stream.write(content + bytes(-len(content) % 512))
    stream.write(bytes(1024))
    return stream.getvalue()


def pax_header(records: bytes, claimed: int | None = None) -> bytes:
    """A tar archive that begins with an extended header."""

    def header(member: tarfile.TarInfo) -> None:
        member.type = tarfile.XHDTYPE
        member.size = len(records) if claimed is None else claimed

    return _tar_of(header, records)


def pax_record(key: str, value: str) -> bytes:
    """One record, with its own length."""
    rest = f" {key}={value}\n"
    length = len(rest) + len(str(len(rest)))
    return f"{length + (len(str(length)) > len(str(len(rest))))}{rest}".encode()


def sparse(member: tarfile.TarInfo) -> None:
    """A sparse file of a terabyte."""
    member.type, member.size = tarfile.GNUTYPE_SPARSE, 1 << 32


def bombs(size: int) -> dict[str, Attack]:
    """Small files that ask for much memory or time; `size` is what they decompress to, in bytes."""
    zeros = bytes(size)
    with_pax = pax_record("size", "1" + "0" * 20) + pax_record("path", "a.jsonl")
    after_pax = tar_archive(tarfile.USTAR_FORMAT)
    return {
        "sparse tar": Attack("a.tar", _tar_of(sparse)),
        "pax size": Attack("a.tar", pax_header(with_pax)[:-1024] + after_pax),
        "pax header": Attack("a.tgz", gzip.compress(pax_header(zeros))),
        "GNU.sparse": Attack("a.tar", pax_header(pax_record("GNU.sparse.size", "x"))[:-1024] + after_pax),
        "plain text": Attack("a.txt.gz", gzip.compress(b"a" * size)),
        "CoNLL without blank lines": Attack("a.conll.gz", gzip.compress(b"a\tO\n" * (size // 4))),
        "BioC JSON": Attack("a.bioc.json.gz", gzip.compress(b'{"documents":[' + b"{}," * (size // 3) + b"{}]}")),
        "BioC JSON passages": Attack(
            "a.bioc.json.gz", gzip.compress(b'{"documents":[{"id":"1","passages":[' + b"{}," * (size // 3) + b"{}]}]}")
        ),
        "JSON Lines": Attack("a.jsonl.gz", gzip.compress(b'{"text":"x","a":[' + b"{}," * (size // 3) + b"{}]}\n")),
        "PubTator": Attack("a.pubtator.gz", gzip.compress(b"1|t|a\n" + b"1\t0\t1\ta\tG\n" * (size // 10))),
        "deep XML": Attack("a.nxml", b"<article>" + b"<p>" * 100_000),
        "deep HTML": Attack("a.html", b"<div>" * 100_000),
        "deep JSON": Attack("a.jsonl", b'{"text":"x","a":' + b"[" * 100_000),
        "punycode": Attack("a.xml", b'<?xml version="1.0" encoding="punycode"?><PubmedArticleSet>' + b"a-" * 100_000),
        "utf-16 that is not": Attack(
            "a.xml",
            (ROOT / "samples" / "pubmed.xml").read_bytes().replace(b"utf-8", b"utf-16").replace(b"UTF-8", b"utf-16"),
        ),
        "zip name": Attack("a.zip", _zip_of("é.jsonl", b"{}").replace("é".encode(), b"\xff\xa9")),
        "bzip2 in zip": Attack("a.zip", zip_archive(zipfile.ZIP_BZIP2)),
        "bzip2": Attack("a.txt", bz2.compress(zeros)),
        "nothing readable": Attack("a.zip", _zip_of("a.exe", b"MZ")),
    }


def _zip_of(name: str, content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(name, content)
    return stream.getvalue()
