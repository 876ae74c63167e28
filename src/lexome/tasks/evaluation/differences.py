"""What explains a score: each thing that was missed, spurious or half right, with the text around it."""

from lexome.document import Document
from lexome.values import value

# How much of the text is shown on each side of a mention.
_AROUND = 30


@value
class Difference:
    """One thing on which predictions and gold differ.

    section   what it is of: mentions, tokens, relations, labels or questions
    kind      how they differ, such as "missed" or "wrong type"
    document  the document's id
    gold      what gold says, or None
    found     what was predicted, or None
    context   the text around it, where it has a place
    """

    section: str
    kind: str
    document: str
    gold: str | None
    found: str | None
    context: str | None = None


def around(doc: Document, start: int, end: int) -> str:
    """The text of a range in square brackets, with what stands before and after it, on one line."""
    text = doc.text
    low, high = max(0, start - _AROUND), min(len(text), end + _AROUND)
    before, after = ("…" if low else "") + text[low:start], text[end:high] + ("…" if high < len(text) else "")
    return " ".join(f"{before}[{text[start:end]}]{after}".split())
