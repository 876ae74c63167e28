"""Eight bits only where they change next to nothing: what is tried, what is asked, and the certificate of it."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from lexome.datasets import find, folder, names
from lexome.document import Document
from lexome.errors import CheckpointError, UsageError
from lexome.export.onnx_graph import save_graph
from lexome.export.quantize import equalised, matrices, quantised
from lexome.formats import read
from lexome.formats.jsonl import to_json
from lexome.infer.model import Model
from lexome.infer.model_folder import MODEL
from lexome.recipe.finetune import Names
from lexome.tasks import Task
from lexome.tasks.metrics.spans import Counts
from lexome.tasks.task import Example
from lexome.training.finetune.examples import under
from lexome.training.run_record import RUN, surroundings

NOTHING: Mapping[str, Mapping[str, str]] = {}


@dataclass(frozen=True)
class HeldOut:
    """Documents of one source, the name that a task knows the source by, and the split they are."""

    source: str
    split: str | None
    docs: list[Document]

    def facts(self) -> dict[str, Any]:
        """What is kept in a certificate: name, size, and a hash of all that the documents say."""
        total = hashlib.sha256()
        for doc in self.docs:
            total.update(to_json(doc) + b"\n")
        return {
            "source": self.source,
            "split": self.split,
            "documents": len(self.docs),
            "sha256": total.hexdigest(),
        }


def held_out(
    name: str, *, split: str, task: Task, data: Path | None = None, rename: Mapping[str, Mapping[str, Names]] = NOTHING
) -> HeldOut:
    """The documents that are meant: a split of a set or of a folder with splits, or all of a file.

    Sets are looked for in `data`, else where LEXOME_DATA says. `rename` has, by source, the names that the model knows
    types under.
    """
    path = Path(name)
    if path.is_file():
        found = HeldOut(plain_stem(path), None, list(read(path)))
    elif path.is_dir():
        found = HeldOut(path.resolve().name, split, folder(path, task=task.settings()).split(split))
    elif name.lower() in map(str.lower, names()):
        known = find(name, data=data)
        parts = known.splits(partial=True)
        if split not in parts:
            raise UsageError(
                f"{known.name} has no split {split!r}; it has {', '.join(parts)}. Choose one with --split."
            )
        found = HeldOut(known.card.name, split, parts[split])
    else:
        raise UsageError(f"{name!r} is no file, no folder and no data set. `lexome datasets` lists the sets.")
    if not found.docs:
        raise UsageError(f"{name} has no documents; expected some that the model was not trained on.")
    others = rename.get(found.source, {})
    return replace(found, docs=[under(doc, others) for doc in found.docs]) if others else found


def renamed_types(checkpoint: Path) -> dict[str, dict[str, Names]]:
    """By source, the types that a checkpoint learnt under other names, as the record of its fine-tuning says."""
    for path in (checkpoint / RUN, checkpoint.parent / RUN):
        # A record of something else says nothing of types.
        with suppress(OSError, ValueError, LookupError, TypeError):
            found: dict[str, dict[str, Names]] = json.loads(path.read_bytes())["recipe"]["data"]["rename"]
            return found
    return {}


def require_apart(sources: Sequence[str]) -> None:
    """UsageError where two sources have one name, under which both would be scored."""
    for number, name in enumerate(sources):
        if name in sources[:number]:
            raise UsageError(f"two held-out sources are called {name!r}; expected names apart. Rename one file.")


def plain_stem(path: Path) -> str:
    """The name of a file without its endings."""
    return path.name.partition(".")[0]


def answers(model: Model, held: Sequence[HeldOut]) -> list[list[Document]]:
    """What a model says of the documents of each source, in its own words."""
    return [list(model.annotated(part.docs)) for part in held]


@dataclass(frozen=True, slots=True)
class Scored:
    """How good answers are: the task's first measure, of each source and as the mean over them."""

    measure: str
    mean: float
    sources: dict[str, float]


def scores(task: Task, held: Sequence[HeldOut], found: Sequence[Sequence[Document]]) -> Scored:
    """The first measure of the task; each source is scored by what it annotates, and counts the same."""
    measure, sources = "", {}
    for part, own in zip(held, found, strict=True):
        measure, sources[part.source] = next(iter(task.for_source(part.source).score(part.docs, own).items()))
    return Scored(measure, sum(sources.values()) / len(sources), sources)


