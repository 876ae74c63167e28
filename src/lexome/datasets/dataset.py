"""A data set: what is known of it, where its files are, its splits and folds as Documents, and its task."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lexome.datasets.audit import Report, check, counted, faults, identities, overlaps
from lexome.datasets.splits import VARIABLE, Files, Found, documents, locate, part_off
from lexome.document import Document
from lexome.errors import DataSetError, UsageError
from lexome.formats.tally import Tally

if TYPE_CHECKING:
    from lexome.tasks.task import Task

Split = list[Document]
Splits = dict[str, Split]
Refine = Callable[[Splits, str | None], Splits]

TRAIN, DEV, TEST = "train", "dev", "test"


@dataclass(frozen=True)
class Card:
    """What is known of a set before it is looked for.

    task      the settings that lexome.tasks.task_of makes its task of
    measure   what the papers report on it
    splits    where each split's files are: the first of the alternatives that is there is taken
    folders   what its folder may be called, in the folder of all sets
    expected  counts that are known of each split, so that a damaged copy is noticed
    positive  the labels that are scored, of which no split may have none
    papers    the studies that use it
    get       where to get it, and how to apply where that is needed
    notes     what one has to know before comparing numbers
    folds     how many there are, where it is cross-validated; the splits of each have {fold} in their patterns
    refine    what is done to the splits of a fold, or of the set, together: splits drawn as the owner says
    dev_share the share of train that is drawn as dev where the set has none and its users draw one
    optional  splits that the set can do without
    licensed  whether each user has to apply for it
    """

    name: str
    about: str
    task: Mapping[str, Any]
    measure: str
    splits: Mapping[str, tuple[Files, ...]]
    folders: tuple[str, ...]
    licence: str
    get: str
    citation: str = ""
    expected: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    positive: tuple[str, ...] = ()
    papers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    folds: tuple[str, ...] = ()
    refine: Refine | None = None
    dev_share: float = 0.0
    licensed: bool = False
    optional: tuple[str, ...] = ()


@dataclass(frozen=True)
class DataSet:
    """A set as it was found, or not, under some folders.

    `fold` is the name of the fold this is, where it is one of a set's.
    """

    card: Card
    roots: tuple[Path, ...]
    fold: str | None = None

    @property
    def name(self) -> str:
        """What the set is called, and which fold of it this is."""
        return self.card.name if self.fold is None else f"{self.card.name} fold {self.fold}"

    @property
    def settings(self) -> Mapping[str, Any]:
        """The task's settings, as lexome.tasks.task_of reads them."""
        return self.card.task

    @property
    def task(self) -> "Task":
        """The task that the set is for."""
        from lexome.tasks import task_of

        return task_of(self.card.task)

    @cached_property
    def folder(self) -> Path | None:
        """The set's folder: of those that may be it, the one where most of its splits are."""
        names = {Path(name).name for name in self.card.folders}
        candidates = [root / name for root in self.roots for name in self.card.folders]
        candidates += [root for root in self.roots if root.resolve().name in names]
        best = max(candidates, key=lambda folder: len(self._found_in(folder)), default=None)
        return best if best is not None and self._found_in(best) else None

    @cached_property
    def found(self) -> Mapping[str, tuple[Files, list[Found]]]:
        """For each split that is here, how it is read and its files."""
        return self._found_in(self.folder) if self.folder is not None else {}

    @property
    def missing(self) -> list[str]:
        """The splits whose files are not here, in any of the folds where there are some."""
        if self.folds:
            lost = {name for fold in self.folds for name in fold.missing}
            return [name for name in self.card.splits if name in lost]
        return [name for name in self.card.splits if name not in self.found and name not in self.card.optional]

    @property
    def here(self) -> bool:
        """True where the files of every split are."""
        return not self.missing

    @property
    def folds(self) -> list["DataSet"]:
        """The folds of a set that is cross-validated, each a set with train and test; none otherwise."""
        if self.fold is not None:
            return []
        return [DataSet(self.card, self.roots, name) for name in self.card.folds]

    def split(self, name: str, *, tally: Tally | None = None) -> Split:
        """The documents of one split, as its files give them."""
        if name not in self.card.splits:
            raise UsageError(f"{self.name} has no split {name!r}; it has {', '.join(self.card.splits)}.")
        if self.card.folds and self.fold is None:
            raise UsageError(
                f"{self.name} is cross-validated: its splits are those of its {len(self.card.folds)} folds. Use .folds."
            )
        if name not in self.found:
            raise DataSetError(self._not_here(name))
        files, found = self.found[name]
        docs = list(documents(found, files, tally if tally is not None else Tally()))
        if not docs:
            names = ", ".join(str(file.path) for file in found)
            raise DataSetError(f"{self.name}: the split {name} is empty; expected documents in {names}. Get it again.")
        return docs

    def splits(
        self,
        *,
        dev_share: float | None = None,
        seed: int = 0,
        overlap: Literal["keep", "drop", "error"] = "keep",
        partial: bool = False,
        tally: Tally | None = None,
    ) -> Splits:
        """The documents of train, dev and test, in that order.

        A split that is not here is an error, unless `partial`. Where the set has no dev, `dev_share` of train's
        articles are drawn with `seed`; the default is what the set's users do, which for most sets is nothing. Training
        documents whose id or text is in dev or test are kept, dropped and counted, or an error, as `overlap` says.
        """
        if overlap not in ("keep", "drop", "error"):
            raise UsageError(f"overlap is {overlap!r}; expected keep, drop or error.")
        tally = tally if tally is not None else Tally()
        names = list(self.found) if partial and self.found else [*self.missing, *self.found]
        read = {name: self.split(name, tally=tally) for name in names}
        if self.card.refine is not None:
            read = self.card.refine(read, self.fold)
        share = self.card.dev_share if dev_share is None else dev_share
        if share and DEV not in read and TRAIN in read:
            read[TRAIN], read[DEV] = part_off(read[TRAIN], share=share, seed=seed)
            tally.note("document of train drawn for dev", len(read[DEV]))
        self._require_sound(read)
        read = self.apart(read, overlap, tally)
        return {name: read[name] for name in sorted(read, key=_order)}

    def check(self) -> Report:
        """Counts, overlaps and what is wrong, of the splits that are here; of each fold for a set of folds."""
        if self.card.folds and self.fold is None:
            return _joined({fold.fold or "": fold.check() for fold in self.folds}, self.card)
        if not self.found:
            return Report({}, errors=(self._not_here(None),))
        read: Splits = {}
        errors: list[str] = []
        for name in self.found:
            try:
                read[name] = self.split(name)
            except DataSetError as error:
                errors.append(str(error))
        known = {name: counts for name, counts in self.card.expected.items() if name not in (TRAIN, DEV, TEST)}
        before = check({name: read[name] for name in known if name in read}, expected=known).warnings
        if self.card.refine is not None and not errors:
            read = self.card.refine(read, self.fold)
        expected = dict(self.card.expected) if self.fold is None else {}
        if any(name not in self.found for name in self.card.optional):
            expected.pop(TRAIN, None)
        found = check(read, expected=expected, positive=self.card.positive, labels=self._labels)
        missing = [f"the split {name} is not here" for name in self.missing]
        return Report(found.counts, found.overlaps, (*missing, *before, *found.warnings), (*errors, *found.errors))

    def apart(self, read: Splits, overlap: Literal["keep", "drop", "error"], tally: Tally) -> Splits:
        """The splits without the training documents that are in another split, or an error that names some."""
        if overlap == "keep":
            return read
        held = {key for name in read if name != TRAIN for doc in read[name] for key in _identity(doc)}
        shared = {place for place, doc in enumerate(read.get(TRAIN, ())) if held & set(_identity(doc))}
        if not shared:
            return read
        if overlap == "error":
            listed = ", ".join(read[TRAIN][place].id for place in sorted(shared)[:5])
            said = "; ".join(str(found) for found in overlaps(read))
            raise DataSetError(
                f"{self.name}: {len(shared):,} training documents are in dev or test too: {listed}. {said}. "
                'Load it with overlap="drop" to train without them, or with overlap="keep" to do as the papers do.'
            )
        tally.note("document of train left out: it is in dev or test", len(shared))
        return {**read, TRAIN: [doc for place, doc in enumerate(read[TRAIN]) if place not in shared]}

    def _found_in(self, folder: Path) -> dict[str, tuple[Files, list[Found]]]:
        there: dict[str, tuple[Files, list[Found]]] = {}
        if folder.is_dir():
            for name, alternatives in self.card.splits.items():
                for files in alternatives:
                    if files.folders and folder.name not in files.folders:
                        continue
                    chosen = self._of_fold(files)
                    found = locate(folder, chosen)
                    if found:
                        there[name] = (chosen, found)
                        break
        return there

    def _of_fold(self, files: Files) -> Files:
        if not self.card.folds:
            return files
        fold = self.fold if self.fold is not None else self.card.folds[0]
        patterns = tuple(pattern.replace("{fold}", fold) for pattern in files.patterns)
        return replace(files, patterns=patterns)

    def _not_here(self, split: str | None) -> str:
        looked = ", ".join(str(root) for root in self.roots) or f"./data, and {VARIABLE} names no folder"
        what = f"the split {split} of {self.name}" if split is not None else self.name
        wanted = "; ".join(
            f"{name}: {' or '.join(' + '.join(files.patterns) for files in alternatives)}"
            for name, alternatives in self.card.splits.items()
            if split in (None, name)
        )
        return (
            f"{what} is not in {looked}; expected in a folder {' or '.join(self.card.folders)} the files {wanted} "
            f"(each may be compressed). To get it: {self.card.get} Name the folder with --data or {VARIABLE}, "
            "or in a recipe with data.root."
        )

    @property
    def _labels(self) -> Sequence[str]:
        """All labels that the task has, where each that is not among them is an error."""
        known = self.card.task["kind"] in ("relation", "classes", "inference")
        named: Sequence[str] = self.card.task.get("labels", ()) if known else ()
        return named if self.card.task.get("others", "refuse") == "refuse" else ()

    def _require_sound(self, read: Splits) -> None:
        counts = {name: counted(docs) for name, docs in read.items()}
        found = faults(counts, positive=self.card.positive, labels=self._labels)
        if found:
            raise DataSetError(f"{self.name}: {'; '.join(found)}. A score over it would mean nothing.")


