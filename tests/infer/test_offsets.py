"""text[start:end] is the mention, whatever the text: over all of Unicode, and over every real abstract."""

import json
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from patience import NIGHTLY
from strategies import texts
from tiny_models import SPECIAL, VOCAB, hf_model

import lexome
from lexome.corpus.vocab.tokenizers import bert_tokenizer, load_tokenizer
from lexome.document import Document, lay_out
from lexome.export.export import export
from lexome.infer.annotator import Annotator
from lexome.infer.tokenizer import SubwordTokenizer, open_tokenizer
from lexome.tasks import Ner
from lexome.tasks.ner import Labelling
from lexome.tasks.task import Frame

TYPES = ("Gene", "Disease")
# So many real abstracts are looked at unless LEXOME_HYPOTHESIS is nightly: then it is all of them.
SAMPLE = 300

# Single letters and marks, in and within words: most texts have some that are known.
LETTERS = [*"abcdefghiklmnoprstuvy", "α", "κ", "测", "-", ",", ".", "(", ")"]
PIECES = [*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS)]

# Marks that combine, letters from right to left, joiners, halves of nothing: what a unit may be cut by.
HARD = [
    "e\u0301\u0327", "شركة", "עִבְרִית", "👩🏽\u200d🔬", "🇫🇷", "a\u200bb", "\u200f", "\r\n", "\t", "x\u0301\u0302y",
    "\u0301", "ﷺ", "Ⅷ", "ǆ", "ŉ", "\u2066a\u2069", "नि", "각", "p\u00ad53", "\U000e0041", "½", "µ\u0307",
]  # fmt: skip


@pytest.fixture(scope="module", params=[("first", False), ("words", True), ("pieces", False)])
def annotator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Annotator:
    labelling, nested = request.param
    task = Ner(TYPES, labelling=labelling, nested=nested, overlap=8)
    folder = tmp_path_factory.mktemp("offsets") / "checkpoint"
    names = dict(enumerate(task.labels))
    model = hf_model("BertForTokenClassification", "bert", num_labels=len(names), id2label=names)
    with torch.no_grad():
        # No tag is likelier than another over all pieces, so that mentions are many and of all lengths.
        model.classifier.bias -= model(torch.arange(len(SPECIAL), 44)[None]).logits.mean((0, 1))
    model.save_pretrained(folder)
    (folder / "task.json").write_text(json.dumps(dict(task.settings())))
    assert len(PIECES) <= VOCAB
    bert_tokenizer({piece: number for number, piece in enumerate(PIECES)}, cased=False).save(
        str(folder / "tokenizer.json")
    )
    export(folder, folder.with_name("onnx"))
    return Annotator.open(folder.with_name("onnx"), threads=1)


def violations(doc: Document) -> list[str]:
    """What is wrong with the mentions of a document, seen without the checks of its own."""
    whole = doc.text
    wrong = []
    for span in doc.spans:
        ((start, end),) = span.parts
        inside = [passage for passage in doc.passages if passage.offset <= start and end <= passage.end]
        if not (start < end and whole[start:end] == span.text and len(inside) == 1):
            wrong.append(f"{doc.id}: {span.text!r} is not at {start}-{end}")
        elif span.text != span.text.strip():
            wrong.append(f"{doc.id}: {span.text!r} has white space around it")
    for type_ in TYPES:
        places = sorted(span.parts[0] for span in doc.spans if span.type == type_)
        wrong += [f"{doc.id}: {one} and {other} overlap" for one, other in pairwise(places) if other[0] < one[1]]
    return wrong


hard_texts = st.lists(st.one_of(st.sampled_from(HARD), texts(), st.sampled_from(["gene", " "])), max_size=12).map(
    "".join
)


@given(passages=st.lists(hard_texts, min_size=1, max_size=3), gap=st.integers(0, 3))
def test_every_mention_is_where_it_says(annotator: Annotator, passages: list[str], gap: int) -> None:
    doc = Document("d", lay_out((("paragraph", text) for text in passages), gap=gap))
    assert violations(annotator(doc)) == []


@pytest.mark.parametrize("text", HARD)
def test_hard_texts_have_mentions_that_are_in_place(annotator: Annotator, text: str) -> None:
    doc = annotator(f"gene {text} gene {text}{text} abc{text}abc")
    assert doc.spans
    assert violations(doc) == []


def test_the_check_sees_a_mention_that_is_out_of_place(annotator: Annotator) -> None:
    doc = annotator("gene abc abc gene abc")
    moved = Document("d", lay_out([("paragraph", " gene abc abc gene abc")]))
    object.__setattr__(moved, "spans", doc.spans)
    assert violations(moved)


@pytest.fixture(scope="module")
def bert(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> SubwordTokenizer:
    """BERT's cased tokenizer."""
    file = tmp_path_factory.mktemp("bert") / "tokenizer.json"
    load_tokenizer(real_data / "vocabs" / "bert_base_cased.vocab.txt").save(str(file))
    return open_tokenizer(file)


@pytest.mark.parametrize("labelling", ["first", "pieces"])
def test_every_mention_in_real_abstracts_is_where_it_says(
    real_data: Path, bert: SubwordTokenizer, labelling: Labelling
) -> None:
    # Where mentions may begin and end is the tokenizer's and the task's to say; random numbers try it all.
    most = None if NIGHTLY else SAMPLE
    files = sorted((real_data / "corpus" / "abstracts").glob("*.jsonl.xz"))
    task, frame = Ner(TYPES, labelling=labelling), Frame((1,), (2,), (2,), 512)
    rng = np.random.default_rng(6)
    mentions = 0
    for doc in islice(lexome.read(files), most):
        rows = task.encode(doc, bert, frame, with_targets=False)
        numbers = [rng.normal(size=(len(row.ids), len(task.labels))) * 3 for row in rows]
        found = task.decode(doc, rows, numbers)
        assert violations(found) == []
        mentions += len(found.spans)
    assert mentions > SAMPLE
