"""An opened index: passages by words (BM25), by vectors, by both, and by the concepts they mention."""

import json
import math
import re
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from lexome.concepts.index import default_index
from lexome.document import Range, as_names, shorten
from lexome.errors import SearchIndexError, UsageError
from lexome.infer.predictor import Predictor, identity_of
from lexome.search import storage
from lexome.search.storage import VectorFile
from lexome.search.terms import describe_syntax, matching_ranges, query_terms

Method = Literal["bm25", "vectors", "both"]
METHODS = get_args(Method)

# Robertson's k1 and b; others within half a point on titles and BioASQ (results/search.json).
K1, B = 1.2, 0.75
# The constant of reciprocal rank fusion (Cormack et al., 2009), and the results of each ranking that enter it.
FUSION, FUSED = 60, 200

MAX_QUERY_CHARACTERS = 100_000
MAX_LIMIT = 10_000
MAX_CONCEPT_CHARACTERS = 300

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Filters:
    """Conditions on passages: mentions of all concepts and all types, a year in the range, one of the journals."""

    concepts: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    years: tuple[int | None, int | None] = (None, None)
    journals: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("concepts", "types", "journals"):
            object.__setattr__(self, name, as_names(getattr(self, name)))

    @property
    def by_mention(self) -> bool:
        """Whether passages are selected by their mentions."""
        return bool(self.concepts or self.types)


def parse_years(text: str) -> tuple[int | None, int | None]:
    """The first and last year of 2019, 2015-2020, 2015- or -2020.

    >>> parse_years("2015-")
    (2015, None)
    """
    first, dash, last = text.strip().partition("-")
    values = [int(part) if part.isdecimal() and len(part) <= 4 else None for part in (first, last if dash else first)]
    if not any(values) or any(part and value is None for part, value in zip((first, last), values, strict=True)):
        message = f"year {text!r}; expected a year or a range, such as 2019, 2015-2020, 2015- or -2020."
        raise UsageError(message, code="invalid-year", value=text)
    if values[0] is not None and values[1] is not None and values[0] > values[1]:
        message = f"years {text!r} end before they begin. Name the earlier one first."
        raise UsageError(message, code="invalid-year", value=text)
    return values[0], values[1]


@dataclass(frozen=True, slots=True)
class FoundMention:
    """A mention in a passage that was found."""

    start: int
    end: int
    text: str
    type: str
    concept: str | None


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that was found. Offsets are in characters of the document: `start` inclusive, `end` exclusive.

    file        the input the document came from
    passage     number of the passage in its document, from 1
    highlights  ranges of the query's words and of mentions with a requested concept or type
    mentions    the passage's mentions with a requested concept or type
    score       of BM25, a cosine, or a reciprocal rank fusion; comparable within one search only
    """

    document: str
    file: str
    title: str | None
    year: int | None
    journal: str | None
    passage: int
    kind: str
    section: tuple[str, ...]
    start: int
    end: int
    text: str
    score: float
    highlights: tuple[Range, ...] = ()
    mentions: tuple[FoundMention, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The best passages, how many were found in all, and how they were ranked.

    concepts  the ids of concepts that were given by name
    note      parts of the query that look like syntax, which is ignored
    """

    query: str
    ranking: str
    total: int
    hits: tuple[Hit, ...]
    concepts: dict[str, str] = field(default_factory=dict)
    note: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """All of it for JSON."""
        return asdict(self)


