"""A token classifier of transformers, exported to ONNX, says what it says in transformers."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from errors import raises
from onnx import TensorProto, helper
from tiny_models import hf_model, tokenizer_folder

import lexome
from lexome.document import Document, Passage
from lexome.errors import CheckpointError
from lexome.export.export import export
from lexome.infer.annotator import Model
from lexome.infer.predictor import special_tokens
from lexome.tasks import Ner

# The order of no task of ours, as it comes from a set of labels.
TAGS = ("I-Gene", "O", "B-Disease", "B-Gene", "I-Disease")
BERT = {"type": "BertProcessing", "sep": ["[SEP]", 7], "cls": ["[CLS]", 5]}
TEXT = "w1 w2 w3 w4 w5 w6 w7 w8 w9 w10 w11 w12"
THEIRS = {"ids": "input_ids", "mask": "attention_mask"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Path:
    """A folder as the Hub has it: configuration, tokenizer, and onnx/model.onnx with their names of inputs."""
    folder = tmp_path_factory.mktemp("hub") / "tiny-ner"
    model = hf_model("BertForTokenClassification", "bert", num_labels=len(TAGS), id2label=dict(enumerate(TAGS)))
    model.save_pretrained(folder)
    tokenizer_folder(folder)
    export(folder, folder.with_name("ours"))
    graph = onnx.load(folder.with_name("ours") / "model.onnx")
    for given in graph.graph.input:
        given.name = THEIRS.get(given.name, given.name)
    for node in graph.graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = "attention_mask" if name == "mask" else name
    # As BERT has it: segments that are asked for. Here they change nothing.
    graph.graph.input.append(helper.make_tensor_value_info("token_type_ids", TensorProto.INT64, ["B", "T"]))
    graph.graph.initializer.append(helper.make_tensor("nothing", TensorProto.INT64, [], [0]))
    graph.graph.node.insert(0, helper.make_node("Mul", ["token_type_ids", "nothing"], ["no_segments"]))
    graph.graph.node.insert(1, helper.make_node("Add", ["input_ids", "no_segments"], ["ids"]))
    (folder / "onnx").mkdir()
    onnx.save(graph, folder / "onnx" / "model.onnx")
    return folder


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(folder, tmp_path / "copy")


def relabeled(folder: Path, tags: tuple[str, ...], **changes: Any) -> Path:
    path = folder / "config.json"
    held = {**json.loads(path.read_text()), "id2label": {str(place): tag for place, tag in enumerate(tags)}, **changes}
    path.write_text(json.dumps(held))
    return folder


def test_mentions_are_those_of_the_best_tags_in_transformers(folder: Path) -> None:
    model = hf_model("BertForTokenClassification", "bert", num_labels=len(TAGS), id2label=dict(enumerate(TAGS)))
    with torch.no_grad():
        shares = model(torch.tensor([[2, *range(6, 18), 3]])).logits[0].softmax(-1)
    annotator = lexome.load(folder, threads=1)
    own = annotator.models[0]
    (row,) = rows = own.encode(annotator.document(TEXT))
    assert row.ids.tolist() == [2, *range(6, 18), 3]
    inside = own.task.inside_probabilities(annotator.document(TEXT), rows, own.run(rows))  # type: ignore[attr-defined]
    assert annotator.types == ("Gene", "Disease")
    for number, columns in enumerate(((0, 3), (2, 4))):
        assert inside.probabilities_UT[:, number] == pytest.approx(shares[1:-1, list(columns)].sum(1).numpy(), abs=1e-4)
    doc = annotator(TEXT)
    assert doc.spans
    assert all(doc.text[span.start : span.end] == span.text for span in doc.spans)


def test_it_says_what_it_is(folder: Path) -> None:
    about = lexome.load(folder, threads=1).about()
    assert about["types"] == ["Gene", "Disease"]
    assert about["models"][0]["name"] == "tiny-ner"
    assert about["models"][0]["max_tokens"] == 40
    json.dumps(about)


@pytest.mark.parametrize(
    ("tags", "scheme", "decoding", "types"),
    [
        (("O", "B-A", "I-A", "E-A", "S-A"), "iobes", "viterbi", ("A",)),
        (("B-A", "I-A", "L-A", "U-A", "O"), "iobes", "viterbi", ("A",)),
        (("O", "I-A", "I-B", "B-A", "I-C"), "iob2", "repair", ("A", "B", "C")),
    ],
)
def test_other_schemes_of_tags_are_read(
    copied: Path, tags: tuple[str, ...], scheme: str, decoding: str, types: tuple[str, ...]
) -> None:
    model = Model.open(relabeled(copied, tags), threads=1)
    assert isinstance(model.task, Ner)
    assert (model.task.scheme, model.task.decoding, model.task.types) == (scheme, decoding, types)
    rows = model.encode(Document("d", (Passage(0, TEXT),)))
    (numbers,), (theirs,) = model.run(rows), model.predictor.logits([row.ids for row in rows])
    for place, tag in enumerate(tags):
        ours = tag.replace("L-", "E-").replace("U-", "S-")
        assert (numbers[:, model.task.labels.index(ours)] == theirs[:, place]).all()
    unknown = [
        place for place, label in enumerate(model.task.labels) if decoding == "repair" and label in ("B-B", "B-C")
    ]
    assert (numbers[:, unknown] < theirs.min()).all()
    model.decode(Document("d", (Passage(0, TEXT),)), rows, [numbers])


@pytest.mark.parametrize(
    ("tags", "value"),
    [
        (("LABEL_0", "LABEL_1", "LABEL_2", "LABEL_3", "LABEL_4"), "LABEL_0"),
        (("O", "B-A", "I-A", "X-A", "[CLS]"), "X-A"),
    ],
)
def test_labels_that_are_no_tags_are_refused(copied: Path, tags: tuple[str, ...], value: object) -> None:
    with raises(CheckpointError, code="invalid-labels", value=value):
        lexome.load(relabeled(copied, tags))


def test_a_graph_with_other_labels_than_it_is_said_to_have_is_refused(copied: Path) -> None:
    with raises(CheckpointError, code="shape-mismatch", mentions="3 labels"):
        lexome.load(relabeled(copied, ("O", "B-A", "I-A")))


def test_a_graph_without_logits_is_refused(copied: Path) -> None:
    path = copied / "onnx" / "model.onnx"
    graph = onnx.load(path)
    (output,) = (output for output in graph.graph.output if output.name == "logits")
    graph.graph.node.append(helper.make_node("Identity", ["logits"], ["scores"]))
    output.name = "scores"
    onnx.save(graph, path)
    with raises(CheckpointError, code="missing-output", value="logits", mentions="scores"):
        lexome.load(copied)


def test_a_missing_tokenizer_is_said(copied: Path) -> None:
    (copied / "tokenizer.json").unlink()
    with raises(CheckpointError, code="missing-file", value="tokenizer.json"):
        lexome.load(copied)


def test_a_graph_that_asks_for_more_is_refused(copied: Path) -> None:
    path = copied / "onnx" / "model.onnx"
    graph = onnx.load(path)
    more = graph.graph.input.add()
    more.CopyFrom(graph.graph.input[0])
    more.name = "pixel_values"
    onnx.save(graph, path)
    with raises(CheckpointError, code="unknown-input", value="pixel_values"):
        lexome.load(copied)


def test_positions_that_padding_has_are_not_for_text(copied: Path) -> None:
    model = Model.open(relabeled(copied, TAGS, model_type="roberta", pad_token_id=1), threads=1)
    assert model.settings.max_tokens == 38


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ({"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0]}, ((0,), (2,))),
        ({"type": "Sequence", "processors": [{"type": "ByteLevel"}, BERT]}, ((5,), (7,))),
        (None, ((), ())),
    ],
)
def test_what_stands_around_a_text_is_read_from_the_tokenizer(step: Mapping[str, Any] | None, expected: object) -> None:
    assert special_tokens({"post_processor": step}) == expected
