"""What the words of a command line name: texts, files, folders, patterns of files, standard input."""

import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lexome.document import Document, Passage, shorten
from lexome.errors import FormatError, UsageError
from lexome.formats.files import is_archive
from lexome.formats.registry import by_ending

STANDARD_INPUT = Path("-")
# What a document made of a bare text is called.
TEXT_ID = "text"


@dataclass(frozen=True, slots=True)
class Inputs:
    """Texts that were written out, and the paths of everything else."""

    texts: tuple[str, ...] = ()
    paths: tuple[Path, ...] = ()

    def documents(self) -> Iterator[Document]:
        """The texts as documents: "text", or "text-1" and so on where there are several."""
        for number, text in enumerate(self.texts, 1):
            name = TEXT_ID if len(self.texts) == 1 else f"{TEXT_ID}-{number}"
            yield Document(name, (Passage(0, text),) if text else ())


def inputs_of(words: Sequence[str], *, text: bool = False) -> Inputs:
    """What each word is: a file, folder or pattern that is there, standard input for "-", a text where it has spaces.

    With `text`, every word is a text.
    """
    if text:
        return Inputs(texts=tuple(words))
    texts: list[str] = []
    paths: list[Path] = []
    for word in words:
        found = _paths(word)
        if not found and _reads_like_text(word):
            texts.append(word)
        else:
            paths += found or [_missing(word)]
    return Inputs(tuple(texts), tuple(dict.fromkeys(paths)))


def _paths(word: str) -> list[Path]:
    """The path or paths of a word, none where nothing is there."""
    if word == str(STANDARD_INPUT):
        return [STANDARD_INPUT]
    try:
        # An empty word, of a variable that is not set, would be the folder one stands in.
        if word and Path(word).exists():
            return [Path(word)]
    except PermissionError:  # it may well be there, and opening it says why it cannot be read
        return [Path(word)]
    except OSError:  # too long for a path: an abstract
        return []
    if not glob.has_magic(word):
        return []
    # A text with two stars must not set off a search of every folder.
    recursive = not any(map(str.isspace, word))
    return [Path(name) for name in sorted(glob.glob(word, recursive=recursive))]


def _reads_like_text(word: str) -> bool:
    """True for words with a space that neither begin nor end as paths do."""
    spaced = any(map(str.isspace, word.strip()))
    ends_as_file = bool(by_ending(word)) or is_archive(word)
    return spaced and not ends_as_file and not word.startswith(("/", "./", "../", "~"))


def _missing(word: str) -> Path:
    if glob.has_magic(word):
        raise FormatError(f"{word}: no file fits this pattern. Check it, or say --text if it is a text.")
    if not word.strip():
        raise UsageError("the text is empty; expected a text, a path, or - for standard input.")
    raise FormatError(
        f"{shorten(word)}: there is no such file or folder. Check the path, or say --text if it is a text."
    )
