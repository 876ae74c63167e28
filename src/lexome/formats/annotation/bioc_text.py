"""The text of a BioC passage, which may stand in its sentences alone, and those sentences."""

from collections.abc import Mapping
from typing import Any

from lexome.document import Range, shorten
from lexome.errors import BadDocument
from lexome.formats.json_file import objects, string
from lexome.formats.tally import Tally

# Offsets beyond this are no text's; they would only fill the memory with spaces.
_LARGEST_OFFSET = 10**12
_WIDEST_GAP = 1_000_000


def whole_number(value: object, what: str) -> int:
    """An offset or length; BadDocument where it is none."""
    text = value.strip() if isinstance(value, str) else ""
    if text.isascii() and text.isdecimal() and len(text) <= 12:
        return int(text)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_OFFSET:
        return value
    raise BadDocument("bad_offset", f"{what} is {shorten(repr(value))}; expected a whole number from 0")


def passage_text(
    record: Mapping[str, Any], between: tuple[str, ...], repairing: bool, tally: Tally
) -> tuple[str, tuple[Range, ...]]:
    """The text of a passage and the ranges of its sentences.

    Where only the sentences have text, the passage has theirs, with spaces between them or what
    `between` says stood before, between and after them.
    """
    text = string(record, "text") or ""
    offset = whole_number(record.get("offset"), "a passage's offset")
    sentences = [
        (whole_number(item.get("offset"), "a sentence's offset"), string(item, "text") or "")
        for item in objects(record, "sentences")
    ]
    if not sentences:
        return text, ()
    if text:
        return text, _checked(text, offset, sentences, repairing, tally)
    return _rebuilt(offset, sentences, between), tuple((start, start + len(words)) for start, words in sentences)


def _rebuilt(offset: int, sentences: list[tuple[int, str]], between: tuple[str, ...]) -> str:
    if between and len(between) != len(sentences) + 1:
        raise BadDocument(
            "bad_field", f"{len(between)} texts lie between {len(sentences)} sentences; expected one more"
        )
    pieces: list[str] = []
    at = offset
    for number, (start, words) in enumerate(sentences):
        gap = start - at
        if not 0 <= gap <= _WIDEST_GAP or (between and len(between[number]) != gap):
            raise BadDocument(
                "bad_offset",
                f"a sentence begins at {start} where the text before it ends at {at}; expected sentences in order, "
                "inside their passage",
            )
        pieces += (between[number] if between else " " * gap, words)
        at = start + len(words)
    return "".join((*pieces, *between[-1:]))


def _checked(
    text: str, offset: int, sentences: list[tuple[int, str]], repairing: bool, tally: Tally
) -> tuple[Range, ...]:
    """The ranges of sentences that repeat the passage's text, if they do."""
    ranges: list[Range] = []
    for start, words in sentences:
        if start >= offset and text.startswith(words, start - offset):
            ranges.append((start, start + len(words)))
        elif repairing:
            tally.note("sentence left out: its text does not stand at its offset")
        else:
            raise BadDocument(
                "offset_mismatch",
                f"a sentence says {shorten(words)!r}, but at {start} the passage says "
                f"{shorten(text[max(0, start - offset) : start - offset + len(words)])!r}",
            )
    return tuple(ranges)
