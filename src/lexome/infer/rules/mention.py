"""What rules work on: mentions in one string, and the index that finds many names in it in linear time."""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Mention:
    """A mention in the text of a document; `rule` is the rule that made it, None if the model predicted it."""

    start: int
    end: int
    type: str
    score: float
    rule: str | None = None

    @property
    def place(self) -> tuple[int, int]:
        """Start and end."""
        return self.start, self.end

    def moved(self, start: int, end: int) -> "Mention":
        """The same mention with other boundaries."""
        return replace(self, start=start, end=end)


@dataclass(frozen=True, slots=True)
class Drop:
    """A mention that a rule removed or moved, with the reason."""

    mention: Mention
    reason: str


WORD = re.compile(r"[^\W_]+")

# Longer names are sentences; the bound keeps look-ups per word constant.
MAX_NAME = 80


class NameIndex:
    """Finds the occurrences of many names, whole words only, in time linear in the text.

    >>> list(NameIndex({"type 2 diabetes", "diabetes"}).find("In type 2 diabetes, diabetesx and diabetes."))
    [(3, 18), (34, 42)]
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names: set[str] = set()
        # By first word, the lengths of its names, longest first: there are at most MAX_NAME.
        lengths: dict[str, set[int]] = {}
        for name in names:
            first = WORD.match(name)
            if first is not None and len(name) <= MAX_NAME and not name[-1].isspace():
                self._names.add(name)
                lengths.setdefault(first.group(), set()).add(len(name))
        self._lengths = {word: sorted(of_word, reverse=True) for word, of_word in lengths.items()}

    def __bool__(self) -> bool:
        return bool(self._names)

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """The longest name at each place, from left to right, without overlaps."""
        end_of_last = 0
        for word in WORD.finditer(text):
            start = word.start()
            if start < end_of_last:
                continue
            for length in self._lengths.get(word.group(), ()):
                end = start + length
                if text[start:end] in self._names and _ends_word(text, end):
                    yield start, end
                    end_of_last = end
                    break


def _ends_word(text: str, end: int) -> bool:
    """Whether a name that ends here is not continued by a letter or digit."""
    return end <= len(text) and not (text[end - 1].isalnum() and text[end : end + 1].isalnum())


class Occupied:
    """The places of mentions, to ask whether a range overlaps one of them."""

    def __init__(self, text: str, mentions: Iterable[Mention]) -> None:
        self._covered = bytearray(len(text))
        for mention in mentions:
            self.add(*mention.place)

    def add(self, start: int, end: int) -> None:
        """Cover a range."""
        self._covered[start:end] = b"\1" * (end - start)

    def overlaps(self, start: int, end: int) -> bool:
        """Whether any character of the range is covered."""
        return self._covered.find(1, start, end) >= 0


def of_types(mentions: Iterable[Mention], types: Collection[str]) -> Iterator[Mention]:
    """The mentions of some types."""
    return (mention for mention in mentions if mention.type in types)
