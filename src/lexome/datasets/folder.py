"""Any folder as a dataset: files named train, dev and test in any format of Lexome, or a Hugging Face dataset."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lexome.datasets import hf_rows
from lexome.datasets.dataset import DEV, TEST, TRAIN, DataSet, DatasetCard
from lexome.datasets.splits import Files
from lexome.document import Document
from lexome.errors import DataSetError
from lexome.formats import read as read_files
from lexome.formats.streams import COMPRESSIONS, Source, uncompressed_name
from lexome.formats.tally import Tally

_SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), TRAIN),
    **dict.fromkeys(("dev", "devel", "development", "val", "valid", "validation"), DEV),
    **dict.fromkeys(("test", "testing"), TEST),
}
# Files beside a dataset's rows that hold none.
_IGNORED = frozenset(
    {"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "readme", "license"}
)
_TABLES = (".arrow", ".parquet", ".jsonl", ".ndjson")
# Extensions of files that are read together.
_COMPANIONS = ({".txt", ".ann"}, {".in", ".eval"})
_NO_LETTERS = re.compile(r"[^a-z]+")


def folder(
    path: str | Path,
    *,
    task: Mapping[str, Any] | str,
    format: str | None = None,
    files: Mapping[str, str | Path] | None = None,
    **options: Any,
) -> DataSet:
    """The dataset in a folder, whose files or subfolders are named train, dev (or validation, ...) and test.

    `task` is a task's settings, or its kind alone ("ner", "classes", ...): types or labels are then those of the
    training documents. Tables (Arrow, Parquet, JSON lines) are read as Hugging Face datasets, other files by
    `lexome.read` with this `format` and these `options`. `files` names each split's file or folder if their names do
    not.
    """
    root = Path(path)
    if not root.is_dir():
        raise DataSetError(
            f"{root}: there is no such folder. Name the one that holds the train, dev and test files.",
            code="missing-folder",
            value=str(root),
        )
    paths = _named_paths(root, files) if files else _paths_by_name(root)
    if not paths:
        raise DataSetError(
            f"{root}: no file or subfolder is named train, dev (validation) or test. Rename them, or name each with "
            'files={"train": ...}.',
            code="no-splits",
            value=str(root),
        )
    for name, split_paths in paths.items():
        _require_one_form(name, split_paths)
    card = DatasetCard(
        name=root.resolve().name,
        description=f"the folder {root}",
        task={"kind": task} if isinstance(task, str) else task,
        metric="",
        splits={name: (_files(name, paths[name], root, format, options),) for name in sorted(paths)},
        folders=("",),
        license="your own",
        source="",
    )
    dataset = DataSet(card, (root,))
    return DataSet(replace(card, task=_infer_task(task, dataset)), (root,)) if isinstance(task, str) else dataset


def _infer_task(kind: str, dataset: DataSet) -> dict[str, Any]:
    """Settings of a task with the types or labels of the training documents."""
    from lexome.tasks import KINDS
    from lexome.tasks.task import require_choice

    require_choice(kind, tuple(KINDS), "task")
    splits = dataset.card.splits
    name = TRAIN if TRAIN in splits else next(iter(splits))
    # A generator: tasks without types or labels need not read the files.
    settings = KINDS[kind].infer_settings(doc for _ in (0,) for doc in dataset.split(name))
    for key in ("types", "labels"):
        if key in settings and not settings[key]:
            raise DataSetError(
                f"{dataset.folder}: the training documents have no {key}; the task {kind!r} needs some.",
                code="missing-annotations",
                value=key,
            )
    return settings


def _paths_by_name(root: Path) -> dict[str, list[Path]]:
    """The files of each split, by the words in their paths; files with words of two, as train_dev, are left out."""
    by_split: dict[str, list[Path]] = {}
    saved = _saved_files(root)
    for path in saved if saved is not None else sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        if not path.is_file() or any(part.startswith(".") for part in parts) or _is_ignored(path):
            continue
        splits = {
            _SPLIT_NAMES[word] for part in parts for word in _NO_LETTERS.split(part.lower()) if word in _SPLIT_NAMES
        }
        if not splits and saved is not None:
            name = str(_read_json(path.parent / "state.json").get("_split") or TRAIN)
            splits = {_SPLIT_NAMES.get(name.lower(), name)}
        if len(splits) == 1:
            by_split.setdefault(splits.pop(), []).append(path)
    return by_split


def _saved_files(root: Path) -> list[Path] | None:
    """The files that a saved dataset's state.json lists, without the caches beside them; None if there is none."""
    states = sorted(root.rglob("state.json"))
    if not states:
        return None
    return [state.parent / item["filename"] for state in states for item in _read_json(state).get("_data_files") or ()]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataSetError(
            f"{path}: {error}; expected the JSON of a saved dataset. Save it again.",
            code="invalid-json",
            value=str(path),
        ) from None
    return content if isinstance(content, dict) else {}


