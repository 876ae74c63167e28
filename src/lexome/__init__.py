"""Biomedical language models from raw literature to answers."""

from lexome.document import Answer, Argument, Attribute, Document, Passage, Question, Relation, Span
from lexome.errors import LexomeError
from lexome.formats import Tally, read, write
from lexome.metadata import Metadata

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Argument",
    "Attribute",
    "Document",
    "LexomeError",
    "Metadata",
    "Passage",
    "Question",
    "Relation",
    "Span",
    "Tally",
    "read",
    "write",
]
