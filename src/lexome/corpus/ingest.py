"""Reading one file of a corpus: filters, cleaned documents, and the keys used to deduplicate them against all others.

Every document that was read has a row of keys, dropped ones too: a newer version supersedes an older one even if it is
dropped itself.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from lexome.corpus import dedup
from lexome.corpus.dedup import (
    SIGNATURE,
    Hashes,
    band_hashes,
    exact_key,
    shingle_hashes,
    signatures,
    word_hashes,
    words_of,
)
from lexome.corpus.languages import language_code, language_of
from lexome.corpus.normalize import normalize
from lexome.corpus.sentences import with_sentences
from lexome.document import Document, Passage
from lexome.formats import parquet, read
from lexome.formats.tally import Tally, drop_dependents
from lexome.metadata import Metadata
from lexome.pipeline import Advance, Job
from lexome.recipe.corpus_stages import CorpusSource, Near

# Filters: language, license, retraction, length, and kinds of passages; each drop is counted by its reason


UNSTATED = "unstated"
OTHER = "other"

# PMC's own grouping for commercial use: everything without NC.
COMMERCIAL = frozenset(("CC0", "CC BY", "CC BY-SA", "CC BY-ND", "public domain"))

_URL = re.compile(r"creativecommons\.org/(?:licen[sc]es/(by[a-z-]*)|(publicdomain/(?:zero|mark)))", re.IGNORECASE)
# An unknown element ("by-n") leaves the license unknown instead of permissive.
_NAMED = re.compile(
    r"\b(?:cc|creative commons)[\s_-]*(0|zero|mark|by(?:[\s_-]?(?:nc|nd|sa))*)(?![a-z]|[_-][a-z])", re.IGNORECASE
)
_WORDS = {
    "nc": re.compile("non-?commercial"),
    "nd": re.compile("no derivative|noderiv"),
    "sa": re.compile("share[ -]?alike"),
}
_PUBLIC = re.compile(r"\bpublic domain\b", re.IGNORECASE)


def license_name(meta: Metadata) -> str:
    """CC0, CC BY, CC BY-NC and so on, "public domain", "other" for any other stated license, or "unstated".

    The URL takes precedence over the text; "commercial use" in the text counts only with Creative Commons.
    """
    stated = " ".join(filter(None, (meta.license_url, meta.license)))
    if not stated:
        return UNSTATED
    match = _URL.search(stated)
    if match is not None:
        if match[2]:
            return "CC0" if "zero" in match[2].lower() else "public domain"
        return _creative_commons(match[1])
    if (named := _NAMED.search(stated)) is not None:
        return _creative_commons(named[1])
    if re.search(r"creative commons", stated, re.IGNORECASE) and re.search(r"attribution", stated, re.IGNORECASE):
        lower = stated.lower()
        return _creative_commons("by-" + "-".join(mark for mark, words in _WORDS.items() if words.search(lower)))
    return "public domain" if _PUBLIC.search(stated) else OTHER


def license_allowed(name: str, wanted: str) -> bool:
    """Whether a license passes a source's filter: any, stated or commercial."""
    if wanted == "commercial":
        return name in COMMERCIAL
    return wanted == "any" or name != UNSTATED


def _creative_commons(marks: str) -> str:
    """The canonical name for elements such as "by-nc-nd"."""
    lower = marks.lower()
    if lower in ("0", "zero"):
        return "CC0"
    if lower == "mark":
        return "public domain"
    seen = set(re.findall("nc|nd|sa", lower))
    return "CC BY" + "".join(f"-{mark.upper()}" for mark in ("nc", "nd", "sa") if mark in seen)


def metadata_reason(doc: Document, *, licenses: str, retracted: str) -> str | None:
    """Why a document's metadata excludes it, or None.

    Retraction is checked first, so that a retracted article is never counted under licenses.
    """
    if doc.meta.retracted and retracted == "drop":
        return "retracted"
    return None if license_allowed(license_name(doc.meta), licenses) else "license"


def text_reason(words: Sequence[str], count: int, *, languages: Sequence[str], min_words: int) -> str | None:
    """Why a document's text is not worth keeping, or None; `count` is its size in words between spaces."""
    if count == 0:
        return "empty"
    if count < min_words:
        return "too_short"
    return None if not languages or language_of(words) in languages else "language"