def _is_ignored(path: Path) -> bool:
    names = {path.name.lower(), path.stem.lower()}
    return bool(names & _IGNORED) or path.suffix.lower() in (".md", ".lock", ".py")


def _named_paths(root: Path, files: Mapping[str, str | Path]) -> dict[str, list[Path]]:
    by_split: dict[str, list[Path]] = {}
    for split, name in files.items():
        path = root / name
        if not path.exists():
            raise DataSetError(
                f"{path}: there is no such file or folder for the split {split}. Check the name.",
                code="missing-file",
                value=str(path),
            )
        inside = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        by_split[_SPLIT_NAMES.get(split, split)] = inside
    return by_split


def _require_one_form(split: str, paths: list[Path]) -> None:
    """DataSetError if a split exists in two formats or twice, and would be read as one of double size."""
    extensions = {Path(_without_compression(path.name).lower()).suffix for path in paths}
    if len(extensions) > 1 and extensions not in _COMPANIONS:
        raise DataSetError(
            f"{paths[0].parent}: {split} has the extensions {', '.join(sorted(extensions))}; expected one. Move the "
            'others away, or name the files with files={"train": ...}.',
            code="several-formats",
            value=split,
        )
    folders = sorted({str(path.parent) for path in paths})
    if extensions <= set(_TABLES) and len(folders) > 1:
        raise DataSetError(
            f"{split} is in {', '.join(folders[:3])}; expected the rows of one dataset. Name one of these folders.",
            code="several-folders",
            value=split,
        )


def _files(split: str, paths: list[Path], root: Path, format: str | None, options: Mapping[str, object]) -> Files:
    patterns = tuple(_without_compression(path.relative_to(root).as_posix()) for path in paths)
    for pattern in patterns:
        if "!" in pattern or "*" in pattern:
            raise DataSetError(
                f"{root}: {pattern} has ! or * in its name; expected neither. Rename it.",
                code="invalid-name",
                value=pattern,
            )
    tables = format is None and all(_without_compression(path.name).lower().endswith(_TABLES) for path in paths)
    return Files(patterns, partial(_rows, paths, split) if tables else partial(_any_format, paths, format), options)


def _without_compression(name: str) -> str:
    return uncompressed_name(name) if name.lower().endswith(COMPRESSIONS) else name


def _rows(paths: list[Path], split: str, sources: Iterable[Source], *, tally: Tally) -> Iterator[Document]:
    return hf_rows.read(paths, tally=tally, split=split)


def _any_format(
    paths: list[Path], format: str | None, sources: Iterable[Source], *, tally: Tally, **options: Any
) -> Iterator[Document]:
    # Whoever reads the dataset counts the documents, so only notes are passed on.
    inner = Tally(tally.rejects_path)
    yield from read_files(paths, format, tally=inner, **options)
    for note, times in inner.notes.items():
        tally.note(note, times)
