"""JSON files: parsed whole or one entry at a time, and their fields read with their types checked."""

import codecs
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from lexome.document import shorten
from lexome.errors import BadDocument, FormatError
from lexome.formats.streams import BLOCK_BYTES, MAX_RECORD_BYTES, Source
from lexome.formats.tally import Tally

Made = TypeVar("Made")

_SPACE = re.compile(r"[ \t\r\n]*")
_NAME = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"[ \t\r\n]*:[ \t\r\n]*')
_DECODER = json.JSONDecoder()
_WORDS = {dict: "an object", list: "a list", str: "text", int: "a number", float: "a number"}


def load(source: Source) -> Any:
    """What the whole file holds; FormatError names the place where it is not JSON."""
    raw = source.read()
    try:
        return json.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise FormatError(
            f"{source.name}: byte {error.start:,} is 0x{raw[error.start]:02x}, which is not UTF-8. Convert the file."
        ) from None
    except (ValueError, RecursionError) as error:
        raise _malformed(source, str(error) if raw.strip() else "it is empty") from None


def members(source: Source) -> Iterator[tuple[str, Any]]:
    """Each name and value of the object that is the whole file, with no more than one of them in memory.

    A name that occurs twice comes twice.
    """
    return _entries(source, "{}", _Window.member)


def elements(source: Source) -> Iterator[Any]:
    """Each value of the list that is the whole file, with no more than one of them in memory."""
    return _entries(source, "[]", _Window.element)


def _entries(source: Source, brackets: str, entry: "Callable[[_Window], Made]") -> Iterator[Made]:
    """Each entry between the brackets, which must be all there is in the file."""
    opening, closing = brackets[0], brackets[1]
    window = _Window(source)
    if window.skip(opening) is None:
        raise _malformed(source, f"it begins with {window.ahead()}; expected {opening}")
    mark = window.skip(closing) or ","
    while mark == ",":
        yield entry(window)
        mark = window.skip(",", closing) or ""
    if not mark:
        raise _malformed(source, f"{window.ahead()} follows an entry; expected , or {closing}")
    if window.skip("") is None:
        raise _malformed(source, f"{window.ahead()} follows the closing {closing}; expected the end of the file")


def attempt(
    tally: Tally, make: Callable[[], Made], record: object, *, where: str, id: str | None = None
) -> Made | None:
    """As tally.attempt; the record is turned back into bytes only where it is set aside."""
    try:
        return make()
    except BadDocument as error:
        own = record.get("id") if isinstance(record, dict) else None
        tally.reject(error, where=where, id=id or (own if isinstance(own, str) else None), raw=_bytes_of(record))
        return None


def string(record: Mapping[str, Any], key: str) -> str | None:
    """The text of a field, None where it is missing or null; a number is taken as it is written."""
    value = record.get(key)
    if value is None:
        return None
    if isinstance(value, str):
        if not value.isascii():
            _require_unicode(value, key)
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return json.dumps(value)
    raise _wrong(key, value, "text")


def required(record: Mapping[str, Any], key: str) -> str:
    """The text of a field that must be there."""
    value = string(record, key)
    if value is None:
        raise BadDocument("bad_field", f"there is no {key!r} among {_names(record)}; expected text")
    return value