def running_text(doc: Document, *, leave_out: Sequence[str], languages: Sequence[str], tally: Tally) -> Document:
    """The document without empty passages, passages of these kinds, and passages marked as in other languages.

    Spans in these passages are dropped, too, with their relations.
    """
    kept = tuple(passage for passage in doc.passages if _exclusion(passage, leave_out, languages, tally) is None)
    if len(kept) == len(doc.passages):
        return doc
    if not (doc.spans or doc.questions):
        return replace(doc, passages=kept)
    starts = {passage.offset for passage in kept}
    removed = {
        span.id
        for span in doc.spans
        if any((passage := doc.passage_at(start)) is None or passage.offset not in starts for start, _ in span.parts)
    }
    relations, attributes = drop_dependents(removed, doc.relations, doc.attributes, tally=tally)
    spans = tuple(span for span in doc.spans if span.id not in removed)
    return replace(doc, passages=kept, spans=spans, relations=relations, attributes=attributes, questions=())


def _exclusion(passage: Passage, kinds: Sequence[str], languages: Sequence[str], tally: Tally) -> str | None:
    """The note on a passage to leave out, or None."""
    if passage.kind in kinds:
        note = f"{passage.kind} left out"
    elif languages and passage.language and language_code(passage.language) not in languages:
        note = "passage in another language left out"
    elif not passage.text or passage.text.isspace():
        note = "empty passage left out"
    else:
        return None
    tally.note(note)
    return note


# Reading

# Documents hashed per call: enough for speed, few enough for memory.
BATCH = 128

# PubMed's update files list deleted citations; other formats do not.
DELETIONS = {"deletions": True}


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """The part of the recipe that reading needs."""

    source: CorpusSource
    languages: tuple[str, ...]
    min_words: int
    retracted: str
    near: Near
    leaks: str
    benchmarks: Path | None


@dataclass(slots=True)
class _Keys:
    """The keys of one file's documents, one row each."""

    ids: list[bytes] = field(default_factory=list)
    version: list[int] = field(default_factory=list)
    deleted: list[bool] = field(default_factory=list)
    row: list[int] = field(default_factory=list)
    words: list[int] = field(default_factory=list)
    size: list[int] = field(default_factory=list)
    license: list[str] = field(default_factory=list)
    exact: list[bytes] = field(default_factory=list)
    bands: list[Hashes] = field(default_factory=list)

    def without(self, rows: list[int]) -> None:
        """Unset the rows of kept documents that could not be stored."""
        dropped = set(rows)
        self.row = [-1 if row in dropped else row for row in self.row]


@dataclass(slots=True)
class _Draft:
    """A document being cleaned, its words, and the reason to drop it, if any."""

    doc: Document
    reason: str | None
    words: list[str]
    count: int = 0


def ingest_file(job: Job, drafts: tuple[Path, ...], advance: Advance) -> dict[str, Any]:
    """Write the documents of a job's files that pass the filters, their keys, and the rejected ones."""
    settings: ReadSettings = job.settings
    documents, keys_path, signatures_path, rejects = drafts
    rejects.touch()
    benchmarks = dedup.load_benchmarks(settings.benchmarks) if settings.benchmarks is not None else None
    drops: Counter[str] = Counter()
    leaks: Counter[str] = Counter()
    keys = _Keys()
    with Tally(rejects) as tally, documents.open("wb") as stream, signatures_path.open("wb") as signed:
        options: dict[str, Any] = settings.source.options
        found = read(job.inputs, settings.source.format, tally=tally, options_if_supported=DELETIONS, **options)
        docs = _report_progress(found, tally, advance)
        kept = _filter_documents(docs, settings, benchmarks, (keys, signed, drops, leaks, tally))
        keys.without(parquet.write_rows(kept, stream, tally=tally))
        tally.raise_failures(str(job.inputs[0]))
    _save_keys(keys, keys_path, settings.near)
    return {
        "read": tally.documents - sum(keys.deleted),  # deletions are not documents
        "drops": dict(sorted(drops.items())),
        "leaks": dict(sorted(leaks.items())),
        "set_aside": dict(sorted(tally.rejected.items())),
        "notes": dict(sorted(tally.notes.items())),
    }


def _report_progress(docs: Iterator[Document], tally: Tally, advance: Advance) -> Iterator[Document]:
    reported = 0
    for doc in docs:
        if tally.bytes_read > reported:
            advance(tally.bytes_read - reported)
            reported = tally.bytes_read
        yield doc


