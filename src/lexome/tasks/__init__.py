"""Tasks without torch: encoding, decoding and metrics of each kind of problem."""

from lexome.tasks.classify import Classes, Inference, Similarity
from lexome.tasks.document_relation import DocumentRelations
from lexome.tasks.ner import Ner
from lexome.tasks.qa import Questions
from lexome.tasks.relation import Relations
from lexome.tasks.task import KINDS, Task, task_of

__all__ = [
    "KINDS",
    "Classes",
    "DocumentRelations",
    "Inference",
    "Ner",
    "Questions",
    "Relations",
    "Similarity",
    "Task",
    "task_of",
]