def agreement(task: Task, one: Sequence[Sequence[Document]], other: Sequence[Sequence[Document]]) -> Counts:
    """What both models say, and what only one of them says; F1 of it is the share that they agree on."""
    both = first = second = 0
    for left, right in zip(_flat(one), _flat(other), strict=True):
        own, said = task.predictions(left), task.predictions(right)
        both, first, second = both + len(own & said), first + len(own - said), second + len(said - own)
    return Counts(both, second, first)


def _flat(parts: Sequence[Sequence[Document]]) -> list[Document]:
    return [doc for part in parts for doc in part]


CERTIFICATE = "certificate.json"

# Two models that differ more than this are two models.
AGREEMENT = 0.995
DIFFERENCE = 0.001

# Rows on which each matrix is tried alone, to see which bears rounding worst.
TRIED_ROWS = 32
# With more than this share of matrices left as they were, eight bits are not worth having.
MOST_KEPT = 0.5

Tell = Callable[[str], None]
Answers = Sequence[Sequence[Document]]


@dataclass(frozen=True, slots=True)
class Bar:
    """What a model in eight bits must reach: the least agreement with fp32, and how far its score may be off.

    `lowered` is set where someone asked for less than Lexome does, and said so.
    """

    agreement: float = AGREEMENT
    difference: float = DIFFERENCE
    lowered: bool = False


def bar(*, agreement: float | None, difference: float | None, lowered: bool) -> Bar:
    """The bar that is asked for; UsageError where it is lower than Lexome's own and nobody said that it may be."""
    made = Bar(AGREEMENT if agreement is None else agreement, DIFFERENCE if difference is None else difference)
    if not (0 <= made.agreement <= 1 and 0 <= made.difference <= 1):
        raise UsageError(
            f"an agreement of {made.agreement:g} and a difference of {made.difference:g} are asked for; expected "
            "shares from 0 to 1."
        )
    lower = made.agreement < AGREEMENT or made.difference > DIFFERENCE
    if lower and not lowered:
        raise UsageError(
            f"an agreement of {made.agreement:g} and a difference of {made.difference:g} ask for less than "
            f"{AGREEMENT:g} and {DIFFERENCE:g}. Ask for more, or add --accept-less, which the certificate will say."
        )
    return Bar(made.agreement, made.difference, lowered=lower)


@dataclass(frozen=True)
class Trial:
    """One model in eight bits: the matrices left in fp32, and how it compares with fp32."""

    kept: tuple[str, ...]
    agreed: Counts
    scored: Scored
    found: Answers
    size: int

    def passes(self, asked: Bar, before: Scored) -> bool:
        """Whether the answers agree, and the score has stayed where it was."""
        return self.agreed.f1 >= asked.agreement and abs(self.scored.mean - before.mean) <= asked.difference