def _filter_documents(
    docs: Iterator[Document],
    settings: ReadSettings,
    benchmarks: dedup.Benchmarks | None,
    books: tuple[_Keys, BinaryIO, Counter[str], Counter[str], Tally],
) -> Iterator[Document]:
    """The documents that pass, while keys and counts of all are recorded."""
    keys, signed, drops, leaks, tally = books
    rows = 0
    while batch := list(islice(docs, BATCH)):
        drafts = [_clean(doc, settings, tally) for doc in batch]
        hashes = word_hashes([draft.words for draft in drafts])
        for draft, draft_hashes in zip(drafts, hashes, strict=True):
            leak = benchmarks.match(draft.doc, draft_hashes) if benchmarks is not None and not draft.reason else None
            if leak is not None:
                leaks[leak] += 1
                draft.reason = leak if settings.leaks == "drop" else None
            if draft.reason is not None and not draft.doc.meta.deleted:
                drops[draft.reason] += 1
        near = settings.near
        # A dropped document has the signature of an empty text.
        shingles = [
            shingle_hashes(draft_hashes, near.shingle_words) if draft.reason is None else draft_hashes[:0]
            for draft, draft_hashes in zip(drafts, hashes, strict=True)
        ]
        minhashes = signatures(shingles, permutations=near.permutations)
        signed.write(minhashes.astype(SIGNATURE).tobytes())
        keys.bands.append(band_hashes(minhashes, near.bands))
        _append_keys(keys, drafts, rows)
        staying = [draft.doc for draft in drafts if draft.reason is None]
        rows += len(staying)
        yield from staying


def _clean(doc: Document, settings: ReadSettings, tally: Tally) -> _Draft:
    """The cleaned document, with the reason to drop it, if any."""
    if doc.meta.deleted:
        return _Draft(doc, "deleted", [])
    reason = metadata_reason(doc, licenses=settings.source.licenses, retracted=settings.retracted)
    if reason is not None:
        return _Draft(doc, reason, [])
    doc = running_text(doc, leave_out=settings.source.exclude_passages, languages=settings.languages, tally=tally)
    doc = normalize(doc, tally=tally)
    words = [word for passage in doc.passages for word in words_of(passage.text)]
    count = sum(len(passage.text.split()) for passage in doc.passages)
    reason = text_reason(words, count, languages=settings.languages, min_words=settings.min_words)
    return _Draft(with_sentences(doc) if reason is None else doc, reason, words, count)


def _append_keys(keys: _Keys, drafts: list[_Draft], row: int) -> None:
    for draft in drafts:
        doc = draft.doc
        stays = draft.reason is None
        keys.ids.append(hashlib.blake2b(doc.id.encode(errors="surrogatepass"), digest_size=16).digest())
        keys.version.append(doc.meta.version or 0)
        keys.deleted.append(doc.meta.deleted)
        keys.row.append(row if stays else -1)
        keys.words.append(draft.count)
        keys.size.append(sum(len(passage.text.encode()) for passage in doc.passages) if stays else 0)
        keys.license.append(license_name(doc.meta))
        keys.exact.append(exact_key(draft.words))
        row += stays


def _save_keys(keys: _Keys, path: Path, near: Near) -> None:
    """Write the keys column by column, so that one can be read without the others."""
    bands = np.concatenate(keys.bands) if keys.bands else np.zeros((0, near.bands), np.uint64)
    names, license = np.unique(np.array(keys.license, dtype=np.str_), return_inverse=True)
    columns: dict[str, npt.NDArray[Any]] = {
        "ids": digests_as_rows(keys.ids),
        "version": np.array(keys.version, np.int64),
        "deleted": np.array(keys.deleted, np.bool_),
        "row": np.array(keys.row, np.int64),
        "words": np.array(keys.words, np.int64),
        "bytes": np.array(keys.size, np.int64),
        "licenses": names,
        "license": license.astype(np.int64),
        "exact": digests_as_rows(keys.exact),
        "permutations": np.array(near.permutations),
        **{f"band_{number}": bands[:, number].copy() for number in range(near.bands)},
    }
    with path.open("wb") as file:
        np.savez(file, **columns)  # type: ignore[arg-type]  # its stubs take columns for options


def digests_as_rows(digests: Iterable[bytes]) -> Hashes:
    """Digests of sixteen bytes as rows of two integers."""
    return np.frombuffer(b"".join(digests), dtype="<u8").reshape(-1, 2).copy()
