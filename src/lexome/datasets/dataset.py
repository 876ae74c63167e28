"""A dataset: its card, its files, its splits and folds as Documents, and its task."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lexome.datasets.audit import AuditReport, audit_splits, count_contents, find_errors, find_overlaps, identities
from lexome.datasets.splits import (
    VARIABLE,
    Files,
    LocatedFile,
    Refinement,
    Split,
    Splits,
    locate,
    read_documents,
    split_off,
)
from lexome.document import Document
from lexome.errors import DataSetError, UsageError
from lexome.formats.tally import Tally

if TYPE_CHECKING:
    from lexome.tasks.task import Task

TRAIN, DEV, TEST = "train", "dev", "test"

OverlapPolicy = Literal["keep", "drop", "error"]


@dataclass(frozen=True)
class DatasetCard:
    """What is known of a dataset before its files are located.

    task          settings for lexome.tasks.task_of
    metric        what the papers report
    splits        the files of each split: the first of the alternatives that exists is used
    folders       possible names of its folder, within the folder of all datasets
    source        where to get it, and how to apply if that is needed
    expected      known counts of each split, to detect a damaged copy
    positive      the labels that are scored; every split needs at least one
    papers        the studies that use it
    notes         what one has to know before comparing scores
    folds         the names of its folds, if it is cross-validated; patterns of splits then contain {fold}
    refine        makes splits of all files of a fold, or of the dataset, as its owners define them
    dev_fraction  the fraction of train that is split off as dev, if the dataset has none and its users do so
    restricted    whether each user has to apply for it
    optional      splits that the dataset can do without
    """

    name: str
    description: str
    task: Mapping[str, Any]
    metric: str
    splits: Mapping[str, tuple[Files, ...]]
    folders: tuple[str, ...]
    license: str
    source: str
    citation: str = ""
    expected: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    positive: tuple[str, ...] = ()
    papers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    folds: tuple[str, ...] = ()
    refine: Refinement | None = None
    dev_fraction: float = 0.0
    restricted: bool = False
    optional: tuple[str, ...] = ()


@dataclass(frozen=True)
class DataSet:
    """A dataset whose files may be in some folders; `fold` is the name of the fold that this is, if it is one."""

    card: DatasetCard
    roots: tuple[Path, ...]
    fold: str | None = None

    @property
    def name(self) -> str:
        """The dataset's name, with that of the fold."""
        return self.card.name if self.fold is None else f"{self.card.name} fold {self.fold}"

    @property
    def settings(self) -> Mapping[str, Any]:
        """The task's settings, for lexome.tasks.task_of."""
        return self.card.task

    @property
    def task(self) -> "Task":
        """The dataset's task."""
        from lexome.tasks import task_of

        return task_of(self.card.task)

    @cached_property
    def folder(self) -> Path | None:
        """The dataset's folder: of all candidates, the one with most of its splits."""
        names = {Path(name).name for name in self.card.folders}
        candidates = [root / name for root in self.roots for name in self.card.folders]
        candidates += [root for root in self.roots if root.resolve().name in names]
        best = max(candidates, key=lambda folder: len(self._locate(folder)), default=None)
        return best if best is not None and self._locate(best) else None

    @cached_property
    def files(self) -> Mapping[str, tuple[Files, list[LocatedFile]]]:
        """How each split that exists is read, and its files."""
        return self._locate(self.folder) if self.folder is not None else {}

    def _locate(self, folder: Path) -> dict[str, tuple[Files, list[LocatedFile]]]:
        located: dict[str, tuple[Files, list[LocatedFile]]] = {}
        if folder.is_dir():
            for name, alternatives in self.card.splits.items():
                for files in alternatives:
                    if files.folders and folder.name not in files.folders:
                        continue
                    of_fold = self._of_fold(files)
                    paths = locate(folder, of_fold)
                    if paths:
                        located[name] = (of_fold, paths)
                        break
        return located

    def _of_fold(self, files: Files) -> Files:
        if not self.card.folds:
            return files
        fold = self.fold if self.fold is not None else self.card.folds[0]
        return replace(files, patterns=tuple(pattern.replace("{fold}", fold) for pattern in files.patterns))

    @property
    def missing(self) -> list[str]:
        """The splits without files, in any of the folds if there are some."""
        if self.folds:
            missing = {name for fold in self.folds for name in fold.missing}
            return [name for name in self.card.splits if name in missing]
        return [name for name in self.card.splits if name not in self.files and name not in self.card.optional]

    @property
    def available(self) -> bool:
        """Whether the files of all splits exist."""
        return not self.missing

    @property
    def folds(self) -> list["DataSet"]:
        """The folds of a cross-validated dataset, each with its own splits; none otherwise."""
        if self.fold is not None:
            return []
        return [DataSet(self.card, self.roots, name) for name in self.card.folds]

    def split(self, name: str, *, tally: Tally | None = None) -> Split:
        """The documents of one split, as its files have them."""
        if name not in self.card.splits:
            raise UsageError(
                f"{self.name} has no split {name!r}; it has {', '.join(self.card.splits)}.",
                code="unknown-split",
                value=name,
            )
        if self.card.folds and self.fold is None:
            raise UsageError(
                f"{self.name} is cross-validated: only its {len(self.card.folds)} folds have splits. Use .folds.",
                code="has-folds",
                value=self.name,
            )
        if name not in self.files:
            raise DataSetError(self._not_found(name), code="missing-split", value=name)
        files, located = self.files[name]
        docs = list(read_documents(located, files, tally if tally is not None else Tally()))
        if not docs:
            paths = ", ".join(str(file.path) for file in located)
            raise DataSetError(
                f"{self.name}: the split {name} is empty; expected documents in {paths}. Get it again.",
                code="empty-split",
                value=name,
            )
        return docs

    def splits(
        self,
        *,
        dev_fraction: float | None = None,
        seed: int = 0,
        overlap: OverlapPolicy = "keep",
        partial: bool = False,
        tally: Tally | None = None,
    ) -> Splits:
        """The documents of train, dev and test, in that order.

        A missing split is an error, unless `partial`. If the dataset has no dev split, `dev_fraction` of train's
        articles are split off with `seed`; the default is what the dataset's users do, for most datasets nothing.
        Training documents whose id or text is in dev or test are kept, dropped and counted, or an error (`overlap`).
        """
        if overlap not in ("keep", "drop", "error"):
            raise UsageError(
                f"overlap is {overlap!r}; expected keep, drop or error.", code="invalid-choice", value=overlap
            )
        tally = tally if tally is not None else Tally()
        names = list(self.files) if partial and self.files else [*self.missing, *self.files]
        splits = {name: self.split(name, tally=tally) for name in names}
        if self.card.refine is not None:
            splits = self.card.refine(splits, self.fold)
        fraction = self.card.dev_fraction if dev_fraction is None else dev_fraction
        if fraction and DEV not in splits and TRAIN in splits:
            splits[TRAIN], splits[DEV] = split_off(splits[TRAIN], fraction=fraction, seed=seed)
            tally.note("document of train split off as dev", len(splits[DEV]))
        counts = {name: count_contents(docs) for name, docs in splits.items()}
        errors = find_errors(counts, positive=self.card.positive, labels=self.task.closed_labels)
        if errors:
            raise DataSetError(
                f"{self.name}: {'; '.join(errors)}. Its scores would be meaningless.",
                code="invalid-split",
                value=self.name,
            )
        splits = self.resolve_overlap(splits, overlap, tally)
        return {name: splits[name] for name in sorted(splits, key=_order)}

    def resolve_overlap(self, splits: Splits, overlap: OverlapPolicy, tally: Tally) -> Splits:
        """The splits without training documents that are in another split, or an error, by the policy."""
        if overlap == "keep":
            return splits
        held_out = {key for name in splits if name != TRAIN for doc in splits[name] for key in _identity(doc)}
        shared = {place for place, doc in enumerate(splits.get(TRAIN, ())) if held_out & set(_identity(doc))}
        if not shared:
            return splits
        if overlap == "error":
            listed = ", ".join(splits[TRAIN][place].id for place in sorted(shared)[:5])
            details = "; ".join(map(str, find_overlaps(splits)))
            raise DataSetError(
                f"{self.name}: {len(shared):,} training documents are in dev or test too: {listed}. {details}. "
                'Load it with overlap="drop" to train without them, or with overlap="keep" to do as the papers do.',
                code="overlapping-splits",
                value=len(shared),
            )
        tally.note("document of train skipped: it is in dev or test", len(shared))
        return {**splits, TRAIN: [doc for place, doc in enumerate(splits[TRAIN]) if place not in shared]}

    def check(self) -> AuditReport:
        """Counts, overlaps, warnings and errors of the splits that exist, or of all folds."""
        if self.card.folds and self.fold is None:
            return _merge_reports({fold.fold or "": fold.check() for fold in self.folds}, self.card)
        if not self.files:
            return AuditReport({}, errors=(self._not_found(None),))
        splits: Splits = {}
        errors: list[str] = []
        for name in self.files:
            try:
                splits[name] = self.split(name)
            except DataSetError as error:
                errors.append(str(error))
        raw = {name: counts for name, counts in self.card.expected.items() if name not in (TRAIN, DEV, TEST)}
        warnings = audit_splits({name: splits[name] for name in raw if name in splits}, expected=raw).warnings
        if self.card.refine is not None and not errors:
            splits = self.card.refine(splits, self.fold)
        expected = dict(self.card.expected) if self.fold is None else {}
        if any(name not in self.files for name in self.card.optional):
            expected.pop(TRAIN, None)
        report = audit_splits(splits, expected=expected, positive=self.card.positive, labels=self.task.closed_labels)
        missing = [f"the split {name} is missing" for name in self.missing]
        return replace(report, warnings=(*missing, *warnings, *report.warnings), errors=(*errors, *report.errors))

    def _not_found(self, split: str | None) -> str:
        searched = ", ".join(str(root) for root in self.roots) or f"./data, and {VARIABLE} names no folder"
        what = f"the split {split} of {self.name}" if split is not None else self.name
        patterns = "; ".join(
            f"{name}: {' or '.join(' + '.join(files.patterns) for files in alternatives)}"
            for name, alternatives in self.card.splits.items()
            if split in (None, name)
        )
        return (
            f"{what} is not in {searched}; expected in a folder {' or '.join(self.card.folders)} the files {patterns} "
            f"(each may be compressed). To get it: {self.card.source} Name the folder with --data or {VARIABLE}, "
            "or in a recipe with data.root."
        )