def _order(name: str) -> int:
    known: Sequence[str] = (TRAIN, DEV, TEST)
    return known.index(name) if name in known else len(known)


def _identity(doc: Document) -> Iterator[tuple[str, str]]:
    """What tells a document, or each of its questions, from others: its id, and its text where that is not short."""
    for _, id, _, text in identities([doc]):
        yield ("id", id)
        if text:
            yield ("text", text)


def _joined(reports: Mapping[str, Report], card: Card) -> Report:
    """The reports on the folds as one: their test splits together, their faults under their names."""
    counts: dict[str, dict[str, int]] = {}
    for fold, report in reports.items():
        for split, count in report.counts.items():
            counts[f"{fold}/{split}"] = dict(count)
    total: dict[str, int] = {}
    for report in reports.values():
        for what, number in report.counts.get(TEST, {}).items():
            total[what] = total.get(what, 0) + number
    counts["all folds' test"] = total
    warnings = [f"fold {fold}: {warning}" for fold, report in reports.items() for warning in report.warnings]
    warnings += [
        f"the folds' test splits have {total.get(what, 0):,} {what}; expected {number:,}: "
        "the files are damaged or another version"
        for what, number in card.expected.get(TEST, {}).items()
        if total.get(what, 0) != number
    ]
    errors = [f"fold {fold}: {error}" for fold, report in reports.items() for error in report.errors]
    shared = tuple(overlap for report in reports.values() for overlap in report.overlaps)
    return Report(counts, shared, tuple(warnings), tuple(errors))
