"""JSON files, parsed in memory or one entry at a time, and type-checked access to fields.

docs/decisions/0022-libraries-kept.md says why entries are not streamed with ijson.
"""

import codecs
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from lexome.document import encode_utf8, shorten
from lexome.errors import BadDocument, FormatError
from lexome.formats.streams import BLOCK_BYTES, MAX_RECORD_BYTES, Source
from lexome.formats.tally import Id, Tally, known_id

T = TypeVar("T")

# An empty object takes 64 bytes of memory, and two of the file.
MAX_VALUES = 4_000_000
_SPACE = re.compile(r"[ \t\r\n]*")
_NAME = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"[ \t\r\n]*:[ \t\r\n]*')
_DECODER = json.JSONDecoder()
_TYPE_NAMES = {dict: "an object", list: "a list", str: "a string", int: "a number", float: "a number"}


def load(source: Source) -> Any:
    """The parsed content of the file; FormatError names the position of a syntax error."""
    raw = source.read()
    try:
        return parse(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise FormatError(
            f"{source.name}: byte {error.start:,} is 0x{raw[error.start]:02x}, which is not UTF-8. Convert the file.",
            code="wrong-encoding",
            value=error.start,
        ) from None
    except (ValueError, RecursionError) as error:
        raise malformed_json(source, str(error) if raw.strip() else "the file is empty") from None


def parse(raw: bytes | str) -> Any:
    """The parsed JSON; ValueError also if it has so many values that they would fill memory."""
    if isinstance(raw, bytes):
        values = raw.count(b"{") + raw.count(b"[") + raw.count(b",")
    else:
        values = raw.count("{") + raw.count("[") + raw.count(",")
    if values > MAX_VALUES:
        raise ValueError(f"it has about {values:,} values; at most {MAX_VALUES:,} are read at once")
    return json.loads(raw)


def members(source: Source) -> Iterator[tuple[str, Any]]:
    """The members of the file's top-level object, one in memory at a time; duplicate names are not merged."""
    return _entries(source, "{}", _Window.parse_member, "a name and a value")


def elements(source: Source, encoding: str = "utf-8") -> Iterator[Any]:
    """The elements of the file's top-level array, one in memory at a time."""
    return _entries(source, "[]", _Window.parse_value, "a value", encoding)


def records_in(source: Source, start: str, keys: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """The elements of the array under one of these keys of the top-level object, or of the top-level array.

    One is in memory at a time, each with its key, or "" in an array. Other members of the object come as they are.
    `start` is the text that was read before.
    """
    window = _Window(source, start)
    if window.skip("[") is not None:
        for value in window.elements():
            yield "", value
    elif window.skip("{") is None:
        raise malformed_json(source, f"it begins with {window.preview()}; expected {{ or [")
    else:
        mark = window.skip("}") or ","
        while mark == ",":
            name = window.complete(_Window.parse_name, "a name")
            if name in keys and window.skip("[") is not None:
                for value in window.elements():
                    yield name, value
            else:
                yield name, window.complete(_Window.parse_value, "a value")
            mark = window.skip(",", "}") or ""
        if not mark:
            raise malformed_json(source, f"{window.preview()} follows an entry; expected , or }}")
    if window.skip("") is None:
        raise malformed_json(source, f"{window.preview()} follows the last bracket; expected the end of the file")


def _entries(
    source: Source,
    brackets: str,
    parse: "Callable[[_Window], tuple[T, int] | None]",
    expected: str,
    encoding: str = "utf-8",
) -> Iterator[T]:
    opening, closing = brackets[0], brackets[1]
    window = _Window(source, encoding=encoding)
    if window.skip(opening) is None:
        raise malformed_json(source, f"it begins with {window.preview()}; expected {opening}")
    mark = window.skip(closing) or ","
    while mark == ",":
        yield window.complete(parse, expected)
        mark = window.skip(",", closing) or ""
    if not mark:
        raise malformed_json(source, f"{window.preview()} follows an entry; expected , or {closing}")
    if window.skip("") is None:
        raise malformed_json(source, f"{window.preview()} follows the closing {closing}; expected the end of the file")


def attempt(tally: Tally, make: Callable[[], T], record: object, *, where: str, id: Id = None) -> T | None:
    """Like tally.attempt, but the record is serialized only if it is rejected."""
    try:
        return make()
    except BadDocument as error:
        try:
            raw = json.dumps(record).encode()
        except RecursionError:
            raw = None
        tally.reject(error, where=where, id=known_id(id) or record_id(record), raw=raw)
        return None


def record_id(record: object, keys: Iterable[str] = ("id", "_id", "pmid")) -> str | None:
    """The id of a record that may be bad: the first of these fields with a string or a number."""
    values = (record.get(key) for key in keys) if isinstance(record, Mapping) else ()
    return next((str(value) for value in values if value and type(value) in (str, int, float)), None)


def accept(tally: Tally, make: Callable[[], T], record: object, *, where: str, id: Id = None) -> Iterator[T]:
    """Yield the result of `make`, or nothing if the record was rejected."""
    result = attempt(tally, make, record, where=where, id=id)
    if result is not None:
        yield result


def string(record: Mapping[str, Any], key: str) -> str | None:
    """The string in a field, or None if it is missing or null; a number is returned as its JSON text."""
    value = record.get(key)
    if value is None or isinstance(value, str):
        if value and not value.isascii():
            encode_utf8(value, repr(key))
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return json.dumps(value)
    raise _wrong_type(key, value, "a string")


def required(record: Mapping[str, Any], key: str) -> str:
    """The string in a required field."""
    value = string(record, key)
    if value is None:
        names = shorten(", ".join(map(repr, record)), 200) or "none"
        raise BadDocument("bad_field", f"the field {key!r} is missing; the fields are {names}", value=key)
    return value


def strings(record: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """The strings in a field that is a list of strings, or one string."""
    value = record.get(key)
    if isinstance(value, list):
        return tuple(text for item in value if (text := string({key: item}, key)) is not None)
    single = string(record, key)
    return () if single is None else (single,)


def flag(record: Mapping[str, Any], key: str) -> bool:
    """A boolean field; missing or null is False."""
    value = record.get(key)
    if value is not None and not isinstance(value, bool):
        raise _wrong_type(key, value, "true or false")
    return bool(value)


def mapping(value: object, what: str) -> dict[str, Any]:
    """The value, which must be a JSON object."""
    if not isinstance(value, dict):
        raise _wrong_type(what, value, "an object")
    return value


def objects(record: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """A field that is a list of objects; missing or null is an empty list."""
    value = record.get(key)
    if value is not None and not isinstance(value, list):
        raise _wrong_type(key, value, "a list")
    return [mapping(item, key) for item in value or ()]


def note_unknown(record: Mapping[str, Any], known: frozenset[str], tally: Tally) -> None:
    """Count non-empty fields that are not read."""
    for key in record.keys() - known:
        if record[key] not in (None, "", [], {}):
            tally.note(f"field {key!r} ignored")


class _Window:
    """A sliding window over the text of a file that grows until the next entry is complete."""

    def __init__(self, source: Source, start: str = "", *, encoding: str = "utf-8") -> None:
        self.source, self.encoding = source, encoding
        self.decoder = codecs.getincrementaldecoder("utf-8-sig" if encoding == "utf-8" and not start else encoding)()
        self.text = start
        self.at = 0  # the text before this position has been consumed
        self.ended = False

    def skip(self, *marks: str) -> str | None:
        """Skip white space and, if it is one of these, the next character, which is returned; "" is the end of file."""
        while (at := self._skip_space()) == len(self.text) and self._grow():
            pass
        mark = self.text[at : at + 1]
        self.at = at + len(mark) if mark in marks else at
        return mark if mark in marks else None

    def complete(self, parse: "Callable[[_Window], tuple[T, int] | None]", expected: str) -> T:
        """The next entry, with as much of the file read as it takes."""
        while True:
            parsed = parse(self)
            # A number at the window's end may continue beyond it.
            if parsed is not None and (parsed[1] < len(self.text) or self.ended):
                self.at = parsed[1]
                return parsed[0]
            if not self._grow():
                raise malformed_json(self.source, f"near {self.text[self.at : self.at + 40]!r}; expected {expected}")

    def elements(self) -> Iterator[Any]:
        """The elements of an array whose bracket was skipped, and the closing bracket."""
        mark = self.skip("]") or ","
        while mark == ",":
            yield self.complete(_Window.parse_value, "a value")
            mark = self.skip(",", "]") or ""
        if not mark:
            raise malformed_json(self.source, f"{self.preview()} follows an entry; expected , or ]")

    def preview(self) -> str:
        """The next few characters, for a message."""
        return repr(self.text[self.at : self.at + 20])

    def parse_member(self) -> tuple[tuple[str, Any], int] | None:
        """The next member and its end, or None if the window does not contain all of it."""
        start = self._skip_space()
        opening = _NAME.match(self.text, start)
        if opening is None:
            return None
        try:
            name, _ = _DECODER.raw_decode(self.text, start)
            value, end = _DECODER.raw_decode(self.text, opening.end())
            return (name, value), end
        except (ValueError, RecursionError):
            return None

    def parse_name(self) -> tuple[str, int] | None:
        """The name of the next member, and where its value begins."""
        start = self._skip_space()
        opening = _NAME.match(self.text, start)
        if opening is None:
            return None
        try:
            return _DECODER.raw_decode(self.text, start)[0], opening.end()
        except ValueError:
            return None

    def parse_value(self) -> tuple[Any, int] | None:
        """The next value and its end, or None if the window does not contain all of it."""
        try:
            return _DECODER.raw_decode(self.text, self._skip_space())
        except (ValueError, RecursionError):
            return None

    def _skip_space(self) -> int:
        match = _SPACE.match(self.text, self.at)
        return match.end() if match is not None else self.at

    def _grow(self) -> bool:
        """Read another block; False at the end of the file."""
        if self.ended:
            return False
        if len(self.text) - self.at > MAX_RECORD_BYTES:
            raise malformed_json(self.source, f"an entry is longer than {MAX_RECORD_BYTES >> 20} MiB, or never ends")
        if (
            len(self.text) - self.at > BLOCK_BYTES
            and sum(self.text.count(mark, self.at) for mark in "{[,") > MAX_VALUES
        ):
            raise malformed_json(self.source, f"an entry has more than {MAX_VALUES:,} values, or never ends")
        block = self.source.stream.read1(BLOCK_BYTES)
        self.ended = not block
        try:
            self.text = self.text[self.at :] + self.decoder.decode(block, final=self.ended)
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            raise malformed_json(self.source, f"0x{byte:02x} is not {self.encoding.upper()}") from None
        self.at = 0
        return True


def missing_list(source: Source, content: object, key: str, format: str) -> FormatError:
    """The error for a file whose top-level object has no list of this name."""
    seen = shorten(", ".join(map(repr, content)), 200) if isinstance(content, dict) else type(content).__name__
    return FormatError(
        f"{source.name}: there is no list {key!r}, only {seen}; expected {format}. If the file has another format, "
        "name it with --from (in Python: format=).",
        code="missing-key",
        value=key,
    )


def malformed_json(source: Source, problem: str) -> FormatError:
    """The error for a file that is not valid JSON."""
    return FormatError(
        f"{source.name}: invalid or incomplete JSON: {problem}. Download the file again; if it has another format, "
        "name it with --from (in Python: format=).",
        code="malformed-json",
        value=source.name,
    )


def _wrong_type(key: str, value: object, expected: str) -> BadDocument:
    seen = _TYPE_NAMES.get(type(value)) or f"{value!r}"
    return BadDocument("bad_field", f"{key!r} is {seen}; expected {expected}", value=key)
