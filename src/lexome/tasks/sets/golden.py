"""BioASQ's test questions with the answers of the golden files."""

from collections.abc import Iterator
from dataclasses import replace

from lexome.document import Document, Question
from lexome.errors import DataSetError
from lexome.formats.detect import detect
from lexome.formats.files import Source
from lexome.formats.sets import bioasq, squad
from lexome.formats.tally import Tally
from lexome.tasks.qa import question_of
from lexome.tasks.sets.changes import of_one_question


def answered_from_golden(sources: Iterator[Source], *, tally: Tally) -> Iterator[Document]:
    """The documents of test files in SQuAD's form, each question with its type and answers from a golden file.

    In such a file a question is called <id>_000, <id>_001, ... once for each text it is asked of. One that no golden
    file has is an error: what it scores could not be known.
    """
    asked: list[Document] = []
    golden: dict[str, Question] = {}
    for source in sources:
        if detect(source).name == "bioasq":
            golden.update(
                (question.id, question) for doc in bioasq.read(source, tally=tally) for question in doc.questions
            )
        else:
            asked += squad.read(source, tally=tally)
    for doc in of_one_question(asked, tally):
        yield replace(doc, questions=tuple(_answered(question, golden) for question in doc.questions))


def _answered(question: Question, golden: dict[str, Question]) -> Question:
    known = golden.get(question_of(question.id))
    if known is None:
        raise DataSetError(
            f"the test question {question.id!r} is in no golden file; expected its answers there. Take the golden "
            "files of the same edition."
        )
    return replace(question, type=known.type, answers=known.answers, documents=known.documents)