class Index:
    """An index, open for reading by one or more threads; it shows updates when they are complete.

    >>> index = Index.open("papers-index")                                   # doctest: +SKIP
    >>> index.search("palbociclib resistance").hits[0].document              # doctest: +SKIP
    'lexome-1'
    """

    def __init__(self, connection: sqlite3.Connection, folder: Path, *, encoder: Path | None = None) -> None:
        self.folder = folder
        self._connection, self._encoder = connection, encoder
        # One search at a time: an update replaces the arrays that a search computes with.
        self._lock, self._searching = threading.Lock(), threading.RLock()
        with storage.database_errors(folder), storage.unexpected_values(folder):
            if not self._load():
                raise SearchIndexError(f"{folder}: {storage.NOT_COMPLETE}", code="incomplete-index", value=folder)

    def _load(self) -> bool:
        """Read the sizes of all passages, and the settings, of one state of the database, unless it is incomplete."""
        connection = self._connection
        connection.execute("BEGIN")
        try:
            meta = storage.read_meta(connection)
            if not meta["complete"]:
                return False
            # Of the state that this transaction sees: a later one is loaded by the next search.
            seen = self._data_version()
            rows = np.array(connection.execute("SELECT passage, words, year FROM sizes").fetchall(), np.int64)
            (last,) = connection.execute(storage.LAST_PASSAGE)
        finally:
            if connection.in_transaction:
                connection.execute("COMMIT")
        self._meta, self._seen = meta, seen
        self._made_with: dict[str, str] | None = meta["settings"]["encoder"]
        ids, words, years = rows.reshape(-1, 3).T
        size = max(int(last[0]), int(ids.max(initial=0))) + 1
        self._live, self._years = np.zeros(size, bool), np.zeros(size, np.int16)
        self._live[ids], self._years[ids] = True, years
        by_words = words > 0
        self.passages = int(by_words.sum())
        lengths = np.zeros(size, np.float32)
        lengths[ids] = words
        mean = float(words[by_words].mean()) if self.passages else 1.0
        self._norm = (K1 * (1 - B + B * lengths / mean)).astype(np.float32)
        return True

    def _data_version(self) -> int:
        """A number that differs once another process has written."""
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def _refresh(self) -> None:
        """Load an update if it is complete; until then, searches see the previous passages except removed ones."""
        with self._lock, storage.database_errors(self.folder), storage.unexpected_values(self.folder):
            if self._data_version() == self._seen or not self._load():
                return
        for name in ("documents", "_vectors"):
            self.__dict__.pop(name, None)

    @classmethod
    def open(cls, folder: str | Path, *, encoder: str | Path | None = None) -> Self:
        """The index in a folder; `encoder` is the model that made its vectors, if that has moved."""
        folder = Path(folder)
        connection = storage.connect(folder)
        try:
            index = cls(connection, folder, encoder=None if encoder is None else Path(encoder))
            # A wrong encoder is reported now, and not by the first search by vectors.
            if encoder is not None:
                index._check_encoder()
            return index
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def has_vectors(self) -> bool:
        """Whether the index has vectors, computed by an encoder."""
        return self._made_with is not None

    @cached_property
    def documents(self) -> int:
        """The number of documents."""
        return int(self._rows("SELECT count(*) FROM documents")[0][0])

    @cached_property
    def _vectors(self) -> VectorFile:
        folder = self._check_encoder()
        predictor = Predictor.open(folder, threads=1)
        assert self._made_with is not None
        with storage.unexpected_values(self.folder):
            return VectorFile(self.folder, self._meta["generation"], predictor, self._made_with["pooling"])

    def _check_encoder(self) -> Path:
        """The folder of the encoder that made the vectors; SearchIndexError where there is none, or another one."""
        if self._made_with is None:
            message = f"{self.folder}: the index has no vectors. Index with --embed MODEL, or search by bm25."
            raise SearchIndexError(message, code="no-vectors", value=self.folder)
        with storage.unexpected_values(self.folder):
            name, sha256 = str(self._made_with["name"]), str(self._made_with["sha256"])
            folder = self._encoder or Path(self._meta["encoder_folder"])
        if not folder.is_dir():
            message = (
                f"{folder}: the encoder of {self.folder} is not there. Name its folder with --embed, or search by bm25."
            )
            raise SearchIndexError(message, code="missing-encoder", value=folder)
        found = identity_of(folder)["sha256"]
        if found != sha256:
            message = (
                f"{self.folder}: its vectors were made by {name} ({sha256[:8]}), but "
                f"{folder} is {found[:8]}. Name the right encoder with --embed, or index again with --redo."
            )
            raise SearchIndexError(message, code="other-model", value=folder)
        return folder

    def search(
        self,
        query: str = "",
        *,
        concepts: str | Sequence[str] = (),
        types: str | Sequence[str] = (),
        years: tuple[int | None, int | None] = (None, None),
        journals: str | Sequence[str] = (),
        limit: int = 10,
        method: Method | None = None,
        timeout_s: float | None = None,
    ) -> SearchResult:
        """The best passages for a query among those that pass the filters; without a query, all that pass.

        The query is plain words without syntax. A passage has to mention every concept, given by id or name, and every
        type. By default, passages are ranked by words and vectors if the index has vectors, else by words. `limit` 0
        returns all.
        """
        filters = Filters(as_names(concepts), as_names(types), years, as_names(journals))
        return self.search_filtered(query, filters, limit=limit, method=method, timeout_s=timeout_s)

    def search_filtered(
        self,
        query: str,
        filters: Filters,
        *,
        limit: int = 10,
        method: Method | None = None,
        timeout_s: float | None = None,
    ) -> SearchResult:
        """The result of `search`, for filters that are one object."""
        _check_query(query, filters, limit)
        if method is not None and method not in METHODS:
            message = f"method is {method!r}; expected one of {', '.join(METHODS)}."
            raise UsageError(message, code="invalid-choice", value=method)
        chosen: str = method or ("both" if self.has_vectors else "bm25")
        with self._searching, self._time_limit(timeout_s):
            self._refresh()
            self._require_mentions(filters)
            with storage.unexpected_values(self.folder):
                named = {name: self._concept_named(name) for name in filters.concepts if not _is_curie(name)}
                filters = replace(filters, concepts=tuple(named.get(one, one) for one in filters.concepts))
                allowed = self._allowed(filters)
            wanted = query_terms(query)
            if not query.strip():
                with storage.unexpected_values(self.folder):
                    chosen, ranked = "filters", self._in_order(allowed, filters)
                total = len(ranked)
            elif chosen == "bm25":
                total, ranked = self._by_words(wanted, allowed, limit)
            else:
                ranked = self._by_vectors(query, allowed)
                if chosen == "both":
                    ranked = _fuse([self._by_words(wanted, allowed, FUSED)[1], ranked])
                total = len(ranked)
            with storage.unexpected_values(self.folder):
                found = (self._hit(id_, score, wanted, filters) for id_, score in ranked[: limit or None])
                hits = tuple(hit for hit in found if hit is not None)
        return SearchResult(query, chosen, total, hits, named, describe_syntax(query))

    def _concept_named(self, name: str) -> str:
        """The id of the concept with this name that has the most mentions; UsageError if there is none.

        Names are looked up in Lexome's dictionaries, then among the mentions in the texts.
        """
        terms = default_index()
        ids = list(dict.fromkeys(terms.concept(match.concept).id for match in terms.find(name.strip())))
        counts = {curie: self._rows(_MENTIONS_OF_CONCEPT, curie)[0][0] for curie in ids}
        if not any(counts.values()):
            counts |= dict(self._rows(_CONCEPTS_OF_TEXT, name.strip()))
        if any(counts.values()):
            return max(counts, key=counts.__getitem__)
        problem = f"no concept in the index is called {shorten(name)!r}. Check the spelling,"
        if ids:
            problem = f"{shorten(name)!r} is {ids[0]}, which no document in the index mentions. Leave it out,"
        message = f"{problem} or search for the words instead."
        raise UsageError(message, code="bad_concept", value=name)

    def mention_types(self) -> tuple[str, ...]:
        """The types of the mentions in the index, in alphabetical order."""
        with storage.unexpected_values(self.folder):
            return tuple(sorted(type_ for (type_,) in self._rows("SELECT DISTINCT type FROM mentions")))

    def _require_mentions(self, filters: Filters) -> None:
        """UsageError for a filter by mention that no passage can pass, because documents are not annotated."""
        if filters.by_mention and not self._rows("SELECT 1 FROM mentions LIMIT 1"):
            found, value = "no mentions: its documents are not annotated", "mentions"
        elif filters.concepts and not self._rows("SELECT 1 FROM mentions WHERE concept > '' LIMIT 1"):
            found, value = "mentions, but none with an id: its documents were annotated without linking", "concepts"
        else:
            return
        message = (
            f"{self.folder}: the index has {found}. Run `lexome annotate DOCS --out annotated.jsonl`, and index "
            "annotated.jsonl, to search by concept or type."
        )
        raise UsageError(message, code="no-mentions", value=value)

    def _by_words(self, wanted: Iterable[str], allowed: Mask | None, limit: int) -> tuple[int, list[tuple[int, float]]]:
        """How many passages have one of the terms, and ids and BM25 scores of the best ones; `limit` 0 gives all."""
        scores = np.zeros(len(self._live), np.float32)
        for term in wanted:
            passages, counts = self._postings(term)
            # A passage is in a term's postings once, so that plain indexing adds up right.
            scores[passages] += self.rarity_of(len(passages)) * counts * (K1 + 1) / (counts + self._norm[passages])
        if allowed is not None:
            scores[~allowed] = 0
        found = np.flatnonzero(scores)
        total = len(found)
        if 0 < limit < total:
            # All that score as the last one, so that ties are in the order of the passages.
            least = np.partition(scores[found], total - limit)[total - limit]
            found = found[scores[found] >= least]
        order = found[np.argsort(-scores[found], kind="stable")][: limit or None]
        return total, list(zip(order.tolist(), scores[order].tolist(), strict=True))

    def rarity(self, terms: Iterable[str]) -> dict[str, float]:
        """The weight of each term: the logarithm of how rare it is among the passages."""
        return {term: self.rarity_of(len(self._postings(term)[0])) for term in terms}

    def rarity_of(self, passages: int) -> float:
        """The weight of a term that occurs in this many passages."""
        return math.log(1 + (self.passages - passages + 0.5) / (passages + 0.5))

    def _postings(self, term: str) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
        """The passages that have a term, and how often each has it."""
        with storage.unexpected_values(self.folder):
            rows = self._rows("SELECT passages, counts FROM postings WHERE term = ? ORDER BY batch", term)
            passages = np.frombuffer(b"".join(row[0] for row in rows), "<u4")
            counts = np.frombuffer(b"".join(row[1] for row in rows), "u1").astype(np.float32)
            last = int(passages.max(initial=0))
        if len(passages) != len(counts) or (last >= len(self._live) and last > self._rows(storage.LAST_PASSAGE)[0][0]):
            raise storage.damaged(self.folder)
        # Those of an update that is not complete come last.
        known = passages < len(self._live)
        known[known] = self._live[passages[known]]
        return passages[known], counts[known]

    def _by_vectors(self, query: str, allowed: Mask | None) -> list[tuple[int, float]]:
        vectors = self._vectors
        ids = None if allowed is None else np.flatnonzero(allowed)
        return vectors.nearest(vectors.embed(query), FUSED, ids)

    def _in_order(self, allowed: Mask | None, filters: Filters) -> list[tuple[int, float]]:
        """All passages that pass the filters, those with the most mentions of requested concepts and types first."""
        assert allowed is not None
        counts = np.zeros(len(allowed), np.int64)
        for column, values in (("concept", filters.concepts), ("type", filters.types)):
            for value in values:
                query = f"SELECT passage FROM mentions WHERE {column} = ? COLLATE NOCASE"
                np.add.at(counts, [id_ for (id_,) in self._rows(query, value) if id_ < len(counts)], 1)
        found = np.flatnonzero(allowed)
        order = found[np.argsort(-counts[found], kind="stable")]
        return [(int(id_), float(counts[id_])) for id_ in order]

    def _allowed(self, filters: Filters) -> Mask | None:
        """The passages that pass the filters, None for all."""
        masks: list[Mask] = []
        for column, values in (("concept", filters.concepts), ("type", filters.types)):
            query = f"SELECT DISTINCT passage FROM mentions WHERE {column} = ? COLLATE NOCASE"
            masks += [self._mask(self._rows(query, value)) for value in values]
        first, last = filters.years
        if filters.years != (None, None):
            masks.append((self._years > 0) & (self._years >= (first or 0)) & (self._years <= (last or 9999)))
        if filters.journals:
            masks.append(self._mask(row for name in filters.journals for row in self._rows(_OF_JOURNAL, name, name)))
        return np.logical_and.reduce(masks) if masks else None

    def _mask(self, rows: Iterable[tuple[int]]) -> Mask:
        mask = np.zeros(len(self._live), bool)
        mask[[row[0] for row in rows if row[0] < len(mask)]] = True
        return mask

    def _hit(self, id_: int, score: float, wanted: dict[str, None], filters: Filters) -> Hit | None:
        """A passage with its document; None for one that an update has removed in the meantime."""
        rows = self._rows(_PASSAGE, id_)
        if not rows:
            return None
        document, file, title, year, journal, number, kind, section, start, text = rows[0]
        mentions = []
        if filters.by_mention:
            concepts = {concept.lower() for concept in filters.concepts}
            types = {type_.lower() for type_ in filters.types}
            for begin, end, type_, concept in self._rows(_MENTIONS, id_):
                if concept.lower() in concepts or type_.lower() in types:
                    mention = text[begin - start : end - start]
                    mentions.append(FoundMention(begin, end, mention, type_, concept or None))
        places = {(start + begin, start + end) for begin, end in matching_ranges(text, wanted)}
        places |= {(mention.start, min(mention.end, start + len(text))) for mention in mentions}
        highlights = tuple(_without_overlaps(places))
        facts = (number, kind, tuple(json.loads(section)), start, start + len(text), text, score)
        return Hit(document, file, title, year, journal, *facts, highlights, tuple(mentions))

    def _rows(self, query: str, *values: Any) -> list[Any]:
        # One connection; each query takes far less time than the ranking.
        with self._lock, storage.database_errors(self.folder):
            # A lone surrogate, of an argument that is not UTF-8, can be in no index, and SQLite takes none.
            bound = [v.encode(errors="backslashreplace").decode() if isinstance(v, str) else v for v in values]
            return self._connection.execute(query, bound).fetchall()

    @contextmanager
    def _time_limit(self, timeout_s: float | None) -> Iterator[None]:
        if timeout_s is None:
            yield
            return
        end = time.monotonic() + timeout_s
        with storage.database_errors(self.folder):
            self._connection.set_progress_handler(lambda: time.monotonic() > end, 10_000)
        try:
            yield
        finally:
            self._connection.set_progress_handler(None, 0)


