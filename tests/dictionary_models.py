"""Exported models that look each token up in a table: exact, quick, and at home in real sentences."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from lexome.corpus.vocab.tokenizers import bert_tokenizer
from lexome.infer.predictor import MODEL, TOKENIZER, ModelSettings, write_settings
from lexome.tasks import DocumentRelations, Ner, Task

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
OPSET = 17
TYPES = ("Gene", "Disease", "Chemical")
# Each word's tag and the logit of it; all others have 0, so 4 is a probability of 0.90, and 1 one of 0.31.
WORDS = {
    "brca1": ("B-Gene", 6.0),
    "tp53": ("B-Gene", 4.0),
    "breast": ("B-Disease", 5.0),
    "cancer": ("I-Disease", 5.0),
    "melanoma": ("B-Disease", 3.0),
    "olaparib": ("B-Chemical", 6.0),
    "aspirin": ("B-Chemical", 2.5),
    "kinase": ("B-Gene", -0.5),
}


def dictionary_model(
    folder: Path,
    words: Mapping[str, tuple[str, float]] = WORDS,
    *,
    types: tuple[str, ...] = TYPES,
    extra: tuple[str, ...] = (),
    nested: bool = False,
) -> Path:
    """A folder as `lexome export` makes it, whose graph is one look-up in a table of logits by token."""
    folder.mkdir(parents=True)
    task = Ner(types, overlap=8, extra=extra, nested=nested)
    pieces = [*SPECIAL, *words, *".,;:()-", *(f"w{number}" for number in range(50))]
    bert_tokenizer({piece: number for number, piece in enumerate(pieces)}, cased=False).save(str(folder / TOKENIZER))
    table = np.zeros((len(pieces), len(task.labels)), np.float32)
    tags = task.groups[0]
    table[:, ::tags] = 6.0
    for word, (tag, logit) in words.items():
        place, output = pieces.index(word), task.labels.index(tag)
        table[place, output - output % tags :][:tags] = 0.0
        table[place, output] = logit
    onnx.save(_graph(table), folder / MODEL)
    put_settings(folder, task, max_tokens=512)
    return folder


INHIBITS = {
    "name": "mentions",
    "labels": ["INHIBITOR", "ACTIVATOR"],
    "pairs": [["Chemical", "Gene"]],
    "level": "mention",
    "scope": "sentence",
}
RELATES = {
    "name": "concepts",
    "labels": ["Association", "Bind"],
    "pairs": [["Gene", "Gene"], ["Gene", "Disease"]],
    "novelty": True,
}
# Words, and what each says as the first side of a relation; the other side adds nothing.
SAYS = {"olaparib": {"INHIBITOR": 3.0, "ACTIVATOR": 1.0}, "brca1": {"Association": 2.0}, "aspirin": {"ACTIVATOR": -1.0}}


def relation_model(
    folder: Path,
    says: Mapping[str, Mapping[str, float]] = SAYS,
    *,
    schemas: Sequence[Mapping[str, Any]] = (INHIBITS, RELATES),
) -> Path:
    """A model of relations in a document: the logit of a relation is what the first mention's first word says of it."""
    folder.mkdir(parents=True)
    task = DocumentRelations(schemas, width=1, marking="none", overlap=8)
    pieces = [*SPECIAL, *WORDS, *".,;:()-", *(f"w{number}" for number in range(50))]
    bert_tokenizer({piece: number for number, piece in enumerate(pieces)}, cased=False).save(str(folder / TOKENIZER))
    table = np.zeros((len(pieces), len(task.labels) // 4, 4), np.float32)
    table[:, :, 2] = -3.0
    for word, logits in says.items():
        for number, (_, label) in enumerate(task.relations):
            table[pieces.index(word), number, 2] = logits.get(label, -3.0)
    onnx.save(_graph(table.reshape(len(pieces), -1)), folder / MODEL)
    put_settings(folder, task, max_tokens=512)
    return folder


def put_settings(folder: Path, task: Task, *, max_tokens: int) -> None:
    """Write model.json for a graph whose outputs are a task's labels."""
    settings = ModelSettings(
        kind=task.head,
        max_tokens=max_tokens,
        width=len(task.labels),
        before=(2,),
        after=(3,),
        between=(3,),
        pad=0,
        mask=4,
        segments=False,
        labels=task.labels,
        tokenizer_sha256=hashlib.sha256((folder / TOKENIZER).read_bytes()).hexdigest(),
        opset=OPSET,
        precision="fp32",
        difference=0.0,
        source={"name": folder.name},
        task=dict(task.settings()),
    )
    write_settings(folder, settings)


def _graph(table: np.ndarray) -> onnx.ModelProto:
    """logits = table[ids]; the mask is asked for, as every graph does, and plays no part."""
    rows = ["rows", "tokens"]
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "ids"], ["logits"])],
        "dictionary",
        [helper.make_tensor_value_info(name, TensorProto.INT64, rows) for name in ("ids", "mask")],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [*rows, table.shape[1]])],
        [numpy_helper.from_array(table, "table")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