@dataclass
class Trials:
    """Eight-bit forms of one model, each tried on documents that it was not trained on.

    The folder holds the fp32 form when this begins, and the form of the last trial afterwards.
    """

    folder: Path
    task: Task
    held: Sequence[HeldOut]
    asked: Bar
    tell: Tell

    def __post_init__(self) -> None:
        self.exact = onnx.load(str(self.folder / MODEL))
        self.size = (self.folder / MODEL).stat().st_size
        self.sha256 = file_sha256(self.folder / MODEL)
        model = Model.open(self.folder)
        self.found = answers(model, self.held)
        self.before = scores(self.task, self.held, self.found)
        self.rows = _some([row for part in self.held for doc in part.docs for row in model.rows(doc)])
        self.even = equalised(self.exact, self.rows)
        self.tried: list[Trial] = []

    def best(self) -> Trial:
        """The first that passes, with as few matrices left in fp32 as need be; CheckpointError where none does."""
        every = matrices(self.exact)
        done = self._tried(())
        if done.passes(self.asked, self.before):
            return done
        order = self._worst_first(every)
        for count in range(1, int(len(every) * MOST_KEPT) + 1):
            done = self._tried(tuple(name for name in every if name in order[:count]))
            if done.passes(self.asked, self.before):
                return done
        raise CheckpointError(self._refused())

    def _tried(self, kept: tuple[str, ...]) -> Trial:
        even = self.even
        save_graph(quantised(even.model, keep=kept, by_token=even.tokens), self.folder / MODEL)
        found = answers(Model.open(self.folder), self.held)
        agreed = agreement(self.task, self.found, found)
        scored = scores(self.task, self.held, found)
        done = Trial(kept, agreed, scored, found, (self.folder / MODEL).stat().st_size)
        self.tried.append(done)
        self.tell(
            f"int8, {len(kept)} matrices left in fp32: agreement {100 * agreed.f1:.2f}%, {scored.measure} "
            f"{100 * scored.mean:.2f} (fp32: {100 * self.before.mean:.2f})"
        )
        return done

    def _worst_first(self, every: Sequence[str]) -> list[str]:
        """The matrices by how much the model's numbers move when one of them alone is in eight bits."""
        save_graph(self.exact, self.folder / MODEL)
        expected = Model.open(self.folder).run(self.rows)
        moved: dict[str, float] = {}
        for name in every:
            alone = quantised(self.even.model, only=[name], by_token=self.even.tokens)
            save_graph(alone, self.folder / MODEL)
            seen = Model.open(self.folder).run(self.rows)
            moved[name] = sum(float(np.square(one - other).sum()) for one, other in zip(seen, expected, strict=True))
        self.tell(f"the matrix that bears rounding worst: {max(moved, key=lambda name: moved[name])}")
        return sorted(moved, key=lambda name: -moved[name])

    def _refused(self) -> str:
        closest = max(self.tried, key=lambda trial: trial.agreed.f1)
        off = 100 * abs(closest.scored.mean - self.before.mean)
        return (
            f"in eight bits the model agrees with itself in fp32 on {100 * closest.agreed.f1:.2f}%, and its "
            f"{closest.scored.measure} is {off:.2f} points off, at best, of {len(self.tried)} ways tried; expected "
            f"{100 * self.asked.agreement:g}% or more, and {100 * self.asked.difference:g} or less. Nothing was "
            "written. Export it as fp32, or judge it on more documents: a handful of mentions decides here."
        )

    def facts(self, chosen: Trial) -> dict[str, Any]:
        """What the certificate says of the trials."""
        said = chosen.agreed
        return {
            "agreement": {
                "value": said.f1,
                "at_least": self.asked.agreement,
                "both": said.true_positives,
                "only_fp32": said.false_negatives,
                "only_int8": said.false_positives,
            },
            "score": {
                **score_facts(chosen.scored),
                "fp32": score_facts(self.before),
                "difference": abs(chosen.scored.mean - self.before.mean),
                "at_most": self.asked.difference,
            },
            "bar_lowered": self.asked.lowered,
            "left_in_fp32": list(chosen.kept),
            "equalised": list(self.even.channels),
            "by_token": list(self.even.tokens),
            "tried": [
                {"left_in_fp32": len(one.kept), "agreement": one.agreed.f1, one.scored.measure: one.scored.mean}
                for one in self.tried
            ],
            "bytes": {"fp32": self.size, "int8": chosen.size},
            "fp32_sha256": self.sha256,
        }


def score_facts(scored: Scored) -> dict[str, Any]:
    """A score as the certificate has it."""
    return {"measure": scored.measure, "value": scored.mean, "sources": scored.sources}


def write_certificate(folder: Path, *, precision: str, held: Sequence[HeldOut], facts: dict[str, Any]) -> None:
    """Write certificate.json beside the model: what was measured, on what, of which file, with what, and when."""
    around = surroundings()
    around["versions"] |= {"onnx": onnx.__version__, "onnxruntime": onnxruntime.__version__}
    held_facts = {
        "precision": precision,
        "model_sha256": file_sha256(folder / MODEL),
        "held_out": [part.facts() for part in held],
        **facts,
        **around,
    }
    text = json.dumps(held_facts, indent=1, ensure_ascii=False)
    (folder / CERTIFICATE).write_text(text + "\n", encoding="utf-8")


def file_sha256(path: Path) -> str:
    """The hash of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _some(rows: Sequence[Example]) -> list[Example]:
    """Some rows, spread over all: sources come one after another."""
    step = max(1, len(rows) // TRIED_ROWS)
    return list(rows[::step][:TRIED_ROWS])
