"""Finds the names of a dictionary in text: longest names first, with exact offsets, for millions of names.

    matcher = NameMatcher(["BRCA1", "breast cancer"])
    [(match.start, match.end) for match in matcher.find("Breast  cancers, breast cancer.")]      # [(17, 30)]

A name begins and ends where words do: "cat" is not found in "category". Names and text are compared in Unicode's
decomposed form without regard to case, kinds of dashes and quotes, and the width of white space. Short names in
capitals, such as CAT and WAS, are found only as they are written; `case` changes that for all names.

Every name is stored as the hashes of its beginnings, up to each word or mark: "breast", "breast ", ... A search hashes
the text from all words at once, first one word, then two as far as one was the beginning of a name, and so on, in
numpy. Names whose hashes agree with a piece of text are compared with it, so that a collision costs time but is never
a match. A million names take 155 MB (docs/decisions/0024-finding-terms.md has the alternative).
"""

import unicodedata
from collections.abc import Iterable, Sequence
from itertools import islice
from threading import Lock
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from lexome.errors import UsageError
from lexome.frozen import fast_dataclass

CaseRule = Literal["auto", "match", "ignore"]
CASE_RULES: tuple[CaseRule, ...] = ("auto", "match", "ignore")

# Names with so many characters and no lower-case letter have to match in case: WAS, SET, CAT2.
SHORT_NAME = 5
# Longer names are not searched for: no text has them, and each word more costs a pass over the text.
MAX_NAME = 500
# Separates texts that are searched together; no name has it.
SEPARATOR = "\0"

Hashes = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]

_SPACE, _WORD, _MARK = range(3)
_BATCH = 50_000

# The hash of characters c0 c1 ... is c0 + c1 B + c2 B² + ... modulo 2^64; B is odd, so it can be divided by.
_FACTOR = 0x9E3779B97F4A7C15
_INVERSE = pow(_FACTOR, -1, 1 << 64)
_MIX = np.uint64(0xD6E8FEB86659FD93)
# Slots of the filter in front of the table, for each of its hashes.
_FILTER_SLOTS = 8

_QUOTES = {**dict.fromkeys("’‘ʼ′‵`´", "'"), **dict.fromkeys("“”″„", '"')}
_DASHES = "−⁃﹘﹣－"
# Scripts written without spaces: each of their characters is a word. Thai to Myanmar, Khmer, Kana to ideographs, Yi.
_UNSPACED = ((0x0E00, 0x109F), (0x1780, 0x17FF), (0x3040, 0x9FFF), (0xA000, 0xA4CF), (0xAC00, 0xD7AF))
_UNSPACED_FROM = 0x20000  # rarer ideographs


@fast_dataclass
class NameHit:
    """A range of the text, and the numbers of the names found there."""

    start: int
    end: int
    names: tuple[int, ...]


class _Folding(dict[int, str]):
    """The folded form of each character, as a table for str.translate that is filled on demand."""

    def __init__(self, *, ignore_case: bool) -> None:
        super().__init__()
        self.ignore_case = ignore_case

    def __missing__(self, code: int) -> str:
        self[code] = folded = self.fold(chr(code))
        return folded

    def fold(self, character: str) -> str:
        """A space for white space, nothing for invisible characters, otherwise one or more characters."""
        category = unicodedata.category(character)
        if character.isspace():
            return " "
        if category == "Cf":  # soft hyphens, zero-width spaces, marks of direction
            return ""
        if category == "Pd" or character in _DASHES:
            return "-"
        if character in _QUOTES:
            return _QUOTES[character]
        if category == "Lo":  # syllables of Hangul stay whole
            return character
        decomposed = unicodedata.normalize("NFD", character)
        return unicodedata.normalize("NFD", decomposed.casefold()) if self.ignore_case else decomposed


_FOLDED, _CASED = _Folding(ignore_case=True), _Folding(ignore_case=False)


def fold_case(name: str) -> str:
    """The form in which names are compared where case does not matter.

    >>> fold_case("Sjögren’s  Syndrome") == fold_case("SJO\\u0308GREN'S SYNDROME")
    True
    """
    return _single_spaced(name, _FOLDED)


def keep_case(name: str) -> str:
    """The form in which names are compared where case matters."""
    return _single_spaced(name, _CASED)