def strings(record: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """The texts of a field that is a list of them, or one alone."""
    value = record.get(key)
    if isinstance(value, list):
        found = tuple(string({key: item}, key) for item in value)
        return tuple(text for text in found if text is not None)
    alone = string(record, key)
    return () if alone is None else (alone,)


def flag(record: Mapping[str, Any], key: str) -> bool:
    """A field that is true or false; missing or null is false."""
    value = record.get(key)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise _wrong(key, value, "true or false")
    return value


def mapping(value: object, what: str) -> dict[str, Any]:
    """The value, if it is a JSON object."""
    if not isinstance(value, dict):
        raise _wrong(what, value, "an object")
    return value


def objects(record: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """A field that is a list of objects; missing or null is an empty one."""
    value = record.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise _wrong(key, value, "a list")
    return [mapping(item, key) for item in value]


def note_unknown_fields(record: Mapping[str, Any], read: frozenset[str], tally: Tally) -> None:
    """Count the fields with something in them that are not among those read."""
    for key in record.keys() - read:
        if record[key] not in (None, "", [], {}):
            tally.note(f"field {key!r} ignored")


class _Window:
    """The text that lies ahead in a file, read on as more is needed."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self.text = ""
        self.at = 0  # what lies before it in the text has been handed on
        self.ended = False

    def skip(self, *marks: str) -> str | None:
        """Pass white space and the mark that follows, if it is one of these; "" stands for the file's end."""
        while (at := _end(_SPACE, self.text, self.at)) == len(self.text) and self._grow():
            pass
        self.at = at
        mark = self.text[at : at + 1]
        self.at += len(mark)
        if mark in marks:
            return mark
        self.at = at
        return None

    def member(self) -> tuple[str, Any]:
        """The name and value that stand next."""
        return self._whole(self._parsed, "a name and a value")

    def element(self) -> Any:
        """The value that stands next."""
        return self._whole(self._parsed_alone, "a value")

    def _whole(self, parse: Callable[[], tuple[Made, int] | None], expected: str) -> Made:
        """What stands next, with as much read on as it takes."""
        while True:
            found = parse()
            # A number that reaches the window's end may go on behind it.
            if found is not None and (found[1] < len(self.text) or self.ended):
                self.at = found[1]
                return found[0]
            if not self._grow():
                raise _malformed(self.source, f"near {self.text[self.at : self.at + 40]!r}; expected {expected}")

    def ahead(self) -> str:
        """The next few characters, for a message."""
        return repr(self.text[self.at : self.at + 20])

    def _parsed(self) -> tuple[tuple[str, Any], int] | None:
        """The member that stands next and where it ends, if it is wholly in the window."""
        start = _end(_SPACE, self.text, self.at)
        found = _NAME.match(self.text, start)
        if found is None:
            return None
        try:
            name, _ = _DECODER.raw_decode(self.text, start)
            value, end = _DECODER.raw_decode(self.text, found.end())
            return (name, value), end
        except (ValueError, RecursionError):
            return None

    def _parsed_alone(self) -> tuple[Any, int] | None:
        """The value that stands next and where it ends, if it is wholly in the window."""
        try:
            return _DECODER.raw_decode(self.text, _end(_SPACE, self.text, self.at))
        except (ValueError, RecursionError):
            return None

    def _grow(self) -> bool:
        """Read on; False at the end of the file."""
        if self.ended:
            return False
        if len(self.text) - self.at > MAX_RECORD_BYTES:
            raise _malformed(self.source, f"an entry is longer than {MAX_RECORD_BYTES >> 20} MiB, or never ends")
        block = self.source.stream.read1(BLOCK_BYTES)
        self.ended = not block
        try:
            self.text = self.text[self.at :] + self.decoder.decode(block, final=self.ended)
        except UnicodeDecodeError as error:
            raise _malformed(self.source, f"0x{error.object[error.start]:02x} is not UTF-8") from None
        self.at = 0
        return True


def _end(pattern: re.Pattern[str], text: str, start: int) -> int:
    """Where a pattern that may match nothing ends."""
    found = pattern.match(text, start)
    return found.end() if found is not None else start


def _bytes_of(record: object) -> bytes | None:
    try:
        return json.dumps(record).encode()
    except RecursionError:
        return None


def _malformed(source: Source, problem: str) -> FormatError:
    return FormatError(
        f"{source.name}: this is not whole JSON: {problem}. Fetch the file again; if it is of another format, name "
        "that with --from (in Python: format=)."
    )


def _wrong(key: str, value: object, expected: str) -> BadDocument:
    seen = _WORDS.get(type(value)) or f"{value!r}"
    return BadDocument("bad_field", f"{key!r} is {seen}; expected {expected}")


def _names(record: Mapping[str, Any]) -> str:
    return shorten(", ".join(map(repr, record)), 200) or "no fields at all"


def _require_unicode(text: str, key: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadDocument(
            "not_unicode",
            f"{key!r} has half a surrogate pair, {text[error.start]!r}, at character {error.start}; "
            "expected whole characters",
        ) from None
