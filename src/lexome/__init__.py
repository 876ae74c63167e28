"""Biomedical language models from raw literature to answers."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lexome.document import Answer, Argument, Attribute, Document, Passage, Question, Relation, Span
from lexome.errors import LexomeError
from lexome.formats import Tally, read, write
from lexome.metadata import Metadata

if TYPE_CHECKING:
    from lexome.infer.annotator import Annotator

# onnxruntime sends facts about the machine and the model to its makers, from 1.29 on by default, unless this is set
# before it is first imported. Texts may be patients': nothing leaves the machine that the user did not send.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

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
    "load",
    "read",
    "write",
]


def load(*folders: str | Path, threads: int | None = None) -> "Annotator":
    """An annotator with the models in these folders; without any, with the model that comes with Lexome.

    A folder is one that `lexome export` made, or a token classifier of Hugging Face with its ONNX file. Several work
    on each document one after another: mentions first, then relations, classes and answers. It runs on all usable
    cores, or on so many threads.
    """
    from lexome.infer.annotator import load as open_models

    return open_models(*folders, threads=threads)