def _single_spaced(name: str, folding: _Folding) -> str:
    return " ".join(name.translate(folding).split())


class _Alphabet:
    """The folded form of each code point if it is one character, its number of folded characters, and its kind.

    Filled page by page of 256 code points, as texts need them.
    """

    def __init__(self) -> None:
        self.folded = np.zeros(0x110000, np.uint32)
        self.width = np.zeros(0x110000, np.uint8)
        self.kind = np.zeros(0x110000, np.uint8)
        self._known = np.zeros(0x1100, bool)
        self._lock = Lock()
        self.need(np.array([0]))

    def need(self, codes: npt.NDArray[Any]) -> None:
        """Fill the pages of these code points."""
        pages = np.flatnonzero(np.bincount(codes >> 8)) if len(codes) else codes
        for page in pages[~self._known[pages]].tolist():
            with self._lock:
                for code in range(page << 8, (page + 1) << 8):
                    folded = _FOLDED[code]
                    self.width[code] = len(folded)
                    self.folded[code] = ord(folded[0]) if len(folded) == 1 else 0
                    self.kind[code] = _kind_of(chr(code))
                self._known[page] = True


def _kind_of(character: str) -> int:
    if character.isspace():
        return _SPACE
    code = ord(character)
    if code >= _UNSPACED_FROM or any(first <= code <= last for first, last in _UNSPACED):
        return _MARK
    return _WORD if unicodedata.category(character)[0] in "LNM" else _MARK


_ALPHABET = _Alphabet()


class _Scanned:
    """A text in folded form, with its words and marks, for hashing any run of them."""

    def __init__(self, text: str, powers: "_Powers") -> None:
        codes, source = _folded_codes(text)
        kinds = _ALPHABET.kind[codes]
        is_space = kinds == _SPACE
        repeated = is_space[1:] & is_space[:-1]
        if repeated.any():
            kept = np.concatenate(([True], ~repeated))
            codes, kinds = codes[kept], kinds[kept]
            source = np.flatnonzero(kept) if source is None else source[kept]
        self.source = source
        word = kinds == _WORD
        inside = word[1:] & word[:-1]
        solid = kinds != _SPACE
        self.starts = np.flatnonzero(solid & np.concatenate(([True], ~inside))) if len(codes) else np.zeros(0, int)
        self.ends = np.flatnonzero(solid & np.concatenate((~inside, [True]))) + 1 if len(codes) else self.starts
        forward, self._inverse = powers.up_to(len(codes))
        self._sums = np.zeros(len(codes) + 1, np.uint64)
        np.cumsum((codes.astype(np.uint64) + np.uint64(1)) * forward, out=self._sums[1:])

    def hashes(self, starts: Places, ends: Places) -> Hashes:
        """The hash of the folded text between each start and its end."""
        hashes: Hashes = (self._sums[ends] - self._sums[starts]) * self._inverse[starts]
        hashes ^= hashes >> np.uint64(32)
        hashes *= _MIX
        hashes ^= hashes >> np.uint64(29)
        return hashes

    def range_of(self, start: int, end: int) -> tuple[int, int] | None:
        """The range of the text that was folded to this one; None if it would cut through a character."""
        source = self.source
        if source is None:
            return start, end
        first, last = int(source[start]), int(source[end - 1])
        if (start > 0 and source[start - 1] == first) or (end < len(source) and source[end] == last):
            return None
        return first, last + 1


def _folded_codes(text: str) -> tuple[npt.NDArray[Any], Places | None]:
    """The code points of the folded text, and the index of the character each comes from; None if all are the same."""
    if text.isascii():
        return _ALPHABET.folded[np.frombuffer(text.encode("ascii"), np.uint8)], None
    codes = np.frombuffer(text.encode("utf-32-le"), np.dtype("<u4"))
    _ALPHABET.need(codes)
    width = _ALPHABET.width[codes]
    if (width == 1).all():
        folded: npt.NDArray[Any] = _ALPHABET.folded[codes]
        source = None
    else:
        folded = np.frombuffer(text.translate(_FOLDED).encode("utf-32-le"), np.dtype("<u4"))
        source = np.repeat(np.arange(len(codes)), width)
    _ALPHABET.need(folded)
    return folded, source


