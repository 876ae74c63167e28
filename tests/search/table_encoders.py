"""Encoders that look each token up in a table of vectors."""

from pathlib import Path

import numpy as np
import onnx
from dictionary_models import OPSET, SPECIAL, put_settings
from onnx import TensorProto, helper, numpy_helper

from lexome.corpus.vocab.tokenizers import bert_tokenizer
from lexome.infer.predictor import MODEL, TOKENIZER, read_settings, write_settings
from lexome.tasks import Classes

WIDTH = 16


def table_encoder(folder: Path, groups: dict[str, str], *, seed: int = 0) -> Path:
    """A folder as `lexome export --kind encoder` makes it: words of one group, such as synonyms, have one vector."""
    folder.mkdir(parents=True)
    pieces = [*SPECIAL, *groups, "."]
    bert_tokenizer({piece: number for number, piece in enumerate(pieces)}, cased=False).save(str(folder / TOKENIZER))
    rng = np.random.default_rng(seed)
    by_group = {group: rng.normal(size=WIDTH) for group in sorted(set(groups.values()))}
    table = np.array([by_group.get(groups.get(piece, ""), np.zeros(WIDTH)) for piece in pieces], np.float32)
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "ids"], ["hidden"])],
        "table",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["rows", "tokens"]) for name in ("ids", "mask")],
        [helper.make_tensor_value_info("hidden", TensorProto.FLOAT, ["rows", "tokens", WIDTH])],
        [numpy_helper.from_array(table, "table")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9), folder / MODEL)
    put_settings(folder, Classes(["a"]), max_tokens=64)
    settings = {name: getattr(read_settings(folder), name) for name in read_settings(folder).__slots__}
    write_settings(folder, type(read_settings(folder))(**{**settings, "kind": "encoder", "width": WIDTH, "task": None}))
    return folder