_PASSAGE = """
SELECT d.name, f.name, d.title, d.year, coalesce(d.journal, d.abbreviation), p.number, p.kind, p.section, p.start,
    p.text
FROM passages p JOIN documents d ON d.id = p.document JOIN files f ON f.id = d.file WHERE p.id = ?
"""
_MENTIONS = "SELECT start, end, type, concept FROM mentions WHERE passage = ? ORDER BY start, end, type, concept"
_MENTIONS_OF_CONCEPT = "SELECT count(*) FROM mentions WHERE concept = ? COLLATE NOCASE"
_CONCEPTS_OF_TEXT = """
SELECT m.concept, count(*) FROM mentions m JOIN passages p ON p.id = m.passage
WHERE m.concept > '' AND substr(p.text, m.start - p.start + 1, m.end - m.start) = ? COLLATE NOCASE
GROUP BY m.concept ORDER BY 2 DESC, 1
"""
_OF_JOURNAL = """
SELECT p.id FROM passages p JOIN documents d ON d.id = p.document
WHERE d.journal = ? COLLATE NOCASE OR d.abbreviation = ? COLLATE NOCASE
"""


def _check_query(query: str, filters: Filters, limit: int) -> None:
    if len(query) > MAX_QUERY_CHARACTERS:
        message = f"a query of {len(query):,} characters; expected at most {MAX_QUERY_CHARACTERS:,}. Ask for less."
        raise UsageError(message, code="too-long", value=len(query))
    if not query.strip() and filters == Filters():
        message = "no query and no filter. Give words, or a concept, type, year or journal."
        raise UsageError(message, code="empty-query", value=query)
    if not 0 <= limit <= MAX_LIMIT:
        message = f"limit is {limit}; expected 0 (all) to {MAX_LIMIT:,}."
        raise UsageError(message, code="out-of-range", value=limit)
    years = filters.years
    if len(years) != 2 or not all(year is None or isinstance(year, int) for year in years):
        message = f"years {years!r}; expected the first and the last, either or both None, such as (2015, None)."
        raise UsageError(message, code="invalid-year", value=years)
    first, last = years
    if first is not None and last is not None and first > last:
        message = f"years {first} to {last} end before they begin. Name the earlier one first."
        raise UsageError(message, code="invalid-year", value=years)
    for concept in filters.concepts:
        if not concept.strip() or len(concept) > MAX_CONCEPT_CHARACTERS:
            message = f"concept {shorten(concept)!r}; expected a name, or an id such as mesh:D001943 or NCBIGene:672."
            raise UsageError(message, code="bad_concept", value=concept)


def _is_curie(concept: str) -> bool:
    return re.match(r"[A-Za-z][\w.-]*:\S", concept) is not None


def _fuse(rankings: Sequence[Sequence[tuple[int, float]]]) -> list[tuple[int, float]]:
    """Reciprocal rank fusion: a passage scores 1 / (60 + rank) in each ranking that has it."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, (id_, _) in enumerate(ranking, 1):
            scores[id_] = scores.get(id_, 0.0) + 1 / (FUSION + rank)
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))


def _without_overlaps(places: Iterable[Range]) -> Iterator[Range]:
    end = -1
    for start, stop in sorted(places, key=lambda place: (place[0], -place[1])):
        if start >= end:
            yield start, stop
            end = stop