def _order(name: str) -> int:
    known: Sequence[str] = (TRAIN, DEV, TEST)
    return known.index(name) if name in known else len(known)


def _identity(doc: Document) -> Iterator[tuple[str, str]]:
    """What identifies a document, or each of its questions: its id, and its text unless that is short."""
    for _, id, _, text in identities([doc]):
        yield ("id", id)
        if text:
            yield ("text", text)


def _merge_reports(reports: Mapping[str, AuditReport], card: DatasetCard) -> AuditReport:
    """One report of all folds: the sum of their test splits, and their warnings and errors by name."""
    counts = {f"{fold}/{split}": count for fold, report in reports.items() for split, count in report.counts.items()}
    total: dict[str, int] = {}
    for report in reports.values():
        for what, number in report.counts.get(TEST, {}).items():
            total[what] = total.get(what, 0) + number
    warnings = [f"fold {fold}: {warning}" for fold, report in reports.items() for warning in report.warnings]
    warnings += [
        f"the folds' test splits have {total.get(what, 0):,} {what}; expected {number:,}: "
        "the files are damaged or another version"
        for what, number in card.expected.get(TEST, {}).items()
        if total.get(what, 0) != number
    ]
    errors = [f"fold {fold}: {error}" for fold, report in reports.items() for error in report.errors]
    overlaps = tuple(overlap for report in reports.values() for overlap in report.overlaps)
    return AuditReport({**counts, "all folds' test": total}, overlaps, tuple(warnings), tuple(errors))
