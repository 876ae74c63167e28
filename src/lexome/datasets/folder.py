"""Any folder as a data set: files named train, dev and test in a form Lexome reads, or a Hugging Face dataset."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lexome.datasets import hf_rows
from lexome.datasets.dataset import DEV, TEST, TRAIN, Card, DataSet
from lexome.datasets.splits import Files
from lexome.document import Document
from lexome.errors import DataSetError, UsageError
from lexome.formats import read as read_files
from lexome.formats.streams import COMPRESSIONS, Source, uncompressed_name
from lexome.formats.tally import Tally

_WORDS = {
    **dict.fromkeys(("train", "training"), TRAIN),
    **dict.fromkeys(("dev", "devel", "development", "val", "valid", "validation"), DEV),
    **dict.fromkeys(("test", "testing"), TEST),
}
# What lies beside the rows of a dataset and holds none.
_ASIDE = frozenset({"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "readme", "license"})
_TABLES = (".arrow", ".parquet", ".jsonl", ".ndjson")
# The endings of files that are read together.
_TOGETHER = ({".txt", ".ann"}, {".in", ".eval"})
_APART = re.compile(r"[^a-z]+")


def folder(
    path: str | Path,
    *,
    task: Mapping[str, Any] | str,
    format: str | None = None,
    files: Mapping[str, str | Path] | None = None,
    **options: Any,
) -> DataSet:
    """The set in a folder, whose files or subfolders are called train, dev and test, or as users of other tools do.

    `task` are a task's settings, or its kind alone ("ner", "classes", ...): then the types or labels are those that the
    training documents have. Files of rows (Arrow, Parquet, JSON lines) are read as Hugging Face's are, others as
    `lexome.read` reads them, in the `format` and with the `options` that are named. `files` names each split's file or
    folder where their names do not say it.
    """
    root = Path(path)
    if not root.is_dir():
        raise DataSetError(f"{root}: there is no such folder. Name the one that holds the train, dev and test files.")
    found = _named(root, files) if files else _by_name(root)
    if not found:
        raise DataSetError(
            f"{root}: no file or subfolder of it is called train, dev (validation) or test. Rename them, or name each "
            'with files={"train": ...}.'
        )
    for name, paths in found.items():
        _require_one_form(name, paths)
    splits = {name: (_files(name, paths, root, format, options),) for name, paths in sorted(found.items())}
    card = Card(
        name=root.resolve().name,
        about=f"the folder {root}",
        task=task if not isinstance(task, str) else {"kind": task},
        measure="",
        splits=splits,
        folders=("",),
        licence="your own",
        get="",
    )
    given = DataSet(card, (root,))
    if not isinstance(task, str):
        return given
    return DataSet(_with_settings(card, task, given), (root,))


def _by_name(root: Path) -> dict[str, list[Path]]:
    """The files of each split, by the words in their paths; one that says two splits, such as train_dev, is neither."""
    found: dict[str, list[Path]] = {}
    saved = _saved(root)
    for path in saved if saved is not None else sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        if not path.is_file() or any(part.startswith(".") for part in parts) or _is_aside(path):
            continue
        said = {_WORDS[word] for part in parts for word in _APART.split(part.lower()) if word in _WORDS}
        if not said and saved is not None:
            said = {_split_of_state(path.parent)}
        if len(said) == 1:
            found.setdefault(said.pop(), []).append(path)
    return found


def _saved(root: Path) -> list[Path] | None:
    """The files that a saved dataset's state.json lists; caches lie beside them. None where there is none."""
    states = sorted(root.rglob("state.json"))
    if not states:
        return None
    return [state.parent / item["filename"] for state in states for item in _json(state).get("_data_files") or ()]


def _split_of_state(folder: Path) -> str:
    said = _json(folder / "state.json").get("_split") or TRAIN
    return _WORDS.get(str(said).lower(), str(said))


