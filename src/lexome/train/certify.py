"""Eight bits only where they change next to nothing: what is tried, what is asked, and the certificate of it."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from lexome.document import Document
from lexome.errors import CheckpointError, UsageError
from lexome.infer.model import Model
from lexome.infer.settings import MODEL
from lexome.tasks import Task
from lexome.tasks.metrics.counts import Counts
from lexome.tasks.task import Row
from lexome.train.equalise import equalised
from lexome.train.judged import HeldOut, Scored, agreement, answers, scores
from lexome.train.onnx_graph import save_graph
from lexome.train.quantise import matrices, quantised
from lexome.train.record import surroundings
from lexome.values import value

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


@value
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


def _some(rows: Sequence[Row]) -> list[Row]:
    """Some rows, spread over all: sources come one after another."""
    step = max(1, len(rows) // TRIED_ROWS)
    return list(rows[::step][:TRIED_ROWS])
