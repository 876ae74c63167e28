"""Biomedical language models from raw literature to answers."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lexome.document import Answer, Argument, Attribute, Document, Passage, Question, Relation, Span
from lexome.errors import LexomeError, needs
from lexome.formats import Tally, read, write
from lexome.metadata import Metadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from lexome.formats.mention_table import PreferredName, Table
    from lexome.infer.annotator import Annotator
    from lexome.training.finetune.stage import Finetuned
    from lexome.training.pretrain import Pretrained

# From 1.29 on, onnxruntime sends telemetry about the machine and the model by default, unless this is set before it is
# first imported. Texts may be patients': nothing leaves the machine that the user did not send.
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
    "distill",
    "finetune",
    "load",
    "pretrain",
    "read",
    "to_dataframe",
    "write",
]


def load(
    *folders: str | Path,
    relations: bool = False,
    threads: int | None = None,
    link: bool = True,
    terms: "str | Path | Sequence[str | Path]" = (),
    find: bool = False,
    device: str | None = None,
) -> "Annotator":
    """An annotator with the models in these folders, by default with the bundled model.

    A folder is one that `lexome export` wrote, a Hugging Face token classifier with its ONNX file, or the name of a
    model, such as "default". Several models are applied to each document in turn: mentions first, then relations,
    classes and answers. With `relations`, the model "relations" of `lexome models` is one of them.
    `threads` is the number of threads, by default that of the usable cores. With `device`, "cuda" or "cpu", NER models
    run with torch there; `annotate` then reads many documents at a time.

    Mentions are linked to concepts unless `link` is false. `terms` are your own dictionaries (tables, OBO files, or
    indexes of `lexome build-terms`) that take precedence over the bundled one; with `find`, their names are also found
    in text, as mentions of their types.
    """
    from lexome.infer.annotator import load as open_models
    from lexome.infer.concepts import concept_options
    from lexome.infer.named_models import DEFAULT, resolve_model, with_relations

    opened = tuple(map(resolve_model, folders or (DEFAULT,)))
    if relations:
        opened = with_relations(opened)
    concepts = concept_options(link=link, terms=terms, find=find)
    if device is not None:
        with needs("train", purpose=f"device={device!r}"):
            from lexome.export.device import load_on_device
        return load_on_device(opened, device, concepts=concepts)
    return open_models(*opened, threads=threads, concepts=concepts)


def to_dataframe(
    docs: "Document | Iterable[Document]",
    *,
    table: "Table" = "mentions",
    library: str | None = None,
    preferred_name: "PreferredName | None" = None,
) -> "Any":
    """A DataFrame with one row per mention, in pandas, or in polars if only that is installed.

    The columns are those of CSV: document, pmid, passage, start, end, text, type, score, concept and name; with
    `table="relations"`, one row per relation, and with `table="labels"`, one row per label of a document. Documents
    without mentions have no row; missing values are null. Concept names come from the bundled dictionaries; for other
    dictionaries, `preferred_name` is a function from an id to its name, such as `annotator.concepts.preferred_name`.
    """
    from lexome.concepts.index import preferred_name as default_name
    from lexome.formats.mention_table import to_dataframe as make

    return make(docs, table=table, library=library, preferred_name=preferred_name or default_name)


def pretrain(
    recipe: "str | Path | Mapping[str, Any]",
    *,
    overrides: "Mapping[str, Any] | None" = None,
    progress_shown: bool = True,
) -> "Pretrained":
    """Pre-train an encoder by a recipe: the path of a TOML file, or its keys as a dictionary.

    `overrides` are keys to change, as `{"optimizer.lr": 1e-4, "steps": 500}`. An interrupted run resumes bit-exactly,
    and a finished one is not repeated. Needs `pip install 'lexome[train]'`.
    """
    from lexome.recipe import of
    from lexome.recipe.pretrain import PretrainRecipe

    checked = of(recipe, PretrainRecipe, overrides=overrides)
    with needs("train", purpose="pre-training"):
        from lexome.training.pretrain import pretrain as run
    return run(checked, progress_shown=progress_shown)


def distill(
    recipe: "str | Path | Mapping[str, Any]",
    *,
    overrides: "Mapping[str, Any] | None" = None,
    progress_shown: bool = True,
) -> "Pretrained":
    """Distill an encoder into a smaller one by a recipe: the path of a TOML file, or its keys as a dictionary.

    `overrides` are keys to change, as in `pretrain`.
    """
    from lexome.recipe import of
    from lexome.recipe.pretrain import DistillRecipe

    checked = of(recipe, DistillRecipe, overrides=overrides)
    with needs("train", purpose="distillation"):
        from lexome.training.pretrain import distill as run
    return run(checked, progress_shown=progress_shown)


def finetune(
    recipe: "str | Path | Mapping[str, Any]",
    *,
    splits: "Mapping[str, Any] | None" = None,
    overrides: "Mapping[str, Any] | None" = None,
    progress_shown: bool = True,
) -> "Finetuned":
    """Fine-tune a checkpoint by a recipe: the path of a TOML file, or its keys as a dictionary.

    `splits` are documents in place of the recipe's datasets, {"train": ..., "dev": ...}: lists of Documents, of
    dictionaries with a text and a label, or DataFrames with such columns. They are written to the folder `splits` in
    `out`. `overrides` are keys to change, as `{"optimizer.lr": 3e-5, "epochs": 5}`. The best run's model is
    `finetune(...).model`, a checkpoint folder to export and load.
    """
    from lexome.recipe import of
    from lexome.recipe.finetune import SPLITS, FinetuneRecipe

    if splits is not None:
        # A placeholder: the folder is inside `out`, which is known only after all overrides are applied.
        overrides = {**(overrides or {}), "data.folder": SPLITS, "data.sets": None}
    checked = of(recipe, FinetuneRecipe, overrides=overrides)
    if splits is not None:
        from lexome.datasets.in_memory import write_splits

        folder = write_splits(checked.out / SPLITS, splits)
        checked = of(checked, FinetuneRecipe, overrides={"data.folder": folder})
    with needs("train", purpose="fine-tuning"):
        from lexome.training.finetune.stage import finetune as run
    return run(checked, progress_shown=progress_shown)
