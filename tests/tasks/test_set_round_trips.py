"""decode(encode(gold)) == gold for every set beside the project, but for what the tasks count and name.

A sample of each split in ordinary runs; whole sets at night.
"""

from collections import Counter
from pathlib import Path

import pytest
from patience import NIGHTLY
from task_rows import frame, perfect

from lexome import datasets
from lexome.corpus.vocab.tokenizers import load_tokenizer
from lexome.datasets import DataSet
from lexome.document import Document, Question
from lexome.infer.tokenizer import SubwordTokenizer, open_tokenizer
from lexome.tasks import DocumentRelations, Ner, Questions, Relations, Task, task_of
from lexome.tasks.qa import find_answer, normalize, question_contexts

SAMPLE = 8
# Documents whose every pair of concepts is a row of its own.
FEW = {"BioRED-RE": 3, "BC5CDR-CID": 8, "linnaeus-pubtator": 6}

# Vectors wide enough for a dimension for each related pair of a window.
WIDE = 64

# What may keep something from coming back as it was; each is explained in docs/explanation/tasks.md.
EXPLAINED = (
    "mention moved to word boundaries",  # "5-HT" in "5-HT6": a word has one tag
    "mention skipped: overlaps a longer one",  # nested mentions of one type, or of types that share a group
    "mention skipped: duplicate",  # the set says the same twice
    "discontinuous mention taken as one",
    "relation skipped: not between two entities",  # a gene that binds itself
    "relation skipped: its entities have another relation",
    "relation skipped: its entities are no pair of these types in one document",
    "relation skipped: its entities are no pair of these types in one sentence",
    "relation skipped: its entities are no pair of these types in one window",
    "relation of another type",
    "answer moved to token boundaries",  # "Israel" in "Israeli"
    "answer longer than the longest that is predicted",
    "answer skipped: no window holds all of it",
)


@pytest.fixture(scope="module")
def bert(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> SubwordTokenizer:
    """BERT's cased tokenizer."""
    file = tmp_path_factory.mktemp("bert") / "tokenizer.json"
    load_tokenizer(real_data / "vocabs" / "bert_base_cased.vocab.txt").save(str(file))
    return open_tokenizer(file)


@pytest.mark.property
@pytest.mark.parametrize("name", datasets.names())
def test_what_a_set_says_comes_back(name: str, real_data: Path, bert: SubwordTokenizer) -> None:
    found = datasets.find(name, data=real_data / "benchmarks")
    if not found.files:
        pytest.skip(f"the set {name} is not beside the project")
    task = found.task
    if isinstance(task, DocumentRelations):
        task = DocumentRelations(task.schemas, width=WIDE)
    asked = unexplained = 0
    for doc in documents(found):
        before = Counter(task.notes)
        rows = task.encode(doc, bert, frame(128), with_targets=True)
        said = task.decode(doc, rows, perfect(task, rows))
        wanted, lost = compared(task, doc, said)
        asked += wanted
        reasons = [reason for reason in task.notes - before if reason.startswith(EXPLAINED)]
        unexplained += max(0, lost - sum((task.notes - before)[reason] for reason in reasons))
    assert asked > 0
    assert unexplained == 0


def documents(found: DataSet) -> list[Document]:
    """The documents of the splits that are here, or some of each, those with most to say among them."""
    one = found.folds[0] if found.folds else found
    docs: list[Document] = []
    for split in one.splits(partial=True).values():
        limit = FEW.get(found.name, SAMPLE)
        step = max(1, len(split) // limit)
        docs += split if NIGHTLY else split[::step][:limit]
    return docs


def compared(task: Task, gold: Document, found: Document) -> tuple[int, int]:
    """How many things a document says, and how many of them are not found again."""
    if isinstance(task, Questions):
        pairs = [compared_answers(task, gold, *both) for both in zip(gold.questions, found.questions, strict=True)]
        return sum(wanted for wanted, _ in pairs), sum(lost for _, lost in pairs)
    if isinstance(task, Ner):
        own, other = (
            {(span.type, span.parts) for span in doc.spans if span.type in task.types} for doc in (gold, found)
        )
        return len(own), max(len(own - other), len(other - own))
    if isinstance(task, Relations) and task.pairs:
        relations, others = (related(task, doc) for doc in (gold, found))
        assert others <= relations
        return len(relations) + 1, len(relations - others)
    if isinstance(task, DocumentRelations):
        labels = set(task.document_labels)
        own, other = (
            {
                (one.type, frozenset(side.target or side.concept for side in one.arguments))
                for one in doc.relations
                if one.type in labels
            }
            for doc in (gold, found)
        )
        assert other <= own
        return len(own) + 1, len(own - other)
    return 1, int(set(gold.labels) != set(found.labels))


def related(task: Relations, doc: Document) -> set[tuple[str, frozenset[str | None]]]:
    """The relations of a document that are not none."""
    return {
        (relation.type, frozenset(argument.target or argument.concept for argument in relation.arguments))
        for relation in doc.relations
        if relation.type != task.none
    }


def compared_answers(task: Questions, doc: Document, gold: Question, found: Question) -> tuple[int, int]:
    """The same for one question. Answers that stand in no text of a document cannot come back."""
    if gold.type not in (task.form, None):
        return 0, 0
    if task.form == "yesno":
        return 1, int(normalize(gold.answers[0].text).removesuffix(".") != found.answers[0].text)
    texts = question_contexts(doc)
    there = [answer for answer in gold.answers if any(list(find_answer(answer, passages)) for passages in texts)]
    forms = [{normalize(form).removesuffix(".") for form in (answer.text, *answer.synonyms)} for answer in there]
    given = [normalize(answer.text).removesuffix(".") for answer in found.answers]
    if task.form == "factoid":
        return 1, int(bool(forms) and not any(given[0] in own for own in forms))
    return len(forms), sum(not own & set(given) for own in forms)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("labelling", ["first", "words", "pieces"])
def test_what_a_set_says_comes_back_however_it_is_labeled(
    labelling: str, nested: bool, real_data: Path, bert: SubwordTokenizer
) -> None:
    found = datasets.find("BioRED", data=real_data / "benchmarks")
    if not found.files:
        pytest.skip("the set BioRED is not beside the project")
    task = task_of({**found.settings, "labelling": labelling, "nested": nested, "scheme": "iobes"})
    lost = 0
    for doc in documents(found)[:30]:
        rows = task.encode(doc, bert, frame(100), with_targets=True)
        lost += compared(task, doc, task.decode(doc, rows, perfect(task, rows)))[1]
    assert lost <= sum(task.notes.values())
    assert lost < 10
