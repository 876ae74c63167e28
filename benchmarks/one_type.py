"""Extracts one type of a multi-type model as a flat token classifier that any library can run.

    python benchmarks/one_type.py CHECKPOINT TYPE FOLDER

A nested model has a tag set per type. The encoder is kept as it is, and only one type's rows of the head are kept. This
is the input of benchmarks/annotate_speed.py: the same weights for every system.
"""

import json
import sys
from pathlib import Path

import torch

from lexome.models.checkpoint import Card, load, save
from lexome.models.heads import EncoderWithHead, TokenHead
from lexome.tasks import task_of
from lexome.tasks.ner import Ner
from lexome.tasks.task import TASK


def main() -> None:
    checkpoint, type_, folder = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    found = load(checkpoint, kind="token")
    task = task_of(json.loads((checkpoint / TASK).read_bytes()))
    assert isinstance(task, Ner)
    assert task.nested
    assert isinstance(found.model, EncoderWithHead)
    flat = Ner([type_], labelling=task.labelling, context=task.context, overlap=task.overlap)
    first = task.types.index(type_) * len(flat.labels)
    head = TokenHead(found.config, len(flat.labels))
    old, new = found.model.head.get_submodule("out"), head.get_submodule("out")
    with torch.no_grad():
        for name, weight in new.named_parameters():
            weight.copy_(old.get_parameter(name)[first : first + len(flat.labels)])
    card = Card(
        title=f"{type_} of {checkpoint.name}", summary="One type of a model of several.", license="apache-2.0", data=""
    )
    model = EncoderWithHead(found.model.encoder, head).eval()
    save(folder, model, architecture=found.architecture, tokenizer=checkpoint, card=card, labels=flat.labels)
    (folder / TASK).write_text(json.dumps(flat.settings()))


if __name__ == "__main__":
    main()