class _Powers:
    """Powers of the hash's factor and of its inverse, as many as the longest text so far needed."""

    def __init__(self) -> None:
        self._arrays = (np.ones(0, np.uint64), np.ones(0, np.uint64))

    def up_to(self, count: int) -> tuple[Hashes, Hashes]:
        arrays = self._arrays
        if len(arrays[0]) < count:
            size = max(1 << 14, 1 << (count - 1).bit_length())
            factors = np.full((2, size), [[_FACTOR], [_INVERSE]], np.uint64)
            factors[:, 0] = 1
            forward, inverse = np.cumprod(factors, axis=1)
            self._arrays = arrays = (forward, inverse)
        return arrays[0][:count], arrays[1][:count]


class NameMatcher:
    """The names of a dictionary, ready to be found in text; names are numbered in the order in which they are given.

    case     "auto": names of up to five characters without lower-case letters have to match in case, others not;
             "match": all names; "ignore": none
    dropped  names that are empty, longer than 500 characters, or not printable, which are never found
    """

    def __init__(self, names: Iterable[str], *, case: CaseRule = "auto") -> None:
        if case not in CASE_RULES:
            message = f"case rule {case!r}; expected one of {', '.join(CASE_RULES)}."
            raise UsageError(message, code="unknown-case-rule", value=case)
        self.case = case
        self.dropped = 0
        self._powers = _Powers()
        builder = _TableBuilder(self._powers)
        texts = bytearray()
        ends = [0]
        stream = iter(names)
        while batch := list(islice(stream, _BATCH)):
            usable = [self._usable(name) for name in batch]
            for name in usable:
                texts += name.encode()
                ends.append(len(texts))
            builder.add(usable)
        self._texts, self._ends = bytes(texts), np.array(ends, np.int64)
        self._hashes, self._continues, self._row_starts, self._rows = builder.build()
        bits = max(10, (len(self._hashes) * _FILTER_SLOTS).bit_length())
        self._shift = np.uint64(64 - bits)
        slots = np.zeros(1 << bits, bool)
        slots[self._hashes >> self._shift] = True
        self._filter = np.packbits(slots, bitorder="little")

    def __len__(self) -> int:
        return len(self._ends) - 1

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the names take."""
        arrays = (self._ends, self._hashes, self._continues, self._row_starts, self._rows, self._filter)
        return len(self._texts) + sum(array.nbytes for array in arrays)

    def name(self, number: int) -> str:
        """The name with this number, as it was given."""
        return self._texts[self._ends[number] : self._ends[number + 1]].decode()

    def find(self, text: str) -> list[NameHit]:
        """The names in a text, in order, without overlaps: the first that begins, and of these the longest."""
        scanned = _Scanned(text, self._powers)
        tokens, ends, entries = self._candidates(scanned)
        hits: list[NameHit] = []
        position = 0
        # By start, then by length, the longest first.
        order = np.lexsort((-ends, tokens))
        starts = scanned.starts[tokens[order]].tolist()
        for start, end, entry in zip(starts, ends[order].tolist(), entries[order].tolist(), strict=True):
            if start < position:
                continue
            place = scanned.range_of(start, end)
            if place is None:
                continue
            names = self._equal_names(text[slice(*place)], entry)
            if names:
                hits.append(NameHit(*place, names))
                position = end
        return hits

    def find_all(self, texts: Sequence[str]) -> list[list[NameHit]]:
        """The names in each of several texts, which is faster than one by one if they are short."""
        hits: list[list[NameHit]] = [[] for _ in texts]
        index = offset = 0
        for hit in self.find(SEPARATOR.join(texts)):
            while hit.start >= offset + len(texts[index]):
                offset += len(texts[index]) + len(SEPARATOR)
                index += 1
            hits[index].append(NameHit(hit.start - offset, hit.end - offset, hit.names))
        return hits

    def _usable(self, name: str) -> str:
        """The name with single spaces; empty if it cannot be found."""
        tidy = " ".join(name.split())
        if not tidy or len(tidy) > MAX_NAME or not (tidy.isascii() or _is_unicode(tidy)) or SEPARATOR in tidy:
            self.dropped += 1
            return ""
        return tidy

    def _candidates(self, scanned: _Scanned) -> tuple[Places, Places, Places]:
        """The pieces of text that have the hash of a name: first word, end in the folded text, and table entry."""
        tokens = np.arange(len(scanned.starts))
        found: list[tuple[Places, Places, Places]] = [(tokens[:0], tokens[:0], tokens[:0])]
        length = 0
        while len(tokens):
            ends = scanned.ends[tokens + length]
            hashes = scanned.hashes(scanned.starts[tokens], ends)
            slots = (hashes >> self._shift).astype(np.int64)
            possible = np.flatnonzero((self._filter[slots >> 3] >> (slots & 7).astype(np.uint8)) & 1)
            hashes = hashes[possible]
            entries = np.searchsorted(self._hashes, hashes)
            known = np.flatnonzero(self._hashes.take(entries, mode="clip") == hashes)
            tokens, ends, entries = tokens[possible[known]], ends[possible[known]], entries[known]
            is_name = self._row_starts[entries + 1] > self._row_starts[entries]
            found.append((tokens[is_name], ends[is_name], entries[is_name]))
            length += 1
            tokens = tokens[self._continues[entries] & (tokens + length < len(scanned.starts))]
        first, end, entry = (np.concatenate(columns) for columns in zip(*found, strict=True))
        return first, end, entry

    def _equal_names(self, text: str, entry: int) -> tuple[int, ...]:
        """The names of an entry that the text is, by the rules of case."""
        rows = self._rows[self._row_starts[entry] : self._row_starts[entry + 1]].tolist()
        return tuple(row for row in rows if self._is_name(text, self.name(row)))

    def _is_name(self, text: str, name: str) -> bool:
        if text == name:
            return True
        if self.case == "match" or (self.case == "auto" and len(name) <= SHORT_NAME and _is_capital(name)):
            return keep_case(text) == keep_case(name)
        return fold_case(text) == fold_case(name)


def _is_capital(name: str) -> bool:
    return name.upper() == name and name.lower() != name


def _is_unicode(name: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in name)


class _TableBuilder:
    """Collects the hashes of names and of their beginnings."""

    def __init__(self, powers: _Powers) -> None:
        self._powers = powers
        self._beginnings: list[Hashes] = []
        self._names: list[Hashes] = []
        self._numbers: list[Places] = []
        self._count = 0

    def add(self, names: Sequence[str]) -> None:
        """Add names, which are numbered on; empty ones are counted and not stored."""
        scanned = _Scanned(SEPARATOR.join(names), self._powers)
        # The separators are marks of their own; each begins the next name.
        lengths = np.fromiter(map(len, names), np.int64, len(names))
        before = np.cumsum(lengths + len(SEPARATOR)) - lengths - len(SEPARATOR)
        places = scanned.starts if scanned.source is None else scanned.source[scanned.starts]
        owners = np.searchsorted(before, places, side="right") - 1
        is_token = places < (before + lengths)[owners]
        token_starts, token_ends, owners = scanned.starts[is_token], scanned.ends[is_token], owners[is_token]
        if len(owners):
            is_first = np.concatenate(([True], owners[1:] != owners[:-1]))
            is_last = np.concatenate((is_first[1:], [True]))
            name_starts = token_starts[is_first][np.cumsum(is_first) - 1]
            hashes = scanned.hashes(name_starts, token_ends)
            self._beginnings.append(np.unique(hashes[~is_last]))
            self._names.append(hashes[is_last])
            self._numbers.append(owners[is_last] + self._count)
        self._count += len(names)

    def build(self) -> tuple[Hashes, npt.NDArray[np.bool_], Places, npt.NDArray[np.uint32]]:
        """All hashes in order; whether a name goes on after each; where its names start in the last array."""
        none = np.zeros(0, np.uint64)
        beginnings = np.unique(np.concatenate([none, *self._beginnings]))
        names = np.concatenate([none, *self._names])
        numbers = np.concatenate([np.zeros(0, np.int64), *self._numbers]).astype(np.uint32)
        self._beginnings, self._names, self._numbers = [], [], []
        hashes = np.unique(np.concatenate((beginnings, names)))
        continues = np.zeros(len(hashes) + 1, bool)
        continues[np.searchsorted(hashes, beginnings)] = True
        order = np.argsort(names, kind="stable")
        row_starts = np.searchsorted(names[order], hashes).astype(np.int64)
        return hashes, continues, np.append(row_starts, len(names)), numbers[order]