def _json(path: Path) -> dict[str, Any]:
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataSetError(f"{path}: {error}; expected the JSON of a saved dataset. Save it again.") from None
    return said if isinstance(said, dict) else {}


def _is_aside(path: Path) -> bool:
    return path.name.lower() in _ASIDE or path.stem.lower() in _ASIDE or path.suffix.lower() in (".md", ".lock", ".py")


def _named(root: Path, files: Mapping[str, str | Path]) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for split, name in files.items():
        path = root / name
        if not path.exists():
            raise DataSetError(f"{path}: there is no such file or folder, named for {split}. Check the name.")
        found[_WORDS.get(split, split)] = (
            sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        )
    return found


def _require_one_form(split: str, paths: list[Path]) -> None:
    """DataSetError where a split is there in two forms or twice, which would be read as one of double size."""
    endings = {Path(_unpacked(path.name).lower()).suffix for path in paths}
    if len(endings) > 1 and endings not in _TOGETHER:
        raise DataSetError(
            f"{paths[0].parent}: {split} is there as {', '.join(sorted(endings))}; expected one form. Move the others "
            'away, or name the files with files={"train": ...}.'
        )
    folders = sorted({str(path.parent) for path in paths})
    if endings <= set(_TABLES) and len(folders) > 1:
        raise DataSetError(
            f"{split} is in {', '.join(folders[:3])}; expected the rows of one dataset. Name one of these folders."
        )


def _files(split: str, paths: list[Path], root: Path, format: str | None, options: Mapping[str, object]) -> Files:
    patterns = tuple(_unpacked(path.relative_to(root).as_posix()) for path in paths)
    if any("!" in pattern or "*" in pattern for pattern in patterns):
        raise DataSetError(f"{root}: a file of {split} has ! or * in its name; expected none. Rename it.")
    tables = format is None and all(_unpacked(path.name).lower().endswith(_TABLES) for path in paths)
    reader = partial(_rows, paths, split) if tables else partial(_any_format, paths, format)
    return Files(patterns, reader, options)


def _unpacked(name: str) -> str:
    return uncompressed_name(name) if name.lower().endswith(COMPRESSIONS) else name


def _rows(paths: list[Path], split: str, sources: Iterable[Source], *, tally: Tally) -> Iterator[Document]:
    return hf_rows.read(paths, tally=tally, split=split)


def _any_format(
    paths: list[Path], format: str | None, sources: Iterable[Source], *, tally: Tally, **options: Any
) -> Iterator[Document]:
    # The count is made once, by who reads the set.
    inner = Tally(tally.rejects_path)
    yield from read_files(paths, format, tally=inner, **options)
    for note, times in inner.notes.items():
        tally.note(note, times)


def _with_settings(card: Card, kind: str, given: DataSet) -> Card:
    """The card with the types or labels that the training documents have."""
    if kind in ("similarity", "questions"):
        return card
    docs = given.split(TRAIN) if TRAIN in card.splits else given.split(next(iter(card.splits)))
    types = sorted({span.type for doc in docs for span in doc.spans})
    labels = sorted({label for doc in docs for label in doc.labels})
    relations = sorted({relation.type for doc in docs for relation in doc.relations})
    wanted = {"ner": ("types", types), "classes": ("labels", labels), "inference": ("labels", labels)}
    if kind == "relation":
        return replace(card, task={"kind": kind, "labels": labels or relations})
    if kind not in wanted:
        known = ", ".join((*wanted, "relation", "similarity", "questions"))
        raise UsageError(f"there is no task {kind!r}; there are {known}.")
    key, names = wanted[kind]
    if not names:
        raise DataSetError(f"{given.folder}: the training documents have no {key}; the task {kind!r} needs some.")
    settings: dict[str, Any] = {"kind": kind, key: names}
    if kind == "classes":
        settings["several"] = any(len(doc.labels) != 1 for doc in docs)
    return replace(card, task=settings)
